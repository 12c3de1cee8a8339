"""Functions that change their arguments in place, `x *= 2` or `x[0] = 1`, have the derivatives of those that do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc

pytestmark = pytest.mark.each_backend


def changing(x: Any) -> Any:
    """Change the argument in place, in both ways."""
    x *= 1.25
    x[0] = x[0] * x[1]
    return x


def plain(x: Any) -> Any:
    """Compute the same with new Tensors."""
    x = x * 1.25
    return tc.at(x)[0].set(x[0] * x[1])


def cubes(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: tc.sum(f(x) ** 3)


def seeds(x: Any) -> Any:
    return tc.stack([2.0 * tc.ones_like(x[0]), -tc.ones_like(x[0])])


DERIVATIVES: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "grad": lambda f, x: tc.grad(cubes(f))(x),
    "value_and_grad": lambda f, x: tc.value_and_grad(cubes(f))(x),
    "grad of a tree": lambda f, x: tc.grad(lambda tree: cubes(f)(tree["x"]))({"x": x}),
    "vjp": lambda f, x: tc.vjp(f, x)[1](seeds(x)),
    "jvp": lambda f, x: tc.jvp(f, (x,), (seeds(x),)),
    "linearize": lambda f, x: tc.linearize(f, x)[1](seeds(x)),
    "jacrev": lambda f, x: tc.jacrev(f)(x),
    "jacfwd": lambda f, x: tc.jacfwd(f)(x),
    "hessian": lambda f, x: tc.hessian(cubes(f))(x),
    "hvp": lambda f, x: tc.hvp(cubes(f), (x,), (seeds(x),)),
    "vmap of grad": lambda f, x: tc.vmap(tc.grad(cubes(f)))(tc.stack([x, 2.0 * x])),
}


def custom_gradient(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return tc.custom_gradient(lambda x: (f(x), lambda g: 2.0 * g))


def custom_jvp(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    wrapped: Any = tc.custom_jvp(f)
    wrapped.defjvp(lambda primals, tangents: (f(primals[0]), 3.0 * tangents[0]))
    return wrapped  # type: ignore[no-any-return]


def solved(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(z: Any, x: Any) -> Any:
        return 0.1 * f(z) + f(x)

    return lambda x: tc.fixed_point(step, tc.zeros_like(x), x)


def counting(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def step(c: Any) -> Any:
        k, x = c
        k += 1
        return k, f(x)

    return lambda x: tc.while_loop(lambda c: c[0] < 3, step, (0, x))[1]


WAYS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "itself": lambda f: f,
    "checkpoint": tc.checkpoint,
    "cond": lambda f: lambda x: tc.cond(x[0] > 0, f, lambda x: x, x),
    "while_loop": lambda f: lambda x: tc.while_loop(lambda x: tc.sum(x) < 30, f, x),
    "while_loop that counts": counting,
    "scan": lambda f: lambda x: tc.scan(lambda c, k: (f(c), None), x, None, length=3)[0],
    "a long scan": lambda f: lambda x: tc.scan(lambda c, k: (0.7 * f(c), None), x, None, length=140)[0],
    "elements of a scan": lambda f: lambda x: tc.scan(lambda c, row: (c + f(row), None), x, tc.stack([x, x]))[0],
    "map": lambda f: lambda x: tc.sum(tc.map(f, tc.stack([x, 0.5 * x])), axis=0),
    "vmap": lambda f: lambda x: tc.sum(tc.vmap(f)(tc.stack([x, 0.5 * x])), axis=0),
    "custom_gradient": custom_gradient,
    "custom_jvp": custom_jvp,
    "fixed_point": solved,
}


def start() -> Any:
    return tc.asarray([1.5, 1.25], dtype=tc.float64)


def assert_same(found: Any, expected: Any) -> None:
    for a, b in zip(tc.tree_leaves(found), tc.tree_leaves(expected), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_by_the_argument_as_it_was_given(name: str) -> None:
    x = start()
    assert_same(DERIVATIVES[name](changing, x), DERIVATIVES[name](plain, x))
    assert x.tolist() == [1.5, 1.25], "the caller's Tensor is as it was"


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", WAYS)
def test_functions_that_run_again_begin_with_what_they_were_given(name: str, compiled: bool) -> None:
    for derivative in (DERIVATIVES["grad"], DERIVATIVES["jvp"]):
        x = start()
        f = partial(derivative, WAYS[name](changing))
        assert_same(tc.function(f)(x) if compiled else f(x), derivative(WAYS[name](plain), start()))
        assert x.tolist() == [1.5, 1.25]


@pytest.mark.parametrize("name", [name for name in WAYS if name != "itself"])
def test_a_call_without_a_derivative_leaves_the_callers_tensors(name: str) -> None:
    x = start()
    assert_same(WAYS[name](changing)(x), WAYS[name](plain)(start()))
    assert x.tolist() == [1.5, 1.25]
