"""TensorArray, a list of tensors written one by one; dynamic_partition and dynamic_stitch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import match_dtypes, native, static, wrap
from tape_tf.errors import InvalidArgumentError, OutOfRangeError
from tape_tf.names import exported
from tape_tf.shapes import as_shape
from tape_tf.typing import DTypeLike, IntLike, ShapeLike, TensorLike


@exported("TensorArray")
class TensorArray:
    """A list of tensors of one dtype, for loops. A method that writes changes the list and returns it.

    >>> import tape_tf as tf
    >>> rows = tf.TensorArray(tf.float32, size=2)
    >>> for k in range(2):
    ...     rows = rows.write(k, [1.0 * k, 2.0])
    >>> rows.stack().shape
    TensorShape([2, 2])

    Args:
        dtype: the dtype of the tensors.
        size: the number of tensors.
        dynamic_size: let the list grow when it is written past its end.
        clear_after_read: let each tensor be read only once, which is the default.
        element_shape: the shape that each tensor must be compatible with; lengths may be None.
    """

    def __init__(
        self,
        dtype: DTypeLike,
        size: IntLike | None = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: object = None,
        handle: object = None,
        flow: object = None,
        infer_shape: bool = True,
        element_shape: ShapeLike = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        self.dtype = dtypes.as_dtype(dtype)
        self.dynamic_size = bool(dynamic_size)
        self.element_shape = as_shape(element_shape)
        # TensorFlow frees a tensor when it has been read; here only the error of a second read is copied, not the
        # freeing.
        self._clear = clear_after_read is not False
        self._parts: list[tc.Tensor | None] = [None] * (static(size) or 0)
        self._read: set[int] = set()

    def write(self, index: IntLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """Set the tensor at `index`.

        Raises:
            OutOfRangeError: the index is past the end, and the size is fixed.
            ValueError: the tensor has another dtype, or a shape that does not fit `element_shape`.
        """
        k, part = static(index), native(value, self.dtype)
        if not self.element_shape.is_compatible_with(part.shape):
            raise ValueError(f"Incompatible shape for value ({part.shape}), expected ({self.element_shape})")
        if k >= len(self._parts) and self.dynamic_size:
            self._parts += [None] * (k + 1 - len(self._parts))
        self._check_index(k)
        self._parts[k] = part
        self._read.discard(k)
        return self

    def read(self, index: IntLike, name: str | None = None) -> Any:
        """Return the tensor at `index`; one that was not written is zeros of the shape of the others.

        Raises:
            OutOfRangeError: the index is past the end.
            InvalidArgumentError: it was read before, which cleared it.
        """
        k = static(index)
        self._check_index(k)
        if self._clear and k in self._read:
            raise InvalidArgumentError(
                None,
                None,
                f"Could not read index {k} twice because it was cleared after a previous read (perhaps try setting "
                f"clear_after_read = false?)",
            )
        self._read.add(k)
        # Unwritten tensors are zeros, as in TensorFlow: their shape is taken from one that was written.
        return wrap(self._tensors()[k])

    def _check_index(self, k: int) -> None:
        if not 0 <= k < len(self._parts):
            raise OutOfRangeError(
                None,
                None,
                f"Tried to access index {k} but array is not resizeable and size is: {len(self._parts)}",
            )

    def _tensors(self) -> list[tc.Tensor]:
        """Return all tensors, with zeros for those that were not written."""
        known = next((part for part in self._parts if part is not None), None)
        if known is None and self._parts:
            raise ValueError("nothing was written to the TensorArray")
        return [tc.zeros_like(known) if part is None else part for part in self._parts]

    def stack(self, name: str | None = None) -> Any:
        """Return all tensors, stacked along a new first dimension."""
        parts = self._tensors()
        return wrap(tc.stack(parts)) if parts else wrap(native([], self.dtype))

    def concat(self, name: str | None = None) -> Any:
        """Return all tensors, concatenated along their first dimension."""
        return wrap(tc.concat(self._tensors(), axis=0))

    def gather(self, indices: Sequence[IntLike] | TensorLike, name: str | None = None) -> Any:
        """Return the tensors at `indices`, stacked along a new first dimension."""
        parts = self._tensors()
        return wrap(tc.stack([parts[k] for k in static(indices)]))

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """Set all tensors to the parts of `value` along its first dimension."""
        parts = list(tc.unstack(native(value, self.dtype)))
        if len(parts) > len(self._parts) and not self.dynamic_size:
            raise ValueError(f"{len(parts)} parts do not fit into a TensorArray of size {len(self._parts)}")
        self._parts = [*parts]
        self._read.clear()
        return self

    def scatter(
        self, indices: Sequence[IntLike] | TensorLike, value: TensorLike, name: str | None = None
    ) -> TensorArray:
        """Set the tensors at `indices` to the parts of `value` along its first dimension."""
        for k, part in zip(static(indices), tc.unstack(native(value, self.dtype)), strict=True):
            self.write(k, wrap(part))
        return self

    def split(self, value: TensorLike, lengths: TensorLike, name: str | None = None) -> TensorArray:
        """Set all tensors to consecutive parts of `value` of these lengths."""
        self._parts = list(tc.split(native(value, self.dtype), list(static(lengths)), axis=0))
        self._read.clear()
        return self

    def size(self, name: str | None = None) -> Any:
        """Return the number of tensors, an int32 tensor."""
        return wrap(native(len(self._parts)))

    def identity(self) -> TensorArray:
        """Return the TensorArray itself."""
        return self

    def close(self, name: str | None = None) -> None:
        """Drop all tensors."""
        self._parts = []

    def __len__(self) -> int:
        return len(self._parts)


@exported("dynamic_partition")
def dynamic_partition(
    data: TensorLike, partitions: TensorLike, num_partitions: IntLike, name: str | None = None
) -> list[Any]:
    """Split `data` into `num_partitions` tensors: row i goes into the tensor with the number `partitions[i]`."""
    values, numbers = native(data), native(partitions)
    if values.shape[: numbers.ndim] != numbers.shape:
        raise ValueError(f"data.shape must start with partitions.shape, got {values.shape} and {numbers.shape}")
    return [wrap(values[numbers == k]) for k in range(static(num_partitions))]


@exported("dynamic_stitch")
def dynamic_stitch(indices: Sequence[TensorLike], data: Sequence[TensorLike], name: str | None = None) -> Any:
    """Merge the rows of several tensors into one, at the given `indices`; of rows for one index, the last stays."""
    places = [native(part) for part in indices]
    values = match_dtypes(list(data), "DynamicStitch")
    flat = tc.concat([tc.reshape(part, (-1,)) for part in places])
    rest = values[0].shape[places[0].ndim :]
    rows = tc.concat([tc.reshape(part, (-1, *rest)) for part in values])
    # The length depends on values, so that a compiled function cannot contain this.
    n = int(tc.max(flat)) + 1
    blank = tc.zeros((n, *rest), dtype=rows.dtype, backend=rows.backend.root, device=rows.device)
    return wrap(tc.at(blank)[flat].set(rows))
