"""Sparse Jacobians and Hessians of functions that XLA compiles: the products are one program, on JAX's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc


@pytest.fixture(autouse=True)
def _on_jax():
    with tc.use_backend("jax"):
        yield


def rosenbrock(x: Any) -> Any:
    return tc.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def differences(x: Any) -> Any:
    return x[1:] - x[:-1] ** 2


def spread(x: Any) -> Any:
    """Few rows: a product for each is less than one for each column."""
    return tc.stack([tc.sum(x**3), tc.sum(tc.sin(x))])


def point(n: int = 23) -> Any:
    return tc.asarray(np.linspace(-1.0, 1.0, n))


CASES: list[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = [
    (tc.sparse_hessian, tc.hessian_sparsity, rosenbrock),
    (tc.sparse_jacobian, tc.jacobian_sparsity, differences),
    (tc.sparse_jacobian, tc.jacobian_sparsity, spread),
]


@pytest.mark.parametrize(("derivative", "sparsity", "f"), CASES, ids=["hessian", "columns", "rows"])
def test_products_are_one_program(derivative, sparsity, f, programs) -> None:
    x = point()
    pattern = sparsity(f, x)
    dense = (jax.hessian if derivative is tc.sparse_hessian else jax.jacfwd)(lambda x: _plain(f, x))(x.array)
    compiled = tc.function(f, compile="xla")
    before = len(programs)
    found = [derivative(compiled, x + k, pattern).toarray() for k in (0.0, 0.0, 1.0)]
    assert len(programs) - before <= 3  # with `x + k`, and the array of directions
    np.testing.assert_allclose(found[0], np.asarray(dense), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[2], derivative(f, x + 1.0, pattern).toarray(), rtol=1e-12, atol=1e-12)


def _plain(f: Callable[..., Any], x: Any) -> Any:
    jnp = jax.numpy
    if f is rosenbrock:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    return x[1:] - x[:-1] ** 2 if f is differences else jnp.stack([jnp.sum(x**3), jnp.sum(jnp.sin(x))])


def test_a_variable_has_its_value_of_the_call() -> None:
    factor = tc.Variable(tc.asarray(2.0, dtype=tc.float64))
    compiled = tc.function(lambda x: tc.sum(factor * x**3), compile="xla")
    for value in (2.0, 2.0, 5.0):
        factor.assign(tc.asarray(value, dtype=tc.float64))
        found = tc.sparse_hessian(compiled, point(5)).toarray()
        np.testing.assert_allclose(np.diagonal(found), 6 * value * np.linspace(-1, 1, 5), atol=1e-12)


def test_what_cannot_be_compiled_runs_as_python() -> None:
    def f(x: Any) -> Any:
        return tc.sum(x**3) if float(x[0]) < 0 else tc.sum(x**4)

    compiled = tc.function(f, compile="xla", fallback="silent")
    for x in (point(5), -point(5)):
        expected = tc.sparse_hessian(f, x, np.eye(5)).toarray()
        np.testing.assert_allclose(tc.sparse_hessian(compiled, x, np.eye(5)).toarray(), expected)


def test_errors_are_those_of_a_function_that_is_not_compiled() -> None:
    x = point(5)
    for f, derivative, sparsity in (
        (rosenbrock, tc.sparse_hessian, np.eye(5)),
        (differences, tc.sparse_jacobian, np.eye(5)),
        (spread, tc.sparse_jacobian, np.ones((1, 5))),
        (lambda x: (x, x), tc.sparse_jacobian, np.eye(5)),
    ):
        with pytest.raises((TypeError, ValueError)) as expected:
            derivative(f, x, sparsity)
        with pytest.raises(expected.type) as found:
            derivative(tc.function(f, compile="xla"), x, sparsity)
        assert str(found.value) == str(expected.value)


def test_a_complex_result_goes_by_columns() -> None:
    def f(x: Any) -> Any:
        return tc.stack([tc.sum(tc.exp(1j * x)), tc.sum(x) + 0j])

    x = point(5)
    found = tc.sparse_jacobian(tc.function(f, compile="xla"), x).toarray()
    np.testing.assert_allclose(found, [1j * np.exp(1j * x.numpy()), np.ones(5)])
