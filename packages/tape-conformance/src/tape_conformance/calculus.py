"""Derivatives of a case by the tape, by forward mode and by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.forward import push_forward

from tape_conformance.samples import Case, here

Loss = Callable[[tuple[Any, ...]], Any]
STEP = 1e-6
"""Of central differences in float64: their error is about 1e-10 of the third derivative, plus 1e-10 of the value."""


def dense(gradient: Any) -> Any:
    """A gradient as a Tensor, also that of a gather."""
    return gradient.densify() if isinstance(gradient, tc.IndexedSlices) else gradient


def gradients(case: Case, loss: Loss, at: Mapping[int, Any] = {}) -> dict[int, Any]:
    """The gradient of the loss for each leaf, the leaves being as they are or as `at` says."""
    values = {leaf.k: at.get(leaf.k, leaf.value) for leaf in case.leaves}
    with tc.GradientTape() as tape:
        tape.watch(list(values.values()))
        y = loss(case.call(values))
    found = tape.gradient(y, list(values.values()), unconnected_gradients="zero")
    return dict(zip(values, map(dense, found), strict=True))


def directional(f: Callable[[Mapping[int, Any]], Any], case: Case, directions: Mapping[int, Any]) -> float:
    """The derivative of a real function of the leaves along directions, by central differences."""
    above, below = (f(case.moved(directions, step)) for step in (STEP, -STEP))
    return float((above - below).item()) / (2 * STEP)


def inner(gradient: Any, direction: Any) -> float:
    """The real inner product: for a complex x the gradient of a real f is df/dRe + i df/dIm."""
    return float(np.sum(np.real(np.conj(gradient.numpy()) * direction)))


def pushed(case: Case, directions: Mapping[int, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The op's results and their tangents."""
    tangents = {k: here(direction) for k, direction in directions.items()}
    out, tangent = push_forward(case.op, case.sample.args, case.sample.kwargs, tangents)
    return (tuple(out), tuple(tangent)) if isinstance(out, tuple | list) else ((out,), (tangent,))


def cotangents(outs: tuple[Any, ...], loss: Loss) -> list[Any]:
    """The gradient of the loss for each result, None where it has none."""
    flowing = [o for o in outs if o.dtype.inexact]
    with tc.GradientTape() as tape:
        tape.watch(flowing)
        y = loss(outs)
    found = iter(tape.gradient(y, flowing, unconnected_gradients="zero"))
    return [next(found) if o.dtype.inexact else None for o in outs]
