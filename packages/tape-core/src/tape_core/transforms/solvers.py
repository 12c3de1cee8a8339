"""Solvers for implicit differentiation: fixed points by iteration, and linear systems given by matrix-free products.

Unknowns are lists of Tensors. Nothing here is differentiated itself; :mod:`tape_core.transforms.implicit` gives the
solutions their derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tape_core.backends.errors import BatchError
from tape_core.base.lookup import ops
from tape_core.engine.tensor import Tensor
from tape_core.modes.vmap import vmap
from tape_core.ops.creation import eye, zeros_like
from tape_core.ops.data_types import astype, finfo
from tape_core.ops.elementwise import conj
from tape_core.ops.manipulation import concat, reshape, stack
from tape_core.ops.statistical import sum as total
from tape_core.transforms import traced, unread
from tape_core.transforms.derivatives import jvp
from tape_core.transforms.jacobians import unit_tangents
from tape_core.transforms.vectors import (
    Vector,
    add,
    dot,
    flatten,
    norm,
    norm_of_examples,
    real_part,
    scaled,
    unflatten,
    worst,
    zeros,
)

Residual = Callable[[Vector], Vector]
LinearSolver = Callable[[Residual, Vector], Vector]
"""`solve(affine, zeros)` returns the x with `affine(x) = 0`; `zeros` has the shapes and dtypes of x."""

GMRES_RESTART = 50  # basis vectors that GMRES keeps; memory grows with it, convergence slows below it
ANDERSON_DEPTH = 5  # past iterates that Anderson acceleration combines

# Where a library traces, as JAX does, nobody can decide by the size of a residual: there `unread` has the loops.


class ConvergenceError(ArithmeticError):
    """An iteration did not converge, or a system of equations has no solution."""


class Accuracy:
    """The stopping rule of an iteration.

    Attributes:
        tol: the tolerance of the residual, relative to the norm of the solution.
        maxiter: the most steps; after them the iteration has failed.
    """

    __slots__ = ("maxiter", "tol")

    def __init__(self, tol: float | None, maxiter: int, like: Sequence[Tensor]) -> None:
        if tol is None:
            # Well above the rounding of a few operations, well below the accuracy that a dtype is chosen for.
            tol = max(float(finfo(t.dtype).eps) for t in like) ** (2 / 3)
        self.tol = tol
        self.maxiter = maxiter


# -- fixed points: residual(x) = f(x) - x is zero


def iteration(residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """Repeat x = x + residual(x), which converges for a contraction."""
    for _ in range(accuracy.maxiter):
        r = residual(x)
        if traced.flows_of(r) is not None:
            return unread.iteration(residual, x, accuracy, scale)
        x = add(x, r)
        if _is_converged(r, x, accuracy, scale):
            return x
    raise _not_converged(residual(x), x, accuracy, scale)


def anderson(residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """Combine the last iterates so that their residuals nearly cancel (D. G. Anderson, 1965).

    The coefficients add up to 1 and minimise the norm of the combined residuals, by their normal equations, slightly
    regularised: differences of late residuals are all but parallel.
    """
    past: list[tuple[Tensor, Tensor]] = []
    r = residual(x)
    if traced.flows_of(r) is not None:
        return unread.anderson(residual, x, accuracy, scale, (ANDERSON_DEPTH, _combined))
    for _ in range(accuracy.maxiter):
        following = add(x, r)
        if _is_converged(r, following, accuracy, scale):
            return following
        # Each iterate is kept as it is after its step: Anderson's method with the mixing parameter 1.
        past = [*past[1 - ANDERSON_DEPTH :], (flatten(following), flatten(r))]
        x = unflatten(_combined(stack([own for own, _ in past]), stack([own for _, own in past])), x)
        r = residual(x)
    raise _not_converged(r, x, accuracy, scale)


def _combined(iterates: Tensor, residuals: Tensor) -> Tensor:
    """Return the combination of iterates, one a row, whose residuals, with the same weights, nearly cancel."""
    gram = conj(residuals) @ residuals.T
    unit = eye(gram.shape[0], dtype=gram.dtype, device=gram.device, backend=gram.backend.root)
    trace = total(gram * unit)
    damped = gram + unit * (trace * float(finfo(gram.dtype).eps))
    # Among weights that add up to 1, w* G w is least for w in proportion to the solution of G w = (1, ..., 1).
    weights = ops.solve(damped, total(unit, axis=0))
    return (weights / total(weights)) @ iterates


def newton(linear: LinearSolver, residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """Iterate by Newton's method: convergence is quadratic, each step solves a linear system."""

    def stepped(x: Vector, r: Vector) -> Vector:
        # The Jacobian times u, by forward mode, plus the residual: zero for the step u.
        def affine(u: Vector) -> Vector:
            return add(jvp(lambda *x: residual(list(x)), tuple(x), tuple(u))[1], r)

        return add(x, linear(affine, zeros(x)))

    r = residual(x)
    if traced.flows_of(r) is not None:
        return unread.newton(stepped, residual, x, accuracy, scale)
    for _ in range(accuracy.maxiter):
        if _is_converged(r, x, accuracy, scale):
            return x
        x = stepped(x, r)
        r = residual(x)
    raise _not_converged(r, x, accuracy, scale)


def _not_converged(r: Vector, x: Vector, accuracy: Accuracy, scale: float) -> ConvergenceError:
    bound = accuracy.tol * (scale + worst(norm(x)))
    return ConvergenceError(f"after {accuracy.maxiter} steps the residual is {worst(norm(r)):.3g}, above {bound:.3g}")


def _is_converged(r: Vector, x: Vector, accuracy: Accuracy, scale: float) -> bool:
    """Return True if a residual is within the tolerance, inside vmap for every example.

    Raises:
        ConvergenceError: it is not finite.
    """
    excess = worst(norm(r) - accuracy.tol * (scale + norm(x)))
    if not math.isfinite(excess):
        raise ConvergenceError("the iterates grow beyond what is finite")
    return excess <= 0


# -- linear systems: an affine residual is zero


def neumann_series(accuracy: Accuracy) -> LinearSolver:
    """Return a solver for residuals f(x) - x with a contraction f: plain iteration sums the Neumann series."""
    # With scale 0.0 the tolerance is relative to the solution alone: a linear system has no other size to go by.
    return lambda affine, zeros: iteration(affine, zeros, accuracy, 0.0)


def dense(affine: Residual, like: Vector) -> Vector:
    """Build the matrix column by column and solve it directly: for up to some thousand unknowns."""
    if any([t.dtype.kind == "complex floating" for t in like]):
        raise TypeError("linear_solver='dense' is for real unknowns; use 'gmres' for complex ones")
    b = affine(like)
    # affine(u) - b gives a column; units scaled like b lose the fewest digits in the subtraction.
    size = norm(b)
    scale = size + astype(size == 0, size.dtype)
    units = [t * astype(scale, t.dtype) for t in unit_tangents(like)]
    n = units[0].shape[0]
    if n == 0:
        return like
    try:
        columns = vmap(lambda *x: affine(list(x)), randomness="same")(*units)
    except BatchError:
        each = [affine([t[k] for t in units]) for k in range(n)]
        columns = [stack(list(parts)) for parts in zip(*each, strict=True)]
    moved = [
        reshape((column - own) / astype(scale, own.dtype), (n, -1)) for column, own in zip(columns, b, strict=True)
    ]
    matrix = moved[0] if len(moved) == 1 else concat(moved, axis=1)
    # vmap has put the examples, which are the columns, first.
    try:
        return unflatten(-ops.solve(matrix.T, flatten(b)), like)
    except ValueError as error:
        raise ConvergenceError(f"linear_solver='dense': the matrix is singular ({error})") from error


def gmres(accuracy: Accuracy) -> LinearSolver:
    """Return a solver by products alone: GMRES with restarts (Y. Saad, M. H. Schultz, 1986).

    Inside vmap the systems of all examples are solved as one block-diagonal system.
    """
    return lambda affine, zeros: _gmres(affine, zeros, accuracy)


def _gmres(affine: Residual, x: Vector, accuracy: Accuracy) -> Vector:
    b = [-own for own in affine(x)]
    if (flows := traced.flows_of(b)) is not None:
        return unread.gmres(flows, affine, b, accuracy, GMRES_RESTART)
    size = norm(b)
    scale = size + astype(size == 0, size.dtype)

    def product(v: Vector) -> Vector:
        """Return the matrix times v, divided by the norm of b; affine is scaled like b, to lose few digits."""
        own = affine([t * astype(scale, t.dtype) for t in v])
        return [(t + c) / astype(scale, t.dtype) for t, c in zip(own, b, strict=True)]

    # Inside vmap: if the product depends on the example, so must all vectors, for scalar products to count them alike.
    shared = total(stack([astype(total(t), size.dtype) for t in map(real_part, product(b))]))
    target = [t / astype(scale, t.dtype) + zeros_like(astype(shared, t.dtype)) for t in b]
    r, reached, steps = target, norm_of_examples(target), 0
    if reached == 0:
        return x
    while reached > accuracy.tol:
        if steps >= accuracy.maxiter or not math.isfinite(reached):
            raise ConvergenceError(f"linear_solver='gmres': after {steps} steps the residual is {reached:.3g} of 1")
        # The Arnoldi basis of the Krylov space; Givens rotations keep its Hessenberg matrix triangular, so that
        # `right` is the rotated right-hand side and its last element the norm of the residual.
        basis = [scaled(r, 1 / reached)]
        triangle: list[list[float]] = []
        rotations: list[tuple[float, float]] = []
        right = [reached]
        for _ in range(GMRES_RESTART):
            steps += 1
            w = product(basis[-1])
            column = [0.0] * len(basis)
            for _ in range(2):  # Gram-Schmidt twice: rounding leaves too much after one round
                for k, v in enumerate(basis):
                    part = dot(v, w)
                    column[k] += part
                    w = add(w, scaled(v, -part))
            left = norm_of_examples(w)
            for k, (c, s) in enumerate(rotations):
                column[k : k + 2] = c * column[k] + s * column[k + 1], c * column[k + 1] - s * column[k]
            length = math.hypot(column[-1], left)
            if length == 0:
                raise ConvergenceError("linear_solver='gmres': the matrix is singular")
            c, s = column[-1] / length, left / length
            column[-1] = length
            rotations.append((c, s))
            triangle.append(column)
            right[-1:] = [c * right[-1], -s * right[-1]]
            if math.fabs(right[-1]) <= accuracy.tol / 2 or steps >= accuracy.maxiter:
                break
            basis.append(scaled(w, 1 / left))
        for v, weight in zip(basis, _back_substitute(triangle, right), strict=False):
            x = add(x, [t * weight * astype(scale, t.dtype) for t in v])
        r = [(-t) / astype(scale, t.dtype) for t in affine(x)]
        reached = norm_of_examples(r)
    return x


def _back_substitute(columns: list[list[float]], right: list[float]) -> list[float]:
    """Solve an upper triangular system, given by columns."""
    found = list(right[: len(columns)])
    for k in range(len(columns) - 1, -1, -1):
        found[k] /= columns[k][k]
        for j in range(k):
            found[j] -= columns[k][j] * found[k]
    return found
