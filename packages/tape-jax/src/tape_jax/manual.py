"""Along which axes of a mesh arrays differ inside `jax.shard_map`, which JAX keeps as a part of their types.

JAX asks that the carry of a loop, the results of both branches, and a cotangent and its array have one such type. Its
own functions of two arrays make them alike; these do so where a loop begins with zeros, or one branch is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["agreeing", "alike", "as_one", "differ", "settled", "template", "varying"]

Axes = frozenset[str]
Branch = Callable[..., list[Any]]


def _is_inside() -> bool:
    """Return whether JAX traces the body of a `jax.shard_map` here."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def _axes_of_type(aval: Any) -> Axes:
    kind = getattr(aval, "manual_axis_type", None)
    axes: Axes = kind.varying if kind is not None else getattr(aval, "vma", frozenset())  # `vma` before JAX 0.10
    return axes


def _axes(array: Any) -> Axes:
    return _axes_of_type(jax.typeof(array))


def varying(array: Any, axes: Axes) -> Any:
    """Return an array as one that differs along some axes more."""
    missing = tuple(sorted(axes - _axes(array)))
    return jax.lax.pcast(array, missing, to="varying") if missing else array


def differ(arrays: Sequence[Any]) -> bool:
    """Return whether some arrays differ along axes of a mesh, of which JAX keeps account."""
    return any(map(_axes, arrays))


def alike(*arrays: Any) -> list[Any]:
    """Return arrays that differ along all axes along which one of them does."""
    axes = frozenset[str]().union(*map(_axes, arrays))
    return [varying(array, axes) for array in arrays]


def template(shape: Sequence[int], like: jax.Array) -> Any:
    """Return what `jax.linear_transpose` takes for an array of a shape, of the dtype and the axes of another one."""
    axes = _axes(like)
    if axes:
        return varying(jnp.zeros(tuple(shape), like.dtype), axes)
    return jax.ShapeDtypeStruct(tuple(shape), like.dtype)  # type: ignore[no-untyped-call]


def _axes_of_results(function: Callable[..., Any], *args: Any) -> list[Axes]:
    return [_axes_of_type(aval) for aval in jax.make_jaxpr(function)(*args).out_avals]


def agreeing(branches: Sequence[Branch], *args: Any) -> list[Branch]:
    """Return branches whose results for some arguments differ along the same axes."""
    if not _is_inside():
        return list(branches)
    found = [_axes_of_results(branch, *args) for branch in branches]
    joint = [frozenset[str]().union(*each) for each in zip(*found, strict=True)]

    def alike(branch: Branch) -> Branch:
        return lambda *args: [varying(o, axes) for o, axes in zip(branch(*args), joint, strict=True)]

    return [alike(branch) for branch in branches]


def settled(step: Callable[[list[Any]], Sequence[Any]], carry: Sequence[Any]) -> list[Any]:
    """Return a carry that differs along all axes along which it does after any number of steps.

    Args:
        step: from a carry to the next one.
    """
    carry = list(carry)
    while _is_inside():
        found = _axes_of_results(lambda *arrays: list(step(list(arrays))), *carry)
        new = [varying(x, axes) for x, axes in zip(carry, found, strict=True)]
        if all([_axes(x) == _axes(old) for x, old in zip(new, carry, strict=True)]):
            break
        carry = new
    return carry


def as_one(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that is one call in a program, so that JAX does not trace its inside again.

    JAX does so with solvers of linear systems when it compiles, and constants there differ along no axes any more.
    """
    return jax.jit(function) if _is_inside() else function
