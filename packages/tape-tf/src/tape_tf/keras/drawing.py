"""`tf.keras.random`: random tensors, from a seed or a generator of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native, wrap
from tape_tf.keras.backend import floatx
from tape_tf.names import exported
from tape_tf.typing import DTypeLike, TensorLike

_DIFFERS = "other random numbers than Keras'"


@exported("keras.random.SeedGenerator", _DIFFERS)
class SeedGenerator:
    """A source of random numbers that goes on from call to call, for the argument `seed` of the functions here.

    >>> import tape_tf as tf
    >>> seed = tf.keras.random.SeedGenerator(1)
    >>> first, second = (tf.keras.random.uniform((2,), seed=seed).numpy() for _ in range(2))
    >>> bool((first == second).any())
    False
    """

    def __init__(self, seed: int | None = None, name: str | None = None) -> None:
        self.initial_seed = seed
        self.name = name
        # Without a seed the numbers follow from the global generator, which set_random_seed seeds.
        start = int(tc.random.global_rng().integers(0, 2**31)) if seed is None else int(seed)
        self.native = tc.default_rng(start)


def _generator(seed: int | SeedGenerator | None) -> Any:
    """Return the generator of a seed: a number gives the same numbers each time, as in Keras."""
    if seed is None:
        return tc.random.global_rng()
    return seed.native if isinstance(seed, SeedGenerator) else tc.default_rng(int(seed))


def _dtype(dtype: DTypeLike) -> Any:
    return dtypes.native_dtype(floatx() if dtype is None else dtype)


@exported("keras.random.normal", _DIFFERS)
def normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike = None, seed: Any = None
) -> Any:
    """Draw normally distributed numbers."""
    return wrap(_generator(seed).normal(tuple(shape), dtype=_dtype(dtype)) * stddev + mean)


@exported("keras.random.truncated_normal", _DIFFERS)
def truncated_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike = None, seed: Any = None
) -> Any:
    """Draw normally distributed numbers that are at most two standard deviations from the mean."""
    return wrap(_generator(seed).truncated_normal(tuple(shape), dtype=_dtype(dtype)) * stddev + mean)


@exported("keras.random.uniform", _DIFFERS)
def uniform(
    shape: Sequence[int], minval: float = 0.0, maxval: float = 1.0, dtype: DTypeLike = None, seed: Any = None
) -> Any:
    """Draw numbers from `minval` to below `maxval`, with equal probability."""
    return wrap(_generator(seed).uniform(tuple(shape), dtype=_dtype(dtype)) * (maxval - minval) + minval)


@exported("keras.random.randint", _DIFFERS)
def randint(shape: Sequence[int], minval: int, maxval: int, dtype: DTypeLike = "int32", seed: Any = None) -> Any:
    """Draw integers from `minval` to below `maxval`."""
    return wrap(tc.astype(_generator(seed).integers(minval, maxval, tuple(shape)), dtypes.native_dtype(dtype)))


@exported("keras.random.categorical", _DIFFERS)
def categorical(logits: TensorLike, num_samples: int, dtype: DTypeLike = "int32", seed: Any = None) -> Any:
    """Draw class numbers for each row of unnormalized log-probabilities, of shape (rows, num_samples)."""
    scores = native(logits)
    noise = _generator(seed).uniform(
        (scores.shape[0], num_samples, scores.shape[1]), dtype=scores.dtype, backend=scores.backend.root
    )
    # The Gumbel trick: the largest of the scores, each with noise of this distribution, is a draw.
    gumbel = -tc.log(-tc.log(tc.clip(noise, 1e-20, 1.0 - 1e-7)))
    drawn = tc.argmax(tc.expand_dims(scores, axis=1) + gumbel, axis=-1)
    return wrap(tc.astype(drawn, dtypes.native_dtype(dtype)))


@exported("keras.random.dropout", _DIFFERS)
def dropout(inputs: TensorLike, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """Set each element to 0 with probability `rate`, and divide the others by `1 - rate`."""
    shape = None if noise_shape is None else tuple(noise_shape)
    return wrap(tc.dropout(native(inputs), rate, rng=_generator(seed), noise_shape=shape))


@exported("keras.random.shuffle", _DIFFERS)
def shuffle(x: TensorLike, axis: int = 0, seed: Any = None) -> Any:
    """Put the elements along an axis into random order."""
    value = native(x)
    order = _generator(seed).permutation(value.shape[axis])
    places = tc.asarray(order, backend=value.backend.root, device=value.device)
    return wrap(tc.take(value, places, axis=axis))
