"""TensorShape and TensorSpec: descriptions of tensors without their values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, SupportsIndex

from tape_tf import dtypes

if TYPE_CHECKING:
    from tape_tf.tensor import Value
from tape_tf.typing import DTypeLike, ShapeLike


class TensorShape(tuple):  # type: ignore[type-arg]
    """The lengths of the dimensions: a tuple that also equals a list. An unknown length is None.

    >>> import tape_tf as tf
    >>> shape = tf.zeros((2, 3)).shape
    >>> print(shape, shape == [2, 3], shape.as_list(), shape.rank)
    (2, 3) True [2, 3] 2
    """

    # TensorShape(None) has an unknown rank: it is the empty tuple with this set to False.
    _known = True

    def __new__(cls, dims: ShapeLike = None) -> TensorShape:
        if isinstance(dims, int):
            dims = (dims,)
        self = super().__new__(cls, () if dims is None else [None if d is None else int(d) for d in dims])
        if dims is None or not getattr(dims, "_known", True):
            self._known = False
        return self

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None if it is unknown."""
        return len(self) if self._known else None

    ndims = rank

    @property
    def dims(self) -> list[int | None] | None:
        """The lengths as a list; None if the rank is unknown."""
        return list(self) if self._known else None

    def as_list(self) -> list[int | None]:
        """Return the lengths as a list.

        Raises:
            ValueError: the rank is unknown.
        """
        if not self._known:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self)

    def num_elements(self) -> int | None:
        """Return the number of elements; None if a length is unknown."""
        return math.prod(self) if self.is_fully_defined() else None

    def is_fully_defined(self) -> bool:
        """Return whether the rank and all lengths are known."""
        return self._known and None not in self

    def is_compatible_with(self, other: ShapeLike) -> bool:
        """Return whether some fully defined shape fits both this one and `other`."""
        other = as_shape(other)
        if not (self._known and other._known):
            return True
        return len(self) == len(other) and all(
            a is None or b is None or a == b for a, b in zip(self, other, strict=True)
        )

    def assert_is_compatible_with(self, other: ShapeLike) -> None:
        """Raise a ValueError unless :meth:`is_compatible_with`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {as_shape(other)} are incompatible")

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """Return this shape followed by another; of unknown rank if either is."""
        other = as_shape(other)
        return TensorShape(tuple(self) + tuple(other)) if self._known and other._known else TensorShape(None)

    __add__ = concatenate  # type: ignore[assignment] # a tuple's takes tuples only

    def __radd__(self, other: ShapeLike) -> TensorShape:
        return as_shape(other).concatenate(self)

    # A slice of a shape is a shape; a tuple's method would return a plain tuple.
    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        found = super().__getitem__(key)
        return TensorShape(found) if isinstance(key, slice) else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | tuple):
            return False
        return tuple(self) == tuple(other) and self._known == getattr(other, "_known", True)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:  # __eq__ alone would make shapes unhashable
        return hash(tuple(self))

    # As in TensorFlow a shape is true if its rank is known, and so TensorShape([]) is, unlike an empty tuple.
    def __bool__(self) -> bool:
        return self._known

    def __reduce__(self) -> Any:
        # By `dims`, which is None for an unknown rank: a tuple's own pickle would forget `_known`.
        return TensorShape, (self.dims,)

    def __str__(self) -> str:
        return str(tuple(self)) if self._known else "<unknown>"

    def __repr__(self) -> str:
        return f"TensorShape({list(self) if self._known else None})"


def as_shape(shape: ShapeLike) -> TensorShape:
    """Convert a tuple, a list, an int (one dimension) or None (unknown rank) to a TensorShape."""
    return shape if isinstance(shape, TensorShape) else TensorShape(shape)


class TensorSpec:
    """The shape and dtype of a tensor.

    >>> import tape_tf as tf
    >>> tf.TensorSpec([None, 3])
    TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)
    """

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, shape: ShapeLike, dtype: DTypeLike = dtypes.float32, name: str | None = None) -> None:
        self.shape = as_shape(shape)
        self.dtype = dtypes.as_dtype(dtype)
        self.name = name

    @classmethod
    def from_tensor(cls, tensor: Value, name: str | None = None) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    from_spec = from_tensor

    def is_compatible_with(self, spec_or_tensor: TensorSpec | Value) -> bool:
        """Return whether a tensor or spec has this dtype and a compatible shape."""
        return self.dtype == spec_or_tensor.dtype and self.shape.is_compatible_with(spec_or_tensor.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorSpec):
            return False
        return (self.shape, self.dtype, self.name) == (other.shape, other.dtype, other.name)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"
