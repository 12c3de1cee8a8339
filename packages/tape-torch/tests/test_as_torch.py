"""`as_torch`: functions of Tape under torch.autograd."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import tape_core as tc
import tape_torch
import torch

Array = Any


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    torch.manual_seed(0)
    with tc.use_backend("torch"):
        yield


def numbers(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def norm(x: Any) -> Any:
    return tc.sqrt(tc.sum(x * x))


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (norm, [(3,)]),
        (lambda x, y: tc.sin(x) * tc.matmul(y, x), [(3,), (3, 3)]),
        (lambda x: (x * x, tc.exp(x)), [(2,)]),
        (lambda x: x, [(2,)]),
        (lambda x: tc.reshape(x, (4,)), [(2, 2)]),
        (lambda x: tc.gather(x, tc.asarray([1, 1])) ** 2, [(3, 2)]),
        (lambda x: tape_torch.call(torch.logcumsumexp, x, dim=0) * x, [(3,)]),
    ],
    ids=["norm", "two", "several", "same", "view", "gather", "call"],
)
def test_as_torch_is_differentiable_twice(fn: Any, shapes: list[tuple[int, ...]]) -> None:
    xs = tuple(numbers(*shape, seed=k).requires_grad_() for k, shape in enumerate(shapes))
    assert torch.autograd.gradcheck(tape_torch.as_torch(fn), xs)
    assert torch.autograd.gradgradcheck(tape_torch.as_torch(fn), xs)


def test_as_torch_of_complex() -> None:
    z = numbers(3, dtype=torch.complex128).requires_grad_()
    fn = tape_torch.as_torch(lambda z: tc.conj(z) * tc.exp(z))
    assert torch.autograd.gradcheck(fn, (z,))
    assert torch.autograd.gradgradcheck(fn, (z,))


def test_as_torch_third_derivative() -> None:
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = tape_torch.as_torch(lambda x: tc.sin(x))(x)
    for _ in range(3):
        (y,) = torch.autograd.grad(y, x, create_graph=True)
    assert y.item() == pytest.approx(-torch.cos(x).item(), rel=1e-12)


def test_as_torch_structures() -> None:
    @tape_torch.as_torch
    def fn(pair: Any, index: Any, *, scale: Any, label: str) -> Any:
        """The docstring."""
        return {"y": pair["x"] * scale, "index": index + 1, "label": label, "n": None}

    assert fn.__doc__ == "The docstring."
    x, scale = torch.ones(2, requires_grad=True), torch.tensor([2.0, 3.0], requires_grad=True)
    out = fn({"x": x}, torch.tensor([1, 2]), scale=scale, label="a")
    assert out["index"].tolist() == [2, 3]
    assert not out["index"].requires_grad
    assert (out["label"], out["n"]) == ("a", None)
    out["y"].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 3.0]
    assert scale.grad is not None
    assert scale.grad.tolist() == [1.0, 1.0]


def test_as_torch_without_grad() -> None:
    fn, x = tape_torch.as_torch(norm), torch.tensor([3.0, 4.0], requires_grad=True)
    with torch.no_grad():
        assert not fn(x).requires_grad
    assert not fn(x.detach()).requires_grad
    y = tape_torch.as_torch(lambda x: x)(x.detach())
    y.add_(1)
    assert x.tolist() == [3.0, 4.0]


def test_as_torch_backward_twice_as_torch_does() -> None:
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    y = tape_torch.as_torch(norm)(x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([1.2, 1.6]))
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_as_torch_sees_what_is_written_to() -> None:
    x = torch.ones(2, requires_grad=True)
    h = x * 2
    y = tape_torch.as_torch(lambda x: tc.exp(x))(h)
    y.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_as_torch_inputs_without_a_path() -> None:
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    a, b = tape_torch.as_torch(lambda x, w: (x * 2, tc.ones(3)))(x, w)
    assert not b.requires_grad
    a.sum().backward()
    assert w.grad is None


def test_as_torch_leaves_no_cycle() -> None:
    x = torch.ones(2, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        y = tape_torch.as_torch(lambda x: tc.exp(x))(x)
        reference = weakref.ref(y)
        kept = weakref.ref(y.grad_fn)
        y.sum().backward()
        del y
        assert reference() is None
        assert kept() is None
    finally:
        gc.enable()


def test_as_torch_knows_that_another_run_differs() -> None:
    values = iter([1.0, 2.0])
    x = torch.tensor(2.0, requires_grad=True)
    y = tape_torch.as_torch(lambda x: x * x * next(values))(x)
    with pytest.raises(RuntimeError, match=r"as_torch\(<lambda>\).*gave other values"):
        torch.autograd.grad(y, x, create_graph=True)


def test_as_torch_refuses_what_would_be_lost() -> None:
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    layer = torch.nn.Linear(2, 2)
    for fn in (lambda x: x * w, lambda x: w * x, lambda x: tape_torch.call(layer, x), lambda x: torch.mul(x, w)):
        with pytest.raises(TypeError, match="give it as an argument, or use its detach"):
            tape_torch.as_torch(fn)(x)
    assert tape_torch.as_torch(lambda x: x * w.detach())(x).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match=r"as_torch\(<lambda>\): its result is a torch tensor"):
        tape_torch.as_torch(lambda x: x.array)(x)
    with pytest.raises(TypeError, match="takes torch tensors; for Tensors call the function"):
        tape_torch.as_torch(norm)(tc.ones(2))
    with pytest.raises(TypeError, match="takes a function of Tensors"):
        tape_torch.as_torch(3)  # type: ignore[arg-type]


def test_as_torch_in_a_training_loop() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.scale = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> Any:
            return tape_torch.as_torch(lambda h, s: tc.tanh(h) * s)(self.linear(x), self.scale)

    class Plain(Scaled):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.tanh(self.linear(x)) * self.scale

    model = Scaled()
    twin = Plain()
    twin.load_state_dict(model.state_dict())
    x, y = numbers(8, 3, dtype=torch.float32), numbers(8, 2, dtype=torch.float32, seed=3)
    for m in (model, twin):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(m(x), y).backward()
            optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_outer_tapes_do_not_see_inside() -> None:
    v = tc.Variable(2.0)
    with tc.GradientTape() as tape:
        y = tape_torch.as_torch(lambda x: x * v)(torch.tensor(3.0, requires_grad=True))
    assert y.item() == 6.0
    assert tape.watched_variables() == ()


def test_a_function_may_change_its_arguments_in_place() -> None:
    def changing(x: Any, y: Any) -> Any:
        x *= y
        x[0] = x[0] * y[1]
        return tc.sin(x)

    xs = (numbers(2).requires_grad_(), numbers(2, seed=2).requires_grad_())
    assert torch.autograd.gradcheck(tape_torch.as_torch(changing), xs)
    assert torch.autograd.gradgradcheck(tape_torch.as_torch(changing), xs)
