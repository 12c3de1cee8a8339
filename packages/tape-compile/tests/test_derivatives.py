"""Derivatives of every kind, compiled: through factorizations, and with the bits of eager ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import names, traced

A = np.random.default_rng(0).normal(size=(3, 3)) + 4 * np.eye(3)
B = np.asarray([1.0, 2.0, 3.0])


def spd(x: Any) -> Any:
    return x @ x.mT + tc.asarray(np.eye(3))


THROUGH: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda x: tc.linalg.cholesky(spd(x)),
    "solve_triangular": lambda x: tc.linalg.solve_triangular(x, tc.asarray(B), lower=True),
    "the right-hand side": lambda x: tc.linalg.solve_triangular(tc.asarray(A), x),
    "cho_solve": lambda x: tc.linalg.cho_solve(tc.linalg.cholesky(spd(x)), tc.asarray(B)),
    "lu_solve": lambda x: tc.linalg.lu_solve(tc.linalg.lu_factor(x), tc.asarray(B)),
    "solve": lambda x: tc.linalg.solve(x, tc.asarray(B)),
    "inv": tc.linalg.inv,
    "slogdet": lambda x: tc.linalg.slogdet(x)[1],
    "eigh": lambda x: tc.linalg.eigh(spd(x)).eigenvalues,
    "svd": lambda x: tc.linalg.svd(x).S,
    "qr": lambda x: tc.linalg.qr(x).R,
    "expm": lambda x: tc.linalg.expm(x * 0.1),
    "prod": lambda x: tc.prod(x, axis=0),
    "prod of a 0": lambda x: tc.prod(x * tc.asarray([[0.0, 1.0, 1.0]]), axis=1),
    "cumulative_prod": lambda x: tc.cumulative_prod(x, axis=1),
}


@pytest.mark.parametrize("way", ["jacrev", "jacfwd", "hessian", "jacrev of grad", "hvp", "vmap of grad"])
@pytest.mark.parametrize("name", THROUGH)
def test_a_compiled_derivative_has_the_bits_of_the_eager_one(name: str, way: str) -> None:
    f = THROUGH[name]

    def loss(x: Any) -> Any:
        return tc.sum(f(x) ** 2)

    x = tc.asarray(A)
    eager, at = {
        "jacrev": (tc.jacrev(f), x),
        "jacfwd": (tc.jacfwd(f), x),
        "hessian": (tc.hessian(loss), x),
        "jacrev of grad": (tc.jacrev(tc.grad(loss)), x),
        "hvp": (lambda x: tc.jvp(tc.grad(loss), (x,), (tc.asarray(A.T),))[1], x),
        "vmap of grad": (tc.vmap(tc.grad(loss)), tc.stack([x, x * 0.9])),
    }[way]
    expected = eager(at).numpy() + 0.0
    compiled = tc.function(eager)
    for _ in range(2):
        assert (compiled(at).numpy() + 0.0).tobytes() == expected.tobytes()


def test_a_singular_matrix_is_refused_by_a_compiled_jacobian() -> None:
    compiled = tc.function(tc.jacrev(THROUGH["solve_triangular"]))
    compiled(tc.asarray(A))
    with pytest.raises((ValueError, RuntimeError), match=r"[Ss]ingular"):
        compiled(tc.asarray(np.zeros((3, 3))))


@pytest.mark.parametrize("order", ["hessian", "jacobian of the Hessian"])
def test_a_branch_that_all_examples_share_and_that_closes_over_the_argument(order: str) -> None:
    """The closure has constants of the trace at a level where the operands have arrays of the trace."""
    x, t = tc.asarray([1.0, 2.0, 3.0]), tc.asarray([0.5, 1.0, 2.0])

    def f(x: Any) -> Any:
        def branch(y: Any) -> Any:
            return tc.cond(tc.sum(x) > 0, lambda y: x * y * y * tc.sum(x * x), lambda y: x * y, y)

        return tc.sum(tc.jvp(tc.vmap(branch), (x,), (t,))[1])

    derivative = tc.hessian(f) if order == "hessian" else tc.jacrev(tc.hessian(f))
    np.testing.assert_allclose(tc.function(derivative)(x).numpy(), derivative(x).numpy(), rtol=1e-5)


def test_nan_is_looked_for_in_what_flows_into_a_mask_alone() -> None:
    def f(x: tc.Tensor, w: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.sqrt(tc.exp(tc.where(x > 0, tc.log(x), 0) @ w) / 3))

    program = traced(lambda x, w: tc.grad(f)(x, w), tc.ones((2, 3), backend="numpy"), tc.ones((3, 2), backend="numpy"))
    assert names(program).count("isnan") == 1  # for log
