"""Sorting: `top_k` by XLA's partial sort, and the gradient of `sort` without sorting again.

The CPU has the partial sort for float32: it takes a hundredth of the time of the whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.backends import check_top_k
from tape_core.extend import fused
from tape_core.typing import Array, Cotangent, Namespace, Residuals

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


@partial(jax.jit, static_argnames=("axis", "descending", "stable"))
def sort_with_residuals(x: jax.Array, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    # XLA sorts the places along with the elements, in less than twice the time; a sort of its own for each takes twice.
    axis %= x.ndim
    order: Any = _places(x, axis)
    if descending and stable:  # the sort is turned around, and so is the order of equal elements
        x, order = jax.lax.rev(x, (axis,)), jax.lax.rev(order, (axis,))
    values, order = jax.lax.sort((x, order), dimension=axis, is_stable=stable, num_keys=1)
    if descending:
        values, order = jax.lax.rev(values, (axis,)), jax.lax.rev(order, (axis,))
    return values, (order.astype(jnp.int64),)


def _places(x: jax.Array, axis: int, dtype: Any = None) -> jax.Array:
    """Return the place of each element along an axis, laid out as the elements are."""
    iota: Any = jax.lax.broadcasted_iota
    if dtype is None:
        dtype = np.int32 if x.shape[axis] <= np.iinfo(np.int32).max else np.int64
    found: jax.Array = iota(dtype, x.shape, axis, out_sharding=jax.typeof(x).sharding)
    return found


@partial(jax.jit, static_argnames="axis")
def unsorted(g: jax.Array, order: jax.Array, *, axis: int = -1) -> Any:
    """Return an array whose elements at the places in `order` along an axis are those of `g`: of each place one."""
    axis %= g.ndim
    # Of unsigned integers JAX knows that none counts from the end.
    key = [order.astype(np.uint64) if k == axis else _places(g, k, np.uint64) for k in range(g.ndim)]
    return jnp.zeros_like(g).at[tuple(key)].set(g, mode="promise_in_bounds", unique_indices=True)


@partial(jax.jit, static_argnames="axis")
def inverse(order: jax.Array, *, axis: int = -1) -> Any:
    """Return the inverse of permutations along an axis."""
    return unsorted(_places(order, axis % order.ndim, order.dtype), order, axis=axis)


def _sort_rule(
    xp: Namespace, g: Cotangent, x: Array, residuals: Residuals, axis: int, descending: bool, stable: bool
) -> Any:
    order = residuals[0] if residuals else xp.argsort(x, axis=axis, descending=descending, stable=stable)
    return unsorted(g, order, axis=axis)


RULES: dict[str, dict[str, Any]] = {"sort": {"x": fused(_sort_rule)}}


def sorting_kernels(jitted: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the kernels by op name; `jitted` gives the default kernel, which takes all other dtypes and devices."""

    def top_k(x: jax.Array, k: int, *, axis: int = -1, largest: bool = True) -> Any:
        # On a GPU the whole sort is fast, and its order of NaN is known.
        place = jax.default_backend() if isinstance(x, jax.core.Tracer) else next(iter(x.devices())).platform
        if x.dtype not in _AS_FLOAT32 or not x.size or place != "cpu":
            return jitted("top_k")(x, k, axis=axis, largest=largest)
        return _top_k(x, check_top_k(x, k, axis, False), axis, largest)

    return {"sort_with_residuals": sort_with_residuals, "top_k": top_k}
