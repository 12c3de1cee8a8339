"""Random draws inside XLA: the words of Tape's counter-based generators, from states that are arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tape_core import random
from tape_core.backends import RandomKernels
from tape_core.typing import Raw

from tape_jax.xla.transfer import jax_backend

if TYPE_CHECKING:
    from tape_core.random import Draw, Generator

_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW = 0xFFFFFFFF


def state_array(generator: Generator) -> Any:
    """Return the state of a generator: two words of its key, and the counter."""
    return np.asarray(generator._state, np.uint64)


def generator_of(key: int | Generator) -> Generator:
    """Return the generator for a key of `Lowering.states`: 0 is the global one, which may be replaced at any time."""
    return random.global_rng() if isinstance(key, int) else key


class TracedDraws(RandomKernels):
    """Random numbers by key and counter, which are scalars of uint64 that differ between runs."""

    def words(self, key: tuple[Raw, Raw], counter: Raw, n: int, device: str | None = None) -> Any:
        """Return `n` words of 64 bits, as int64, from the blocks `counter`, `counter + 1` and so on."""
        del device
        blocks = -(-n // 4)
        a = jnp.arange(blocks, dtype=jnp.uint64) + (counter + np.uint64(1))
        b = c = d = jnp.zeros_like(a)
        key0, key1 = key
        m0, m1 = (np.uint64(m) for m in _MULTIPLIERS)
        step0, step1 = (np.uint64(w) for w in _WEYL)
        for _ in range(_ROUNDS):
            a, b, c, d = _multiply_high(c, m1) ^ b ^ key0, c * m1, _multiply_high(a, m0) ^ d ^ key1, a * m0
            key0, key1 = key0 + step0, key1 + step1
        words = lax.bitcast_convert_type(jnp.stack([a, b, c, d], axis=1), jnp.int64)
        return jnp.reshape(words, (-1,))[:n]

    def permutation(self, key: tuple[Raw, Raw], counter: Raw, shape: tuple[int, ...], device: str | None = None) -> Any:
        """Return permutations; one alone is shuffled on the host, as everywhere."""
        if len(shape) != 1:
            return super().permutation(key, counter, shape, device)
        n = shape[0]
        kind: Any = jax.eval_shape(lambda: jnp.zeros(n, jnp.int64))
        return jax.pure_callback(lambda a, b, c: _shuffled(int(a), int(b), int(c), n), kind, *key, counter)


def _shuffled(key0: int, key1: int, counter: int, n: int) -> Any:
    return np.asarray(RandomKernels(_numpy_backend()).permutation((key0, key1), counter, (n,)))


def _numpy_backend() -> Any:
    from tape_core.backends import select

    return select("numpy").backend.library


def _multiply_high(a: Raw, b: np.uint64) -> Any:
    """Return the upper 64 bits of the 128 of products of words."""
    low, half = np.uint64(_LOW), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, np.uint64(b & low), np.uint64(b >> half)
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half)


def drawn(draw: Draw, state: Raw) -> tuple[Raw, Raw]:
    """Return the numbers of a draw from a state, and the state after it."""
    kernels = TracedDraws(jax_backend())
    numbers = getattr(kernels, draw.kernel)((state[0], state[1]), state[2], draw.shape, *draw.parameters, device=None)
    return numbers, state.at[2].add(np.uint64(draw.blocks))
