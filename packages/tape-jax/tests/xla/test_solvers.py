"""Solvers of equations in functions that XLA compiles: their loops are in the program, what Python decides is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

A, B = np.array([0.3, 0.5, 0.2]), np.array([0.6, 0.1, 0.4])


def step(z: Any, a: Any) -> Any:
    return 0.3 * tc.sin(z) * a + 0.2 * tc.flip(z) + a * a


def solve(a: Any) -> Any:  # it has the name of an op, and asks for values
    z = np.zeros(3)
    for _ in range(60):
        z = 0.3 * np.sin(z) * a.numpy() + 0.2 * z[::-1] + a.numpy() ** 2
    return z


SOLVERS: dict[str, Callable[[Any], Any]] = {
    "iteration": lambda a: tc.fixed_point(step, tc.zeros_like(a), a, tol=1e-13),
    "newton by gmres": lambda a: tc.fixed_point(step, a * 0.0, a, tol=1e-13, solver="newton", linear_solver="gmres"),
    "by Python": tc.custom_root(lambda z, a: step(z, a) - z, solve),
}


@pytest.mark.parametrize("backend", ["numpy", "jax"], indirect=True)
@pytest.mark.parametrize("name", SOLVERS)
def test_gradients_are_those_of_plain_calls(name: str, backend: str) -> None:
    f = tc.grad(lambda a: tc.sum(SOLVERS[name](a) ** 2))
    run = tc.function(f, compile="xla")
    for point in (A, A, B):
        a = tc.asarray(point, dtype=tc.float64)
        np.testing.assert_allclose(run(a).numpy(), f(a).numpy(), rtol=1e-10)


@pytest.mark.parametrize("backend", ["jax"], indirect=True)
def test_what_does_not_converge_is_an_error(backend: str) -> None:
    run = tc.function(lambda a: tc.fixed_point(lambda z, a: z * a + 1.0, a * 0.0, a, maxiter=40), compile="xla")
    assert run(tc.asarray(0.25)).item() == pytest.approx(4 / 3, rel=1e-4)
    with pytest.raises(tc.ConvergenceError, match="after 40 steps the residual is"):
        run(tc.asarray(0.99))
    assert run(tc.asarray(0.25)).item() == pytest.approx(4 / 3, rel=1e-4)
