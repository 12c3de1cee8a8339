"""Random draws inside XLA: the words of Tape's counter-based generators, from states that are arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core import random
from tape_core.typing import Raw

from tape_jax.random import InProgram, on_host
from tape_jax.xla.transfer import jax_backend

if TYPE_CHECKING:
    from tape_core.random import Draw, Generator


def state_array(generator: Generator) -> Any:
    """Return the state of a generator: two words of its key, and the counter."""
    return np.asarray(generator._state, np.uint64)


def generator_of(key: int | Generator) -> Generator:
    """Return the generator for a key of `Lowering.states`: 0 is the global one, which may be replaced at any time."""
    return random.global_rng() if isinstance(key, int) else key


class _Traced(InProgram):
    """The numbers of a lowered program: one permutation alone is shuffled on the host, as everywhere."""

    def permutation(self, key: tuple[Raw, Raw], counter: Raw, shape: tuple[int, ...], device: str | None = None) -> Any:
        """Return permutations of the integers below `shape[-1]`."""
        if len(shape) != 1:
            return super().permutation(key, counter, shape, device)
        kind = jax.ShapeDtypeStruct(shape, jnp.int64)  # type: ignore[no-untyped-call]
        return jax.pure_callback(lambda a, b, c: _shuffled((int(a), int(b)), int(c), shape), kind, *key, counter)


def _shuffled(key: tuple[int, int], counter: int, shape: tuple[int, ...]) -> Any:
    return np.asarray(on_host().permutation(key, counter, shape))


def drawn(draw: Draw, state: Raw) -> tuple[Raw, Raw]:
    """Return the numbers of a draw from a state, and the state after it."""
    kernels = _Traced(jax_backend())
    numbers = getattr(kernels, draw.kernel)((state[0], state[1]), state[2], draw.shape, *draw.parameters, device=None)
    return numbers, state.at[2].add(np.uint64(draw.blocks))
