"""Padding of arrays, as in `numpy.pad`.

The modes other than "constant" copy elements of the array. What stands before and after an axis is describe by a few
runs of consecutive elements, so that a kernel is slices, flips and broadcasts, and its transpose is sums of these.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from tape_core.engine.levels import BatchedArray
from tape_core.engine.op import op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.modes.batching import Call
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

PadWidth = int | tuple[int, int] | Sequence[tuple[int, int]]
Mode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
Fill = complex | tuple[complex, complex] | Sequence[tuple[complex, complex]]

Pairs = tuple[tuple[int, int], ...]
"""The numbers of elements before and after, for each axis."""

Run = tuple[int, int, int]
"""The first index, the length and the step of a run of elements; the step is 1, -1 (backwards) or 0 (one repeated)."""


def _pairs(pad_width: PadWidth, ndim: int) -> Pairs:
    widths: Any = (pad_width, pad_width) if isinstance(pad_width, int) else tuple(pad_width)
    if len(widths) == 2 and all(isinstance(w, int) for w in widths):
        widths = (widths,) * ndim
    elif len(widths) == 1:
        widths = tuple(widths) * ndim
    pairs: Any = tuple([tuple(w) if isinstance(w, tuple | list) else (w,) for w in widths])
    if len(pairs) != ndim or not all(len(p) == 2 and all(isinstance(w, int) and w >= 0 for w in p) for p in pairs):
        raise ValueError(
            f"pad_width must be an integer of at least 0, a pair (before, after), or such a pair for each of {ndim} "
            f"axes, got {pad_width!r}"
        )
    checked: Pairs = pairs
    return checked


def _fills(constant_values: Fill, ndim: int) -> tuple[tuple[complex, complex], ...]:
    """The constants before and after, for each axis."""
    given: Any = constant_values
    if isinstance(given, numbers.Number):
        number: Any = given
        return ((number, number),) * ndim
    if isinstance(given, tuple | list):
        if len(given) == 2 and all(isinstance(v, numbers.Number) for v in given):
            given = (given,)
        found = tuple([tuple(v) if isinstance(v, tuple | list) else (v,) for v in given])
        found = found * ndim if len(found) == 1 else found
        if len(found) == ndim and all(len(v) == 2 and isinstance(n, numbers.Number) for v in found for n in v):
            return found
    raise ValueError(
        f"constant_values must be a number, a pair (before, after), or such a pair for each of {ndim} axes, got "
        f"{constant_values!r}"
    )


def _source_index(i: int, n: int, mode: Mode) -> int:
    """The index of the element that stands at `i`, outside of an axis of length `n`."""
    if mode == "edge":
        return min(max(i, 0), n - 1)
    if mode == "wrap":
        return i % n
    # Reflections repeat: 0 1 2 2 1 0 ("symmetric") or 0 1 2 1 ("reflect", which does not repeat the ends).
    period = 2 * n if mode == "symmetric" else max(2 * n - 2, 1)
    i %= period
    return i if i < n else period - (mode == "symmetric") - i


def _runs(indices: Sequence[int]) -> list[Run]:
    """Join indices into as few runs as a single pass finds."""
    runs: list[Run] = []
    # A run may still take any step as long as it has one element; then the step stays.
    for index in indices:
        if runs:
            start, length, step = runs[-1]
            ahead = index - (start + step * (length - 1))
            if abs(ahead) <= 1 and (length == 1 or ahead == step):
                runs[-1] = (start, length + 1, ahead)
                continue
        runs.append((index, 1, 1))
    return runs


def _runs_of(n: int, before: int, after: int, mode: Mode) -> tuple[list[Run], list[Run]]:
    """The runs of elements that stand before and after an axis of length `n`."""
    if n == 0 and before + after:
        raise ValueError(f"an axis of length 0 has nothing to pad with in mode {mode!r}")
    return (
        _runs([_source_index(i, n, mode) for i in range(-before, 0)]),
        _runs([_source_index(i, n, mode) for i in range(n, n + after)]),
    )


def _cut(x: Array, axis: int, start: int, length: int) -> Array:
    return x[(*(slice(None),) * axis, slice(start, start + length), ...)]


def _take_run(xp: Namespace, x: Array, axis: int, run: Run) -> Array:
    start, length, step = run
    if step == 0:  # one element, repeated ("edge")
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return xp.broadcast_to(_cut(x, axis, start, 1), shape)
    if step == 1:
        return _cut(x, axis, start, length)
    return xp.flip(_cut(x, axis, start - length + 1, length), axis=axis)


def _put_run(xp: Namespace, g: Cotangent, axis: int, run: Run, n: int) -> Cotangent:
    """The transpose of `_take_run` on an axis of length `n`."""
    start, length, step = run
    if step == 0:
        g, length = xp.sum(g, axis=axis, keepdims=True), 1
    elif step == -1:
        g, start = xp.flip(g, axis=axis), start - length + 1
    widths = [(start, n - start - length) if a == axis else (0, 0) for a in range(len(g.shape))]
    return xp.pad(g, tuple(widths))


def _filled(xp: Namespace, x: Array, shape: tuple[int, ...], value: Any) -> Array:
    if type(value) is int and xp.isdtype(x.dtype, "integral"):
        limits = xp.iinfo(x.dtype)
        if not limits.min <= value <= limits.max:  # libraries wrap it
            raise OverflowError(f"constant_values: Python integer {value} out of bounds for {x.dtype}")
    return xp.full_like(xp.zeros_beside(x, shape, dtype=x.dtype), value)


def _pad_kernel(
    xp: Namespace, x: Array, pad_width: PadWidth, mode: Mode = "constant", *, constant_values: Fill = 0
) -> Array:
    shape = tuple(x.shape)
    pairs = _pairs(pad_width, len(shape))
    if mode == "constant":
        # One constant: a single scatter or assignment. Several constants go axis by axis.
        fill: Any = constant_values
        if not isinstance(fill, numbers.Number):
            return _pad_by_axes(xp, x, pairs, _fills(constant_values, len(shape)))
        target = tuple(n + before + after for n, (before, after) in zip(shape, pairs, strict=True))
        key = tuple(slice(before, before + n) for n, (before, _) in zip(shape, pairs, strict=True))
        if constant_values == 0 and math.copysign(1.0, complex(constant_values).real) > 0:  # -0.0 is another fill
            return xp.scatter(x, key, target)
        return xp.setitem(_filled(xp, x, target, constant_values), x, key)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ValueError(f"mode must be 'constant', 'edge', 'reflect', 'symmetric' or 'wrap', got {mode!r}")
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            ahead, behind = _runs_of(shape[axis], before, after, mode)
            pieces = [
                *(_take_run(xp, x, axis, run) for run in ahead),
                x,
                *(_take_run(xp, x, axis, run) for run in behind),
            ]
            x = xp.concat(pieces, axis=axis)
    return x


def _pad_by_axes(xp: Namespace, x: Array, pairs: Pairs, fills: tuple[tuple[complex, complex], ...]) -> Array:
    """Pad with several constants, axis after axis, so that corners have the constant of the last axis, as in NumPy."""
    for axis, (widths, values) in enumerate(zip(pairs, fills, strict=True)):
        before, after = (
            _filled(xp, x, (*x.shape[:axis], width, *x.shape[axis + 1 :]), value)
            for width, value in zip(widths, values, strict=True)
        )
        x = xp.concat([before, x, after], axis=axis)
    return x


def _pad_vjp(xp: Namespace, g: Cotangent, x_spec: Spec, pad_width: PadWidth, mode: Mode) -> Cotangent:
    shape = x_spec.shape
    pairs = _pairs(pad_width, len(shape))
    if mode == "constant":
        return g[tuple(slice(before, before + n) for n, (before, _) in zip(shape, pairs, strict=True))]
    # The kernel pads axis after axis, and a later axis copies what an earlier one added; so undo them in reverse.
    for axis, (before, after) in reversed(list(enumerate(pairs))):
        if before or after:
            n = shape[axis]
            ahead, behind = _runs_of(n, before, after, mode)
            d = _cut(g, axis, before, n)
            for at, runs in ((0, ahead), (before + n, behind)):
                for run in runs:
                    d = d + _put_run(xp, _cut(g, axis, at, run[1]), axis, run, n)
                    at += run[1]
            g = d
    return g


def _pad_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), 1)
    yield Sample(draw(2, 3), (1, 2), constant_values=0.5)
    yield Sample(draw.complex(2, 3), ((0, 1), (2, 0)), constant_values=1j)
    yield Sample(draw(2, 3), ((1, 2), (0, 3)), constant_values=(0.5, -1.5))
    yield Sample(draw(2, 3), 2, constant_values=((1, 2), (3, 4)))
    yield Refused(ValueError, "constant_values", draw(2, 3), 1, constant_values=(1, 2, 3))
    yield Sample(draw(0, 2), 1)
    yield Sample(draw(), 1)
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        yield Sample(draw(3, 4), ((1, 2), (0, 3)), mode)
        yield Sample(draw(2), (5, 7), mode=mode)
        yield Sample(draw.complex(1), (1, 2), mode=mode)
        yield Sample(draw(0, 2), ((0, 0), (1, 1)), mode=mode)
        yield Refused(ValueError, "length 0", draw(0, 2), 1, mode=mode)
    yield Refused(ValueError, "pad_width", draw(2, 3), -1)
    yield Refused(ValueError, "pad_width", draw(2, 3), ((1, 1), (1, 1), (1, 1)))
    yield Refused(ValueError, "mode", draw(2), 1, mode="mirror")


def _pad_batch(call: Call, x: BatchedArray) -> Any:
    widths = _pairs(call.params["pad_width"], x.ndim)
    fill = call.params["constant_values"]
    if not isinstance(fill, numbers.Number):
        fill = ((0, 0), *_fills(fill, x.ndim))
    return call(x.value, pad_width=((0, 0), *widths), constant_values=fill)


@op(x=vjp(_pad_vjp), kernel=_pad_kernel, samples=_pad_samples, batch=_pad_batch)
def pad(x: ArrayLike, /, pad_width: PadWidth, mode: Mode = "constant", *, constant_values: Fill = 0) -> Tensor:
    """Add elements at both ends of the axes of `x`, as `numpy.pad` does.

    >>> import tape_core as tc
    >>> x = tc.asarray([1, 2, 3])
    >>> tc.pad(x, 2).tolist(), tc.pad(x, (1, 0), constant_values=9).tolist()
    ([0, 0, 1, 2, 3, 0, 0], [9, 1, 2, 3])
    >>> for mode in ("edge", "reflect", "symmetric", "wrap"):
    ...     print(tc.pad(x, 2, mode).tolist())
    [1, 1, 1, 2, 3, 3, 3]
    [3, 2, 1, 2, 3, 2, 1]
    [2, 1, 1, 2, 3, 3, 2]
    [2, 3, 1, 2, 3, 1, 2]

    Args:
        pad_width: the number of elements at each end of each axis; a pair (before, after) for every axis; or such a
            pair for each axis.
        mode: the elements to add: `constant_values` ("constant"); the nearest element ("edge"); the mirror image
            without or with the element at the end ("reflect", "symmetric"); or the elements at the other end ("wrap").
            Where more are added than the array has, the pattern goes on.
        constant_values: a number; a pair (before, after); or such a pair for each axis. A corner has the constant of
            the last of its axes.

    Raises:
        ValueError: a width is negative, there is not one width or constant for each axis, the mode is unknown, or the
            array has no elements to copy.
    """
