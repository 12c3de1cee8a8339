"""`top_k` by XLA's partial sort, which the CPU has for float32: a hundredth of the time of the whole sort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.backends import check_top_k

_AS_FLOAT32 = frozenset(map(np.dtype, ("float32", "float16", jnp.bfloat16, "int8", "int16", "uint8", "uint16")))
"""The dtypes of which float32 has each number."""

_LARGEST, _LEAST = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
"""NaN above and below all numbers: XLA orders by the sign of NaN, and takes -0.0 for less than 0.0."""


@partial(jax.jit, static_argnums=(1, 2, 3))
def _top_k(x: jax.Array, k: int, axis: int, largest: bool) -> Any:
    lines = jnp.moveaxis(x, axis, -1).astype(jnp.float32)
    zero = jnp.float32(0)
    keys = jnp.where(lines == 0, zero, lines if largest else -lines)
    keys = jnp.where(jnp.isnan(lines), _LARGEST if largest else _LEAST, keys)
    indices = jnp.moveaxis(jax.lax.top_k(keys, k)[1], -1, axis).astype(jnp.int64)
    return jnp.take_along_axis(x, indices, axis=axis), indices


def sorting_kernels(jitted: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the kernels by op name; `jitted` gives the default kernel, which takes all other dtypes and devices."""

    def top_k(x: jax.Array, k: int, *, axis: int = -1, largest: bool = True) -> Any:
        # On a GPU the whole sort is fast, and its order of NaN is known.
        place = jax.default_backend() if isinstance(x, jax.core.Tracer) else next(iter(x.devices())).platform
        if x.dtype not in _AS_FLOAT32 or not x.size or place != "cpu":
            return jitted("top_k")(x, k, axis=axis, largest=largest)
        return _top_k(x, check_top_k(x, k, axis, False), axis, largest)

    return {"top_k": top_k}
