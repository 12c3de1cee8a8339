"""Infinite derivatives in the triangle that a decomposition ignores, behind the triangles that its own rule takes.

The gradient of a triangular system with respect to its matrix is a triangle. So its own derivative, with respect to
what the matrix is the square root of, is 0 in the other triangle, also where that is 0 and the root has no derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

N = 3
RNG = np.random.default_rng(0)
LOWER = np.tril(RNG.uniform(1, 4, (N, N))) + np.diag([1.0, 1.0, 3.0])
RIGHT, POSITIVE = RNG.standard_normal(N), RNG.standard_normal((N, N))
POSITIVE = POSITIVE @ POSITIVE.T + N * np.eye(N)

WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "python": tc.function,
    "xla": lambda f: tc.function(f, compile="xla"),
}


def solved(lower: bool, unit: bool = False) -> Callable[[Any], Any]:
    """Return a function of a triangular matrix by a system."""
    return lambda a: tc.sum(tc.linalg.solve_triangular(a, like(RIGHT, a), lower=lower, unit_diagonal=unit) ** 3)


def like(value: Any, a: Any) -> Any:
    return tc.asarray(value, backend=a.backend.name)


def pulled(f: Callable[[Any], Any], cotangent: Any) -> Any:
    """Return the gradient of `f` at a positive definite matrix, for a cotangent of its result."""
    x = like(POSITIVE, cotangent)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, output_gradients=cotangent)


INNER: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "lower": (True, lambda a: tc.grad(solved(True))(a)),
    "upper": (False, lambda a: tc.grad(solved(False))(a)),
    "unit": (True, lambda a: tc.grad(solved(True, True))(a)),
    "hessian": (True, lambda a: tc.hessian(solved(True))(a)),
    "cholesky": (True, lambda a: pulled(tc.linalg.cholesky, a)),
    "qr": (False, lambda a: pulled(lambda x: tc.linalg.qr(x)[1], a)),
}
ROOTS: dict[str, Callable[[Any], Any]] = {
    "sqrt": tc.sqrt,
    "norm": lambda x: tc.linalg.vector_norm(tc.stack([x, x]), axis=0),
    "power": lambda x: x**0.5,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["numpy", "torch", pytest.param("jax", marks=pytest.mark.long_on_jax)])
@pytest.mark.parametrize(
    ("inner", "root"), [*[(inner, "sqrt") for inner in INNER], ("lower", "norm"), ("lower", "power")]
)
def test_the_ignored_triangle_has_a_derivative_of_0(inner: str, root: str, backend: str, way: str) -> None:
    if backend == "torch":
        pytest.importorskip("tape_torch")
    lower, derivative = INNER[inner]

    def loss(x: Any) -> Any:
        return tc.sum(derivative(ROOTS[root](x)) ** 2)

    x = LOWER if lower else LOWER.T
    step = WAYS[way](tc.grad(loss))
    given = tc.asarray(x, backend=backend)
    for _ in range(1 if way == "eager" else 2):
        found = step(given).numpy()
    expected = np.zeros_like(x)
    for at in zip(*np.nonzero(x), strict=True):
        step_of = np.zeros_like(x)
        step_of[at] = 1e-6
        both = [float(loss(tc.asarray(x + sign * step_of, backend="numpy"))) for sign in (1, -1)]
        expected[at] = (both[0] - both[1]) / 2e-6
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_second_derivatives_of_decompositions_look_for_no_nan_behind_each_rule(backend: str) -> None:
    """A search behind a product or a system is a loop over all elements: they took XLA a third of the compilation."""
    if backend == "torch":
        pytest.importorskip("tape_torch")

    def loss(scale: Any) -> Any:
        factor = tc.linalg.cholesky(scale * like(POSITIVE, scale))
        return tc.sum(tc.linalg.solve_triangular(factor, like(RIGHT, scale), lower=True) ** 2) + tc.sum(
            tc.log(tc.linalg.diagonal(factor))
        )

    step = tc.function(tc.grad(tc.grad(loss)), compile="xla")
    scale = tc.asarray(2.0, dtype="float64", backend=backend)
    found = [float(step(scale)) for _ in range(2)]
    quadratic = RIGHT @ np.linalg.solve(POSITIVE, RIGHT)
    assert found == pytest.approx([2 * quadratic / 2.0**3 - N / 2 / 2.0**2] * 2, rel=1e-10)
    called = [instruction.name for program in step._compiled.all for instruction in program.program.instructions]
    assert "any" not in called
