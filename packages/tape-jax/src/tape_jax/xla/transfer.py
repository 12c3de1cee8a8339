"""Arrays on their way into XLA's code and out of it, without copies.

NumPy's arrays are given to `jax.jit` as they are: it reads aligned ones in place, which for small arrays takes a third
of the time of DLPack. What comes back are NumPy's views of XLA's memory. JAX's arrays are immutable, so these views are
read-only, and no update in place of Tape's writes to them. XLA gives each result memory of its own, which nothing else
refers to; so PyTorch's tensors, which cannot be read-only, are the only ones to have theirs.

Whatever has been read in place may be written to after the call. XLA may still be computing when `jax.jit` returns: so
results in other libraries' arrays are waited for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.backends import Backend, backend_of_type, select
from tape_core.typing import Raw, RawDType

if TYPE_CHECKING:
    from tape_compile.extend import Spec

Convert = Callable[[Any], Any]
"""A function of one array; None stands for the identity."""


def jax_backend() -> Backend:
    """Return the JAX backend, whose kernels lowered programs call."""
    return select("jax").backend.library


def owner(kind: type) -> Backend | None:
    """Return the backend that a class of arrays is of; what stands for JAX's arrays in a trace is of JAX, too."""
    return jax_backend() if hasattr(kind, "stands_for_jax") else backend_of_type(kind)


@cache
def jax_dtype(kind: type, dtype: RawDType) -> Any:
    """Return JAX's dtype for that of an array of any library."""
    backend = owner(kind)
    if backend is None:
        raise TypeError(f"{kind.__qualname__} is of no backend")
    return backend_dtype(backend, dtype)


def backend_dtype(backend: Backend, dtype: RawDType) -> Any:
    """Return JAX's dtype for one of a backend's library."""
    return jax_backend().raw_dtype(backend.library.dtype(dtype).name)


def nbytes(spec: Spec) -> int:
    """Return the size of an array of known shape."""
    return spec.size * int(np.dtype(jax_dtype(spec.kind, spec.dtype)).itemsize)


def is_of_jax(spec: Spec) -> bool:
    """Return whether a value is an array of JAX."""
    backend = None if spec.dtype is None else owner(spec.kind)
    return backend is not None and backend.root.name == "jax"


def is_swapped(spec: Spec) -> bool:
    """Return whether the bytes of an array's numbers are in an order that XLA cannot read."""
    return isinstance(spec.dtype, np.dtype) and not spec.dtype.isnative


def into(spec: Spec) -> Convert | None:
    """Return what makes of an array with this spec an argument for `jax.jit`; None for nothing."""
    if spec.dtype is None:
        return None  # a Python number, whose dtype is weak there as it is in Tape
    backend = owner(spec.kind)
    name = None if backend is None else backend.root.name
    if name == "jax":
        return None
    if name == "numpy":
        if is_swapped(spec):
            return partial(np.asarray, dtype=spec.dtype.newbyteorder("="))
        if issubclass(spec.kind, np.generic):
            return None
        return None if spec.kind is np.ndarray else np.asarray
    if name == "torch":
        return _from_torch
    assert backend is not None
    return backend.library.numpy


def out_of(spec: Spec) -> Convert | None:
    """Return what makes of a JAX array one with this spec; None for nothing."""
    if spec.dtype is None:
        return spec.kind
    backend = owner(spec.kind)
    name = None if backend is None else backend.root.name
    if name == "jax":
        return None
    if name == "numpy":
        if is_swapped(spec):
            return partial(np.array, dtype=spec.dtype)
        if issubclass(spec.kind, np.generic):
            return _as_scalar
        return np.asarray if spec.kind is np.ndarray else lambda array: np.asarray(array).view(spec.kind)
    if name == "torch":
        return _to_torch(spec.dtype)
    assert backend is not None
    library = backend.library
    return lambda array: library.asarray(np.array(array))


def _as_scalar(array: jax.Array) -> Any:
    return np.asarray(array)[()]


def _from_torch(tensor: Raw) -> Any:
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError):  # bfloat16, which NumPy does not know; conjugates and negatives that are views
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        return (
            plain.view(_torch().int16).numpy().view(jnp.bfloat16) if plain.dtype is _torch().bfloat16 else plain.numpy()
        )


def _to_torch(dtype: RawDType) -> Convert:
    # By way of NumPy, which takes half the time of DLPack, and has no bfloat16. What can be asked once is asked here.
    torch, from_numpy, asarray = _torch(), _torch().from_numpy, np.asarray
    if dtype is torch.bfloat16:
        return lambda array: from_numpy(asarray(array).view(np.int16)).view(torch.bfloat16)
    return lambda array: from_numpy(asarray(array))


@cache
def _torch() -> Any:
    """Return PyTorch, which has told, to nobody, what it tells once: that an array of NumPy is read-only."""
    import torch

    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)
    return torch


def check_devices(arrays: Sequence[Raw]) -> None:
    """Refuse arrays that XLA on the CPU cannot read where they are.

    Raises:
        ValueError: a PyTorch tensor is on another device.
    """
    for array in arrays:
        kind = type(array)
        backend = backend_of_type(kind)
        if backend is not None and backend.root.name == "torch" and array.device.type != "cpu":
            raise ValueError(
                f"compile='xla' takes PyTorch tensors on the CPU, and one is on {array.device}: move it there, use "
                "arrays of the JAX backend, or leave out compile"
            )
