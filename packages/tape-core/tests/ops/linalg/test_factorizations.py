"""Linear algebra beyond the standard: values, delicate cases, mistakes; with SciPy, without, and on a strict library.

Derivatives are compared with finite differences in test_ops.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
import tape_numpy.linalg
from tape_core.backends import ArrayAPIBackend
from tape_core.extend import Draw, Refused, Sample, registry

STRICT = ArrayAPIBackend("strict", array_api_strict)
NAMES = (
    "einsum", "solve_triangular", "lu_factor", "lu_solve", "expm", "expm_derivative", "csr_matmul",
    "csr_transposed_matmul", "solve", "cholesky",
)  # fmt: skip


@pytest.fixture(params=["scipy", "numpy alone"])
def _either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SciPy's routines and without."""
    if request.param == "scipy":
        pytest.importorskip("scipy")
    else:
        monkeypatch.setattr(tape_numpy.linalg, "_routines", lambda: None)
        monkeypatch.setattr(tape_numpy.linalg, "_sparse", lambda: None)


def matrix(seed: int, *shape: int, dtype: str = "float64") -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if "complex" in dtype else x).astype(dtype)


def regular(seed: int, *shape: int, dtype: str = "float64") -> Any:
    return matrix(seed, *shape, dtype=dtype) / 2 + shape[-1] ** 0.5 * np.eye(shape[-1], dtype=dtype)


def close(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    assert str(found.dtype) == str(expected.dtype)
    rtol = 2e-4 if str(expected.dtype) in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=rtol * max(1, np.abs(expected).max(initial=0)))


def gradient(f: Callable[..., Any], *xs: Any) -> list[Any]:
    tensors = [tc.asarray(x) for x in xs]
    with tc.GradientTape() as tape:
        tape.watch(tensors)
        y = f(*tensors)
    return [g.numpy() for g in tape.gradient(y, tensors)]


# -- on a strict library, from the samples


def cases() -> Iterator[Any]:
    for name in NAMES:
        samples: Any = registry[name].samples
        for k, sample in enumerate(samples(Draw(1))):
            if not isinstance(sample, Refused):
                yield pytest.param(name, sample, id=f"{name}-{k}")


def outcome(name: str, sample: Sample, backend: Any) -> list[Any]:
    """Values and gradients of a sample, whose arrays are moved to the backend."""
    leaves: list[Any] = []

    def move(value: Any) -> Any:
        if isinstance(value, list):
            return [move(v) for v in value]
        if isinstance(value, tc.Tensor):
            value = tc.asarray(value.numpy(), backend=backend)
            if value.dtype.inexact:
                leaves.append(value)
        return value

    args = [move(a) for a in sample.args]
    with tc.GradientTape() as tape:
        tape.watch(leaves)
        result = registry[name].function(*args, **sample.kwargs)
        results = list(result) if isinstance(result, tuple) else [result]
        y = sum(tc.sum(tc.real(r * r)) for r in results if r.dtype.inexact)
    return [*results, *tape.gradient(y, leaves, unconnected_gradients="zero")]


@pytest.mark.parametrize(("name", "sample"), list(cases()))
def test_a_strict_library_agrees_with_numpy(name: str, sample: Sample) -> None:
    found, expected = outcome(name, sample, STRICT), outcome(name, sample, "numpy")
    for a, b in zip(found, expected, strict=True):
        assert a.backend is STRICT
        close(a, b.numpy())


# -- einsum


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]), ("ba", [(2, 3)]), ("ij -> ji", [(2, 3)]), ("->", [()]), (",", [(), ()]),
        ("...", [(2, 3)]), ("...i->...", [(2, 3)]), ("i...->...i", [(2, 3, 4)]), ("ij->...ji", [(2, 3)]),
        ("...ab,...bc", [(5, 1, 2, 3), (4, 3, 2)]), ("aab,b->a", [(2, 2, 3), (3,)]), ("abcabc->cb", [(2, 3, 1) * 2]),
        ("zA,Ab", [(2, 3), (3, 2)]), ("ij,ij->", [(2, 3), (2, 3)]), ("a,b,c,d->dbca", [(2,), (3,), (4,), (5,)]),
        ("ij,jk,kl,lm->im", [(2, 9), (9, 2), (2, 9), (9, 3)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,jk,ki->", [(2, 3), (3, 4), (4, 2)]), ("i,i,i->i", [(3,), (1,), (3,)]), ("ij,kl->", [(2, 0), (3, 2)]),
        ("ijk,k->ij", [(0, 2, 3), (3,)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_einsum_gives_what_numpy_gives(expression: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    arrays = [matrix(k, *shape, dtype=dtype) for k, shape in enumerate(shapes)]
    close(tc.einsum(expression, *map(tc.asarray, arrays)), np.einsum(expression, *arrays))


def test_einsum_of_integers_and_of_numbers() -> None:
    a = np.arange(6).reshape(2, 3)
    assert tc.einsum("ij,kj->ik", tc.asarray(a), tc.asarray(a)).tolist() == (a @ a.T).tolist()
    x = tc.asarray([1.0, 2.0])
    assert tc.einsum("i,,->i", x, 2.0, 3).tolist() == [6.0, 12.0]
    assert tc.einsum("i,->i", x, 2.0).dtype is tc.float32


def test_einsum_with_lists_of_subscripts() -> None:
    a, b = matrix(1, 2, 3), matrix(2, 3, 4)
    close(tc.einsum(tc.asarray(a), [0, 1], tc.asarray(b), [1, 2], [0, 2]), a @ b)
    close(tc.einsum(tc.asarray(a), [30, 1]), np.einsum(a, [30, 1]))
    close(tc.einsum(tc.asarray(a), [..., 0], [0, ...]), a.T)
    with pytest.raises(TypeError, match="a string of subscripts, or each operand be followed by a list"):
        tc.einsum(tc.asarray(a), tc.asarray(b))
    with pytest.raises(ValueError, match="numbers below 52, got 52"):
        tc.einsum(tc.asarray(a), [52, 1])


def test_the_gradient_of_a_trace_is_the_identity_and_of_a_sum_over_one_operand_is_spread() -> None:
    (g,) = gradient(lambda x: tc.einsum("ii", x), matrix(1, 3, 3))
    assert g.tolist() == np.eye(3).tolist()
    g, h = gradient(lambda x, y: tc.einsum("ij,k->", x, y), np.ones((2, 3)), np.array([1.0, 2.0]))
    assert (g.tolist(), h.tolist()) == ([[3.0] * 3] * 2, [6.0, 6.0])


def test_einsum_multiplies_a_chain_in_a_good_order() -> None:
    """From the left this would make a matrix of 10**10 elements."""
    n = 100_000
    a, b, c = tc.ones((n, 1)), tc.ones((1, n)), tc.ones((n, 1))
    assert tc.einsum("ij,jk,kl->l", a, b, c).tolist() == pytest.approx([float(n) ** 2])


# -- systems of equations


@pytest.mark.usefixtures("_either")
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
        close(tc.linalg.solve_triangular(tc.asarray(given), tc.asarray(b), lower=lower, unit_diagonal=unit), expected)
    if n <= 5 and len(shapes[0]) == 2:
        found = tc.linalg.solve_triangular(tc.asarray(other), tc.asarray(b), lower=lower, unit_diagonal=unit)
        close(found, expected)


@pytest.mark.usefixtures("_either")
def test_substitution_is_accurate_where_the_inverse_is_not() -> None:
    """The matrix has a condition number of about 1e12; the solution by substitution has all its digits."""
    n = 64
    a = np.tril(np.full((n, n), -0.5)) + 1.5 * np.eye(n)
    x = np.arange(1.0, n + 1)
    found = tc.linalg.solve_triangular(tc.asarray(a), tc.asarray(a @ x), lower=True)
    tc.testing.assert_close(found.numpy(), x, rtol=1e-8)


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (90, 90), (3, 7, 7), (5, 3), (3, 5), (60, 90), (2, 9, 4)])
def test_lu_factors(shape: tuple[int, ...], dtype: str) -> None:
    x = matrix(1, *shape, dtype=dtype)
    factors = tc.linalg.lu_factor(tc.asarray(x))
    lu, permutation = factors.LU.numpy(), factors.permutation.numpy()
    k = min(shape[-2:])
    low, up = np.tril(lu[..., :k], -1) + np.eye(*lu[..., :k].shape[-2:], dtype=dtype), np.triu(lu[..., :k, :])
    assert np.abs(low).max() <= (2**0.5 if "complex" in dtype else 1) + 1e-6
    close(tc.asarray(low @ up), np.take_along_axis(x, permutation[..., None], axis=-2))


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("shapes", [
    ((5, 5), (5,)), ((70, 70), (70, 3)), ((2, 4, 4), (4,)), ((2, 4, 4), (3, 1, 4, 2)), ((4, 4), (2, 4, 3)),
])  # fmt: skip
def test_solving_by_factors(shapes: Any, dtype: str) -> None:
    a, b = regular(1, *shapes[0], dtype=dtype), matrix(2, *shapes[1], dtype=dtype)
    factors = tc.linalg.lu_factor(tc.asarray(a))
    for trans, system in ((0, a), (1, a.mT), (2, a.conj().mT)):
        close(tc.linalg.lu_solve(factors, tc.asarray(b), trans=trans), np.linalg.solve(system, b))  # type: ignore[arg-type]
    spd = a @ a.conj().mT
    for upper in (False, True):
        factor = tc.linalg.cholesky(tc.asarray(spd), upper=upper)
        close(tc.linalg.cho_solve(factor, tc.asarray(b), upper=upper), np.linalg.solve(spd, b))


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("shapes", [((3, 3), (3,)), ((250, 250), (250, 4)), ((2, 3, 3), (3, 2))])
def test_the_gradients_of_solve_are_those_of_a_product_with_the_inverse(shapes: Any) -> None:
    a, b = regular(1, *shapes[0]), matrix(2, *shapes[1])
    w = tc.asarray(matrix(3, *np.linalg.solve(a, b).shape))
    expected = gradient(lambda a, b: tc.sum(tc.matmul(tc.linalg.inv(a), b) * w), a, b)
    found = gradient(lambda a, b: tc.sum(tc.linalg.solve(a, b) * w), a, b)
    factored = gradient(lambda a, b: tc.sum(tc.linalg.lu_solve(tc.linalg.lu_factor(a), b) * w), a, b)
    for f, g, e in zip(found, factored, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-10)
    # of one of the two only
    np.testing.assert_allclose(gradient(lambda a: tc.sum(tc.linalg.solve(a, tc.asarray(b)) * w), a)[0], expected[0])
    np.testing.assert_allclose(gradient(lambda b: tc.sum(tc.linalg.solve(tc.asarray(a), b) * w), b)[0], expected[1])


@pytest.mark.usefixtures("_either")
def test_the_gradient_of_a_large_cholesky_factor() -> None:
    """By halves as by one formula: the derivative of the log-determinant is the inverse."""
    a = regular(1, 450, 450)
    a = a @ a.T
    (g,) = gradient(lambda x: 2 * tc.sum(tc.log(tc.linalg.diagonal(tc.linalg.cholesky(x)))), a)
    np.testing.assert_allclose(g, np.linalg.inv(a), rtol=1e-8, atol=1e-10)
    assert np.array_equal(g, g.T)


@pytest.mark.usefixtures("_either")
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


# -- the exponential


def test_the_exponential_of_what_is_known() -> None:
    angle = 30.0
    turn = tc.asarray([[0.0, -angle], [angle, 0.0]], dtype="float64")
    cos, sin = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(tc.linalg.expm(turn).numpy(), [[cos, -sin], [sin, cos]], atol=1e-12)
    assert tc.linalg.expm(tc.zeros((3, 3))).tolist() == np.eye(3).tolist()
    diagonal = np.diag([-700.0, -1.0, 0.0, 1e-9, 20.0])
    np.testing.assert_allclose(tc.linalg.expm(tc.asarray(diagonal)).numpy(), np.diag(np.exp(np.diag(diagonal))), 1e-11)
    assert tc.linalg.expm(tc.asarray([[1.0]])).item() == pytest.approx(np.e)


def test_each_matrix_of_a_stack_is_scaled_for_itself() -> None:
    large, small = matrix(1, 3, 3) * 40, matrix(2, 3, 3) * 1e-8
    found = tc.linalg.expm(tc.asarray(np.stack([large, small])))
    np.testing.assert_allclose(found.numpy()[1], np.eye(3) + small, rtol=1e-15, atol=1e-15)
    tc.testing.assert_close(found.numpy()[0], tc.linalg.expm(tc.asarray(large)).numpy(), rtol=1e-12)
    broken = tc.linalg.expm(tc.asarray(np.stack([np.full((3, 3), np.inf), small])))
    assert np.isnan(broken.numpy()).all(axis=(-2, -1)).tolist() == [True, False]


def test_the_gradient_of_the_exponential_for_cotangents_of_any_size() -> None:
    x = matrix(1, 4, 4)
    (expected,) = gradient(lambda t: tc.sum(tc.linalg.expm(t)[0]), x)
    for scale in (1e-200, 1e200):
        (found,) = gradient(lambda t, scale=scale: scale * tc.sum(tc.linalg.expm(t)[0]), x)
        tc.testing.assert_close(found / scale, expected, rtol=1e-12)
    (zero,) = gradient(lambda t: 0 * tc.sum(tc.linalg.expm(t)), x)
    assert zero.tolist() == np.zeros((4, 4)).tolist()


# -- products


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 3), (3, 2)), ((3,), (2, 2)), ((2, 2, 2), (3,)), ((), (2, 2)),
    ((0, 2), (3, 3))])  # fmt: skip
def test_kron(shapes: Any) -> None:
    a, b = (matrix(k, *shape) for k, shape in enumerate(shapes))
    close(tc.kron(tc.asarray(a), tc.asarray(b)), np.kron(a, b))


@pytest.mark.parametrize(
    "shapes",
    [[(2, 3), (3, 4)], [(3,), (3, 4), (4, 2)], [(2, 9), (9, 2), (2, 9), (9,)], [(3,), (3,)], [(3,), (3, 3), (3,)],
     [(4,), (2, 4, 3), (3, 5)], [(4,), (2, 4, 3), (3,)], [(5, 2, 3), (3, 4), (5, 4, 2)]],
)  # fmt: skip
def test_multi_dot(shapes: Any) -> None:
    arrays = [matrix(k, *shape) for k, shape in enumerate(shapes)]
    expected: Any = arrays[0]
    for k, x in enumerate(arrays[1:], 1):
        if expected.ndim > 1 and len(shapes[0]) == 1 and k > 1:
            expected = (expected[..., None, :] @ (x if x.ndim > 1 else x[:, None]))[..., 0, :]
            expected = expected if x.ndim > 1 else expected[..., 0]
        else:
            expected = expected @ x
    close(tc.linalg.multi_dot([tc.asarray(x) for x in arrays]), expected)


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
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# -- sparse products


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (2, 7, 3), (7, 0)])
def test_sparse_products_are_those_of_the_dense_matrix(shape: tuple[int, ...], dtype: str) -> None:
    a = matrix(1, 5, 7, dtype=dtype)
    a[np.random.default_rng(2).random(a.shape) < 0.7] = 0
    a[3] = 0
    rows, indices = map(np.asarray, np.nonzero(a))
    indptr = np.searchsorted(rows, np.arange(6))
    data, dense = a[rows, indices], matrix(3, *shape, dtype=dtype)
    close(tc.linalg.csr_matmul(*map(tc.asarray, (data, indices, indptr, dense))), a @ dense)
    w = tc.asarray(matrix(4, *(a @ dense).shape, dtype=dtype))
    places = tc.asarray(indices), tc.asarray(indptr)
    expected = gradient(lambda a, d: tc.sum(tc.real(tc.matmul(a, d) * w)), a, dense)
    found = gradient(
        lambda v, d: tc.sum(tc.real(tc.linalg.csr_matmul(v, *places, d) * w)),
        data,
        dense,
    )
    rtol = 1e-4 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(found[0], expected[0][rows, indices], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found[1], expected[1], rtol=rtol, atol=rtol)


@pytest.mark.usefixtures("_either")
def test_what_is_not_finite_stays_in_its_row_of_a_sparse_product() -> None:
    data, indices, indptr = tc.asarray([tc.inf, tc.nan, 1.0]), tc.asarray([0, 1, 2]), tc.asarray([0, 1, 2, 3])
    found = tc.linalg.csr_matmul(data, indices, indptr, tc.ones(3)).tolist()
    assert (found[0], found[2]) == (tc.inf, 1.0)
    assert np.isnan(found[1])


# -- determinants of singular matrices


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


# -- the order of sets


@pytest.mark.parametrize("backend", [None, STRICT], ids=["own", "strict"])
@pytest.mark.parametrize("values", [[0, 1, 0, 1], [3, 1, 2, 3, 1], [2.5, -1.0, 2.5, 0.0], [[1, 0], [1, 1]], []])
def test_different_elements_come_in_order(values: Any, backend: Any) -> None:
    x = np.asarray(values)
    expected = np.unique(x)
    found = tc.unique_all(tc.asarray(x, backend=backend))
    np.testing.assert_array_equal(found.values, expected)
    np.testing.assert_array_equal(tc.unique_values(tc.asarray(x, backend=backend)), expected)
    for unique in (tc.unique_counts, tc.unique_inverse):
        result: Any = unique(tc.asarray(x, backend=backend))
        np.testing.assert_array_equal(result.values, expected)
    np.testing.assert_array_equal(x.reshape(-1)[found.indices.numpy()], expected)
    np.testing.assert_array_equal(expected[found.inverse_indices.numpy()], x)


def test_transpose_has_numpys_name_and_meaning() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for axes in (None, (2, 0, 1), [1, 0, -1]):
        np.testing.assert_array_equal(tc.transpose(tc.asarray(x), axes), np.transpose(x, axes))
    tc.testing.check_grads(tc.transpose, (tc.asarray(x),))
    with pytest.raises(ValueError, match="permute_dims"):
        tc.transpose(tc.asarray(x), (0, 0, 1))
