"""Initializers: first values for Variables.

An initializer is called as `initializer(shape, rng=..., dtype=..., backend=..., device=...)` and
returns a Tensor. Layers take one of these, its name, or any callable of this form. The random ones
draw from `rng`, a :class:`tape_core.Generator`, and give the same numbers on every backend.

`uniform`, `normal`, `truncated_normal`, `orthogonal`, `constant` and `variance_scaling` are factories:
they return an initializer, as in `uniform(-1.0, 1.0)`. Their names, given as text, stand for one made without
arguments.

Several initializers scale with the fan-in and the fan-out, the number of inputs and outputs of a unit. They are
the last two lengths of the shape, each times the product of the lengths before, which for the kernel of a
convolution are its extents: `(3, 3, 16, 32)` has a fan-in of 144 and a fan-out of 288.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import tape_core as tc
from tape_core.typing import DTypeLike

from tape_nn.hints import missing
from tape_nn.thresholds import TRUNCATED_AT

Initializer: TypeAlias = Callable[..., tc.Tensor]

# The standard deviation of the normal distribution within [-2, 2]: sqrt(1 - 2 * 2 * pdf(2) / (1 - 2 * cdf(-2))).
TRUNCATED_STDDEV: Final = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))


def _check_stddev(name: str, stddev: float) -> None:
    if not stddev >= 0:
        raise ValueError(f"{name}: stddev must not be negative; got {stddev}")


def zeros(shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
    """Fill with zeros."""
    return tc.zeros(shape, **where)


def ones(shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
    """Fill with ones."""
    return tc.ones(shape, **where)


def constant(value: float) -> Initializer:
    """Return an initializer that fills with `value`."""

    def fill(shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
        return tc.full(shape, value, **where)

    return fill


def uniform(low: float = -0.05, high: float = 0.05) -> Initializer:
    """Return an initializer that draws uniformly from [low, high)."""
    if not low <= high:
        raise ValueError(f"uniform: low must not be above high; got {low} and {high}")

    def draw(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
        values: tc.Tensor = rng.uniform(shape, low=low, high=high, **where)
        return values

    return draw


def normal(mean: float = 0.0, stddev: float = 0.05) -> Initializer:
    """Return an initializer that draws from the normal distribution."""
    _check_stddev("normal", stddev)

    def draw(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
        values: tc.Tensor = rng.normal(shape, mean=mean, stddev=stddev, **where)
        return values

    return draw


def truncated_normal(mean: float = 0.0, stddev: float = 0.05) -> Initializer:
    """Return an initializer that draws from the normal distribution within two `stddev` of the mean.

    The values drawn have a standard deviation of 0.8796 `stddev`.
    """
    _check_stddev("truncated_normal", stddev)
    below = math.erfc(TRUNCATED_AT * math.sqrt(0.5)) / 2  # the probability of a value below the cut

    def draw(shape: tuple[int, ...], *, rng: tc.Generator, dtype: DTypeLike = None, **where: Any) -> tc.Tensor:
        # The inverse of the distribution function, on uniform numbers: one draw per element, whatever is cut off.
        probability = rng.uniform(shape, low=below, high=1 - below, dtype=tc.float64, **where)
        # Clipped, as rounding may put the inverse just outside of the cut.
        values = tc.clip(tc.special.ndtri(probability), -TRUNCATED_AT, TRUNCATED_AT) * stddev + mean
        return tc.astype(values, tc.get_default_dtype() if dtype is None else dtype)

    return draw


def orthogonal(gain: float = 1.0) -> Initializer:
    """Return an initializer of matrices with orthonormal columns (or rows, if these are fewer), times `gain`.

    All axes but the last are taken as one. The matrices are uniformly distributed (Mezzadri, How to Generate Random
    Matrices from the Classical Compact Groups, 2007).

    >>> import tape_core as tc
    >>> from tape_nn.initializers import orthogonal
    >>> w = orthogonal()((5, 3), rng=tc.default_rng(0), dtype=tc.float64)
    >>> bool(tc.max(tc.abs(w.T @ w - tc.eye(3, dtype=tc.float64))) < 1e-12)
    True

    Raises:
        ValueError: when it is called with a shape of less than two dimensions.
    """

    def draw(shape: tuple[int, ...], *, rng: tc.Generator, dtype: DTypeLike = None, **where: Any) -> tc.Tensor:
        if len(shape) < 2:
            raise ValueError(f"orthogonal: the shape must have two dimensions or more; got {shape}")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        # QR of the tall matrix; the wide one is its transpose, so that the rows are orthonormal where they are fewer.
        high, low = max(rows, columns), min(rows, columns)
        q, r = tc.linalg.qr(rng.normal((high, low), dtype=tc.float64, **where))
        # With a positive diagonal of r the factors are unique, and so the same on every backend.
        q = q * tc.where(tc.linalg.diagonal(r) < 0, -gain, gain)
        values = tc.reshape(q if rows >= columns else q.T, shape)
        return tc.astype(values, tc.get_default_dtype() if dtype is None else dtype)

    return draw


def variance_scaling(
    scale: float = 1.0,
    mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in",
    distribution: Literal["uniform", "normal"] = "normal",
) -> Initializer:
    """Return an initializer that draws with variance `scale / n`.

    Args:
        scale: a positive number.
        mode: `n` is the fan-in, the fan-out, or their mean.
        distribution: "normal" is truncated, see :func:`truncated_normal`; the variance is that after truncation.
    """
    if not scale > 0:
        raise ValueError(f"variance_scaling: scale must be positive; got {scale}")
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        raise ValueError(f"variance_scaling: mode must be 'fan_in', 'fan_out' or 'fan_avg'; got {mode!r}")
    if distribution not in ("uniform", "normal"):
        raise ValueError(f"variance_scaling: distribution must be 'uniform' or 'normal'; got {distribution!r}")

    def draw(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
        inputs, outputs = _fans(shape)
        n = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[mode]
        # At least 1, as in Keras: a shape with a length of 0 has no fan, and no elements either.
        variance = scale / max(1.0, n)
        if distribution == "uniform":
            # The uniform distribution on [-a, a] has the variance a**2 / 3.
            limit = math.sqrt(3 * variance)
            return uniform(-limit, limit)(shape, rng=rng, **where)
        # Wider by what the truncation takes away, as in Keras (0.87962566103423978 there).
        return truncated_normal(0.0, math.sqrt(variance) / TRUNCATED_STDDEV)(shape, rng=rng, **where)

    return draw


def glorot_uniform(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Draw uniformly from ±sqrt(6 / (fan_in + fan_out)), which keeps the variance from layer to layer.

    >>> import tape_core as tc
    >>> from tape_nn.initializers import glorot_uniform
    >>> w = glorot_uniform((100, 50), rng=tc.default_rng(0))
    >>> w.shape, bool(tc.max(tc.abs(w)) <= 0.2)  # sqrt(6 / 150)
    ((100, 50), True)

    Source: Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, 2010.
    """
    return variance_scaling(1.0, "fan_avg", "uniform")(shape, rng=rng, **where)


def glorot_normal(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Draw from a truncated normal distribution with variance 2 / (fan_in + fan_out); see :func:`glorot_uniform`."""
    return variance_scaling(1.0, "fan_avg", "normal")(shape, rng=rng, **where)


def he_uniform(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Draw uniformly from ±sqrt(6 / fan_in), which keeps the variance through layers with relu.

    Source: He and others, Delving Deep into Rectifiers, 2015.
    """
    return variance_scaling(2.0, "fan_in", "uniform")(shape, rng=rng, **where)


def he_normal(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Draw from a truncated normal distribution with variance 2 / fan_in; see :func:`he_uniform`."""
    return variance_scaling(2.0, "fan_in", "normal")(shape, rng=rng, **where)


def lecun_uniform(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Draw uniformly from ±sqrt(3 / fan_in), the initialization that selu is made for.

    Source: LeCun and others, Efficient BackProp, 1998.
    """
    return variance_scaling(1.0, "fan_in", "uniform")(shape, rng=rng, **where)


def lecun_normal(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Draw from a truncated normal distribution with variance 1 / fan_in; see :func:`lecun_uniform`."""
    return variance_scaling(1.0, "fan_in", "normal")(shape, rng=rng, **where)


_BY_NAME: dict[str, Initializer] = {
    "glorot_uniform": glorot_uniform,
    "glorot_normal": glorot_normal,
    "he_uniform": he_uniform,
    "he_normal": he_normal,
    "lecun_uniform": lecun_uniform,
    "lecun_normal": lecun_normal,
    # Made without arguments, as in Keras. `constant` is missing, since it needs its value.
    "uniform": uniform(),
    "normal": normal(),
    "truncated_normal": truncated_normal(),
    "orthogonal": orthogonal(),
    "zeros": zeros,
    "ones": ones,
}

_FACTORIES: Final[tuple[object, ...]] = (
    uniform,
    normal,
    truncated_normal,
    orthogonal,
    constant,
    variance_scaling,
)


def get(initializer: Initializer | str) -> Initializer:
    """Return the initializer of this name; a callable is returned as it is.

    Raises:
        ValueError: there is none of this name, or it is a factory such as `uniform` without its call.
    """
    if initializer in _FACTORIES:
        name = getattr(initializer, "__name__", "")
        raise ValueError(f"{name} makes an initializer: pass {name}(...), not {name}")
    if callable(initializer):
        return initializer
    try:
        return _BY_NAME[initializer]
    # TypeError: what was passed cannot be hashed.
    except (KeyError, TypeError):
        raise ValueError(
            f"unknown initializer {initializer!r}; pass a callable or one of {', '.join(_BY_NAME)}"
        ) from None


def _fans(shape: tuple[int, ...]) -> tuple[float, float]:
    """Return the fan-in and the fan-out."""
    if len(shape) < 2:
        n = shape[0] if shape else 1
        return n, n
    receptive_field = math.prod(shape[:-2])
    return receptive_field * shape[-2], receptive_field * shape[-1]


if not TYPE_CHECKING:
    __getattr__ = missing(__name__, lambda: globals())
