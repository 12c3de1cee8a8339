"""tape_autograd.scipy: special functions, distributions, linear algebra, convolution, differential equations."""

from __future__ import annotations

import importlib
import sys

import numpy
import pytest

pytest.importorskip("scipy")

import scipy.signal
import tape_autograd.numpy as np
from tape_autograd import grad, make_vjp
from tape_autograd.scipy import integrate, linalg, signal, special, stats
from tape_autograd.scipy.stats import multivariate_normal as mvn
from tape_autograd.test_util import check_grads

X = numpy.array([0.5, 1.2, 0.3])
P = numpy.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]])


NAMES = {
    "np": np,
    "numpy": numpy,
    "P": P,
    "mvn": mvn,
    "linalg": linalg,
    "signal": signal,
    "special": special,
    "stats": stats,
}


@pytest.mark.parametrize(
    "expression",
    [
        "special.logsumexp(x, b=x, axis=0)",
        "special.gammaln(x) + special.erf(x) + special.expit(x) + special.psi(x)",
        "stats.norm.logsf(x, loc=x[0], scale=2.0) + stats.norm.ppf(x / 3, scale=x[1])",
        "stats.t.logcdf(x, 3.0)",
        "stats.poisson.logpmf(numpy.array([1, 0, 2]), x)",
        "stats.beta.logpdf(x / 2, x, 2.0)",
        "mvn.logpdf(x, x[::-1], P * x[0])",
        "mvn.entropy(x, P * x[0])",
        "mvn.logpdf(x, x[0], x[1])",
        "mvn.logpdf(x, cov=x[1])",
        "mvn.pdf(x[0], cov=x[1])",
        "mvn.logpdf(x[:, None], x[2], 0.5)",
        "stats.dirichlet.logpdf(numpy.array([0.2, 0.5, 0.3]), x)",
        'linalg.solve_triangular(P * x, x, trans="T", lower=True)',
        "linalg.solve_sylvester(P * x, P, P)",
        "linalg.sqrtm(P * x[0])",
        "linalg.expm(P * x)",
        "linalg.solve_banded((1, 1), np.stack([x, 4 + x, x**2]), x)",
        'signal.convolve(P * x, x[None, :2], mode="same")',
    ],
)
def test_derivatives(expression):
    f = eval(f"lambda x: {expression}", NAMES)
    check_grads(f, modes=["rev"])(X)
    # With what SciPy computes of plain arrays, while it is differentiated.
    numpy.testing.assert_allclose(make_vjp(f)(X)[1], f(X))


def test_plain_arrays_get_scipys_results():
    assert special.gammasgn(-0.5) == -1.0
    assert stats.norm.ppf(0.5) == 0.0
    assert stats.norm.rvs is scipy.stats.norm.rvs or callable(stats.norm.rvs)
    assert grad(lambda x: x * special.gammasgn(x))(-0.5) == -1.0
    with pytest.raises(NotImplementedError, match=r"scipy\.special\.smirnov has no derivative here"):
        grad(lambda x: special.smirnov(5, x))(0.5)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolution(mode):
    a, b = numpy.arange(12.0).reshape(3, 4), numpy.arange(6.0).reshape(3, 2) - 2
    numpy.testing.assert_allclose(signal.convolve(a, b, mode=mode), scipy.signal.convolve(a, b, mode=mode))
    rows = signal.convolve(a, b, axes=([1], [1]), dot_axes=([0], [0]), mode=mode)
    numpy.testing.assert_allclose(rows, sum(scipy.signal.convolve(a[k], b[k], mode=mode) for k in range(3)))
    if mode == "valid":
        pairs = signal.convolve(b, a, axes=([1], [1]), mode=mode)
        numpy.testing.assert_allclose(pairs[1, 2], scipy.signal.convolve(a[2], b[1], mode=mode))
        with pytest.raises(ValueError, match="larger than the other"):
            signal.convolve(a, numpy.ones((2, 5)), mode=mode)
    with pytest.raises(ValueError, match="mode must be"):
        signal.convolve(a, b, mode="half")


def test_differential_equations():
    def flow(y, t, a, b):
        return -a * y + b * np.sin(t)

    times = numpy.linspace(0.0, 0.4, 3)
    f = lambda y0, t, a, b: integrate.odeint(flow, y0, t, (a, b))  # noqa: E731
    check_grads(f, (0, 1, 2, 3), modes=["rev"], order=1)(X, times, 1.3, X[::-1].copy())


def test_without_scipy_it_is_said_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tape_autograd.scipy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tape-autograd\[scipy\]'"):
        importlib.import_module("tape_autograd.scipy.stats")
