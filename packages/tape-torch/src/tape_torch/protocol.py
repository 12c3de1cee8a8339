"""PyTorch's functions on Tensors: `torch.sin(t)`, `torch.nn.functional.softmax(t, dim=1)`, `raw * t`.

PyTorch passes such a call to `__torch_function__` of the Tensor. A function that Tape has as an op becomes that op, by
the tables below, where both mean the same: for floating-point tensors of one dtype. Every other function runs on the
values and is recorded as one op by :func:`tape_torch.call`, so that gradients flow through it in any case.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tape_core as tc
import torch
from tape_core import Tensor
from tape_core.support import SCALARS
from tape_core.typing import ArrayLike

from tape_torch.functional import call
from tape_torch.inside import SIDE, refuse_inside
from tape_torch.parameters import variable_of

Function = Callable[..., Any]


def torch_function(
    cls: type, func: Function, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Answer a call of a PyTorch function with a Tensor among its arguments: `Tensor.__torch_function__`."""
    kwargs = kwargs or {}
    name = func.__name__
    if SIDE.get() == "call":
        refuse_inside(f"torch.{name} is given a Tensor")
    # PyTorch names functions that work in place with an underscore at the end.
    if name in _WRITING or (name.endswith("_") and not name.endswith("__")):
        _refuse(f"torch.{name}", "writes into a tensor")
    if kwargs.get("out") is not None:
        _refuse(f"torch.{name}", "with out= writes into a tensor")
    if kwargs.get("inplace"):
        _refuse(f"torch.{name}", "with inplace=True writes into a tensor")
    counterpart = COUNTERPARTS.get(func)
    if counterpart is not None:
        # One op in place of a call that torch.autograd records: faster, and its derivatives are Tape's own.
        result = counterpart(args, kwargs)
        if result is not NotImplemented:
            return result
    return call(func, *args, **kwargs)


def _words(words: str) -> dict[str, str]:
    return {word: word for word in words.split()}


_WRITING = frozenset(_words("__delete__ __delitem__ __set__ __setitem__")) | {
    f"__i{name}__" for name in _words("add and div floordiv lshift matmul mod mul or pow rshift sub truediv xor")
}


def _refuse(label: str, what: str) -> None:
    raise TypeError(
        f"{label} {what}, which no tape sees; use the function that gives a new one, or t.array.clone() where no "
        f"gradient is needed"
    )


# -- the table

UNARY = {
    **_words(
        "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp expm1 floor log log10 log1p "
        "log2 negative positive reciprocal sigmoid sin sinh sqrt square tan tanh trunc"
    ),
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "lgamma": "gammaln",
    "neg": "negative",
}
"""Functions of one tensor: PyTorch's name -> Tape's."""

BINARY = {
    **_words("add atan2 divide hypot logaddexp matmul maximum minimum multiply pow subtract"),
    "arctan2": "atan2",
    "div": "divide",
    "mul": "multiply",
    "sub": "subtract",
    "true_divide": "divide",
}
"""Functions of two tensors: PyTorch's name -> Tape's.

As methods of torch.Tensor they are its operators, which Python calls when the left operand is a torch tensor.
"""

OPERATORS = {
    "__and__": "bitwise_and",
    "__floordiv__": "floor_divide",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "ne": "not_equal",
    "remainder": "remainder",
}
"""Operators of torch.Tensor that are no functions of the module torch: PyTorch's method -> Tape's name."""


def _reduction(name: str) -> Function:
    def reduction(input: ArrayLike, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
        if dim == () or dim == []:  # all axes to PyTorch, none in the standard
            return NotImplemented
        return getattr(tc, name)(input, axis=tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim)

    return reduction


def _softmax(name: str) -> Function:
    def softmax(
        input: ArrayLike, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
    ) -> Any:
        return NotImplemented if dim is None or dtype is not None else getattr(tc, name)(input, axis=dim)

    return softmax


def _where(condition: ArrayLike, input: ArrayLike, other: ArrayLike) -> Any:
    return tc.where(condition, input, other)


def _reshape(input: ArrayLike, shape: Sequence[int]) -> Any:
    return tc.reshape(input, tuple(shape))


def _permute(input: ArrayLike, dims: Sequence[int]) -> Any:
    return tc.permute_dims(input, tuple(dims))


def _activation(name: str) -> Function:
    return lambda input, inplace=False: getattr(tc, name)(input)


def _gelu(input: ArrayLike, *, approximate: str = "none") -> Any:
    return tc.gelu(input) if approximate == "none" else NotImplemented


ADAPTED: dict[str, Function] = {
    "gelu": _gelu,
    "log_softmax": _softmax("log_softmax"),
    "mean": _reduction("mean"),
    "permute": _permute,
    "prod": _reduction("prod"),
    "relu": _activation("relu"),
    "reshape": _reshape,
    "silu": _activation("silu"),
    "softmax": _softmax("softmax"),
    "sum": _reduction("sum"),
    "where": _where,
}
"""Functions with PyTorch's parameters that call Tape's; they return NotImplemented where the op means another thing."""


def _have_one_float_dtype(values: Sequence[Any]) -> bool:
    """Return whether these are floating-point tensors of one dtype, and numbers that do not change it."""
    dtypes = {value._array.dtype if isinstance(value, Tensor) else value.dtype for value in values if _is_array(value)}
    if len(dtypes) != 1:
        return False
    dtype = dtypes.pop()
    if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point or dtype.is_complex):
        return False
    return all([_is_array(v) or (type(v) in SCALARS and (dtype.is_complex or type(v) is not complex)) for v in values])


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | torch.Tensor)


def _as_operand(value: object) -> Any:
    """Return the Variable of a parameter, so that tapes watch it; any other operand as it is."""
    if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
        return variable_of(value)
    return value


def _unary(op: Function) -> Function:
    def counterpart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return op(*args) if len(args) == 1 and not kwargs and _have_one_float_dtype(args) else NotImplemented

    return counterpart


def _binary(op: Function, operator: bool) -> Function:
    def counterpart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # An operator with a Tensor is Tape's, whichever operand is on the left: so is its promotion. A function keeps
        # PyTorch's, which is the same for one floating dtype only.
        if len(args) != 2 or kwargs or not (operator or _have_one_float_dtype(args)):
            return NotImplemented
        return op(_as_operand(args[0]), _as_operand(args[1]))

    return counterpart


def _adapted(function: Function) -> Function:
    signature = inspect.signature(function)

    def counterpart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            # PyTorch's names of parameters, by position or by name.
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # a parameter that the op does not have
            return NotImplemented
        operands = [value for name, value in given.items() if name in ("input", "other")]
        if not _have_one_float_dtype(operands) or not isinstance(operands[0], Tensor | torch.Tensor):
            return NotImplemented
        return function(**{name: _as_operand(value) for name, value in given.items()})

    return counterpart


def _counterparts() -> Iterator[tuple[Function, Function]]:
    places: tuple[Any, ...] = (torch, torch.nn.functional, torch.special, torch._C._nn, torch.linalg, torch.Tensor)
    for place in places:
        for name, own in UNARY.items():
            if hasattr(place, name):
                yield getattr(place, name), _unary(getattr(tc, own))
        for name, own in BINARY.items():
            if hasattr(place, name):
                yield getattr(place, name), _binary(getattr(tc, own), operator=place is torch.Tensor)
        for name, function in ADAPTED.items():
            if hasattr(place, name) and place is not torch.Tensor:
                yield getattr(place, name), _adapted(function)
    for name, own in OPERATORS.items():
        if hasattr(torch.Tensor, name):
            yield getattr(torch.Tensor, name), _binary(getattr(tc, own), operator=True)


COUNTERPARTS: dict[Function, Function] = dict(_counterparts())
"""PyTorch's function -> a function of its arguments that calls the op, or returns NotImplemented."""
