"""Transformations of datasets: the methods of `tf.data.Dataset` that return another dataset."""

from __future__ import annotations

import itertools
import random as stdlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from tape_core.random import global_rng

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor
from tape_tf.data.batching import Batching
from tape_tf.data.elements import (
    as_count,
    call_on,
    describe_dtypes,
    leaves,
    map_structure,
    spec_of,
    to_array,
    to_tensor,
)
from tape_tf.data.source import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, as_dataset
from tape_tf.data.stored import Stored
from tape_tf.errors import InvalidArgumentError
from tape_tf.shapes import TensorSpec
from tape_tf.typing import Element, IntLike, Leaf, PyTree

if TYPE_CHECKING:
    from tape_tf.data import Dataset


class Transformations(Batching, Stored):
    """Methods that derive a dataset from another: the base class of Dataset."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: IntLike | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Apply a function to each element. The parts of a tuple are separate arguments; a dictionary is one argument.

        A list that the function returns is a tuple of parts.

        >>> import tape_tf as tf
        >>> pairs = tf.data.Dataset.from_tensor_slices(([1.0, 2.0], [3.0, 4.0]))
        >>> [float(x) for x in pairs.map(lambda x, y: x * y)]
        [3.0, 8.0]
        """
        check_callable(map_func, "map")

        def map_element(element: Element) -> Any:
            result = call_on(map_func, element)
            # As in TensorFlow: a list comes of functions such as tf.io.decode_csv, whose tensors do not stack.
            return map_structure(to_array, tuple(result) if isinstance(result, list) else result)

        def spec() -> Any:
            # The function is called on the first element. Where that is a batch, a result of the batch's length keeps
            # the unknown first dimension: a last, smaller batch will make it smaller.
            first = next(self._make(), None)
            if first is None:
                return self.element_spec
            given = zip(leaves(self.element_spec), leaves(first), strict=True)
            open_ends = {leaf.shape[0] for known, leaf in given if known is not None and known.shape[:1] == (None,)}

            def found(leaf: Leaf) -> Any:
                of_batch = isinstance(leaf, np.ndarray) and leaf.shape[:1] and leaf.shape[0] in open_ends
                shape = (None, *leaf.shape[1:]) if of_batch else None
                return TensorSpec(shape, dtypes.as_dtype(leaf.dtype)) if shape else spec_of(leaf)

            return map_structure(found, map_element(first))

        # The function is called while the dataset is read, and not traced once, as TensorFlow does: Python code in it
        # sees values.
        return self._new(lambda: map(map_element, self._make()), self._cardinality, spec)

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Keep the elements for which a function is true."""
        check_callable(predicate, "filter")
        return self._with_same_spec(
            lambda: (element for element in self._make() if bool(call_on(predicate, element))), UNKNOWN_CARDINALITY
        )

    def unique(self, name: str | None = None) -> Dataset:
        """Drop elements that were there before, keeping the order of first appearance."""

        def make() -> Iterator[Any]:
            seen = set()
            for element in self._make():
                # Compared by bits, so -0.0 and 0.0 differ, and NaN equals NaN; strings have no bits in an array.
                key = tuple(
                    (leaf.shape, tuple(leaf.ravel()) if leaf.dtype == object else leaf.tobytes())
                    for leaf in leaves(element)
                )
                if key not in seen:
                    seen.add(key)
                    yield element

        return self._with_same_spec(make, UNKNOWN_CARDINALITY)

    def shuffle(
        self,
        buffer_size: IntLike | None,
        seed: IntLike | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Shuffle the elements, as far as a buffer allows.

        Each element is drawn at random from a buffer of `buffer_size` elements, and the next element takes its place.
        So only a buffer as large as the dataset makes all orders equally likely.

        Args:
            seed: with a seed the order is the same in every run; otherwise it follows from `tf.random.set_seed`.
            reshuffle_each_iteration: draw another order for the next iteration; True by default.
        """
        size = self._cardinality if buffer_size is None else as_count(buffer_size, "buffer_size", "shuffle")
        # Drawn when the dataset is made and not when it is read, so that the order follows from the program alone.
        start = int(global_rng().integers(0, 2**62).item()) if seed is None else int(seed)
        rounds = itertools.count()  # one order for each iteration

        def make() -> Iterator[Any]:
            number = 0 if reshuffle_each_iteration is False else next(rounds)
            draw = stdlib.Random(f"{start} {number}").randrange
            elements = self._make()
            waiting = list(itertools.islice(elements, size))
            for element in elements:
                k = draw(len(waiting))
                yield waiting[k]
                waiting[k] = element
            while waiting:
                k = draw(len(waiting))
                waiting[k], waiting[-1] = waiting[-1], waiting[k]  # pop from the end: O(1)
                yield waiting.pop()

        return self._with_same_spec(make)

    def repeat(self, count: IntLike | None = None, name: str | None = None) -> Dataset:
        """Repeat the elements `count` times, or without end."""
        times = -1 if count is None else int(count)
        known = self._cardinality
        if times < 0:
            # Nothing, repeated without end, is still nothing.
            known = INFINITE_CARDINALITY if known else 0
        elif known >= 0 or times == 0:
            known = max(known, 0) * times

        def make() -> Iterator[Any]:
            for _ in itertools.count() if times < 0 else range(times):
                empty = True
                for element in self._make():
                    empty = False
                    yield element
                if empty:  # an endless repetition of nothing would never return
                    return

        return self._with_same_spec(make, known)

    def take(self, count: IntLike, name: str | None = None) -> Dataset:
        """Keep the first `count` elements; all for -1."""
        n, known = int(count), self._cardinality
        if n < 0:
            return self._with_same_spec(self._make)
        bounded = n if known == INFINITE_CARDINALITY else min(n, known) if known >= 0 else UNKNOWN_CARDINALITY
        return self._with_same_spec(lambda: itertools.islice(self._make(), n), bounded)

    def skip(self, count: IntLike, name: str | None = None) -> Dataset:
        """Drop the first `count` elements; all for -1."""
        n, known = int(count), self._cardinality
        if n < 0:
            return self.take(0)
        return self._with_same_spec(
            lambda: itertools.islice(self._make(), n, None), max(known - n, 0) if known >= 0 else known
        )

    def shard(self, num_shards: IntLike, index: IntLike, name: str | None = None) -> Dataset:
        """Keep every `num_shards`-th element, starting with element `index`."""
        n, first, known = as_count(num_shards, "num_shards", "shard"), int(index), self._cardinality
        if not 0 <= first < n:
            raise InvalidArgumentError(None, None, f"shard: index must be between 0 and {n - 1}, got {index!r}")
        count = len(range(first, known, n)) if known >= 0 else known
        return self._with_same_spec(lambda: itertools.islice(self._make(), first, None, n), count)

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Keep the elements before the first for which a function is false."""
        check_callable(predicate, "take_while")
        return self._with_same_spec(
            lambda: itertools.takewhile(lambda element: bool(call_on(predicate, element)), self._make()),
            UNKNOWN_CARDINALITY,
        )

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """Append the elements of another dataset."""
        other = as_dataset(dataset, "concatenate")
        counts = self._cardinality, other._cardinality
        known = min(counts) if min(counts) < 0 else sum(counts)
        if INFINITE_CARDINALITY in counts:
            known = INFINITE_CARDINALITY

        def make() -> Iterator[Any]:
            kind = None
            for element in self._make():
                # The first elements of both tell: the specs may have to be computed by calling the user's functions.
                kind = kind or describe_dtypes(element)
                yield element
            for element in other._make():
                if kind and (here := describe_dtypes(element)) != kind:
                    raise TypeError(f"Two datasets to concatenate have different types: {kind} and {here}")
                kind = None
                yield element

        return self._with_same_spec(make, known)

    def enumerate(self, start: IntLike = 0, name: str | None = None) -> Dataset:
        """Pair each element with its number, an int64."""
        # As good as endless, and `range` has a length that `zip` can compare.
        return self.zip((self.range(int(start), 2**63 - 1), self))

    def prefetch(self, buffer_size: IntLike | None = None, name: str | None = None) -> Dataset:
        """Return a dataset of the same elements: nothing is read ahead."""
        return self._with_same_spec(self._make)

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """Map each element to a dataset, and chain those datasets."""
        return self.interleave(map_func, cycle_length=1)

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: IntLike | None = None,
        block_length: IntLike = 1,
        num_parallel_calls: IntLike | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Map each element to a dataset, and take elements from several of those datasets in turn.

        >>> import tape_tf as tf
        >>> numbers = tf.data.Dataset.range(1, 4)
        >>> def thrice(n):
        ...     return tf.data.Dataset.from_tensors(n).repeat(3)
        >>> twice = numbers.interleave(thrice, cycle_length=2, block_length=2)
        >>> [int(x) for x in twice]
        [1, 1, 2, 2, 1, 2, 3, 3, 3]

        Args:
            cycle_length: the number of datasets read in turn.
            block_length: the number of elements that each gives in its turn.
        """
        check_callable(map_func, "interleave")
        # TensorFlow tunes the width to the machine; one at a time gives the same order everywhere.
        width = 1 if cycle_length in (None, AUTOTUNE) else as_count(cycle_length, "cycle_length", "interleave")
        block = as_count(block_length, "block_length", "interleave")

        def make() -> Iterator[Any]:
            sources = (as_dataset(call_on(map_func, element), "map_func")._make() for element in self._make())
            turns: list[Iterator[Any] | None] = list(itertools.islice(sources, width))
            while turns:
                for k, source in enumerate(turns):
                    if source is None:
                        continue
                    given = 0
                    for element in itertools.islice(source, block):
                        given += 1
                        yield element
                    if given < block:
                        # This dataset has ended: the next one takes its place in the cycle.
                        turns[k] = next(sources, None)
                turns = [source for source in turns if source is not None]

        return self._new(make, UNKNOWN_CARDINALITY)

    def reduce(self, initial_state: PyTree, reduce_func: Callable[..., Any], name: str | None = None) -> Any:
        """Fold the elements: `state = reduce_func(state, element)` for each; returns the last state.

        >>> import tape_tf as tf
        >>> int(tf.data.Dataset.range(5).reduce(tf.constant(0, tf.int64), lambda total, x: total + x))
        10
        """
        check_callable(reduce_func, "reduce")
        state = map_structure(lambda leaf: to_tensor(to_array(leaf)), initial_state)
        for element in self:
            state = reduce_func(state, element)
        return map_structure(convert_to_tensor, state)

    def scan(self, initial_state: PyTree, scan_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """Map with a state: `scan_func(state, element)` returns the next state and an element of the new dataset."""
        check_callable(scan_func, "scan")

        def make() -> Iterator[Any]:
            state = map_structure(lambda leaf: to_tensor(to_array(leaf)), initial_state)
            for element in self:
                state, result = scan_func(state, element)
                yield map_structure(to_array, result)

        return self._new(make, self._cardinality)

    def apply(self, transformation_func: Callable[[Any], Any], name: str | None = None) -> Any:
        """Return `transformation_func(self)`."""
        return transformation_func(self)

    def get_single_element(self, name: str | None = None) -> Any:
        """Return the only element.

        Raises:
            tf.errors.InvalidArgumentError: there is no element, or more than one.
        """
        found = list(itertools.islice(self, 2))
        if len(found) != 1:
            raise InvalidArgumentError(None, None, f"Dataset was {'empty' if not found else 'not a single element'}.")
        return found[0]


def check_callable(f: object, where: str) -> None:
    """Raise a TypeError unless `f` can be called."""
    if not callable(f):
        raise TypeError(f"{where}: a function is needed, got {f!r}")
