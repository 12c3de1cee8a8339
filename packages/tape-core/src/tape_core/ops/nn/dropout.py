"""Dropout: the op `drop`, which applies a mask, and `dropout`, which draws one."""

from __future__ import annotations

from collections.abc import Iterator

from tape_core.backends.checks import check_inexact
from tape_core.base.ambient import MAKING
from tape_core.base.contexts import setting
from tape_core.base.mistakes import real
from tape_core.engine.op import NONDIFF, elementwise, vjp
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor, read
from tape_core.ops.creation import asarray
from tape_core.random import Generator, global_rng
from tape_core.typing import Array, ArrayLike, Namespace


def _drop_kernel(xp: Namespace, x: Array, keep: Array, *, rate: float) -> Array:
    check_inexact(xp, "x", x)
    # `where`, not a product with the mask: a dropped element is 0 also where `x` is infinite or NaN.
    return xp.where(keep, x, 0) * (0.0 if rate == 1 else 1 / (1 - rate))


def _drop_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3), draw(2, 3) > 0, rate=0.25)
    yield Sample(draw(2, 3), draw(2, 1) > 0, rate=0.5)
    yield Sample(draw(), draw() > 0, rate=1.0)
    yield Sample(draw.complex(3), draw(3) > 0, rate=0.5)
    yield Sample(draw(0, 2), draw(0, 2) > 0, rate=0.5)
    yield Refused(TypeError, "x must be of a floating", draw.rng.integers(0, 9, (2,)), draw(2) > 0, rate=0.5)


@elementwise(
    x=vjp(lambda xp, g, keep, rate: xp.drop(g, keep, rate=rate)),
    keep=NONDIFF,
    kernel=_drop_kernel,
    samples=_drop_samples,
    keeps_integers=True,
)
def drop(x: ArrayLike, keep: ArrayLike, /, *, rate: float) -> Tensor:
    """`x / (1 - rate)` where `keep` is True, and 0 elsewhere."""


def dropout(
    x: ArrayLike,
    /,
    rate: float,
    *,
    training: bool = True,
    rng: Generator | None = None,
    noise_shape: tuple[int, ...] | None = None,
) -> Tensor:
    """In training, set each element to 0 with probability `rate`, and divide the others by `1 - rate`.

    The expected value stays the same. The same elements are dropped on every backend, and in the gradient.

    >>> import tape_core as tc
    >>> x = tc.ones((2, 3))
    >>> tc.dropout(x, 0.5, rng=tc.default_rng(1)).tolist()
    [[2.0, 0.0, 2.0], [2.0, 0.0, 2.0]]
    >>> tc.dropout(x, 0.5, training=False) is x
    True

    Source: Srivastava and others, Dropout, Journal of Machine Learning Research 15, 2014; scaled in training.

    Args:
        rate: from 0 to 1. With 0 nothing is drawn, and with 1 all elements are dropped.
        training: whether to drop at all; if not, `x` is returned.
        rng: the generator that draws the mask; by default the one that :func:`set_seed` seeds.
        noise_shape: the shape of the mask, which broadcasts to that of `x`: `(n, 1, 1, c)` drops whole channels of
            images.

    Raises:
        TypeError: `x` is not of a floating dtype.
        ValueError: `rate` is not between 0 and 1, or `noise_shape` does not broadcast to the shape of `x`.
    """
    rate = real("dropout", "rate", rate)
    if not 0 <= rate <= 1:
        raise ValueError(f"dropout: rate must be from 0 to 1, got {rate}")
    value = read(x, "dropout: x")
    tensor: Tensor = value if isinstance(value, Tensor) else asarray(value)
    shape = tensor.shape if noise_shape is None else tuple(noise_shape)
    if len(shape) > tensor.ndim or any(n not in (1, m) for n, m in zip(shape[::-1], tensor.shape[::-1], strict=False)):
        raise ValueError(f"dropout: noise_shape {shape} must broadcast to the shape of x, {tensor.shape}")
    if not training or rate == 0:
        return tensor
    numbers = _draw_beside(tensor, shape, global_rng() if rng is None else rng)
    return drop(tensor, numbers >= rate, rate=rate)


def _draw_beside(tensor: Tensor, shape: tuple[int, ...], rng: Generator) -> Tensor:
    """Return uniform numbers of a shape that broadcasts to a Tensor's, in parts where that is divided."""
    device = None if tensor.device == tensor.backend.default_device else tensor.device
    root = tensor.backend.root
    making = root.library.divided_like(tensor, shape)
    # Always float32 draws, so that the mask does not depend on the dtype of x.
    if making is None:
        return rng.uniform(shape, dtype="float32", backend=root, device=device)
    with setting(MAKING, making):
        return rng.uniform(shape, dtype="float32", backend=root, device=device)
