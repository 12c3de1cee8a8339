"""Rewrites that round differently: only where they are asked for, and then within a few units in the last place."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import code, leaves, values

array = partial(values, dtype="float64")


def slope(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def gradient(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return y, tape.gradient(y, x)

    return gradient


def twice(x: Any) -> Any:
    small = 3.0 * x[:, :1]
    return small * x + small * x


EXP = r"\b(exp|logsumexp)\("
CASES: dict[str, tuple[Callable[[Any], Any], str, int]] = {
    # a function of an array of shape (6, 4), what its code has less of (a regular expression), and how often then
    "a diagonal before": (lambda x: (tc.eye(6, dtype="float64") * x[:, 0]) @ x, "@|diagonal_matmul", 0),
    "a diagonal behind": (lambda x: x @ (x[0] * tc.eye(4, dtype="float64")), "@|diagonal_matmul", 0),
    "a sum of products": (lambda x: tc.sum(x * tc.exp(x)), r"sum\(", 0),
    "a sum of squares": (lambda x: tc.sum(tc.square(tc.exp(x))), r"sum\(", 0),
    "a mean of squares": (lambda x: tc.mean((x - 1.5) ** 2), r"(sum|mean)\(", 0),
    "numbers": (lambda x: -(3.0 * (x * 0.1)) * 7, r"\*", 1),
    "a number that divides": (lambda x: x / 3 / 0.7 * 5, "/", 0),
    "a cube": (lambda x: x**3, r"\*\*|pow\(", 0),
    "a fourth power": (lambda x: tc.exp(x) ** 4.0, r"\*\*|pow\(", 0),
    "twice the same": (twice, r"\+", 0),
    "logsumexp and its gradient": (slope(lambda x: tc.sum(tc.logsumexp(x, axis=1) ** 2)), EXP, 1),
    "logsumexp of all": (slope(tc.logsumexp), EXP, 1),
    "logsumexp of columns": (
        slope(lambda x: tc.sum(tc.logsumexp(x * 2, axis=0, keepdims=True) * x)),
        EXP,
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_a_few_units_off(case: str) -> None:
    f, less, left = CASES[case]
    exact, other = tc.function(f), tc.function(passes={"reassociate": True})(f)
    for compiled in (exact, other):
        compiled(array(6, 4))
    x = array(6, 4, seed=1)
    for found, expected in zip(leaves(other(x)), leaves(f(x)), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-14, atol=1e-14)
        assert found.dtype is expected.dtype
        assert found.shape == expected.shape
    if x.backend.name == "numpy":  # whose code is written with operators
        assert len(re.findall(less, code(other))) == left
        assert len(re.findall(less, code(exact))) > left
    for found, expected in zip(leaves(exact(x)), leaves(f(x)), strict=True):
        assert found.numpy().tobytes() == expected.numpy().tobytes()


def test_a_line_of_nothing_has_no_slope() -> None:
    f = slope(lambda x: tc.logsumexp(x, axis=1)[1])
    compiled = tc.function(passes={"reassociate": True})(f)
    for first in (-np.inf, np.inf, 1e300):
        x = tc.asarray([[-np.inf, -np.inf], [first, 0.0]], dtype="float64")
        with np.errstate(all="ignore"):
            expected = f(x)
        for _ in range(2):
            found = compiled(x)
            for a, b in zip(found, expected, strict=True):
                tc.testing.assert_close(a.numpy(), b.numpy(), rtol=1e-14)


def test_what_is_needed_elsewhere_or_would_overflow_stays() -> None:
    def f(x: Any) -> Any:
        a = x * 1e200
        b = x * 3.0
        return a * 1e-200 * 1e-200, b, b * 2.0, tc.sum(b * b), (x * 2) * tc.asarray(2.0, dtype="float64")

    compiled = tc.function(passes={"reassociate": True})(f)
    x = array(3, 2)
    compiled(x)
    for found, expected in zip(compiled(x), f(x), strict=True):
        tc.testing.assert_close(found.numpy(), expected.numpy(), rtol=1e-14)


def test_integers_and_complex_numbers_keep_their_arithmetic() -> None:
    def f(n: Any, z: Any) -> Any:
        return (
            n**3 * 2 * 3,
            tc.sum(n * n),
            tc.sum(tc.sqrt(n * 1.0) ** 2.0, dtype="float64", axis=0),
            z * 2.0 * 3.0,
            tc.sum(z * z),
        )

    compiled = tc.function(passes={"reassociate": True})(f)
    args = tc.asarray([1, 2, 3]), tc.asarray([1 + 2j, 3j])
    compiled(*args)
    for found, expected in zip(compiled(*args), f(*args), strict=True):
        assert np.array_equal(found.numpy(), expected.numpy())
        assert found.dtype is expected.dtype
