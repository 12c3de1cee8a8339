"""Kernels of JAX's own, by the name of the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from tape_jax import convolution, devices, indexing


def _to_device(x: jax.Array, device: str, origin: str) -> jax.Array:
    # Inside `jax.jit` the compiled function is on one device, and that is not known yet.
    return x if isinstance(x, jax.core.Tracer) else jax.device_put(x, devices.find(device))


def _astype(x: jax.Array, dtype: Any, copy: bool = True) -> jax.Array:
    # Nobody can tell a copy from the array itself.
    return x if x.dtype == dtype else jax.lax.convert_element_type(x, dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    **convolution.KERNELS,
    **indexing.KERNELS,
    "astype": _astype,
    "to_device": _to_device,
}
