"""Solvers for implicit differentiation: fixed points by iteration, and linear systems given by matrix-free products.

Unknowns are lists of Tensors. Nothing here is differentiated itself; :mod:`tape_core.transforms.implicit` gives the
solutions their derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tape_core.backends.errors import BatchError
from tape_core.base.lookup import ops
from tape_core.engine.levels import BatchedArray
from tape_core.engine.tensor import Tensor
from tape_core.modes.vmap import vmap
from tape_core.ops.creation import arange, asarray, eye, ones_like, zeros_like
from tape_core.ops.data_types import astype, finfo
from tape_core.ops.elementwise import conj, sqrt, where
from tape_core.ops.manipulation import concat, reshape, stack
from tape_core.ops.statistical import max as greatest
from tape_core.ops.statistical import sum as total
from tape_core.staging import value_check
from tape_core.transforms import traced, unread
from tape_core.transforms.calls import unrecorded
from tape_core.transforms.control_flow import while_loop
from tape_core.transforms.derivatives import jvp
from tape_core.transforms.jacobians import unit_tangents
from tape_core.transforms.vectors import (
    Vector,
    add,
    flatten,
    flatten_real,
    norm,
    unflatten,
    unflatten_real,
    zeros,
)

Residual = Callable[[Vector], Vector]
LinearSolver = Callable[[Residual, Vector], Vector]
"""`solve(affine, zeros)` returns the x with `affine(x) = 0`; `zeros` has the shapes and dtypes of x."""

GMRES_RESTART = 50  # basis vectors that GMRES keeps; memory grows with it, convergence slows below it
ANDERSON_DEPTH = 5  # past iterates that Anderson acceleration combines

# Nobody can decide in Python by the size of a residual where a function is compiled, where a library traces, as JAX
# does, or inside vmap, where each example has its own. There the loops are `while_loop`, of the same steps.


class ConvergenceError(ArithmeticError):
    """An iteration did not converge, or a system of equations has no solution."""


class Accuracy:
    """The stopping rule of an iteration.

    Attributes:
        tol: the tolerance of the residual, relative to the norm of the solution.
        maxiter: the most steps; after them the iteration has failed.
        what, hint: what an error says before and after it says how far the iteration came.
    """

    __slots__ = ("hint", "maxiter", "tol", "what")

    def __init__(self, tol: float | None, maxiter: int, like: Sequence[Tensor], what: str = "", hint: str = "") -> None:
        if tol is None:
            # Well above the rounding of a few operations, well below the accuracy that a dtype is chosen for.
            tol = max(float(finfo(t.dtype).eps) for t in like) ** (2 / 3)
        self.tol = tol
        self.maxiter = maxiter
        self.what = what
        self.hint = hint

    def error(self, message: str) -> ConvergenceError:
        """Return an error with what is before and after the message."""
        return ConvergenceError(f"{self.what}{message}{self.hint}")


# -- fixed points: residual(x) = f(x) - x is zero


def iteration(residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """Repeat x = x + residual(x), which converges for a contraction."""

    def step(x: Vector) -> tuple[Vector, Tensor, Tensor]:
        r = residual(x)
        x = add(x, r)
        return x, norm(r), _bound(x, accuracy, scale)

    x, size, bound = _repeated(step, step(x), accuracy.maxiter - 1)
    return _converged(x, size, bound, accuracy)


def newton(linear: LinearSolver, residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """Iterate by Newton's method: convergence is quadratic, each step solves a linear system."""

    def step(state: Any) -> tuple[Any, Tensor, Tensor]:
        x, r = state

        # The Jacobian times u, by forward mode, plus the residual: zero for the step u.
        def affine(u: Vector) -> Vector:
            return add(jvp(lambda *x: residual(list(x)), tuple(x), tuple(u))[1], r)

        return at(add(x, linear(affine, zeros(x))))

    def at(x: Vector) -> tuple[Any, Tensor, Tensor]:
        r = residual(x)
        return (x, r), norm(r), _bound(x, accuracy, scale)

    (x, _), size, bound = _repeated(step, at(x), accuracy.maxiter)
    return _converged(x, size, bound, accuracy)


def anderson(residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """Combine the last iterates so that their residuals nearly cancel (D. G. Anderson, 1965).

    The coefficients add up to 1 and minimise the norm of the combined residuals, by their normal equations, slightly
    regularised: differences of late residuals are all but parallel.
    """

    # Each iterate is kept as it is after its step: Anderson's method with the mixing parameter 1.
    def at(x: Vector) -> tuple[Vector, Tensor, Tensor, Tensor]:
        r = residual(x)
        following = add(x, r)
        return following, flatten(r), norm(r), _bound(following, accuracy, scale)

    def step(state: Any) -> tuple[Any, Tensor, Tensor]:
        _, iterates, residuals = state
        following, r, size, bound = at(unflatten(_combined(iterates, residuals), x))
        iterates = concat([iterates[1:], flatten(following)[None]])
        return (following, iterates, concat([residuals[1:], r[None]])), size, bound

    # Until there are as many iterates, the first one stands for those before it: equal rows share their weight.
    following, r, *first = at(x)
    state = following, stack([flatten(following)] * ANDERSON_DEPTH), stack([r] * ANDERSON_DEPTH)
    (found, *_), size, bound = _repeated(step, (state, *first), accuracy.maxiter - 1)
    return _converged(found, size, bound, accuracy)


def _combined(iterates: Tensor, residuals: Tensor) -> Tensor:
    """Return the combination of iterates, one a row, whose residuals, with the same weights, nearly cancel."""
    gram = conj(residuals) @ residuals.T
    unit = eye(gram.shape[0], dtype=gram.dtype, device=gram.device, backend=gram.backend.root)
    trace = total(gram * unit)
    damped = gram + unit * (trace * float(finfo(gram.dtype).eps))
    # Among weights that add up to 1, w* G w is least for w in proportion to the solution of G w = (1, ..., 1).
    weights = ops.solve(damped, total(unit, axis=0))
    return (weights / total(weights)) @ iterates


def _bound(x: Vector, accuracy: Accuracy, scale: float) -> Tensor:
    return accuracy.tol * (scale + norm(x))


def _repeated(step: Callable[[Any], Any], first: Any, most: int) -> Any:
    """Repeat a step while there is an excess, at most so often; it is NaN where all is lost.

    Args:
        step: returns a state, the size of its residual, and the bound of that.
        first: what a step has returned.
    """
    return _while(
        lambda carry: (carry[1][1] - carry[1][2] > 0) & (carry[0] < most),
        lambda carry: (carry[0] + 1, step(carry[1][0])),
        (0, first),
    )[1]


def _while(going: Callable[[Any], Tensor], step: Callable[[Any], Any], carry: Any) -> Any:
    """Return the carry after steps while a test of it holds; nothing is recorded."""
    with unrecorded():
        while type((test := going(carry))._array) is not BatchedArray and not traced.is_unread([test]):
            if not bool(test):
                return carry
            carry = step(carry)
        return while_loop(going, step, carry)


def _converged(x: Vector, size: Tensor, bound: Tensor, accuracy: Accuracy) -> Vector:
    """Return a solution.

    Raises:
        ConvergenceError: the residual is above the bound, or not finite. Where nobody can raise an error, the solution
            is NaN.
    """
    return unread.checked(x, size - bound, lambda: _check_converged(size, bound, accuracy))


@value_check
def _check_converged(size: Tensor, bound: Tensor, accuracy: Accuracy) -> None:
    excess = reshape(size - bound, (-1,))
    if not excess.size:
        return
    worst = float(greatest(excess))
    if not math.isfinite(worst):
        raise accuracy.error("the iterates grow beyond what is finite")
    if worst > 0:
        k = int(ops.argmax(excess))
        sizes = [float(reshape(t, (-1,))[k]) for t in (size, bound)]
        raise accuracy.error(f"after {accuracy.maxiter} steps the residual is {sizes[0]:.3g}, above {sizes[1]:.3g}")


# -- linear systems: an affine residual is zero


def neumann_series(accuracy: Accuracy) -> LinearSolver:
    """Return a solver for residuals f(x) - x with a contraction f: plain iteration sums the Neumann series."""
    # With scale 0.0 the tolerance is relative to the solution alone: a linear system has no other size to go by.
    return lambda affine, zeros: iteration(affine, zeros, accuracy, 0.0)


def dense(accuracy: Accuracy) -> LinearSolver:
    """Return a solver that builds the matrix column by column: for up to some thousand unknowns."""
    return lambda affine, zeros: _dense(affine, zeros, accuracy)


def _dense(affine: Residual, like: Vector, accuracy: Accuracy) -> Vector:
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
        raise accuracy.error(f"linear_solver='dense': the matrix is singular ({error})") from error


def gmres(accuracy: Accuracy) -> LinearSolver:
    """Return a solver by products alone: GMRES with restarts (Y. Saad, M. H. Schultz, 1986)."""
    return lambda affine, zeros: _gmres(affine, zeros, accuracy)


def _gmres(affine: Residual, like: Vector, accuracy: Accuracy) -> Vector:
    b = [-own for own in affine(like)]
    if (flows := traced.flows_of(b)) is not None:
        return unread.gmres(flows, affine, b, accuracy, GMRES_RESTART)
    # A derivative of a function with `conj` or `abs` is linear over the reals only: complex vectors count as real ones
    # of twice the length.
    right = flatten_real(b)
    n = right.shape[0]
    if not n:
        return like
    most = min(GMRES_RESTART, n)
    size = sqrt(total(right * right))
    scale = size + astype(size == 0, size.dtype)

    def product(v: Tensor) -> Tensor:
        """Return the matrix times v, divided by the norm of b; affine is scaled like b, to lose few digits."""
        return (flatten_real(affine(unflatten_real(v * scale, like))) + right) / scale

    index = arange(most + 1, device=right.device, backend=right.backend.root)

    def arnoldi(carry: Any) -> Any:
        # The basis of the Krylov space; the rows that no step has found are 0. Row k of the transposed
        # Hessenberg matrix is what step k finds.
        k, basis, hessenberg, shadow, _ = carry
        w = product(astype(index == k, size.dtype) @ basis)
        column = zeros_like(shadow)
        for _ in range(2):  # Gram-Schmidt twice: rounding leaves too much after one round
            parts = basis @ w
            column = column + parts
            w = w - parts @ basis
        left = sqrt(total(w * w))
        is_next = index == k + 1
        positive = left + astype(left == 0, left.dtype)
        # Orthogonal to all columns of the Hessenberg matrix: its norm tells that of the residual.
        shadow = where(is_next, where(left == 0, math.inf, -total(shadow * column) / positive), shadow)
        basis = where(is_next[:, None], (w / positive)[None], basis)
        hessenberg = where((index[:-1] == k)[:, None], where(is_next, left, column)[None], hessenberg)
        return k + 1, basis, hessenberg, shadow, 1 / sqrt(total(shadow * shadow))

    def cycle(state: Any) -> Any:
        steps, x, r, reached, _ = state
        first = astype(index == 0, size.dtype)
        unit = r / (reached + astype(reached == 0, reached.dtype))
        # Unit vectors in place of what is not there leave the other weights alone.
        units = astype(index[:-1, None] + 1 == index[None], size.dtype)
        made, basis, hessenberg, _, _ = _while(
            lambda c: (c[4] * reached > accuracy.tol / 2) & (c[0] < most) & (c[0] + steps < accuracy.maxiter),
            arnoldi,
            (0, first[:, None] * unit[None], units, first, ones_like(reached)),
        )
        q, triangle = ops.qr(hessenberg.T)
        singular = astype(ops.diagonal(triangle) == 0, size.dtype)
        weights = ops.solve_triangular(triangle + singular[:, None] * units[:, 1:], (q[0] * reached)[:, None])[:, 0]
        x = x + weights @ basis[:-1]
        r = right / scale - product(x)
        return steps + made, x, r, sqrt(total(r * r)), reached

    x, r = zeros_like(right), right / scale
    reached = sqrt(total(r * r))
    # Where a whole round does not come nearer, the next one, which begins where it ended, would not either.
    steps, x, _, reached, _ = _while(
        lambda s: (s[3] > accuracy.tol) & (s[3] < s[4]) & (s[0] < accuracy.maxiter),
        cycle,
        (0, x, r, reached, reached + math.inf),
    )
    found = unflatten_real(x * scale, like)
    return unread.checked(found, reached - accuracy.tol, lambda: _check_solved(steps, reached, accuracy))


@value_check
def _check_solved(steps: Tensor | int, reached: Tensor, accuracy: Accuracy) -> None:
    worst = float(greatest(reached)) if reached.size else 0.0
    if not worst <= accuracy.tol:
        made = int(greatest(asarray(steps)))
        stays = "" if made >= accuracy.maxiter or not math.isfinite(worst) else "the matrix is singular, or nearly so: "
        raise accuracy.error(f"linear_solver='gmres': {stays}after {made} steps the residual is {worst:.3g} of 1")
