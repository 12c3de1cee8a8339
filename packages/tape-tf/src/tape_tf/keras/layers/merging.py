"""Layers that merge several inputs to one output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, ClassVar

import tape_core as tc
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras.backend import SQUARED_NORM_FLOOR
from tape_tf.keras.layers.base import Layer, try_broadcast
from tape_tf.keras.masks import as_mask, expand_mask, has_mask
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import PyTree, TensorLike


class _MergeLayer(Layer):
    """Base class of layers that are called with a list of tensors."""

    supports_masking = True

    _binary_op: ClassVar[Any]  # a static function of two tensors, with which the list is folded
    _min_inputs = 2
    _max_inputs = sys.maxsize

    def call(self, inputs: Sequence[TensorLike]) -> Tensor:
        """Merge the tensors of a list to one."""
        if not isinstance(inputs, list | tuple) or not self._min_inputs <= len(inputs) <= self._max_inputs:
            many = "two" if self._max_inputs == 2 else f"{self._min_inputs} or more"
            raise ValueError(
                f"A `{type(self).__name__}` layer should be called on a list of {many} inputs; got {inputs!r}"
            )
        return wrap_tensor(self._merge([native(x) for x in inputs]))

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return try_broadcast(*shapes)

    def _merge(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        return reduce(type(self)._binary_op, parts)

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return a mask of the steps that count in any input; None if one of the inputs has no mask."""
        if mask is None or any([part is None for part in mask]):
            return None
        return wrap(reduce(tc.logical_or, [as_mask(part) for part in mask]))


class Add(_MergeLayer):
    """The sum of a list of tensors.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Add()([tf.constant([1.0]), tf.constant([2.0])]).numpy()
    array([3.], dtype=float32)
    """

    _binary_op = staticmethod(tc.add)


class Subtract(_MergeLayer):
    """The first of two tensors minus the second."""

    _binary_op, _max_inputs = staticmethod(tc.subtract), 2


class _FillingLayer(_MergeLayer):
    """Base class of layers for which a hidden step of one input leaves the other inputs as they are."""

    def call(self, inputs: Sequence[TensorLike], mask: PyTree = None) -> Tensor:
        """Merge the tensors of a list to one."""
        if not has_mask(mask):
            return super().call(inputs)
        parts = [native(x) for x in inputs]
        masks = [
            None if given is None else expand_mask(as_mask(given), part.ndim)
            for part, given in zip(parts, mask, strict=True)
        ]
        return wrap_tensor(self._merge_counting(parts, masks))

    def _merge_counting(self, parts: Sequence[tc.Tensor], masks: Sequence[tc.Tensor | None]) -> tc.Tensor:
        """Merge the steps that count; a mask of None hides none."""
        (found, *others), (counts, *rest) = parts, masks
        for part, mask in zip(others, rest, strict=True):
            merged = type(self)._binary_op(found, part)
            if mask is not None:
                merged = tc.where(mask, merged, found)
            if counts is not None:
                # Where only this part counts, it is the result.
                alone = ~counts if mask is None else ~counts & mask
                merged = tc.where(alone, part, merged)
                counts = None if mask is None else counts | mask
            found = merged
        return found


class Multiply(_FillingLayer):
    """The product of a list of tensors. Steps that the mask of one hides do not change the others."""

    _binary_op = staticmethod(tc.multiply)

    def _merge_counting(self, parts: Sequence[tc.Tensor], masks: Sequence[tc.Tensor | None]) -> tc.Tensor:
        found = super()._merge_counting(parts, masks)
        known = [mask for mask in masks if mask is not None]
        # Zeros where every input is hidden.
        return found if len(known) < len(masks) else tc.where(reduce(tc.logical_or, known), found, 0)


class Maximum(_FillingLayer):
    """The elementwise maximum of a list of tensors."""

    _binary_op = staticmethod(tc.maximum)


class Minimum(_FillingLayer):
    """The elementwise minimum of a list of tensors."""

    _binary_op = staticmethod(tc.minimum)


class Average(_MergeLayer):
    """The mean of a list of tensors."""

    def _merge(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        return reduce(tc.add, parts) / len(parts)


class Concatenate(_MergeLayer):
    """Join a list of tensors along `axis`."""

    _min_inputs = 1

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def _merge(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        return tc.concat(list(parts), axis=self.axis)

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the masks, joined along the axis; an input without a mask counts as a whole."""
        if not has_mask(mask):
            return None
        parts = []
        for value, part in zip(map(native, inputs), mask, strict=True):
            counts = tc.ones_like(value, dtype=tc.bool) if part is None else expand_mask(as_mask(part), value.ndim)
            parts.append(tc.broadcast_to(counts, value.shape))
        return wrap(tc.any(tc.concat(parts, axis=self.axis), axis=-1))


class Dot(_MergeLayer):
    """The product of two tensors, summed over one axis of each, for each example.

    Args:
        axes: the axis to sum over, or one for each of the two tensors.
        normalize: scale vectors along that axis to length 1 first, which gives cosines.
    """

    _max_inputs = 2

    def __init__(self, axes: int | tuple[int, int], normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axes, self.normalize = axes, normalize

    def _contracted_axes(self, n: int, m: int) -> tuple[int, int]:
        """Return the summed axes of two tensors with `n` and `m` axes."""
        a, b = (self.axes, self.axes) if isinstance(self.axes, int) else self.axes
        return a % n, b % m

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        x, y = shapes
        a, b = self._contracted_axes(len(x), len(y))
        return [(*x[:a], *x[a + 1 :], *y[1:b], *y[b + 1 :])]

    def _merge(self, parts: Sequence[tc.Tensor]) -> tc.Tensor:
        x, y = parts
        a, b = self._contracted_axes(x.ndim, y.ndim)
        if self.normalize:
            x, y = (
                v / tc.sqrt(tc.maximum(tc.sum(v * v, axis=k, keepdims=True), SQUARED_NORM_FLOOR))
                for v, k in ((x, a), (y, b))
            )
        # In the einsum "a" is the axis of examples, "z" the summed axis, and each other axis has a letter of its own.
        letters = iter("bcdefghijklmnopqrstuvw")
        first = "".join("a" if k == 0 else "z" if k == a else next(letters) for k in range(x.ndim))
        second = "".join("a" if k == 0 else "z" if k == b else next(letters) for k in range(y.ndim))
        out = "a" + (first + second).replace("a", "").replace("z", "")
        found: tc.Tensor = tc.einsum(f"{first},{second}->{out}", x, y)
        # Keras keeps an axis of features: the product of vectors has shape (examples, 1).
        return tc.expand_dims(found, axis=-1) if found.ndim == 1 else found

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> None:
        """Return None: the axes of the inputs are summed or combined."""


def _functional_form(kind: type[_MergeLayer]) -> Callable[..., Any]:
    """Make the functional form of a layer: `add([x, y])` for `Add()([x, y])`."""

    def merge(inputs: Sequence[TensorLike], *args: Any, **kwargs: Any) -> Any:
        return kind(*args, **kwargs)(inputs)

    merge.__name__ = merge.__qualname__ = kind.__name__.lower()
    merge.__doc__ = f"Make a :class:`{kind.__name__}` layer, and call it."
    return merge


add, subtract, multiply, maximum, minimum, average, concatenate = map(
    _functional_form, (Add, Subtract, Multiply, Maximum, Minimum, Average, Concatenate)
)


def dot(inputs: Sequence[TensorLike], axes: int = -1, **kwargs: Any) -> Any:
    """Make a :class:`Dot` layer, and call it."""
    return Dot(axes, **kwargs)(inputs)
