"""Spectra by Fourier transforms of segments: `welch`, `stft` and their relatives."""

from __future__ import annotations

from typing import Any

import tape_core as tc
from tape_core.base.user_code import warn_user
from tape_core.scipy.arguments import choose, floats, is_complex, real_constant, refuse
from tape_core.scipy.signal.filters import detrend as _detrend
from tape_core.scipy.signal.windows import as_window
from tape_core.typing import ArrayLike

Window = ArrayLike | str | tuple[Any, ...]


def _segments(
    name: str, n: int, window: Window, nperseg: int | None, noverlap: int | None, nfft: int | None
) -> tuple[int, int, int]:
    """The length of segments, what they have in common, and the length of transforms."""
    if nperseg is None:
        named = isinstance(window, str | tuple)
        nperseg = min(256, n) if named else len(window)
    if nperseg < 1:
        raise ValueError(f"{name}: nperseg must be positive; got {nperseg}")
    if nperseg > n:
        warn_user(f"{name}: nperseg={nperseg} is greater than the length of the signal, {n}, which is taken instead")
        nperseg = n
    noverlap = nperseg // 2 if noverlap is None else noverlap
    if noverlap >= nperseg:
        raise ValueError(f"{name}: noverlap must be less than nperseg, {nperseg}; got {noverlap}")
    nfft = nperseg if nfft is None else nfft
    if nfft < nperseg:
        raise ValueError(f"{name}: nfft must be at least nperseg, {nperseg}; got {nfft}")
    return nperseg, noverlap, nfft


def _transforms(
    name: str, x: tc.Tensor, win: tc.Tensor, noverlap: int, nfft: int, detrend: object, onesided: bool
) -> tc.Tensor:
    """The transforms of all segments along the last axis: shape (..., segments, frequencies)."""
    nperseg = win.shape[0]
    parts = tc.sliding_windows(x, nperseg, axis=-1, stride=nperseg - noverlap)
    if callable(detrend):
        parts = detrend(parts)
    elif detrend:
        parts = _detrend(parts, type=detrend)  # type: ignore[arg-type]
    parts = parts * win
    return tc.fft.rfft(parts, n=nfft) if onesided else tc.fft.fft(parts, n=nfft)


def _frequencies(x: tc.Tensor, nfft: int, fs: float, onesided: bool) -> tc.Tensor:
    numbers = range(nfft // 2 + 1) if onesided else [k if 2 * k < nfft else k - nfft for k in range(nfft)]
    return real_constant(x, [k * fs / nfft for k in numbers])


def _one_sided(x: tc.Tensor, y: tc.Tensor, return_onesided: bool) -> bool:
    return return_onesided and not is_complex(x) and not is_complex(y)


def _scale(name: str, win: tc.Tensor, fs: float, scaling: str) -> tc.Tensor:
    choose(name, "scaling", scaling, ("density", "spectrum"))
    return 1.0 / (fs * tc.sum(win * win)) if scaling == "density" else 1.0 / tc.sum(win) ** 2


def _doubled(spectrum: tc.Tensor, nfft: int) -> tc.Tensor:
    """Half a spectrum that stands for the whole: all frequencies but 0 and the last one of an even number are two."""
    weights = [1.0 if k == 0 or 2 * k == nfft else 2.0 for k in range(spectrum.shape[-1])]
    return spectrum * real_constant(spectrum, weights)


def _densities(
    name: str,
    x: tc.Tensor,
    y: tc.Tensor,
    fs: float,
    window: Window,
    nperseg: int | None,
    noverlap: int | None,
    nfft: int | None,
    detrend: object,
    return_onesided: bool,
    scaling: str,
    axis: int,
) -> tuple[tc.Tensor, tc.Tensor, int]:
    """Frequencies, the products of transforms of segments, shape (..., segments, frequencies), and their length."""
    same = y is x
    x = tc.moveaxis(x, axis, -1)
    y = x if same else tc.moveaxis(y, axis, -1)
    n = max(x.shape[-1], y.shape[-1])
    x, y = (tc.pad(one, (*[(0, 0)] * (one.ndim - 1), (0, n - one.shape[-1]))) for one in (x, y))
    if same:
        y = x
    nperseg, noverlap, nfft = _segments(name, n, window, nperseg, noverlap, nfft)
    win = as_window(name, window, nperseg, x)
    onesided = _one_sided(x, y, return_onesided)
    first = _transforms(name, x, win, noverlap, nfft, detrend, onesided)
    if same:
        product = tc.square(tc.real(first)) + tc.square(tc.imag(first))
    else:
        product = tc.conj(first) * _transforms(name, y, win, noverlap, nfft, detrend, onesided)
    product = product * _scale(name, win, fs, scaling)
    if onesided:
        product = _doubled(product, nfft)
    return _frequencies(x, nfft, fs, onesided), product, nperseg - noverlap


def welch(
    x: ArrayLike,
    fs: float = 1.0,
    window: Window = "hann_periodic",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[tc.Tensor, tc.Tensor]:
    """Frequencies, and the power spectral density by the mean over segments of the signal.

    >>> f, p = welch(tc.asarray([1.0, -1.0] * 4), nperseg=4)
    >>> f.tolist(), [f"{v:.3f}" for v in p]
    ([0.0, 0.25, 0.5], ['0.000', '1.333', '2.667'])

    Args:
        x: the signal, along `axis`.
        fs: the sampling frequency.
        window: the name of a window, see :func:`get_window`, or its elements.
        nperseg: the length of segments; by default 256, or that of the window.
        noverlap: how many elements two segments have in common; by default half.
        nfft: the length of transforms; zeros are added.
        detrend: "constant", "linear", False, or a function of segments along the last axis.
        return_onesided: of a real signal, whether only frequencies from 0 to the half are returned.
        scaling: "density", or "spectrum" for power.

    Raises:
        ValueError: an argument is out of its range.
        NotImplementedError: `average="median"`, or a window is unknown.
    """
    (x,) = floats("scipy.signal.welch", x=x)
    refuse("scipy.signal.welch", average=(average, ("mean",)))
    f, p, _ = _densities(
        "scipy.signal.welch", x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis
    )
    return f, tc.moveaxis(tc.mean(p, axis=-2), -1, axis)


def periodogram(
    x: ArrayLike,
    fs: float = 1.0,
    window: Window = "boxcar",
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
) -> tuple[tc.Tensor, tc.Tensor]:
    """Frequencies, and the power spectral density of the whole signal; the arguments are those of :func:`welch`.

    >>> periodogram(tc.asarray([1.0, -1.0, 1.0, -1.0]))[1].tolist()
    [0.0, 0.0, 4.0]
    """
    (x,) = floats("scipy.signal.periodogram", x=x)
    n = x.shape[axis]
    if nfft is not None and nfft < n:
        key = [slice(None)] * x.ndim
        key[axis] = slice(nfft)
        x, n = x[tuple(key)], nfft
    f, p, _ = _densities(
        "scipy.signal.periodogram",
        x,
        x,
        fs,
        "boxcar" if window is None else window,
        n,
        0,
        nfft,
        detrend,
        return_onesided,
        scaling,
        axis,
    )
    return f, tc.moveaxis(p[..., 0, :], -1, axis)


def csd(
    x: ArrayLike,
    y: ArrayLike,
    fs: float = 1.0,
    window: Window = "hann_periodic",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[tc.Tensor, tc.Tensor]:
    """Frequencies, and the cross power spectral density of two signals; the arguments are those of :func:`welch`.

    >>> csd(tc.asarray([1.0, -1.0] * 4), tc.asarray([1.0, -1.0] * 4), nperseg=4)[1].shape
    (3,)
    """
    x, y = floats("scipy.signal.csd", x=x, y=y)
    refuse("scipy.signal.csd", average=(average, ("mean",)))
    f, p, _ = _densities(
        "scipy.signal.csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis
    )
    return f, tc.moveaxis(tc.mean(p, axis=-2), -1, axis)


def coherence(
    x: ArrayLike,
    y: ArrayLike,
    fs: float = 1.0,
    window: Window = "hann_periodic",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    axis: int = -1,
) -> tuple[tc.Tensor, tc.Tensor]:
    """Frequencies, and the coherence of two signals: `abs(Pxy)**2 / (Pxx * Pyy)`.

    >>> x = tc.asarray([1.0, -1.0, 0.5, 2.0, -1.0, 0.0, 1.0, 0.0])
    >>> coherence(x, 2 * x, nperseg=4)[1].round(3).tolist()
    [1.0, 1.0, 1.0]
    """
    x, y = floats("scipy.signal.coherence", x=x, y=y)
    name = "scipy.signal.coherence"
    segments = (fs, window, nperseg, noverlap, nfft, detrend, True, "density", axis)
    f, both, _ = _densities(name, x, y, *segments)
    both, *each = (tc.mean(p, axis=-2) for p in (both, *[_densities(name, one, one, *segments)[1] for one in (x, y)]))
    size = tc.square(tc.real(both)) + tc.square(tc.imag(both))
    return f, tc.moveaxis(size / (each[0] * each[1]), -1, axis)


def _times(beside: tc.Tensor, first: float, step: float, count: int) -> tc.Tensor:
    return real_constant(beside, [first + k * step for k in range(count)])


def spectrogram(
    x: ArrayLike,
    fs: float = 1.0,
    window: Window = ("tukey_periodic", 0.25),
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    mode: str = "psd",
) -> tuple[tc.Tensor, tc.Tensor, tc.Tensor]:
    """Frequencies, times, and the power spectral density of each segment; the arguments are those of :func:`welch`.

    >>> f, t, s = spectrogram(tc.ones(16), nperseg=8)
    >>> s.shape, t.tolist()
    ((5, 2), [4.0, 11.0])

    Raises:
        NotImplementedError: `mode` is not "psd".
    """
    name = "scipy.signal.spectrogram"
    (x,) = floats(name, x=x)
    refuse(name, mode=(mode, ("psd",)))
    length, _, _ = _segments(name, x.shape[axis], window, nperseg, 0, nfft)
    noverlap = length // 8 if noverlap is None else noverlap
    f, p, step = _densities(name, x, x, fs, window, length, noverlap, nfft, detrend, return_onesided, scaling, axis)
    t = _times(x, length / 2 / fs, step / fs, p.shape[-2])
    found = tc.moveaxis(p, -1, axis if axis >= 0 else axis - 1)
    return f, t, found


def stft(
    x: ArrayLike,
    fs: float = 1.0,
    window: Window = "hann_periodic",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
    scaling: str = "spectrum",
) -> tuple[tc.Tensor, tc.Tensor, tc.Tensor]:
    """Frequencies, times, and the Fourier transforms of segments of the signal; :func:`istft` is the inverse.

    >>> f, t, z = stft(tc.ones(8), nperseg=4)
    >>> z.shape, t.tolist()
    ((3, 5), [0.0, 2.0, 4.0, 6.0, 8.0])

    Args:
        boundary: what is put before and after, half a segment: "zeros", "even", "odd", "constant" or None.
        padded: whether zeros are added up to a whole number of segments.
        scaling: "spectrum", or "psd" for density.
        x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis: as for :func:`welch`.

    Raises:
        ValueError: an argument is out of its range.
    """
    name = "scipy.signal.stft"
    (x,) = floats(name, x=x)
    choose(name, "boundary", boundary, ("zeros", "even", "odd", "constant", None))
    choose(name, "scaling", scaling, ("spectrum", "psd"))
    nperseg, noverlap, nfft = _segments(name, x.shape[axis], window, nperseg, noverlap, nfft)
    win = as_window(name, window, nperseg, x)
    x = tc.moveaxis(x, axis, -1)
    half = nperseg // 2
    if boundary is not None:
        widths = (*[(0, 0)] * (x.ndim - 1), (half, half))
        if boundary == "odd":
            last, first = x[..., -1:], x[..., :1]
            whole = tc.pad(x, widths, "reflect")
            x = tc.concat([2 * first - whole[..., :half], x, 2 * last - whole[..., x.shape[-1] + half :]], axis=-1)
        else:
            kinds: dict[str, Any] = {"zeros": "constant", "even": "reflect", "constant": "edge"}
            x = tc.pad(x, widths, kinds[boundary])
    step = nperseg - noverlap
    if padded:
        more = (-(x.shape[-1] - nperseg) % step) % nperseg
        x = tc.pad(x, (*[(0, 0)] * (x.ndim - 1), (0, more)))
    onesided = _one_sided(x, x, return_onesided)
    scale = tc.sqrt(_scale(name, win, fs, "density" if scaling == "psd" else "spectrum"))
    found = _transforms(name, x, win, noverlap, nfft, detrend, onesided) * scale
    t = _times(x, (0.0 if boundary is not None else nperseg / 2) / fs, step / fs, found.shape[-2])
    return _frequencies(x, nfft, fs, onesided), t, tc.moveaxis(found, -1, axis if axis >= 0 else axis - 1)


def istft(
    Zxx: ArrayLike,
    fs: float = 1.0,
    window: Window = "hann_periodic",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
    scaling: str = "spectrum",
) -> tuple[tc.Tensor, tc.Tensor]:
    """Times, and the signal whose transforms of segments are nearest to `Zxx`: the inverse of :func:`stft`.

    >>> x = tc.asarray([1.0, 2.0, 3.0, 4.0])
    >>> istft(stft(x, nperseg=4)[2], nperseg=4)[1].round(4).tolist()
    [1.0, 2.0, 3.0, 4.0]

    Args:
        Zxx: transforms, with segments along `time_axis` and frequencies along `freq_axis`.
        input_onesided: whether these are the frequencies from 0 to the half.
        boundary: whether the signal was extended.
        fs, window, nperseg, noverlap, nfft, scaling: as for :func:`stft`.

    Raises:
        ValueError: an argument is out of its range.
    """
    name = "scipy.signal.istft"
    (Zxx,) = floats(name, Zxx=Zxx)
    choose(name, "scaling", scaling, ("spectrum", "psd"))
    if Zxx.ndim < 2 or time_axis % Zxx.ndim == freq_axis % Zxx.ndim:
        raise ValueError(f"{name}: Zxx must have two axes or more, and time_axis and freq_axis be two; got {Zxx.shape}")
    given = time_axis % Zxx.ndim
    given -= freq_axis % Zxx.ndim < given
    Zxx = tc.moveaxis(Zxx, (time_axis, freq_axis), (-2, -1))
    count, frequencies = Zxx.shape[-2:]
    usual = 2 * (frequencies - 1) if input_onesided else frequencies
    nperseg = usual if nperseg is None else nperseg
    if nfft is None:
        nfft = nperseg if input_onesided and nperseg == usual + 1 else usual
    noverlap = nperseg // 2 if noverlap is None else noverlap
    if nperseg < 1 or nfft < nperseg or noverlap >= nperseg:
        raise ValueError(
            f"{name}: nperseg must be positive, at most nfft and above noverlap; got {nperseg}, {nfft} and {noverlap}"
        )
    win = as_window(name, window, nperseg, Zxx)
    parts = (tc.fft.irfft if input_onesided else tc.fft.ifft)(Zxx, n=nfft)[..., :nperseg]
    parts = parts * (tc.sum(win) if scaling == "spectrum" else tc.sqrt(fs * tc.sum(win * win)))
    step = nperseg - noverlap
    n = nperseg + (count - 1) * step
    x = tc.add_windows(parts * win, (*Zxx.shape[:-2], n), axis=-1, stride=step)
    weight = tc.add_windows(tc.broadcast_to(win * win, (count, nperseg)), (n,), axis=0, stride=step)
    if boundary:
        half = nperseg // 2
        x, weight = x[..., half : n - half], weight[half : n - half]
    x = x / tc.where(weight > 1e-10, weight, 1.0)
    return _times(x, 0.0, 1 / fs, x.shape[-1] if x.ndim == 1 else x.shape[0]), tc.moveaxis(x, -1, given)
