"""Random numbers from the bits of NumPy's Philox, block by block, so that temporaries stay in the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tape_core.backends.random_kernels import (
    FLOAT_MAX_SPAN,
    HALF_WORD_MAX_SPAN,
    PRODUCT_BITS,
    PRODUCT_MAX_SPAN,
    Key,
    RandomKernels,
    Shape,
    numpy_words,
)
from tape_core.typing import Raw

from tape_numpy.thresholds import RANDOM_BLOCK


class NumPyRandom(RandomKernels):
    """The numbers of :class:`RandomKernels`, with fewer passes over memory."""

    def words(self, key: Key, counter: int, n: int, device: str | None = None) -> Raw:
        """Return words by NumPy's own C code."""
        return numpy_words(key, counter, n).view(np.int64)

    def half_words(self, key: Key, counter: int, n: int, device: str | None = None) -> Raw:
        """Return the halves of words as integers."""
        return _halves(key, counter, n).astype(np.int64)

    def _fractions(self, key: Key, counter: int, n: int, dtype: str, device: str | None) -> Raw:
        out = np.empty(n, dtype)
        if dtype == "float32":
            halves = _halves(key, counter, n)
            for block in _blocks(n):
                part = halves[block]
                np.right_shift(part, 8, out=part)
                np.multiply(part.view(np.int32), np.float32(2.0**-24), out=out[block], casting="unsafe")
            return out
        words = numpy_words(key, counter, n)
        for block in _blocks(n):
            part = words[block]
            np.right_shift(part, 11, out=part)
            np.multiply(part.view(np.int64), 2.0**-53, out=out[block])
        return out

    def uniform(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return numbers in [0, 1)."""
        return self._fractions(key, counter, math.prod(shape), dtype, device).reshape(shape)[()]

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return normally distributed numbers, in the memory of the uniform ones."""
        n = math.prod(shape)
        pairs = -(-n // 2)
        u = self._fractions(key, counter, 2 * pairs, dtype, device)
        kind = u.dtype.type
        one, minus_two, pi, half = kind(1), kind(-2), kind(math.pi), kind(0.5)
        for block in _blocks(pairs):
            radius, t = u[:pairs][block], u[pairs:][block]
            np.subtract(one, radius, out=radius)
            np.log(radius, out=radius)
            np.multiply(radius, minus_two, out=radius)
            np.sqrt(radius, out=radius)
            np.subtract(t, half, out=t)
            np.multiply(t, pi, out=t)
            np.tan(t, out=t)
            square = t * t
            np.divide(radius, one + square, out=radius)
            np.multiply(t, radius, out=t)
            np.add(t, t, out=t)
            np.subtract(one, square, out=square)
            np.multiply(radius, square, out=radius)
        return u[:n].reshape(shape)[()]

    def integers(self, key: Key, counter: int, shape: Shape, low: int, high: int, device: str | None = None) -> Raw:
        """Return integers in [low, high)."""
        span = high - low
        n = math.prod(shape)
        if span > FLOAT_MAX_SPAN:
            return _wide(numpy_words(key, counter, n), span, low).reshape(shape)[()]
        by_halves = span <= HALF_WORD_MAX_SPAN
        bits = _halves(key, counter, n) if by_halves else numpy_words(key, counter, n)
        out = np.empty(n, np.int64) if by_halves else bits.view(np.int64)
        for block in _blocks(n):
            part = out[block]
            if by_halves:
                np.multiply(bits[block], np.uint32(span), out=part, dtype=np.int64)
                np.right_shift(part, 32, out=part)
            elif span <= PRODUCT_MAX_SPAN:
                np.right_shift(bits[block], 64 - PRODUCT_BITS, out=bits[block])
                np.multiply(part, span, out=part)
                np.right_shift(part, PRODUCT_BITS, out=part)
            else:
                np.right_shift(bits[block], 11, out=bits[block])
                part[...] = part * (span * 2.0**-53)  # rounded once: the factor differs from `span` in its exponent
            if low:
                np.add(part, low, out=part)
        return out.reshape(shape)[()]


def _wide(words: Any, span: int, low: int) -> Any:
    """Return the upper 64 bits of words times `span`, plus `low`, as int64 in the memory of the words.

    As `random_kernels.multiply_high`, but of unsigned integers, whose shifts need no masks, and block by block.
    """
    shift = 64 - (span.bit_length() - 1)
    b0, b1, mask, half = np.uint64(span & 0xFFFFFFFF), np.uint64((span >> 32) % 2**32), np.uint64(0xFFFFFFFF), 32
    # Then the sum of both middle products, and of what is carried into it, is below 2**64: it is at most
    # (2**32 - 1) * (b0 + b1 + 1).
    fits = int(b0) + int(b1) < 1 << 32
    temporaries = np.empty((3, min(words.size, RANDOM_BLOCK)), np.uint64)
    for block in _blocks(words.size):
        part = words[block]
        a0, middle, product = temporaries[:, : part.size]
        if span & (span - 1) == 0:  # a power of two: the product's upper bits are the word's
            np.right_shift(part, shift, out=part)
        else:
            np.bitwise_and(part, mask, out=a0)
            np.right_shift(part, half, out=part)
            np.multiply(a0, b0, out=middle)
            np.right_shift(middle, half, out=middle)
            np.multiply(part, b0, out=product)
            np.add(middle, product, out=middle)
            np.multiply(part, b1, out=part)
            np.multiply(a0, b1, out=a0)
            if fits:
                np.add(a0, middle, out=a0)
            else:
                np.bitwise_and(middle, mask, out=product)
                np.add(a0, product, out=a0)
                np.right_shift(middle, half, out=middle)
                np.add(part, middle, out=part)
            np.right_shift(a0, half, out=a0)
            np.add(part, a0, out=part)
        if low:
            np.add(part, np.uint64(low % 2**64), out=part)
    return words.view(np.int64)


def _halves(key: Key, counter: int, n: int) -> Any:
    """Return the lower and upper halves of words, uint32."""
    # Not the machine's byte order, which may be another: the lower half comes first.
    return numpy_words(key, counter, -(-n // 2)).astype("<u8", copy=False).view("<u4")[:n]


def _blocks(n: int) -> list[slice]:
    return [slice(k, k + RANDOM_BLOCK) for k in range(0, n, RANDOM_BLOCK)]
