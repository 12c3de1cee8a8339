"""tf.random, by tape_core's generators: the numbers are the same on every backend, and other ones than TensorFlow's."""

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

_DIFFERS = "other random numbers than TensorFlow's, of the same distribution"
# The probability that a normal variable is more than two standard deviations above its mean, where it is truncated.
_TAIL = 0.5 * math.erfc(2 / math.sqrt(2))
_MIN_UNIFORM = 1e-30  # keeps log(uniform) finite; far below the smallest positive number that is drawn

Seed: TypeAlias = "Sequence[IntLike] | Value | tc.Tensor | NumPyArray"
"""The seed of a stateless function: two integers."""

_by_seed: dict[int, NativeGenerator] = {}
_global_seed: int | None = None


@exported("random.set_seed")
def set_seed(seed: int) -> None:
    """Seed the global generator and those behind `seed` arguments, so that the numbers are the same in every run."""
    global _global_seed
    _global_seed = int(seed)
    _by_seed.clear()
    tc.set_seed(_global_seed)


def generator(seed: IntLike | None) -> NativeGenerator:
    """Return the generator of a `seed` argument: one per seed, which goes on from call to call, or the global one."""
    if seed is None:
        return global_rng()
    key: int = static(seed)
    if key not in _by_seed:
        with outside():  # made outside of a trace, since it outlives the call that is traced
            _by_seed[key] = tc.default_rng(_combine_seeds(_global_seed or 0, key))
    return _by_seed[key]


def _combine_seeds(*parts: int) -> int:
    """Return one seed from several integers of 64 bits, by putting them side by side."""
    total = 0
    for part in parts:
        # By sums or exclusive or, the seeds (1, 2) and (2, 1) would be one.
        total = (total << 64) + (int(part) & (2**64 - 1))
    return total


def _normal(rng: NativeGenerator, shape: ShapeLike, mean: TensorLike, stddev: TensorLike, dtype: DTypeLike) -> Any:
    return _scale_and_shift(
        rng.normal(_shape(shape), **_backend_and_device(), dtype=_floating(dtype)), mean, stddev, dtype
    )


def _scale_and_shift(values: tc.Tensor, mean: TensorLike, stddev: TensorLike, dtype: DTypeLike) -> Any:
    """Return `values * stddev + mean`; both may be tensors, and gradients flow to them."""
    kind = dtypes.as_dtype(dtype)
    if not (isinstance(stddev, int | float) and stddev == 1):
        # As an op on tensors: this is the reparametrization by which `stddev` and `mean` get gradients.
        values = values * native(stddev, kind, like=values)
    if not (isinstance(mean, int | float) and mean == 0):
        values = values + native(mean, kind, like=values)
    return wrap(values)


def _truncated(rng: NativeGenerator, shape: ShapeLike, mean: TensorLike, stddev: TensorLike, dtype: DTypeLike) -> Any:
    # The quantiles of uniform numbers: unlike rejection, it draws the same count of numbers whatever they are.
    fractions = rng.uniform(_shape(shape), low=_TAIL, high=1 - _TAIL, dtype=tc.float64, **_backend_and_device())
    return _scale_and_shift(tc.astype(tc.ndtri(fractions), _floating(dtype)), mean, stddev, dtype)


def _uniform(
    rng: NativeGenerator, shape: ShapeLike, minval: TensorLike, maxval: TensorLike | None, dtype: DTypeLike
) -> Any:
    kind = dtypes.as_dtype(dtype)
    if kind.is_integer:
        if maxval is None:
            raise ValueError(f"Must specify maxval for integer dtype {kind.name}")
        # Integer limits are needed in Python, so that this reads tensors; the floating case below does not.
        found = rng.integers(int(native(minval)), int(native(maxval)), _shape(shape), **_backend_and_device())
        return wrap(tc.astype(found, kind.native))
    high = 1 if maxval is None else maxval
    values = rng.uniform(_shape(shape), dtype=_floating(dtype), **_backend_and_device())
    if isinstance(minval, int | float) and isinstance(high, int | float):
        return wrap(values * (high - minval) + minval if (minval, high) != (0, 1) else values)
    low = native(minval, kind, like=values)
    return wrap(values * (native(high, kind, like=values) - low) + low)


def _floating(dtype: DTypeLike) -> tc.DType:
    kind = dtypes.as_dtype(dtype)
    if not kind.is_floating:
        raise ValueError(f"dtype must be a floating one, got {kind.name}")
    return kind.native


def _backend_and_device() -> dict[str, Any]:
    backend, device = backend_and_device()
    return {"backend": backend, "device": device}


def _shape(shape: ShapeLike) -> tuple[int, ...]:
    return tuple(as_shape(static(shape)))


@exported("random.normal", _DIFFERS)
def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Draw normally distributed numbers; differentiable in `mean` and `stddev`."""
    return _normal(generator(seed), shape, mean, stddev, dtype)


@exported("random.truncated_normal", _DIFFERS)
def truncated_normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Draw normally distributed numbers that are at most two standard deviations from the mean."""
    return _truncated(generator(seed), shape, mean, stddev, dtype)


@exported("random.uniform", _DIFFERS)
def uniform(
    shape: ShapeLike,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Draw uniform numbers from [minval, maxval), floating or integer; by default from [0, 1)."""
    return _uniform(generator(seed), shape, minval, maxval, dtype)


@exported("random.shuffle random.experimental.stateful_shuffle", f"{_DIFFERS}; a gradient comes back")
def shuffle(value: TensorLike, seed: IntLike | None = None, name: str | None = None) -> Any:
    """Shuffle the rows; gradients flow back to them."""
    found = native(value)
    order = generator(seed).permutation(found.shape[0], backend=found.backend.root, device=found.device)
    return wrap(tc.take(found, order, axis=0))


@exported("random.categorical", _DIFFERS)
def categorical(
    logits: TensorLike,
    num_samples: IntLike,
    dtype: DTypeLike = dtypes.int64,
    seed: IntLike | None = None,
    name: str | None = None,
) -> Any:
    """Draw class indices with the probabilities softmax(logits) of each row: shape (rows, num_samples)."""
    return _categorical(generator(seed), logits, num_samples, dtype)


def _categorical(rng: NativeGenerator, logits: TensorLike, num_samples: IntLike, dtype: DTypeLike) -> Any:
    # A choice of classes has no derivative, and the noise need not be recorded.
    scores = tc.stop_gradient(native(logits))
    if scores.ndim != 2:
        raise ValueError(f"logits should be a matrix, got shape {scores.shape}")
    rows, classes = scores.shape
    # The Gumbel-max trick: argmax(logits + Gumbel noise) has the distribution softmax(logits).
    noise = rng.uniform((rows, static(num_samples), classes), dtype=scores.dtype, **_backend_and_device())
    gumbel = -tc.log(-tc.log(tc.maximum(noise, tc.full_like(noise, _MIN_UNIFORM))))
    return wrap(tc.astype(tc.argmax(scores[:, None, :] + gumbel, axis=-1), dtypes.as_dtype(dtype).native))


# -- stateless functions: the seed alone decides


def stateless_generator(seed: Seed) -> NativeGenerator:
    """Return a new generator for a seed of two integers.

    Raises:
        ValueError: it is not two integers.
    """
    parts = static(seed)
    if not isinstance(parts, tuple) or len(parts) != 2:
        raise ValueError(f"seed must be two integers, got {seed!r}")
    return tc.default_rng(_combine_seeds(*parts))


@exported("random.stateless_normal", _DIFFERS)
def stateless_normal(
    shape: ShapeLike,
    seed: Seed,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
    alg: object = None,
) -> Any:
    """Draw normally distributed numbers; the same seed gives the same numbers."""
    return _normal(stateless_generator(seed), shape, mean, stddev, dtype)


@exported("random.stateless_truncated_normal", _DIFFERS)
def stateless_truncated_normal(
    shape: ShapeLike,
    seed: Seed,
    mean: TensorLike = 0.0,
    stddev: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
    alg: object = None,
) -> Any:
    """Draw like :func:`truncated_normal`; the same seed gives the same numbers."""
    return _truncated(stateless_generator(seed), shape, mean, stddev, dtype)


@exported("random.stateless_uniform", _DIFFERS)
def stateless_uniform(
    shape: ShapeLike,
    seed: Seed,
    minval: TensorLike = 0,
    maxval: TensorLike | None = None,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
    alg: object = None,
) -> Any:
    """Draw like :func:`uniform`; the same seed gives the same numbers."""
    return _uniform(stateless_generator(seed), shape, minval, maxval, dtype)


@exported("random.stateless_categorical", _DIFFERS)
def stateless_categorical(
    logits: TensorLike, num_samples: IntLike, seed: Seed, dtype: DTypeLike = dtypes.int64, name: str | None = None
) -> Any:
    """Draw like :func:`categorical`; the same seed gives the same indices."""
    return _categorical(stateless_generator(seed), logits, num_samples, dtype)


@exported("random.split random.experimental.stateless_split", _DIFFERS)
def split(seed: Seed, num: int = 2, alg: object = None) -> Any:
    """Derive `num` new seeds from one, shape (num, 2)."""
    # Seeds of int32, the dtype that TensorFlow's stateless functions take and return.
    return wrap(
        tc.astype(stateless_generator(seed).integers(-(2**31), 2**31, (num, 2), **_backend_and_device()), tc.int32)
    )


@exported("random.fold_in random.experimental.stateless_fold_in", _DIFFERS)
def fold_in(seed: Seed, data: IntLike, alg: object = None) -> Any:
    """Derive a new seed from a seed and a number."""
    rng = tc.default_rng(_combine_seeds(*static(seed), static(data)))
    return wrap(tc.astype(rng.integers(-(2**31), 2**31, (2,), **_backend_and_device()), tc.int32))


# -- generators


@exported("random.Generator random.experimental.Generator", _DIFFERS)
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
        """Make a generator that gives the same numbers for the same seed."""
        return cls(int(static(seed)))

    @classmethod
    def from_non_deterministic_state(cls, alg: object = None) -> Generator:
        """Make a generator that gives other numbers in every run."""
        return cls()

    def reset_from_seed(self, seed: IntLike) -> None:
        """Start again from a seed."""
        self._native = tc.default_rng(int(static(seed)))

    def normal(
        self,
        shape: ShapeLike,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Any:
        """Draw normally distributed numbers; differentiable in `mean` and `stddev`."""
        return _normal(self._native, shape, mean, stddev, dtype)

    def truncated_normal(
        self,
        shape: ShapeLike,
        mean: TensorLike = 0.0,
        stddev: TensorLike = 1.0,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Any:
        """Draw normally distributed numbers that are at most two standard deviations from the mean."""
        return _truncated(self._native, shape, mean, stddev, dtype)

    def uniform(
        self,
        shape: ShapeLike,
        minval: TensorLike = 0,
        maxval: TensorLike | None = None,
        dtype: DTypeLike = dtypes.float32,
        name: str | None = None,
    ) -> Any:
        """Draw uniform numbers from [minval, maxval), floating or integer."""
        return _uniform(self._native, shape, minval, maxval, dtype)

    def make_seeds(self, count: int = 1) -> Any:
        """Draw seeds for the stateless functions, shape (2, count)."""
        return wrap(self._native.integers(-(2**62), 2**62, (2, count), **_backend_and_device()))

    def split(self, count: int = 1) -> list[Generator]:
        """Make new generators, seeded by this one."""
        return [Generator(int(self._native.integers(0, 2**62))) for _ in range(count)]


_global_generator: list[Generator] = []  # at most one


@exported("random.get_global_generator random.experimental.get_global_generator")
def get_global_generator() -> Generator:
    """Return the generator that :func:`set_global_generator` has set, or a new one with a random seed."""
    if not _global_generator:
        _global_generator.append(Generator())
    return _global_generator[0]


@exported("random.set_global_generator random.experimental.set_global_generator")
def set_global_generator(generator: Generator) -> None:
    """Set the generator that :func:`get_global_generator` returns."""
    _global_generator[:] = [generator]
