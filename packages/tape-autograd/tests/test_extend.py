"""Primitives with rules of the user's, vector spaces, check_grads, and the helpers of misc."""

from __future__ import annotations

import numpy
import pytest
import tape_autograd.numpy as np
from tape_autograd import builtins, deriv, grad, hessian, jacobian, make_vjp
from tape_autograd.extend import (
    def_linear,
    defjvp,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    vspace,
)
from tape_autograd.misc import flatten
from tape_autograd.misc.fixed_points import fixed_point
from tape_autograd.misc.optimizers import adam, rmsprop, sgd
from tape_autograd.test_util import check_grads

X = numpy.array([0.5, -1.0, 2.0])


def test_a_primitive_gets_plain_arrays_and_its_rule_is_used_in_all_modes():
    seen = []

    @primitive
    def f(x, y):
        seen.append((type(x), type(y)))
        return numpy.sin(x) * y

    defvjp(f, lambda ans, x, y: lambda g: g * np.cos(x) * y, lambda ans, x, y: lambda g: g * np.sin(x))
    assert f(1.0, 2.0) == numpy.sin(1.0) * 2.0
    check_grads(f, argnum=(0, 1), order=3)(X, X + 1)
    numpy.testing.assert_allclose(hessian(lambda x: np.sum(f(x, x)))(X).diagonal(), 2 * np.cos(X) - X * np.sin(X))
    assert {kind for pair in seen for kind in pair} <= {numpy.ndarray, numpy.float64, float}


def test_a_rule_of_numpys_own_functions_gives_jacobians():
    @primitive
    def f(x):
        return numpy.cumsum(x) ** 2

    # g is a plain array here, whatever asks for the derivative.
    defvjp(f, lambda ans, x: lambda g: numpy.cumsum((2 * numpy.cumsum(x) * numpy.asarray(g))[::-1])[::-1])
    numpy.testing.assert_allclose(jacobian(f)(X), 2 * numpy.tri(3) * numpy.cumsum(X)[:, None])


def test_rules_of_forward_mode():
    @primitive
    def f(x, n):
        return x**n

    defjvp(f, lambda g, ans, x, n: g * n * x ** (n - 1), None)
    assert deriv(f)(3.0, 2) == 6.0
    assert grad(f)(3.0, 2) == 6.0  # by its transpose

    @primitive
    def product(x, y):
        return numpy.multiply(x, y)

    def_linear(product)
    assert deriv(lambda x: product(x, product(x, x)))(2.0) == 12.0


def test_other_ways_to_give_rules():
    @primitive
    def f(*xs):
        return sum(xs)

    defvjp_argnum(f, lambda n, ans, args, kwargs: lambda g: g * (n + 1))
    assert grad(f, (0, 2))(1.0, 1.0, 1.0) == (1.0, 3.0)
    defvjp_argnums(f, lambda argnums, ans, args, kwargs: lambda g: [g * 10 for _ in argnums])
    assert grad(f, (0, 2))(1.0, 1.0, 1.0) == (10.0, 10.0)
    constant = notrace_primitive(lambda x: x * 2)
    assert grad(lambda x: x * constant(x))(3.0) == 6.0


def test_a_primitive_takes_and_returns_structures():
    @primitive
    def f(params):
        return {"sum": params["a"] + params["b"][0], "n": 2}

    defvjp(f, lambda ans, params: lambda g: {"a": g["sum"], "b": [3 * g["sum"]]})
    g = grad(lambda p: f(p)["sum"] * f(p)["n"])({"a": 1.0, "b": [2.0]})
    assert g == {"a": 2.0, "b": [6.0]}


def test_a_rule_may_be_given_for_a_function_of_numpy():
    def f(x):
        return np.ldexp(x, 2)

    defvjp(np.ldexp, lambda ans, x, k: lambda g: g * 2.0**k, None)
    try:
        assert grad(f)(3.0) == 4.0
    finally:
        from tape_autograd.core import primitive_vjps

        del primitive_vjps[np.ldexp]


def test_mistakes_in_rules():
    f = primitive(lambda x, y: x * y)
    with pytest.raises(NotImplementedError, match=r"VJP of <lambda> wrt argnums \(0,\) not defined"):
        grad(f)(1.0, 2.0)
    defvjp(f, lambda ans, x, y: lambda g: g * y)
    with pytest.raises(NotImplementedError, match="VJP of <lambda> wrt argnum 1 not defined"):
        grad(f, 1)(1.0, 2.0)
    defvjp(f, lambda ans, x, y: lambda g: X)
    with pytest.raises(ValueError, match=r"what the VJP of <lambda> returned for argument 0 has shape \(3,\)"):
        grad(f)(1.0, 2.0)
    with pytest.raises(TypeError, match="a keyword argument is being differentiated"):
        grad(lambda y: f(1.0, y=y))(2.0)
    captured = []
    leak = primitive(lambda x: x * captured[0])
    defvjp(leak, lambda ans, x: lambda g: g)

    def leaking(x):
        captured[:] = [x]
        return leak(x)

    with pytest.raises(TypeError, match="not among its arguments"):
        grad(leaking)(1.0)


def test_check_grads_finds_a_wrong_rule():
    f = primitive(lambda x: x * 2.0)
    defvjp(f, lambda ans, x: lambda g: g * 2.001)
    for mode in ("rev", "fwd"):
        with pytest.raises(AssertionError):
            check_grads(f, modes=[mode])(1.0)
    with pytest.raises(ValueError, match="modes are"):
        check_grads(f, modes=["reverse"])(1.0)


def test_vector_spaces():
    space = vspace({"a": [1.0, 2j], "b": X})
    assert space.size == 6
    assert len(list(space.standard_basis())) == 6
    assert space == vspace(space.randn())
    assert space.inner_prod(space.ones(), space.ones()) == 6.0
    check_grads(space.add)(space.randn(), space.randn())
    with pytest.raises(TypeError, match="Can't find vector space"):
        vspace("x")


def test_builtins_see_through_boxes():
    def f(x, params):
        assert builtins.isinstance(x, numpy.ndarray)
        assert builtins.type(x) is numpy.ndarray
        assert builtins.isinstance(params, builtins.dict)
        return np.sum(builtins.list([x, x])[1]) * params["a"]

    assert grad(f, (0, 1))(X, {"a": 2.0})[1] == {"a": 1.5}


def test_flatten():
    value = {"w": numpy.ones((2, 2)), "b": [0.5, (1 + 0j,)]}
    vector, unflatten = flatten(value)
    assert vector.shape == (6,)
    back = unflatten(vector)
    assert back["b"] == value["b"]
    assert back["w"].dtype == numpy.float64
    check_grads(lambda v: unflatten(v)["w"])(vector.real)
    assert grad(lambda x, y: np.sum(flatten([x, (y,)])[0]))(1.0, 2.0) == 1.0
    with pytest.raises(ValueError, match="the vector has 7 elements, the structure 6"):
        unflatten(numpy.ones(7))
    assert flatten([])[0].size == 0


@pytest.mark.parametrize(("optimize", "step"), [(sgd, 0.1), (rmsprop, 0.05), (adam, 0.1)])
def test_optimizers(optimize, step):
    seen = []
    target = {"x": numpy.array([1.0, -2.0]), "y": 3.0}
    loss = lambda p, i: np.sum((p["x"] - target["x"]) ** 2) + (p["y"] - target["y"]) ** 2  # noqa: E731
    start = {"x": numpy.zeros(2), "y": 0.0}
    found = optimize(grad(loss), start, callback=lambda p, i, g: seen.append(i), num_iters=300, step_size=step)
    assert seen == list(range(300))
    numpy.testing.assert_allclose(found["x"], target["x"], atol=0.1)
    assert abs(found["y"] - 3.0) < 0.1


def test_fixed_points():
    root = lambda a: fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, lambda x, y: abs(x - y), 1e-12)  # noqa: E731
    assert numpy.isclose(grad(root)(2.0), 0.5 / numpy.sqrt(2.0))
    assert numpy.isclose(grad(grad(root))(2.0), -0.25 * 2.0**-1.5)


def test_vjps_of_vjps():
    pull, _ = make_vjp(lambda x: np.sin(x) * x)(X)
    twice, value = make_vjp(pull)(numpy.ones(3))
    numpy.testing.assert_allclose(value, np.cos(X) * X + np.sin(X))
    numpy.testing.assert_allclose(twice(numpy.ones(3)), value)
