"""Factorizations by JAX's own: the default kernels halve matrices, and take XLA a minute to compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))


@partial(jax.jit, static_argnames=("lower", "unit_diagonal"))
def _triangular(a: jax.Array, b: jax.Array, lower: bool, unit_diagonal: bool) -> Any:
    if b.ndim == 1:
        return _triangular(a, b[:, None], lower, unit_diagonal)[..., 0]
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, (*batch, *a.shape[-2:])), jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=lower, unit_diagonal=unit_diagonal)


@jax.jit
def _has_zero(a: jax.Array) -> Any:
    return jnp.any(jnp.diagonal(a, axis1=-2, axis2=-1) == 0)


@jax.jit
def _lu(x: jax.Array) -> Any:
    lu, _, permutation = jax.lax.linalg.lu(x)
    return lu, permutation.astype(jnp.int64)


_EXPM_NORM = 3.9
"""A norm that JAX's `expm` takes without squarings, in single and in double precision."""


@jax.jit
def _expm(x: jax.Array) -> Any:
    norm = jnp.max(jnp.sum(jnp.abs(x), axis=-2, keepdims=True), axis=-1, keepdims=True)
    finite = jnp.isfinite(norm)
    x, norm = jnp.where(finite, x, 0), jnp.where(finite, norm, 0)
    # JAX's own squarings are as many as are told it before, for all matrices of a stack, and NaN beyond that.
    squarings = jnp.ceil(jnp.log2(jnp.maximum(norm, _EXPM_NORM) / _EXPM_NORM)).astype(int)
    powers = jax.scipy.linalg.expm(x * jnp.ldexp(jnp.ones_like(norm), -squarings), max_squarings=1)
    most = jnp.max(squarings)

    def squared(state: tuple[Any, Any]) -> tuple[Any, Any]:
        k, powers = state
        return k + 1, jnp.where(squarings > k, powers @ powers, powers)

    _, powers = jax.lax.while_loop(lambda state: state[0] < most, squared, (jnp.zeros_like(most), powers))
    return jnp.where(finite, powers, jnp.nan)


def linalg_kernels(jitted: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the kernels by op name; `jitted` gives the default kernel, which takes what is empty, and refuses."""

    def solve_triangular(a: jax.Array, b: jax.Array, *, lower: bool = False, unit_diagonal: bool = False) -> Any:
        n = a.shape[-1] if a.ndim > 1 and a.shape[-1] == a.shape[-2] else 0
        rows = b.shape[-2:][:1]
        if not n or rows != (n,) or not b.size or not a.size or a.dtype not in _DTYPES or b.dtype != a.dtype:
            return jitted("solve_triangular")(a, b, lower=lower, unit_diagonal=unit_diagonal)
        if not unit_diagonal:
            found = _has_zero(a)
            if not isinstance(found, jax.core.Tracer) and bool(found):
                raise ValueError("a is singular: its diagonal has a 0")
        return _triangular(a, b, lower=lower, unit_diagonal=unit_diagonal)

    def lu_factor(x: jax.Array) -> Any:
        if x.ndim < 2 or not x.size or x.dtype not in _DTYPES:
            return jitted("lu_factor")(x)
        return _lu(x)

    def expm(x: jax.Array) -> Any:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or not x.size or x.dtype not in _DTYPES:
            return jitted("expm")(x)
        return _expm(x)

    return {"expm": expm, "lu_factor": lu_factor, "solve_triangular": solve_triangular}
