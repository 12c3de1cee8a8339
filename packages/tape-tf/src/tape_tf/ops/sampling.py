"""tf.random: the numbers are those of tape_core's generators, the same on every backend, and not TensorFlow's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import tape_core as tc
from tape_core.random import Generator as NativeGenerator
from tape_core.random import global_rng
from tape_core.staging import outside

from tape_tf import dtypes
from tape_tf.conversion import backend_and_device, native, static, wrap
from tape_tf.names import exported
from tape_tf.shapes import as_shape
from tape_tf.tensor import Value
from tape_tf.typing import DTypeLike, IntLike, NumPyArray, ShapeLike, TensorLike

_OTHER = "other random numbers than TensorFlow's, of the same distribution"
_TAIL = 0.5 * math.erfc(2 / math.sqrt(2))  # the probability of more than two standard deviations, on one side

Seed: TypeAlias = "Sequence[IntLike] | Value | tc.Tensor | NumPyArray"
"""The seed of a stateless function: two integers."""

_by_seed: dict[int, NativeGenerator] = {}
_global_seed: int | None = None


@exported("random.set_seed")
def set_seed(seed: int) -> None:
    """Make what follows the same in every run."""
    global _global_seed
    _global_seed = int(seed)
    _by_seed.clear()
    tc.set_seed(_global_seed)


def generator(seed: IntLike | None) -> NativeGenerator:
    """The generator behind a `seed` argument: one of its own for each seed, which goes on from call to call."""
    if seed is None:
        return global_rng()
    key: int = static(seed)
    if key not in _by_seed:
        with outside():  # it goes on from call to call of what is compiled, too
            _by_seed[key] = tc.default_rng(_mixed(_global_seed or 0, key))
    return _by_seed[key]


def _mixed(*parts: int) -> int:
    total = 0
    for part in parts:
        total = (total << 64) + (int(part) & (2**64 - 1))
    return total


def _normal(rng: NativeGenerator, shape: ShapeLike, mean: TensorLike, stddev: TensorLike, dtype: DTypeLike) -> Any:
    return _moved(rng.normal(_shape(shape), **_place(), dtype=_floating(dtype)), mean, stddev, dtype)


def _moved(values: tc.Tensor, mean: TensorLike, stddev: TensorLike, dtype: DTypeLike) -> Any:
    """Times the standard deviation plus the mean, which may be tensors with a gradient."""
    kind = dtypes.as_dtype(dtype)
    if not (isinstance(stddev, int | float) and stddev == 1):
        values = values * native(stddev, kind, like=values)
    if not (isinstance(mean, int | float) and mean == 0):
        values = values + native(mean, kind, like=values)
    return wrap(values)


def _truncated(rng: NativeGenerator, shape: ShapeLike, mean: TensorLike, stddev: TensorLike, dtype: DTypeLike) -> Any:
    fractions = rng.uniform(_shape(shape), low=_TAIL, high=1 - _TAIL, dtype=tc.float64, **_place())
    return _moved(tc.astype(tc.ndtri(fractions), _floating(dtype)), mean, stddev, dtype)


def _uniform(
    rng: NativeGenerator, shape: ShapeLike, minval: TensorLike, maxval: TensorLike | None, dtype: DTypeLike
) -> Any:
    kind = dtypes.as_dtype(dtype)
    if kind.is_integer:
        if maxval is None:
            raise ValueError(f"Must specify maxval for integer dtype {kind.name}")
        found = rng.integers(int(native(minval)), int(native(maxval)), _shape(shape), **_place())
        return wrap(tc.astype(found, kind.native))
    high = 1 if maxval is None else maxval
    values = rng.uniform(_shape(shape), dtype=_floating(dtype), **_place())
    if isinstance(minval, int | float) and isinstance(high, int | float):
        return wrap(values * (high - minval) + minval if (minval, high) != (0, 1) else values)
    low = native(minval, kind, like=values)
    return wrap(values * (native(high, kind, like=values) - low) + low)


def _floating(dtype: DTypeLike) -> tc.DType:
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise ValueError(f"dtype must be a floating one, got {kind.name}")
    return kind.native


def _place() -> dict[str, Any]:
    backend, device = backend_and_device()
    return {"backend": backend, "device": device}


def _shape(shape: ShapeLike) -> tuple[int, ...]:
    return tuple(as_shape(static(shape)))


@exported("random.normal", _OTHER)
def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Normally distributed values; differentiable in `mean` and `stddev`."""
    return _normal(generator(seed), shape, mean, stddev, dtype)


@exported("random.truncated_normal", _OTHER)
def truncated_normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Normally distributed values, none further than two standard deviations from the mean."""
    return _truncated(generator(seed), shape, mean, stddev, dtype)


@exported("random.uniform", _OTHER)
def uniform(
    shape: ShapeLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Values in [minval, maxval), floating or integer; by default in [0, 1)."""
    return _uniform(generator(seed), shape, minval, maxval, dtype)


@exported("random.shuffle random.experimental.stateful_shuffle", f"{_OTHER}; a gradient comes back")
def shuffle(value: TensorLike, seed: IntLike | None = None, name: str | None = None) -> Any:
    """The rows in random order."""
    found = native(value)
    order = generator(seed).permutation(found.shape[0], backend=found.backend.root, device=found.device)
    return wrap(tc.take(found, order, axis=0))


@exported("random.categorical", _OTHER)
def categorical(
    logits: TensorLike,
    num_samples: IntLike,
    dtype: DTypeLike = dtypes.int64,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """For each row of `logits` class numbers, drawn with probabilities softmax(logits): (rows, num_samples)."""
    return _categorical(generator(seed), logits, num_samples, dtype)


def _categorical(rng: NativeGenerator, logits: TensorLike, num_samples: IntLike, dtype: DTypeLike) -> Any:
    scores = tc.stop_gradient(native(logits))
    if scores.ndim != 2:
        raise ValueError(f"logits should be a matrix, got shape {scores.shape}")
    rows, classes = scores.shape
    noise = rng.uniform((rows, static(num_samples), classes), dtype=scores.dtype, **_place())
    gumbel = -tc.log(-tc.log(tc.maximum(noise, tc.full_like(noise, 1e-30))))
    return wrap(tc.astype(tc.argmax(scores[:, None, :] + gumbel, axis=-1), dtypes.as_dtype(dtype).native))


# -- of a seed, and nothing else


def _stateless(seed: Seed) -> NativeGenerator:
    parts = static(seed)
    if not isinstance(parts, tuple) or len(parts) != 2:
        raise ValueError(f"seed must be two integers, got {seed!r}")
    return tc.default_rng(_mixed(*parts))


@exported("random.stateless_normal", _OTHER)
def stateless_normal(
    shape: ShapeLike,
    seed: Seed,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
    alg: object = None,
) -> Any:
    """Normally distributed values, the same whenever the two integers of `seed` are."""
    return _normal(_stateless(seed), shape, mean, stddev, dtype)


@exported("random.stateless_truncated_normal", _OTHER)
def stateless_truncated_normal(
    shape: ShapeLike,
    seed: Seed,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
    alg: object = None,
) -> Any:
    """As :func:`truncated_normal`, the same whenever the two integers of `seed` are."""
    return _truncated(_stateless(seed), shape, mean, stddev, dtype)


@exported("random.stateless_uniform", _OTHER)
def stateless_uniform(
    shape: ShapeLike,
    seed: Seed,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
    alg: object = None,
) -> Any:
    """As :func:`uniform`, the same whenever the two integers of `seed` are."""
    return _uniform(_stateless(seed), shape, minval, maxval, dtype)


@exported("random.stateless_categorical", _OTHER)
def stateless_categorical(
    logits: TensorLike, num_samples: IntLike, seed: Seed, dtype: DTypeLike = dtypes.int64, name: str | None = None
) -> Any:
    """As :func:`categorical`, the same whenever the two integers of `seed` are."""
    return _categorical(_stateless(seed), logits, num_samples, dtype)


@exported("random.split random.experimental.stateless_split", _OTHER)
def split(seed: Seed, num: int = 2, alg: object = None) -> Any:
    """New seeds made of one, shape (num, 2)."""
    return wrap(tc.astype(_stateless(seed).integers(-(2**31), 2**31, (num, 2), **_place()), tc.int32))


@exported("random.fold_in random.experimental.stateless_fold_in", _OTHER)
def fold_in(seed: Seed, data: IntLike, alg: object = None) -> Any:
    """A new seed made of one and a number."""
    rng = tc.default_rng(_mixed(*static(seed), static(data)))
    return wrap(tc.astype(rng.integers(-(2**31), 2**31, (2,), **_place()), tc.int32))


# -- generators


@exported("random.Generator random.experimental.Generator", _OTHER)
class Generator:
    """A stream of random tensors.

    >>> import tape_tf as tf
    >>> rng = tf.random.Generator.from_seed(1)
    >>> rng.normal([2, 3]).shape
    TensorShape([2, 3])
    """

    def __init__(self, seed: int | None = None) -> None:
        self._native = tc.default_rng(seed)

    @classmethod
    def from_seed(cls, seed: IntLike, alg: object = None) -> Generator:
        """The same numbers for the same seed."""
        return cls(int(static(seed)))

    @classmethod
    def from_non_deterministic_state(cls, alg: object = None) -> Generator:
        """Other numbers in every run."""
        return cls()

    def reset_from_seed(self, seed: IntLike) -> None:
        """Start again, from a seed."""
        self._native = tc.default_rng(int(static(seed)))

    def normal(
        self,
        shape: ShapeLike,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Any:
        """Normally distributed values."""
        return _normal(self._native, shape, mean, stddev, dtype)

    def truncated_normal(
        self,
        shape: ShapeLike,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Any:
        """Normally distributed values, none further than two standard deviations from the mean."""
        return _truncated(self._native, shape, mean, stddev, dtype)

    def uniform(
        self,
        shape: ShapeLike,
        minval: TensorLike = 0,
        maxval: TensorLike | None = None,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Any:
        """Values in [minval, maxval)."""
        return _uniform(self._native, shape, minval, maxval, dtype)

    def make_seeds(self, count: int = 1) -> Any:
        """Seeds for the stateless functions, shape (2, count)."""
        return wrap(self._native.integers(-(2**62), 2**62, (2, count), **_place()))

    def split(self, count: int = 1) -> list[Generator]:
        """New generators, made of this one."""
        return [Generator(int(self._native.integers(0, 2**62))) for _ in range(count)]


_generator: list[Generator] = []


@exported("random.get_global_generator random.experimental.get_global_generator")
def get_global_generator() -> Generator:
    """The generator that :func:`set_global_generator` set, at first one of its own."""
    if not _generator:
        _generator.append(Generator())
    return _generator[0]


@exported("random.set_global_generator random.experimental.set_global_generator")
def set_global_generator(generator: Generator) -> None:
    """Set what :func:`get_global_generator` gives."""
    _generator[:] = [generator]
