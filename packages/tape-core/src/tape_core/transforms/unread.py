"""Solvers where a library traces functions itself and has no values, as JAX does inside `jax.jit`.

What did not converge is NaN there: nobody is there to raise an error. Linear systems are the library's, since it
differentiates what is computed: it takes the derivative of a solution from its equations, to any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.flows import Flows, Mapped
from tape_core.engine.levels import BatchedArray, lift
from tape_core.engine.tensor import Tensor, wrap
from tape_core.ops.elementwise import where
from tape_core.staging import current
from tape_core.transforms import traced
from tape_core.transforms.closures import will_run_again
from tape_core.transforms.vectors import Vector

if TYPE_CHECKING:
    from tape_core.transforms.solvers import Accuracy, LinearSolver, Residual


def checked(x: Vector, excess: Tensor, check: Callable[[], None]) -> Vector:
    """Return a solution that misses its tolerance by an excess, which must not be positive or NaN.

    Args:
        check: raises the error where it is, in each run of a compiled function. It cannot where a library traces, nor
            in a loop or branch of a compiled function of which a derivative is wanted: there the solution is NaN.
    """
    stage = current()
    in_part = stage is not None and stage.parent is not None
    if traced.flows_of([excess]) is not None or (in_part and will_run_again()):
        return [where(excess <= 0, t, math.nan) for t in x]
    check()
    return x


# -- linear systems


def solve_linear(flows: Flows, affine: Residual, like: Vector, linear: LinearSolver, *, inside_vmap: bool) -> Vector:
    """Return the x with affine(x) = 0 as a solution that the library differentiates."""
    if inside_vmap:  # of Tape: the library has no axis for the examples, and differentiates the steps of the solver
        return linear(affine, like)
    backend = like[0].backend

    def product(arrays: Sequence[Any]) -> list[Any]:
        return [t._array for t in affine([wrap(array, backend) for array in arrays])]

    def solve(product: Callable[[Sequence[Any]], Sequence[Any]], b: Sequence[Any]) -> list[Any]:
        right = [wrap(array, backend) for array in b]

        def residual(x: Vector) -> Vector:
            return [t - own for t, own in zip(_applied(flows, product, x), right, strict=True)]

        return [t._array for t in linear(residual, like)]

    return [wrap(array, backend) for array in flows.linear_solve(product, [t._array for t in like], solve)]


def _applied(flows: Flows, product: Mapped, x: Vector) -> Vector:
    """Return a function of raw arrays of Tensors, which may be examples of a vmap of Tape: columns of a matrix."""
    batched = next((t for t in x if type(t._array) is BatchedArray and t._array.axis is not None), None)
    if batched is None:
        return [wrap(array, x[0].backend) for array in product([t._array for t in x])]
    lifted = [lift(t, batched.backend)._array for t in x]
    dims = [None if array.axis is None else 0 for array in lifted]
    base = batched._array.value.backend
    found = flows.mapped(product, dims, [array.value._array for array in lifted])
    return [wrap(BatchedArray(wrap(o, base), batched.backend, batched._array.axis), batched.backend) for o in found]


def gmres(flows: Flows, affine: Residual, b: Vector, accuracy: Accuracy, restart: int) -> Vector:
    """Solve by the GMRES of the library; `b` is -affine(0)."""
    if any([type(t._array) is BatchedArray for t in b]):
        raise NotImplementedError(
            "linear_solver='gmres': inside tape_core.vmap JAX cannot trace it: use jax.vmap in its place, or "
            "linear_solver='dense'"
        )
    backend = b[0].backend

    def product(arrays: Sequence[Any]) -> list[Any]:
        moved = affine([wrap(array, backend) for array in arrays])
        return [(t + own)._array for t, own in zip(moved, b, strict=True)]

    found = flows.gmres(product, [t._array for t in b], accuracy.tol, restart, accuracy.maxiter)
    return [wrap(array, backend) for array in found]
