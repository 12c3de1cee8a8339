"""Calls of constants in a trace, evaluated by NumPy: JAX would compile a program for each of them.

A function is traced to a jaxpr, which costs a twentieth of compiling it. Where that has nothing but primitives that
NumPy computes to the same bits, such as those of `eye`, of masks and of zeros, NumPy computes it. Primitives that a
kernel has checked values for, as indices, are none of these: such a kernel is called, and checks. Subnormal numbers,
which XLA takes for zeros on CPUs, are left to it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tape_jax.conversion import aligned_memory

_Run = Callable[..., Any]


class _OtherError(Exception):
    """A primitive, or a dtype, that is left to JAX."""


def evaluated(fn: _Run, args: Sequence[object], kwargs: dict[str, object]) -> Any:
    """Return what a function makes of arrays that have values, in as few programs of XLA as possible."""
    arrays: list[jax.Array] = []
    if kwargs.get("device") is not None or not _collect((tuple(args), tuple(kwargs.values())), arrays):
        return fn(*args, **kwargs)

    def call(*values: Any) -> Any:
        rest = iter(values)
        return fn(*_filled(tuple(args), rest), **{name: _filled(value, rest) for name, value in kwargs.items()})

    try:
        closed, shape = jax.make_jaxpr(call, return_shape=True)(*arrays)
        leaves, structure = jax.tree.flatten(shape)
        if not leaves or not all([_is_simple(value.aval) for value in (*closed.jaxpr.invars, *closed.jaxpr.outvars)]):
            raise _OtherError
        with np.errstate(all="ignore"):
            constants = [_number(value) for value in closed.consts]
            found = _interpreted(closed.jaxpr, constants, [np.asarray(array) for array in arrays])
    except Exception:  # noqa: BLE001  # what a function raises over tracers may be no error of its; the call tells
        return fn(*args, **kwargs)
    return jax.tree.unflatten(structure, list(map(as_array, found)))


def as_array(value: Any) -> Any:
    """Return a NumPy array as one of JAX, which shares no memory with it."""
    memory = aligned_memory(value.shape, value.dtype)
    memory[...] = value
    with jax.ensure_compile_time_eval():
        return jax.device_put(memory)  # `jax.numpy.asarray` compiles a program for each new shape


def _collect(value: object, found: list[jax.Array]) -> bool:
    """Append the arrays in arguments; return whether all are where JAX puts arrays of which nobody said where."""
    if isinstance(value, jax.Array):
        found.append(value)
        return not isinstance(value, jax.core.Tracer) and not value.committed and _is_simple(value.aval)
    if type(value) is tuple or type(value) is list:
        return all([_collect(part, found) for part in value])
    return not isinstance(value, np.ndarray)


def _filled(value: Any, arrays: Any) -> Any:
    if isinstance(value, jax.Array):
        return next(arrays)
    if type(value) is tuple or type(value) is list:
        return type(value)([_filled(part, arrays) for part in value])
    return value


def _is_simple(aval: Any) -> bool:
    """Return whether a value is of a dtype that NumPy has, and does not give way as Python's numbers do."""
    return isinstance(aval.dtype, np.dtype) and aval.dtype.kind in "biufc" and not getattr(aval, "weak_type", False)


def _number(value: Any) -> Any:
    found = np.asarray(value)
    if found.dtype.kind not in "biufc":
        raise _OtherError
    return found


def _check_normal(*values: Any) -> None:
    """Leave a function to JAX if a value has numbers so small that XLA may have zeros there.

    The least normal number is one of them, as what is rounded to it may be less.
    """
    for value in values:
        if value.dtype.kind == "c":
            _check_normal(value.real, value.imag)
        elif value.dtype.kind == "f" and np.any((value != 0) & (np.abs(value) <= np.finfo(value.dtype).tiny)):
            raise _OtherError


def _interpreted(jaxpr: Any, constants: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *args), strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val, atom.aval.dtype) if hasattr(atom, "val") else values[atom]

    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        _check_normal(*given)
        name = eqn.primitive.name
        if name in ("jit", "pjit"):
            inner = eqn.params["jaxpr"]
            found = _interpreted(inner.jaxpr, [_number(value) for value in inner.consts], given)
        elif eqn.params.get("sharding") is not None:
            raise _OtherError
        elif name == "split":
            ends = np.cumsum(eqn.params["sizes"])[:-1]
            found = np.split(given[0], ends, axis=eqn.params["axis"])
        elif name == "unstack":
            found = list(np.moveaxis(given[0], eqn.params["axis"], 0))
        elif name in _PRIMITIVES:
            found = [_PRIMITIVES[name](*given, **eqn.params)]
        elif name in _OF_KINDS and all([value.dtype.kind in _OF_KINDS[name][0] for value in given]):
            found = [_OF_KINDS[name][1](*given)]
        else:
            raise _OtherError
        for var, value in zip(eqn.outvars, found, strict=True):
            value = np.asarray(value)
            if value.shape != var.aval.shape or value.dtype != var.aval.dtype:
                raise _OtherError
            values[var] = value
    outs = [read(atom) for atom in jaxpr.outvars]
    _check_normal(*outs)
    return outs


def _converted(x: Any, *, new_dtype: Any, **_: Any) -> Any:
    dtype = np.dtype(new_dtype)
    if dtype.kind not in "biufc" or (x.dtype.kind in "fc" and dtype.kind in "iub") or "c" in (x.dtype.kind, dtype.kind):
        raise _OtherError  # libraries differ in numbers that the dtype does not have
    return x.astype(dtype)


def _broadcast(x: Any, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    axes = dict(zip(broadcast_dimensions, x.shape, strict=True))
    return np.broadcast_to(x.reshape([axes.get(k, 1) for k in range(len(shape))]), shape)


def _iota(*, dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    along = [1] * len(shape)
    along[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(along), shape)


def _reshaped(x: Any, *, new_sizes: Any, dimensions: Any, **_: Any) -> Any:
    if dimensions is not None:
        raise _OtherError
    return x.reshape(new_sizes)


def _padded(x: Any, fill: Any, *, padding_config: Any) -> Any:
    steps = [int(interior) + 1 for _, _, interior in padding_config]
    lengths = [max(0, (n - 1) * step + 1) for n, step in zip(x.shape, steps, strict=True)]
    ends = [(int(low), int(high)) for low, high, _ in padding_config]
    whole = np.full([n + max(0, a) + max(0, b) for n, (a, b) in zip(lengths, ends, strict=True)], fill, x.dtype)
    own = zip(lengths, steps, ends, strict=True)
    whole[tuple([slice(max(0, a), max(0, a) + n, step) for n, step, (a, _) in own])] = x
    return whole[tuple([slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(whole.shape, ends, strict=True)])]


def _selected(which: Any, *cases: Any) -> Any:
    if which.dtype != np.bool_ or len(cases) != 2:
        raise _OtherError
    return np.where(which, cases[1], cases[0])


def _sliced(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or (1,) * x.ndim
    return x[tuple([slice(*ends) for ends in zip(start_indices, limit_indices, steps, strict=True)])]


def _divided(x: Any, y: Any) -> Any:
    if x.shape:
        raise _OtherError  # XLA multiplies arrays by the inverse of a number
    return np.divide(x, y)


def _of(ufunc: _Run) -> _Run:
    return lambda *values, **_: ufunc(*values)


_PRIMITIVES: dict[str, _Run] = {
    **{name: _of(getattr(np, long)) for name, long in (
        ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_equal"), ("gt", "greater"),
        ("ge", "greater_equal"), ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("neg", "negative"),
        ("is_finite", "isfinite"), ("copy", "copy"), ("copy_p", "copy"), ("stop_gradient", "copy"),
    )},
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, axis=dimension),
    "convert_element_type": _converted,
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, dimensions),
    "iota": _iota,
    "pad": _padded,
    "reshape": _reshaped,
    "rev": lambda x, *, dimensions: np.flip(x, dimensions),
    "select_n": _selected,
    "slice": _sliced,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "stack": lambda *parts, axis: np.stack(parts, axis=axis),
    "transpose": lambda x, *, permutation: np.transpose(x, permutation),
}  # fmt: skip

_OF_KINDS: dict[str, tuple[str, _Run]] = {
    "and": ("biu", np.bitwise_and),
    "or": ("biu", np.bitwise_or),
    "not": ("biu", np.invert),
    "max": ("biu", np.maximum),
    "min": ("biu", np.minimum),
    "div": ("f", _divided),
}
"""Primitives of some kinds of dtypes alone. Libraries differ in integers divided by 0, and in complex quotients."""
