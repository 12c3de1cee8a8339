"""`tf.keras.initializers`: initial values of weights, drawn by :mod:`tape_nn.initializers`.

>>> import tape_tf as tf
>>> values = tf.keras.initializers.GlorotUniform(seed=1)(shape=(2, 3))
>>> values.shape, values.dtype
(TensorShape([2, 3]), tf.float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import tape_core as tc
import tape_nn as nn
from tape_core.random import global_rng

from tape_tf.conversion import native, wrap
from tape_tf.dtypes import as_dtype, native_dtype
from tape_tf.keras import limits
from tape_tf.keras.backend import floatx
from tape_tf.keras.naming import by_name
from tape_tf.names import absent
from tape_tf.typing import DTypeLike, TensorLike

InitializerLike: TypeAlias = "Initializer | Callable[..., Any] | str | type[Initializer]"


class Initializer:
    """Base class of initializers. A new one defines `__call__(self, shape, dtype=None)`.

    An instance with a `seed` returns the same values at each call, as in Keras; without a seed the values continue the
    stream that `tf.random.set_seed` seeds.
    """

    seed: int | None = None
    _native: Callable[..., Any]  # the initializer of tape_nn

    def __call__(self, shape: Sequence[int], dtype: DTypeLike = None, **kwargs: Any) -> Any:
        if not hasattr(self, "_native"):
            raise NotImplementedError(f"{type(self).__name__} must define __call__(self, shape, dtype=None)")
        dtype = native_dtype(floatx() if dtype is None else dtype)
        return wrap(self._draw(tuple(map(int, shape)), rng=global_rng(), dtype=dtype))

    def _draw(self, shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
        """Draw the values; tape_nn's layers call this in place of an initializer of their own."""
        # No effect unless a model is made from a file: then the size of all weights is limited.
        limits.reserve(shape)
        if self.seed is not None:
            # A new generator in each call, so that two calls give the same values: Keras 3's rule, a trap for those who
            # pass one object with a seed to several layers.
            rng = tc.default_rng(self.seed)
        values: tc.Tensor = self._native(shape, rng=rng, **where)
        return values

    def get_config(self) -> dict[str, Any]:
        """The arguments that the initializer was made with."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_config().items())
        return f"<{type(self).__name__}({arguments})>"


class Zeros(Initializer):
    """All zeros."""

    _native = staticmethod(nn.initializers.zeros)


class Ones(Initializer):
    """All ones."""

    _native = staticmethod(nn.initializers.ones)


class Constant(Initializer):
    """A constant `value`: a number, or an array of the requested shape.

    >>> import tape_tf as tf
    >>> tf.keras.initializers.Constant(3.0)(shape=(2,)).numpy()
    array([3., 3.], dtype=float32)
    """

    def __init__(self, value: TensorLike = 0.0) -> None:
        self.value = value
        self._native = self._fill

    def _fill(self, shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
        return tc.broadcast_to(tc.asarray(native(self.value), copy=True, **where), shape)


class RandomUniform(Initializer):
    """Uniformly distributed between `minval` and `maxval`."""

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None) -> None:
        self.minval, self.maxval, self.seed = minval, maxval, seed
        self._native = nn.initializers.uniform(minval, maxval)


class _Normal(Initializer):
    _factory: Callable[..., Any]

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None) -> None:
        self.mean, self.stddev, self.seed = mean, stddev, seed
        self._native = type(self)._factory(mean, stddev)


class RandomNormal(_Normal):
    """Normally distributed with mean `mean` and standard deviation `stddev`."""

    _factory = staticmethod(nn.initializers.normal)


class TruncatedNormal(_Normal):
    """Normally distributed within two `stddev` of the mean."""

    _factory = staticmethod(nn.initializers.truncated_normal)


class Orthogonal(Initializer):
    """Matrices with orthonormal columns (orthonormal rows, if there are fewer rows), times `gain`."""

    def __init__(self, gain: float = 1.0, seed: int | None = None) -> None:
        self.gain, self.seed = gain, seed
        self._native = nn.initializers.orthogonal(gain)


class Identity(Initializer):
    """The identity matrix times `gain`.

    Raises:
        ValueError: when called with a shape that is not that of a matrix.
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain
        self._native = self._eye

    def _eye(self, shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
        if len(shape) != 2:
            raise ValueError(f"Identity makes matrices; got shape {shape}")
        return self.gain * tc.eye(*shape, **where)


class VarianceScaling(Initializer):
    """Random values with variance `scale / n`: see :func:`tape_nn.initializers.variance_scaling`.

    Args:
        scale: a positive number.
        mode: "fan_in", "fan_out" or "fan_avg": n is the number of inputs, of outputs, or their mean.
        distribution: "uniform", "truncated_normal", or "normal", which is truncated too.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
    ) -> None:
        # Both names of Keras are the truncated distribution here; "untruncated_normal" is not there.
        kinds: dict[str, Any] = {"truncated_normal": "normal", "normal": "normal", "uniform": "uniform"}
        if distribution not in kinds:
            raise ValueError(f"distribution must be one of {', '.join(kinds)}; got {distribution!r}")
        self.scale, self.mode, self.distribution, self.seed = scale, mode, distribution, seed
        self._native = nn.initializers.variance_scaling(scale, mode, kinds[distribution])


class _SeedOnly(Initializer):
    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed


class GlorotUniform(_SeedOnly):
    """Uniformly distributed between ±sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)."""

    _native = staticmethod(nn.initializers.glorot_uniform)


class GlorotNormal(_SeedOnly):
    """Truncated normal with variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""

    _native = staticmethod(nn.initializers.glorot_normal)


class HeUniform(_SeedOnly):
    """Uniformly distributed between ±sqrt(6 / inputs) (He et al., 2015)."""

    _native = staticmethod(nn.initializers.he_uniform)


class HeNormal(_SeedOnly):
    """Truncated normal with variance 2 / inputs (He et al., 2015)."""

    _native = staticmethod(nn.initializers.he_normal)


class LecunUniform(_SeedOnly):
    """Uniformly distributed between ±sqrt(3 / inputs) (LeCun et al., 1998)."""

    _native = staticmethod(nn.initializers.lecun_uniform)


class LecunNormal(_SeedOnly):
    """Truncated normal with variance 1 / inputs (LeCun et al., 1998)."""

    _native = staticmethod(nn.initializers.lecun_normal)


zeros, ones, constant, identity, orthogonal = Zeros, Ones, Constant, Identity, Orthogonal
random_uniform, random_normal, truncated_normal = RandomUniform, RandomNormal, TruncatedNormal
variance_scaling, IdentityInitializer, OrthogonalInitializer = VarianceScaling, Identity, Orthogonal
glorot_uniform, glorot_normal, he_uniform, he_normal = GlorotUniform, GlorotNormal, HeUniform, HeNormal
lecun_uniform, lecun_normal = LecunUniform, LecunNormal

_BY_NAME: dict[str, type[Initializer]] = {
    # The names of Keras 1 and 2, which programs and saved models have, stand beside those of the classes.
    "zeros": Zeros, "zero": Zeros, "ones": Ones, "one": Ones, "constant": Constant, "identity": Identity,
    "orthogonal": Orthogonal, "random_uniform": RandomUniform, "uniform": RandomUniform,
    "random_normal": RandomNormal, "normal": RandomNormal, "truncated_normal": TruncatedNormal,
    "variance_scaling": VarianceScaling, "glorot_uniform": GlorotUniform, "glorot_normal": GlorotNormal,
    "he_uniform": HeUniform, "he_normal": HeNormal, "lecun_uniform": LecunUniform, "lecun_normal": LecunNormal,
}  # fmt: skip
_BY_NAME |= {kind.__name__: kind for kind in _BY_NAME.values()}

__all__ = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "IdentityInitializer",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "OrthogonalInitializer",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "constant",
    "get",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "variance_scaling",
    "zeros",
]


def get(identifier: InitializerLike | None) -> Any:
    """Return the initializer of a name; an instance, a callable and None are returned unchanged, a class is called.

    Raises:
        ValueError: no initializer has this name.
    """
    if isinstance(identifier, type) and issubclass(identifier, Initializer):
        return identifier()
    if identifier is None or callable(identifier):
        return identifier
    return by_name("initializer", identifier, _BY_NAME)()


def for_tape_nn(initializer: InitializerLike | None) -> Callable[..., tc.Tensor]:
    """Return the initializer, by default "glorot_uniform" as in Keras, as a function that layers of tape_nn call."""
    found = get("glorot_uniform" if initializer is None else initializer)
    if isinstance(found, Initializer) and hasattr(found, "_native"):
        return found._draw

    def call(
        shape: tuple[int, ...], *, rng: tc.Generator | None = None, dtype: tc.DType | None = None, **where: Any
    ) -> tc.Tensor:
        limits.reserve(shape)
        return tc.asarray(native(found(shape, dtype=as_dtype(dtype))), **where)

    return call


__getattr__ = absent("keras.initializers")
