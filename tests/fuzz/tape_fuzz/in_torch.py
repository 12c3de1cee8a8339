"""Programs of the grammar run with PyTorch in Tape's place: so their derivatives are autograd's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tape_fuzz.elsewhere import calls_only, conditional, mapped_by, namespace_of, scanned_by, while_holds

Array = torch.Tensor


def _axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction of PyTorch with the Array API's arguments."""

    def call(x: Array, axis: int | None = None, keepdims: bool = False) -> Any:
        if axis is None:
            return function(torch.reshape(x, (-1,)), 0, keepdims)
        return function(x, axis, keepdims)

    return call


def _along(function: Callable[[Array, int], Any]) -> Callable[..., Any]:
    def call(x: Array, axis: int = -1) -> Any:
        return function(x, axis)

    return call


def _mish(x: Array) -> Array:
    return x * torch.tanh(torch.nn.functional.softplus(x))


def _flip(x: Array, axis: int | None = None) -> Array:
    return torch.flip(x, tuple(range(x.ndim)) if axis is None else (axis,))


def _roll(x: Array, shift: int, axis: int | None = None) -> Array:
    return torch.roll(x, shift, axis)


def _dtype(name: Any) -> Any:
    return getattr(torch, name) if isinstance(name, str) else name


def _variance(x: Array, axis: int, keepdims: bool) -> Array:
    return torch.var(x, axis, correction=0, keepdim=keepdims)


def _deviation(x: Array, axis: int, keepdims: bool) -> Array:
    return torch.std(x, axis, correction=0, keepdim=keepdims)


_SAME = (
    "sin cos tanh sigmoid square erf atan asinh expm1 negative sinh cosh log sqrt log1p log2 reciprocal digamma exp "
    "real imag conj abs stack add subtract multiply divide hypot logaddexp where tile broadcast_to reshape tril matmul "
    "outer einsum"
)
_LINALG = "inv cholesky det pinv solve slogdet matrix_power vector_norm"

TABLE: dict[str, Any] = {
    **{name: getattr(torch, name) for name in _SAME.split()},
    **{name: getattr(torch.nn.functional, name) for name in ("softplus", "gelu", "silu")},
    "mish": _mish,
    "softmax": _along(torch.softmax),
    "log_softmax": _along(torch.log_softmax),
    "gammaln": torch.lgamma,
    "atan2": torch.atan2,
    "clip": torch.clamp,
    "sum": _axes(torch.sum),
    "mean": _axes(torch.mean),
    "var": _axes(_variance),
    "std": _axes(_deviation),
    "logsumexp": _axes(torch.logsumexp),
    "prod": _axes(torch.prod),
    "cumulative_sum": _along(torch.cumsum),
    "cumulative_prod": _along(torch.cumprod),
    "vecdot": torch.linalg.vecdot,
    "flip": _flip,
    "roll": _roll,
    "expand_dims": lambda x, axis: torch.unsqueeze(x, axis),
    "matrix_transpose": lambda x: torch.transpose(x, -1, -2),
    "concat": lambda xs, axis=0: torch.concat(xs, axis),
    "unstack": torch.unbind,
    "tensordot": lambda a, b, axes: torch.tensordot(a, b, axes),
    "astype": lambda x, dtype: x.to(_dtype(dtype)),
    "asarray": lambda x: torch.as_tensor(x),
    "eye": lambda n: torch.eye(n, dtype=torch.float64),
    "cond": conditional,
    "scan": scanned_by(torch.stack),
    "while_loop": while_holds,
    "map": mapped_by(torch.stack),
    "checkpoint": lambda f: f,
    "stop_gradient": lambda x: x.detach(),
    **{f"linalg.{name}": getattr(torch.linalg, name) for name in _LINALG.split()},
    **{f"fft.{name}": getattr(torch.fft, name) for name in ("fft", "ifft", "rfft", "irfft")},
}  # fmt: skip
"""What PyTorch has in the place of which name of Tape's."""


def has(text: str) -> bool:
    """Whether statements can be run with PyTorch: all they call is in the table, and they do not step backwards."""
    return "::-1" not in text and calls_only(text, TABLE)


def namespace() -> SimpleNamespace:
    """What a program's script finds as `tc`."""
    return namespace_of(TABLE)


def asarray(x: Any) -> Array:
    """An array of NumPy's as PyTorch's."""
    return torch.as_tensor(x)


def derived(program: Callable[..., Any], given: Sequence[Any]) -> tuple[list[Array], list[Array | None]]:
    """A program's results and the gradient of the mean of the sines of the real ones, as autograd has it.

    Args:
        program: a function whose global name `tc` is `namespace()`.
        given: NumPy arrays; the gradient is taken with respect to the real ones.
    """
    inputs = [torch.as_tensor(x) for x in given]
    sources = [x.requires_grad_() for x in inputs if x.dtype.is_floating_point]
    results = program(*inputs)
    parts = [torch.mean(torch.sin(x)) for x in results if x.dtype.is_floating_point and x.numel()]
    loss = sum(parts[1:], parts[0]) if parts else torch.zeros(())
    if not loss.requires_grad:
        return [x.detach() for x in results], [None] * len(sources)
    return [x.detach() for x in results], list(torch.autograd.grad(loss, sources, allow_unused=True))
