"""Random numbers: by NumPy on the CPU, by one XLA program on accelerators.

On the CPU a million normal numbers take NumPy 13 ms, XLA 300 ms and a second to compile for each new shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.backends import RandomKernels
from tape_core.backends.random_kernels import WORD, WORDS_PER_BLOCK, Key, Shape, numpy_words
from tape_core.support import warn_user

from tape_jax.conversion import is_tracing_for_later
from tape_jax.host import numpy_on_host

_ROUNDS = 10
_MULTIPLIERS = np.array([0xD2E7470EE14C6C93, 0xCA5A826395121157], np.uint64)
_WEYL = np.array([0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B], np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@partial(jax.jit, static_argnames="n")
def philox_words(key: jax.Array, counter: jax.Array, n: int) -> Any:
    """Return `n` words, as int64, from the blocks `counter`, `counter + 1` and so on.

    Args:
        key: two numbers of uint64; they, and the counter, may be known only when the program runs.
        counter: one number of uint64.
    """
    blocks = -(-n // WORDS_PER_BLOCK)
    # NumPy's Philox, whose words these are, counts before it makes a block.
    a = jnp.arange(blocks, dtype=jnp.uint64) + counter + np.uint64(1)
    b = c = d = jnp.zeros_like(a)
    m0, m1 = _MULTIPLIERS
    for k in range(_ROUNDS):
        key0, key1 = [key[i] + np.uint64(k * int(_WEYL[i]) % WORD) for i in (0, 1)]
        a, b, c, d = _multiply_high(c, m1) ^ b ^ key0, c * m1, _multiply_high(a, m0) ^ d ^ key1, a * m0
    return jnp.stack([a, b, c, d], axis=1).reshape(-1)[:n].astype(jnp.int64)


def _multiply_high(a: Any, b: Any) -> Any:
    """Return the upper 64 bits of the 128 of a product."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)


class _OnHost(RandomKernels):
    """The numbers as NumPy's arrays."""

    def words(self, key: Key, counter: int, n: int, device: str | None = None) -> Any:
        return numpy_words(key, counter, n).view(np.int64)


class InProgram(RandomKernels):
    """The numbers of a program that is given the key and the counter when it runs."""

    def words(self, key: Any, counter: Any, n: int, device: str | None = None) -> Any:
        """Return words of 64 bits, as int64."""
        return philox_words(key, counter, n)


@cache
def on_host() -> RandomKernels:
    """Return the kernels of random numbers that are NumPy's arrays."""
    return _OnHost(numpy_on_host())


@lru_cache(maxsize=1024)
def _program(backend: Any, method: str, arguments: tuple[Any, ...], place: Any = None) -> Callable[..., jax.Array]:
    """Return the compiled function of a key and a counter that is a method of :class:`RandomKernels`.

    Args:
        place: the sharding of the result, where it is on several devices.
    """
    kernel = getattr(InProgram(backend), method)
    return jax.jit(lambda key, counter: kernel(key, counter, *arguments), out_shardings=place)


class JaxRandom(RandomKernels):
    """The numbers of :class:`RandomKernels`, made where they are wanted."""

    def _made(self, method: str, key: Key, counter: int, *arguments: Any, device: str | None) -> Any:
        _warn_of_constants()
        place = self.backend.raw_device(device)
        name = self.backend.default_device if device is None else device
        if name.startswith("cpu"):
            found = np.asarray(getattr(on_host(), method)(key, counter, *arguments))
            with jax.ensure_compile_time_eval():
                # The memory is new, and nobody else's: JAX may use it.
                return jax.device_put(found, place)
        seeds = np.asarray(key, np.uint64), np.asarray(counter % WORD, np.uint64)
        if isinstance(place, jax.sharding.Sharding):
            return _program(self.backend, method, arguments, place)(*seeds)
        with jax.default_device(place or jax.config.jax_default_device):  # type: ignore[attr-defined]
            return _program(self.backend, method, arguments)(*seeds)

    def words(self, key: Key, counter: int, n: int, device: str | None = None) -> Any:
        """Return words of 64 bits, as int64."""
        return self._made("words", key, counter, n, device=device)

    def half_words(self, key: Key, counter: int, n: int, device: str | None = None) -> Any:
        """Return the halves of words as integers."""
        return self._made("half_words", key, counter, n, device=device)

    def uniform(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Any:
        """Return numbers in [0, 1), float32 or float64."""
        return self._made("uniform", key, counter, shape, dtype, device=device)

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Any:
        """Return normally distributed numbers, float32 or float64."""
        return self._made("normal", key, counter, shape, dtype, device=device)

    def integers(self, key: Key, counter: int, shape: Shape, low: int, high: int, device: str | None = None) -> Any:
        """Return integers in [low, high), int64."""
        return self._made("integers", key, counter, shape, low, high, device=device)

    def permutation(self, key: Key, counter: int, shape: Shape, device: str | None = None) -> Any:
        """Return permutations of the integers below `shape[-1]`; one alone is shuffled on the host."""
        if len(shape) == 1:
            _warn_of_constants()
            return super().permutation(key, counter, shape, device)
        return self._made("permutation", key, counter, shape, device=device)


def _warn_of_constants() -> None:
    if is_tracing_for_later():
        warn_user(_CONSTANT)


_CONSTANT = (
    "random numbers of Tape inside a function that JAX traces, as jax.jit and jax.vmap do, are constants: all later "
    "calls, and all examples of jax.vmap, get the same ones. Draw them outside and give them as an argument; or draw "
    "them by jax.random from a key that is an argument; or use tape_core.function in place of jax.jit: each of its "
    "calls draws new ones"
)
