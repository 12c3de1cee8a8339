"""Decompositions: NumPy's values, and gradients where values are equal, phases arbitrary or columns completed."""

from __future__ import annotations

import math
import sys
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

SQUARE: dict[str, dict[str, Any]] = {
    "det": {}, "inv": {}, "slogdet": {}, "eigvals": {}, "matrix_rank": {}, "pinv": {}, "svdvals": {}, "trace": {},
    "qr": {}, "svd": {}, "matrix_norm": {}, "diagonal": {"offset": 1}, "eig": {},
}  # fmt: skip


@pytest.mark.parametrize("name", SQUARE)
@FAST
@given(seed=st.integers(0, 99), n=st.integers(1, 4), stack=st.sampled_from([(), (2,), (0,), (2, 1)]), dtype=DTYPES)
def test_square_matrices(name: str, seed: int, n: int, stack: tuple[int, ...], dtype: str) -> None:
    x = matrix(seed, *stack, n, n, dtype=dtype)
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
    x = matrix(seed, *stack, n, n, dtype=dtype)
    x = x @ x.conj().mT + np.eye(n, dtype=dtype)
    agrees(getattr(tc.linalg, name)(tc.asarray(x)), getattr(np.linalg, name)(x))


@FAST
@given(seed=st.integers(0, 99), m=st.integers(1, 4), n=st.integers(1, 4), dtype=DTYPES)
def test_rectangular_matrices(seed: int, m: int, n: int, dtype: str) -> None:
    x = matrix(seed, 2, m, n, dtype=dtype)
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


@pytest.mark.parametrize(("name", "full"), [("eigvalsh", "eigh"), ("eigvals", "eig"), ("svdvals", "svd")])
def test_a_gradient_of_values_factorizes_once(name: str, full: str) -> None:
    x = matrix(3, 4, 4, dtype="float64")
    x = x + x.T
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals["__name__"].startswith("numpy.linalg"):
            called.append(frame.f_code.co_name)

    def f(t: Any) -> Any:
        return tc.sum(tc.abs(getattr(tc.linalg, name)(t)) ** 3)

    gradient = tc.grad(f)
    gradient(tc.asarray(x))
    sys.setprofile(note)
    try:
        found = gradient(tc.asarray(x))
        f(tc.asarray(x))
    finally:
        sys.setprofile(None)
    # The vectors are found with the values where a tape records, and never elsewhere.
    assert [c for c in called if c in {"eigvalsh", "eigh", "eigvals", "eig", "svdvals", "svd"}][:2] == [full, name]
    assert called.count(full) == 1 + (name == "svdvals")  # which NumPy computes by its svd
    w, v = np.linalg.eigh(x)
    np.testing.assert_allclose(found, v * (3 * w * np.abs(w)) @ v.T, rtol=1e-10, atol=1e-12)
    # A sweep that is recorded goes without what the kernel left.
    direction = tc.asarray(matrix(4, 4, 4, dtype="float64"))
    direction = direction + direction.T
    second = tc.jvp(gradient, (tc.asarray(x),), (direction,))[1]
    beside = [gradient(tc.asarray(x) + h * direction).numpy() for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(second, (beside[0] - beside[1]) / 2e-5, rtol=1e-5, atol=1e-5)


def test_equal_eigenvalues_have_a_derivative_and_their_eigenvectors_have_none() -> None:
    x = np.diag([2.0, 2.0, 5.0])
    np.testing.assert_allclose(
        numpy_gradient(lambda t: tc.sum(tc.linalg.eigh(t).eigenvalues ** 2), x), 2 * x, atol=1e-12
    )
    np.testing.assert_allclose(numpy_gradient(lambda t: tc.sum(tc.linalg.eigvalsh(t) ** 2), x), 2 * x, atol=1e-12)

    def second(t: Any) -> Any:
        """The element (0, 1) of t - 2: all cotangents are 0 here, and the derivative is not."""
        w, v = tc.linalg.eigh(t)
        return tc.sum((w - 2) * v[0, :] * v[1, :])

    assert np.isnan(numpy_gradient(second, x)).any()
    apart = np.diag([2.0, 3.0, 5.0])
    np.testing.assert_allclose(numpy_gradient(second, apart)[:2, :2], [[0, 0.5], [0.5, 0]], atol=1e-12)


def test_equal_singular_values_have_a_derivative_and_their_vectors_have_none() -> None:
    x = 2 * np.eye(3)
    found = numpy_gradient(lambda t: tc.linalg.matrix_norm(t, ord="nuc"), x)
    np.testing.assert_allclose(found, np.eye(3), atol=1e-12)
    found = numpy_gradient(lambda t: tc.sum(tc.linalg.svd(t).S), x)
    np.testing.assert_allclose(found, np.eye(3), atol=1e-12)

    def polar(t: Any) -> Any:
        u, _, vh = tc.linalg.svd(t)
        return tc.sum(u @ vh * np.arange(9.0).reshape(3, 3))

    assert np.isnan(numpy_gradient(polar, x)).any()


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
    assert np.isnan(numpy_gradient(influenced, matrix(5, 2, 2, dtype="complex128"))).any()


def test_singular_values_of_rank_deficient_matrices() -> None:
    x = np.outer([1.0, 2.0], [3.0, 4.0])
    found = numpy_gradient(lambda t: tc.sum(tc.linalg.svd(t, full_matrices=False).S[:1]), x)
    np.testing.assert_allclose(found, x / np.linalg.norm(x), atol=1e-12)


def test_columns_that_complete_a_basis_refuse_a_gradient() -> None:
    x = matrix(3, 3, 2, dtype="float64")
    with pytest.raises(ValueError, match=r"qr: a gradient flows into the columns of Q.*mode='reduced'"):
        numpy_gradient(lambda t: tc.sum(tc.linalg.qr(t, mode="complete").Q), x)
    with pytest.raises(ValueError, match=r"svd: a gradient flows into the columns of U.*full_matrices=False"):
        numpy_gradient(lambda t: tc.sum(tc.linalg.svd(t).U), x)
    found = numpy_gradient(lambda t: tc.sum(tc.linalg.qr(t, mode="complete").R[:2]), x)
    tc.testing.assert_close(found, numpy_gradient(lambda t: tc.sum(tc.linalg.qr(t).R), x), rtol=1e-12)


def test_results_have_the_names_of_the_standard() -> None:
    x = tc.asarray(np.eye(2) + 1, dtype="float64")
    w, v = tc.linalg.eigh(x)
    named = tc.linalg.eigh(x)
    assert named.eigenvalues.tolist() == w.tolist()
    assert named.eigenvectors.tolist() == v.tolist()
    assert tc.linalg.qr(x).Q.shape == tc.linalg.svd(x).Vh.shape == (2, 2)
    assert tc.linalg.slogdet(x).logabsdet.item() == pytest.approx(math.log(3))
