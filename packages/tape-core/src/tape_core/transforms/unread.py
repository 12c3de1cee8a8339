"""Solvers where a library traces functions itself and has no values, as JAX does inside `jax.jit`.

Nothing can be decided by a value in Python there. So loops are the library's, and what did not converge is NaN: nobody
is there to raise an error. Linear systems are the library's as well, since it differentiates what is computed: it takes
the derivative of a solution from its equations, to any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tape_core.backends.flows import Flows, Mapped
from tape_core.engine.levels import BatchedArray, lift
from tape_core.engine.tensor import Tensor, wrap
from tape_core.ops.elementwise import where
from tape_core.ops.manipulation import concat, stack
from tape_core.transforms.calls import unrecorded
from tape_core.transforms.control_flow import while_loop
from tape_core.transforms.vectors import Vector, add, flatten, norm, unflatten

if TYPE_CHECKING:
    from tape_core.transforms.solvers import LinearSolver, Residual


class Accuracy(Protocol):
    """The stopping rule of an iteration, see `solvers`."""

    tol: float
    maxiter: int


def where_solved(x: Vector, excess: Tensor) -> Vector:
    """Return a solution, and NaN in place of what misses its tolerance by a positive number, or by NaN."""
    return [where(excess <= 0, t, math.nan) for t in x]


def _repeated(
    step: Callable[[Any], tuple[Any, Tensor]], state: Any, excess: Tensor, maxiter: int
) -> tuple[Any, Tensor]:
    """Repeat a step, which returns a state and its excess, while that is positive; it is NaN where all is lost."""

    def again(carry: Any) -> Any:
        count, state, _ = carry
        return (count + 1, *step(state))

    going = lambda carry: (carry[2] > 0) & (carry[0] < maxiter)  # noqa: E731
    with unrecorded():  # a tape would keep each step
        _, state, excess = while_loop(going, again, (0, state, excess))
    return state, excess


def _excess(r: Vector, x: Vector, accuracy: Accuracy, scale: float) -> Tensor:
    return norm(r) - accuracy.tol * (scale + norm(x))


def iteration(residual: Residual, x: Vector, accuracy: Accuracy, scale: float) -> Vector:
    """Repeat x = x + residual(x)."""

    def step(x: Vector) -> tuple[Vector, Tensor]:
        r = residual(x)
        x = add(x, r)
        return x, _excess(r, x, accuracy, scale)

    return where_solved(*_repeated(step, *step(x), accuracy.maxiter - 1))


def newton(
    stepped: Callable[[Vector, Vector], Vector], residual: Residual, x: Vector, accuracy: Accuracy, scale: float
) -> Vector:
    """Repeat the step of Newton's method, a function of x and its residual."""

    def step(state: Any) -> tuple[Any, Tensor]:
        x = stepped(*state)
        r = residual(x)
        return (x, r), _excess(r, x, accuracy, scale)

    r = residual(x)
    (x, _), excess = _repeated(step, (x, r), _excess(r, x, accuracy, scale), accuracy.maxiter)
    return where_solved(x, excess)


def anderson(
    residual: Residual, x: Vector, accuracy: Accuracy, scale: float, how: tuple[int, Callable[[Tensor, Tensor], Tensor]]
) -> Vector:
    """Repeat the step of Anderson's method: how many past iterates are combined, and by which function."""
    depth, combined = how

    def at(x: Vector) -> tuple[Vector, Tensor, Tensor]:
        r = residual(x)
        following = add(x, r)
        return following, flatten(r), _excess(r, following, accuracy, scale)

    def step(state: Any) -> tuple[Any, Tensor]:
        _, iterates, residuals = state
        following, r, excess = at(unflatten(combined(iterates, residuals), x))
        iterates = concat([iterates[1:], flatten(following)[None]])
        return (following, iterates, concat([residuals[1:], r[None]])), excess

    # Until there are as many iterates, the first one stands for those before it: equal rows share their weight.
    following, r, excess = at(x)
    state = following, stack([flatten(following)] * depth), stack([r] * depth)
    (found, *_), excess = _repeated(step, state, excess, accuracy.maxiter)
    return where_solved(found, excess)


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
