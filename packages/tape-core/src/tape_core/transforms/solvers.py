"""Solvers for implicit differentiation: fixed points by iteration, and linear systems given by their product.

Unknowns are lists of Tensors. Nothing here is differentiated: see :mod:`tape_core.transforms.implicit`.
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
from tape_core.ops.creation import eye, zeros_like
from tape_core.ops.data_types import astype, finfo, stop_gradient
from tape_core.ops.elementwise import abs as magnitude
from tape_core.ops.elementwise import conj, real, sqrt
from tape_core.ops.manipulation import concat, reshape, stack
from tape_core.ops.statistical import max as greatest
from tape_core.ops.statistical import sum as total
from tape_core.transforms.derivatives import _identities, jvp

Vector = list[Tensor]
Residual = Callable[[Vector], Vector]
LinearSolver = Callable[[Residual, Vector], Vector]
"""A function of an affine residual and of zeros; it gives where the residual is zero."""

RESTART = 50  # vectors that GMRES keeps
WINDOW = 5  # iterates that Anderson's acceleration combines


class ConvergenceError(ArithmeticError):
    """An iteration did not come to its end, or a system of equations has no solution."""


class Accuracy:
    """When an iteration ends.

    Attributes:
        tol: relative to the norm of what is sought.
        maxiter: after so many steps it has failed.
    """

    __slots__ = ("maxiter", "tol")

    def __init__(self, tol: float | None, maxiter: int, like: Sequence[Tensor]) -> None:
        if tol is None:
            # Far above rounding, and far below what float32 is used for.
            tol = max(float(finfo(t.dtype).eps) for t in like) ** (2 / 3)
        self.tol = tol
        self.maxiter = maxiter


# -- fixed points: where residual(x) = f(x) - x is zero


def iteration(residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """By x + residual(x), again and again: for a contraction."""
    for _ in range(accuracy.maxiter):
        r = residual(x)
        x = _plus(x, r)
        if _small(r, x, accuracy, scale):
            return x
    raise _failed(residual(x), x, accuracy, scale)


def anderson(residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """By the combination of the last iterates whose residuals nearly cancel (D. G. Anderson, 1965).

    The coefficients add up to 1 and minimise the norm of the combined residuals, by their normal equations, slightly
    regularised: differences of late residuals are all but parallel.
    """
    past: list[tuple[Tensor, Tensor]] = []
    r = residual(x)
    for _ in range(accuracy.maxiter):
        following = _plus(x, r)
        if _small(r, following, accuracy, scale):
            return following
        past = [*past[1 - WINDOW :], (_flat(following), _flat(r))]
        residuals = stack([own for _, own in past])
        gram = conj(residuals) @ residuals.T
        k = len(past)
        unit = eye(k, dtype=gram.dtype, device=gram.device, backend=gram.backend.root)
        trace = total(gram * unit)
        damped = gram + unit * (trace * float(finfo(gram.dtype).eps))
        weights = ops.solve(damped, total(unit, axis=0))
        weights = weights / total(weights)
        x = _split(weights @ stack([own for own, _ in past]), x)
        r = residual(x)
    raise _failed(r, x, accuracy, scale)


def newton(linear: LinearSolver, residual: Residual, x: Vector, accuracy: Accuracy, scale: float = 1.0) -> Vector:
    """By Newton's method: quadratic where it converges, with a linear system in each step."""
    r = residual(x)
    for _ in range(accuracy.maxiter):
        if _small(r, x, accuracy, scale):
            return x

        def affine(u: Vector, x: Vector = x, r: Vector = r) -> Vector:
            return _plus(jvp(lambda *x: residual(list(x)), tuple(x), tuple(u))[1], r)

        x = _plus(x, linear(affine, _zeros(x)))
        r = residual(x)
    raise _failed(r, x, accuracy, scale)


def _failed(r: Vector, x: Vector, accuracy: Accuracy, scale: float) -> ConvergenceError:
    bound = accuracy.tol * (scale + worst(norm(x)))
    return ConvergenceError(f"after {accuracy.maxiter} steps the residual is {worst(norm(r)):.3g}, above {bound:.3g}")


def _small(r: Vector, x: Vector, accuracy: Accuracy, scale: float) -> bool:
    """Whether a residual is small enough, inside vmap that of each example.

    Raises:
        ConvergenceError: it is not finite.
    """
    excess = worst(norm(r) - accuracy.tol * (scale + norm(x)))
    if not math.isfinite(excess):
        raise ConvergenceError("the iterates grow beyond what is finite")
    return excess <= 0


# -- linear systems: where an affine residual is zero


def by_iteration(accuracy: Accuracy) -> LinearSolver:
    """Of a residual f(x) - x, where f is a contraction: a Neumann series."""
    return lambda affine, zeros: iteration(affine, zeros, accuracy, 0.0)


def dense(affine: Residual, zeros: Vector) -> Vector:
    """By the matrix: exact, for up to some thousand unknowns."""
    if any([t.dtype.kind == "complex floating" for t in zeros]):
        raise TypeError("linear_solver='dense' is for real unknowns; use 'gmres' for complex ones")
    b = affine(zeros)
    # In the scale of b, so that little is lost where it is subtracted again.
    size = norm(b)
    scale = size + astype(size == 0, size.dtype)
    units = [t * astype(scale, t.dtype) for t in _identities(zeros)]
    n = units[0].shape[0]
    if n == 0:
        return zeros
    try:
        columns = vmap(lambda *x: affine(list(x)))(*units)
    except BatchError:
        each = [affine([t[k] for t in units]) for k in range(n)]
        columns = [stack(list(parts)) for parts in zip(*each, strict=True)]
    moved = [
        reshape((column - own) / astype(scale, own.dtype), (n, -1)) for column, own in zip(columns, b, strict=True)
    ]
    matrix = moved[0] if len(moved) == 1 else concat(moved, axis=1)
    try:
        return _split(-ops.solve(matrix.T, _flat(b)), zeros)
    except ValueError as error:
        raise ConvergenceError(f"linear_solver='dense': the matrix is singular ({error})") from error


def gmres(accuracy: Accuracy) -> LinearSolver:
    """By products alone: the residual is least over the space they span (Y. Saad, M. H. Schultz, 1986).

    Inside vmap the systems of all examples are one.
    """
    return lambda affine, zeros: _gmres(affine, zeros, accuracy)


def _gmres(affine: Residual, x: Vector, accuracy: Accuracy) -> Vector:
    b = [-own for own in affine(x)]
    size = norm(b)
    scale = size + astype(size == 0, size.dtype)

    def product(v: Vector) -> Vector:
        """In the scale of b, so that little is lost where it is subtracted again."""
        own = affine([t * astype(scale, t.dtype) for t in v])
        return [(t + c) / astype(scale, t.dtype) for t, c in zip(own, b, strict=True)]

    # Where one array is different for each example, all are, and count alike in scalar products.
    shared = total(stack([astype(total(t), size.dtype) for t in map(real_part, product(b))]))
    target = [t / astype(scale, t.dtype) + zeros_like(astype(shared, t.dtype)) for t in b]
    r, reached, steps = target, _overall(target), 0
    if reached == 0:
        return x
    while reached > accuracy.tol:
        if steps >= accuracy.maxiter or not math.isfinite(reached):
            raise ConvergenceError(f"linear_solver='gmres': after {steps} steps the residual is {reached:.3g} of 1")
        # An orthonormal basis of the Krylov space, and the triangle of what the products are in it, after rotations.
        basis = [_times(r, 1 / reached)]
        triangle: list[list[float]] = []
        rotations: list[tuple[float, float]] = []
        right = [reached]
        for _ in range(RESTART):
            steps += 1
            w = product(basis[-1])
            column = [0.0] * len(basis)
            for _ in range(2):  # the second time for what rounding left
                for k, v in enumerate(basis):
                    part = _dot(v, w)
                    column[k] += part
                    w = _plus(w, _times(v, -part))
            left = _overall(w)
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
            basis.append(_times(w, 1 / left))
        for v, weight in zip(basis, _back_substituted(triangle, right), strict=False):
            x = _plus(x, [t * weight * astype(scale, t.dtype) for t in v])
        r = [(-t) / astype(scale, t.dtype) for t in affine(x)]
        reached = _overall(r)
    return x


def _back_substituted(columns: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a triangular system, given by columns."""
    found = list(right[: len(columns)])
    for k in range(len(columns) - 1, -1, -1):
        found[k] /= columns[k][k]
        for j in range(k):
            found[j] -= columns[k][j] * found[k]
    return found


# -- lists of Tensors as vectors


def norm(x: Vector) -> Tensor:
    """The Euclidean norm of all elements."""
    squares: Any = 0
    for t in x:
        squares = squares + total(magnitude(t) ** 2)
    return sqrt(squares)


def real_part(t: Tensor) -> Tensor:
    """Of a complex Tensor; a real one is its own."""
    return real(t) if t.dtype.kind == "complex floating" else t


def _dot(x: Vector, y: Vector) -> float:
    """The scalar product over all examples, of complex vectors as real ones: derivatives may be real-linear only."""
    return math.fsum([_whole(total(real_part(conj(a) * b))) for a, b in zip(x, y, strict=True)])


def _overall(x: Vector) -> float:
    """The norm over all examples."""
    return math.sqrt(math.fsum([_whole(total(magnitude(t) ** 2)) for t in x]))


def _whole(value: Tensor) -> float:
    """The sum of a value's examples."""
    return _combined(value, total)


def worst(value: Tensor) -> float:
    """The greatest of a value's examples."""
    return _combined(value, greatest)


def _combined(value: Tensor, function: Callable[[Tensor], Tensor]) -> float:
    array = stop_gradient(value)._array
    while type(array) is BatchedArray:
        array = (function(array.value) if array.axis is not None else array.value)._array
    return float(array)


def _plus(x: Vector, y: Vector) -> Vector:
    return [a + b for a, b in zip(x, y, strict=True)]


def _times(x: Vector, factor: float) -> Vector:
    return [t * factor for t in x]


def _zeros(x: Vector) -> Vector:
    return [zeros_like(stop_gradient(t)) for t in x]


def _flat(x: Vector) -> Tensor:
    flat = [reshape(t, (-1,)) for t in x]
    return flat[0] if len(flat) == 1 else concat(flat)


def _split(flat: Tensor, like: Vector) -> Vector:
    found, start = [], 0
    for t in like:
        own = reshape(flat[start : start + t.size], t.shape)
        found.append(own if own.dtype is t.dtype else astype(own, t.dtype))
        start += t.size
    return found
