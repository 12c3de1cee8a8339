"""PyTorch's functions on Tensors, and operators with a torch tensor on the left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tape_core as tc
import tape_torch
import torch
from tape_torch import protocol
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def _torch() -> Iterator[None]:
    with tc.use_backend("torch"):
        yield


def positive(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> torch.Tensor:
    """Numbers between 0 and 1, where every function of the table but `acosh` is smooth."""
    return torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1


Call = Callable[..., Any]
CALLS: dict[str, tuple[Call, int]] = {
    **{f"torch.{name}": (getattr(torch, name), 1) for name in protocol.UNARY},
    **{f"torch.{name}": (getattr(torch, name), 2) for name in protocol.BINARY},
    "raw + t": (lambda a, b: a + b, 2),
    "raw - t": (lambda a, b: a - b, 2),
    "raw * t": (lambda a, b: a * b, 2),
    "raw / t": (lambda a, b: a / b, 2),
    "raw ** t": (lambda a, b: a**b, 2),
    "raw @ t": (lambda a, b: a @ b, 2),
    "raw % t": (lambda a, b: a % b, 2),
    "raw.atan2(t)": (lambda a, b: a.atan2(b), 2),
    "add alpha": (lambda a, b: torch.add(a, b, alpha=3), 2),
    "add number": (lambda a: torch.add(a, 2), 1),
    "div rounded": (lambda a, b: torch.div(a, b, rounding_mode="floor"), 2),
    "sum": (torch.sum, 1),
    "sum dim": (lambda a: torch.sum(a, dim=1, keepdim=True), 1),
    "sum dims": (lambda a: torch.sum(a, (0, 1)), 1),
    "sum no dims": (lambda a: torch.sum(a, dim=()), 1),
    "sum axis": (lambda a: torch.sum(a, axis=1), 1),
    "sum dtype": (lambda a: torch.sum(a, 1, dtype=torch.float32), 1),
    "mean": (lambda a: torch.mean(a, -1), 1),
    "prod": (lambda a: torch.prod(a, 0), 1),
    "std": (lambda a: torch.std(a, dim=0), 1),
    "softmax": (lambda a: F.softmax(a, dim=1), 1),
    "torch.softmax": (lambda a: torch.softmax(a, -1), 1),
    "log_softmax": (lambda a: F.log_softmax(a, 0), 1),
    "relu": (F.relu, 1),
    "silu": (F.silu, 1),
    "gelu": (F.gelu, 1),
    "gelu tanh": (lambda a: F.gelu(a, approximate="tanh"), 1),
    "mse_loss": (F.mse_loss, 2),
    "layer_norm": (lambda a: F.layer_norm(a, (3,)), 1),
    "reshape": (lambda a: torch.reshape(a, (-1,)), 1),
    "permute": (lambda a: torch.permute(a, (1, 0)), 1),
    "stack": (lambda a, b: torch.stack([a, b], dim=1), 2),
    "cat": (lambda a, b: torch.cat((a, b), 1), 2),
    "where": (lambda a, b: torch.where(b > 0.5, a, b), 2),
    "clamp": (lambda a: torch.clamp(a, 0.2, 0.7), 1),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), 2),
    "linalg": (torch.linalg.solve, 2),
    "fft": (lambda a: torch.abs(torch.fft.rfft(a)), 1),
    "max": (lambda a: torch.max(a, dim=1).values, 1),
    "special": (torch.special.i0e, 1),
    "keyword": (lambda a: torch.sin(input=a), 1),
    "scalar power": (lambda a: torch.pow(2.0, a), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_value_and_the_gradient_are_those_of_pytorch(name: str) -> None:
    fn, n = CALLS[name]
    arrays = [positive(3, 3, seed=k) + (1 if "cosh" in name else 0) for k in range(n)]
    leaves = [a.clone().requires_grad_() for a in arrays]
    out = fn(*leaves)
    expected = (
        torch.autograd.grad((out * out).sum(), leaves, allow_unused=True) if out.requires_grad else [None] * len(leaves)
    )
    # With a torch tensor on the left, the call goes through PyTorch's protocol.
    x = tc.Variable(arrays[-1])
    with tc.GradientTape() as tape:
        y = fn(*arrays[:-1], x)
        loss = tc.sum(y * y)
    assert type(y) is tc.Tensor
    assert y.array.dtype is out.dtype
    torch.testing.assert_close(y.array, out.detach(), rtol=1e-12, atol=1e-12)
    gradient = tape.gradient(loss, x, unconnected_gradients="zero")
    wanted = torch.zeros_like(arrays[-1]) if expected[-1] is None else expected[-1]
    torch.testing.assert_close(gradient.array, wanted, rtol=1e-8, atol=1e-10)  # PyTorch's trigamma has no more


@pytest.mark.parametrize("name", ["torch.sin", "torch.logaddexp", "softmax", "mse_loss", "stack"])
def test_second_derivatives(name: str) -> None:
    fn, n = CALLS[name]
    arrays = [positive(3, 3, seed=k) for k in range(n)]
    leaf = arrays[-1].clone().requires_grad_()
    (first,) = torch.autograd.grad((fn(*arrays[:-1], leaf) ** 2).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((first**3).sum(), leaf)
    x = tc.Variable(arrays[-1])
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = tc.sum(fn(*arrays[:-1], x) ** 2)
        g = tc.sum(inner.gradient(y, x) ** 3)
    torch.testing.assert_close(outer.gradient(g, x).array, second, rtol=1e-10, atol=1e-10)


def test_a_function_of_the_table_is_the_op() -> None:
    """The tape records the op itself, not a `call` of PyTorch, which costs more."""
    for call in (torch.sin, lambda t: torch.ones(2) * t, lambda t: F.softmax(t, dim=0), lambda t: torch.sum(t, 0)):
        x = tc.Variable([1.0, 2.0])
        with tc.GradientTape() as tape:
            call(x)
        (record,) = [record for record in tape._records if record is not None]
        assert record[0].op.name in ("sin", "multiply", "softmax", "sum")


def test_other_dtypes_are_pytorchs() -> None:
    t = tc.asarray([1, 2])
    assert torch.sum(t).dtype is tc.int64
    assert torch.sqrt(t).dtype is tc.float32
    assert torch.mul(t, 2.5).dtype is tc.float32
    half = tc.asarray([1.0], dtype=tc.float16)
    assert torch.mul(half, torch.ones((), dtype=torch.float64)).dtype is tc.float16
    assert torch.mul(tc.ones(1), 1j).dtype is tc.complex64


def test_results_that_are_no_tensors() -> None:
    t = tc.asarray([1.0, 2.0])
    assert torch.allclose(t, torch.tensor([1.0, 2.0])) is True
    assert torch.equal(t, t) is True
    assert torch.numel(t) == 2
    assert (torch.tensor([3.0, 5.0]) // t).tolist() == [3.0, 2.0]
    assert torch.is_floating_point(t)
    assert (torch.tensor([1.0, 3.0]) == t).tolist() == [True, False]
    assert not torch.is_tensor(t)
    assert torch.zeros_like(t).tolist() == [0.0, 0.0]
    values, indices = torch.sort(t, descending=True)
    assert (values.tolist(), indices.tolist()) == ([2.0, 1.0], [1, 0])


def test_a_layer_on_a_tensor() -> None:
    layer = torch.nn.Linear(2, 1)
    x = tc.Variable([[1.0, 2.0]])
    with tc.GradientTape() as tape:
        y = layer(x)
    assert tape.gradient(y, [x, *tape_torch.variables(layer)])[1].tolist() == [[1.0, 2.0]]


def test_a_parameter_on_the_left() -> None:
    p = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
    (v,) = tape_torch.variables(p)
    x = tc.Variable([5.0, 7.0])
    with tc.GradientTape(persistent=True) as tape:
        y, z = p * x, torch.mul(x, p)
    assert not y.array.requires_grad
    for out in (y, z):
        assert [g.tolist() for g in tape.gradient(out, [v, x])] == [[5.0, 7.0], [2.0, 3.0]]


def test_memory_is_shared_both_ways() -> None:
    raw = torch.ones(3)
    t = tc.asarray(raw)
    assert t.array is raw
    assert torch.from_dlpack(t).data_ptr() == raw.data_ptr()
    assert tc.sin(raw).backend is t.backend
    if torch.cuda.is_available():
        far = raw.cuda()
        assert tc.asarray(far).array is far
        assert tc.asarray(far).device == "cuda:0"


def test_values_for_pytorch() -> None:
    t = tc.asarray([1.0, 2.0])
    assert torch.as_tensor(t).tolist() == torch.tensor(t).tolist() == [1.0, 2.0]


# -- mistakes


@pytest.mark.parametrize(
    ("label", "use"),
    [
        ("torch.relu_ writes", lambda raw, t: torch.relu_(t)),
        ("torch.add_ writes", lambda raw, t: raw.add_(t)),
        ("torch.__setitem__ writes", lambda raw, t: raw.__setitem__(0, t[0])),
        ("torch.add with out= writes", lambda raw, t: torch.add(t, raw, out=raw)),
        ("torch.relu with inplace=True writes", lambda raw, t: F.relu(t, inplace=True)),
        ("torch.copy_ writes", lambda raw, t: raw.copy_(t)),
    ],
)
def test_what_writes_is_refused(label: str, use: Callable[[Any, Any], Any]) -> None:
    raw, t = torch.ones(2), tc.asarray([3.0, 4.0])
    with pytest.raises(TypeError, match=label + ".*which no tape sees"):
        use(raw, t)
    assert raw.tolist() == [1.0, 1.0]
    assert t.tolist() == [3.0, 4.0]


def test_in_place_operators_make_a_tensor() -> None:
    raw, t = torch.ones(2), tc.asarray([3.0, 4.0])
    kept: Any = raw
    kept += t  # PyTorch's += asks the Tensor's __torch_function__
    assert kept.tolist() == [4.0, 5.0]
    assert isinstance(kept, tc.Tensor)
    assert raw.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "use",
    [torch.sin, lambda t: torch.ones(2) * t, lambda t: torch.stack([t, t]), lambda t: torch.matmul(torch.ones(2), t)],
    ids=["sin", "operator", "stack", "matmul"],
)
def test_another_backend_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"'numpy'.*tape_core.asarray\(x, backend='torch'\)"):
        use(tc.ones(2, backend="numpy"))


def test_a_graph_of_torch_is_not_cut_in_silence() -> None:
    h = torch.ones(2, requires_grad=True) * 2
    for use in (lambda: h * tc.ones(2), lambda: torch.mul(h, tc.ones(2)), lambda: torch.stack([h, tc.ones(2)])):
        with pytest.warns(UserWarning, match="requires grad becomes a Tensor") as record:
            out = use()
        assert not out.array.requires_grad
        assert record[0].filename == __file__


def test_errors_are_those_of_pytorch() -> None:
    with pytest.raises((RuntimeError, ValueError), match=r"shape|size"):
        torch.mm(tc.ones((2, 3)), tc.ones((2, 3)))
    with pytest.raises(TypeError, match="keyword"):
        torch.sin(tc.ones(2), wrong=1)  # type: ignore[call-arg]
