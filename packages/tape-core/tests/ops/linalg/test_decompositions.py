"""Linear algebra: NumPy's values, and gradients where the textbook's formula fails. (Derivatives: see test_ops.)"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)
DTYPES = st.sampled_from(["float32", "float64", "complex64", "complex128"])


def matrix(seed: int, shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


def agrees(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert type(found)._fields == type(expected)._fields  # type: ignore[attr-defined]
        for a, b in zip(found, expected, strict=True):
            agrees(a, b)
        return
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert str(found.dtype) == str(expected.dtype)
    rtol = 1e-3 if str(expected.dtype) in ("float32", "complex64") else 1e-9
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=rtol)


def gradient(f: Callable[[Any], Any], x: Any) -> Any:
    x = np.asarray(x)
    t = tc.asarray(x.astype(np.result_type(x.dtype, np.float64)))
    with tc.GradientTape() as tape:
        tape.watch(t)
        y = f(t)
    return tape.gradient(y, t).numpy()


SQUARE: dict[str, dict[str, Any]] = {
    "det": {}, "inv": {}, "slogdet": {}, "eigvals": {}, "matrix_rank": {}, "pinv": {}, "svdvals": {}, "trace": {},
    "qr": {}, "svd": {}, "matrix_norm": {}, "diagonal": {"offset": 1}, "eig": {},
}  # fmt: skip


@pytest.mark.parametrize("name", SQUARE)
@FAST
@given(seed=st.integers(0, 99), n=st.integers(1, 4), stack=st.sampled_from([(), (2,), (0,), (2, 1)]), dtype=DTYPES)
def test_square_matrices(name: str, seed: int, n: int, stack: tuple[int, ...], dtype: str) -> None:
    x = matrix(seed, (*stack, n, n), dtype)
    before = x.copy()
    expected = getattr(np.linalg, name)(x, **SQUARE[name])
    if name in ("eig", "eigvals"):
        # In the standard the eigenvalues of a real matrix are complex, too.
        wide = np.result_type(dtype, np.complex64)
        expected = type(expected)(*(e.astype(wide) for e in expected)) if name == "eig" else expected.astype(wide)
    agrees(getattr(tc.linalg, name)(tc.asarray(x), **SQUARE[name]), expected)
    assert np.array_equal(x, before), "the input was changed"


@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigvalsh"])
@FAST
@given(seed=st.integers(0, 99), n=st.integers(1, 4), stack=st.sampled_from([(), (2,), (0,)]), dtype=DTYPES)
def test_hermitian_matrices(name: str, seed: int, n: int, stack: tuple[int, ...], dtype: str) -> None:
    x = matrix(seed, (*stack, n, n), dtype)
    x = x @ x.conj().mT + np.eye(n, dtype=dtype)
    agrees(getattr(tc.linalg, name)(tc.asarray(x)), getattr(np.linalg, name)(x))


@FAST
@given(seed=st.integers(0, 99), m=st.integers(1, 4), n=st.integers(1, 4), dtype=DTYPES)
def test_rectangular_matrices(seed: int, m: int, n: int, dtype: str) -> None:
    x = matrix(seed, (2, m, n), dtype)
    for name, kwargs in (
        ("svd", {"full_matrices": False}),
        ("svd", {"full_matrices": True}),
        ("qr", {"mode": "reduced"}),
        ("qr", {"mode": "complete"}),
        ("pinv", {}),
        ("matrix_rank", {}),
    ):
        agrees(getattr(tc.linalg, name)(tc.asarray(x), **kwargs), getattr(np.linalg, name)(x, **kwargs))
    for order in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        for keepdims in (False, True):
            found = tc.linalg.matrix_norm(tc.asarray(x), ord=order, keepdims=keepdims)  # type: ignore[arg-type]
            agrees(found, np.linalg.matrix_norm(x, ord=order, keepdims=keepdims))


@FAST
@given(
    seed=st.integers(0, 99),
    order=st.sampled_from([0, 1, 2, 3, 0.5, math.inf, -math.inf]),
    axis=st.sampled_from([None, 0, -1, (0, 1)]),
    keepdims=st.booleans(),
    dtype=DTYPES,
)
def test_vector_norm(seed: int, order: float, axis: Any, keepdims: bool, dtype: str) -> None:
    x = matrix(seed, (3, 2), dtype)
    agrees(
        tc.linalg.vector_norm(tc.asarray(x), axis=axis, keepdims=keepdims, ord=order),
        np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=order),
    )


@FAST
@given(seed=st.integers(0, 99), power=st.integers(-3, 5), dtype=DTYPES)
def test_matrix_power(seed: int, power: int, dtype: str) -> None:
    x = matrix(seed, (2, 2, 2), dtype) + 2 * np.eye(2, dtype=dtype)
    agrees(tc.linalg.matrix_power(tc.asarray(x), power), np.linalg.matrix_power(x, power))


@FAST
@given(
    seed=st.integers(0, 99),
    shapes=st.sampled_from([((2, 2), (2,)), ((3, 2, 2), (2,)), ((2, 2), (3, 2, 4)), ((2, 1, 2, 2), (3, 2, 1))]),
    dtype=DTYPES,
)
def test_solve(seed: int, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    a = matrix(seed, shapes[0], dtype) + 3 * np.eye(2, dtype=dtype)
    b = matrix(seed + 1, shapes[1], dtype)
    agrees(tc.linalg.solve(tc.asarray(a), tc.asarray(b)), np.linalg.solve(a, b))


def test_cross_and_the_products_of_the_main_namespace() -> None:
    a, b = matrix(1, (2, 3), "float64"), matrix(2, (3,), "float64")
    agrees(tc.linalg.cross(tc.asarray(a), tc.asarray(b)), np.linalg.cross(a, b))
    for name in ("matmul", "matrix_transpose", "outer", "tensordot", "vecdot"):
        assert getattr(tc.linalg, name) is getattr(tc, name)


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
    np.testing.assert_allclose(gradient(tc.linalg.det, x), cofactors, atol=1e-12)


def test_the_second_derivative_of_det_where_singular_values_are_equal() -> None:
    def slope(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.linalg.det(x)
        return tape.gradient(y, x)[0, 0]

    # The cofactor of the first element is the determinant of the rest.
    np.testing.assert_allclose(gradient(slope, np.eye(3)), np.diag([0.0, 1.0, 1.0]), atol=1e-12)


def test_equal_eigenvalues_have_a_derivative_and_their_eigenvectors_have_none() -> None:
    x = np.diag([2.0, 2.0, 5.0])
    np.testing.assert_allclose(gradient(lambda t: tc.sum(tc.linalg.eigh(t).eigenvalues ** 2), x), 2 * x, atol=1e-12)
    np.testing.assert_allclose(gradient(lambda t: tc.sum(tc.linalg.eigvalsh(t) ** 2), x), 2 * x, atol=1e-12)

    def second(t: Any) -> Any:
        """The element (0, 1) of t - 2: all cotangents are 0 here, and the derivative is not."""
        w, v = tc.linalg.eigh(t)
        return tc.sum((w - 2) * v[0, :] * v[1, :])

    assert np.isnan(gradient(second, x)).any()
    apart = np.diag([2.0, 3.0, 5.0])
    np.testing.assert_allclose(gradient(second, apart)[:2, :2], [[0, 0.5], [0.5, 0]], atol=1e-12)


def test_equal_singular_values_have_a_derivative_and_their_vectors_have_none() -> None:
    x = 2 * np.eye(3)
    found = gradient(lambda t: tc.linalg.matrix_norm(t, ord="nuc"), x)
    np.testing.assert_allclose(found, np.eye(3), atol=1e-12)
    found = gradient(lambda t: tc.sum(tc.linalg.svd(t).S), x)
    np.testing.assert_allclose(found, np.eye(3), atol=1e-12)

    def polar(t: Any) -> Any:
        u, _, vh = tc.linalg.svd(t)
        return tc.sum(u @ vh * np.arange(9.0).reshape(3, 3))

    assert np.isnan(gradient(polar, x)).any()


@pytest.mark.parametrize(
    "influenced",
    [
        lambda t: tc.real(tc.linalg.eigh(t + tc.conj(t.mT)).eigenvectors[0, 0] * (1 + 2j)),
        lambda t: tc.real(tc.linalg.eig(t).eigenvectors[0, 0] * (1 + 2j)),
        lambda t: tc.real(tc.linalg.svd(t).U[1, 0] * (1 + 2j)),
    ],
    ids=["eigh", "eig", "svd"],
)
def test_a_function_of_an_arbitrary_phase_has_a_gradient_of_nan(influenced: Any) -> None:
    assert np.isnan(gradient(influenced, matrix(5, (2, 2), "complex128"))).any()


def test_singular_values_of_rank_deficient_matrices() -> None:
    x = np.outer([1.0, 2.0], [3.0, 4.0])
    found = gradient(lambda t: tc.sum(tc.linalg.svd(t, full_matrices=False).S[:1]), x)
    np.testing.assert_allclose(found, x / np.linalg.norm(x), atol=1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # NumPy's, for the norm itself
@pytest.mark.parametrize("order", [-1, -2, -0.5])
def test_a_norm_of_negative_order_is_constant_beside_a_0(order: float) -> None:
    norm = lambda t: tc.linalg.vector_norm(t, ord=order)  # noqa: E731
    assert gradient(norm, np.asarray([1.0, 0.0, -2.0])).tolist() == [0.0, 0.0, 0.0]
    assert tc.hessian(norm)(tc.asarray([1.0, 0.0, -2.0])).tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize("order", [1, 2, 3, 0.5, math.inf])
def test_the_gradient_of_a_norm_is_0_at_0(order: float) -> None:
    assert gradient(lambda t: tc.linalg.vector_norm(t, ord=order), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    if order == 2:
        assert gradient(tc.linalg.matrix_norm, np.zeros((2, 2))).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_columns_that_complete_a_basis_refuse_a_gradient() -> None:
    x = matrix(3, (3, 2), "float64")
    with pytest.raises(ValueError, match=r"qr: a gradient flows into the columns of Q.*mode='reduced'"):
        gradient(lambda t: tc.sum(tc.linalg.qr(t, mode="complete").Q), x)
    with pytest.raises(ValueError, match=r"svd: a gradient flows into the columns of U.*full_matrices=False"):
        gradient(lambda t: tc.sum(tc.linalg.svd(t).U), x)
    found = gradient(lambda t: tc.sum(tc.linalg.qr(t, mode="complete").R[:2]), x)
    tc.testing.assert_close(found, gradient(lambda t: tc.sum(tc.linalg.qr(t).R), x), rtol=1e-12)


def test_results_have_the_names_of_the_standard() -> None:
    x = tc.asarray(np.eye(2) + 1, dtype="float64")
    w, v = tc.linalg.eigh(x)
    named = tc.linalg.eigh(x)
    assert named.eigenvalues.tolist() == w.tolist()
    assert named.eigenvectors.tolist() == v.tolist()
    assert tc.linalg.qr(x).Q.shape == tc.linalg.svd(x).Vh.shape == (2, 2)
    assert tc.linalg.slogdet(x).logabsdet.item() == pytest.approx(math.log(3))


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
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
