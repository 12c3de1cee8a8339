"""Simplifications for XLA: equal constants are one, masks that hide nothing go, and so do calls that nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.flows import for_xla

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(5)


def left(f: Callable[..., Any], *args: Any) -> list[str]:
    """Return the names of the calls that are left for XLA, after a check of what they compute."""
    compiled = tc.function(f, compile="xla")
    compiled(*args)
    for found, expected in zip(tc.tree_leaves(compiled(*args)), tc.tree_leaves(f(*args)), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(expected.numpy()))
        assert found.dtype is expected.dtype
    return [instruction.name for instruction in for_xla(compiled._compiled.all[0].program).instructions]


def square(n: int = 12) -> Any:
    x = RNG.standard_normal((n, n))
    x[0, 1], x[1, 0], x[2, 2], x[3, 0] = np.nan, np.inf, -0.0, -0.0
    return tc.asarray(x)


def test_equal_triangles_are_taken_once() -> None:
    assert left(lambda x: (-tc.tril(x), tc.abs(tc.tril(x))), square()).count("where") == 1


def test_a_triangle_of_a_triangle_is_the_smaller_one() -> None:
    x = square()
    assert left(lambda x: tc.tril(tc.tril(x)), x) == ["where"]
    assert left(lambda x: tc.tril(tc.tril(x), k=1), x) == ["where"]
    assert left(lambda x: tc.tril(tc.tril(x), k=-2), x) == ["where"]
    assert left(lambda x: tc.triu(tc.tril(x)), x) == ["where", "where"]  # the diagonal


def test_other_numbers_than_the_inner_ones_stay() -> None:
    mask = np.tri(12, dtype=bool)

    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.where(tc.asarray(mask), tc.where(tc.asarray(mask), x, 1), 0)

    assert left(f, square()) == ["where", "where"]


def test_masks_that_are_constant_go() -> None:
    yes, no = np.ones((12, 12), bool), np.zeros((12, 12), bool)

    def f(x: tc.Tensor, y: tc.Tensor) -> tuple[tc.Tensor, ...]:
        hidden = tc.where(tc.asarray(no) & tc.isnan(x), 0, x)
        return tc.negative(tc.where(tc.asarray(yes), x, y)), tc.negative(tc.where(tc.asarray(no), x, y)), -hidden

    names = left(f, square(), square())
    assert "where" not in names
    assert "isnan" not in names


def test_results_that_are_equal_constants_are_arrays_of_their_own() -> None:
    f = tc.function(lambda x: (x + 1, tc.asarray(np.arange(100.0)), tc.asarray(np.arange(100.0))), compile="xla")
    for _ in range(3):
        _, one, other = f(tc.ones(3))
        assert one.tolist() == other.tolist() == list(range(100))
        assert one._array is not other._array


def test_a_zero_and_a_negative_one_are_two_constants() -> None:
    zeros = [np.zeros(100), -np.zeros(100)]
    left(lambda x: [tc.copysign(x, tc.asarray(z)) for z in zeros], tc.ones(100, dtype=tc.float64))


def test_unused_calls_of_kernels_go_also_where_others_would_check_values() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        tc.linalg.solve_triangular(x, x)
        return x * 2

    assert "solve_triangular" not in left(f, tc.asarray(np.eye(12) + 1.0))


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float64"])
def test_any_and_all(name: str, dtype: str) -> None:
    values = np.zeros((3, 40, 40), dtype)
    values[1, 3, 4], values[2] = 1, 2
    if dtype.startswith("float"):
        values[0, 1, 1], values[0, 2, 2] = -0.0, np.nan
    for x in (tc.asarray(values), tc.asarray(values[:, :0]), tc.asarray(values[:2]), tc.asarray(values[0, 0])):
        every: list[dict[str, Any]] = [{}, {"axis": (-2, -1)[-x.ndim :], "keepdims": True}, {"axis": -1}]
        left(lambda x, every=every: [getattr(tc, name)(x, **options) for options in every], x)


def test_nan_of_a_masked_derivative_is_found_as_it_is_eagerly() -> None:
    """Zeros that a mask makes stay zeros through infinite derivatives, in second derivatives, too."""

    def f(v: tc.Tensor) -> tc.Tensor:
        safe = tc.where(v > 0, v, 0)
        factor = tc.linalg.cholesky(tc.eye(3, dtype=v.dtype) * 4 + tc.sqrt(safe)[:, None] * tc.sqrt(safe) * 0.1)
        solved = tc.linalg.solve_triangular(factor, tc.sqrt(tc.where(v > 0, v, 0))[:, None], lower=True)
        return tc.sum(solved**2) + tc.sum(tc.log(tc.linalg.diagonal(factor)))

    for values in ([0.3, 0.7, 0.2], [0.3, -0.7, 0.0], [0.0, 0.0, -1.0], [np.nan, 1.0, 2.0]):
        v = tc.asarray(np.asarray(values))
        for derivative in (tc.grad(f), tc.hessian(f)):
            found = tc.function(derivative, compile="xla")
            found(v)
            np.testing.assert_allclose(found(v).numpy(), derivative(v).numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"descending": True}, {"stable": False}], ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (2, 0)], ids=str)
def test_a_sort_and_its_gradient_sort_once(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    x = RNG.permutation(np.arange(12.0)[: np.prod(shape)]).reshape(shape)
    w = tc.asarray(np.arange(float(x.size)).reshape(shape))
    f = tc.value_and_grad(lambda x: tc.sum(tc.sort(x, **options) * w))
    names = left(f, tc.asarray(x))
    assert names.count("sort_with_residuals") == 1
    assert {"sort", "argsort", "take_along_axis"}.isdisjoint(names)


def test_equal_elements_and_nan_are_sorted_as_without_the_order() -> None:
    x = np.asarray([2.0, np.nan, 2.0, -0.0, np.inf, 0.0, -np.inf])
    assert left(lambda x: (tc.sort(x), tc.argsort(x)), tc.asarray(x)) == ["sort_with_residuals"]
    x = tc.asarray(x[:-2])  # NumPy, which has no descending order, turns that of 0.0 and -0.0 around
    assert left(lambda x: (tc.sort(x, descending=True), tc.argsort(x, descending=True)), x) == ["sort_with_residuals"]


def test_ranks_are_found_by_one_sort() -> None:
    x = tc.asarray(RNG.standard_normal((4, 6)))
    assert left(lambda x: tc.argsort(tc.argsort(x, axis=0), axis=0), x) == ["argsort", "inverse_permutation"]
    assert left(lambda x: tc.argsort(tc.argsort(x, axis=0), axis=1), x) == ["argsort", "argsort"]
    assert left(lambda x: tc.argsort(tc.argsort(x), descending=True), x) == ["argsort", "argsort"]


def test_elements_that_are_taken_by_ranks_of_another_axis_are_taken() -> None:
    x = tc.asarray(RNG.standard_normal((4, 4)))

    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.take_along_axis(x, tc.argsort(tc.argsort(x, axis=0), axis=0), axis=1)

    assert left(f, x) == ["argsort", "inverse_permutation", "take_along_axis"]


def test_the_tangent_of_a_difference_is_a_difference() -> None:
    x = tc.asarray([1.0, -0.0, 0.0, -2.5])
    names = left(lambda x, v: tc.jvp(lambda x: x[:, None] - x, (x,), (v,)), x, tc.asarray([0.0, -0.0, 2.0, 1.0]))
    assert names.count("subtract") == 2
    assert {"multiply", "negative", "add"}.isdisjoint(names)


def test_products_with_minus_one_that_are_no_negatives_stay() -> None:
    y = tc.asarray([True, False])
    assert left(lambda y: y * -1, y) == ["multiply"]
    z = tc.asarray([2 + 1j, -1j])
    assert left(lambda z: tc.imag(z * -1), z) == ["multiply", "imag"]
    x = tc.asarray(np.asarray([1, -128, 0], "int8"))
    assert left(lambda x: x * -1, x) == ["negative"]
    assert left(lambda x, y: x + y * -1.0, tc.asarray([2.0, 0.0]), tc.asarray(np.asarray([0.5, 0.0], "float32"))) == [
        "subtract"
    ]


def test_constants_of_some_size_are_part_of_the_code() -> None:
    k = np.arange(1.0, 2050.0)  # XLA multiplies by the reciprocals of what it knows
    f = tc.function(lambda x: tc.fft.irfft(tc.fft.rfft(x) / tc.asarray(k)), compile="xla")
    x = tc.asarray(RNG.standard_normal(4096))
    expected = f.python(x).numpy()
    for _ in range(2):
        np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-12, atol=1e-12)
    assert f._compiled.all[0].run.segment.large == ()


def test_a_transposed_product_with_a_transposed_factor_is_the_product_of_the_others() -> None:
    # Of whole numbers, whose sums are exact in any order.
    a, b, row = (tc.asarray(RNG.integers(-9, 10, shape), dtype="float64") for shape in ((3, 4, 5), (3, 4, 6), (4,)))
    assert left(lambda a, b: (a.mT @ b).mT, a, b) == ["matrix_transpose", "matmul"]
    assert left(lambda a, b: (a[0].T @ b[0]).T, a, b).count("matrix_transpose") == 1
    assert left(lambda a, b: (product := a.mT @ b, product.mT), a, b) == [
        "matrix_transpose", "matmul", "matrix_transpose"
    ]  # fmt: skip

    def products(a: tc.Tensor, b: tc.Tensor) -> list[tc.Tensor]:
        both = a[0].T @ b[0]
        return [(a.mT @ b).mT, (a[1].mT @ b).mT, (a.mT @ b[1]).mT, both.T, both.mT @ both, a.mT @ row]

    left(products, a, b)
