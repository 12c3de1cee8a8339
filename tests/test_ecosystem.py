"""Functions of other libraries, unmodified, on Tensors: values and gradients, in float64, against finite differences.

SciPy takes arrays of other libraries only where `SCIPY_ARRAY_API=1` is set before it is imported. So its functions run
in an interpreter of their own: this file as a script.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
import tape_core as tc

Case = tuple[str, Callable[[Any], Any], Any]
RNG = np.random.default_rng(0)
V = RNG.uniform(0.3, 0.9, 4)
A = RNG.uniform(0.3, 0.9, (3, 4))
B = RNG.uniform(0.3, 0.9, (3, 4))
DATA = RNG.uniform(0.3, 2, (9, 3))
OTHER = RNG.uniform(0.3, 2, (9, 3))
SIGNAL = RNG.standard_normal(12)
FILTER = np.array([0.3, 0.5, 0.2])


def words(text: str) -> list[str]:
    return text.split()


def t(array: Any) -> Any:
    return tc.asarray(np.asarray(array, dtype="float64"))


def failure(function: Callable[[Any], Any], x: Any, step: float = 1e-6) -> str:
    """What is wrong with the gradient of a function at `x`, if anything."""
    given = t(x)
    with tc.GradientTape() as tape:
        tape.watch(given)
        y = function(given)
    if not isinstance(y, tc.Tensor):
        return f"gives {type(y).__name__}, no Tensor"
    weights = np.random.default_rng(1).standard_normal(y.shape)
    gradient = tape.gradient(y, given, output_gradients=t(weights))
    if gradient is None:
        return "gives no gradient"
    expected = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        moved = [np.array(x, dtype="float64") for _ in range(2)]
        moved[0][place] += step
        moved[1][place] -= step
        above, below = (np.real(function(t(m)).numpy()) for m in moved)
        expected[place] = np.sum(weights * (above - below)) / (2 * step)
    error = np.max(np.abs(gradient.numpy() - expected) / (1 + np.abs(expected)))
    return "" if error < 1e-6 else f"its gradient is wrong by {error:.1e}"


# -- array-api-compat


def test_array_api_compat_sees_an_array_of_tape() -> None:
    compat = pytest.importorskip("array_api_compat")
    x = tc.asarray([1.0, 2.0])
    assert compat.is_array_api_obj(x)
    assert compat.array_namespace(x, tc.Variable(1.0), 1.0) is tc
    assert (compat.device(x), compat.size(x)) == ("cpu", 2)
    assert compat.to_device(x, "cpu").tolist() == [1.0, 2.0]
    assert compat.is_writeable_array(x)
    assert not compat.is_lazy_array(x)
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(2))


# -- array-api-extra


def extra_cases(xpx: Any) -> Iterator[Case]:
    yield "apply_where", lambda x: xpx.apply_where(x > 0.5, x, lambda a: a**2, lambda a: 3 * a), A
    yield "apply_where, fill", lambda x: xpx.apply_where(x > 0.5, x, lambda a: a**2, fill_value=0.0), A
    yield "at.set", lambda x: xpx.at(x, 1).set(x[0] * 2, copy=True), V
    yield "at.set, mask", lambda x: xpx.at(x)[x > 0.5].set(0.0, copy=True), V
    yield "at.add", lambda x: xpx.at(x, (slice(None), 1)).add(x[:, 0] * 2, copy=True), A
    yield "at.multiply", lambda x: xpx.at(x)[1:].multiply(x[0], copy=True), V
    yield "at.min", lambda x: xpx.at(x)[0].min(0.1, copy=True), V
    yield "atleast_nd", lambda x: xpx.atleast_nd(x, ndim=3), V
    yield "cov", xpx.cov, A
    yield "create_diagonal", lambda x: xpx.create_diagonal(x, offset=1), V
    yield "kron", lambda x: xpx.kron(x, 2 * x), A
    yield "nan_to_num", xpx.nan_to_num, A
    yield "one_hot", lambda x: xpx.one_hot(tc.asarray([1, 0]), 3, dtype=tc.float64) * x[0], V
    yield "pad", lambda x: xpx.pad(x, (1, 2), constant_values=1.0), A
    yield "partition", lambda x: xpx.partition(x, 1), A
    yield "sinc", xpx.sinc, A


def test_gradients_flow_through_array_api_extra() -> None:
    xpx = pytest.importorskip("array_api_extra")
    assert failures(extra_cases(xpx)) == []


def test_array_api_extra_without_derivatives() -> None:
    xpx = pytest.importorskip("array_api_extra")
    x = tc.asarray([1.0, 2.0, 2.0])
    assert xpx.nunique(x).item() == 2
    assert xpx.isclose(x, x + 1e-12).tolist() == [True] * 3
    assert xpx.setdiff1d(x, tc.asarray([2.0])).tolist() == [1.0]
    assert xpx.argpartition(x, 1).dtype is tc.int64


# -- SciPy


def scipy_cases() -> Iterator[Case]:
    from scipy import differentiate, fft, integrate, linalg, optimize, signal, special, stats
    from scipy.cluster import vq
    from scipy.optimize import elementwise
    from scipy.spatial import transform

    rotation = transform.Rotation

    for name in words("expit erf logsumexp softmax log_softmax"):
        yield f"special.{name}", getattr(special, name), A
    yield "special.logsumexp, weights", lambda x: special.logsumexp(x, axis=1, b=t(B)), A
    yield "special.xlogy", lambda x: special.xlogy(x, t(B)), A
    yield "special.rel_entr", lambda x: special.rel_entr(x, t(B)), A
    for name in words("sinc exp2 cbrt loggamma exprel rgamma j0 j1 y0 y1"):
        yield f"special.{name}", getattr(special, name), A
    for name in words("kl_div huber pseudo_huber beta"):
        yield f"special.{name}", lambda x, name=name: getattr(special, name)(x, t(B) + 0.2), A
    for name in words("gammainc gammaincc jn yn iv ive"):
        yield f"special.{name}", lambda x, name=name: getattr(special, name)(2.0, x), A
    yield "special.betainc", lambda x: special.betainc(2.0, 3.0, x), A
    yield "special.multigammaln", lambda x: special.multigammaln(x + 3, 2), A

    for name in words(
        "zscore gzscore gmean hmean skew kurtosis variation sem tmean tvar tstd gstd kstat kstatvar circmean circvar "
        "circstd differential_entropy iqr median_abs_deviation lmoment"
    ):
        yield f"stats.{name}", getattr(stats, name), DATA
    yield "stats.pmean", lambda x: stats.pmean(x, 2.5), DATA
    yield "stats.moment", lambda x: stats.moment(x, 3), DATA
    yield "stats.trim_mean", lambda x: stats.trim_mean(x, 0.1), DATA
    yield "stats.zmap", lambda x: stats.zmap(x, t(OTHER)), DATA
    yield "stats.boxcox_llf", lambda x: stats.boxcox_llf(0.7, x), DATA
    yield "stats.directional_stats", lambda x: stats.directional_stats(x).mean_direction, A
    yield "stats.ttest_1samp", lambda x: stats.ttest_1samp(x, 0.3).statistic, DATA
    yield "stats.ttest_ind", lambda x: stats.ttest_ind(x, t(OTHER)).statistic, DATA
    yield "stats.ttest_rel", lambda x: stats.ttest_rel(x, t(OTHER)).statistic, DATA
    yield "stats.pearsonr", lambda x: stats.pearsonr(x[:, 0], x[:, 1]).statistic, DATA
    yield "stats.f_oneway", lambda x: stats.f_oneway(x, t(OTHER)).statistic, DATA
    yield "stats.levene", lambda x: stats.levene(x[:, 0], x[:, 1]).statistic, DATA
    yield "stats.bartlett", lambda x: stats.bartlett(x[:, 0], x[:, 1]).statistic, DATA
    yield "stats.normaltest", lambda x: stats.normaltest(x).statistic, np.concatenate([DATA, OTHER])
    yield "stats.power_divergence", lambda x: stats.power_divergence(x, lambda_="cressie-read").statistic, DATA
    yield "stats.combine_pvalues", lambda x: stats.combine_pvalues(x, axis=0).statistic, A

    yield "integrate.trapezoid", lambda x: integrate.trapezoid(x, t(range(4))), A
    yield "integrate.cumulative_trapezoid", lambda x: integrate.cumulative_trapezoid(x, initial=0), A
    yield "integrate.cumulative_simpson", integrate.cumulative_simpson, A
    yield "integrate.romb", integrate.romb, DATA[:, 0]
    zero, one = t([0.0]), t([1.0])
    yield "integrate.cubature", lambda x: integrate.cubature(lambda z: tc.exp(-z * x[0]), zero, one).estimate, V
    yield "integrate.cubature, limits", lambda x: integrate.cubature(lambda z: tc.exp(-z), zero, x[:1]).estimate, V
    yield (
        "integrate.tanhsinh",
        lambda x: integrate.tanhsinh(lambda z, p: tc.exp(-z * p), 0 * x, x, args=(x,)).integral,
        V,
    )

    for transform_of in (fft.fft, fft.ifft, fft.rfft, fft.irfft, fft.fft2, fft.fftn, fft.hfft, fft.fftshift):
        yield f"fft.{transform_of.__name__}", lambda x, f=transform_of: tc.abs(f(x)), A
    yield "fft.fht", lambda x: fft.fht(x, 0.1, 0.5), V

    yield "signal.fftconvolve", lambda x: signal.fftconvolve(x, t(FILTER)), SIGNAL
    yield "signal.convolve", lambda x: signal.convolve(x, t(FILTER), method="fft"), SIGNAL
    yield "signal.correlate", lambda x: signal.correlate(x, t(FILTER), method="fft"), SIGNAL
    yield "signal.resample", lambda x: signal.resample(x, 8), SIGNAL
    yield "signal.hilbert", lambda x: tc.abs(signal.hilbert(x)), SIGNAL
    yield "signal.envelope", signal.envelope, SIGNAL
    yield "signal.freqz", lambda x: tc.abs(signal.freqz(x, worN=5)[1]), FILTER
    yield "signal.lp2hp", lambda x: signal.lp2hp(x, 2 * x, 2.0)[0], FILTER
    yield "signal.vectorstrength", lambda x: signal.vectorstrength(x, t(3.0))[0], SIGNAL

    yield "Rotation.as_matrix", lambda x: rotation.from_rotvec(x).as_matrix(), V[:3]
    yield "Rotation.apply", lambda x: rotation.from_quat(x).apply(t([1.0, 2.0, 3.0])), V
    yield "Rotation.as_quat", lambda x: rotation.from_euler("xyz", x).as_quat(), V[:3]
    yield "Rotation.as_euler", lambda x: (rotation.from_rotvec(x) * rotation.from_rotvec(2 * x)).as_euler("xyz"), V[:3]
    yield "Rotation.as_rotvec", lambda x: rotation.from_matrix(rotation.from_mrp(x).as_matrix()).as_rotvec(), V[:3]
    yield "RigidTransform", lambda x: transform.RigidTransform.from_translation(x).apply(x), V[:3]
    turn = lambda x: rotation.from_rotvec(tc.stack([x, 2 * x]))  # noqa: E731
    yield "Slerp", lambda x: transform.Slerp(t([0.0, 1.0]), turn(x))(t(0.3)).as_rotvec(), V[:3]

    yield "cluster.vq.whiten", vq.whiten, A
    yield "optimize.rosen", optimize.rosen, V
    yield "optimize.rosen_der", optimize.rosen_der, V
    yield "optimize.rosen_hess", optimize.rosen_hess, V
    find_root = lambda x: elementwise.find_root(lambda z, p: z * z - p, (0 * x, 0 * x + 2), args=(x,)).x  # noqa: E731
    yield "optimize.elementwise.find_root", find_root, V
    yield "differentiate.derivative", lambda x: differentiate.derivative(lambda z: z**3, x).df, V
    yield "linalg.block_diag", lambda x: linalg.block_diag(x, 2 * x), A


def learning_cases() -> Iterator[Case]:
    """Estimators of scikit-learn: they divide 0 by 0 and assign over it, and rely on sorted classes."""
    if importlib.util.find_spec("sklearn") is None:
        return
    import sklearn
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import StandardScaler

    sklearn.set_config(array_api_dispatch=True)
    classes = tc.asarray([0, 1, 0, 1, 1, 0, 0, 1, 1])
    yield "StandardScaler", lambda x: StandardScaler().fit_transform(x) ** 3, DATA
    yield (
        "LinearDiscriminantAnalysis",
        lambda x: LinearDiscriminantAnalysis().fit(x, classes).decision_function(x),
        DATA,
    )
    yield "GaussianNB", lambda x: GaussianNB().fit(x, classes).predict_log_proba(x), DATA


def labelled_cases() -> Iterator[Case]:
    """xarray's reductions."""
    if importlib.util.find_spec("xarray") is None:
        return
    import xarray

    def labelled(x: Any) -> Any:
        return xarray.DataArray(x, dims=("a", "b"))

    for name in words("sum mean std max min median cumsum"):
        yield f"xarray {name}", lambda x, name=name: getattr(labelled(x), name)(dim="a").data, A
    yield "xarray dot", lambda x: xarray.dot(labelled(x), labelled(t(B)), dim="b").data, A


def failures(cases: Iterable[Case]) -> list[str]:
    found = []
    for name, function, x in cases:
        try:
            wrong = failure(function, x)
        except Exception as error:  # noqa: BLE001 - reported
            wrong = f"raises {type(error).__name__}: {error}"
        if wrong:
            found.append(f"{name} {wrong}")
    return found


def test_gradients_flow_through_scipy() -> None:
    pytest.importorskip("scipy", minversion="1.17")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-X", "utf8", __file__]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_library_that_computes_on_copies_warns() -> None:
    special = pytest.importorskip("scipy.special")
    x = tc.Variable([0.5, 0.2], dtype=tc.float64)
    with tc.GradientTape() as tape, pytest.warns(UserWarning, match="no gradient comes back"):
        y = tc.sum(tc.asarray(special.ellipk(np.asarray(x))))
    assert tape.gradient(y, x) is None


def test_matplotlib_draws_bars_of_tensors() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    bars = axes.bar(tc.asarray([0.0, 1.0]), tc.asarray([2.0, 3.0]))
    assert [bar.get_height() for bar in bars] == [2.0, 3.0]
    pyplot.close(figure)


if __name__ == "__main__":
    report = failures(chain(scipy_cases(), learning_cases(), labelled_cases()))
    sys.exit("\n".join(report) or None)
