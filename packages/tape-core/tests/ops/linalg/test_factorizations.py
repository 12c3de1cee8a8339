"""Triangular systems, LU and Cholesky: values, accuracy, singular matrices; with SciPy and without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import assert_agrees, matrix, numpy_gradients

agrees = partial(assert_agrees, double=1e-10, single=2e-4)


def regular(seed: int, *shape: int, dtype: str = "float64") -> Any:
    return matrix(seed, *shape, dtype=dtype) / 2 + shape[-1] ** 0.5 * np.eye(shape[-1], dtype=dtype)


# -- systems of equations


@pytest.mark.usefixtures("with_and_without_scipy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shapes", [
    ((1, 1), (1, 1)), ((5, 5), (5,)), ((70, 70), (70,)), ((70, 70), (70, 3)), ((130, 130), (130, 140)),
    ((2, 4, 4), (4,)), ((2, 40, 40), (40, 2)), ((3, 1, 30, 30), (2, 30, 1)), ((4, 4), (2, 4, 3)),
])  # fmt: skip
@pytest.mark.parametrize(("lower", "unit"), [(False, False), (True, False), (True, True)])
def test_triangular_systems(shapes: Any, dtype: str, lower: bool, unit: bool) -> None:
    n = shapes[0][-1]
    a, b = matrix(1, *shapes[0], dtype=dtype) / n, matrix(2, *shapes[1], dtype=dtype)
    if not unit:
        a = a + 2 * np.eye(n, dtype=dtype)
    triangle = np.tril(a, -1 if unit else 0) if lower else np.triu(a)
    expected = np.linalg.solve(triangle + np.eye(n, dtype=dtype) if unit else triangle, b)
    other = a + np.triu(np.full_like(a, np.nan), 1).mT if not lower else a + np.triu(np.full_like(a, np.nan), 1)
    for given in (a, np.asfortranarray(a)):
        agrees(tc.linalg.solve_triangular(tc.asarray(given), tc.asarray(b), lower=lower, unit_diagonal=unit), expected)
    if n <= 5 and len(shapes[0]) == 2:
        found = tc.linalg.solve_triangular(tc.asarray(other), tc.asarray(b), lower=lower, unit_diagonal=unit)
        agrees(found, expected)


@pytest.mark.usefixtures("with_and_without_scipy")
def test_substitution_is_accurate_where_the_inverse_is_not() -> None:
    """The matrix has a condition number of about 1e12; the solution by substitution has all its digits."""
    n = 64
    a = np.tril(np.full((n, n), -0.5)) + 1.5 * np.eye(n)
    x = np.arange(1.0, n + 1)
    found = tc.linalg.solve_triangular(tc.asarray(a), tc.asarray(a @ x), lower=True)
    tc.testing.assert_close(found.numpy(), x, rtol=1e-8)


@pytest.mark.usefixtures("with_and_without_scipy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (90, 90), (3, 7, 7), (5, 3), (3, 5), (60, 90), (2, 9, 4)])
def test_lu_factors(shape: tuple[int, ...], dtype: str) -> None:
    x = matrix(1, *shape, dtype=dtype)
    factors = tc.linalg.lu_factor(tc.asarray(x))
    lu, permutation = factors.LU.numpy(), factors.permutation.numpy()
    k = min(shape[-2:])
    low, up = np.tril(lu[..., :k], -1) + np.eye(*lu[..., :k].shape[-2:], dtype=dtype), np.triu(lu[..., :k, :])
    assert np.abs(low).max() <= (2**0.5 if "complex" in dtype else 1) + 1e-6
    agrees(tc.asarray(low @ up), np.take_along_axis(x, permutation[..., None], axis=-2))


@pytest.mark.usefixtures("with_and_without_scipy")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shapes", [
    ((5, 5), (5,)), ((70, 70), (70, 3)), ((2, 4, 4), (4,)), ((2, 4, 4), (3, 1, 4, 2)), ((4, 4), (2, 4, 3)),
])  # fmt: skip
def test_solving_by_factors(shapes: Any, dtype: str) -> None:
    a, b = regular(1, *shapes[0], dtype=dtype), matrix(2, *shapes[1], dtype=dtype)
    factors = tc.linalg.lu_factor(tc.asarray(a))
    for trans, system in ((0, a), (1, a.mT), (2, a.conj().mT)):
        agrees(tc.linalg.lu_solve(factors, tc.asarray(b), trans=trans), np.linalg.solve(system, b))  # type: ignore[arg-type]
    spd = a @ a.conj().mT
    for upper in (False, True):
        factor = tc.linalg.cholesky(tc.asarray(spd), upper=upper)
        agrees(tc.linalg.cho_solve(factor, tc.asarray(b), upper=upper), np.linalg.solve(spd, b))


@pytest.mark.usefixtures("with_and_without_scipy")
@pytest.mark.parametrize("shapes", [((3, 3), (3,)), ((250, 250), (250, 4)), ((2, 3, 3), (3, 2))])
def test_the_gradients_of_solve_are_those_of_a_product_with_the_inverse(shapes: Any) -> None:
    a, b = regular(1, *shapes[0]), matrix(2, *shapes[1])
    w = tc.asarray(matrix(3, *np.linalg.solve(a, b).shape))
    expected = numpy_gradients(lambda a, b: tc.sum(tc.matmul(tc.linalg.inv(a), b) * w), a, b)
    found = numpy_gradients(lambda a, b: tc.sum(tc.linalg.solve(a, b) * w), a, b)
    factored = numpy_gradients(lambda a, b: tc.sum(tc.linalg.lu_solve(tc.linalg.lu_factor(a), b) * w), a, b)
    for f, g, e in zip(found, factored, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-10)
    # of one of the two only
    np.testing.assert_allclose(
        numpy_gradients(lambda a: tc.sum(tc.linalg.solve(a, tc.asarray(b)) * w), a)[0], expected[0]
    )
    np.testing.assert_allclose(
        numpy_gradients(lambda b: tc.sum(tc.linalg.solve(tc.asarray(a), b) * w), b)[0], expected[1]
    )


@pytest.mark.usefixtures("with_and_without_scipy")
def test_the_gradient_of_a_large_cholesky_factor() -> None:
    """By halves as by one formula: the derivative of the log-determinant is the inverse."""
    a = regular(1, 450, 450)
    a = a @ a.T
    (g,) = numpy_gradients(lambda x: 2 * tc.sum(tc.log(tc.linalg.diagonal(tc.linalg.cholesky(x)))), a)
    np.testing.assert_allclose(g, np.linalg.inv(a), rtol=1e-8, atol=1e-10)
    assert np.array_equal(g, g.T)


@pytest.mark.usefixtures("with_and_without_scipy")
def test_what_is_singular_is_refused_but_has_factors() -> None:
    x = tc.asarray([[1.0, 2.0], [2.0, 4.0]])
    lu, permutation = tc.linalg.lu_factor(x)
    assert (lu.tolist(), permutation.tolist()) == ([[2.0, 4.0], [0.5, 0.0]], [1, 0])
    assert tc.linalg.lu_factor(tc.zeros((2, 2))).LU.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="singular"):
        tc.linalg.lu_solve((lu, permutation), tc.ones(2))
    with tc.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(ValueError, match="Singular matrix"):
            tc.linalg.solve(x, tc.ones(2))


def test_nan_in_gives_nan_out() -> None:
    a = tc.asarray([[1.0, 0.0], [tc.nan, 1.0]])
    assert np.isnan(tc.linalg.solve_triangular(a, tc.ones(2), lower=True).numpy()).tolist() == [False, True]
    assert np.isnan(tc.linalg.lu_factor(a).LU.numpy()).any()
    assert np.isnan(tc.linalg.expm(a).numpy()).all()


# -- products


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tc.linalg.multi_dot([tc.ones((2, 2))]), "two arrays or more, got 1"),
        (
            lambda: tc.linalg.multi_dot([tc.ones((2, 3)), tc.ones((2, 3))]),
            r"arrays\[0\] of shape .2, 3. and",
        ),
        (lambda: tc.linalg.multi_dot([tc.ones(2), tc.ones(2), tc.ones(2)]), r"arrays\[1\] must be matrices"),
        (lambda: tc.linalg.lu_solve(tc.linalg.lu_factor(tc.ones((2, 2))), tc.ones(2), trans=3), "0, 1 or 2, got 3"),  # type: ignore[arg-type]
        (lambda: tc.linalg.cho_solve(tc.ones(2), tc.ones(2)), "factor must be square matrices"),
        (lambda: tc.einsum("ij,jk", tc.ones((2, 3)), tc.ones((4, 2))), "'j' has length 4 in operand 1"),
        (lambda: tc.einsum("...i,...i", tc.ones((2, 3)), tc.ones((4, 3))), "a dimension of '...' has length 4"),
    ],
    ids=["one", "shapes", "vector", "trans", "factor", "einsum", "ellipsis"],
)
def test_mistakes_in_products_and_factors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("in_axes", "a", "b"), [
    ((None, 0), (40, 40), (3, 40)), ((None, 1), (40, 40), (40, 3, 2)), ((None, 0), (2, 4, 4), (3, 4, 1)),
    ((0, None), (3, 40, 40), (40,)), ((0, None), (3, 4, 4), (2, 4, 2)), ((0, 0), (3, 40, 40), (3, 40)),
    ((0, 0), (3, 4, 4), (3, 4, 0)),
])  # fmt: skip
def test_triangular_systems_in_vmap_agree_with_a_loop(in_axes: Any, a: Any, b: Any, unit: bool) -> None:
    x, y = tc.asarray(regular(5, *a)), tc.asarray(matrix(6, *b))
    solve = partial(tc.linalg.solve_triangular, lower=True, unit_diagonal=unit)
    xs = [x] * 3 if in_axes[0] is None else tc.unstack(x)
    ys = [y] * 3 if in_axes[1] is None else tc.unstack(y, axis=in_axes[1])
    expected = np.stack([solve(*pair).numpy() for pair in zip(xs, ys, strict=True)])
    agrees(tc.vmap(solve, in_axes=in_axes)(x, y), expected)


def test_a_singular_triangular_matrix_is_named_in_vmap_too() -> None:
    a = tc.asarray(np.tril(regular(7, 4, 4), -1))
    with pytest.raises(ValueError, match="a is singular: its diagonal has a 0"):
        tc.vmap(lambda b: tc.linalg.solve_triangular(a, b, lower=True))(tc.ones((3, 4)))
    stacked = tc.stack([a + tc.eye(4, dtype="float64"), a])
    with pytest.raises(ValueError, match="a is singular: its diagonal has a 0"):
        tc.vmap(lambda a: tc.linalg.solve_triangular(a, tc.ones(4, dtype="float64"), lower=True))(stacked)
