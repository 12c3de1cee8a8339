"""Norms, powers, inverses and solutions: NumPy's values, gradients at 0, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_agrees, matrix, numpy_gradient

agrees = partial(assert_agrees, double=1e-9, single=1e-3)

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)

DTYPES = st.sampled_from(["float32", "float64", "complex64", "complex128"])


@FAST
@given(
    seed=st.integers(0, 99),
    order=st.sampled_from([0, 1, 2, 3, 0.5, math.inf, -math.inf]),
    axis=st.sampled_from([None, 0, -1, (0, 1)]),
    keepdims=st.booleans(),
    dtype=DTYPES,
)
def test_vector_norm(seed: int, order: float, axis: Any, keepdims: bool, dtype: str) -> None:
    x = matrix(seed, 3, 2, dtype=dtype)
    agrees(
        tc.linalg.vector_norm(tc.asarray(x), axis=axis, keepdims=keepdims, ord=order),
        np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=order),
    )


@FAST
@given(seed=st.integers(0, 99), power=st.integers(-3, 5), dtype=DTYPES)
def test_matrix_power(seed: int, power: int, dtype: str) -> None:
    x = matrix(seed, 2, 2, 2, dtype=dtype) + 2 * np.eye(2, dtype=dtype)
    agrees(tc.linalg.matrix_power(tc.asarray(x), power), np.linalg.matrix_power(x, power))


@FAST
@given(
    seed=st.integers(0, 99),
    shapes=st.sampled_from([((2, 2), (2,)), ((3, 2, 2), (2,)), ((2, 2), (3, 2, 4)), ((2, 1, 2, 2), (3, 2, 1))]),
    dtype=DTYPES,
)
def test_solve(seed: int, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    a = matrix(seed, *shapes[0], dtype=dtype) + 3 * np.eye(2, dtype=dtype)
    b = matrix(seed + 1, *shapes[1], dtype=dtype)
    agrees(tc.linalg.solve(tc.asarray(a), tc.asarray(b)), np.linalg.solve(a, b))


def test_cross_and_the_products_of_the_main_namespace() -> None:
    a, b = matrix(1, 2, 3, dtype="float64"), matrix(2, 3, dtype="float64")
    agrees(tc.linalg.cross(tc.asarray(a), tc.asarray(b)), np.linalg.cross(a, b))
    for name in ("matmul", "matrix_transpose", "outer", "tensordot", "vecdot"):
        assert getattr(tc.linalg, name) is getattr(tc, name)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # NumPy's, for the norm itself
@pytest.mark.parametrize("order", [-1, -2, -0.5])
def test_a_norm_of_negative_order_is_constant_beside_a_0(order: float) -> None:
    norm = lambda t: tc.linalg.vector_norm(t, ord=order)  # noqa: E731
    assert numpy_gradient(norm, np.asarray([1.0, 0.0, -2.0])).tolist() == [0.0, 0.0, 0.0]
    assert tc.hessian(norm)(tc.asarray([1.0, 0.0, -2.0])).tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize("order", [1, 2, 3, 0.5, math.inf])
def test_the_gradient_of_a_norm_is_0_at_0(order: float) -> None:
    assert numpy_gradient(lambda t: tc.linalg.vector_norm(t, ord=order), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    if order == 2:
        assert numpy_gradient(tc.linalg.matrix_norm, np.zeros((2, 2))).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tc.linalg.inv(tc.zeros((2, 2))), r"inv\(x: float32\[2, 2\]\): Singular matrix"),
        (lambda: tc.linalg.matrix_norm(tc.ones(3)), "two dimensions"),
        (lambda: tc.linalg.matrix_norm(tc.ones((2, 2)), ord=3), "ord must be 'fro'"),
        (lambda: tc.linalg.matrix_power(tc.ones((2, 3)), 2), "square matrices"),
    ],
    ids=["inv", "norm of a vector", "ord", "power"],
)
def test_mistakes_in_norms_inverses_and_powers(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
