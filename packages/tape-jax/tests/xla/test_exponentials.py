"""Sums of exponentials under XLA: derivatives share the exponentials, with the values of eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.compiler import for_xla

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(3)
INF, NAN = np.inf, np.nan
ROWS = np.array([
    [-INF, -INF, -INF], [0.0, -INF, 1.0], [INF, 0.0, 1.0], [INF, 800.0, 1.0], [INF, INF, -INF], [NAN, 0.0, 1.0],
    [800.0, -800.0, 0.0], [-745.0, -746.0, -740.0], [1e300, 1e300, 0.0],
])  # fmt: skip


def with_slopes(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of an array that gives the value of `f`, and the gradient of its sum."""

    def both(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
            total = tc.sum(y)
        return y, tape.gradient(total, x)

    return both


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: tc.logsumexp(x, axis=1),
    lambda x: tc.logsumexp(x, axis=-1, keepdims=True),
    lambda x: tc.logsumexp(x, axis=(0, 1)),
    lambda x: tc.logsumexp(x),
    lambda x: tc.log_softmax(x, axis=1),
    lambda x: tc.log_softmax(x, axis=0),
]


@pytest.mark.parametrize("k", range(len(FUNCTIONS)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values_are_those_of_eager_code(k: int, dtype: Any) -> None:
    f = FUNCTIONS[k]
    with np.errstate(all="ignore"):
        rows = [RNG.standard_normal((9, 3)).astype(dtype), ROWS.astype(dtype), ROWS[3:4].astype(dtype)]
    compiled = tc.function(with_slopes(f), compile="xla")
    tolerance = 2e-6 if dtype is np.float32 else 1e-13
    for given in rows:
        x = tc.asarray(given)
        with np.errstate(all="ignore"):
            pairs = zip(compiled(x), with_slopes(f)(x), strict=True)
            for found, expected in pairs:
                np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("k", range(len(FUNCTIONS)))
def test_the_gradient_has_no_exponentials_of_its_own(k: int) -> None:
    f, x = FUNCTIONS[k], tc.asarray(RNG.standard_normal((4, 3)))
    compiled = tc.function(with_slopes(f), compile="xla")
    compiled(x)
    program = for_xla(compiled._compiled.all[0].program)
    large = [c for c in program.instructions if c.name == "exp" and program.specs[c.out].shape == (4, 3)]
    assert len(large) == 1


@pytest.mark.long_on_jax
def test_higher_derivatives_and_batches() -> None:
    x = tc.asarray(RNG.standard_normal((4, 3)))
    f = FUNCTIONS[0]
    for g in (
        tc.hessian(lambda x: tc.sum(f(x) ** 2)),
        tc.jacfwd(FUNCTIONS[4]),
        tc.vmap(tc.grad(lambda row: tc.logsumexp(row) ** 2)),
        lambda x: tc.jvp(tc.grad(lambda x: tc.sum(f(x) ** 3)), (x,), (tc.cos(x),)),
    ):
        found = tc.function(g, compile="xla")(x)
        for a, b in zip(tc.tree_leaves(found), tc.tree_leaves(g(x)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-13)
