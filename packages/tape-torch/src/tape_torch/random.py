"""Random numbers: from the bits of NumPy's Philox on the CPU, if it is there, and of a kernel of its own on CUDA."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch
from tape_core.backends.random_kernels import Key, RandomKernels, Shape, numpy_words, python_words, signed
from tape_core.typing import Raw

from tape_torch.thresholds import RANDOM_NUMPY_MAX_ELEMENTS

_INT24 = (1 << 24) - 1
_CHECKED_WORDS = 64

# Each thread computes the block of its word, and keeps one word of it: four times the work of the least, and one
# write for each word, which is what takes the time.
_PHILOX = """
template <typename T> T philox(T i, T counter, T key0, T key1) {
    unsigned long long a = (unsigned long long)counter + (unsigned long long)(i >> 2) + 1, b = 0, c = 0, d = 0;
    unsigned long long k0 = (unsigned long long)key0, k1 = (unsigned long long)key1;
    const unsigned long long m0 = 0xD2E7470EE14C6C93ULL, m1 = 0xCA5A826395121157ULL;
    for (int round = 0; round < 10; ++round) {
        unsigned long long high0 = __umul64hi(m0, a), high1 = __umul64hi(m1, c);
        unsigned long long low0 = m0 * a, low1 = m1 * c;
        a = high1 ^ b ^ k0;
        b = low1;
        c = high0 ^ d ^ k1;
        d = low0;
        k0 += 0x9E3779B97F4A7C15ULL;
        k1 += 0xBB67AE8584CAA73BULL;
    }
    unsigned long long words[4] = {a, b, c, d};
    return (T)words[i & 3];
}
"""


@lru_cache(maxsize=1)
def _cuda_philox() -> Any:
    """Return the kernel, which PyTorch compiles at its first call; None where it cannot, or where its bits are wrong.

    PyTorch calls this way to compile kernels a beta feature, so the result of each process is checked once.
    """
    try:
        from torch.cuda.jiterator import _create_jit_fn

        kernel = _create_jit_fn(_PHILOX, counter=0, key0=0, key1=0)
        found = kernel(torch.arange(_CHECKED_WORDS, device="cuda"), counter=3, key0=-5, key1=7).tolist()
    except (ImportError, RuntimeError):
        return None
    expected = map(signed, python_words((2**64 - 5, 7), 3, _CHECKED_WORDS))
    return kernel if found == list(expected) else None


def _numpy_fractions(key: Key, counter: int, n: int, dtype: str) -> Any:
    import numpy as np

    if dtype == "float32":
        halves = numpy_words(key, counter, -(-n // 2)).astype("<u8", copy=False).view("<u4")[:n]
        np.right_shift(halves, 8, out=halves)
        return np.multiply(halves, np.float32(2.0**-24), dtype=np.float32, casting="unsafe")
    words = numpy_words(key, counter, n)
    np.right_shift(words, 11, out=words)
    return words * 2.0**-53


class TorchRandom(RandomKernels):
    """The numbers of :class:`RandomKernels`, by PyTorch's functions that work in place."""

    def words(self, key: Key, counter: int, n: int, device: str | None = None) -> Raw:
        """Return words: of NumPy's Philox on the CPU, of one kernel on CUDA, else of integer arithmetic."""
        kind = self.backend.raw_device(device)
        if not n:
            return torch.empty(0, dtype=torch.int64, device=kind)
        if kind.type == "cpu":
            with suppress(ImportError):
                return torch.from_numpy(numpy_words(key, counter, n).view("int64"))
        elif kind.type == "cuda" and torch.version.hip is None and (philox := _cuda_philox()) is not None:
            index = torch.arange(n, dtype=torch.int64, device=kind)
            with torch.cuda.device(kind):
                return philox(index, counter=signed(counter), key0=signed(key[0]), key1=signed(key[1]))
        return super().words(key, counter, n, device)

    def _halves(self, key: Key, counter: int, n: int, device: str | None) -> torch.Tensor:
        """Return the lower and upper halves of words as int32, which has their bits."""
        halves: torch.Tensor = self.words(key, counter, -(-n // 2), device).view(torch.int32)
        return halves[:n] if sys.byteorder == "little" else halves.view(-1, 2).flip(1).reshape(-1)[:n]

    def half_words(self, key: Key, counter: int, n: int, device: str | None = None) -> Raw:
        """Return the halves of words as integers."""
        return self._halves(key, counter, n, device).to(torch.int64).bitwise_and_(0xFFFFFFFF)

    def _fractions(self, key: Key, counter: int, n: int, dtype: str, device: str | None) -> Raw:
        if n <= RANDOM_NUMPY_MAX_ELEMENTS and self.backend.raw_device(device).type == "cpu":
            with suppress(ImportError):
                return torch.from_numpy(_numpy_fractions(key, counter, n, dtype))
        if dtype == "float32":
            # The shift brings in copies of the sign bit, which the mask takes away.
            halves = self._halves(key, counter, n, device).bitwise_right_shift_(8).bitwise_and_(_INT24)
            return halves.to(torch.float32).mul_(2.0**-24)
        words = self.words(key, counter, n, device).bitwise_right_shift_(11).bitwise_and_((1 << 53) - 1)
        return words.to(torch.float64).mul_(2.0**-53)

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return normally distributed numbers, in the memory of the uniform ones."""
        n = math.prod(shape)
        pairs = -(-n // 2)
        u = self._fractions(key, counter, 2 * pairs, dtype, device)
        radius, t = u[:pairs], u[pairs:]
        radius.neg_().add_(1.0).log_().mul_(-2.0).sqrt_()
        t.sub_(0.5).mul_(math.pi).tan_()
        square = t * t
        radius.div_(square + 1.0)
        t.mul_(radius).mul_(2.0)
        radius.mul_(square.neg_().add_(1.0))
        return u[:n].reshape(shape)
