"""Derivatives of a case by the tape, by forward mode and by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.engine.indexed_slices import dense

from tape_conformance.samples import NOTHING, Case, Replaced, here

STEP = 1e-6
"""Of central differences in float64: their error is about 1e-10 of the value, and as much of the third derivative."""


def loss(case: Case, weights: list[Any], at: Replaced = NOTHING) -> float:
    """The real function of the leaves whose derivatives are compared."""
    seen = case.observed(case.call(at))
    return sum(inner(w, out.numpy()) for out, w in zip(seen, weights, strict=True) if w is not None)


def gradients(
    case: Case, weights: list[Any], at: Replaced = NOTHING, run: Callable[[Replaced], Sequence[Any]] | None = None
) -> dict[int, Any]:
    """The gradient of the loss for each leaf, the leaves being as they are or as `at` says.

    `run` may compute what the loss is made of instead.
    """
    values = {leaf.k: at.get(leaf.k, leaf.value) for leaf in case.leaves}
    with tc.GradientTape() as tape:
        tape.watch(list(values.values()))
        seen = case.observed(case.call({**at, **values})) if run is None else tuple(run({**at, **values}))
    return _back(tape, seen, weights, values)


def cotangents(case: Case, weights: list[Any], outs: tuple[Any, ...]) -> list[Any]:
    """The gradient of the loss for each result of the op, None where it has none."""
    flowing = {k: o for k, o in enumerate(outs) if o.dtype.inexact}
    with tc.GradientTape() as tape:
        tape.watch(list(flowing.values()))
        seen = case.observed(outs)
    found = _back(tape, seen, weights, flowing)
    return [found.get(k) for k in range(len(outs))]


def curvature(case: Case, weights: list[Any], directions: Mapping[int, Any]) -> dict[int, Any]:
    """The gradient, for each leaf, of the gradient's inner product with directions."""
    values = {leaf.k: leaf.value for leaf in case.leaves}
    with tc.GradientTape() as tape:
        tape.watch(list(values.values()))
        slopes = gradients(case, weights, values)
    along = [here(directions[k]) for k in slopes]
    found = tape.gradient(
        list(slopes.values()), list(values.values()), output_gradients=along, unconnected_gradients="zero"
    )
    return dict(zip(values, map(dense, found), strict=True))


def _back(tape: Any, seen: tuple[Any, ...], weights: list[Any], sources: Mapping[int, Any]) -> dict[int, Any]:
    pairs = [(out, here(w)) for out, w in zip(seen, weights, strict=True) if w is not None]
    targets, seeds = [out for out, _ in pairs], [tc.astype(w, out.dtype) for out, w in pairs]
    given = list(sources.values())
    found = tape.gradient(targets, given, output_gradients=seeds, unconnected_gradients="zero")
    return dict(zip(sources, map(dense, found), strict=True))


def directional(f: Callable[[Replaced], float], case: Case, directions: Mapping[int, Any]) -> float:
    """The derivative of a real function of the leaves along directions, by central differences."""
    above, below = (f(case.moved(directions, step)) for step in (STEP, -STEP))
    return (above - below) / (2 * STEP)


def inner(a: Any, b: Any) -> float:
    """The real inner product of NumPy arrays: the gradient of a real f of a complex x is df/dRe + i df/dIm."""
    return float(np.sum(np.real(np.conj(a) * b)))


def pushed(case: Case, directions: Mapping[int, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The op's results and their tangents."""
    leaves = {k: case.values[k] for k in directions}
    with tc.ForwardAccumulator(list(leaves.values()), [here(direction) for direction in directions.values()]) as acc:
        outs = case.call()
    return outs, tuple(acc.jvp(list(outs)))
