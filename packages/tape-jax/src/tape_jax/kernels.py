"""Kernels of JAX's own, by the name of the op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean

from tape_jax import devices, indexing
from tape_jax.conversion import aligned_memory
from tape_jax.thresholds import PIECES_AT_ONCE


def _astype(x: jax.Array, dtype: Any, copy: bool = True) -> jax.Array:
    # Nobody can tell a copy from the array itself.
    return x if x.dtype == dtype else jax.lax.convert_element_type(x, dtype)


@lru_cache(maxsize=1024)
def _filler(value: int, shape: tuple[int, ...], dtype: Any) -> Callable[[], jax.Array]:
    return jax.jit(lambda: jnp.full(shape, value, dtype))


def _filled_like(value: int) -> Callable[..., jax.Array]:
    """Return `ones_like` or `zeros_like`: each sweep begins with one, and JAX's own takes five times as long."""

    def filled_like(x: jax.Array, dtype: Any = None, device: Any = None) -> jax.Array:
        # What is on a device by its user's choice has zeros there.
        if device is not None or isinstance(x, jax.core.Tracer) or x.committed:
            return jnp.full_like(x, value, dtype=dtype, device=device)
        return _filler(value, x.shape, x.dtype if dtype is None else dtype)()

    return filled_like


def _full_like(x: jax.Array, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    wanted = np.dtype(x.dtype if dtype is None else dtype)
    plain = wanted.kind in "biufc" and type(fill_value) in (bool, int, float)
    if not plain or device is not None or isinstance(x, jax.core.Tracer) or x.committed or not trace_state_clean():
        return jnp.full_like(x, fill_value, dtype=dtype, device=device)
    memory = aligned_memory(x.shape, wanted)  # JAX's own compiles a program for each shape, as of an optimizer's slots
    memory[...] = fill_value
    return jax.device_put(memory)


def _cumulative_prod(x: jax.Array, *, dtype: Any = None, **options: Any) -> Any:
    if dtype is None and jnp.issubdtype(x.dtype, jnp.integer):  # JAX's stay in their dtype, where its sums do not
        dtype = jnp.uint64 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else jnp.int64
    return jnp.cumulative_prod(x, dtype=dtype, **options)


def _searchsorted(x1: jax.Array, x2: jax.Array, **options: Any) -> Any:
    return jnp.searchsorted(x1, x2, **options).astype(jnp.int64)  # JAX's are int32 for short arrays


def _unstack(x: jax.Array, /, *, axis: int = 0) -> tuple[jax.Array, ...]:
    n = x.shape[axis]
    if n <= PIECES_AT_ONCE or isinstance(x, jax.core.Tracer):
        return jnp.unstack(x, axis=axis)
    x = jnp.moveaxis(x, axis, 0)
    parts: list[jax.Array] = []
    for at in range(0, n, PIECES_AT_ONCE):
        parts += jnp.unstack(jax.lax.dynamic_slice_in_dim(x, at, min(PIECES_AT_ONCE, n - at)))
    return tuple(parts)


def _in_pieces(join: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return `stack` or `concat` of many arrays as `concat` of those of a few each."""

    def joined(arrays: Sequence[jax.Array], /, *, axis: int = 0) -> jax.Array:
        arrays = list(arrays)
        if len(arrays) <= PIECES_AT_ONCE or any([isinstance(a, jax.core.Tracer) for a in arrays]):
            return join(arrays, axis=axis)
        if len({a.dtype for a in arrays}) > 1:  # their common dtype is that of all
            arrays = [a.astype(jnp.result_type(*arrays)) for a in arrays]
        pieces = [join(arrays[at : at + PIECES_AT_ONCE], axis=axis) for at in range(0, len(arrays), PIECES_AT_ONCE)]
        return _concat(pieces, axis=axis)

    return joined


_concat = _in_pieces(jnp.concat)


def _pow(x1: Any, x2: Any) -> Any:
    # XLA makes numbers of what is no integer. Inside `jax.jit` the exponents are not known.
    of_integers = _kind(x2) in "iu" and _kind(x1) in "iub" and not isinstance(x2, jax.core.Tracer)
    if of_integers and np.any(np.asarray(x2) < 0):
        raise ValueError("Integers to negative integer powers are not allowed; make the base one of floats")
    return jnp.pow(x1, x2)


def _kind(x: Any) -> str:
    return x.dtype.kind if hasattr(x, "dtype") else np.dtype(type(x)).kind


def _repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    if isinstance(repeats, jax.Array) and repeats.dtype.kind in "iu":
        repeats = repeats.astype("int64")  # JAX adds them up in their own dtype, where the sum may overflow
    return jnp.repeat(x, repeats, axis=axis)


KERNELS: dict[str, Callable[..., Any]] = {
    **indexing.KERNELS,
    "astype": _astype,
    "concat": _concat,
    "ones_like": _filled_like(1),
    "full_like": _full_like,
    "cumulative_prod": _cumulative_prod,
    "laid_out_like": devices.laid_out_like,
    "searchsorted": _searchsorted,
    "pow": _pow,
    "repeat": _repeat,
    "stack": _in_pieces(jnp.stack),
    "to_device": lambda x, device, origin: devices.moved(x, device),
    "unstack": _unstack,
    "zeros_like": _filled_like(0),
}
