"""Functions of `tape_core.scipy.signal`: SciPy's values and arguments, and derivatives, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from scipy_names import check, check_signature

theirs = pytest.importorskip("scipy.signal")
own = tc.scipy.signal

pytestmark = pytest.mark.each_backend

RNG = np.random.default_rng(0)
X = RNG.standard_normal(19)
Y = RNG.standard_normal(17)
H = RNG.standard_normal(4)
M = RNG.standard_normal((5, 4))
K = RNG.standard_normal((2, 3))
ROWS = RNG.standard_normal((2, 15))
B, A = np.asarray([0.4, 0.3, 0.2]), np.asarray([1.3, -0.5, 0.2, 0.1])
SOS = np.asarray([[0.5, 0.3, 0.2, 1.0, -0.4, 0.1], [0.7, 0.1, 0.0, 1.0, 0.2, -0.1]])

Case = tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]
MODES = ("full", "same", "valid")


def called(name: str, **options: Any) -> Callable[[Any], Callable[..., Any]]:
    return lambda m: lambda *xs: getattr(m, name)(*xs, **options)


def sections(b: Any, a: Any) -> Any:
    """Coefficients of filters of second order, whose denominators begin with 1."""
    return np.concatenate([b, np.ones((2, 1)), a], axis=1)


CASES: dict[str, Case] = {
    **{
        f"{name}, {mode} {method} {k}": (called(name, mode=mode, method=method), arrays)
        for name in ("convolve", "correlate")
        for mode in MODES
        for method in ("direct", "fft")
        for k, arrays in enumerate([(X, H), (H, X), (M, K), (K, M)])
    },
    **{f"fftconvolve, {mode}": (called("fftconvolve", mode=mode), (M, K)) for mode in MODES},
    "fftconvolve, axes": (called("fftconvolve", mode="same", axes=1), (ROWS, ROWS[:1, :4])),
    "oaconvolve": (called("oaconvolve"), (ROWS, ROWS[:, :4])),
    **{
        f"{name}, {mode} {boundary}": (called(name, mode=mode, boundary=boundary, fillvalue=0.3), (M, K))
        for name in ("convolve2d", "correlate2d")
        for mode in MODES
        for boundary in ("fill", "wrap", "symm")
    },
    "convolve2d, large": (called("convolve2d", mode="same", boundary="symm"), (K, M)),
    "convolve2d, larger": (called("convolve2d", mode="valid"), (K, M)),
    "correlate2d, large": (called("correlate2d", mode="same"), (K, M)),
    "correlate2d, larger": (called("correlate2d", mode="valid"), (K, M)),
    "hilbert": (called("hilbert"), (X,)),
    "hilbert, N": (called("hilbert", N=8, axis=0), (M,)),
    "upfirdn": (called("upfirdn", up=3, down=2), (H, X)),
    "upfirdn, axis": (called("upfirdn", down=2, axis=0), (H, M)),
    "detrend": (called("detrend"), (ROWS,)),
    "detrend, constant": (called("detrend", type="constant", axis=0), (M,)),
    "detrend, pieces": (called("detrend", bp=[6, 11]), (ROWS,)),
    **{
        f"savgol_filter, {mode} {length}": (
            called("savgol_filter", window_length=length, polyorder=2, mode=mode, cval=0.5, deriv=deriv, delta=0.7),
            (X,),
        )
        for mode in ("mirror", "constant", "nearest", "interp", "wrap")
        for length, deriv in ((5, 0), (7, 1), (4, 0))
    },
    "savgol_filter, axis": (called("savgol_filter", window_length=3, polyorder=1, axis=0), (M,)),
    "lfilter": (called("lfilter"), (B, A, ROWS)),
    "lfilter, FIR": (called("lfilter", axis=0), (B, A[:1], M)),
    "lfilter, number": (called("lfilter"), (B[:1], A[:1], X)),
    "lfilter, state": (lambda m: lambda b, a, x, zi: m.lfilter(b, a, x, zi=zi), (B, A, ROWS, ROWS[:, :3])),
    "lfilter_zi": (called("lfilter_zi"), (B, A)),
    "sosfilt": (lambda m: lambda b, a, x: m.sosfilt(sections(b, a), x), (SOS[:, :3], SOS[:, 4:], X)),
    "sosfilt, state": (
        lambda m: lambda b, x, zi: m.sosfilt(sections(b, SOS[:, 4:]), x, zi=zi),
        (SOS[:, :3], X, K[:, :2]),
    ),
    "sosfilt_zi": (called("sosfilt_zi"), (SOS,)),
    **{
        f"filtfilt, {kind}": (called("filtfilt", padtype=kind, padlen=5), (B, A, ROWS))
        for kind in ("odd", "even", "constant", None)
    },
    "filtfilt, default": (called("filtfilt"), (B, A, X)),
    "sosfiltfilt": (lambda m: lambda x: m.sosfiltfilt(SOS, x), (X,)),
    "sosfiltfilt, sections": (
        lambda m: lambda a, x: m.sosfiltfilt(sections(SOS[:, :3], a), x, padlen=3, axis=0),
        (SOS[:, 4:], M),
    ),
    "periodogram": (called("periodogram", fs=2.0), (X,)),
    "periodogram, nfft": (called("periodogram", nfft=8, window="hann", detrend="linear"), (ROWS,)),
    "periodogram, longer": (called("periodogram", nfft=24, scaling="spectrum", detrend=False), (X,)),
    "welch": (called("welch", nperseg=8), (X,)),
    "welch, axis": (called("welch", nperseg=3, axis=0, return_onesided=False, window="hamming"), (M,)),
    "welch, window": (lambda m: lambda x, w: m.welch(x, window=w, noverlap=3), (X, 1 + H**2)),
    "csd": (called("csd", nperseg=8, scaling="spectrum"), (X, Y)),
    "coherence": (called("coherence", nperseg=8), (X[:17], Y)),
    "spectrogram": (called("spectrogram", nperseg=8), (ROWS,)),
    "spectrogram, axis": (called("spectrogram", nperseg=3, axis=0, fs=3.0), (M,)),
    **{
        f"stft, {boundary}": (called("stft", nperseg=8, boundary=boundary, fs=2.0), (X,))
        for boundary in ("zeros", "even", "odd", "constant", None)
    },
    "stft, psd": (called("stft", nperseg=3, noverlap=2, nfft=5, axis=0, scaling="psd", padded=False), (M,)),
    "istft": (lambda m: lambda x: m.istft(m.stft(x, nperseg=8)[2] ** 2, nperseg=8)[1], (X,)),
    "istft, axes": (
        lambda m: (
            lambda x: m.istft(
                m.stft(x, nperseg=4, noverlap=3, axis=0)[2] ** 2, nperseg=4, noverlap=3, time_axis=-1, freq_axis=0
            )[1]
        ),
        (M,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_has_scipys_values_and_derivatives_however_it_is_run(name: str) -> None:
    function, arrays = CASES[name]
    check(function(own), function(theirs), *arrays, rtol=1e-8)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize(
    "window",
    [
        *("boxcar", "hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop", "bartlett", "triang"),
        *("cosine", "hann_symmetric", "tukey", 3.5, ("tukey", 0.3), ("kaiser", 5.0), ("gaussian", 2.0)),
        ("general_hamming", 0.6),
    ],
    ids=str,
)
def test_windows_have_scipys_values(window: Any, periodic: bool) -> None:
    for n in (1, 2, 7, 8):
        expected = theirs.get_window(window, n, fftbins=periodic)
        np.testing.assert_allclose(own.get_window(window, n, periodic).numpy(), expected, rtol=2e-6, atol=2e-7)


def test_each_function_is_checked_and_has_scipys_arguments() -> None:
    tested = {name.partition(",")[0] for name in CASES}
    assert {*own.__all__} - tested == {"get_window"}
    for name in own.__all__:
        if name != "get_window":
            check_signature(getattr(own, name), getattr(theirs, name))


def test_complex_signals() -> None:
    z, h = X + 0.5j * X[::-1], H[:3] - 1j * H[1:]
    for name, given in (
        *(("convolve", (z, h)), ("correlate", (z, h)), ("fftconvolve", (z, h)), ("lfilter", (h, A, z))),
        ("detrend", (z,)),
    ):
        found = getattr(own, name)(*map(tc.asarray, given))
        np.testing.assert_allclose(found.numpy(), getattr(theirs, name)(*given), rtol=1e-10, atol=1e-10)
    f, p = own.welch(tc.asarray(z), nperseg=8, return_onesided=False)
    expected = theirs.welch(z, nperseg=8, return_onesided=False)
    np.testing.assert_allclose(p.numpy(), expected[1], rtol=1e-10)
    np.testing.assert_allclose(f.numpy(), expected[0])


def test_what_does_not_go_is_refused_by_name() -> None:
    x, m = tc.asarray(X), tc.asarray(M)
    for call, message in (
        (lambda: own.filtfilt(B, A, x, method="gust"), r"scipy\.signal\.filtfilt: method='gust' has no counterpart"),
        (lambda: own.welch(x, average="median"), "average='median'"),
        (lambda: own.welch(x, window=("dpss", 2.5)), r"window=\('dpss', 2\.5\) has no counterpart"),
        (lambda: own.spectrogram(x, mode="angle"), "mode='angle'"),
        (lambda: own.upfirdn(H, x, mode="wrap"), "mode='wrap'"),
    ):
        with pytest.raises(NotImplementedError, match=message):
            call()
    for call, message in (
        (lambda: own.convolve(x, m), "in1 and in2 must have as many dimensions"),
        (lambda: own.convolve(m, tc.ones((9, 2)), mode="valid"), "at least as large as the other one in every dim"),
        (lambda: own.convolve(x, x, mode="circular"), "mode must be one of 'full', 'same', 'valid'; got 'circular'"),
        (lambda: own.savgol_filter(x, 3, 3), "polyorder must be less than window_length, 3; got 3"),
        (lambda: own.filtfilt(B, A, x[:12]), "the signal must be longer than padlen, 12; it has 12"),
        (lambda: own.stft(x, nperseg=8, noverlap=8), "noverlap must be less than nperseg, 8"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.warns(UserWarning, match=r"nperseg=256 is greater than the length of the signal, 19"):
        own.stft(x)


@pytest.mark.parametrize("name", ["detrend", "savgol_filter", "lfilter"])
def test_scipys_own_function_names_the_counterpart(name: str) -> None:
    x = tc.Variable(X)
    given = {"savgol_filter": (x, 5, 2), "lfilter": (B, A, x)}.get(name, (x,))
    with tc.GradientTape(), pytest.warns(UserWarning, match=rf"tape_core\.scipy\.signal\.{name}, which has a deriv"):
        getattr(theirs, name)(*given)
