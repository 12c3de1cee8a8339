"""tc.scipy_objective: functions of pytrees for scipy.optimize."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc

optimize = pytest.importorskip("scipy.optimize")


def rosenbrock(x: Any) -> Any:
    return tc.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG", "Newton-CG"])
def test_methods_find_the_minimum(method: str) -> None:
    fun, x0, restore = tc.scipy_objective(rosenbrock, tc.asarray([-1.2, 1.0, 0.5], dtype=tc.float64))
    result = optimize.minimize(fun, x0, jac=True, method=method, options={"maxiter": 1000})
    np.testing.assert_allclose(restore(result.x).numpy(), 1.0, atol=1e-3)


def test_value_and_gradient_are_those_of_scipy() -> None:
    x = np.asarray([-1.2, 1.0, 0.5, 2.0])
    fun, x0, _ = tc.scipy_objective(rosenbrock, tc.asarray(x))
    value, gradient = fun(x0)
    assert type(value) is float
    assert value == pytest.approx(optimize.rosen(x))
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, optimize.rosen_der(x), rtol=1e-12)


@pytest.mark.parametrize("method", ["trust-ncg", "trust-krylov", "Newton-CG"])
def test_products_with_the_hessian(method: str) -> None:
    x = np.asarray([-1.2, 1.0, 0.5])
    tree = {"first": tc.asarray(x[:1]), "rest": tc.asarray(x[1:]), "unused": tc.zeros(1)}

    def f(t: Any, factor: float = 1.0) -> Any:
        return factor * rosenbrock(tc.concat([t["first"], t["rest"]]))

    fun, x0, restore = tc.scipy_objective(f, tree)
    direction = np.asarray([1.0, -2.0, 0.5, 7.0])
    expected = optimize.rosen_hess_prod(x, direction[:3])
    tc.testing.assert_close(fun.hessp(x0, direction), [*expected, 0.0], rtol=1e-12)
    tc.testing.assert_close(fun.hessp(x0, direction, 2.0), [*(2 * expected), 0.0], rtol=1e-12)
    calls = optimize.minimize(fun, x0, jac=True, hessp=fun.hessp, method=method, args=(2.0,))
    np.testing.assert_allclose(restore(calls.x)["rest"].numpy(), 1.0, atol=1e-4)
    assert calls.nhev > 0


def test_structure_dtypes_and_unused_leaves() -> None:
    tree = {
        "a": tc.asarray([[1.0, 2.0]], dtype=tc.float32),
        "b": (tc.asarray(3.0, dtype=tc.float64), 4.0),
        "c": [tc.zeros(2)],
    }
    fun, x0, restore = tc.scipy_objective(lambda t, k: k * tc.sum(t["a"]) * t["b"][0] + t["b"][1], tree)
    assert x0.tolist() == [1.0, 2.0, 3.0, 4.0, 0.0, 0.0]
    value, gradient = fun(x0, 2.0)
    assert value == 22.0
    assert gradient.tolist() == [6.0, 6.0, 6.0, 1.0, 0.0, 0.0]
    again = restore(x0)
    assert (again["a"].dtype, again["b"][0].dtype) == (tc.float32, tc.float64)
    assert (again["a"].shape, again["b"][0].shape, again["c"][0].shape) == ((1, 2), (), (2,))
    x0[:] = 0
    assert again["a"].tolist() == [[1.0, 2.0]]


def test_rows_that_were_gathered() -> None:
    fun, x0, _ = tc.scipy_objective(lambda t: tc.sum(tc.gather(t, tc.asarray([1, 1]))), tc.zeros((3, 2)))
    assert fun(x0)[1].tolist() == [0, 0, 2, 2, 0, 0]


def test_mistakes() -> None:
    with pytest.raises(TypeError, match=r"x0\['n'\] has dtype int64"):
        tc.scipy_objective(rosenbrock, {"n": tc.asarray([1, 2])})
    with pytest.raises(TypeError, match=r"x0\[1\] is no array but None"):
        tc.scipy_objective(rosenbrock, [tc.ones(2), None])
    with pytest.raises(ValueError, match="no elements"):
        tc.scipy_objective(rosenbrock, [])
    fun, _, restore = tc.scipy_objective(lambda x: x * x, tc.ones(2))
    with pytest.raises(ValueError, match="must return one number"):
        fun(np.ones(2))
    with pytest.raises(ValueError, match=r"x0 has 2 elements; got an array of shape \(3,\)"):
        restore(np.ones(3))
