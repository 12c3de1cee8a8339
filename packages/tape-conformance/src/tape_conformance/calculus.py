"""Derivatives of a case: by the tape, by forward mode and by finite differences.

All are derivatives of one real number, the loss of a case: the inner product of its results with fixed weights. So a
gradient is a VJP whose cotangents are the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tape_core as tc
from numpy.typing import NDArray
from tape_core.support import dense

from tape_conformance.samples import AS_SAMPLED, Case, Directions, Replaced, Weights, on_backend
from tape_conformance.tolerances import FINITE_DIFFERENCE_STEP


def loss(case: Case, weights: Weights, at: Replaced = AS_SAMPLED) -> float:
    """Return the real number whose derivatives are compared, for the case's inputs with those of `at` replaced."""
    observed = case.observed(case.call(at))
    return sum(inner_product(w, out.numpy()) for out, w in zip(observed, weights, strict=True) if w is not None)


def gradients(
    case: Case,
    weights: Weights,
    at: Replaced = AS_SAMPLED,
    run: Callable[[Replaced], Sequence[tc.Tensor]] | None = None,
) -> dict[int, tc.Tensor]:
    """Return the gradient of the loss for each leaf, at the case's inputs with those of `at` replaced.

    `run` may compute the observed results in place of the op.
    """
    values = {leaf.k: at.get(leaf.k, leaf.value) for leaf in case.leaves}
    # `at` may hold traced or batched Tensors, or Tensors that an outer tape watches: second derivatives, vmap and
    # compiled functions all come through here.
    with tc.GradientTape() as tape:
        tape.watch(list(values.values()))
        observed = case.observed(case.call({**at, **values})) if run is None else tuple(run({**at, **values}))
    return _gradient_of_loss(tape, observed, weights, values)


def cotangents(case: Case, weights: Weights, outs: tuple[tc.Tensor, ...]) -> list[tc.Tensor | None]:
    """Return the gradient of the loss for each result of the op; None for results of integer dtype."""
    # What is observed may be computed from the results, such as a projector from eigenvectors: the weights are those of
    # what is observed, so the cotangents of the results are a gradient themselves.
    flowing = {k: o for k, o in enumerate(outs) if o.dtype.inexact}
    with tc.GradientTape() as tape:
        tape.watch(list(flowing.values()))
        observed = case.observed(outs)
    found = _gradient_of_loss(tape, observed, weights, flowing)
    return [found.get(k) for k in range(len(outs))]


def hessian_vector_products(case: Case, weights: Weights, directions: Directions) -> dict[int, tc.Tensor]:
    """Return, for each leaf, the gradient of the inner product of the loss's gradient with `directions`."""
    values = {leaf.k: leaf.value for leaf in case.leaves}
    # The outer tape sees each op of the inner one's sweep (`gradients` opens a tape of its own): that is reverse over
    # reverse mode.
    with tc.GradientTape() as tape:
        tape.watch(list(values.values()))
        slopes = gradients(case, weights, values)
    along = [on_backend(directions[k]) for k in slopes]
    found = tape.gradient(
        list(slopes.values()), list(values.values()), output_gradients=along, unconnected_gradients="zero"
    )
    return dict(zip(values, map(dense, found), strict=True))


def _gradient_of_loss(
    tape: tc.GradientTape, observed: tuple[tc.Tensor, ...], weights: Weights, sources: Replaced
) -> dict[int, tc.Tensor]:
    # Weights are float64 or complex128, and a cotangent has the dtype of its result. A rule that drops an input, as
    # that of a linear op does in a second derivative, leaves it unconnected: its derivative is zero.
    pairs = [(out, on_backend(w)) for out, w in zip(observed, weights, strict=True) if w is not None]
    targets, seeds = [out for out, _ in pairs], [tc.astype(w, out.dtype) for out, w in pairs]
    given = list(sources.values())
    found = tape.gradient(targets, given, output_gradients=seeds, unconnected_gradients="zero")
    return dict(zip(sources, map(dense, found), strict=True))


def finite_difference(f: Callable[[Replaced], float], case: Case, directions: Directions) -> float:
    """Return the derivative of a real function of the leaves along `directions`, by central differences."""
    # Central differences: the error is of order h**2, where that of (f(x + h) - f(x)) / h would be of order h.
    h = FINITE_DIFFERENCE_STEP
    above, below = (f(case.perturbed(directions, step)) for step in (h, -h))
    return (above - below) / (2 * h)


def inner_product(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the real inner product of NumPy arrays, complex ones taken as pairs of real numbers.

    So the gradient of a real f of a complex x is df/dRe(x) + i df/dIm(x).
    """
    return float(np.sum(np.real(np.conj(a) * b)))


def jvp(case: Case, directions: Directions) -> tuple[tuple[tc.Tensor, ...], tuple[tc.Tensor | None, ...]]:
    """Return the op's results, and their tangents in forward mode."""
    leaves = {k: case.values[k] for k in directions}
    # All tangents at once: the JVP is linear in them, so one finite difference along all directions is what it is
    # compared with.
    with tc.ForwardAccumulator(list(leaves.values()), [on_backend(d) for d in directions.values()]) as acc:
        outs = case.call()
    return outs, tuple(acc.jvp(list(outs)))
