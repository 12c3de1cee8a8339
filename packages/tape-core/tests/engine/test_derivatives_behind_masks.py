"""What `where` leaves out has no derivatives of higher order, either, whichever way they are computed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import tape_core as tc

X = np.array([0.0, 1.0, -1.0, 0.25])

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": tc.sqrt,
    "a product with sqrt": lambda x: tc.sqrt(x) * tc.cos(x),
    "a product with x": lambda x: tc.sqrt(x) * x,
    "sqrt inside": lambda x: tc.cos(tc.sqrt(x)),
    "log": lambda x: tc.log(x) * x,
    "reciprocal": lambda x: tc.sin(x) / x,
    "power": lambda x: x**1.5 * tc.exp(x),
}

DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "reverse": lambda f: tc.grad(lambda x: tc.sum(f(x))),
    "forward": lambda f: lambda x: tc.jvp(f, (x,), (tc.ones_like(x),))[1],
}


@pytest.mark.each_backend
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_left_out_has_no_derivative(name: str, compiled: bool) -> None:
    def f(x: Any) -> Any:
        return tc.where(x > 0, FUNCTIONS[name](x), 0.0)

    x = tc.asarray(X.copy())
    inside = X > 0
    for order in (1, 2, 3):
        wanted = None
        for word in product(DERIVATIVES, repeat=order):
            g, plain = f, FUNCTIONS[name]
            for way in reversed(word):
                g, plain = DERIVATIVES[way](g), DERIVATIVES[way](plain)
            with np.errstate(all="ignore"):
                found = (tc.function(g) if compiled else g)(x).numpy()
                wanted = plain(x[tc.asarray(inside)]).numpy() if wanted is None else wanted
            assert np.allclose(found[inside], wanted, rtol=1e-8), word
            assert not found[~inside].any(), f"{' of '.join(word)}: {found}"


@pytest.mark.parametrize("compiled", [False, True])
def test_nor_has_it_one_by_sweeps_that_run_inside_a_vmap(compiled: bool) -> None:
    def f(x: Any) -> Any:
        return tc.where(x > 0, x**1.5 * x, 0.0)

    ways = {
        **DERIVATIVES,
        "jacrev": lambda f: lambda x: tc.sum(tc.jacrev(f)(x), axis=-1),
        "jacfwd": lambda f: lambda x: tc.sum(tc.jacfwd(f)(x), axis=-1),
        "vmap": lambda f: lambda x: tc.vmap(tc.grad(lambda row: tc.sum(f(row))))(x[:, None])[:, 0],
    }
    x, inside = tc.asarray(X.copy()), X > 0
    wanted = {2: 3.75 * X[inside] ** 0.5, 3: 1.875 * X[inside] ** -0.5}
    for order in (2, 3):
        for word in product(ways, repeat=order):
            if word[0] not in DERIVATIVES and order == 3 and compiled:
                continue  # the other two are inside
            g = f
            for way in reversed(word):
                g = ways[way](g)
            with np.errstate(all="ignore"):
                found = (tc.function(g) if compiled else g)(x).numpy()
            assert np.allclose(found[inside], wanted[order]), word
            assert not found[~inside].any(), f"{' of '.join(word)}: {found}"


def test_the_hessian_of_what_is_masked() -> None:
    f = lambda x: tc.where(x > 0, tc.sqrt(x) * tc.cos(x), 0.0)  # noqa: E731
    assert tc.hessian(f)(0.0).item() == 0.0
    assert np.allclose(tc.hessian(lambda x: tc.sum(f(x)))(tc.asarray([0.0, 0.0])).numpy(), 0.0)


def test_a_rule_of_ones_own_masks_by_itself() -> None:
    def rule(mask: Callable[[Any, Any], Any]) -> Any:
        return tc.custom_gradient(lambda x: (tc.sqrt(x), lambda g: mask(g, g * 0.5 / tc.sqrt(x))))

    x = tc.asarray([0.0, 1.0, 4.0])
    with np.errstate(all="ignore"):
        masks: Any = [(lambda g, d: d, np.nan), (lambda g, d: tc.where(g == 0, 0.0, d), 0.0)]
        for mask, at_zero in masks:
            f = rule(mask)
            g = tc.grad(lambda x, f=f: tc.sum(tc.where(x > 0, f(x), 0.0)))
            for run in (g, tc.function(g)):
                np.testing.assert_array_equal(run(x).numpy(), [at_zero, 0.5, 0.25])


def test_a_zero_that_is_no_masks_has_the_tangent_that_it_has() -> None:
    def f(x: Any) -> Any:
        return tc.where(x > -10, (x - 1.0) ** 2 * tc.exp(x), 0.0)

    second = tc.jvp(tc.grad(f), (tc.asarray(1.0, dtype=tc.float64),), (tc.asarray(1.0, dtype=tc.float64),))[1]
    assert second.item() == pytest.approx(2 * np.e)
