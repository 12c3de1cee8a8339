"""Arrays that are made in parts: a part has the numbers that a draw of the whole array has at its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from tape_core.backends.random_kernels import (
    HALF_WORD_MAX_SPAN,
    WORDS_PER_BLOCK,
    Key,
    RandomKernels,
    Shape,
    half_angles,
    signed,
)
from tape_core.base.ambient import MAKING
from tape_core.base.contexts import setting
from tape_core.base.thresholds import SHORT_ROW_NUMBERS
from tape_core.engine.tensor import Tensor
from tape_core.ops.creation import asarray, empty, full, ones, zeros
from tape_core.typing import Raw

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

FILLED: Final = (zeros, ones, full, empty)
"""Functions that make an array of any shape whose elements are alike: a part of it is one of another shape."""

Between: TypeAlias = Callable[[int, int], Raw]
"""Returns the numbers of a draw from one place to another, in the order of the whole array."""


class Making(Protocol):
    """An array that an engine is making in parts."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""

    def drawn(self, between: Between, dtype: str, device: str | None) -> Raw:
        """Return the array, divided, whose numbers `between` draws."""

    def of_all(self, numbers: list[int]) -> Sequence[Sequence[int]]:
        """Return what each process gives, by rank: integers of 64 bits."""


def label_of(function: Callable[..., Any]) -> str:
    """Return what messages call the array that a function makes."""
    return f"what {getattr(function, '__qualname__', 'the function')} makes"


def make(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], making: Making) -> Tensor:
    """Return `function(shape, *args, **kwargs)`, whose draws of this shape from a Generator are made in parts.

    Raises:
        ValueError: the result has another shape.
    """
    with setting(MAKING, making):
        made = asarray(function(making.shape, *args, **kwargs))
    if made.shape != making.shape:
        raise ValueError(f"create: {label_of(function)} has the shape {made.shape}, and {making.shape} was asked for")
    return made


def fill(part: Raw, shape: Sequence[int], offsets: Sequence[int], between: Between, at_once: int) -> None:
    """Fill a part of an array, drawing so many numbers at once that there is little memory in use.

    Args:
        part: an array of NumPy or PyTorch, to be written to.
        shape, offsets: of the whole, and where the part begins in it.
    """
    if math.prod(part.shape):
        _fill(part, tuple(shape), tuple(offsets), 0, between, at_once)


def _fill(
    part: Raw, shape: tuple[int, ...], offsets: tuple[int, ...], start: int, between: Between, at_once: int
) -> None:
    """Fill a part of an array whose first number is the one at `start`."""
    if not shape:
        part[...] = between(start, start + 1)[0]
        return
    row = math.prod(shape[1:])
    start += offsets[0] * row
    # Of a long row that is divided, the numbers of the part are drawn alone: a call costs as much as some thousands.
    if row > at_once or (row > SHORT_ROW_NUMBERS and part.shape[1:] != shape[1:]):
        for k in range(len(part)):
            _fill(part[k], shape[1:], offsets[1:], start + k * row, between, at_once)
        return
    step = at_once // row
    inner = [slice(begin, begin + n) for begin, n in zip(offsets[1:], part.shape[1:], strict=True)]
    for k in range(0, len(part), step):
        rows = part[k : k + step]
        drawn = between(start + k * row, start + (k + len(rows)) * row).reshape(len(rows), *shape[1:])
        rows[...] = drawn[(slice(None), *inner)]


class PartwiseRandom(RandomKernels):
    """The numbers of an engine's own class, the next of the bases; those of an array that is made in parts by parts.

    Args:
        backend: the backend.
        parts: the kernels that draw the numbers of parts, in the memory that :func:`fill` writes to.
    """

    def __init__(self, backend: Backend, parts: RandomKernels) -> None:
        super().__init__(backend)
        self._parts = parts

    def uniform(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return numbers in [0, 1)."""
        if (making := _wanted(key, counter, shape)) is None:
            return super().uniform(key, counter, shape, dtype, device)
        return making.drawn(self._fractions_between(key, counter, dtype, device), dtype, device)

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return normally distributed numbers: the first half of all are cosines, the others the sines."""
        if (making := _wanted(key, counter, shape)) is None:
            return super().normal(key, counter, shape, dtype, device)
        xp, fractions = self._parts.backend.xp, self._fractions_between(key, counter, dtype, device)
        pairs = -(-math.prod(shape) // 2)

        def some(first: int, last: int, sine: bool) -> Raw:
            radius, t = half_angles(xp, fractions(first, last), fractions(first + pairs, last + pairs))
            return radius * (2.0 * t) if sine else radius * (1.0 - t * t)

        def between(a: int, b: int) -> Raw:
            if b <= pairs:
                return some(a, b, False)
            sines = some(max(a - pairs, 0), b - pairs, True)
            return sines if a >= pairs else xp.concat([some(a, pairs, False), sines])

        return making.drawn(between, dtype, device)

    def integers(self, key: Key, counter: int, shape: Shape, low: int, high: int, device: str | None = None) -> Raw:
        """Return integers in [low, high)."""
        if (making := _wanted(key, counter, shape)) is None:
            return super().integers(key, counter, shape, low, high, device)
        each = WORDS_PER_BLOCK * (2 if high - low <= HALF_WORD_MAX_SPAN else 1)

        def from_block(block: int, n: int) -> Raw:
            return self._parts.integers(key, counter + block, (n,), low, high, device)

        return making.drawn(_between(from_block, each), "int64", device)

    def _fractions_between(self, key: Key, counter: int, dtype: str, device: str | None) -> Between:
        def from_block(block: int, n: int) -> Raw:
            return self._parts._fractions(key, counter + block, n, dtype, device)

        return _between(from_block, WORDS_PER_BLOCK * (2 if dtype == "float32" else 1))


def _between(from_block: Callable[[int, int], Raw], each: int) -> Between:
    """Return the function of two places, of one that draws so many numbers from a block on, with `each` in a block."""

    def between(a: int, b: int) -> Raw:
        block, skipped = divmod(a, each)
        return from_block(block, b - a + skipped)[skipped:]

    return between


def _wanted(key: Key, counter: int, shape: Shape) -> Making | None:
    """Return the array that is being made, if a draw is for it; None: draw the whole.

    Raises:
        ValueError: the generators of several processes differ.
    """
    making = MAKING.get()
    if making is None or making.shape != tuple(shape):
        return None
    states = [list(state) for state in making.of_all([signed(number) for number in (*key, counter)])]
    differ = [rank for rank, state in enumerate(states) if state != states[0]]
    if differ:
        raise ValueError(
            f"create: the random generator of rank {differ[0]} has another state than that of rank 0, and each would "
            f"draw its part from its own: begin by tape_core.set_seed(number), or default_rng(number), with the same "
            f"number in each"
        )
    return making
