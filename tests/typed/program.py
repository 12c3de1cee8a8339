"""A user's program: mypy --strict and pyright find nothing in it, and it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, assert_type

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


Weights: TypeAlias = dict[str, Tensor]


def model_loss(weights: Weights, x: Tensor) -> Tensor:
    """Return the loss of a linear model."""
    return tc.sum((weights["w"] * x + weights["b"]) ** 2)


def wave(x: Tensor) -> Tensor:
    """Return a number of a number."""
    return tc.sin(x) * x


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
    value, checked = tc.value_and_grad(energy)(x, scale=2.0)
    assert_type(value, Tensor)
    assert_type(checked, Tensor)
    assert_type(tc.grad(energy)(x), Tensor)
    twice: Tensor = tc.grad(tc.grad(wave))(x[0])
    assert twice.shape == ()
    weights: Weights = {"w": x, "b": x[0]}
    assert_type(tc.grad(model_loss)(weights, x), Weights)
    assert_type(tc.grad(model_loss, 1)(weights, x), Tensor)
    assert_type(tc.grad(model_loss, (0, 1))(weights, x), tuple[Weights, Tensor])
    assert_type(tc.value_and_grad(model_loss)(weights, x), tuple[Tensor, Weights])
    assert_type(tc.value_and_grad(model_loss, argnums=1)(weights, x), tuple[Tensor, Tensor])
    assert_type(tc.jacrev(model_loss)(weights, x), Weights)
    energy_of_lambda: Callable[[Tensor], Tensor] = tc.grad(lambda x: tc.sum(x * 2.0))
    assert energy_of_lambda(x).shape == (2,)
    (loss, aux), _ = tc.value_and_grad(with_aux, has_aux=True)(x)
    assert_type(loss, Tensor)
    assert_type(aux, dict[str, Tensor])
    _, seen = tc.grad(with_aux, has_aux=True)(x)
    assert_type(seen, dict[str, Tensor])
    hessian, jacobian, columns = tc.hessian(energy)(x), tc.jacrev(energy)(x), tc.jacfwd(energy)(x)
    assert_type(hessian, Tensor)
    assert_type(jacobian, Tensor)
    assert_type(columns, Tensor)
    y, slope = tc.jvp(energy, (x,), (tc.ones_like(x),))
    assert_type(y, Tensor)
    assert_type(slope, Tensor)
    z, pull = tc.vjp(energy, x)
    assert_type(z, Tensor)
    (back,) = pull(1.0)
    assert_type(back, Tensor)
    _, pull_both = tc.vjp(model_loss, weights, x)
    assert_type(pull_both(1.0), tuple[Weights, Tensor])
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

    def steps(carry: tuple[Tensor, Tensor], _: None) -> tuple[tuple[Tensor, Tensor], Tensor]:
        return (carry[1], carry[0] + carry[1]), carry[0]

    def is_small(c: Tensor) -> Tensor:
        return tc.max(c) < 9

    def twice(c: Tensor) -> Tensor:
        return c * 2

    last, products = tc.scan(body, tc.zeros_like(x[0]), x)
    assert_type(last, Tensor)
    assert_type(products, Tensor)
    assert_type(tc.scan(body, 0.0, x[:, 0])[0], Tensor)
    pair, numbers = tc.scan(steps, (x[0], x[1]), length=4)
    assert_type(pair, tuple[Tensor, Tensor])
    assert_type(numbers, Tensor)
    halved: Tensor = tc.while_loop(lambda c: tc.max(c) > 1, lambda c: c / 2, tc.abs(x))
    assert float(tc.max(halved)) <= 1
    assert_type(tc.while_loop(is_small, twice, 1.0), Tensor)
    assert_type(tc.while_loop(is_small, twice, x), Tensor)
    assert_type(tc.map(energy, x), Tensor)
    chosen = tc.cond(tc.sum(last) > 0, tc.sin, tc.cos, last)
    assert_type(chosen, Tensor)
    return chosen


def random_numbers() -> None:
    """Draw in several ways."""
    rng = tc.default_rng(0)
    assert_type(rng, tc.Generator)
    first, second = rng.split()
    assert_type(first, tc.Generator)
    assert_type(first.uniform((2, 3), low=-1.0), Tensor)
    assert_type(second.integers(0, 10, 5), Tensor)
    assert_type(rng.permutation(4), Tensor)
    assert_type(rng.choice(10, (3,), replace=False), Tensor)
    assert_type(rng.categorical(tc.zeros((2, 3))), Tensor)
    state = rng.get_state()
    rng.set_state(state)


def methods(x: Tensor) -> None:
    """Call the methods of arrays."""
    assert_type(x.T.mT.real.imag, Tensor)
    assert_type(x.std(axis=0, ddof=1).argsort().swapaxes(0, -1), Tensor)
    assert_type(x.round(2).reshape(-1).dot(x.flatten()), Tensor)
    assert_type(x.transpose(1, 0).reshape((2, -1)), Tensor)
    assert_type(x.nonzero(), tuple[Tensor, ...])
    assert_type(x.nbytes, int)
    assert_type(2.0 in x, bool)


def optimizers(model: Mlp, x: Tensor) -> None:
    """Train with schedules and by `fit`."""
    schedule = nn.schedules.CosineDecay(0.1, 10)
    optimizer = nn.AdamW(learning_rate=schedule, weight_decay=1e-2)
    rate: float = optimizer.learning_rate
    assert rate > 0
    optimizer.apply_gradients([(tc.zeros_like(v), v) for v in model.trainable_variables])
    data = (x, tc.sum(x, axis=1, keepdims=True))
    loss = nn.losses.MeanSquaredError()
    history = nn.fit(model, data, loss=loss, optimizer=nn.SGD(0.01, weight_decay=1e-3), progress=False)
    assert history


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
    random_numbers()
    methods(x)
    optimizers(model, x)
    assert loops(x).shape == (3,)
    assert save_and_load(model, x)


if __name__ == "__main__":
    main()
