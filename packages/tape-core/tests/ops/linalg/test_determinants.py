"""Derivatives of determinants, of any order and of singular matrices."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import numpy_gradient


@pytest.mark.parametrize(
    ("x", "cofactors"),
    [
        ([[1.0, 2.0], [2.0, 4.0]], [[4, -2], [-2, 1]]),
        ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], [[-3, 6, -3], [6, -12, 6], [-3, 6, -3]]),
        (np.outer([1.0, 2, 3], [4.0, 5, 6]), np.zeros((3, 3))),
        (np.zeros((2, 2)), np.zeros((2, 2))),
        (np.zeros((1, 1)), np.ones((1, 1))),
    ],
)
def test_the_gradient_of_det_is_exact_for_singular_matrices(x: Any, cofactors: Any) -> None:
    np.testing.assert_allclose(numpy_gradient(tc.linalg.det, x), cofactors, atol=1e-12)


def test_the_second_derivative_of_det_where_singular_values_are_equal() -> None:
    def slope(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.linalg.det(x)
        return tape.gradient(y, x)[0, 0]

    # The cofactor of the first element is the determinant of the rest.
    np.testing.assert_allclose(numpy_gradient(slope, np.eye(3)), np.diag([0.0, 1.0, 1.0]), atol=1e-12)


def _minors(a: Any) -> Any:
    """The second derivatives of a determinant: minors without two rows and two columns."""
    n = len(a)
    found = np.zeros((n, n, n, n), a.dtype)
    for i, j, k, m in itertools.product(range(n), repeat=4):
        if i != k and j != m:
            minor = np.delete(np.delete(a, (i, k), 0), (j, m), 1)
            sign = (-1) ** (i + j + k + m) * (1 if (k > i) == (m > j) else -1)
            found[i, j, k, m] = sign * np.linalg.det(minor)
    return found


def _of_rank(n: int, rank: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))


SINGULAR = {
    "2x2": np.asarray([[1.0, 2.0], [2.0, 4.0]]),
    "identity": np.eye(3),
    "ones": np.ones((3, 3)),
    "diagonal": np.diag([1.0, 0.0, 0.0, 2.0]),
    "nilpotent": np.asarray([[0.0, 1.0], [0.0, 0.0]]),
    **{f"{n}-of-rank-{rank}": _of_rank(n, rank, 7 * n + rank) for n in (1, 2, 3, 4) for rank in range(n + 1)},
}


@pytest.mark.parametrize("name", SINGULAR)
def test_the_second_derivatives_of_a_determinant_are_minors_whatever_the_rank(name: str) -> None:
    a = SINGULAR[name]
    x = tc.asarray(a)
    scale = max(1.0, np.abs(a).max()) ** len(a)
    hessians = (tc.hessian(tc.linalg.det), tc.jacrev(tc.grad(tc.linalg.det)), tc.jacfwd(tc.jacfwd(tc.linalg.det)))
    for hessian in (*hessians, tc.function(hessians[0])):
        np.testing.assert_allclose(hessian(x), _minors(a), atol=1e-13 * scale)
    stack = tc.vmap(tc.hessian(tc.linalg.det))(tc.stack([x, 2 * x]))
    np.testing.assert_allclose(stack[1], _minors(2 * a), atol=1e-13 * scale * 2 ** len(a))


def _by_permutations(x: Any) -> Any:
    """The determinant as a polynomial of the elements."""
    total = 0.0
    for order in itertools.permutations(range(x.shape[0])):
        product: Any = np.linalg.det(np.eye(len(order))[list(order)]).round()
        for i, j in enumerate(order):
            product = product * x[i, j]
        total = total + product
    return total


@pytest.mark.parametrize("name", [name for name, a in SINGULAR.items() if len(a) > 1])
def test_higher_derivatives_of_a_determinant_are_those_of_the_polynomial_whatever_the_rank(name: str) -> None:
    x = tc.asarray(SINGULAR[name])
    v = tc.asarray(np.random.default_rng(1).normal(size=x.shape))
    scale = max(1.0, float(tc.max(tc.abs(x)))) ** x.shape[0]

    def along(f: Any) -> Any:
        return lambda x: tc.sum(tc.grad(f)(x) * v)

    found, expected = tc.linalg.det, _by_permutations
    for order in range(1, 5):
        if order >= 3:
            np.testing.assert_allclose(tc.grad(found)(x), tc.grad(expected)(x), atol=1e-11 * scale)
        found, expected = along(found), along(expected)
    third = tc.jacfwd(tc.hessian(tc.linalg.det))(x).numpy()
    np.testing.assert_allclose(third, tc.jacfwd(tc.hessian(_by_permutations))(x).numpy(), atol=1e-12 * scale)
    np.testing.assert_allclose(tc.jacrev(tc.hessian(tc.linalg.det))(x).numpy(), third, atol=1e-12 * scale)


def test_third_derivatives_of_determinants_and_complex_ones() -> None:
    rng = np.random.default_rng(0)
    a = tc.asarray(rng.normal(size=(3, 3)))
    tc.testing.check_grads(tc.linalg.det, (a,), order=3)
    z = rng.normal(size=(3, 1)) + 1j * rng.normal(size=(3, 1))
    tc.testing.check_grads(tc.linalg.det, (tc.asarray(z @ z.T),), order=2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_logarithm_of_a_determinant_of_0_has_an_infinite_gradient() -> None:
    def f(x: Any) -> Any:
        return tc.linalg.slogdet(x)[1]

    x = tc.asarray([[1.0, 2.0], [2.0, 4.0]], dtype="float64")
    expected = [[math.inf, -math.inf], [-math.inf, math.inf]]
    for grad in (tc.grad(f), tc.function(tc.grad(f))):
        assert grad(x).tolist() == expected
    regular = tc.asarray([[2.0, 1.0], [0.5, 3.0]], dtype="float64")
    found = tc.vmap(tc.grad(f))(tc.stack([x, regular]))
    assert found[0].tolist() == expected
    tc.testing.assert_close(found[1], np.linalg.inv(regular.numpy()).T, rtol=1e-14)
