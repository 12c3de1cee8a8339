"""Check the (gradient, Variable) pairs that optimizers are given."""

from __future__ import annotations

from collections.abc import Iterable

import tape_core as tc
from tape_core import IndexedSlices, Tensor, Variable, asarray
from tape_core.staging import current
from tape_core.support import binding, layouts, pytree, wrap
from tape_core.typing import ArrayLike, Namespace, PyTree, Raw

from tape_nn.module import Module
from tape_nn.types import Gradient


def paired(gradients: PyTree, variables: PyTree) -> Iterable[tuple[Gradient, Variable]]:
    """Return (gradient, variable) pairs of two structures; without the second the first has them already."""
    if variables is None:
        if isinstance(gradients, Module):
            raise TypeError("apply_gradients: for a Module of gradients also give the Module that it updates")
        return gradients  # type: ignore[no-any-return]
    if not isinstance(variables, Module | dict | list | tuple):
        raise TypeError(f"apply_gradients: variables is a structure of Variables; got {type(variables).__name__!r}")
    leaves, structure = pytree.flatten(variables)
    found, found_structure = pytree.flatten(gradients)
    if len(found) != len(leaves) or not pytree.same(structure, found_structure, len(leaves)):
        shown = pytree.difference("gradients", found_structure, len(found), "variables", structure, len(leaves))
        raise ValueError(f"apply_gradients: gradients and variables must have the same structure; {shown}")
    return zip(found, leaves, strict=True)


def pairs_of_variables(pairs: Iterable[object]) -> list[tuple[Gradient, Variable]]:
    """Return the pairs that are such; :func:`check_pair` reports the others."""
    found = [pair for pair in pairs if isinstance(pair, tuple | list) and len(pair) == 2]
    return [(gradient, variable) for gradient, variable in found if isinstance(variable, Variable)]


def check_pair(pair: object) -> tuple[Gradient, Variable]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs, such as zip(gradients, variables); "
            f"got an element of type {type(pair).__name__!r}"
        )
    gradient, variable = pair
    if not isinstance(variable, Variable):
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs; the second of this pair is no "
            f"Variable but of type {type(variable).__name__!r}"
            + (". Are the two swapped?" if isinstance(gradient, Variable) else "")
        )
    return gradient, variable


def check_gradient(gradient: ArrayLike, variable: Variable) -> Raw | IndexedSlices:
    """Return a gradient as a raw array of the Variable's dtype, or as IndexedSlices.

    A raw array, so that no tape records what is computed with it.

    Raises:
        TypeError: it is on another backend.
        ValueError: it has another shape, or is divided among processes, and the Variable is not.
    """
    # The common case first, by a few attributes: this runs for each Variable in each step.
    plain = type(gradient) is Tensor and type(variable) is Variable and current() is None
    if plain and gradient.backend is variable._home and not binding.in_use:
        array, own = gradient._array, variable._raw
        alike = not layouts.in_use or type(array) is type(own) is variable._home.divided_class
        if alike and array.dtype == own.dtype and array.shape == own.shape:
            return array
    if layouts.in_use and layouts.is_divided(_raw(gradient)) and not layouts.is_divided(variable):
        raise ValueError(
            f"the gradient of {names_of([variable])} is divided among processes, and the variable is none of theirs: "
            f"call strategy.prepare(model) before the first step, or distribute(variable, (), mesh=mesh), which makes "
            f"it a copy in each"
        )
    if not isinstance(gradient, Tensor | IndexedSlices):
        gradient = asarray(gradient, dtype=variable.dtype, backend=variable.backend, device=variable.device)
    values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    if values.backend is not variable.backend:
        raise TypeError(
            f"the gradient of {names_of([variable])} is on backend {values.backend.name!r}; "
            f"the variable is on {variable.backend.name!r}"
        )
    if isinstance(gradient, IndexedSlices):
        shape = gradient.dense_shape
        result: Raw | IndexedSlices = gradient
        if gradient.dtype is not variable.dtype:
            values = tc.astype(wrap(values.array, variable.backend), variable.dtype)
            result = IndexedSlices(values, gradient.indices, shape)
    else:
        shape = gradient.shape
        result = gradient._array
        if gradient.dtype is not variable.dtype:
            backend = variable.backend
            result = backend.xp.astype(result, backend.raw_dtype(variable.dtype))
    if shape != variable.shape:
        raise ValueError(f"the gradient of {names_of([variable])} has shape {shape}; the variable has {variable.shape}")
    return result


def _raw(gradient: ArrayLike | IndexedSlices) -> object:
    return gradient.values._array if isinstance(gradient, IndexedSlices) else getattr(gradient, "_array", gradient)


def merge_rows(slices: IndexedSlices, xp: Namespace) -> IndexedSlices:
    """Add up rows that are named twice."""
    backend = slices.values.backend
    raw = IndexedSlices(slices.values.array, slices.indices.array, slices.dense_shape, _xp=xp).merged()
    return IndexedSlices(wrap(raw.values, backend), wrap(raw.indices, backend), slices.dense_shape)


def merge_in_place(slices: IndexedSlices, xp: Namespace) -> tuple[IndexedSlices, Raw]:
    """Add up rows that are named twice, without a result whose shape is a matter of values.

    Returns:
        slices with as many rows as before, sorted: the sum in place of the first one of a name, zeros in place of the
        others; and an array of truth values, shape (n,): which rows are the first ones.
    """
    backend = slices.values.backend
    values, indices = slices.values.array, slices.indices.array
    indices = xp.where(indices < 0, indices + slices.dense_shape[0], indices)
    order = xp.argsort(indices, stable=True)
    values, indices = xp.take(values, order, axis=0), xp.take(indices, order, axis=0)
    first = xp.concat([xp.ones_like(indices[:1]) > 0, indices[1:] != indices[:-1]], axis=0)
    groups = xp.cumulative_sum(xp.astype(first, indices.dtype)) - 1
    sums = xp.take(xp.scatter(values, groups, tuple(values.shape)), groups, axis=0)
    values = xp.where(beside(xp, first, values), sums, 0)
    return IndexedSlices(wrap(values, backend), wrap(indices, backend), slices.dense_shape), first


def is_divided(variable: Variable) -> bool:
    """Return whether the value of a Variable is divided among devices or processes, or a copy on each."""
    if not layouts.in_use:
        return False
    return bool(variable._home.place(variable._raw))  # also where a trace has a value of its own


def densified(xp: Namespace, slices: IndexedSlices, like: Raw) -> Raw:
    """Return slices as a whole array, which is divided among devices or processes as another one is, if that is."""
    values, indices = slices.values.array, slices.indices.array
    if not layouts.in_use:
        return xp.scatter(values, indices, slices.dense_shape)
    # Each process adds to what it has of the array; of `scatter` it would need to have all.
    return xp.add_rows(xp.zeros_like(like), indices, values)


def beside(xp: Namespace, first: Raw, rows: Raw) -> Raw:
    """Return an array of shape (n,) with axes of length 1 for those that rows have besides."""
    return xp.reshape(first, (-1,) + (1,) * (len(rows.shape) - 1))


def values_of(gradient: Raw | IndexedSlices) -> Raw:
    return gradient.values.array if isinstance(gradient, IndexedSlices) else gradient


def names_of(variables: list[Variable]) -> str:
    return ", ".join(repr(v.name) if v.name else f"<Variable of shape {v.shape}>" for v in variables)
