"""Arrays of JAX from NumPy's and others' arrays, buffers, numbers and nested lists."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean, unsafe_am_i_under_a_jit, unsafe_am_i_under_a_vmap
from jax.dtypes import canonicalize_dtype
from tape_core.staging import current

from tape_jax import devices
from tape_jax.thresholds import ALIGNED_MIN_BYTES, ALIGNMENT, STAGED_FROM, STAGED_MAX_KINDS


def is_tracing() -> bool:
    """Return whether JAX is tracing a function here, as `jax.jit`, `jax.grad` and `jax.vmap` do."""
    return not trace_state_clean()


def is_tracing_for_later() -> bool:
    """Return whether JAX traces for later calls or for several examples, and not for derivatives of this call alone."""
    return is_tracing() and (unsafe_am_i_under_a_jit() or unsafe_am_i_under_a_vmap())


def as_jax_array(obj: Any, dtype: Any, copy: bool | None) -> Any:
    """Convert `obj` to an array of JAX that nothing can change.

    Args:
        obj: an array of any library, anything with DLPack or a buffer, numbers, or nested lists of them.
        dtype: None keeps that of arrays; Python's floats are float64 then.
        copy: False shares the memory of an array of another library, whose owner must not write to it any more.

    Raises:
        ValueError: `copy` is False, and a copy is needed.
        TypeError: `obj` is no array, or JAX has no such dtype now.
    """
    if isinstance(obj, jax.Array):
        if not isinstance(obj, jax.core.Tracer):
            obj = devices.with_automatic_axes(obj)
        # A weak array gives way to the other operand as Python's numbers do; in Tape numbers alone are weak.
        if (dtype is None or obj.dtype == dtype) and not getattr(obj, "weak_type", False):
            return jnp.copy(obj) if copy else obj
        if copy is False:
            raise ValueError("copy=False, but a copy is needed for another dtype")
        return jax.lax.convert_element_type(obj, obj.dtype if dtype is None else dtype)
    if copy is False:
        return _shared(obj, dtype)
    if isinstance(obj, np.ndarray | np.generic | bool | int | float | complex):
        return _from_numpy(np.asarray(obj, dtype=_integer_dtype(dtype) if type(obj) is int else None), dtype)
    if isinstance(obj, list | tuple):
        return _from_nested(obj, dtype)
    if hasattr(obj, "__dlpack__"):
        # The copy is made now, and not when JAX comes to it: the owner may write to the memory next.
        array = jnp.copy(jnp.from_dlpack(obj))
        array.block_until_ready()
        return array if dtype is None else array.astype(dtype)
    if isinstance(obj, memoryview | bytes | bytearray) or hasattr(obj, "__buffer__") or hasattr(obj, "typecode"):
        return _from_numpy(np.asarray(memoryview(obj)), dtype)
    return jnp.asarray(obj, dtype=dtype)


def _shared(obj: Any, dtype: Any) -> Any:
    if not hasattr(obj, "__dlpack__"):
        raise ValueError("copy=False, but a copy is needed of what is no array")
    array = jnp.from_dlpack(obj, copy=False)
    if dtype is not None and array.dtype != dtype:
        raise ValueError("copy=False, but a copy is needed for another dtype")
    return array


def _integer_dtype(dtype: Any) -> Any:
    """Return a dtype of integers, to which NumPy compares Python's as it makes an array; None for any other."""
    return dtype if dtype is not None and np.dtype(dtype).kind in "iu" else None


def _from_nested(obj: Any, dtype: Any) -> Any:
    try:
        array = np.asarray(obj, dtype=_integer_dtype(dtype))
    except (ValueError, TypeError, jax.errors.TracerArrayConversionError):
        # Tracers inside `jax.jit` have no values; for what is no array at all JAX has the better message.
        return jnp.asarray(obj, dtype=dtype)
    return _from_numpy(array, dtype)


def _from_numpy(array: Any, dtype: Any) -> Any:
    """Copy a NumPy array before JAX has it: JAX reads NumPy's memory later, or uses it as its own where it is aligned.

    Its owner would then change an array of JAX by writing to it. In memory that is aligned the copy is the only one.
    (`jnp.array` compiles a program for each new shape.)
    """
    if array.dtype.kind in "OSUMm" or (array.dtype.kind == "V" and array.dtype.names is not None):
        raise TypeError(f"JAX has no dtype {array.dtype}")
    wanted = array.dtype.newbyteorder("=") if dtype is None else np.dtype(dtype)
    with jax.ensure_compile_time_eval():  # inside `jax.jit`, too, an array of known values stays one
        made = (jnp.asarray if _has_program(array.shape, wanted) else jax.device_put)(_aligned_copy(array, wanted))
    if made.dtype != wanted:
        raise cut(wanted)
    return made


def cut(wanted: Any) -> TypeError:
    """Return the error of values of 64 bits, of which JAX would make values of 32."""
    return TypeError(
        f"JAX makes {canonicalize_dtype(wanted)} of {wanted}, since jax_enable_x64 was switched off after "
        f"Tape had switched it on; Tape's arrays need it: jax.config.update('jax_enable_x64', True)"
    )


_TIMES: dict[tuple[tuple[int, ...], Any], int] = {}
"""How often arrays of a shape and dtype were made from NumPy's."""


def _has_program(shape: tuple[int, ...], dtype: Any) -> bool:
    """Return whether it pays to have XLA compile the program by which `jnp.asarray` makes arrays of a kind faster."""
    kind = (shape, dtype)
    times = _TIMES.get(kind, 0)
    if times < STAGED_FROM:
        if len(_TIMES) >= STAGED_MAX_KINDS:
            _TIMES.clear()
        _TIMES[kind] = times + 1
    elif current() is None:  # in a trace nothing more is compiled
        return True
    return False


NATIVE = frozenset([np.dtype(char) for char in "?bBhHiIlLqQefdFD"])
"""The dtypes, in the order of bytes of this machine, that NumPy and JAX have both."""


def private_copy(array: Any) -> Any:
    """Return a NumPy array as an argument for `jax.jit` that nobody writes to later; None where it is no plain one."""
    if type(array) is not np.ndarray or array.dtype not in NATIVE:
        return None
    if (viewed := viewed_array(array)) is not None:
        return viewed
    return np.array(array) if array.nbytes < ALIGNED_MIN_BYTES else _aligned_copy(array, array.dtype)


def viewed_array(array: Any) -> jax.Array | None:
    """Return the array of JAX whose memory a NumPy array is, all of it in the same order; None where it is its own.

    `numpy.asarray` makes such views, and `jax.jit` takes the array in a fifth of the time of the view.
    """
    base = array.base
    if type(base) is not memoryview or not isinstance(viewed := base.obj, jax.Array):
        return None
    known: Any = viewed.aval
    if known.dtype != array.dtype or known.shape != array.shape or known.weak_type or not array.flags.c_contiguous:
        return None
    return None if viewed.is_deleted() or viewed.committed else viewed  # JAX computes where a committed one is


def _aligned_copy(array: Any, dtype: Any) -> Any:
    copy = aligned_memory(array.shape, dtype)
    copy[...] = array
    return copy


def aligned_memory(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of NumPy with any elements, whose memory XLA on the CPU uses as it is."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)
