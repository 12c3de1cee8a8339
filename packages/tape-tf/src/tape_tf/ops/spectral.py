"""tf.signal: Fourier transforms, frames and windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import backend_and_device, native, static, wrap
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.typing import DTypeLike, IntLike, TensorLike

# -- Fourier transforms


def _publish_complex(short: str, function: Callable[..., Any]) -> None:
    for suffix, n in (("", 1), ("2d", 2), ("3d", 3)):
        names = f"signal.{short}{suffix}"

        @op(names, "input", kernel=f"{short.upper()}{suffix.upper()}")
        def transform(input: tc.Tensor, n: int = n) -> Any:
            # As TensorFlow's kernels, which take no real tensor: that is for `rfft`.
            if input.dtype.kind != "complex floating":
                raise ValueError(f"Value for attr 'Tcomplex' of {input.dtype} is not complex; use tf.cast")
            return function(input, axes=tuple(range(-n, 0)))

        transform.__doc__ = (
            f"Return the {'inverse ' * (short[0] == 'i')}Fourier transform over the last {n} dimensions."
        )


_publish_complex("fft", tc.fft.fftn)
_publish_complex("ifft", tc.fft.ifftn)


def _publish_real(short: str, function: Callable[..., Any]) -> None:
    for suffix, n in (("", 1), ("2d", 2), ("3d", 3)):

        @op(f"signal.{short}{suffix}", "input", static_args="fft_length", kernel=f"{short.upper()}{suffix.upper()}")
        def transform(input: tc.Tensor, fft_length: int | tuple[int, ...] | None = None, n: int = n) -> Any:
            lengths = (
                None if fft_length is None else (fft_length,) if isinstance(fft_length, int) else tuple(fft_length)
            )
            return function(input, s=lengths, axes=tuple(range(-n, 0)))

        transform.__doc__ = (
            f"Return the Fourier transform over the last {n} dimensions, of real values or back to them."
        )


_publish_real("rfft", tc.fft.rfftn)
_publish_real("irfft", tc.fft.irfftn)


@op("signal.fftshift", "x", static_args="axes")
def fftshift(x: tc.Tensor, axes: int | tuple[int, ...] | None = None) -> tc.Tensor:
    """Move the frequency 0 to the middle."""
    return tc.fft.fftshift(x, axes=axes)


@op("signal.ifftshift", "x", static_args="axes")
def ifftshift(x: tc.Tensor, axes: int | tuple[int, ...] | None = None) -> tc.Tensor:
    """Undo :func:`fftshift`."""
    return tc.fft.ifftshift(x, axes=axes)


# -- frames, windows, the short-time transform


@exported("signal.frame")
def frame(
    signal: TensorLike,
    frame_length: IntLike,
    frame_step: IntLike,
    pad_end: bool = False,
    pad_value: float = 0,
    axis: int = -1,
    name: str | None = None,
) -> Any:
    """Cut windows of `frame_length`, `frame_step` apart, along `axis`, which becomes (frames, frame_length)."""
    x, length, step = native(signal), static(frame_length), static(frame_step)
    axis = axis % x.ndim
    if pad_end:
        # A frame begins at every step within the signal: the number of them, rounded up.
        n = -(-x.shape[axis] // step)
        extra = max(0, (n - 1) * step + length - x.shape[axis])
        x = tc.pad(x, [(0, extra if k == axis else 0) for k in range(x.ndim)], constant_values=pad_value)
    return wrap(tc.moveaxis(tc.sliding_windows(x, length, axis=axis, stride=step), -1, axis + 1))


@exported("signal.overlap_and_add")
def overlap_and_add(signal: TensorLike, frame_step: IntLike, name: str | None = None) -> Any:
    """Add frames up, `frame_step` apart: the transpose of :func:`frame`."""
    x, step = native(signal), static(frame_step)
    frames, length = x.shape[-2:]
    return wrap(tc.add_windows(x, (*x.shape[:-2], (frames - 1) * step + length), axis=-1, stride=step))


def _window(n: IntLike, periodic: bool, dtype: DTypeLike, a: float, b: float) -> Any:
    """Return the window a - b cos(2πk/period): Hann's and Hamming's, periodic or symmetric."""
    count = static(n)
    backend, device = backend_and_device()
    places = tc.arange(count, dtype=tc.float64, backend=backend, device=device)
    period = count if periodic and count % 2 == 0 else count - 1  # TensorFlow makes odd lengths always symmetric
    wave = a - b * tc.cos(places * (2 * math.pi / max(period, 1)))
    return wrap(tc.astype(wave if count > 1 else tc.ones_like(wave), dtypes.as_dtype(dtype).native))


@exported("signal.hann_window")
def hann_window(
    window_length: IntLike, periodic: bool = True, dtype: DTypeLike = dtypes.float32, name: str | None = None
) -> Any:
    """Return the Hann window."""
    return _window(window_length, periodic, dtype, 0.5, 0.5)


@exported("signal.hamming_window")
def hamming_window(
    window_length: IntLike, periodic: bool = True, dtype: DTypeLike = dtypes.float32, name: str | None = None
) -> Any:
    """Return the Hamming window."""
    return _window(window_length, periodic, dtype, 0.54, 0.46)


@exported("signal.stft")
def stft(
    signals: TensorLike,
    frame_length: IntLike,
    frame_step: IntLike,
    fft_length: IntLike | None = None,
    window_fn: Callable[..., Any] | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Any:
    """Return the short-time Fourier transform: of each frame times a window, padded to `fft_length`.

    Args:
        fft_length: by default, the smallest power of 2 that is at least `frame_length`.
    """
    length = static(frame_length)
    size = static(fft_length)
    if size is None:
        # TensorFlow's default, the enclosing power of two.
        size = 1 << (length - 1).bit_length()
    frames = native(frame(signals, length, frame_step, pad_end))
    if window_fn is not None:
        frames = frames * native(window_fn(length, dtype=dtypes.of(frames.dtype)))
    return wrap(tc.fft.rfft(frames, n=size))


# -- cosine transforms


@op("signal.dct", "input", static_args="n")
def dct(input: tc.Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> tc.Tensor:
    """Return the discrete cosine transform of type 2 or 3 along the last dimension, cut or padded to `n`."""
    return _cosine_transform(input, type, n, axis, norm)


@op("signal.idct", "input", static_args="n")
def idct(input: tc.Tensor, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> tc.Tensor:
    """Return the inverse of :func:`dct`; without `norm="ortho"`, it is the inverse times `2 * n`."""
    return _cosine_transform(input, {2: 3, 3: 2}.get(type, type), n, axis, norm)


def _cosine_transform(x: tc.Tensor, kind: int, n: int | None, axis: int, norm: str | None) -> tc.Tensor:
    """Return the DCT of type 2 or 3 by a Fourier transform of twice the length."""
    if kind not in (2, 3):
        raise ValueError(f"type must be 2 or 3, got {kind}")
    if axis not in (-1, x.ndim - 1):
        raise ValueError(f"axis must be -1, got {axis}")
    if norm not in (None, "ortho"):
        raise ValueError(f"Unknown normalization: {norm}")
    length = x.shape[-1] if n is None else n
    x = tc.pad(x[..., :length], [(0, 0)] * (x.ndim - 1) + [(0, max(0, length - x.shape[-1]))])
    numbers = tc.arange(length, dtype=tc.float64, backend=x.backend.root, device=x.device)
    angles = numbers * (math.pi / (2 * length))
    cos, sin = (tc.astype(f(angles), x.dtype) for f in (tc.cos, tc.sin))
    # The factors of TensorFlow's (and SciPy's) normalizations; "ortho" makes the matrix of the transform orthogonal.
    first, rest = (math.sqrt(1 / length), math.sqrt(2 / length)) if norm else (1.0, 1.0 if kind == 2 else 2.0)
    scale = tc.astype(tc.where(numbers == 0, first, rest), x.dtype)
    if kind == 2:
        # With x padded to twice its length, the DCT is the real part of the FFT times exp(-i pi k / (2 n)).
        found = tc.fft.rfft(x, n=2 * length)[..., :length]
        return (tc.real(found) * cos + tc.imag(found) * sin) * scale * (1.0 if norm else 2.0)
    x = x * scale
    # Type 3 is the real part of the sum of x exp(i angle), by an inverse transform.
    spectrum = tc.astype(x * cos, _complex_of(x)) + 1j * tc.astype(x * sin, _complex_of(x))
    padded = tc.pad(spectrum, [(0, 0)] * (x.ndim - 1) + [(0, length)])
    return tc.real(tc.fft.ifft(padded, n=2 * length)[..., :length]) * (2 * length)


def _complex_of(x: tc.Tensor) -> tc.DType:
    return tc.complex128 if x.dtype is tc.float64 else tc.complex64
