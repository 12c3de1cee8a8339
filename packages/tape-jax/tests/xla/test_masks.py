"""NaN behind masks: what a sweep does about it takes few calls of XLA, and a masked element has the gradient 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.flows import for_xla
from tape_jax.xla.lowering import MASKED, UNMASKED

pytestmark = pytest.mark.usefixtures("backend")

X = np.array([-1.0, 0.0, 0.25, 4.0, -np.inf, np.inf, np.nan, 1e-300])


def compiled(f: Callable[..., Any], *args: Any) -> tuple[list[np.ndarray[Any, Any]], list[str]]:
    """Return what the function gives, compiled, and the names of XLA's calls; after a comparison with eager results."""
    made = tc.function(f, compile="xla")
    with np.errstate(all="ignore"):
        expecteds = tc.tree_leaves(f(*args))
        for _ in range(2):
            found = [leaf.numpy() for leaf in tc.tree_leaves(made(*args))]
    for one, expected in zip(found, expecteds, strict=True):
        np.testing.assert_allclose(one, expected.numpy(), rtol=1e-12)
    return found, [i.name for i in for_xla(made._compiled.all[0].program).instructions]


CASES: dict[str, Callable[[Any], Any]] = {
    "log": lambda x: tc.where(x > 0, tc.log(x), 0),
    "sqrt": lambda x: tc.where(x > 0, 3 * tc.sqrt(x) ** 3, x),
    "a quotient": lambda x: tc.where(tc.abs(x) > 0.5, 1 / x, 0),
    "a product, of data that are missing": lambda x: tc.where(tc.isnan(x), 0, x * tc.exp(-x)),
    "a mask in a mask": lambda x: tc.where(x > 0, tc.where(x < 1, tc.log(x), tc.sqrt(x)), 0),
    "nothing": lambda x: x * tc.sqrt(tc.where(x > 0, x, 0)),
    "a number of 0": lambda x: tc.where(x > -0.5, tc.sqrt(x) * 0.0, x),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_eager_code(case: str) -> None:
    function = CASES[case]
    _, names = compiled(tc.grad(lambda x: tc.sum(function(x))), tc.asarray(X))
    assert "isnan" not in names or case.startswith("a product")  # whose mask it is


@pytest.mark.parametrize("case", CASES)
def test_derivatives_of_gradients_are_those_of_eager_code(case: str) -> None:
    function = CASES[case]

    def f(x: tc.Tensor, v: tc.Tensor) -> Any:
        gradient = tc.grad(lambda x: tc.sum(function(x)))
        return tc.jvp(gradient, (x,), (v,)), tc.grad(lambda x: tc.sum(gradient(x) * v))(x)

    compiled(f, tc.asarray(X), tc.asarray(np.linspace(-1.0, 2.0, X.size)))


def test_a_zero_cotangent_that_is_no_mask_has_a_derivative_of_its_own() -> None:
    # d/dx of x**2 * where(x < 1, x, 0) has the cotangent x**2, which is 0 at 0, and the second derivative 6x.
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.where(x < 1, x, 0) * x**2)

    found, _ = compiled(tc.grad(lambda x: tc.sum(tc.grad(f)(x))), tc.asarray(np.array([0.0, 0.5, -1.0])))
    np.testing.assert_allclose(found[0], [0.0, 3.0, -6.0], atol=1e-12)


@pytest.mark.parametrize("size", [3, 64])
def test_a_product_of_matrices_behind_a_mask(size: int) -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(size, size)), rng.normal(size=(size, size))

    def f(w: tc.Tensor, x: tc.Tensor, use: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.where(use, x @ w, 0.0) ** 2)

    for data in (x, np.where(x > 2, np.inf, x), np.where(x > 1, np.nan, x)):
        for use in (False, True, x > 0):
            given = tc.asarray(w), tc.asarray(data), tc.asarray(np.broadcast_to(use, x.shape).copy())
            (found,), names = compiled(tc.grad(f), *given)
            assert UNMASKED in names
            assert "any" not in names
            if use is False:
                assert not found.any()


def test_numbers_that_are_surely_finite_need_no_look() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.where(x > 0, -2.0 * x * tc.asarray(np.arange(8.0)), 0))

    _, names = compiled(tc.grad(f), tc.asarray(X))
    assert MASKED not in names
    assert "isnan" not in names


def test_jax_differentiates_a_zero_cotangent(backend: str) -> None:
    if backend != "jax":
        pytest.skip("JAX's own arrays")

    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.grad(lambda x: tc.sum(tc.where(x < 1, x * x * x, 0)))(tc.sin(x))

    function = tc.function(f, compile="xla")
    function(tc.asarray(X))
    x = jnp.asarray([0.0, 0.5, 2.0])
    found = jax.grad(lambda x: function(tc.asarray(x)).array.sum())(x)
    expected = jax.grad(lambda x: jnp.sum(jnp.where(jnp.sin(x) < 1, 3 * jnp.sin(x) ** 2, 0)))(x)
    np.testing.assert_allclose(found, expected)
