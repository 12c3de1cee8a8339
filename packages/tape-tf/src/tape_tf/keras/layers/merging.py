"""Layers of several inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, ClassVar

import tape_core as tc

from tape_tf.conversion import native, wrap
from tape_tf.keras.layers.base import Layer, Shape, together


class _Merge(Layer):
    """A layer that is called with a list of tensors."""

    _two: ClassVar[Any]
    _fewest = 2
    _most = 10**6

    def call(self, inputs: Any) -> Any:
        """One tensor."""
        if not isinstance(inputs, list | tuple) or not self._fewest <= len(inputs) <= self._most:
            many = "two" if self._most == 2 else f"{self._fewest} or more"
            raise ValueError(
                f"A `{type(self).__name__}` layer should be called on a list of {many} inputs; got {inputs!r}"
            )
        return wrap(self._merged([native(x) for x in inputs]))

    def _makes(self, *shapes: Shape) -> Iterable[Shape]:
        return together(*shapes)

    def _merged(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        return reduce(type(self)._two, parts)


class Add(_Merge):
    """The sum of a list of tensors.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Add()([tf.constant([1.0]), tf.constant([2.0])]).numpy()
    array([3.], dtype=float32)
    """

    _two = staticmethod(tc.add)


class Subtract(_Merge):
    """The first of two tensors less the second."""

    _two, _most = staticmethod(tc.subtract), 2


class Multiply(_Merge):
    """The product of a list of tensors."""

    _two = staticmethod(tc.multiply)


class Maximum(_Merge):
    """The greatest of a list of tensors, element by element."""

    _two = staticmethod(tc.maximum)


class Minimum(_Merge):
    """The least of a list of tensors, element by element."""

    _two = staticmethod(tc.minimum)


class Average(_Merge):
    """The mean of a list of tensors."""

    def _merged(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        return reduce(tc.add, parts) / len(parts)


class Concatenate(_Merge):
    """A list of tensors one after the other along `axis`."""

    _fewest = 1

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def _merged(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        return tc.concat(list(parts), axis=self.axis)


class Dot(_Merge):
    """The products of two tensors, summed over an axis of each; example by example.

    Args:
        axes: the axis, or one for each of the two.
        normalize: whether to scale them to length 1 along it before.
    """

    _most = 2

    def __init__(self, axes: Any, normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axes, self.normalize = axes, normalize

    def _summed(self, n: int, m: int) -> tuple[int, int]:
        """The axis of each of two tensors of so many axes."""
        a, b = (self.axes, self.axes) if isinstance(self.axes, int) else self.axes
        return a % n, b % m

    def _makes(self, *shapes: Shape) -> Iterable[Shape]:
        x, y = shapes
        a, b = self._summed(len(x), len(y))
        return [(*x[:a], *x[a + 1 :], *y[1:b], *y[b + 1 :])]

    def _merged(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        x, y = parts
        a, b = self._summed(x.ndim, y.ndim)
        if self.normalize:
            x, y = (v / tc.sqrt(tc.maximum(tc.sum(v * v, axis=k, keepdims=True), 1e-12)) for v, k in ((x, a), (y, b)))
        letters = iter("bcdefghijklmnopqrstuvw")
        first = "".join("a" if k == 0 else "z" if k == a else next(letters) for k in range(x.ndim))
        second = "".join("a" if k == 0 else "z" if k == b else next(letters) for k in range(y.ndim))
        out = "a" + (first + second).replace("a", "").replace("z", "")
        found: tc.Tensor = tc.einsum(f"{first},{second}->{out}", x, y)
        return tc.expand_dims(found, axis=-1) if found.ndim == 1 else found


def _function(kind: type[_Merge]) -> Callable[..., Any]:
    def merge(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)(inputs)

    merge.__name__ = merge.__qualname__ = kind.__name__.lower()
    merge.__doc__ = f"A :class:`{kind.__name__}` layer, called."
    return merge


add, subtract, multiply, maximum, minimum, average, concatenate = map(
    _function, (Add, Subtract, Multiply, Maximum, Minimum, Average, Concatenate)
)


def dot(inputs: Any, axes: int = -1, **kwargs: Any) -> Any:
    """A :class:`Dot` layer, called."""
    return Dot(axes, **kwargs)(inputs)
