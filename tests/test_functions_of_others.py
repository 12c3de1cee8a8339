"""What users of autograd and SciPy call, on Tensors: each has the right gradient, or says that there is none.

The names are those of two surveys: the tests of HIPS autograd, and functions of SciPy, NumPy and scikit-learn that take
arrays. SciPy takes Tensors where `SCIPY_ARRAY_API=1` is set before it is imported, so this file runs as a script.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc

Case = tuple[str, Callable[[Any], Any], Any]
RNG = np.random.default_rng(0)
V = np.asarray([0.3, 0.6, 0.45, 0.8])
A = RNG.uniform(0.3, 0.9, (3, 4))
SQUARE = RNG.uniform(0.3, 0.9, (3, 3)) + 2 * np.eye(3)
SIGNAL = RNG.standard_normal(32)
PICKED = np.asarray([True, False, True, True])
KNOTS = np.arange(4.0)


def t(array: Any) -> Any:
    return tc.asarray(np.asarray(array, dtype="float64"))


def real(y: Any) -> Any:
    return tc.abs(y) if isinstance(y, tc.Tensor) and y.dtype.kind == "complex floating" else y


def called(
    module: Any, names: str, *before: Any, x: Any = V, after: tuple[Any, ...] = (), **options: Any
) -> Iterator[Case]:
    """`name(*before, x, *after, **options)` for each name."""

    def of(name: str) -> Case:
        return name, lambda x: real(getattr(module, name)(*before, x, *after, **options)), x

    return map(of, names.split())


# -- with a gradient


def differentiable() -> Iterator[Case]:
    """What has one."""
    from scipy import fft, integrate, linalg, signal, special, stats

    for name, parameters in {
        "norm": (), "expon": (), "uniform": (), "laplace": (), "logistic": (), "cauchy": (), "t": (3.5,),
        "gamma": (2.5,), "beta": (1.5, 2.5), "chi2": (3.0,), "lognorm": (0.7,),
    }.items():  # fmt: skip
        yield from called(getattr(tc.stats, name), "pdf logpdf cdf", after=parameters)
    yield from called(tc.stats.poisson, "pmf logpmf cdf", 2.0)
    yield "stats.t.cdf, df", lambda x: tc.stats.t.cdf(0.5, x), V
    yield "stats.gamma.cdf, a", lambda x: tc.stats.gamma.cdf(0.5, x), V
    yield "stats.beta.cdf, a", lambda x: tc.stats.beta.cdf(0.5, x, 2.0), V
    yield "stats.beta.cdf, b", lambda x: tc.stats.beta.cdf(0.5, 2.0, x), V
    yield "stats.multivariate_normal.logpdf", tc.stats.multivariate_normal.logpdf, V
    yield "stats.dirichlet.logpdf", lambda x: tc.stats.dirichlet.logpdf(t([0.25] * 4), x), V

    yield from called(
        special,
        "j0 j1 y0 y1 rgamma loggamma gammaln gamma digamma psi sinc exp2 cbrt exprel expit logit erf erfc erfcx erfinv "
        "erfcinv ndtr ndtri log_ndtr i0 i0e i1 i1e entr expm1 log1p logsumexp softmax log_softmax k0 k1 k0e k1e "
        "log_expit exp10 spence ellipk ellipe dawsn expi exp1 erfi",
    )
    yield from called(
        special,
        "jn jv yn yv iv ive kv gammainc gammaincc beta betaln xlogy xlog1py rel_entr kl_div huber pseudo_huber stdtr "
        "kve gammaincinv gammainccinv stdtrit boxcox",
        2.0,
    )
    yield from called(
        special, "gammainc gammaincc beta betaln xlogy xlog1py rel_entr kl_div stdtr boxcox", after=(2.0,)
    )
    yield from called(special, "gammaincinv gammainccinv stdtrit", after=(0.25,))
    yield "betainc, x", lambda x: special.betainc(2.0, 3.0, x), V
    yield "betainc, a", lambda x: special.betainc(x, 3.0, 0.5), V
    yield "betainc, b", lambda x: special.betainc(2.0, x, 0.5), V
    yield "betaincinv, y", lambda x: special.betaincinv(2.0, 3.0, x), V
    yield "betaincinv, a", lambda x: special.betaincinv(x, 3.0, 0.25), V
    yield "erf, complex", lambda x: tc.real(special.erf(x * (1 + 1j))), V
    yield "erfc, complex", lambda x: tc.imag(special.erfc(x * (1 + 1j))), V
    yield "multigammaln", lambda x: special.multigammaln(x + 3.0, 2), V
    yield "polygamma", lambda x: special.polygamma(1, x), V
    yield "zeta", lambda x: special.zeta(x + 1.5, 2.0), V
    for several in (special.airy, special.fresnel, special.sici, special.shichi):
        yield several.__name__, lambda x, several=several: several(x)[1], V

    yield "block_diag", lambda x: linalg.block_diag(x, x), A
    yield from called(signal, "fftconvolve", x=SIGNAL, after=(t([0.2, 0.5, 0.3]),))
    yield from called(signal, "hilbert envelope", x=SIGNAL)
    yield "resample", lambda x: signal.resample(x, 8), SIGNAL
    yield "rfft", lambda x: real(fft.rfft(x)), V
    yield from called(integrate, "trapezoid cumulative_trapezoid cumulative_simpson", x=SIGNAL)
    yield "quad_vec", lambda x: integrate.quad_vec(lambda s: x * s, 0, 1)[0], V
    yield from called(stats, "zscore gmean hmean skew kurtosis variation iqr sem circmean entropy lmoment kstat")
    yield "quantile", lambda x: stats.quantile(x, 0.3), V
    yield "pearsonr", lambda x: stats.pearsonr(x, t([1.0, 0.2, 0.4, 0.3])).statistic, V

    yield from called(
        np,
        "median cbrt nanmax nanmin nanstd nancumsum nanmean nansum gradient vander ediff1d real_if_close sinc diff cov "
        "trapezoid sort",
    )
    yield from called(np, "corrcoef", x=A)
    yield "percentile", lambda x: np.percentile(x, 30), V
    yield "quantile", lambda x: np.quantile(x, 0.3), V
    yield "rollaxis", lambda x: np.rollaxis(x, 1), A
    yield "block", lambda x: np.block([[x], [x]]), V
    yield "insert", lambda x: np.insert(x, 1, x[0]), V
    yield "delete", lambda x: np.delete(x, 1), V
    yield "resize", lambda x: np.resize(x, (3, 2)), V
    yield "float_power", lambda x: np.float_power(x, 2), V
    yield "fmod", lambda x: np.fmod(x, 0.25), V
    yield "partition", lambda x: np.partition(x, 1), V
    yield "piecewise", lambda x: np.piecewise(x, [x < 0.5, x >= 0.5], [lambda z: z**2, lambda z: 2 * z]), V
    yield "compress", lambda x: np.compress(PICKED, x), V
    yield "extract", lambda x: np.extract(PICKED, x), V
    yield "correlate", lambda x: np.correlate(x, x, "full"), V
    yield "linalg.lstsq", lambda x: np.linalg.lstsq(x, t([1.0, 1.0, 1.0]), rcond=None)[0], SQUARE
    yield "linalg.cond", np.linalg.cond, SQUARE
    yield "linalg.eigh, upper", lambda x: np.linalg.eigh(x @ x.mT, UPLO="U")[0], SQUARE
    yield "cross", lambda x: np.cross(x, x[::-1] + 1.0, axisc=0), SQUARE
    yield "einsum", lambda x: np.einsum(x, [0, 1], x, [1, 2]), SQUARE
    yield "sum", lambda x: sum(x), V


# -- without


def others() -> Iterator[Case]:
    """What has none here, or only with a part of its arguments: some day one may."""
    from scipy import cluster, fft, integrate, interpolate, linalg, ndimage, optimize, signal, sparse, special, stats
    from scipy.spatial import distance

    for name, parameters in {"norm": (), "t": (3.5,), "gamma": (2.5,), "beta": (1.5, 2.5), "chi2": (3.0,)}.items():
        yield from called(getattr(stats, name), "pdf logpdf cdf", after=parameters)
    yield from called(stats.poisson, "pmf logpmf cdf", 2)
    yield "multivariate_normal", lambda x: stats.multivariate_normal.logpdf(x, np.zeros(4)), V
    yield "dirichlet", lambda x: stats.dirichlet.logpdf(np.ones(4) / 4, x), V
    yield "Normal", lambda x: stats.Normal().logpdf(x), V
    yield "gaussian_kde", lambda x: stats.gaussian_kde(V)(x), V
    yield "linregress", lambda x: stats.linregress(KNOTS, x).slope, V
    yield "bayes_mvs", lambda x: stats.bayes_mvs(x)[0].statistic, V
    yield "norm.fit", lambda x: np.sum(stats.norm.fit(x)), V

    yield from called(
        special,
        "wofz lambertw sindg cosm1 factorial",
    )
    yield from called(special, "jve yve pdtr hankel1 binom poch agm ellipkinc expn", 2)
    yield from called(special, "jv yv iv ive kv kve binom poch", after=(2.0,))
    yield "hyp2f1", lambda x: special.hyp2f1(1.0, 2.0, 3.0, x), V
    yield "logsumexp, b", lambda x: special.logsumexp(x, b=np.ones(4)), V

    yield from called(
        linalg,
        "expm sqrtm logm inv det cholesky svdvals pinv lu_factor qr schur hessenberg eigvals norm cosm polar svd eigh",
        x=SQUARE,
    )
    yield from called(linalg, "toeplitz circulant hankel companion")
    yield from called(linalg, "solve lstsq solve_triangular", x=SQUARE, after=(np.ones(3),))
    yield "solve_sylvester", lambda x: linalg.solve_sylvester(x, x, x), SQUARE
    yield "solve_banded", lambda x: linalg.solve_banded((1, 1), x, np.ones(3)), SQUARE

    yield "odeint", lambda x: integrate.odeint(lambda y, s: -y, x, [0, 1.0]), V
    yield "solve_ivp", lambda x: integrate.solve_ivp(lambda s, y: -y, (0, 1), x).y, V
    yield "simpson", integrate.simpson, V
    yield "nsum", lambda x: integrate.nsum(lambda k, p: 1 / k ** (2 + p), 1.0, 10.0, args=(x,)).sum, V
    yield from called(signal, "detrend medfilt wiener periodogram spectrogram welch czt", x=SIGNAL)
    yield "savgol_filter", lambda x: signal.savgol_filter(x, 5, 2), SIGNAL
    yield from called(signal, "convolve correlate oaconvolve", x=SIGNAL, after=(t([0.2, 0.5, 0.3]),))
    yield "convolve2d", lambda x: signal.convolve2d(x, t(np.ones((2, 2)))), A
    yield "resample_poly", lambda x: signal.resample_poly(x, 2, 1), SIGNAL
    yield from called(signal, "lfilter filtfilt", [1.0, 0.5], [1.0, 0.2], x=SIGNAL)
    yield from called(signal, "upfirdn", [1.0, 0.5], x=SIGNAL)
    yield "sosfilt", lambda x: signal.sosfilt(signal.butter(2, 0.3, output="sos"), x), SIGNAL
    yield "lombscargle", lambda x: signal.lombscargle(t(np.arange(32.0)), x, t([0.5, 1.0])), SIGNAL
    yield from called(fft, "dct dst")
    yield from called(ndimage, "uniform_filter sobel laplace sum", x=A)
    yield "gaussian_filter", lambda x: ndimage.gaussian_filter(x, 1.0), A
    yield "map_coordinates", lambda x: ndimage.map_coordinates(x, np.asarray([[0.5], [1.2]])), A
    yield from called(distance, "euclidean cosine cityblock", after=(t(V[::-1]),))
    yield "pdist", distance.pdist, A
    for interpolator in (
        *(interpolate.CubicSpline, interpolate.PchipInterpolator, interpolate.BarycentricInterpolator, interpolate.AAA),
        *(interpolate.KroghInterpolator, interpolate.interp1d, interpolate.make_interp_spline),
    ):
        yield from interpolated(interpolator)
    yield "newton", lambda x: optimize.newton(lambda z: z * z - x, t([1.0] * 4)), V
    yield "curve_fit", lambda x: optimize.curve_fit(lambda s, a: a * s, KNOTS, x)[0], V
    yield "kmeans", lambda x: cluster.vq.kmeans(x, 2, rng=0)[1], A
    yield "csr_array", lambda x: sparse.csr_array(x) @ np.ones(4), A

    yield from called(np, "unwrap frexp spacing roots poly bincount array asarray")
    yield "r_", lambda x: np.r_[x, x], V
    yield "c_", lambda x: np.c_[x, x], V
    yield "mean of a list", lambda x: np.mean([x, x]), V
    yield "linalg.norm of a list", lambda x: np.linalg.norm([x, x]), V
    yield from called(np, "sum prod mean", where=PICKED)
    yield "max, initial", lambda x: np.max(x, initial=0.1), V
    yield "apply_along_axis", lambda x: np.apply_along_axis(np.sum, 0, x), A
    yield "vectorize", lambda x: np.vectorize(lambda z: z * z)(x), V
    yield "histogram", lambda x: np.histogram(KNOTS, bins=2, weights=x)[0], V
    yield "polyfit", lambda x: np.polyfit(KNOTS, x, 1), V
    yield "out", lambda x: np.add(x, x, out=np.zeros(4)), V
    yield "in place", lambda x: np.ones(4).__imul__(x), V
    yield "an assigned slice", lambda x: np.zeros(4).__setitem__(slice(None), x), V
    yield "random.normal", lambda x: np.random.default_rng(0).normal(x), V
    yield "Polynomial", lambda x: np.polynomial.Polynomial(x)(0.5), V
    yield "masked_array", lambda x: np.ma.masked_array(x, x > 0.5).sum(), V
    yield "statistics.mean", statistics.mean, V
    yield "statistics.fmean", statistics.fmean, V


def interpolated(interpolator: Callable[..., Any]) -> Iterator[Case]:
    yield f"{interpolator.__name__}, values", lambda x: interpolator(KNOTS, x)(1.3), V
    yield f"{interpolator.__name__}, knots", lambda x: interpolator(t(KNOTS), x)(1.3), V
    yield f"{interpolator.__name__}, point", lambda x: interpolator(KNOTS, V)(x), V


def of_scikit_learn() -> Iterator[Case]:
    """What scikit-learn computes as Python's numbers."""
    import sklearn
    from sklearn import linear_model, metrics

    def dispatched(metric: Callable[..., Any]) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            with sklearn.config_context(array_api_dispatch=True):
                return metric(t(V[::-1]), x)

        return call

    for metric in (metrics.mean_squared_error, metrics.mean_absolute_error, metrics.r2_score):
        yield metric.__name__, dispatched(metric), V
    yield from called(metrics, "mean_squared_error r2_score mean_tweedie_deviance", V[::-1].copy())
    yield "LinearRegression", lambda x: linear_model.LinearRegression().fit(A.T, x).coef_, V
    yield "LogisticRegression", lambda x: linear_model.LogisticRegression().fit(x, [0, 1, 0]).coef_, A


# -- the check


def found_of(function: Callable[[Any], Any], x: Any, variable: bool) -> str:
    """`"right"`, `"told"`, or what is wrong."""
    given = tc.Variable(x, dtype=tc.float64) if variable else t(x.copy())
    with warnings.catch_warnings(record=True) as told, tc.GradientTape() as tape:
        warnings.simplefilter("always")
        if not variable:
            tape.watch(given)
        try:
            y = function(given)
        except (TypeError, AttributeError, ValueError):
            return "told"
    warned = any("no gradient comes back" in str(w.message) for w in told)
    if not isinstance(y, tc.Tensor):
        return "told" if warned else f"gives {type(y).__name__} without a word"
    weights = np.random.default_rng(1).standard_normal(y.shape)
    try:
        gradient = tape.gradient(y, given, output_gradients=tc.astype(t(weights), y.dtype))
    except NotImplementedError:
        return "told"
    if gradient is None:
        return "told" if warned else "gives no gradient without a word"
    expected = np.zeros(x.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in np.ndindex(x.shape):
            moved = [x.copy() for _ in range(2)]
            moved[0][place] += 1e-6
            moved[1][place] -= 1e-6
            above, below = (np.asarray(function(t(m))) for m in moved)
            expected[place] = np.sum(weights * (above - below)) / 2e-6
    error = np.max(np.abs(np.asarray(tc.asarray(gradient)) - expected) / (1 + np.abs(expected)))
    return "right" if error < 1e-5 else "told" if warned else f"has a gradient that is wrong by {error:.1e}"


def failures(cases: Iterator[Case], wanted: tuple[str, ...]) -> list[str]:
    found = []
    for name, function, x in cases:
        for variable in (False, True):
            outcome = found_of(function, x, variable)
            if outcome not in wanted:
                kind = "a Variable" if variable else "a Tensor"
                found.append(f"{name} of {kind}: {outcome}, not {' or '.join(wanted)}")
    return found


@pytest.mark.parametrize("which", ["differentiable", "others", "scikit-learn"])
def test_a_function_of_another_library_has_a_gradient_or_says_that_it_has_none(which: str) -> None:
    pytest.importorskip("scipy", minversion="1.17")
    if which == "scikit-learn":
        pytest.importorskip("sklearn")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-X", "utf8", __file__, which]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


if __name__ == "__main__":
    if sys.argv[1] == "differentiable":
        report = failures(differentiable(), ("right",))
    else:
        report = failures(others() if sys.argv[1] == "others" else of_scikit_learn(), ("right", "told"))
    sys.exit("\n".join(report) or None)
