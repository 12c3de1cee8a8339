"""Counter-based random numbers: Philox4x64-10, and the numbers that are made of its bits.

Block number i of a stream is a function of the key and of i alone, so any part of a stream can be computed by itself,
in parallel, on any device. The bits are those of `numpy.random.Philox` with the same key and counter.

Source: Salmon and others, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tape_core.typing import Array, Namespace, Raw

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

Key: TypeAlias = tuple[int, int]
"""The key of a stream: two integers of 64 bits."""
Shape: TypeAlias = tuple[int, ...]

WORD: Final = 1 << 64
WORDS_PER_BLOCK: Final = 4  # words of 64 bits in a block of Philox4x64
HALF_WORD_MAX_SPAN: Final = 1 << 16  # values; up to here 32 bits decide on an integer, and no value is off by 2**-16
PRODUCT_BITS: Final = 42  # bits of a word that decide on an integer where a product of 63 bits has room for them
PRODUCT_MAX_SPAN: Final = 1 << 63 - PRODUCT_BITS  # values; up to here they do, and no value is off by 2**-21
FLOAT_MAX_SPAN: Final = 1 << 32  # values; up to here 53 bits do, and no value is off by 2**-21

_ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # what is added to the key after each round
_LOW: Final = 0xFFFFFFFF


def signed(word: int) -> int:
    """Return the integer of int64 with the bits of a word."""
    word %= WORD
    return word - WORD if word >= WORD >> 1 else word


def multiply_high(a: Array, b: int) -> Array:
    """Return the upper 64 bits of the 128 of a product of unsigned words, held as int64.

    Array API libraries differ in what they have for uint64. Sums and products of int64 have the same bits, and a shift
    to the right that brings in zeros is an arithmetic one with a mask.
    """
    a0, a1, b0, b1 = a & _LOW, (a >> 32) & _LOW, b & _LOW, (b >> 32) & _LOW
    middle = a1 * b0 + (((a0 * b0) >> 32) & _LOW)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + ((middle >> 32) & _LOW) + ((other >> 32) & _LOW)


def half_angles(xp: Namespace, u: Raw, v: Raw) -> tuple[Raw, Raw]:
    """Return r and t of pairs of uniform numbers: r * (1 - t**2) and r * 2t are normal ones, a cosine and a sine."""
    t = xp.tan((v - 0.5) * math.pi)
    return xp.sqrt(-2.0 * xp.log(1.0 - u)) / (1.0 + t * t), t


class RandomKernels:
    """The random numbers of a backend: each method returns a raw array that is decided by a key and a counter.

    A backend may override any of them, for speed. All numbers must be those of this class, to the last bit, but for
    `normal`, which may differ by rounding. The conformance suite compares them.
    The others are built on `words`: a subclass may override that one alone.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def words(self, key: Key, counter: int, n: int, device: str | None = None) -> Raw:
        """Return `n` words of 64 bits, as int64, from the blocks `counter`, `counter + 1` and so on."""
        backend, xp = self.backend, self.backend.xp
        blocks = -(-n // WORDS_PER_BLOCK)
        int64 = backend.raw_dtype("int64")
        # numpy.random.Philox counts before it makes a block: its first block is that of counter + 1.
        a = xp.arange(blocks, dtype=int64, device=backend.raw_device(device)) + signed(counter + 1)
        b = c = d = xp.zeros_like(a)
        for k in range(_ROUNDS):
            key0, key1 = [signed(word + k * step) for word, step in zip(key, _WEYL, strict=True)]
            m0, m1 = _MULTIPLIERS
            a, b, c, d = (
                multiply_high(c, m1) ^ b ^ key0,
                c * signed(m1),
                multiply_high(a, m0) ^ d ^ key1,
                a * signed(m0),
            )
        return xp.reshape(xp.stack([a, b, c, d], axis=1), (-1,))[:n]

    def half_words(self, key: Key, counter: int, n: int, device: str | None = None) -> Raw:
        """Return `n` integers from 0 to 2**32 - 1, int64: the lower and the upper half of each word."""
        xp = self.backend.xp
        words = self.words(key, counter, -(-n // 2), device)
        return xp.reshape(xp.stack([words & _LOW, (words >> 32) & _LOW], axis=1), (-1,))[:n]

    def _fractions(self, key: Key, counter: int, n: int, dtype: str, device: str | None) -> Raw:
        """Return `n` numbers in [0, 1): multiples of 2**-24 in float32, of 2**-53 in float64."""
        xp, raw_dtype = self.backend.xp, self.backend.raw_dtype(dtype)
        if dtype == "float32":
            return xp.astype(self.half_words(key, counter, n, device) >> 8, raw_dtype) * 2.0**-24
        return xp.astype((self.words(key, counter, n, device) >> 11) & ((1 << 53) - 1), raw_dtype) * 2.0**-53

    def uniform(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return numbers in [0, 1), float32 or float64."""
        return self.backend.xp.reshape(self._fractions(key, counter, math.prod(shape), dtype, device), shape)

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return normally distributed numbers, float32 or float64, by the Box-Muller transform.

        The first half of them are the cosines, the others the sines. Both come from the tangent of half the angle,
        since libraries have one fast function for it, where they need two for sine and cosine.
        """
        xp, n = self.backend.xp, math.prod(shape)
        pairs = -(-n // 2)
        u = self._fractions(key, counter, 2 * pairs, dtype, device)
        radius, t = half_angles(xp, u[:pairs], u[pairs:])
        return xp.reshape(xp.concat([radius * (1.0 - t * t), radius * (2.0 * t)])[:n], shape)

    def integers(self, key: Key, counter: int, shape: Shape, low: int, high: int, device: str | None = None) -> Raw:
        """Return integers in [low, high), int64: a number in [0, 1) times `high - low`, rounded down."""
        xp, n, span = self.backend.xp, math.prod(shape), high - low
        if span <= HALF_WORD_MAX_SPAN:
            found = (self.half_words(key, counter, n, device) * span) >> 32
        elif span <= PRODUCT_MAX_SPAN:
            bits = (self.words(key, counter, n, device) >> 64 - PRODUCT_BITS) & ((1 << PRODUCT_BITS) - 1)
            found = (bits * span) >> PRODUCT_BITS
        elif span <= FLOAT_MAX_SPAN:
            # The product is below `span` even when rounded: a fraction is at most 1 - 2**-53.
            scaled = self._fractions(key, counter, n, "float64", device) * float(span)
            found = xp.astype(scaled, self.backend.raw_dtype("int64"))
        else:
            words = self.words(key, counter, n, device)
            found = words if span == WORD else multiply_high(words, span)
        return xp.reshape(found + low, shape)

    def permutation(self, key: Key, counter: int, shape: Shape, device: str | None = None) -> Raw:
        """Return permutations of the integers below `shape[-1]`, int64.

        One is shuffled on the host, since each step of a shuffle depends on the last; of several each is the order of
        random keys.
        """
        xp, n = self.backend.xp, shape[-1]
        if len(shape) == 1:
            return self.backend.asarray(shuffled(key, counter, n), dtype=self.backend.raw_dtype("int64"), device=device)
        # A key has the number itself in its lowest bits: so no two are equal, sorting needs no indices, and the result
        # does not depend on how a library sorts.
        mask = (1 << max(n - 1, 0).bit_length()) - 1
        words = xp.reshape(self.words(key, counter, math.prod(shape), device), shape)
        numbers = xp.arange(n, dtype=self.backend.raw_dtype("int64"), device=self.backend.raw_device(device))
        return xp.sort((words & ~mask) | numbers, axis=-1) & mask


def words_needed(kernel: str, shape: Shape, *parameters: Any) -> int:
    """Return how many words a method of :class:`RandomKernels` takes from its stream."""
    n = math.prod(shape)
    if kernel == "integers":
        low, high = parameters
        return -(-n // 2) if high - low <= HALF_WORD_MAX_SPAN else n
    if kernel == "permutation":
        return n
    (dtype,) = parameters
    if kernel == "normal":
        n += n % 2
    return -(-n // 2) if dtype == "float32" else n


class _Local(threading.local):
    """NumPy's Philox of this thread, and the stream and the block at which it stands."""

    def __init__(self) -> None:
        self.philox: Any = None
        self.at: tuple[Key, int] | None = None


_local = _Local()


def numpy_words(key: Key, counter: int, n: int) -> Any:
    """Return the words as a `numpy.ndarray` of uint64, by NumPy's own Philox: for backends on the CPU.

    Raises:
        ImportError: NumPy is not installed.
    """
    import numpy as np  # it is not core's dependency: backends call this, where it is there

    blocks = -(-n // WORDS_PER_BLOCK)
    if _local.philox is None:
        _local.philox = np.random.Philox(0)
    if _local.at != (key, counter):
        # Its state is set only where draws of several generators alternate: that takes longer than to draw 500 words.
        _local.philox.state = {
            "bit_generator": "Philox",
            "state": {
                "counter": np.asarray([counter, 0, 0, 0], np.uint64),
                "key": np.asarray(key, np.uint64),
            },
            "buffer": np.zeros(WORDS_PER_BLOCK, np.uint64),
            "buffer_pos": WORDS_PER_BLOCK,  # nothing is buffered
            "has_uint32": 0,
            "uinteger": 0,
        }
    _local.at = None  # until it is where it should be: an interrupt may come between
    found = _local.philox.random_raw(blocks * WORDS_PER_BLOCK)
    _local.at = key, counter + blocks
    return found[:n]


def python_words(key: Key, counter: int, n: int) -> list[int]:
    """Return words by Python's integers, where NumPy is not installed."""
    found: list[int] = []
    (m0, m1), low = _MULTIPLIERS, WORD - 1
    for block in range(counter + 1, counter + 1 + -(-n // WORDS_PER_BLOCK)):
        a, b, c, d = block, 0, 0, 0
        for k in range(_ROUNDS):
            key0, key1 = [(word + k * step) & low for word, step in zip(key, _WEYL, strict=True)]
            first, second = a * m0, c * m1
            a, b, c, d = (second >> 64) ^ b ^ key0, second & low, (first >> 64) ^ d ^ key1, first & low
        found += [a, b, c, d]
    return found[:n]


def shuffled(key: Key, counter: int, n: int) -> Any:
    """Return the integers below `n` in random order, a list or a `numpy.ndarray`, by the Fisher-Yates shuffle.

    The element at k changes places with that at k + floor(u * (n - k)), for k from 0 on and fractions u of 53 bits.
    LAPACK has a function that exchanges rows so, one after the other, which is as fast as a shuffle in C.
    """
    try:
        import numpy as np
        from scipy.linalg.lapack import dlaswp
    except ImportError:
        order = list(range(n))
        for k, word in enumerate(python_words(key, counter, n)):
            other = k + int((word >> 11) * 2.0**-53 * (n - k))
            order[k], order[other] = order[other], order[k]
        return order
    words = numpy_words(key, counter, n)
    np.right_shift(words, 11, out=words)
    places = words.view(np.int64) * 2.0**-53
    places *= np.arange(n, 0, -1, dtype=np.int64)
    pivots = places.astype(np.int32)
    pivots += np.arange(n, dtype=np.int32)
    rows = np.arange(n, dtype=np.float64).reshape(n, 1, order="F")
    return dlaswp(rows, pivots, overwrite_a=True).ravel().astype(np.int64) if n else np.zeros(0, np.int64)
