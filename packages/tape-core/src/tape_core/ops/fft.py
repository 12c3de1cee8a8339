"""Fourier transforms: the `fft` extension of the Array API standard.

A transform is a symmetric matrix, so it is its own transpose. The transforms of real arrays keep half the frequencies:
frequency k and its mirror image n - k, which is its conjugate, are one element, which counts twice in a real result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from tape_core.base import dtypes
from tape_core.engine.op import REFUSED, linear, transpose
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, Samples, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.ops.creation import arange
from tape_core.typing import Array, ArrayLike, BackendLike, Cotangent, DTypeLike, Namespace

Norm = Literal["backward", "ortho", "forward"]


def _one_axis(make: Callable[..., Tensor]) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(make(draw, 4))
        yield Sample(make(draw, 5))
        yield Sample(make(draw, 3, 2), axis=0)
        yield Sample(make(draw, 2, 4), n=3, norm="ortho")
        yield Sample(make(draw, 2, 3), n=6, norm="forward")
        yield Refused(IndexError, "axis", make(draw, 3), axis=1)

    return samples


def _several_axes(make: Callable[..., Tensor]) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(make(draw, 3, 4))
        yield Sample(make(draw, 2, 3, 5), axes=(0, 2))
        yield Sample(make(draw, 3, 4), s=(4, 3), axes=(1, 0), norm="ortho")
        yield Sample(make(draw, 4), norm="forward")

    return samples


def _resize(xp: Namespace, x: Array, length: int, axis: int) -> Array:
    """Cut an array, or pad it by zeros, to a length along an axis."""
    given = x.shape[axis]
    if given == length:
        return x
    axis %= len(x.shape)
    if given > length:
        return x[(slice(None),) * axis + (slice(0, length), ...)]
    missing = (*x.shape[:axis], length - given, *x.shape[axis + 1 :])
    return xp.concat([x, xp.zeros_beside(x, missing, dtype=x.dtype)], axis=axis)


def _resize_all(xp: Namespace, x: Array, shape: tuple[int, ...], axes: Sequence[int]) -> Array:
    """Cut an array, or pad it by zeros, to the lengths of `shape` along `axes`."""
    for axis in axes:
        x = _resize(xp, x, shape[axis], axis)
    return x


def _weigh(xp: Namespace, x: Array, n: int, axis: int, weight: float) -> Array:
    """Multiply by `weight` the frequencies of half a spectrum that stand for two: all but 0 and, for even n, n / 2."""
    k = xp.arange_beside(x, x.shape[axis])
    single = xp.logical_or(k == 0, 2 * k == n)
    shape = [1] * len(x.shape)
    shape[axis] = -1
    return xp.where(xp.reshape(single, tuple(shape)), x, weight * x)


def _fft_transpose(name: str) -> transpose:
    # With n, the transform is a cut or padding and then a square matrix; transposed in reverse order. The same holds
    # for several axes below.
    def rule(xp: Namespace, g: Cotangent, x_spec: Spec, n: int | None, axis: int, norm: Norm) -> Cotangent:
        return _resize(xp, getattr(xp, name)(g, n=n, axis=axis, norm=norm), x_spec.shape[axis], axis)

    return transpose(rule)


@linear(x=_fft_transpose("fft"), extension="fft", samples=_one_axis(Draw.complex), batch=batching.along)
def fft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The discrete Fourier transform along `axis`, of its first `n` elements, with zeros added if there are fewer."""


@linear(x=_fft_transpose("ifft"), extension="fft", samples=_one_axis(Draw.complex), batch=batching.along)
def ifft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of :func:`fft`."""


def _axes(ndim: int, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[int, ...]:
    """The axes of a transform over several axes; the last ones where only lengths are given, and all by default."""
    if axes is not None:
        return tuple([a % ndim for a in axes])
    return tuple(range(0 if s is None else ndim - len(s), ndim))


def _fftn_transpose(name: str) -> transpose:
    def rule(
        xp: Namespace, g: Cotangent, x_spec: Spec, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm
    ) -> Cotangent:
        d = getattr(xp, name)(g, s=s, axes=axes, norm=norm)
        return _resize_all(xp, d, x_spec.shape, _axes(len(x_spec.shape), s, axes))

    return transpose(rule)


@linear(x=_fftn_transpose("fftn"), extension="fft", samples=_several_axes(Draw.complex), batch=batching.along)
def fftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The discrete Fourier transform over `axes` (all by default), of lengths `s`."""


@linear(x=_fftn_transpose("ifftn"), extension="fft", samples=_several_axes(Draw.complex), batch=batching.along)
def ifftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`fftn`."""


def _halving_transpose(inverse: str) -> Callable[..., Cotangent]:
    """The rule of a transform from a whole array to half a spectrum, by the transform in the opposite direction."""

    def rule(xp: Namespace, g: Cotangent, x_spec: Spec, n: int | None, axis: int, norm: Norm) -> Cotangent:
        length = x_spec.shape[axis]
        n = length if n is None else n
        # The inverse transform counts all but the single frequencies twice, and the forward one did not.
        d = getattr(xp, inverse)(_weigh(xp, g, n, axis, 0.5), n=n, axis=axis, norm=norm)
        return _resize(xp, d, length, axis)

    return rule


def _doubling_transpose(inverse: str) -> Callable[..., Cotangent]:
    """The rule of a transform from half a spectrum to a whole array, by the transform in the opposite direction."""

    def rule(xp: Namespace, g: Cotangent, x_spec: Spec, n: int | None, axis: int, norm: Norm) -> Cotangent:
        length = x_spec.shape[axis]
        n = 2 * (length - 1) if n is None else n
        # A frequency that stands for two was in the result twice.
        d = getattr(xp, inverse)(g, n=n, axis=axis, norm=norm)
        return _resize(xp, _weigh(xp, d, n, axis, 2), length, axis)

    return rule


_rfft_transpose, _irfft_transpose = _halving_transpose("hfft"), _doubling_transpose("ihfft")


@linear(
    x=transpose(_rfft_transpose),
    extension="fft",
    samples=_one_axis(Draw.__call__),
    batch=batching.along,
    complex_kernel=REFUSED,
)
def rfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The Fourier transform of a real array: the frequencies from 0 to n / 2."""


@linear(x=transpose(_irfft_transpose), extension="fft", samples=_one_axis(Draw.complex), batch=batching.along)
def irfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of :func:`rfft`: a real array of length `n`, by default 2 * (m - 1) for m frequencies."""


@linear(
    x=transpose(_doubling_transpose("rfft")), extension="fft", samples=_one_axis(Draw.complex), batch=batching.along
)
def hfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The Fourier transform of a Hermitian array whose first half is `x`: a real spectrum of length `n`."""


@linear(
    x=transpose(_halving_transpose("irfft")),
    extension="fft",
    samples=_one_axis(Draw.__call__),
    batch=batching.along,
    complex_kernel=REFUSED,
)
def ihfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of :func:`hfft`."""


def _rfftn_transpose(
    xp: Namespace, g: Cotangent, x_spec: Spec, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm
) -> Cotangent:
    # `rfftn` is a real transform along the last axis, then complex ones along the others; undo them in reverse.
    *others, last = _axes(len(x_spec.shape), s, axes)
    if others:
        g = xp.fftn(g, s=None if s is None else s[:-1], axes=others, norm=norm)
    g = _rfft_transpose(xp, g, x_spec, None if s is None else s[-1], last, norm)
    return _resize_all(xp, g, x_spec.shape, others)


@linear(
    x=transpose(_rfftn_transpose),
    extension="fft",
    samples=_several_axes(Draw.__call__),
    batch=batching.along,
    complex_kernel=REFUSED,
)
def rfftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The Fourier transform of a real array over `axes`; the last of them keeps the frequencies from 0 to n / 2."""


def _irfftn_transpose(
    xp: Namespace, g: Cotangent, x_spec: Spec, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm
) -> Cotangent:
    *others, last = _axes(len(x_spec.shape), s, axes)
    g = _irfft_transpose(xp, g, x_spec, None if s is None else s[-1], last, norm)
    if others:
        g = xp.ifftn(g, s=None if s is None else s[:-1], axes=others, norm=norm)
    return _resize_all(xp, g, x_spec.shape, others)


@linear(x=transpose(_irfftn_transpose), extension="fft", samples=_several_axes(Draw.complex), batch=batching.along)
def irfftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`rfftn`."""


def _shift_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(5))
    yield Sample(draw(3, 4), axes=0)
    yield Sample(draw(3, 4), axes=(0, 1))


@linear(
    x=transpose(lambda xp, g, axes: xp.ifftshift(g, axes=axes)),
    extension="fft",
    samples=with_complex(_shift_samples),
    batch=batching.along,
    keeps_integers=True,
)
def fftshift(x: ArrayLike, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move frequency 0 to the middle of each of `axes` (all by default)."""


@linear(
    x=transpose(lambda xp, g, axes: xp.fftshift(g, axes=axes)),
    extension="fft",
    samples=with_complex(_shift_samples),
    batch=batching.along,
    keeps_integers=True,
)
def ifftshift(x: ArrayLike, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of :func:`fftshift`."""


def fftfreq(
    n: int,
    /,
    *,
    d: float = 1.0,
    dtype: DTypeLike = None,
    device: str | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """The frequencies that :func:`fft` gives for `n` samples at distance `d`, float32 by default.

    >>> import tape_core as tc
    >>> tc.fft.fftfreq(4, d=0.5).tolist()
    [0.0, 0.5, -1.0, -0.5]
    """
    dtype = dtype or dtypes.get_default_dtype()
    # The frequencies in ascending order, with 0 in the middle; `fft` puts 0 first and negative ones last.
    ascending = arange(-(n // 2), n - n // 2, dtype=dtype, device=device, backend=backend)
    return ifftshift(ascending) / (n * d)


def rfftfreq(
    n: int,
    /,
    *,
    d: float = 1.0,
    dtype: DTypeLike = None,
    device: str | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """The frequencies that :func:`rfft` gives for `n` samples at distance `d`, float32 by default."""
    dtype = dtype or dtypes.get_default_dtype()
    return arange(0, n // 2 + 1, dtype=dtype, device=device, backend=backend) / (n * d)
