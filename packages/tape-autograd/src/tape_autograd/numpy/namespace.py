"""NumPy's functions for boxes: each calls NumPy's own on plain arrays, and Tape's where a value is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np
from tape_core.support import NoCounterpartError

from tape_autograd.boxes import Box, answer_by, applied, getval, holds_box
from tape_autograd.numpy import composed
from tape_autograd.primitives import call_with_rules, has_rules

Function = Callable[..., Any]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CONSTANT = _words(
    "all allclose any argmax argmin argpartition argsort argwhere around array_equal array_equiv ceil count_nonzero "
    "digitize empty_like equal fix flatnonzero floor floor_divide greater greater_equal isclose iscomplex isfinite "
    "isinf isnan isneginf isposinf isreal isscalar less less_equal lexsort logical_and logical_not logical_or "
    "logical_xor nonzero not_equal ones_like rint round searchsorted signbit size trunc zeros_like"
)
"""Functions that have no derivative, or one that is zero: NumPy's own is called on the values."""

SEQUENCES = _words(
    "block broadcast_arrays column_stack concat concatenate dstack einsum hstack linalg.multi_dot meshgrid piecewise "
    "select stack vstack"
)
"""Functions that take lists of arrays; for all others a list is an array."""

JOINING = _words("column_stack concat concatenate dstack hstack stack vstack")
"""Functions whose first argument may also be an iterator, as in autograd."""

PRODUCTS = _words("convolve correlate cross dot einsum inner kron matmul outer tensordot vdot")
"""Functions that compute in the dtype that all their arrays have in common."""

REDUCTIONS = _words("nanmax nanmean nanmin nanprod nansum prod ptp sum")
"""Functions that take `axis=0` for a number, too."""

_by_name: dict[str, Function] = {}
_by_function: dict[Any, Function] = {}


def wrap(raw: Function, name: str) -> Function:
    """Return a function of NumPy that also takes boxes.

    Args:
        name: as the tables here call it: `"linalg.norm"` for one of a submodule.
    """
    own = composed.FUNCTIONS.get(name)
    joins = name in JOINING

    @wraps(raw)
    def call(*args: Any, **kwargs: Any) -> Any:
        if joins and args and isinstance(args[0], Iterator):
            args = (list(args[0]), *args[1:])
        if not holds_box(args) and not (kwargs and holds_box(kwargs)):
            return raw(*args, **kwargs)
        return _answer(call, raw, own, name, args, kwargs)

    if isinstance(raw, np.ufunc):
        for method in ("accumulate", "at", "outer", "reduce", "reduceat"):
            setattr(call, method, getattr(raw, method))  # a box among the arguments answers
    _by_name.setdefault(name, call)
    if _hashable(raw):
        _by_function.setdefault(raw, call)
    return call


def _hashable(value: object) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def _answer(
    call: Function, raw: Function, own: Function | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function whose arguments have a box among them."""
    if has_rules(call):  # the user's own
        return call_with_rules(call, raw, args, kwargs)
    if own is not None:
        return own(*args, **kwargs)
    if name in CONSTANT and composed.is_known([*args, *kwargs.values()]):
        return raw(*map(getval, args), **{k: getval(v) for k, v in kwargs.items()})
    # NumPy lets a number have an axis in its reductions.
    if name in REDUCTIONS and kwargs.get("axis") in (0, -1) and type(args[0]) is Box and not args[0].ndim:
        kwargs = {**kwargs, "axis": None}
    if name not in SEQUENCES:
        args = tuple([composed.array(x) if type(x) in (list, tuple) and holds_box(x) else x for x in args])
    try:
        return applied(raw, args, kwargs, arithmetic=isinstance(raw, np.ufunc) or name in PRODUCTS)
    except ValueError as error:
        if name.startswith("linalg.") and not isinstance(error, np.linalg.LinAlgError):
            raise np.linalg.LinAlgError(str(error)) from error  # what callers of NumPy catch
        raise
    except NoCounterpartError as error:
        raise NotImplementedError(
            f"numpy.{name} has no derivative here: {str(error).split(', and no gradient')[0]}. Give it one with "
            f"defvjp(numpy.{name}, ...), or write the function as a primitive"
        ) from None


def call_for_box(function: str | Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function of NumPy, by its name or itself, as boxes ask for it."""
    if isinstance(function, str):
        return _by_name[function](*args, **kwargs)
    call = _by_function.get(function)
    if call is None:
        path = f"{function.__module__}.{function.__name__}".removeprefix("numpy.")
        call = _by_function[function] = wrap(function, path)
    return call(*args, **kwargs)


answer_by(call_for_box)


def wrapped_names(module: ModuleType, names: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return what a module of NumPy has under these names: functions that also take boxes, and all else as it is."""
    found: dict[str, Any] = {}
    known: list[tuple[Any, Any]] = []
    for name in names:
        value = getattr(module, name)
        # One object under two names, as abs and absolute, stays one: a rule that is given for it holds for both.
        same = next((other for raw, other in known if raw is value), None)
        if same is None:
            plain = isinstance(value, type | ModuleType) or not callable(value)
            same = value if plain else wrap(value, prefix + getattr(value, "__name__", name))
            known.append((value, same))
        found[name] = same
    return found


def wrapped_random() -> dict[str, Any]:
    """Return the names of `numpy.random`, whose functions refuse boxes."""
    return {name: _refusing(name) for name in np.random.__all__}


def _refusing(name: str) -> Any:
    raw = getattr(np.random, name)
    if isinstance(raw, type) or not callable(raw):
        return raw

    def draw(*args: Any, **kwargs: Any) -> Any:
        if holds_box(args) or holds_box(kwargs):
            raise NotImplementedError(
                f"numpy.random.{name} has no derivative with respect to its parameters; write the value by numbers "
                f"that do not depend on them, as mu + sigma * randn(n)"
            )
        return raw(*args, **kwargs)

    # The methods of NumPy's global generator.
    draw.__name__, draw.__doc__ = name, raw.__doc__
    return draw
