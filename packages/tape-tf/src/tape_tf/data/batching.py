"""Batches of elements, windows over them, and what takes them apart again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tape_tf.data.elements import (
    as_count,
    join_ragged,
    leaves,
    map_structure,
    pad_elements,
    row,
    row_count,
    spec_of,
    stack_elements,
)
from tape_tf.data.source import UNKNOWN_CARDINALITY, Source
from tape_tf.ops.ragged import RaggedTensorSpec
from tape_tf.shapes import TensorSpec
from tape_tf.typing import DTypeLike, IntLike, PyTree

if TYPE_CHECKING:
    from tape_tf.data import Dataset


class Batching(Source):
    """Methods of a dataset that join elements, or take them apart."""

    def batch(
        self,
        batch_size: IntLike,
        drop_remainder: bool = False,
        num_parallel_calls: IntLike | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Stack consecutive elements along a new first dimension.

        Args:
            drop_remainder: drop a last batch that is smaller.

        Raises:
            ValueError: `batch_size` is not positive.
            tf.errors.InvalidArgumentError: while iterating, elements of different shapes; see `padded_batch`.
        """
        return self._batch_with(as_count(batch_size, "batch_size", "batch"), drop_remainder, stack_elements)

    def padded_batch(
        self,
        batch_size: IntLike,
        padded_shapes: PyTree = None,
        padding_values: PyTree = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Stack elements of different shapes, each padded at its ends.

        >>> import tape_tf as tf
        >>> lists = tf.data.Dataset.range(1, 3).map(lambda n: tf.fill([n], n))
        >>> next(iter(lists.padded_batch(2))).numpy().tolist()
        [[1, 0], [2, 2]]

        Args:
            padded_shapes: the shapes, in the structure of an element; None for a length: the longest in the batch.
            padding_values: the number to pad with, one for all or in the structure of an element; 0 by default.
        """

        def join(rows: list[Any]) -> Any:
            return pad_elements(rows, padded_shapes, padding_values)

        return self._batch_with(
            as_count(batch_size, "batch_size", "padded_batch"), drop_remainder, join, open_ends=True
        )

    def ragged_batch(
        self,
        batch_size: IntLike,
        drop_remainder: bool = False,
        row_splits_dtype: DTypeLike = None,
        name: str | None = None,
    ) -> Dataset:
        """Make a ragged tensor of consecutive elements whose lengths differ.

        Scalars, and tensors whose shape the dataset knows before it is read, are stacked as :meth:`batch` does.

        >>> import tape_tf as tf
        >>> lists = tf.data.Dataset.range(1, 4).map(lambda n: tf.fill([n], n))
        >>> for batch in lists.ragged_batch(2):
        ...     print(batch)
        <tf.RaggedTensor [[1], [2, 2]]>
        <tf.RaggedTensor [[3, 3, 3]]>

        Args:
            drop_remainder: drop a last batch that is smaller.
            row_splits_dtype: no effect: `row_splits` are int64.
        """
        known = self._declared

        def join(rows: list[Any]) -> Any:
            specs = map_structure(lambda leaf: None, rows[0]) if known is None else known
            return join_ragged(rows, specs)

        size = as_count(batch_size, "batch_size", "ragged_batch")

        def make() -> Iterator[Any]:
            return self._batches(size, drop_remainder, join)

        def spec() -> Any:
            # Which dimensions are ragged, the elements tell: those of the first batch.
            first = next(make(), None)
            if first is None:
                return self.element_spec
            length = size if drop_remainder else None

            def of(leaf: Any) -> Any:
                found = spec_of(leaf)
                if isinstance(found, RaggedTensorSpec):
                    return RaggedTensorSpec((length, *found.shape[1:]), found.dtype, found.ragged_rank)
                return TensorSpec((length, *found.shape[1:]), found.dtype) if isinstance(found, TensorSpec) else found

            return map_structure(of, first)

        return self._new(make, self._batch_count(size, drop_remainder), spec)

    def _batch_with(
        self, size: int, drop_remainder: bool, join: Callable[[list[Any]], Any], open_ends: bool = False
    ) -> Dataset:
        """Join every `size` elements; with `open_ends` the lengths of the result differ between batches."""

        def spec() -> Any:
            first = size if drop_remainder else None

            def batch(one: Any) -> Any:
                if isinstance(one, RaggedTensorSpec):
                    return RaggedTensorSpec((first, *one.shape), one.dtype, one.ragged_rank + 1)
                rest = [None] * len(one.shape) if open_ends else one.shape
                return TensorSpec((first, *rest), one.dtype)

            return map_structure(lambda one: None if one is None else batch(one), self.element_spec)

        return self._new(
            lambda: self._batches(size, drop_remainder, join), self._batch_count(size, drop_remainder), spec
        )

    def _batches(self, size: int, drop_remainder: bool, join: Callable[[list[Any]], Any]) -> Iterator[Any]:
        elements = self._make()
        while rows := list(itertools.islice(elements, size)):
            if len(rows) == size or not drop_remainder:
                yield join(rows)

    def _batch_count(self, size: int, drop_remainder: bool) -> int:
        count = self._cardinality
        if count < 0:
            return count
        # -(-a // b) is a / b rounded up.
        return count // size if drop_remainder else -(-count // size)

    def unbatch(self, name: str | None = None) -> Dataset:
        """Make each row of each element an element."""

        def make() -> Iterator[Any]:
            for element in self._make():
                for k in range(row_count(element)):
                    yield row(element, k)

        lengths = [one.shape[0] for one in leaves(self.element_spec)[:1]] if self._cardinality >= 0 else [None]
        count = UNKNOWN_CARDINALITY if lengths[0] is None else self._cardinality * lengths[0]

        def rows(one: Any) -> Any:
            if isinstance(one, RaggedTensorSpec) and one.ragged_rank > 1:
                return RaggedTensorSpec(one.shape[1:], one.dtype, one.ragged_rank - 1)
            return TensorSpec(one.shape[1:], one.dtype)

        return self._new(make, count, lambda: map_structure(rows, self.element_spec))

    def window(
        self,
        size: IntLike,
        shift: IntLike | None = None,
        stride: IntLike = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Group elements into datasets of `size` elements each, every group `shift` elements after the one before.

        >>> import tape_tf as tf
        >>> windows = tf.data.Dataset.range(5).window(3, shift=1, drop_remainder=True)
        >>> for window in windows.flat_map(lambda window: window.batch(3)):
        ...     print(window.numpy())
        [0 1 2]
        [1 2 3]
        [2 3 4]

        Args:
            size: the number of elements in a window.
            shift: the distance between the starts of windows; `size` by default.
            stride: the distance between elements of a window.
            drop_remainder: drop windows with fewer elements.
        """
        count = as_count(size, "size", "window")
        every = as_count(stride, "stride", "window")
        step = count if shift is None else as_count(shift, "shift", "window")

        def windows(rows: list[Any]) -> Any:
            def dataset(*arrays: Any) -> Dataset:
                return self._new(lambda: iter(arrays), len(arrays), spec_of(arrays[0]))

            return map_structure(dataset, *rows)

        def make() -> Iterator[Any]:
            elements, waiting = self._make(), list[Any]()  # waiting: read, and needed by a window to come
            while True:
                waiting += itertools.islice(elements, (count - 1) * every + 1 - len(waiting))
                rows = waiting[::every][:count]
                if not rows or (drop_remainder and len(rows) < count):
                    return
                yield windows(rows)
                gone = step - len(waiting)
                del waiting[:step]
                if gone > 0:  # shift exceeds the window: skip the elements between windows
                    next(itertools.islice(elements, gone, gone), None)

        known = self._cardinality
        if known >= 0:
            # The number of starts k * step from which a whole window fits; without `drop_remainder` every start counts.
            known = max(known - (count - 1) * every - 1 + step, 0) // step if drop_remainder else -(-known // step)
        return self._new(make, known)

    def rebatch(self, batch_size: IntLike, drop_remainder: bool = False, name: str | None = None) -> Dataset:
        """Join and split batches to batches of another size."""
        return self.unbatch().batch(batch_size, drop_remainder)
