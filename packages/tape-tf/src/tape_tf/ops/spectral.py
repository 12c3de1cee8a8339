"""tf.signal: Fourier transforms, frames and windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native, static, where, wrap
from tape_tf.functions import op
from tape_tf.names import exported


def _publish_complex(short: str, function: Callable[..., Any]) -> None:
    for suffix, n in (("", 1), ("2d", 2), ("3d", 3)):
        names = f"signal.{short}{suffix}"

        @op(names, "input", kernel=f"{short.upper()}{suffix.upper()}", raw="n")
        def transform(input: Any, n: int = n) -> Any:
            if input.dtype.kind != "complex floating":
                raise ValueError(f"Value for attr 'Tcomplex' of {input.dtype} is not complex; use tf.cast")
            return function(input, axes=tuple(range(-n, 0)))

        transform.__doc__ = f"The {'inverse ' * (short[0] == 'i')}Fourier transform over the last {n} dimensions."


_publish_complex("fft", tc.fft.fftn)
_publish_complex("ifft", tc.fft.ifftn)


def _publish_real(short: str, function: Callable[..., Any]) -> None:
    for suffix, n in (("", 1), ("2d", 2), ("3d", 3)):

        @op(f"signal.{short}{suffix}", "input", kernel=f"{short.upper()}{suffix.upper()}", raw="n")
        def transform(input: Any, fft_length: Any = None, n: int = n) -> Any:
            lengths = (
                None if fft_length is None else (fft_length,) if isinstance(fft_length, int) else tuple(fft_length)
            )
            return function(input, s=lengths, axes=tuple(range(-n, 0)))

        transform.__doc__ = f"The Fourier transform over the last {n} dimensions, of real values or back to them."


_publish_real("rfft", tc.fft.rfftn)
_publish_real("irfft", tc.fft.irfftn)


@op("signal.fftshift", "x")
def fftshift(x: Any, axes: Any = None) -> Any:
    """The frequency 0 moved to the middle."""
    return tc.fft.fftshift(x, axes=axes)


@op("signal.ifftshift", "x")
def ifftshift(x: Any, axes: Any = None) -> Any:
    """What :func:`fftshift` did, undone."""
    return tc.fft.ifftshift(x, axes=axes)


@exported("signal.frame")
def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: float = 0,
    axis: int = -1,
    name: Any = None,
) -> Any:
    """Windows of a length, a step apart, along `axis`: two dimensions, the frames and what is in them."""
    x, length, step = native(signal), static(frame_length), static(frame_step)
    axis = axis % x.ndim
    if pad_end:
        n = -(-x.shape[axis] // step)
        extra = max(0, (n - 1) * step + length - x.shape[axis])
        x = tc.pad(x, [(0, extra if k == axis else 0) for k in range(x.ndim)], constant_values=pad_value)
    return wrap(tc.moveaxis(tc.sliding_windows(x, length, axis=axis, stride=step), -1, axis + 1))


@exported("signal.overlap_and_add")
def overlap_and_add(signal: Any, frame_step: Any, name: Any = None) -> Any:
    """Frames added up, a step apart: the transpose of :func:`frame`."""
    x, step = native(signal), static(frame_step)
    frames, length = x.shape[-2:]
    return wrap(tc.add_windows(x, (*x.shape[:-2], (frames - 1) * step + length), axis=-1, stride=step))


def _window(n: Any, periodic: bool, dtype: Any, a: float, b: float) -> Any:
    """`a - b cos`, over a period or from end to end."""
    count = static(n)
    backend, device = where()
    places = tc.arange(count, dtype=tc.float64, backend=backend, device=device)
    period = count if periodic and count % 2 == 0 else count - 1  # of odd lengths as from end to end, in TensorFlow too
    wave = a - b * tc.cos(places * (2 * math.pi / max(period, 1)))
    return wrap(tc.astype(wave if count > 1 else tc.ones_like(wave), dtypes.as_dtype(dtype).native))


@exported("signal.hann_window")
def hann_window(window_length: Any, periodic: bool = True, dtype: Any = dtypes.float32, name: Any = None) -> Any:
    """The Hann window."""
    return _window(window_length, periodic, dtype, 0.5, 0.5)


@exported("signal.hamming_window")
def hamming_window(window_length: Any, periodic: bool = True, dtype: Any = dtypes.float32, name: Any = None) -> Any:
    """The Hamming window."""
    return _window(window_length, periodic, dtype, 0.54, 0.46)


@exported("signal.stft")
def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    pad_end: bool = False,
    name: Any = None,
) -> Any:
    """The short-time Fourier transform: that of each frame, times a window; of a length that is a power of 2."""
    length = static(frame_length)
    size = static(fft_length)
    if size is None:
        size = 1 << (length - 1).bit_length()
    frames = native(frame(signals, length, frame_step, pad_end))
    if window_fn is not None:
        frames = frames * native(window_fn(length, dtype=dtypes.of(frames.dtype)))
    return wrap(tc.fft.rfft(frames, n=size))
