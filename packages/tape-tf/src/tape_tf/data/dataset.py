"""`tf.data`: datasets, sequences of elements, and the transformations that derive one dataset from another.

An element is a tensor or a nested structure of tensors: tuples and dictionaries; a list is a tensor, as in TensorFlow.
Internally elements are NumPy arrays. They become tensors, on the selected backend and device, when a function of the
user's or a loop receives them. So an element is a constant: no gradient flows back to the data of the dataset.

Datasets are read in the caller's thread: `prefetch` and `num_parallel_calls` are accepted and change nothing.
"""

from __future__ import annotations

import itertools
import random as stdlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from tape_core.random import global_rng

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor, native
from tape_tf.data.elements import (
    DatasetSpec,
    as_count,
    as_shapes,
    leaves,
    map_structure,
    row,
    spec_of,
    to_array,
    to_tensor,
)
from tape_tf.data.source import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    MakeIterator,
    SpecSource,
    as_dataset,
)
from tape_tf.data.stored import stored_in
from tape_tf.data.transformations import Transformations
from tape_tf.errors import InvalidArgumentError, OutOfRangeError
from tape_tf.names import export
from tape_tf.ops.files import matching_files
from tape_tf.ops.ragged import RaggedTensor
from tape_tf.shapes import TensorShape, TensorSpec
from tape_tf.tensor import Tensor, Value
from tape_tf.tracing import require_value
from tape_tf.typing import DTypeLike, IntLike, PathLike, PyTree, TensorLike


class DataIterator:
    """The iterator that `iter(dataset)` returns; each `next` gives one element as tensors."""

    def __init__(self, dataset: Dataset) -> None:
        self._arrays = dataset._make()
        self._dataset = dataset
        self.position = 0  # the number of elements given so far, which a checkpoint keeps

    @property
    def element_spec(self) -> Any:
        """The `element_spec` of the dataset."""
        return self._dataset.element_spec

    def __iter__(self) -> DataIterator:
        return self

    def __next__(self) -> Any:
        # A compiled function cannot contain a call that gives something else each time: it falls back to eager.
        require_value("the next element of a dataset")
        element = map_structure(to_tensor, next(self._arrays))
        self.position += 1
        return element

    def move_to(self, position: int) -> None:
        """Go to the place after so many elements: forwards, or from the beginning.

        From the beginning, `shuffle` gives another order, unless it has `reshuffle_each_iteration=False`.

        Raises:
            ValueError: the dataset has fewer elements.
        """
        forwards = position >= self.position
        arrays = self._arrays if forwards else self._dataset._make()
        for number in range(self.position if forwards else 0, position):
            try:
                next(arrays)
            except StopIteration:
                raise ValueError(f"the dataset has {number} elements, fewer than the {position} to skip") from None
        self._arrays, self.position = arrays, position

    def get_next(self) -> Any:
        """Return the next element.

        Raises:
            tf.errors.OutOfRangeError: the dataset has ended.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None


def missing_attribute(name: str) -> str:
    """Return the message for an attribute that datasets lack."""
    return f"'tf.data.Dataset' object has no attribute {name!r}{_INSTEAD.get(name, '')}"


class _DatasetType(type):
    """Metaclass that says what to use instead of a missing static method, as in `tf.data.Dataset.list_files`."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(missing_attribute(name))


class Dataset(Transformations, metaclass=_DatasetType):
    """A sequence of elements, produced anew each time it is iterated over.

    >>> import tape_tf as tf
    >>> numbers = tf.data.Dataset.range(5).map(lambda x: x * x).batch(2)
    >>> for batch in numbers:
    ...     print(batch.numpy())
    [0 1]
    [4 9]
    [16]

    Make a dataset with `from_tensor_slices`, `from_tensors`, `from_generator` or `range`, and derive others from it
    with its methods, which leave it unchanged. The order of `shuffle` follows from `tf.random.set_seed`.
    """

    def __init__(self, make: MakeIterator, cardinality: int, spec: SpecSource = None) -> None:
        self._make = make
        self._cardinality = cardinality
        # The element_spec, a function that computes it, or None: then the first element tells.
        self._spec = spec
        self._declared = None if callable(spec) else spec

    # -- sources

    @staticmethod
    def from_tensor_slices(tensors: PyTree, name: str | None = None) -> Dataset:
        """A dataset with one element for each row: the tensors are sliced along their first dimension.

        >>> import tape_tf as tf
        >>> pairs = tf.data.Dataset.from_tensor_slices(([1, 2], [[1.0, 0.0], [0.0, 1.0]]))
        >>> pairs.element_spec
        (TensorSpec(shape=(), dtype=tf.int32, name=None), TensorSpec(shape=(2,), dtype=tf.float32, name=None))

        Args:
            tensors: tensors or array-likes, in tuples and dictionaries; the arrays are copied.

        Raises:
            ValueError: there are no tensors, one is a scalar, or their first dimensions differ.
        """
        # Copied: TensorFlow's datasets do not change with the arrays they were made of.
        arrays = map_structure(lambda value: np.array(to_array(value)), tensors)
        found = leaves(arrays)
        if not found or any(not array.ndim for array in found):
            given = map_structure(lambda array: TensorShape(array.shape), arrays)
            raise ValueError(
                f"from_tensor_slices: `tensors` must be tensors with a first dimension to cut along, got {given}; "
                "from_tensors makes one element of a scalar"
            )
        lengths = [array.shape[0] for array in found]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"from_tensor_slices: the first dimensions of `tensors` differ: {', '.join(map(str, lengths))}; each "
                "element takes one row of each"
            )

        def make() -> Iterator[Any]:
            return (row(arrays, k) for k in range(lengths[0]))

        spec = map_structure(lambda array: TensorSpec(array.shape[1:], dtypes.as_dtype(array.dtype)), arrays)
        return Dataset(make, lengths[0], spec)

    @staticmethod
    def from_tensors(tensors: PyTree, name: str | None = None) -> Dataset:
        """A dataset of a single element."""
        arrays = map_structure(lambda value: None if value is None else np.array(to_array(value)), tensors)
        return Dataset(lambda: iter([arrays]), 1, map_structure(spec_of, arrays))

    @staticmethod
    def from_generator(
        generator: Callable[..., Iterable[Any]],
        output_types: PyTree = None,
        output_shapes: PyTree = None,
        args: Sequence[TensorLike] | None = None,
        output_signature: PyTree = None,
        name: str | None = None,
    ) -> Dataset:
        """A dataset of the elements that a generator yields; the generator is called anew for each iteration.

        >>> import tape_tf as tf
        >>> def count(n):
        ...     yield from range(n)
        >>> signature = tf.TensorSpec(shape=(), dtype=tf.int32)
        >>> numbers = tf.data.Dataset.from_generator(count, args=(3,), output_signature=signature)
        >>> [int(x) for x in numbers]
        [0, 1, 2]

        Args:
            generator: a function that returns an iterable.
            output_types: the dtypes of an element, in its structure; `output_signature` is the newer form.
            output_shapes: the shapes, in the same structure.
            args: arguments for `generator`, which receives them as NumPy arrays.
            output_signature: the TensorSpecs of an element.

        Raises:
            TypeError: `generator` is not callable, or there is no signature; while iterating, an element does not match
                the signature.
        """
        if not callable(generator):
            raise TypeError(f"from_generator: `generator` must be a Python callable, got {generator!r}")
        if output_signature is None:
            if output_types is None:
                raise TypeError(
                    "from_generator: give `output_signature`, the tf.TensorSpec of each tensor of an element"
                )
            if output_shapes is None:
                output_shapes = map_structure(lambda dtype: TensorShape(None), output_types)
            output_signature = map_structure(
                lambda dtype, shape: TensorSpec(shape, dtype), output_types, as_shapes(output_shapes)
            )
        signature = output_signature  # a name that mypy knows is never None
        given = tuple(np.asarray(to_array(value))[()] for value in args or ())

        def check_part(spec: TensorSpec, value: TensorLike) -> Any:
            try:
                if isinstance(value, Value | np.ndarray) or spec.dtype is dtypes.string:
                    array = to_array(value)
                else:
                    array = native(value, spec.dtype).numpy()
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"`generator` yielded an element that could not be converted to the expected type. The expected "
                    f"type was {spec.dtype.name}, but the yielded element was {value!r}."
                ) from error
            # An array is cast to the signature, as TensorFlow does with what a generator yields; Python numbers took
            # the dtype above.
            if array.dtype != spec.dtype.as_numpy_dtype:
                array = array.astype(spec.dtype.as_numpy_dtype)
            if not spec.shape.is_compatible_with(array.shape):
                raise TypeError(
                    f"`generator` yielded an element of shape {array.shape} where an element of shape {spec.shape} was "
                    "expected."
                )
            return array

        def make() -> Iterator[Any]:
            for value in generator(*given):
                try:
                    element = map_structure(
                        check_part,
                        signature,
                        tuple(value) if isinstance(value, list) and type(signature) is tuple else value,
                    )
                except ValueError as error:
                    raise TypeError(
                        f"`generator` yielded an element that did not match the expected structure. The expected "
                        f"structure was {output_signature}, but the yielded element was {value!r}."
                    ) from error
                yield element

        return Dataset(make, UNKNOWN_CARDINALITY, signature)

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: IntLike | None = None, name: str | None = None
    ) -> Dataset:
        """A dataset of the paths of the files that match a pattern, or one of several; shuffled by default.

        Raises:
            tf.errors.InvalidArgumentError: no file matches.
        """
        paths = matching_files(file_pattern)
        if not len(paths):
            raise InvalidArgumentError(None, None, f"No files matched pattern: {file_pattern}")
        found = Dataset.from_tensor_slices(paths)
        return found if shuffle is False else found.shuffle(len(paths), seed)

    @staticmethod
    def load(
        path: PathLike,
        element_spec: PyTree = None,
        compression: str | None = None,
        reader_func: Callable[[Any], Any] | None = None,
        wait: bool = False,
    ) -> Dataset:
        """A dataset of the elements that :meth:`save` has written into a folder.

        Args:
            element_spec: no effect: the folder has it.
            compression: None finds the file, compressed or not.
            reader_func: what is made of a dataset with one element, the dataset of what was written.
            wait: no effect: a folder that is not there is an error.

        Raises:
            tf.errors.NotFoundError: there is no dataset in the folder.
            tf.errors.DataLossError: the file is damaged; also while iterating.
        """
        make, spec = stored_in(path, compression)
        found = Dataset(make, UNKNOWN_CARDINALITY, spec)
        if reader_func is None:
            return found
        inner_spec: Any = DatasetSpec(spec)
        return as_dataset(reader_func(Dataset(lambda: iter([found]), 1, inner_spec)), "reader_func")

    @staticmethod
    def range(*args: Any, output_type: DTypeLike = None, name: str | None = None) -> Dataset:
        """A dataset of the integers of Python's `range`, int64 by default."""
        dtype = dtypes.as_dtype(output_type or dtypes.int64)
        numbers = range(*[as_count(number, "each number", "range", least=-(2**63)) for number in args])
        kind = dtype.as_numpy_dtype
        return Dataset(lambda: (np.asarray(k, kind) for k in numbers), len(numbers), TensorSpec((), dtype))

    @staticmethod
    def zip(*args: Any, datasets: PyTree = None, name: str | None = None) -> Dataset:
        """A dataset of tuples with one element of each dataset; it ends with the shortest.

        >>> import tape_tf as tf
        >>> a = tf.data.Dataset.range(3)
        >>> [(int(x), int(y)) for x, y in tf.data.Dataset.zip(a, a.skip(1))]
        [(0, 1), (1, 2)]

        Args:
            args: datasets, or one nested structure of them.
        """
        parts = datasets if datasets is not None else args[0] if len(args) == 1 else args
        found = leaves(parts)
        for part in found:
            as_dataset(part, "zip")
        # A single dataset without a structure around it keeps its elements as they are, as in TensorFlow.
        known = [part._cardinality for part in found if part._cardinality != INFINITE_CARDINALITY]
        count = UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in known else min(known, default=INFINITE_CARDINALITY)

        def make() -> Iterator[Any]:
            sources = map_structure(lambda part: part._make(), parts)
            while True:
                try:
                    yield map_structure(next, sources)
                except StopIteration:
                    return

        return Dataset(make, count, lambda: map_structure(lambda part: part.element_spec, parts))

    @staticmethod
    def counter(start: IntLike = 0, step: IntLike = 1, dtype: DTypeLike = None, name: str | None = None) -> Dataset:
        """A dataset that counts `start`, `start + step` and so on, without end."""
        kind = dtypes.as_dtype(dtype or dtypes.int64)
        first, by = int(start), int(step)
        return Dataset(
            lambda: (np.asarray(k, kind.as_numpy_dtype) for k in itertools.count(first, by)),
            INFINITE_CARDINALITY,
            TensorSpec((), kind),
        )

    @staticmethod
    def sample_from_datasets(
        datasets: Iterable[Dataset],
        weights: Iterable[float] | None = None,
        seed: IntLike | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """A dataset that takes each element from one of several datasets, drawn at random.

        Args:
            weights: the relative probability of each dataset; equal by default.
            seed: with a seed the order is the same in every run; otherwise it follows from `tf.random.set_seed`.
            stop_on_empty_dataset: end with the first dataset that ends; otherwise the others go on.
        """
        parts = [as_dataset(part, "sample_from_datasets") for part in datasets]
        chances = [1.0] * len(parts) if weights is None else [float(weight) for weight in weights]
        if len(chances) != len(parts) or not parts:
            raise ValueError(f"sample_from_datasets: {len(parts)} datasets and {len(chances)} weights")
        start = int(global_rng().integers(0, 2**62).item()) if seed is None else int(seed)
        rounds = itertools.count()  # each iteration draws another order

        def make() -> Iterator[Any]:
            # The text combines the seed with the number of the iteration, so that each iteration draws another order.
            draw = stdlib.Random(f"{start} {next(rounds)}")
            going = {k: part._make() for k, part in enumerate(parts) if chances[k] > 0}
            while going:
                (k,) = draw.choices(list(going), [chances[k] for k in going])
                try:
                    yield next(going[k])
                except StopIteration:
                    if stop_on_empty_dataset:
                        return
                    del going[k]

        counts = [part._cardinality for part in parts]
        known = UNKNOWN_CARDINALITY if stop_on_empty_dataset or min(counts) < 0 else sum(counts)
        return Dataset(make, known, lambda: parts[0].element_spec)

    # -- iterating

    def __iter__(self) -> DataIterator:
        return DataIterator(self)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Iterate over the elements as NumPy arrays, scalars as NumPy scalars; ragged tensors stay so.

        >>> import tape_tf as tf
        >>> [x.item() for x in tf.data.Dataset.range(2).as_numpy_iterator()]
        [0, 1]
        """
        return (
            map_structure(
                lambda leaf: leaf if leaf is None or isinstance(leaf, RaggedTensor) else np.array(leaf)[()], element
            )
            for element in self._make()
        )

    def cardinality(self) -> Tensor:
        """The number of elements, tf.data.INFINITE_CARDINALITY or tf.data.UNKNOWN_CARDINALITY, as an int64 tensor."""
        return convert_to_tensor(np.int64(self._cardinality))

    def __len__(self) -> int:
        if self._cardinality == INFINITE_CARDINALITY:
            raise TypeError("The dataset is infinite: `take(n)` makes one that is not.")
        if self._cardinality == UNKNOWN_CARDINALITY:
            raise TypeError("The dataset length is unknown: only iterating tells, since it was filtered or generated.")
        return self._cardinality

    # Without this `if dataset:` would ask for the length, which may be unknown.
    def __bool__(self) -> bool:
        return True

    @property
    def element_spec(self) -> Any:
        """The TensorSpecs of an element, in its structure; None for a dimension that differs between elements.

        After `map` it is found by mapping the first element.
        """
        if self._spec is None:
            first = next(self._make(), None)
            if first is None:
                raise ValueError("element_spec: the dataset has no element to tell it from")
            self._spec = map_structure(spec_of, first)
        elif callable(self._spec):
            self._spec = self._spec()
        return self._spec

    def __repr__(self) -> str:
        known = self._spec is not None and not callable(self._spec)
        return f"<Dataset element_spec={self._spec}>" if known else "<Dataset>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing_attribute(name))


_INSTEAD = {
    "options": "; there is nothing to set",
    "with_options": "; there is nothing to set",
    "shape": "; element_spec tells the shapes of its elements",
}


def cardinality(dataset: Dataset) -> Tensor:
    """Return the number of elements: see :meth:`Dataset.cardinality`.

    >>> import tape_tf as tf
    >>> int(tf.data.experimental.cardinality(tf.data.Dataset.range(7).batch(2)))
    4
    """
    return dataset.cardinality()


def counter(start: IntLike = 0, step: IntLike = 1, dtype: DTypeLike = dtypes.int64) -> Dataset:
    """Return the endless dataset of `start`, `start + step`, ...: see :meth:`Dataset.counter`."""
    return Dataset.counter(start, step, dtype)


export("data.experimental.cardinality", cardinality)
export("data.experimental.Counter", counter)
export("data.experimental.AUTOTUNE", AUTOTUNE)
export("data.experimental.INFINITE_CARDINALITY", INFINITE_CARDINALITY)
export("data.experimental.UNKNOWN_CARDINALITY", UNKNOWN_CARDINALITY)
