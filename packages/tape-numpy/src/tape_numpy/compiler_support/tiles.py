"""The cutting of large arrays into blocks that stay in the cache.

Arrays of one shape are cut as one line, where NumPy's pairwise summation cuts: it halves a line, at a multiple of 8,
until 128 elements are left. So the blocks' sums, added in that order, have the same bits as `np.add.reduce` of the
whole. Where smaller arrays are broadcast, or lines are reduced, blocks are whole lines.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np
from tape_compile.extend import Raw

from tape_numpy.thresholds import (
    BLOCK_CACHES,
    BLOCK_MAX_ELEMENTS,
    BLOCK_MIN_ELEMENTS,
    BLOCK_MULTIPLE,
    JOIN_MAX_LENGTH,
    JOINED_LINES_MAX_LENGTH,
    L2_BYTES,
)

Tree = Any
"""The number of a block, or the two trees that it is the sum of."""

Cut = tuple[tuple[int, ...], int, int]
"""A block: places on the axes before the one that is cut, and where it starts and stops on that."""


class Tiling:
    """The axes of a shape, joined where all operands are broadcast alike along them, and the blocks.

    Args:
        shape: of the results.
        smaller: the shapes that are broadcast to it.
        in_lines: whether the last axis is reduced, and stays whole.

    Attributes:
        lengths: of the axes.
        lines_joined: how many lines are taken as one where a short one is broadcast to them; see `repeat_line`.
        axis: the one that is cut; the axes after it are whole.
        cuts: the blocks.
        tree: the order of their sums, where there is one axis.
        longest: the number of elements of the largest block.
    """

    axis: int
    cuts: list[Cut]
    longest: int
    tree: Tree = None

    def __init__(self, shape: tuple[int, ...], smaller: list[tuple[int, ...]], *, in_lines: bool) -> None:
        # Neighbouring axes along which the same operands are broadcast become one: then most calls have one or two
        # axes, and NumPy loops over few long lines.
        padded = [(1,) * (len(shape) - len(s)) + s for s in smaller]
        self._axes: list[list[int]] = []
        kind: Any = None
        for axis, length in enumerate(shape):
            alike = [s[axis] == 1 for s in padded], in_lines and axis == len(shape) - 1
            if length == 1 and not alike[1]:
                continue
            if not self._axes or kind != alike:
                self._axes.append([])
            kind = alike
            self._axes[-1].append(axis)
        if in_lines and len(self._axes) == 1:
            self._axes.insert(0, [])  # there is one line
        self._ndim = len(shape)
        self.lengths = self.joined_shape(shape)
        self._in_lines = in_lines
        # As many lines as make the long line at most JOINED_LINES_MAX_LENGTH, and divide their number.
        lines, n = (1, 1, *self.lengths)[-2:]
        self.lines_joined = (
            max([t for t in range(1, JOINED_LINES_MAX_LENGTH // n + 1) if lines % t == 0], default=1)
            if n <= JOIN_MAX_LENGTH
            else 1
        )

    def cut(self, nbytes: int) -> None:
        """Make the blocks, of arrays that have so many bytes an element together."""
        longest = _block_length(nbytes, math.prod(self.lengths))
        last = len(self.lengths) - 1 - self._in_lines
        self.axis = next((k for k in range(last) if math.prod(self.lengths[k + 1 :]) <= longest), last)
        if len(self.lengths) == 1:
            found, self.tree = bounds(self.lengths[0], longest)
            self.cuts = [((), i, j) for i, j in found]
        else:
            self.cuts = self._cut_rows(longest)
        self.longest = max([j - i for _, i, j in self.cuts]) * self.inner

    def needs_repeating(self, seen: tuple[int, ...]) -> bool:
        """Return whether an array of these lengths is a short line that is broadcast to lines that are taken as one."""
        return self.lines_joined > 1 and seen[-2:] == (1, self.lengths[-1])

    def repeat_line(self, array: Raw) -> Raw:
        """Repeat the line of such an array, as often as lines are taken as one: NumPy is slow along short ones."""
        *before, _, n = array.shape
        return np.broadcast_to(array, (*before, self.lines_joined, n)).reshape(*before, 1, self.lines_joined * n)

    @property
    def long_line_shape(self) -> str:
        """The shape of a block with several lines taken as one, as source in terms of i and j."""
        t, (*after, n) = self.lines_joined, self.lengths[self.axis + 1 :]
        if not after:
            return f"(j - i) // {t}, {t * n}"
        return ", ".join(map(str, ["j - i", *after[:-1], after[-1] // t, t * n]))

    @property
    def inner(self) -> int:
        """The number of elements for each place on the axis that is cut."""
        return math.prod(self.lengths[self.axis + 1 :])

    def joined_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths of an array of this shape along the joined axes."""
        padded = (1,) * (self._ndim - len(shape)) + shape
        return tuple([math.prod([padded[axis] for axis in axes]) for axes in self._axes])

    def _cut_rows(self, longest: int) -> list[Cut]:
        # Blocks of equal length but for rounding: a short one at the end would take as many calls as the others.
        length = self.lengths[self.axis]
        unit = self.lines_joined if self.axis == len(self.lengths) - 2 else 1
        step = max(1, longest // (self.inner * unit))
        parts = -(-length // (step * unit))
        edges = [length // unit * k // parts * unit for k in range(parts + 1)]
        before = product(*[range(n) for n in self.lengths[: self.axis]])
        return [(places, edges[k], edges[k + 1]) for places in before for k in range(parts)]


def _block_length(nbytes: int, size: int) -> int:
    """The number of elements of a block, for arrays of so many elements, and of so many bytes an element together.

    Large arrays have a few blocks for each of several threads.
    """
    longest = min(BLOCK_MAX_ELEMENTS, max(BLOCK_MAX_ELEMENTS // 2, size // 4))
    return max(
        BLOCK_MIN_ELEMENTS, min(longest, BLOCK_CACHES * _l2_size() // max(1, nbytes) // BLOCK_MULTIPLE * BLOCK_MULTIPLE)
    )


@lru_cache(maxsize=256)
def bounds(size: int, longest: int) -> tuple[list[tuple[int, int]], Tree]:
    """The blocks of a line, and the tree in which NumPy's pairwise summation adds up their sums."""
    cuts: list[tuple[int, int]] = []

    def tree(start: int, n: int) -> Tree:
        if n <= longest:
            cuts.append((start, start + n))
            return len(cuts) - 1
        # As NumPy's pairwise summation does (numpy/_core/src/umath/loops_utils.h.src): n2 = n / 2; n2 -= n2 % 8.
        half = n // 2
        half -= half % 8
        return tree(start, half), tree(start + half, n - half)

    whole = tree(0, size)
    return cuts, whole


def total(tree: Tree, parts: Raw) -> Raw:
    """The sum of the blocks' sums, in the order of the tree."""
    return parts[tree] if type(tree) is int else total(tree[0], parts) + total(tree[1], parts)


@cache
def _l2_size() -> int:
    """Bytes of the second-level cache of one core."""
    try:
        # Linux alone; index2 is the second level, since index0 and index1 are the first one's data and instructions.
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size", encoding="ascii") as file:
            text = file.read().strip()
        return int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        return L2_BYTES
