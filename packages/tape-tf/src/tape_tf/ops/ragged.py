"""Ragged tensors: rows of different lengths, such as the words of sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tape_tf import dtypes
from tape_tf.conversion import constant, convert_to_tensor, static
from tape_tf.errors import InvalidArgumentError, RaggedGivenError
from tape_tf.functions import OF_RAGGED
from tape_tf.names import exported
from tape_tf.ops.indexing import gather
from tape_tf.ops.shaping import broadcast_to, concat, reshape
from tape_tf.shapes import TensorShape
from tape_tf.tensor import Tensor
from tape_tf.typing import DTypeLike, NumPyArray, ShapeLike, TensorLike

_INSTEAD = "a ragged tensor has its rows, `values`, `row_splits`, `to_list` and `to_tensor`, which pads the rows"


@exported("RaggedTensor", "rows, and to_tensor; no functions of tf but those of tf.strings take it")
class RaggedTensor:
    """A tensor whose rows differ in length: `values`, one row after the other, and where each row begins and ends.

    >>> import tape_tf as tf
    >>> words = tf.strings.split(["a good day", "night"])
    >>> words
    <tf.RaggedTensor [[b'a', b'good', b'day'], [b'night']]>
    >>> words.to_tensor().shape, words.row_lengths().numpy().tolist()
    (TensorShape([2, 3]), [3, 1])

    It is made by `tf.ragged.constant`, `tf.strings.split` and the like, or by `from_row_lengths`.
    """

    __slots__ = ("_splits", "_values")

    _splits: NumPyArray
    _values: Tensor | RaggedTensor

    def __init__(self, values: Tensor | RaggedTensor, row_splits: NumPyArray) -> None:
        splits = np.asarray(row_splits, np.int64)
        if splits.ndim != 1 or not splits.size or splits[0] != 0 or (np.diff(splits) < 0).any():
            raise ValueError(f"row_splits must begin with 0 and not decrease; got {splits}")
        if splits[-1] != len(values):
            raise ValueError(f"row_splits end at {splits[-1]}, and there are {len(values)} values")
        self._values, self._splits = values, splits

    @classmethod
    def from_row_splits(
        cls, values: TensorLike | RaggedTensor, row_splits: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows `values[row_splits[k]:row_splits[k + 1]]`."""
        return cls(values if isinstance(values, RaggedTensor) else convert_to_tensor(values), np.asarray(row_splits))

    @classmethod
    def from_row_lengths(
        cls, values: TensorLike | RaggedTensor, row_lengths: TensorLike, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Make rows of these lengths of the values, in order."""
        return cls.from_row_splits(values, np.concatenate([[0], np.cumsum(np.asarray(row_lengths))]))

    @classmethod
    def from_tensor(cls, tensor: TensorLike, lengths: TensorLike | None = None, padding: Any = None) -> RaggedTensor:
        """Make rows of those of a tensor: their first `lengths` elements, or those before the `padding` at their ends.

        Raises:
            ValueError: both are given.
        """
        dense = convert_to_tensor(tensor)
        rows, width = dense.shape[:2]
        if lengths is not None and padding is not None:
            raise ValueError("RaggedTensor.from_tensor: give lengths or padding, not both")
        if padding is not None:
            kept = np.asarray((dense != padding).numpy())
            counts = np.array([max(np.flatnonzero(row), default=-1) + 1 for row in kept], np.int64)
        else:
            counts = np.full(rows, width) if lengths is None else np.asarray(lengths)
        places = np.concatenate([np.arange(n) + k * width for k, n in enumerate(counts)] or [np.empty(0)])
        flat = reshape(dense, (rows * width, *dense.shape[2:]))
        return cls.from_row_lengths(gather(flat, places.astype(np.int64)), counts)

    # -- what it consists of

    @property
    def values(self) -> Tensor | RaggedTensor:
        """The elements of all rows, one row after the other."""
        return self._values

    @property
    def flat_values(self) -> Tensor:
        """The innermost values, a tensor."""
        return self._values.flat_values if isinstance(self._values, RaggedTensor) else self._values

    @property
    def row_splits(self) -> Tensor:
        """Where rows begin and end among the values, int64, one more than there are rows."""
        return constant(self._splits)

    def row_lengths(self, axis: int = 1) -> Tensor:
        """The lengths of the rows, int64."""
        if axis != 1:
            raise ValueError("row_lengths: of the rows (axis=1) only; `values.row_lengths()` has those inside")
        return constant(np.diff(self._splits))

    def nrows(self) -> Tensor:
        """The number of rows, an int64 tensor."""
        return constant(np.int64(len(self)))

    def row_starts(self) -> Tensor:
        """Where each row begins among the values."""
        return constant(self._splits[:-1])

    def value_rowids(self) -> Tensor:
        """The row of each of the values."""
        return constant(np.repeat(np.arange(len(self)), np.diff(self._splits)))

    @property
    def ragged_rank(self) -> int:
        """The number of ragged dimensions."""
        return 1 + (self._values.ragged_rank if isinstance(self._values, RaggedTensor) else 0)

    @property
    def shape(self) -> TensorShape:
        """The shape; None for the lengths of rows."""
        return TensorShape((len(self), None, *self._values.shape[1:]))

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of the values."""
        return self.flat_values.dtype

    def bounding_shape(self) -> Tensor:
        """The shape of :meth:`to_tensor`, int64."""
        return constant(np.asarray(self.to_tensor().shape, np.int64))

    # -- rows

    def __len__(self) -> int:
        return len(self._splits) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            first, *rest = key
            rows = self[first]
            if not rest:
                return rows
            if not isinstance(first, slice):
                return rows[rest[0]] if len(rest) == 1 else rows[tuple(rest)]
            return _from_rows([row[rest[0]] if len(rest) == 1 else row[tuple(rest)] for row in rows], self)
        if isinstance(key, slice):
            return _from_rows([self[k] for k in range(*key.indices(len(self)))], self)
        k = int(key)
        if not -len(self) <= k < len(self):
            raise IndexError(f"index {k} is out of range for a ragged tensor of {len(self)} rows")
        k %= len(self)
        return self._values[self._splits[k] : self._splits[k + 1]]

    def with_values(self, new_values: TensorLike | RaggedTensor) -> RaggedTensor:
        """Return a ragged tensor with the same rows, of other values."""
        return RaggedTensor.from_row_splits(new_values, self._splits)

    def with_flat_values(self, new_values: TensorLike) -> RaggedTensor:
        """Return a ragged tensor with the same rows, of other innermost values."""
        inner = self._values
        return self.with_values(inner.with_flat_values(new_values) if isinstance(inner, RaggedTensor) else new_values)

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Join the rows along neighbouring dimensions: `merge_dims(0, 1)` is `values`."""
        if (outer_axis, inner_axis) == (0, 1):
            return self._values
        if outer_axis == 1 and inner_axis in (2, -1) and isinstance(self._values, RaggedTensor):
            return RaggedTensor(self._values._values, self._values._splits[self._splits])
        raise ValueError(f"merge_dims: of dimensions 0 and 1, or 1 and 2; got {outer_axis} and {inner_axis}")

    # -- as something else

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists."""
        inner = self._values.to_list() if isinstance(self._values, RaggedTensor) else self._values.numpy().tolist()
        return [inner[a:b] for a, b in zip(self._splits[:-1], self._splits[1:], strict=True)]

    def numpy(self) -> Any:
        """Return the rows: an array if they have one length, else an array of arrays."""
        rows = [row.numpy() for row in self]
        if len({row.shape for row in rows}) <= 1:
            return np.array(rows)
        found = np.empty(len(rows), object)
        found[:] = rows
        return found

    def to_tensor(
        self, default_value: TensorLike | None = None, name: str | None = None, shape: ShapeLike = None
    ) -> Tensor:
        """Return a tensor: rows are filled up to one length with `default_value`, by default 0, or `b""`.

        Args:
            shape: the shape; longer rows are cut off. None for a length: the longest row.
        """
        wanted = [None] if shape is None else list(static(shape))
        inner = self._values
        if isinstance(inner, RaggedTensor):
            dense = inner.to_tensor(default_value, shape=None if shape is None else (None, *wanted[2:]))
        else:
            dense = inner
        lengths = np.diff(self._splits)
        width = wanted[1] if len(wanted) > 1 and wanted[1] is not None else int(max(lengths, default=0))
        rows = wanted[0] if wanted[0] is not None else len(self)
        # The filling is one more row at the end of the values, so that all comes of one gather, with its derivative.
        places = np.full((rows, width), len(dense), np.int64)
        for k, (start, length) in enumerate(zip(self._splits[:rows], lengths[:rows], strict=False)):
            n = min(length, width)
            places[k, :n] = np.arange(start, start + n)
        text = dense.dtype is dtypes.string
        fill = constant((b"" if text else 0) if default_value is None else default_value, dtype=dense.dtype)
        padding = broadcast_to(fill, (1, *dense.shape[1:]))
        found: Tensor = gather(concat([dense, padding], 0), places)
        return found

    def __tf_tensor__(self, *args: object) -> Any:
        raise RaggedGivenError()

    def __eq__(self, other: object) -> Any:
        if isinstance(other, RaggedTensor):
            return self.with_flat_values(self.flat_values == other.flat_values)
        return self.with_flat_values(self.flat_values == other)

    __hash__ = None  # type: ignore[assignment] # equality is elementwise

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'tf.RaggedTensor' object has no attribute {name!r}; {_INSTEAD}")

    def __repr__(self) -> str:
        return f"<tf.RaggedTensor {self.to_list()}>"


def _reshape(tensor: RaggedTensor, shape: ShapeLike) -> Tensor:
    wanted = static(shape)
    if list(wanted) != [-1]:
        raise InvalidArgumentError(
            None, None, f"reshape: of a ragged tensor to [-1] only, got {wanted}: to_tensor() pads its rows before"
        )
    found: Tensor = reshape(tensor.flat_values, wanted)
    return found


OF_RAGGED["reshape"] = _reshape


@exported("RaggedTensorSpec", "row_splits are int64")
class RaggedTensorSpec:
    """The shape and dtype of ragged tensors: None stands for lengths that differ.

    >>> import tape_tf as tf
    >>> tf.RaggedTensorSpec([2, None], tf.int32)
    RaggedTensorSpec(TensorShape([2, None]), tf.int32, 1, tf.int64)
    """

    def __init__(
        self,
        shape: ShapeLike = None,
        dtype: DTypeLike = dtypes.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: DTypeLike = dtypes.int64,
        flat_values_spec: None = None,
    ) -> None:
        self.shape = TensorShape(shape)
        self.dtype = dtypes.as_dtype(dtype)
        if ragged_rank is None:
            if self.shape.rank is None:
                raise ValueError("Must specify ragged_rank or shape with a known rank.")
            ragged_rank = self.shape.rank - 1
        self.ragged_rank = ragged_rank
        self.row_splits_dtype = dtypes.int64

    @classmethod
    def from_value(cls, value: RaggedTensor) -> RaggedTensorSpec:
        """Return the spec of a ragged tensor."""
        shape = [len(value), *[None] * value.ragged_rank, *value.flat_values.shape[1:]]
        return cls(shape, value.dtype, value.ragged_rank)

    def _key(self) -> tuple[Any, ...]:
        return str(self.shape), self.dtype, self.ragged_rank

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedTensorSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"RaggedTensorSpec({self.shape!r}, {self.dtype!r}, {self.ragged_rank}, {self.row_splits_dtype!r})"


def ragged_rows(rows: Sequence[NumPyArray], rank: int) -> RaggedTensor:
    """Return a ragged tensor of arrays, which are its rows, with so many ragged dimensions."""
    if rank > 1:
        inner: Any = ragged_rows([part for row in rows for part in row], rank - 1)
    else:
        inner = convert_to_tensor(np.concatenate(rows))
    return RaggedTensor.from_row_lengths(inner, [len(row) for row in rows])


def _from_rows(rows: Sequence[Any], like: RaggedTensor) -> RaggedTensor:
    """Return a ragged tensor of rows, which are those of a ragged tensor, or parts of them."""
    lengths = [len(row) for row in rows]
    if isinstance(like.values, RaggedTensor):
        parts = [part for row in rows for part in row]
        return RaggedTensor.from_row_lengths(_from_rows(parts, like.values), lengths)
    values = concat(list(rows), 0) if rows else like.values[:0]
    return RaggedTensor.from_row_lengths(values, lengths)


@exported("ragged.constant")
def ragged_constant(
    pylist: Sequence[Any],
    dtype: DTypeLike = None,
    ragged_rank: int | None = None,
    inner_shape: ShapeLike = None,
    name: str | None = None,
    row_splits_dtype: DTypeLike = None,
) -> Any:
    """Make a ragged tensor of nested lists, whose lengths may differ.

    >>> import tape_tf as tf
    >>> tf.ragged.constant([[1, 2], [], [3]]).to_tensor(-1).numpy().tolist()
    [[1, 2], [-1, -1], [3, -1]]

    Args:
        ragged_rank: the number of ragged dimensions; by default all but the outermost are.

    Raises:
        ValueError: the lists are not of one depth.
    """
    depth = _depth(pylist)
    rank = max(depth - 1, 0) if ragged_rank is None else ragged_rank
    if rank == 0:
        return constant(list(pylist), dtype=dtype)
    if any(not isinstance(row, list | tuple | np.ndarray) for row in pylist):
        raise ValueError(f"ragged.constant: all elements must be at one depth, {depth} lists deep")
    flat = [element for row in pylist for element in row]
    if flat:
        values = ragged_constant(flat, dtype, rank - 1)
    else:
        values = constant(np.zeros(0, dtypes.as_dtype(dtype or dtypes.float32).as_numpy_dtype), dtype=dtype)
    return RaggedTensor.from_row_lengths(values, [len(row) for row in pylist])


def _depth(value: object) -> int:
    if isinstance(value, list | tuple | np.ndarray):
        return 1 + max(map(_depth, value), default=0)
    return 0


@exported("ragged.map_flat_values")
def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `op` with the innermost values in place of ragged tensors, and put the result into their rows."""
    ragged = [value for value in (*args, *kwargs.values()) if isinstance(value, RaggedTensor)]
    found = op(
        *[getattr(value, "flat_values", value) if isinstance(value, RaggedTensor) else value for value in args],
        **{key: value.flat_values if isinstance(value, RaggedTensor) else value for key, value in kwargs.items()},
    )
    return ragged[0].with_flat_values(found) if ragged else found


@exported("ragged.stack")
def ragged_stack(values: Sequence[Any], axis: int = 0, name: str | None = None) -> RaggedTensor:
    """Make a ragged tensor with the given tensors as rows."""
    if axis != 0:
        raise ValueError("ragged.stack: along axis 0 only")
    rows = [value if isinstance(value, RaggedTensor) else convert_to_tensor(value) for value in values]
    inner: Any
    if any(isinstance(row, RaggedTensor) for row in rows):
        lists = [row.to_list() if isinstance(row, RaggedTensor) else row.numpy().tolist() for row in rows]
        found: RaggedTensor = ragged_constant(lists, rows[0].dtype)
        return found
    inner = concat(rows, 0)
    return RaggedTensor.from_row_lengths(inner, [len(row) for row in rows])
