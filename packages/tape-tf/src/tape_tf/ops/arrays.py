"""TensorArray: a list of tensors, written one by one."""

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
    """A list of tensors of one dtype, for loops. Writing changes it, and returns it, as in TensorFlow.

    >>> import tape_tf as tf
    >>> rows = tf.TensorArray(tf.float32, size=2)
    >>> for k in range(2):
    ...     rows = rows.write(k, [1.0 * k, 2.0])
    >>> rows.stack().shape
    TensorShape([2, 2])

    Args:
        dtype: that of the tensors.
        size: how many there are.
        dynamic_size: whether it grows where it is written past its end.
        clear_after_read: whether each may be read once only.
        element_shape: what each must have; lengths may be None.
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
        self._clear = clear_after_read is not False
        self._parts: list[tc.Tensor | None] = [None] * (static(size) or 0)
        self._read: set[int] = set()

    def write(self, index: IntLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """Set one.

        Raises:
            OutOfRangeError: it is past the end, and the size is fixed.
            ValueError: a tensor of another dtype, or another shape than `element_shape`.
        """
        k, part = static(index), native(value, self.dtype)
        if not self.element_shape.is_compatible_with(part.shape):
            raise ValueError(f"Incompatible shape for value ({part.shape}), expected ({self.element_shape})")
        if k >= len(self._parts) and self.dynamic_size:
            self._parts += [None] * (k + 1 - len(self._parts))
        self._check(k)
        self._parts[k] = part
        self._read.discard(k)
        return self

    def read(self, index: IntLike, name: str | None = None) -> Any:
        """One of them; zeros of the others' shape where it was not written.

        Raises:
            OutOfRangeError: it is past the end.
            InvalidArgumentError: it was read before, and is cleared after that.
        """
        k = static(index)
        self._check(k)
        if self._clear and k in self._read:
            raise InvalidArgumentError(
                None,
                None,
                f"Could not read index {k} twice because it was cleared after a previous read (perhaps try setting "
                f"clear_after_read = false?)",
            )
        self._read.add(k)
        return wrap(self._all()[k])

    def _check(self, k: int) -> None:
        if not 0 <= k < len(self._parts):
            raise OutOfRangeError(
                None,
                None,
                f"Tried to access index {k} but array is not resizeable and size is: {len(self._parts)}",
            )

    def _all(self) -> list[tc.Tensor]:
        known = next((part for part in self._parts if part is not None), None)
        if known is None and self._parts:
            raise ValueError("nothing was written to the TensorArray")
        return [tc.zeros_like(known) if part is None else part for part in self._parts]

    def stack(self, name: str | None = None) -> Any:
        """All of them along a new first dimension."""
        parts = self._all()
        return wrap(tc.stack(parts)) if parts else wrap(native([], self.dtype))

    def concat(self, name: str | None = None) -> Any:
        """All of them, one after the other along their first dimension."""
        return wrap(tc.concat(self._all(), axis=0))

    def gather(self, indices: Sequence[IntLike] | TensorLike, name: str | None = None) -> Any:
        """Some of them along a new first dimension."""
        parts = self._all()
        return wrap(tc.stack([parts[k] for k in static(indices)]))

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """Set all, from the parts of a tensor along its first dimension."""
        parts = list(tc.unstack(native(value, self.dtype)))
        if len(parts) > len(self._parts) and not self.dynamic_size:
            raise ValueError(f"{len(parts)} parts do not fit into a TensorArray of size {len(self._parts)}")
        self._parts = [*parts]
        self._read.clear()
        return self

    def scatter(
        self, indices: Sequence[IntLike] | TensorLike, value: TensorLike, name: str | None = None
    ) -> TensorArray:
        """Set some, from the parts of a tensor."""
        for k, part in zip(static(indices), tc.unstack(native(value, self.dtype)), strict=True):
            self.write(k, wrap(part))
        return self

    def split(self, value: TensorLike, lengths: TensorLike, name: str | None = None) -> TensorArray:
        """Set all, from consecutive parts of a tensor of these lengths."""
        self._parts = list(tc.split(native(value, self.dtype), list(static(lengths)), axis=0))
        self._read.clear()
        return self

    def size(self, name: str | None = None) -> Any:
        """How many there are, an int32 tensor."""
        return wrap(native(len(self._parts)))

    def identity(self) -> TensorArray:
        """Itself."""
        return self

    def close(self, name: str | None = None) -> None:
        """Forget all of them."""
        self._parts = []

    def __len__(self) -> int:
        return len(self._parts)


@exported("dynamic_partition")
def dynamic_partition(
    data: TensorLike, partitions: TensorLike, num_partitions: IntLike, name: str | None = None
) -> list[Any]:
    """The rows of `data` that go to each of `num_partitions` tensors, by number."""
    values, numbers = native(data), native(partitions)
    if values.shape[: numbers.ndim] != numbers.shape:
        raise ValueError(f"data.shape must start with partitions.shape, got {values.shape} and {numbers.shape}")
    return [wrap(values[numbers == k]) for k in range(static(num_partitions))]


@exported("dynamic_stitch")
def dynamic_stitch(indices: Sequence[TensorLike], data: Sequence[TensorLike], name: str | None = None) -> Any:
    """Rows of several tensors at the places that `indices` say; of several for one place the last."""
    places = [native(part) for part in indices]
    values = match_dtypes(list(data), "DynamicStitch")
    flat = tc.concat([tc.reshape(part, (-1,)) for part in places])
    rest = values[0].shape[places[0].ndim :]
    rows = tc.concat([tc.reshape(part, (-1, *rest)) for part in values])
    n = int(tc.max(flat)) + 1
    blank = tc.zeros((n, *rest), dtype=rows.dtype, backend=rows.backend.root, device=rows.device)
    return wrap(tc.at(blank)[flat].set(rows))
