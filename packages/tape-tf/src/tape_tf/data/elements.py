"""Elements of datasets: nested structures of NumPy arrays, and of tensors where the user's functions receive them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tape_tf import dtypes
from tape_tf.conversion import convert_to_tensor, native
from tape_tf.errors import InvalidArgumentError
from tape_tf.ops.ragged import RaggedTensor, RaggedTensorSpec, ragged_rows, ragged_stack
from tape_tf.shapes import TensorShape, TensorSpec
from tape_tf.string_tensor import StringTensor, is_text, strings_of, wrap_strings
from tape_tf.tensor import Tensor
from tape_tf.typing import Element, IntLike, Leaf, NumPyArray, PartialShape, PyTree, ShapeLike


def map_structure(f: Callable[..., Any], first: PyTree, *others: Any) -> Any:
    """Apply `f` to the leaves of a structure, and to the leaves at the same places of others, as `tf.nest` does.

    The structures are tuples, named tuples and dictionaries. A list is a leaf: TensorFlow takes it for a tensor.

    Raises:
        ValueError: the structures differ.
    """
    if isinstance(first, tuple) and not isinstance(first, TensorShape):
        for other in others:
            if not isinstance(other, tuple) or len(other) != len(first):
                raise ValueError(f"expected a tuple of {len(first)}, got {other!r}")
        parts = [map_structure(f, *leaves) for leaves in zip(first, *others, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, dict):
        for other in others:
            if not isinstance(other, dict) or other.keys() != first.keys():
                raise ValueError(f"expected a dictionary of {list(first)}, got {other!r}")
        return {key: map_structure(f, part, *[other[key] for other in others]) for key, part in first.items()}
    return f(first, *others)


def leaves(structure: PyTree) -> list[Any]:
    """The leaves of a structure, in order."""
    found: list[Any] = []
    map_structure(found.append, structure)
    return found


def describe_dtypes(element: Element) -> Any:
    """Return the dtypes of an element, in its structure, as text that can be compared and shown."""
    return str(map_structure(lambda leaf: getattr(leaf, "dtype", type(leaf)), element))


def row(element: Element, k: int) -> Any:
    """Return row `k` of each leaf."""

    def of(leaf: Any) -> Any:
        if not isinstance(leaf, RaggedTensor):
            return leaf[k, ...]
        found = leaf[k]
        return found if isinstance(found, RaggedTensor) else strings_or_numbers(found)

    return map_structure(of, element)


def row_count(element: Element) -> int:
    """Return the number of rows of an element, those of its first leaf."""
    first = leaves(element)[0]
    return len(first) if isinstance(first, RaggedTensor) else int(first.shape[0])


def strings_or_numbers(tensor: Tensor) -> Any:
    """Return the values of a tensor as a NumPy array."""
    return strings_of(tensor) if isinstance(tensor, StringTensor) else np.asarray(tensor.numpy())


def to_array(value: Leaf) -> Any:
    """Convert a leaf to a NumPy array, by TensorFlow's dtype rules; None, datasets, ragged tensors stay as they are."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "UST":
        return strings_of(value)
    if value is None or isinstance(value, np.ndarray | RaggedTensor) or is_dataset(value):
        return value
    return strings_of(value) if is_text(value) else native(value).numpy()


def to_tensor(array: Leaf) -> Any:
    """Convert a leaf to a tensor; None, datasets and ragged tensors stay as they are."""
    if isinstance(array, np.ndarray) and array.dtype == object:
        return wrap_strings(array)
    return array if array is None or isinstance(array, RaggedTensor) or is_dataset(array) else convert_to_tensor(array)


def is_dataset(value: object) -> bool:
    """True for a dataset among the leaves of an element, such as `window` makes.

    It asks for a method, since this module cannot import Dataset, which imports it.
    """
    return hasattr(value, "as_numpy_iterator")


def call_on(f: Callable[..., Any], element: Element) -> Any:
    """Call `f` with an element as tensors; the parts of a tuple are separate arguments."""
    tensors = map_structure(to_tensor, element)
    return f(*tensors) if isinstance(tensors, tuple) else f(tensors)


def as_count(value: IntLike, name: str, where: str, least: int = 1) -> int:
    """Return a count, given as an int or an integer tensor, as an int.

    Raises:
        TypeError: the value is no integer.
        ValueError: the value is below `least`.
    """
    # __index__ accepts ints, NumPy integers and integer tensors; bool has it, too, but is no count.
    if isinstance(value, bool | float) or not hasattr(value, "__index__"):
        raise TypeError(f"{where}: {name} must be an integer, got {value!r}")
    if value.__index__() < least:
        raise ValueError(f"{where}: {name} must be at least {least}, got {value!r}")
    return int(value.__index__())


class DatasetSpec:
    """The spec of a dataset that is an element of another dataset."""

    def __init__(self, element_spec: PyTree, dataset_shape: ShapeLike = ()) -> None:
        self.element_spec = element_spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetSpec) and self.element_spec == other.element_spec

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, TensorShape([]))"


def spec_of(leaf: Leaf) -> Any:
    """Return the spec of a leaf: a TensorSpec, RaggedTensorSpec or DatasetSpec, or None for None."""
    if is_dataset(leaf):
        return DatasetSpec(leaf.element_spec)
    if isinstance(leaf, RaggedTensor):
        return RaggedTensorSpec.from_value(leaf)
    return None if leaf is None else TensorSpec(leaf.shape, dtypes.as_dtype(leaf.dtype))


def as_shapes(structure: PyTree) -> Any:
    """Convert the shapes in a structure to TensorShapes; a shape may be a list, a tuple of lengths or None."""
    if structure is None or isinstance(structure, TensorShape | list):
        return TensorShape(structure)
    # A tuple is ambiguous: of lengths it is a shape, otherwise a structure of shapes.
    if isinstance(structure, tuple) and all(length is None or isinstance(length, int) for length in structure):
        return TensorShape(structure)
    if isinstance(structure, tuple):
        return tuple([as_shapes(part) for part in structure])
    if isinstance(structure, dict):
        return {key: as_shapes(part) for key, part in structure.items()}
    return TensorShape(structure)


def stack_elements(rows: list[Any]) -> Any:
    """Stack elements to one, along a new first dimension.

    Raises:
        tf.errors.InvalidArgumentError: their shapes differ, in some component.
    """
    component = iter(range(len(leaves(rows[0]))))  # map_structure visits the components in order; messages number them

    def stack(*arrays: Any) -> Any:
        number = next(component)
        if arrays[0] is None:
            return None
        if isinstance(arrays[0], RaggedTensor):
            return ragged_stack(arrays)
        if is_dataset(arrays[0]):
            raise TypeError(
                "batch: the elements hold datasets; flat_map(lambda window: window.batch(n)) batches in each"
            )
        try:
            return np.stack(arrays)
        except ValueError:
            for k, array in enumerate(arrays):
                if array.shape != arrays[0].shape:
                    raise InvalidArgumentError(
                        None,
                        None,
                        f"Cannot batch tensors with different shapes in component {number}. First element had shape "
                        f"{TensorShape(arrays[0].shape)} and element {k} had shape {TensorShape(array.shape)}; "
                        "padded_batch fills them up",
                    ) from None
            raise

    return map_structure(stack, *rows)


def join_ragged(rows: list[Any], specs: Any) -> Any:
    """Join elements to one: leaves whose shape is not known become ragged tensors, others are stacked.

    Args:
        specs: the specs of the elements, in their structure; None where nothing is known.
    """

    def join(spec: Any, *arrays: Any) -> Any:
        first = arrays[0]
        known = isinstance(spec, TensorSpec) and spec.shape.is_fully_defined()
        if not isinstance(first, np.ndarray) or first.ndim == 0 or known:
            return stack_elements(list(arrays))
        if len({array.ndim for array in arrays}) > 1:
            ranks = ", ".join(str(array.ndim) for array in arrays)
            raise InvalidArgumentError(None, None, f"ragged_batch: elements of one rank are needed, got ranks {ranks}")
        open_ends = [d for d in range(first.ndim) if len({array.shape[d] for array in arrays}) > 1]
        if isinstance(spec, TensorSpec):
            open_ends += [d for d, length in enumerate(spec.shape) if length is None]
        return ragged_rows(arrays, max(open_ends, default=0) + 1)

    return map_structure(join, specs, *rows)


def pad_elements(rows: list[Any], padded_shapes: PyTree, padding_values: PyTree) -> Any:
    """Stack elements of different shapes to one, each padded at its ends.

    Args:
        padded_shapes: the shapes to pad to; None for a length, or for all: the longest in `rows`.
        padding_values: one number, or one for each component; 0 by default.

    Raises:
        tf.errors.InvalidArgumentError: an element is longer than `padded_shapes` allows.
    """

    # TensorFlow writes -1 for a length that is not known; so `length < 0` means the same as None here.
    def fill(first: NumPyArray, wanted: PartialShape | None, value: NumPyArray | None, *others: Any) -> Any:
        arrays = (first, *others)
        lengths = [max(array.shape[d] for array in arrays) for d in range(first.ndim)]
        for d, length in enumerate(wanted or ()):
            if length is not None and 0 <= length < lengths[d]:
                raise InvalidArgumentError(
                    None,
                    None,
                    f"padded_batch: an element has length {lengths[d]} in dimension {d}, and padded_shapes allows "
                    f"{length}",
                )
            lengths[d] = lengths[d] if length is None or length < 0 else length
        default = b"" if first.dtype == object else 0
        out = np.full((len(arrays), *lengths), default if value is None else np.asarray(value)[()], first.dtype)
        for k, array in enumerate(arrays):
            where: Any = (k, *[slice(length) for length in array.shape])
            out[where] = array
        return out

    same = map_structure(lambda leaf: None, rows[0])
    wanted = same if padded_shapes is None else as_shapes(padded_shapes)
    if not isinstance(padding_values, tuple | dict):
        padding_values = map_structure(lambda leaf: padding_values, rows[0])
    return map_structure(fill, rows[0], wanted, map_structure(to_array, padding_values), *rows[1:])
