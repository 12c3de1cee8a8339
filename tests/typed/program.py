"""A user's program: mypy --strict and pyright find nothing in it, and it runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import assert_type

import tape_core as tc
import tape_nn as nn
from tape_core import Tensor, Variable


class Mlp(nn.Module):
    """Two layers."""

    def __init__(self, width: int) -> None:
        self.hidden = nn.Dense(width, activation="tanh")
        self.out = nn.Dense(1)

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(self.hidden(x))


class Trainer:
    """A model and its optimizer, with a compiled step as a method."""

    def __init__(self, model: Mlp, learning_rate: float) -> None:
        self.model = model
        self.optimizer = nn.Adam(learning_rate=learning_rate)

    @tc.function
    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one step; return the loss."""
        with tc.GradientTape() as tape:
            loss = tc.mean((self.model(x) - y) ** 2)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        assert_type(gradients, tuple[Tensor, ...])
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss

    @tc.function(retrace="allow")
    def predict(self, x: Tensor) -> Tensor:
        """Return the model's results."""
        return self.model(x)


def train(trainer: Trainer, x: Tensor, y: Tensor, steps: int) -> float:
    """Return the mean loss."""
    total = 0.0
    for _ in range(steps):
        loss = trainer.step(x, y)
        assert_type(loss, Tensor)
        assert_type(loss.item(), float)
        total += loss.item()
        if loss.item() < 1e-6:
            break
    return total / steps


def energy(x: Tensor, scale: float = 1.0) -> Tensor:
    """Return a number."""
    return tc.sum(x**4) * scale


def with_aux(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a number, and what else is to be seen."""
    return energy(x), {"largest": tc.max(x)}


@tc.custom_gradient
def clipped(x: Tensor) -> tuple[Tensor, object]:
    """Return x; its gradient is clipped."""

    def pull(g: Tensor) -> Tensor:
        return tc.clip(g, -1.0, 1.0)

    return x, pull


@tc.checkpoint
def block(x: Tensor, w: Tensor) -> Tensor:
    """Return a layer, which is computed again in the backward pass."""
    return tc.tanh(x @ w)


@tc.function
def fused(x: Tensor, times: int) -> Tensor:
    """Return a multiple."""
    return x * times


def derivatives() -> None:
    """Differentiate in every way."""
    x = tc.asarray([1.0, 2.0])
    rows: Tensor = tc.vmap(tc.grad(energy))(tc.ones((3, 2)))
    assert rows.shape == (3, 2)
    value, gradient = tc.value_and_grad(energy)(x, scale=2.0)
    assert_type(value, Tensor)
    checked: Tensor = gradient
    (loss, aux), _ = tc.value_and_grad(with_aux, has_aux=True)(x)
    assert_type(loss, Tensor)
    assert_type(aux, dict[str, Tensor])
    _, seen = tc.grad(with_aux, has_aux=True)(x)
    assert_type(seen, dict[str, Tensor])
    hessian: Tensor = tc.hessian(energy)(x)
    jacobian: Tensor = tc.jacrev(energy)(x)
    columns: Tensor = tc.jacfwd(energy)(x)
    y, slope = tc.jvp(energy, (x,), (tc.ones_like(x),))
    assert_type(y, Tensor)
    assert_type(slope, Tensor)
    z, pull = tc.vjp(energy, x)
    assert_type(z, Tensor)
    (back,) = pull(1.0)
    assert_type(clipped(x), Tensor)
    assert_type(block(x[None, :], tc.ones((2, 2))), Tensor)
    assert_type(fused(x, times=2), Tensor)
    assert_type(tc.vmap(energy)(x[:, None]), Tensor)
    shapes = [checked.shape, hessian.shape, jacobian.shape, columns.shape, back.shape]
    assert shapes == [(2,), (2, 2), (2,), (2,), (2,)]


def tapes() -> None:
    """Differentiate by tapes."""
    x = tc.asarray([1.0, 2.0])
    w = Variable([3.0, 4.0])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch([x])
        y = tc.einsum("i,i->", x, w)
        z = x * w
    assert_type(y, Tensor)
    assert_type(tape.gradient(y, x), Tensor)
    assert_type(tape.gradient(y, w), Tensor)
    assert_type(tape.gradient(y, [x, w]), list[Tensor])
    assert_type(tape.gradient(y, {"w": w}), dict[str, Tensor])
    assert_type(tape.gradient(y, (w, w)), tuple[Tensor, ...])
    maybe = tape.gradient(y, x, unconnected_gradients="none")
    assert_type(maybe, Tensor | None)
    if maybe is not None:
        assert maybe.tolist() == [3.0, 4.0]
    assert_type(tape.gradient(y, x, unconnected_gradients="zero"), Tensor)
    assert_type(tape.jacobian(z, w), Tensor)
    assert_type(tape.jacobian(z, [x, w]), list[Tensor])
    assert_type(tape.batch_jacobian(z[:, None], x[:, None], unconnected_gradients="zero"), Tensor)
    assert_type(w.assign(tape.gradient(y, w)), Variable)


def loops(x: Tensor) -> Tensor:
    """Return what a scan carries last."""

    def body(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        return total + row, total * row

    last: Tensor
    last, _ = tc.scan(body, tc.zeros_like(x[0]), x)
    chosen: Tensor = tc.cond(tc.sum(last) > 0, tc.sin, tc.cos, last)
    return chosen


def save_and_load(model: Mlp, x: Tensor) -> bool:
    """Return whether a file brings the weights back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save_weights(path, {"made": "by a test"})
        other = Mlp(8)
        other(x)
        metadata = other.load_weights(path)
    assert_type(metadata, dict[str, str])
    return bool(tc.all(model(x) == other(x)))


def main() -> None:
    """Run everything."""
    rng = tc.default_rng(0)
    x = rng.normal((16, 3))
    assert_type(x, Tensor)
    y = tc.sum(x, axis=1, keepdims=True)
    model = Mlp(8)
    model(x)
    trainer = Trainer(model, 1e-2)
    first = trainer.step(x, y).item()
    mean_loss = train(trainer, x, y, 30)
    assert mean_loss < first
    assert_type(trainer.predict(x), Tensor)
    assert trainer.step.traces > 0
    derivatives()
    tapes()
    assert loops(x).shape == (3,)
    assert save_and_load(model, x)


if __name__ == "__main__":
    main()
