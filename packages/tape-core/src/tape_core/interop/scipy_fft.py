"""Tensors in the cosine and sine transforms of `scipy.fft`: dct, dst, their inverses, and those of several axes.

SciPy asks backends that are registered with it. Ours is registered when `scipy.fft` is imported, before or after
tape_core. It answers where a Tensor is transformed, by a fast Fourier transform of at most twice the length, and leaves
all else to SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tape_core as tc
from tape_core.engine.tensor import Tensor
from tape_core.typing import ArrayLike

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_OTHER_WAY = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}

# -- sums along the last axis, as SciPy defines them without a norm


def _half_turns(x: Tensor, n: int, step: float, first: float = 0.0) -> Tensor:
    """`exp(-1j * pi * (first + step * k))` for k below n, in the complex dtype that belongs to that of `x`."""
    angles = -math.pi * (first + step * tc.arange(n, dtype=x.dtype, backend=x.backend.root, device=x.device))
    return tc.cos(angles) + 1j * tc.sin(angles)


def _cosines_1(x: Tensor) -> Tensor:
    n = x.shape[-1]
    if n < 2:
        raise ValueError(f"DCT-I is defined for at least 2 elements; got {n}")
    return tc.real(tc.fft.rfft(tc.concat([x, tc.flip(x[..., 1 : n - 1], axis=-1)], axis=-1)))


def _cosines_2(x: Tensor) -> Tensor:
    n = x.shape[-1]
    both = tc.fft.rfft(tc.concat([x, tc.flip(x, axis=-1)], axis=-1))[..., :n]
    return tc.real(both * _half_turns(x, n, 0.5 / n))


def _cosines_3(x: Tensor) -> Tensor:
    n = x.shape[-1]
    twice = tc.concat([x[..., :1], 2.0 * x[..., 1:]], axis=-1)
    return tc.real(tc.fft.fft(twice * _half_turns(x, n, 0.5 / n), n=2 * n)[..., :n])


def _cosines_4(x: Tensor) -> Tensor:
    n = x.shape[-1]
    inner = tc.fft.fft(x * _half_turns(x, n, 0.5 / n), n=2 * n)[..., :n]
    return 2.0 * tc.real(inner * _half_turns(x, n, 0.5 / n, 0.25 / n))


def _sines_1(x: Tensor) -> Tensor:
    n = x.shape[-1]
    zero = 0.0 * x[..., :1]
    odd = tc.concat([zero, x, zero, -tc.flip(x, axis=-1)], axis=-1)
    return -tc.imag(tc.fft.rfft(odd))[..., 1 : n + 1]


def _alternating(x: Tensor) -> Tensor:
    """`x` with every second sign turned."""
    k = tc.arange(x.shape[-1], dtype=x.dtype, backend=x.backend.root, device=x.device)
    return x * (1.0 - 2.0 * tc.remainder(k, 2.0))


def _sines_2(x: Tensor) -> Tensor:
    return tc.flip(_cosines_2(_alternating(x)), axis=-1)


def _sines_3(x: Tensor) -> Tensor:
    return _alternating(_cosines_3(tc.flip(x, axis=-1)))


def _sines_4(x: Tensor) -> Tensor:
    return _alternating(_cosines_4(tc.flip(x, axis=-1)))


_SUMS: dict[tuple[str, int], Callable[[Tensor], Tensor]] = {
    ("c", 1): _cosines_1,
    ("c", 2): _cosines_2,
    ("c", 3): _cosines_3,
    ("c", 4): _cosines_4,
    ("s", 1): _sines_1,
    ("s", 2): _sines_2,
    ("s", 3): _sines_3,
    ("s", 4): _sines_4,
}

# What is multiplied by sqrt(2) before, and divided by it after, so that the matrix is orthogonal.
_BEFORE = {("c", 1): (0, -1), ("c", 3): (0,), ("s", 3): (-1,)}
_AFTER = {("c", 1): (0, -1), ("c", 2): (0,), ("s", 2): (-1,)}


def _scaled(x: Tensor, places: Sequence[int], factor: float) -> Tensor:
    """`x` with some elements of the last axis multiplied."""
    for place in places:
        key = (..., place)
        x = tc.at(x)[key].multiply(factor)
    return x


# -- transforms


def _transform(
    kind: str, x: ArrayLike, type: int, n: int | None, axis: int, norm: str | None, orthogonalize: bool | None
) -> Tensor:
    x = tc.asarray(x)
    if not x.dtype.inexact:
        x = tc.astype(x, tc.float64)
    if (kind, type) not in _SUMS:
        raise ValueError(f"the type of a transform must be 1, 2, 3 or 4; got {type!r}")
    if norm not in _OTHER_WAY:
        raise ValueError(f"norm must be 'backward', 'ortho' or 'forward'; got {norm!r}")
    if x.dtype.kind == "complex floating":
        parts = [_transform(kind, part, type, n, axis, norm, orthogonalize) for part in (tc.real(x), tc.imag(x))]
        return parts[0] + 1j * parts[1]
    x = tc.moveaxis(x, axis, -1)
    if n is not None:
        if n < 1:
            raise ValueError(f"the length of a transform must be positive; got {n}")
        x = x[..., :n]
        missing = n - x.shape[-1]
        if missing:
            x = tc.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    if orthogonal:
        x = _scaled(x, _BEFORE.get((kind, type), ()), math.sqrt(2))
    y = _SUMS[kind, type](x)
    if orthogonal:
        y = _scaled(y, _AFTER.get((kind, type), ()), math.sqrt(0.5))
    length = 2 * (x.shape[-1] + {("c", 1): -1, ("s", 1): 1}.get((kind, type), 0))
    if norm in ("ortho", "forward"):
        y = y * (1 / math.sqrt(length) if norm == "ortho" else 1 / length)
    return tc.moveaxis(y, -1, axis)


def _of_one_axis(kind: str, inverse: bool) -> Callable[..., Tensor]:
    def transform(
        x: ArrayLike,
        type: int = 2,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        orthogonalize: bool | None = None,
    ) -> Tensor:
        if inverse:
            type, norm = _INVERSE.get(type, type), _OTHER_WAY.get(norm, norm)
        return _transform(kind, x, type, n, axis, norm, orthogonalize)

    return transform


def _of_several_axes(kind: str, inverse: bool) -> Callable[..., Tensor]:
    one = _of_one_axis(kind, inverse)

    def transform(
        x: ArrayLike,
        type: int = 2,
        s: int | Sequence[int] | None = None,
        axes: int | Sequence[int] | None = None,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        orthogonalize: bool | None = None,
    ) -> Tensor:
        y: Tensor = tc.asarray(x)
        lengths = None if s is None else [s] if isinstance(s, int) else list(s)
        if axes is None:
            axes = range(y.ndim) if lengths is None else range(y.ndim - len(lengths), y.ndim)
        places = [axes] if isinstance(axes, int) else list(axes)
        if lengths is not None and len(lengths) != len(places):
            raise ValueError(f"a transform of {len(places)} axes takes as many lengths; got {len(lengths)}")
        for k, axis in enumerate(places):
            n = None if lengths is None else lengths[k]
            y = one(y, type, n, axis, norm, orthogonalize=orthogonalize)
        return y

    return transform


_TRANSFORMS: dict[str, Callable[..., Tensor]] = {
    **{f"{i}d{kind}t": _of_one_axis(kind, i == "i") for kind in "cs" for i in ("", "i")},
    **{f"{i}d{kind}tn": _of_several_axes(kind, i == "i") for kind in "cs" for i in ("", "i")},
}


class TapeTransforms:
    """What SciPy asks, by the protocol of uarray."""

    __ua_domain__ = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        transform = _TRANSFORMS.get(method.__name__)
        given = args[0] if args else kwargs.get("x")
        return NotImplemented if transform is None or not isinstance(given, Tensor) else transform(*args, **kwargs)


def register(backends: ModuleType) -> None:
    """Register the transforms with SciPy, whose module of backends it is."""
    if hasattr(backends, "ua"):
        backends.ua.register_backend(TapeTransforms)
