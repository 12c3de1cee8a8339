"""tf.lookup: tables from keys to values, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape_tf import dtypes
from tape_tf.conversion import constant, convert_to_tensor
from tape_tf.errors import InvalidArgumentError
from tape_tf.hashing import fingerprint64
from tape_tf.names import exported
from tape_tf.ops.ragged import RaggedTensor
from tape_tf.ops.text import Text
from tape_tf.string_tensor import StringTensor, strings_of, wrap_strings
from tape_tf.tensor import Tensor
from tape_tf.typing import DTypeLike, NumPyArray, TensorLike


def _array(value: Any, dtype: DTypeLike = None) -> NumPyArray:
    """Return keys or values as a NumPy array; strings as bytes."""
    tensor = convert_to_tensor(value, dtype=dtype)
    return strings_of(tensor) if isinstance(tensor, StringTensor) else np.asarray(tensor.numpy())


@exported("lookup.KeyValueTensorInitializer")
class KeyValueTensorInitializer:
    """The content of a table: keys, and the value of each."""

    def __init__(
        self,
        keys: Text | TensorLike,
        values: Text | TensorLike,
        key_dtype: DTypeLike = None,
        value_dtype: DTypeLike = None,
        name: str | None = None,
    ) -> None:
        self.keys, self.values = _array(keys, key_dtype), _array(values, value_dtype)
        if self.keys.shape != self.values.shape:
            raise ValueError(
                f"KeyValueTensorInitializer: {self.keys.shape} keys and {self.values.shape} values; each key has one"
            )


@exported("lookup.StaticHashTable")
class StaticHashTable:
    """A table from keys to values, with a value for keys that it does not have.

    >>> import tape_tf as tf
    >>> content = tf.lookup.KeyValueTensorInitializer(["emerson", "lake"], [0, 1])
    >>> table = tf.lookup.StaticHashTable(content, default_value=-1)
    >>> table.lookup(tf.constant(["lake", "palmer"])).numpy()
    array([ 1, -1], dtype=int32)

    Raises:
        InvalidArgumentError: a key has two values.
    """

    def __init__(
        self,
        initializer: KeyValueTensorInitializer,
        default_value: Any,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        keys, values = initializer.keys, initializer.values
        self.key_dtype, self.value_dtype = dtypes.as_dtype(keys.dtype), dtypes.as_dtype(values.dtype)
        self._table: dict[Any, Any] = {}
        self._default: Any = _array(default_value, self.value_dtype).item()
        self._insert(keys, values, replace=False)

    def _insert(self, keys: NumPyArray, values: NumPyArray, replace: bool) -> None:
        for key, value in zip(keys.ravel().tolist(), values.ravel().tolist(), strict=True):
            if not replace and self._table.get(key, value) != value:
                raise InvalidArgumentError(
                    None, None, f"HashTable has different value for same key. Key {key!r} has {self._table[key]!r} and "
                    f"trying to add value {value!r}",
                )  # fmt: skip
            self._table[key] = value

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of keys, a tensor of their shape."""
        if isinstance(keys, RaggedTensor):
            return keys.with_flat_values(self.lookup(keys.flat_values))
        given = _array(keys, self.key_dtype)
        out = np.empty(given.size, self.value_dtype.as_numpy_dtype)
        out[:] = [self._table.get(key, self._default) for key in given.ravel().tolist()]
        return _tensor(out.reshape(given.shape))

    __getitem__ = lookup

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of keys, int64."""
        return constant(np.int64(len(self._table)))

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Return all keys and their values."""
        keys = np.empty(len(self._table), self.key_dtype.as_numpy_dtype)
        values = np.empty(len(self._table), self.value_dtype.as_numpy_dtype)
        keys[:], values[:] = list(self._table), list(self._table.values())
        return _tensor(keys), _tensor(values)


@exported("lookup.StaticVocabularyTable")
class StaticVocabularyTable:
    """A table from words to their numbers, with buckets for words that it does not have, by their hash.

    >>> import tape_tf as tf
    >>> content = tf.lookup.KeyValueTensorInitializer(["emerson", "lake"], tf.constant([0, 1], tf.int64))
    >>> table = tf.lookup.StaticVocabularyTable(content, num_oov_buckets=5)
    >>> table.lookup(tf.constant(["lake", "palmer"])).numpy()
    array([1, 4])

    Args:
        initializer: the words, and their numbers: 0, 1 and so on, int64; None: all words go into buckets.
        num_oov_buckets: how many numbers there are for other words, after those of the table.
        lookup_key_dtype: the dtype of the keys, where there is no initializer.

    Raises:
        ValueError: there is no bucket.
        TypeError: the numbers are not int64.
    """

    def __init__(
        self,
        initializer: KeyValueTensorInitializer | None,
        num_oov_buckets: int,
        lookup_key_dtype: DTypeLike = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError(f"oov_buckets must be > 0, got {num_oov_buckets}; StaticHashTable has none")
        if initializer is None:
            initializer = KeyValueTensorInitializer([], [], lookup_key_dtype or dtypes.string, dtypes.int64)
        if initializer.values.dtype != np.int64:
            raise TypeError(
                f"Invalid `value_dtype`, expected {dtypes.int64} but got {dtypes.as_dtype(initializer.values.dtype)}."
            )
        self._known = StaticHashTable(initializer, -1)
        self._buckets = int(num_oov_buckets)
        self.key_dtype, self.value_dtype = self._known.key_dtype, dtypes.int64

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the numbers of words, a tensor of their shape."""
        if isinstance(keys, RaggedTensor):
            return keys.with_flat_values(self.lookup(keys.flat_values))
        given = _array(keys, self.key_dtype)
        found = self._known.lookup(keys).numpy()
        start = int(self._known.size())
        flat = np.reshape(found, -1)
        for k in np.flatnonzero(flat < 0):
            key = given.ravel()[k]
            text = key if isinstance(key, bytes) else str(key).encode()  # integers are hashed as they are written
            flat[k] = start + fingerprint64(text) % self._buckets
        return _tensor(flat.reshape(given.shape))

    __getitem__ = lookup

    def size(self, name: str | None = None) -> Tensor:
        """Return the number of words and buckets, int64."""
        return constant(np.int64(int(self._known.size()) + self._buckets))


def _tensor(values: NumPyArray) -> Tensor:
    return wrap_strings(values) if values.dtype == object else convert_to_tensor(values)


@exported("lookup.experimental.MutableHashTable")
class MutableHashTable(StaticHashTable):
    """A table whose keys may be added and removed.

    Args:
        key_dtype, value_dtype: the dtypes.
        default_value: for keys that it does not have.
    """

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        default_value: Any,
        name: str = "MutableHashTable",
        **ignored: Any,
    ) -> None:
        kinds = [np.zeros(0, dtypes.as_dtype(dtype).as_numpy_dtype) for dtype in (key_dtype, value_dtype)]
        content: KeyValueTensorInitializer = object.__new__(KeyValueTensorInitializer)
        content.keys, content.values = kinds
        super().__init__(content, default_value)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> None:
        """Add keys, or give them other values."""
        self._insert(_array(keys, self.key_dtype), _array(values, self.value_dtype), replace=True)

    def remove(self, keys: Any, name: str | None = None) -> None:
        """Remove keys; those that are not there are ignored."""
        for key in _array(keys, self.key_dtype).ravel().tolist():
            self._table.pop(key, None)
