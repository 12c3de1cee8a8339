"""Every transformation of every transformation: functions with derivatives of their own are as any other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import tape_core as tc

# sqrt(1 + x**2), by all there is; and its derivatives.
X = np.asarray([[[0.5, -0.3], [1.2, 0.1]]])
CLOSED: list[Callable[[Any, Any], Any]] = [
    lambda x, s: s,
    lambda x, s: x / s,
    lambda x, s: s**-3,
    lambda x, s: -3 * x * s**-5,
]


def plain(x: Any) -> Any:
    return tc.sqrt(1 + x * x)


@tc.custom_gradient
def by_gradient(x: Any) -> Any:
    s = tc.sqrt(1 + x * x)
    return s, lambda upstream: upstream * x / s


@tc.custom_jvp
def by_jvp(x: Any) -> Any:
    return tc.sqrt(1 + x * x)


@by_jvp.defjvp
def _rule(primals: Any, tangents: Any) -> Any:
    s = by_jvp(primals[0])
    return s, primals[0] / s * tangents[0]


def by_fixed_point(x: Any) -> Any:
    return tc.fixed_point(lambda z, x: 0.5 * (z + (1 + x * x) / z), 1 + x * x, x)


def by_newton(x: Any) -> Any:
    # All elements as unknowns of one system.
    return tc.fixed_point(lambda z, x: 1 + x * x + z - z * z, 1 + x * x, x, solver="newton")


by_root = tc.custom_root(lambda z, x: z * z - 1 - x * x, lambda x: tc.sqrt(1 + x * x))

FUNCTIONS = {
    "plain": plain,
    "custom_gradient": by_gradient,
    "custom_jvp": by_jvp,
    "checkpoint": tc.checkpoint(plain),
    "policy": tc.checkpoint(plain, policy=["sqrt"]),
    "fixed_point": by_fixed_point,
    "newton": by_newton,
    "custom_root": by_root,
}

# Each takes a function that is elementwise to one: its derivative, or the same.
TRANSFORMS = {
    "grad": lambda f: tc.grad(lambda x: tc.sum(f(x))),
    "jvp": lambda f: lambda x: tc.jvp(f, (x,), (tc.ones_like(x),))[1],
    "vmap": lambda f: tc.vmap(f),
    "checkpoint": lambda f: tc.checkpoint(f, policy=["divide"]),
}
DERIVATIVES = ("grad", "jvp")
WORDS = [word for n in (1, 2, 3) for word in product(TRANSFORMS, repeat=n)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_of_transformations(name: str) -> None:
    x = tc.asarray(X.tolist(), dtype="float64")
    s = np.sqrt(1 + X**2)
    for word in WORDS:
        order = sum(t in DERIVATIVES for t in word)
        f = FUNCTIONS[name]
        for transform in reversed(word):
            f = TRANSFORMS[transform](f)
        assert np.allclose(f(x).numpy(), CLOSED[order](X, s), atol=1e-8), f"{' of '.join(word)} of {name}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians_of_vmap_and_vmap_of_jacobians(name: str) -> None:
    f = FUNCTIONS[name]
    x = tc.asarray(X[0, 0].tolist(), dtype="float64")
    s = np.sqrt(1 + X[0, 0] ** 2)
    first, second = np.diag(CLOSED[1](X[0, 0], s)), np.diag(CLOSED[2](X[0, 0], s))
    for of in (f, tc.vmap(f)):
        assert np.allclose(tc.jacrev(of)(x).numpy(), first, atol=1e-8)
        assert np.allclose(tc.jacfwd(of)(x).numpy(), first, atol=1e-8)
        assert np.allclose(tc.hessian(lambda x, of=of: tc.sum(of(x)))(x).numpy(), second, atol=1e-8)
        assert np.allclose(tc.jacrev(tc.jacrev(lambda x, of=of: tc.sum(of(x))))(x).numpy(), second, atol=1e-8)
        assert np.allclose(tc.vmap(tc.jacrev(of))(x[None]).numpy(), first[None], atol=1e-8)
        assert np.allclose(tc.vmap(tc.jacfwd(of))(x[None]).numpy(), first[None], atol=1e-8)
