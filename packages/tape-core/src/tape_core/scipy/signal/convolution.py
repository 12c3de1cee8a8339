"""Convolution and correlation of arrays of any number of dimensions: directly, or by Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tape_core as tc
from tape_core.scipy.arguments import choose, conj, floats, is_complex, refuse
from tape_core.typing import ArrayLike

_MODES = ("full", "same", "valid")
_DIRECT_ELEMENTS = 256
"""Of a kernel: up to here sums over windows are made directly, which keeps small results exact."""


def _slice(x: tc.Tensor, starts: Sequence[int], lengths: Sequence[int], axes: Sequence[int]) -> tc.Tensor:
    key = [slice(None)] * x.ndim
    for axis, start, length in zip(axes, starts, lengths, strict=True):
        key[axis] = slice(start, start + length)
    return x[tuple(key)]


def _ordered(
    name: str, a: tc.Tensor, b: tc.Tensor, mode: str, axes: Sequence[int], *, swap: bool = True
) -> tuple[tc.Tensor, tc.Tensor]:
    """The arrays, for "valid" with the larger one first."""
    choose(name, "mode", mode, _MODES)
    if a.ndim != b.ndim:
        raise ValueError(f"{name}: in1 and in2 must have as many dimensions; got shapes {a.shape} and {b.shape}")
    if mode != "valid" or all([a.shape[k] >= b.shape[k] for k in axes]):
        return a, b
    if not all([b.shape[k] >= a.shape[k] for k in axes]):
        raise ValueError(
            f"{name}: for mode='valid' one array must be at least as large as the other one in every dimension; got "
            f"shapes {a.shape} and {b.shape}"
        )
    return b, a


def _middle(whole: tc.Tensor, a: tc.Tensor, b: tc.Tensor, mode: str, axes: Sequence[int]) -> tc.Tensor:
    """The part of a full convolution that the mode asks for."""
    if mode == "full":
        return whole
    lengths = [a.shape[k] if mode == "same" else a.shape[k] - b.shape[k] + 1 for k in axes]
    starts = [(whole.shape[k] - n) // 2 for k, n in zip(axes, lengths, strict=True)]
    return _slice(whole, starts, lengths, axes)


def _direct(a: tc.Tensor, b: tc.Tensor, mode: str) -> tc.Tensor:
    """Products with all windows: what the mode leaves out is not computed."""
    pads = [(0, 0)] * a.ndim
    if mode == "full":
        pads = [(k - 1, k - 1) for k in b.shape]
    elif mode == "same":
        pads = [(k - 1 - (k - 1) // 2, (k - 1) // 2) for k in b.shape]
    windows = tc.sliding_windows(tc.pad(a, tuple(pads)), b.shape)
    n = b.ndim
    dtype = tc.result_type(a, b)
    windows, b = tc.astype(windows, dtype, copy=False), tc.astype(b, dtype, copy=False)
    return tc.tensordot(windows, tc.flip(b), axes=(tuple(range(n, 2 * n)), tuple(range(n))))


def _by_fft(a: tc.Tensor, b: tc.Tensor, axes: Sequence[int]) -> tc.Tensor:
    shape = [a.shape[k] + b.shape[k] - 1 for k in axes]
    if is_complex(a) or is_complex(b):
        return tc.fft.ifftn(tc.fft.fftn(a, s=shape, axes=axes) * tc.fft.fftn(b, s=shape, axes=axes), axes=axes)
    product = tc.fft.rfftn(a, s=shape, axes=axes) * tc.fft.rfftn(b, s=shape, axes=axes)
    return tc.fft.irfftn(product, s=shape, axes=axes)


def _convolve(name: str, a: tc.Tensor, b: tc.Tensor, mode: str, method: str) -> tc.Tensor:
    choose(name, "method", method, ("auto", "direct", "fft"))
    axes = list(range(a.ndim))
    a, b = _ordered(name, a, b, mode, axes)
    if a.ndim == 0:
        return a * b
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"{name}: in1 and in2 must not be empty; got shapes {a.shape} and {b.shape}")
    if method == "fft" or (method == "auto" and min(math.prod(a.shape), math.prod(b.shape)) > _DIRECT_ELEMENTS):
        return _middle(_by_fft(a, b, axes), a, b, mode, axes)
    if mode == "full" and math.prod(a.shape) < math.prod(b.shape):
        a, b = b, a
    return _direct(a, b, mode)


def convolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> tc.Tensor:
    """The convolution of two arrays of as many dimensions.

    >>> convolve(tc.asarray([1.0, 2.0, 3.0]), tc.asarray([0.0, 1.0, 0.5]), mode="same").tolist()
    [1.0, 2.5, 4.0]

    Args:
        mode: "full"; "same", as large as `in1`, from the middle; or "valid", where one lies inside the other.
        method: "direct"; "fft"; or "auto", which takes the first for kernels of up to 256 elements.

    Raises:
        ValueError: the shapes do not fit, an array is empty, or an argument is unknown.
    """
    a, b = floats("scipy.signal.convolve", in1=in1, in2=in2)
    return _convolve("scipy.signal.convolve", a, b, mode, method)


def _mirror(x: tc.Tensor) -> tc.Tensor:
    return conj(tc.flip(x))


def correlate(in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto") -> tc.Tensor:
    """The cross-correlation of two arrays: the convolution with the second one mirrored, and conjugated.

    >>> correlate(tc.asarray([1.0, 2.0, 3.0]), tc.asarray([0.0, 1.0, 0.5])).tolist()
    [0.5, 2.0, 3.5, 3.0, 0.0]

    Args, Raises: as for :func:`convolve`.
    """
    a, b = floats("scipy.signal.correlate", in1=in1, in2=in2)
    return _convolve("scipy.signal.correlate", a, _mirror(b), mode, method)


def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None
) -> tc.Tensor:
    """The convolution of two arrays by Fourier transforms, along `axes`; the other axes broadcast.

    >>> fftconvolve(tc.asarray([1.0, 2.0]), tc.asarray([1.0, 1.0])).round(4).tolist()
    [1.0, 3.0, 2.0]

    Raises:
        ValueError: the shapes do not fit, or `mode` is unknown.
    """
    return _fftconvolve("scipy.signal.fftconvolve", in1, in2, mode, axes)


def oaconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None
) -> tc.Tensor:
    """The same as :func:`fftconvolve`. SciPy's goes piece by piece, which takes less memory.

    >>> oaconvolve(tc.asarray([1.0, 2.0]), tc.asarray([1.0, 1.0])).round(4).tolist()
    [1.0, 3.0, 2.0]
    """
    return _fftconvolve("scipy.signal.oaconvolve", in1, in2, mode, axes)


def _fftconvolve(name: str, in1: ArrayLike, in2: ArrayLike, mode: str, axes: int | Sequence[int] | None) -> tc.Tensor:
    a, b = floats(name, in1=in1, in2=in2)
    along = range(a.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    places = [k % max(a.ndim, 1) for k in along]
    a, b = _ordered(name, a, b, mode, places)
    if a.ndim == 0:
        return a * b
    return _middle(_by_fft(a, b, places), a, b, mode, places)


def convolve2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: float = 0
) -> tc.Tensor:
    """The convolution of two matrices, with a choice of what lies around the first.

    >>> x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> convolve2d(x, tc.ones((2, 2)), mode="same", boundary="wrap").tolist()
    [[10.0, 10.0], [10.0, 10.0]]

    Args:
        in1, in2: matrices.
        mode: "full", "same" or "valid".
        boundary: "fill" with `fillvalue`, "wrap" around, or "symm", its mirror image.

    Raises:
        ValueError: one is no matrix, the shapes do not fit, or an argument is unknown.
    """
    a, b = floats("scipy.signal.convolve2d", in1=in1, in2=in2)
    return _convolve2d("scipy.signal.convolve2d", a, b, mode, boundary, fillvalue)


def correlate2d(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", boundary: str = "fill", fillvalue: float = 0
) -> tc.Tensor:
    """The cross-correlation of two matrices; the arguments are those of :func:`convolve2d`.

    >>> correlate2d(tc.asarray([[1.0, 2.0]]), tc.asarray([[1.0, 0.0]])).tolist()
    [[0.0, 1.0, 2.0]]
    """
    a, b = floats("scipy.signal.correlate2d", in1=in1, in2=in2)
    return _convolve2d("scipy.signal.correlate2d", a, _mirror(b), mode, boundary, fillvalue, late=True)


def _convolve2d(
    name: str,
    a: tc.Tensor,
    b: tc.Tensor,
    mode: str,
    boundary: str,
    fillvalue: float,
    late: bool = False,
) -> tc.Tensor:
    """The convolution; `late` says which of the two middle elements of a kernel of even length is its centre."""
    choose(name, "boundary", boundary, ("fill", "wrap", "symm"))
    if a.ndim != 2 or b.ndim != 2 or 0 in a.shape or 0 in b.shape:
        raise ValueError(f"{name}: in1 and in2 must be matrices, not empty; got shapes {a.shape} and {b.shape}")
    a, b = _ordered(name, a, b, mode, (0, 1))
    if mode != "valid":
        before = [k - 1 if mode == "full" else (k - 1) // 2 if late else k // 2 for k in b.shape]
        after = [k - 1 if mode == "full" else k - 1 - start for k, start in zip(b.shape, before, strict=True)]
        widths = tuple(zip(before, after, strict=True))
        if boundary == "fill":
            a = tc.pad(a, widths, constant_values=fillvalue)
        else:
            a = tc.pad(a, widths, "wrap" if boundary == "wrap" else "symmetric")
    return _convolve(name, a, b, "valid", "direct")


def hilbert(x: ArrayLike, N: int | None = None, axis: int = -1) -> tc.Tensor:
    """The analytic signal of a real one: its imaginary part is the Hilbert transform.

    >>> hilbert(tc.asarray([1.0, 0.0, -1.0, 0.0])).tolist()
    [(1+0j), 1j, (-1+0j), -1j]

    Args:
        N: the number of elements; they are cut, or zeros added.

    Raises:
        ValueError: the signal is complex, or `N` is not positive.
    """
    (x,) = floats("scipy.signal.hilbert", x=x)
    if is_complex(x):
        raise ValueError("scipy.signal.hilbert: x must be real")
    n = x.shape[axis] if N is None else N
    if n <= 0:
        raise ValueError(f"scipy.signal.hilbert: N must be positive; got {n}")
    weights = [1.0 if k in (0, n / 2) else 2.0 if k < n / 2 else 0.0 for k in range(n)]
    shape = [1] * x.ndim
    shape[axis] = n
    spectrum = tc.fft.fft(x, n=n, axis=axis)
    weight = tc.asarray(weights, dtype=x.dtype, backend=x.backend.root, device=x.device)
    return tc.fft.ifft(spectrum * tc.reshape(weight, tuple(shape)), axis=axis)


def upfirdn(
    h: ArrayLike,
    x: ArrayLike,
    up: int = 1,
    down: int = 1,
    axis: int = -1,
    mode: str = "constant",
    cval: float = 0,
) -> tc.Tensor:
    """Put `up - 1` zeros between elements, apply the filter `h`, and keep each `down`-th element.

    >>> upfirdn(tc.asarray([1.0, 1.0]), tc.asarray([1.0, 2.0]), up=2).tolist()
    [1.0, 1.0, 2.0, 2.0]

    Args:
        h: a vector.
        x: an array, which is filtered along `axis`.

    Raises:
        ValueError: `h` is no vector, or `up` or `down` is not positive.
        NotImplementedError: `mode` is not "constant", or `cval` is not 0.
    """
    name = "scipy.signal.upfirdn"
    h, x = floats(name, h=h, x=x)
    refuse(name, mode=(mode, ("constant", None)), cval=(cval, (0, 0.0, None)))
    if h.ndim != 1 or h.shape[0] == 0 or up < 1 or down < 1:
        raise ValueError(f"{name}: h must be a vector, and up and down positive; got {h.shape}, {up} and {down}")
    x = tc.moveaxis(x, axis, -1)
    n = x.shape[-1]
    spread = tc.pad(x[..., None], (*[(0, 0)] * x.ndim, (0, up - 1)))
    spread = tc.reshape(spread, (*x.shape[:-1], n * up))[..., : (n - 1) * up + 1]
    k = h.shape[0]
    padded = tc.pad(spread, (*[(0, 0)] * (x.ndim - 1), (k - 1, k - 1)))
    windows = tc.sliding_windows(padded, k, axis=-1, stride=down)
    return tc.moveaxis(tc.sum(windows * tc.flip(h), axis=-1), -1, axis)
