"""Densities and distribution functions: SciPy's values, with derivatives by the value and the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc

theirs = pytest.importorskip("scipy.stats")
own = tc.stats

X = np.asarray([-2.5, -0.3, 0.2, 0.6, 0.95, 1.4, 3.7])

CONTINUOUS: list[tuple[str, tuple[float, ...]]] = [
    ("norm", ()), ("t", (3.5,)), ("gamma", (2.3,)), ("beta", (1.7, 2.4)), ("chi2", (5.0,)), ("expon", ()),
    ("uniform", ()), ("laplace", ()), ("logistic", ()), ("cauchy", ()), ("lognorm", (0.8,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes"), CONTINUOUS, ids=[name for name, _ in CONTINUOUS])
def test_a_distribution_has_scipys_values_and_its_derivatives(name: str, shapes: Any) -> None:
    ours, other = getattr(own, name), getattr(theirs, name)
    x = tc.asarray(X)
    for place in ((), (0.1,), (-0.2, 1.9)):
        for method in ("logpdf", "pdf", "cdf"):
            found = getattr(ours, method)(x, *shapes, *place)
            expected = getattr(other, method)(X, *shapes, *place)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-300)
    inside = tc.asarray(X[np.isfinite(other.logpdf(X, *shapes, -0.05, 1.2))])
    parameters = [tc.asarray(value, dtype=tc.float64) for value in (*shapes, -0.05, 1.2)]
    tc.testing.check_grads(ours.logpdf, [inside, *parameters])
    tc.testing.check_grads(ours.pdf, [inside, *parameters])
    tc.testing.check_grads(lambda x, *place: ours.cdf(x, *shapes, *place), [inside, *parameters[len(shapes) :]])
    whole = tc.grad(lambda x, *ps: tc.sum(tc.exp(ours.logpdf(x, *ps))), argnums=range(1 + len(parameters)))(
        x, *parameters
    )
    assert all(bool(tc.all(tc.isfinite(g))) for g in whole), "what lies outside gives no NaN"
    compiled = tc.function(lambda x, *ps: ours.logpdf(x, *ps))
    eager = ours.logpdf(x, *parameters).numpy()
    assert all(np.array_equal(compiled(x, *parameters).numpy(), eager) for _ in range(2))
    assert np.array_equal(tc.vmap(lambda v: ours.logpdf(v, *parameters))(x).numpy(), eager)


def test_impossible_parameters_and_mistakes() -> None:
    x = tc.asarray([0.5])
    assert np.isnan(own.norm.logpdf(x, 0.0, -1.0).numpy()).all()
    assert np.isnan(own.gamma.pdf(x, -1.0).numpy()).all()
    assert np.isnan(own.norm.pdf(tc.asarray([np.nan])).numpy()).all()
    assert own.norm.pdf(x).dtype is tc.float32
    np.testing.assert_allclose(own.norm.logpdf(0.5, scale=2.0).numpy(), theirs.norm.logpdf(0.5, scale=2.0), rtol=1e-6)
    with pytest.raises(TypeError, match=r"gamma\.logpdf: a is missing"):
        own.gamma.logpdf(x)
    with pytest.raises(TypeError, match="'size' is not a parameter"):
        own.norm.pdf(x, size=3)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gamma", (2.5,)), ("beta", (2.5, 0.75)), ("t", (3.5,)), ("chi2", (4.5,)), ("poisson", (1.75,))],
)
def test_distribution_functions_are_differentiable_by_their_parameters(name: str, parameters: Any) -> None:
    ours = getattr(own, name)
    x = tc.asarray(np.asarray([0.25, 0.5, 0.875]) if name == "beta" else np.asarray([0.5, 2.0, 6.0]))
    arrays = [tc.asarray(np.asarray(p)) for p in parameters]
    tc.testing.check_grads(lambda *ps: ours.cdf(x, *ps), arrays)
    tc.testing.check_grads(tc.grad(lambda *ps: tc.sum(ours.cdf(x, *ps))), arrays)


def test_the_normal_distribution_far_out() -> None:
    x = np.asarray([-40.0, -2.0, 3.0, 30.0])
    np.testing.assert_allclose(own.norm.logcdf(tc.asarray(x)).numpy(), theirs.norm.logcdf(x), rtol=1e-12)
    np.testing.assert_allclose(own.norm.sf(tc.asarray(x)).numpy(), theirs.norm.sf(x), rtol=1e-12)


def test_counts() -> None:
    k = np.asarray([-1.0, 0.0, 1.0, 2.5, 4.0, 9.0])
    for mu in (0.7, 3.0):
        for method in ("logpmf", "pmf", "cdf"):
            found, expected = getattr(own.poisson, method)(tc.asarray(k), mu), getattr(theirs.poisson, method)(k, mu)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    for method in ("logpmf", "pmf"):
        found, expected = getattr(own.binom, method)(tc.asarray(k), 5, 0.3), getattr(theirs.binom, method)(k, 5, 0.3)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-300)
    mu, p = tc.asarray(2.3, dtype=tc.float64), tc.asarray(0.3, dtype=tc.float64)
    tc.testing.check_grads(lambda mu: own.poisson.logpmf(tc.asarray(k[[1, 2, 4]]), mu), [mu])
    tc.testing.check_grads(lambda mu: own.poisson.cdf(tc.asarray(k), mu), [mu])
    tc.testing.check_grads(lambda p: own.binom.pmf(tc.asarray(k), 5.0, p), [p])


def test_vectors() -> None:
    rng = np.random.default_rng(0)
    x, mean, root = rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=(3, 3))
    cov = root @ root.T + np.eye(3)
    for given in ((mean, cov), (mean, np.asarray([1.0, 2.0, 0.5])), (mean, 1.7)):
        args = [tc.asarray(v) if isinstance(v, np.ndarray) else v for v in given]
        for method in ("logpdf", "pdf"):
            found = getattr(own.multivariate_normal, method)(tc.asarray(x), *args)
            np.testing.assert_allclose(
                found.numpy(), getattr(theirs.multivariate_normal, method)(x, *given), rtol=1e-10
            )
    assert own.multivariate_normal.logpdf(tc.asarray(x[0]), tc.asarray(mean), tc.asarray(cov)).shape == ()

    def by_root(x: Any, mean: Any, root: Any) -> Any:  # differences along symmetric matrices alone
        return own.multivariate_normal.logpdf(x, mean, root @ root.mT + tc.asarray(np.eye(3)))

    tc.testing.check_grads(by_root, [tc.asarray(x), tc.asarray(mean), tc.asarray(root)])
    shares, alpha = rng.dirichlet([2.0, 3.0, 1.5], size=4).T, np.asarray([2.0, 3.0, 1.5])
    for method in ("logpdf", "pdf"):
        found = getattr(own.dirichlet, method)(tc.asarray(shares), tc.asarray(alpha))
        np.testing.assert_allclose(found.numpy(), getattr(theirs.dirichlet, method)(shares, alpha), rtol=1e-10)
    tc.testing.check_grads(own.dirichlet.logpdf, [tc.asarray(shares), tc.asarray(alpha)])
