"""Loops and linear systems by `jax.lax`, for Tape's functions that JAX traces: see `tape_core.backends.Flows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from tape_jax import manual
from tape_jax.given_rules import UNREAD

__all__ = ["UNREAD", "cond", "explained", "gmres", "linear_solve", "mapped", "scan", "while_loop"]

Arrays = Sequence[Any]
Mapped = Callable[[Arrays], Arrays]


def cond(condition: Any, branches: Sequence[Mapped], arrays: Arrays) -> list[Any]:
    """Return the results of the first branch where a condition is true, else those of the second."""
    listed = [lambda arrays, branch=branch: list(branch(arrays)) for branch in branches]
    first, second = manual.agreeing(listed, list(arrays))
    found: list[Any] = jax.lax.cond(jnp.asarray(condition, bool), first, second, list(arrays))
    return found


def scan(
    step: Callable[[Arrays, Arrays], tuple[Arrays, Arrays]], carry: Arrays, xs: Arrays, length: int, reverse: bool
) -> tuple[list[Any], list[Any]]:
    """Return the carry after a step for each element of arrays, and the results of the steps, stacked."""

    def again(carry: Arrays, elements: Arrays) -> tuple[list[Any], list[Any]]:
        new, ys = step(carry, elements)
        return list(new), list(ys)

    carry = manual.settled(lambda carry: again(carry, [x[0] for x in xs])[0], carry) if length else list(carry)
    found: tuple[list[Any], list[Any]] = jax.lax.scan(again, carry, list(xs), length=length, reverse=reverse)
    return found


def while_loop(test: Callable[[Arrays], Any], step: Mapped, carry: Arrays) -> list[Any]:
    """Return the carry after steps while the test of it is true."""
    carry = manual.settled(step, carry)
    found: list[Any] = jax.lax.while_loop(lambda c: jnp.asarray(test(c), bool), lambda c: list(step(c)), carry)
    return found


def _apart(arrays: Arrays) -> list[Any]:
    """Return complex arrays as pairs of real ones: a derivative of `conj` or `abs` is linear over the reals only."""
    return [(x.real, x.imag) if jnp.iscomplexobj(x) else x for x in arrays]


def _together(parts: Sequence[Any]) -> list[Any]:
    return [jax.lax.complex(*part) if isinstance(part, tuple | list) else part for part in parts]


def linear_solve(affine: Mapped, like: Arrays, solve: Callable[[Mapped, Arrays], Arrays]) -> list[Any]:
    """Return the x with `affine(x) = 0`, which JAX differentiates by that equation, to any order.

    JAX is given one array, since it fails where some of several depend on what it differentiates, and others do not.
    """
    zero, apart = ravel_pytree(_apart(like)) if len(like) > 1 else (like[0], None)

    def packed(arrays: Arrays) -> Any:
        return arrays[0] if apart is None else ravel_pytree(_apart(arrays))[0]

    def unpacked(vector: Any) -> list[Any]:
        return [vector] if apart is None else _together(apart(vector))

    def solved(product: Callable[[Any], Any], b: Any) -> Any:
        return manual.as_one(lambda b: packed(solve(lambda xs: unpacked(product(packed(xs))), unpacked(b))))(b)

    constant, linear = jax.linearize(lambda x: packed(affine(unpacked(x))), zero)
    return unpacked(jax.lax.custom_linear_solve(linear, -constant, solved, transpose_solve=solved))


def gmres(product: Mapped, b: Arrays, tol: float, restart: int, maxiter: int) -> list[Any]:
    """Return the x with `product(x) = b`, by JAX's GMRES; NaN where it is not found.

    Raises:
        NotImplementedError: the arrays differ along axes of `jax.shard_map`, for which JAX's loop is not written.
    """
    if manual.differ(b):
        raise NotImplementedError(
            "linear_solver='gmres': JAX's GMRES does not run inside jax.shard_map with its check of what differs "
            "between devices; use linear_solver='dense', a solver of your own, or shard_map(..., check_vma=False)"
        )

    def flat_norm(parts: Any) -> Any:
        return jnp.sqrt(sum([jnp.sum(part * part) for part in jax.tree_util.tree_leaves(parts)]))

    def moved(parts: Any) -> Any:
        return _apart(product(_together(parts)))

    right = _apart(b)
    restart = max(1, min(restart, sum([part.size for part in jax.tree_util.tree_leaves(right)])))
    size = flat_norm(right)
    scale = jnp.where(size == 0, 1, size)  # JAX's takes a vector below the rounding of 1 for 0
    right = jax.tree_util.tree_map(lambda part: part / scale, right)
    found, _ = jax.scipy.sparse.linalg.gmres(  # type: ignore[no-untyped-call]
        moved, right, tol=tol, restart=restart, maxiter=-(-maxiter // restart), solve_method="batched"
    )
    left = flat_norm(jax.tree_util.tree_map(jnp.subtract, moved(found), right))
    is_solved = left <= 2 * tol * flat_norm(right)  # JAX counts by its own sums, which round
    return [jnp.where(is_solved, x * scale, jnp.nan) for x in _together(found)]


def mapped(function: Mapped, dims: Sequence[int | None], arrays: Arrays) -> Arrays:
    """Return the results of a function for all examples, by `jax.vmap`."""
    found: Arrays = jax.vmap(lambda *xs: list(function(list(xs))), tuple(dims))(*arrays)
    return found


@contextmanager
def explained(message: str) -> Iterator[None]:
    """Raise TypeError with this message in the context where Python asks for a value that is traced."""
    try:
        yield
    except UNREAD as error:
        raise TypeError(message) from error
