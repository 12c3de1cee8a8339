"""Functions of `tape_core.scipy.linalg`: SciPy's values and arguments, and derivatives, on every backend."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy_names import check, check_signature

theirs = pytest.importorskip("scipy.linalg")
own = tc.scipy.linalg

pytestmark = pytest.mark.each_backend

RNG = np.random.default_rng(0)
S = RNG.uniform(0.1, 0.6, (3, 3)) + 2 * np.diag([1.0, 1.3, 1.7])
T = RNG.uniform(0.1, 0.6, (3, 3)) + 2 * np.diag([0.7, 1.1, 1.4])
P = S @ S.T
X = RNG.uniform(0.3, 0.9, (4, 3)) + np.eye(4, 3)
B = np.asarray([0.3, 0.8, 0.5])
C = np.asarray([2.3, 0.4, 0.6])
BANDS = np.asarray([[0.0, 0.3, 0.4], [2.0, 2.3, 2.1], [0.2, 0.5, 0.0]])
ONES = np.ones(4)

HYPERBOLIC = ("cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm")


def _product(u: Any, s: Any, vh: Any) -> Any:
    return (u * s**2) @ vh


def _composed(w: Any, v: Any) -> Any:
    return (v * w**3) @ v.T


CASES: dict[str, tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]] = {
    "solve": (lambda m: m.solve, (S, B)),
    "solve, matrix": (lambda m: m.solve, (S, T)),
    **{
        f"solve, {a} {lower} {transposed}": (
            lambda m, a=a, lower=lower, transposed=transposed: (
                lambda x, b: m.solve(x, b, assume_a=a, lower=lower, transposed=transposed)
            ),
            (S + 3 * np.eye(3), B),
        )
        for a in ("gen", "sym", "her", "pos", "lower triangular", "upper triangular", "diagonal", "tridiagonal")
        for lower, transposed in ((False, False), (True, True))
    },
    "solve_triangular": (lambda m: m.solve_triangular, (S, B)),
    "solve_triangular, T": (lambda m: lambda a, b: m.solve_triangular(a, b, trans="T", lower=True), (S, T)),
    "solve_triangular, unit": (lambda m: lambda a, b: m.solve_triangular(a, b, 1, unit_diagonal=True), (S, B)),
    "inv": (lambda m: m.inv, (S,)),
    "inv, pos": (lambda m: lambda a: m.inv(a, assume_a="pos", lower=True), (P,)),
    "det": (lambda m: m.det, (S,)),
    "norm": (lambda m: m.norm, (X,)),
    "norm, 2": (lambda m: lambda x: m.norm(x, 2), (X,)),
    "norm, nuc": (lambda m: lambda x: m.norm(x, "nuc", axis=(1, 0), keepdims=True), (X,)),
    "norm, vectors": (lambda m: lambda x: m.norm(x, 3, axis=1), (X,)),
    "pinv": (lambda m: m.pinv, (X,)),
    "pinv, rank": (lambda m: lambda x: m.pinv(x, return_rank=True), (X,)),
    "pinvh": (lambda m: m.pinvh, (P,)),
    "lstsq": (lambda m: m.lstsq, (X, ONES)),
    "lstsq, wide": (lambda m: lambda a, b: m.lstsq(a, b)[0], (X.T, T)),
    "solve_banded": (lambda m: lambda ab, b: m.solve_banded((1, 1), ab, b), (BANDS, B)),
    "solve_banded, uneven": (lambda m: lambda ab, b: m.solve_banded((0, 1), ab, b), (BANDS[:2], T)),
    "solveh_banded": (lambda m: m.solveh_banded, (BANDS[:2], B)),
    "solveh_banded, lower": (lambda m: lambda ab, b: m.solveh_banded(ab, b, lower=True), (BANDS[1:], B)),
    "solve_sylvester": (lambda m: m.solve_sylvester, (S, T[:2, :2], X[:3, :2])),
    "solve_continuous_lyapunov": (lambda m: m.solve_continuous_lyapunov, (S, P)),
    "solve_discrete_lyapunov": (lambda m: m.solve_discrete_lyapunov, (S / 4, P)),
    "solve_discrete_lyapunov, bilinear": (
        lambda m: lambda a, q: m.solve_discrete_lyapunov(a, q, method="bilinear"),
        (S / 4, P),
    ),
    "cholesky": (lambda m: m.cholesky, (S + S.T,)),
    "cholesky, lower": (lambda m: lambda a: m.cholesky(a, lower=True), (S + 2 * np.eye(3),)),
    "cho_solve": (lambda m: lambda a, b: m.cho_solve(m.cho_factor(a), b), (P, B)),
    "cho_solve, lower": (lambda m: lambda a, b: m.cho_solve(m.cho_factor(a, lower=True), b), (P, T)),
    "lu": (lambda m: m.lu, (S[[1, 0, 2]],)),
    "lu, tall": (lambda m: m.lu, (X[[3, 0, 2, 1]],)),
    "lu, wide": (lambda m: lambda a: m.lu(a, permute_l=True), (X[[3, 0, 2, 1]].T,)),
    "lu, p_indices": (lambda m: lambda a: m.lu(a, p_indices=True), (X[[3, 0, 2, 1]],)),
    "qr": (lambda m: m.qr, (S,)),
    "qr, economic": (lambda m: lambda a: m.qr(a, mode="economic"), (X,)),
    "qr, r": (lambda m: lambda a: m.qr(a, mode="r"), (X,)),
    "svd": (lambda m: lambda a: m.svd(a, full_matrices=False)[1], (X,)),
    "svd, product": (lambda m: lambda a: _product(*m.svd(a, False)), (X,)),
    "svdvals": (lambda m: m.svdvals, (X,)),
    "eig": (lambda m: lambda a: m.eig(a)[0].sum(), (S,)),
    "eigvals": (lambda m: lambda a: (m.eigvals(a) ** 2).sum(), (S,)),
    "eigh": (lambda m: lambda a: _composed(*m.eigh(a)), (S + S.T,)),
    "eigh, upper": (lambda m: lambda a: m.eigh(a, lower=False, eigvals_only=True), (S,)),
    "eigh, two": (lambda m: lambda a, b: _composed(*m.eigh(a, b)), (S + S.T, P)),
    "eigvalsh": (lambda m: lambda a: m.eigvalsh(a, subset_by_index=(1, 2)), (S,)),
    "eigh_tridiagonal": (lambda m: lambda d, e: abs(m.eigh_tridiagonal(d, e)[1]), (C, B[:2])),
    "eigvalsh_tridiagonal": (lambda m: lambda d, e: m.eigvalsh_tridiagonal(d, e, "i", (0, 1)), (C, B[:2])),
    "polar": (lambda m: m.polar, (X,)),
    "polar, left": (lambda m: lambda a: m.polar(a, "left"), (S,)),
    "expm": (lambda m: m.expm, (S,)),
    "expm_frechet": (lambda m: m.expm_frechet, (S, T)),
    **{
        name: (lambda m, name=name: getattr(m, name), (S,))
        for name in ["cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm"]
    },
    "sqrtm": (lambda m: m.sqrtm, (S,)),
    "logm": (lambda m: m.logm, (S,)),
    "fractional_matrix_power": (lambda m: lambda a: m.fractional_matrix_power(a, 1.3), (S,)),
    "fractional_matrix_power, down": (lambda m: lambda a: m.fractional_matrix_power(a, -0.4), (S,)),
    "toeplitz": (lambda m: m.toeplitz, (C, ONES)),
    "toeplitz, one": (lambda m: m.toeplitz, (C,)),
    "hankel": (lambda m: m.hankel, (C, ONES)),
    "hankel, one": (lambda m: m.hankel, (C,)),
    "circulant": (lambda m: m.circulant, (C,)),
    "companion": (lambda m: m.companion, (C,)),
    "leslie": (lambda m: m.leslie, (C, B[:2])),
    "fiedler": (lambda m: m.fiedler, (C,)),
    **{
        f"convolution_matrix, {mode} {n}": (lambda m, n=n, mode=mode: lambda a: m.convolution_matrix(a, n, mode), (C,))
        for n in (2, 5)
        for mode in ("full", "same", "valid")
    },
    "block_diag": (lambda m: m.block_diag, (S, B, X)),
    "diagsvd": (lambda m: lambda s: m.diagsvd(s, 3, 5), (C,)),
    "diagsvd, tall": (lambda m: lambda s: m.diagsvd(s, 4, 3), (C,)),
    "khatri_rao": (lambda m: m.khatri_rao, (X, S)),
    "matmul_toeplitz": (lambda m: lambda c, r, x: m.matmul_toeplitz((c, r), x), (C, ONES, X)),
    "matmul_toeplitz, vector": (lambda m: m.matmul_toeplitz, (C, B)),
    "solve_toeplitz": (lambda m: lambda c, r, b: m.solve_toeplitz((c, r), b), (C, B, T)),
    "solve_toeplitz, one": (lambda m: m.solve_toeplitz, (C, B)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_has_scipys_values_and_derivatives_however_it_is_run(name: str) -> None:
    function, arrays = CASES[name]
    check(function(own), function(theirs), *arrays, rtol=1e-8)


def test_each_function_is_checked_and_has_scipys_arguments() -> None:
    tested = {name.partition(",")[0] for name in CASES}
    assert {*own.__all__} == {name for name in own.__all__ if name in tested or name == "cho_factor"}
    for name in own.__all__:
        check_signature(getattr(own, name), getattr(theirs, name))


@pytest.mark.parametrize("name", ["sqrtm", "logm", "expm", "inv", "cosm", "solve_continuous_lyapunov", "toeplitz"])
def test_complex_matrices(name: str) -> None:
    z = S + 0.3j * T
    given = {"solve_continuous_lyapunov": (z, z @ z.conj().T), "toeplitz": (z[0],)}.get(name, (z,))
    expected = getattr(theirs, name)(*given)
    found = getattr(own, name)(*[tc.asarray(x) for x in given])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-10)


def test_what_is_hard_is_right_or_says_that_it_is_not() -> None:
    """Principal roots exist off the negative axis alone; elsewhere SciPy goes to complex numbers."""
    rotation = np.asarray([[0.0, -1.0], [1.0, 0.0]])
    for a in (rotation, np.diag([1e-9, 1.0, 1e9]), np.asarray([[1.0, 1e3], [0.0, 1.0]])):
        np.testing.assert_allclose(own.sqrtm(tc.asarray(a)).numpy(), theirs.sqrtm(a), rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(own.logm(tc.asarray(a)).numpy(), theirs.logm(a), rtol=1e-6, atol=1e-8)
    for function in (own.sqrtm, own.logm):
        assert np.isnan(function(tc.asarray(np.diag([-1.0, 2.0]))).numpy()).all()


def test_eigh_of_an_empty_matrix_is_empty() -> None:
    empty = tc.zeros((0, 0))
    w, v = own.eigh(empty)
    assert (w.shape, v.shape, own.eigvalsh(empty).shape) == ((0,), (0, 0), (0,))
    with pytest.raises(ValueError, match="subset_by_index must be in order"):
        own.eigh(empty, subset_by_index=(0, 0))


def test_arguments_without_a_counterpart_are_refused_by_name() -> None:
    s = tc.asarray(S)
    for call, message in (
        (lambda: own.qr(s, pivoting=True), r"scipy\.linalg\.qr: pivoting=True has no counterpart for Tensors"),
        (lambda: own.eig(s, s), r"scipy\.linalg\.eig: b=.* has no counterpart"),
        (lambda: own.eigh(s, type=2), r"scipy\.linalg\.eigh: type=2 has no counterpart"),
        (lambda: own.pinv(s, atol=0.1), r"atol=0\.1"),
        (lambda: own.eigh_tridiagonal(s[0], s[0, 1:], select="v"), "select='v'"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()
    with pytest.raises(ValueError, match=r"scipy\.linalg\.solve: assume_a must be one of .*got 'positive'"):
        own.solve(s, s[0], assume_a="positive")
    with pytest.raises(ValueError, match=r"scipy\.linalg\.sqrtm: A must be square matrices, got shape \(4, 3\)"):
        own.sqrtm(tc.asarray(X))
    with pytest.raises(ValueError, match=r"has 70 \* 70 elements, and this way is for 4096 at most"):
        own.solve_sylvester(*[tc.zeros((70, 70))] * 3)
    with pytest.raises(AttributeError, match=r"lu_factor'; it is tc\.linalg\.lu_factor here"):
        own.lu_factor  # noqa: B018


@pytest.mark.parametrize("name", ["expm", "sqrtm", "cholesky", "lu_factor", "solve"])
def test_the_warning_of_scipys_own_function_names_the_counterpart(name: str) -> None:
    x = tc.Variable(P)
    given = {"solve": (x, x[0].numpy())}.get(name, (x,))
    found = rf"tape_core\.(scipy\.)?linalg\.{name}\b.*has a derivative.*scipy\.linalg\.{name}"
    with tc.GradientTape(), pytest.warns(UserWarning, match=found):
        getattr(theirs, name)(*given)


@pytest.mark.parametrize("name", ["solve_sylvester", "toeplitz", "diagsvd"])
def test_the_error_of_scipys_own_function_names_the_counterpart(name: str) -> None:
    if os.environ.get("SCIPY_ARRAY_API") != "1":
        pytest.skip("SciPy makes arrays of Tensors without it")
    x = tc.Variable(P)
    given = {"solve_sylvester": (x, x, x), "toeplitz": (x[0],), "diagsvd": (x[0], 3, 3)}[name]
    found = rf"tape_core\.scipy\.linalg\.{name}\b.*has a derivative.*scipy\.linalg\.{name}"
    with tc.GradientTape(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((AttributeError, TypeError), match=found):
            getattr(theirs, name)(*given)


def test_the_warning_names_what_the_user_has_called() -> None:
    x = tc.Variable(P)
    with tc.GradientTape(), pytest.warns(UserWarning, match="recording") as told:
        theirs.schur(x)  # which has no counterpart, though functions that it calls may have one
    assert not any("tape_core.scipy" in str(one.message) for one in told)

    def called_back(z: Any) -> Any:
        theirs.expm(x)
        return z * z - 2.0

    with tc.GradientTape(), pytest.warns(UserWarning, match=r"tape_core\.scipy\.linalg\.expm"):
        pytest.importorskip("scipy.optimize").brentq(called_back, 0.0, 2.0)
