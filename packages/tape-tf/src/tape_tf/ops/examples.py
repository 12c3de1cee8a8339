"""tf.train.Example and its parts, and tf.io.parse_example: named lists of numbers or strings as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tape_tf import dtypes, wire
from tape_tf.conversion import convert_to_tensor, static
from tape_tf.errors import InvalidArgumentError
from tape_tf.names import exported
from tape_tf.ops.ragged import RaggedTensor
from tape_tf.ops.text import Text
from tape_tf.shapes import as_shape
from tape_tf.string_tensor import strings_of, wrap_strings
from tape_tf.tensor import Tensor
from tape_tf.typing import DTypeLike, ShapeLike

_READING = "Could not parse example input"


class _List:
    """A list of values; the base class of BytesList, FloatList and Int64List.

    Attributes:
        value: the values.
    """

    def __init__(self, value: Any = ()) -> None:
        if isinstance(value, Tensor):
            value = value.numpy()
        self.value = [self._convert(one) for one in value]

    def _convert(self, value: Any) -> Any:
        raise NotImplementedError

    def _encode(self) -> bytes:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    __hash__ = None  # type: ignore[assignment] # it is mutable

    def __repr__(self) -> str:
        return "".join(f"value: {_shown(one)}\n" for one in self.value)


def _shown(value: Any) -> str:
    return '"' + repr(value)[2:-1].replace('"', '\\"') + '"' if isinstance(value, bytes) else f"{value}"


@exported("train.BytesList")
class BytesList(_List):
    """A list of strings: bytes, or str, which is encoded as UTF-8."""

    def _convert(self, value: Any) -> bytes:
        if not isinstance(value, bytes | str) and not isinstance(value, Tensor):
            raise TypeError(f"BytesList takes bytes, got {value!r}")
        found: bytes = strings_of(value).item()
        return found

    def _encode(self) -> bytes:
        return b"".join(wire.bytes_field(1, one) for one in self.value)


@exported("train.FloatList")
class FloatList(_List):
    """A list of floats of 32 bits."""

    def _convert(self, value: Any) -> float:
        return float(np.float32(value))

    def _encode(self) -> bytes:
        return wire.bytes_field(1, wire.packed_floats(self.value)) if self.value else b""


@exported("train.Int64List")
class Int64List(_List):
    """A list of integers."""

    def _convert(self, value: Any) -> int:
        if getattr(value, "dtype", None) == "bool" or isinstance(value, bool):  # arrays of bools have no __index__
            return int(bool(value))
        number = value.__index__() if hasattr(value, "__index__") else int(value)
        if isinstance(value, float) or not -(2**63) <= number < 2**63:
            raise TypeError(f"Int64List takes integers of 64 bits, got {value!r}")
        return int(number)

    def _encode(self) -> bytes:
        return wire.bytes_field(1, b"".join(map(wire.varint, self.value))) if self.value else b""


_KINDS: dict[str, tuple[int, type[_List]]] = {
    "bytes_list": (1, BytesList),
    "float_list": (2, FloatList),
    "int64_list": (3, Int64List),
}
_KIND_OF_DTYPE = {"string": "bytes_list", "float32": "float_list", "int64": "int64_list"}


def _decode_list(kind: str, data: bytes) -> _List:
    values: list[Any] = []
    for number, value in wire.fields(data, _READING):
        if number != 1:
            continue
        if kind == "bytes_list":
            values.append(value)
        elif kind == "float_list":
            values += struct.unpack(f"<{len(value) // 4}f", value)
        else:
            values += map(wire.signed, wire.varints(value) if isinstance(value, bytes) else [value])
    found: _List = object.__new__(_KINDS[kind][1])
    found.value = values
    return found


@exported("train.Feature")
class Feature:
    """A list of values of one kind: give one of `bytes_list`, `float_list` and `int64_list`.

    >>> import tape_tf as tf
    >>> tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2])).int64_list.value
    [1, 2]
    """

    def __init__(
        self,
        bytes_list: BytesList | None = None,
        float_list: FloatList | None = None,
        int64_list: Int64List | None = None,
    ) -> None:
        given = {"bytes_list": bytes_list, "float_list": float_list, "int64_list": int64_list}
        set_ = [name for name, value in given.items() if value is not None]
        if len(set_) > 1:
            raise ValueError(f"a Feature has one list; got {' and '.join(set_)}")
        for name, value in given.items():
            if value is not None and not isinstance(value, _KINDS[name][1]):
                raise TypeError(f"Feature: {name} must be a tf.train.{_KINDS[name][1].__name__}, got {value!r}")
        self._kind = set_[0] if set_ else None
        self._list = given[set_[0]] if set_ else None

    def WhichOneof(self, oneof_group: str = "kind") -> str | None:
        """Return the name of the list that is set, None if there is none."""
        return self._kind

    def HasField(self, name: str) -> bool:
        """Return whether this list is set."""
        return name == self._kind

    def __getattr__(self, name: str) -> Any:
        if name not in _KINDS:
            raise AttributeError(f"a Feature has no {name!r}; there are {', '.join(_KINDS)}")
        # A list that is not set is empty, as in protocol buffers.
        return self._list if name == self._kind else _KINDS[name][1]()

    def SerializeToString(self) -> bytes:
        """Return the feature as bytes."""
        if self._kind is None or self._list is None:
            return b""
        return wire.bytes_field(_KINDS[self._kind][0], self._list._encode())

    @classmethod
    def FromString(cls, serialized: bytes) -> Feature:
        """Return the feature that bytes hold."""
        found = cls()
        for number, value in wire.fields(serialized, _READING):
            for kind, (expected, _) in _KINDS.items():
                if number == expected and isinstance(value, bytes):
                    found._kind, found._list = kind, _decode_list(kind, value)  # type: ignore[assignment]
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feature) and (self._kind, self._list) == (other._kind, other._list)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "" if self._kind is None else f"{self._kind} {{\n{_indented(self._list)}}}\n"


def _indented(value: object, levels: int = 1) -> str:
    return "".join(f"{'  ' * levels}{line}\n" for line in repr(value).splitlines())


@exported("train.Features")
class Features:
    """Features by name.

    Attributes:
        feature: a dict.
    """

    def __init__(self, feature: Mapping[str, Feature] | None = None) -> None:
        self.feature = dict(feature or {})
        for name, value in self.feature.items():
            if not isinstance(value, Feature):
                raise TypeError(f"Features: {name!r} must be a tf.train.Feature, got {value!r}")

    def SerializeToString(self) -> bytes:
        """Return the features as bytes."""
        entries = [
            wire.bytes_field(1, name.encode()) + wire.bytes_field(2, value.SerializeToString())
            for name, value in sorted(self.feature.items())
        ]
        return b"".join(wire.bytes_field(1, entry) for entry in entries)

    @classmethod
    def FromString(cls, serialized: bytes) -> Features:
        """Return the features that bytes hold."""
        found = cls()
        for number, entry in wire.fields(serialized, _READING):
            if number == 1 and isinstance(entry, bytes):
                parts = dict(wire.fields(entry, _READING))
                name = parts.get(1, b"").decode("utf-8", "replace")
                found.feature[name] = Feature.FromString(parts.get(2, b""))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self.feature == other.feature

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "".join(
            f'feature {{\n  key: "{name}"\n  value {{\n{_indented(value, 2)}  }}\n}}\n'
            for name, value in sorted(self.feature.items())
        )


@exported("train.Example")
class Example:
    """An example: features by name, as TFRecord files hold them.

    >>> import tape_tf as tf
    >>> label = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
    >>> example = tf.train.Example(features=tf.train.Features(feature={"label": label}))
    >>> data = example.SerializeToString()
    >>> tf.io.parse_single_example(data, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"].numpy()
    np.int64(3)

    Attributes:
        features: the Features.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()

    def SerializeToString(self) -> bytes:
        """Return the example as bytes, in the format of protocol buffers."""
        return wire.bytes_field(1, self.features.SerializeToString())

    def ParseFromString(self, serialized: Text) -> int:
        """Replace the features by those that bytes hold; returns the number of bytes.

        Raises:
            InvalidArgumentError: the bytes are no example.
        """
        data: bytes = strings_of(serialized).item()
        parts = [value for number, value in wire.fields(data, _READING) if number == 1 and isinstance(value, bytes)]
        self.features = Features.FromString(b"".join(parts))
        return len(data)

    @classmethod
    def FromString(cls, serialized: Text) -> Example:
        """Return the example that bytes hold."""
        found = cls()
        found.ParseFromString(serialized)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Example) and self.features == other.features

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"features {{\n{_indented(self.features)}}}\n"


# -- parsing into tensors


@exported("io.FixedLenFeature")
class FixedLenFeature(NamedTuple):
    """A feature with as many values as its shape has elements; the default is for examples without it."""

    shape: ShapeLike
    dtype: DTypeLike
    default_value: Any = None


@exported("io.FixedLenSequenceFeature")
class FixedLenSequenceFeature(NamedTuple):
    """A feature with any number of values, in rows of a shape; shorter ones in a batch are padded."""

    shape: ShapeLike
    dtype: DTypeLike
    allow_missing: bool = False
    default_value: Any = None


@exported("io.RaggedFeature")
class RaggedFeature(NamedTuple):
    """A feature with any number of values: a vector, or in a batch a ragged tensor."""

    dtype: DTypeLike
    value_key: str | None = None


@exported("io.VarLenFeature", "it gives a ragged tensor in place of a sparse one")
class VarLenFeature(NamedTuple):
    """A feature with any number of values: a vector, or in a batch a ragged tensor."""

    dtype: DTypeLike


def _values(example: Example, key: str, dtype: DTypeLike) -> list[Any] | None:
    """Return the values of a feature; None if the example does not have it."""
    wanted = dtypes.as_dtype(dtype)
    kind = _KIND_OF_DTYPE.get(wanted.name)
    if kind is None:
        raise ValueError(f"Feature: {key}: dtype must be tf.string, tf.float32 or tf.int64; got {wanted.name}")
    feature = example.features.feature.get(key)
    if feature is None or feature.WhichOneof() is None:
        return None
    if feature.WhichOneof() != kind:
        raise InvalidArgumentError(
            None,
            None,
            f"Key: {key}. Data types don't match. Data type: {feature.WhichOneof()} but expected type: {kind}",
        )
    return list(getattr(feature, kind).value)


def _array(values: Sequence[Any], dtype: DTypeLike, shape: Iterable[int]) -> Any:
    out = np.empty(len(values), dtypes.as_dtype(dtype).as_numpy_dtype)
    out[:] = values
    return out.reshape(tuple(shape))


def _fixed(example: Example, key: str, spec: FixedLenFeature) -> Any:
    shape = tuple(as_shape(static(spec.shape) if spec.shape != [] else ()))
    found = _values(example, key, spec.dtype)
    if found is None:
        if spec.default_value is None:
            raise InvalidArgumentError(
                None,
                None,
                f"Feature: {key} (data type: {dtypes.as_dtype(spec.dtype).name}) is required but could not be found.",
            )
        default = convert_to_tensor(spec.default_value, dtype=spec.dtype)
        return np.broadcast_to(np.asarray(default.numpy(), dtypes.as_dtype(spec.dtype).as_numpy_dtype), shape)
    if len(found) != int(np.prod(shape)):
        raise InvalidArgumentError(
            None,
            None,
            f"Key: {key}. Can't parse serialized Example: {len(found)} values, and the shape is {list(shape)}",
        )
    return _array(found, spec.dtype, shape)


def _tensor(array: Any) -> Tensor:
    return wrap_strings(np.array(array, object)) if array.dtype == object else convert_to_tensor(array)


@exported("io.parse_single_example")
def parse_single_example(serialized: Text, features: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return the features of a serialized `tf.train.Example` as tensors, by name.

    Args:
        features: for each name a `tf.io.FixedLenFeature`, `FixedLenSequenceFeature`, `RaggedFeature` or
            `VarLenFeature`.

    Raises:
        InvalidArgumentError: the bytes are no example, or a feature is missing, or of another kind or length.
    """
    given = strings_of(serialized)
    if given.ndim:
        raise InvalidArgumentError(None, None, "parse_single_example takes one string; parse_example a vector")
    found = parse_example(given.reshape(1), features)
    return {key: value[0] for key, value in found.items()}


@exported("io.parse_example")
def parse_example(
    serialized: Text, features: Mapping[str, Any], example_names: object = None, name: str | None = None
) -> dict[str, Any]:
    """Return the features of a vector of serialized examples as tensors with the examples as first dimension.

    Args:
        features: as for :func:`parse_single_example`, which raises the same errors.
    """
    given = strings_of(serialized)
    if given.ndim == 0:
        return parse_single_example(given, features)
    examples = [Example.FromString(one) for one in given.ravel()]
    found: dict[str, Any] = {}
    for key, spec in features.items():
        if isinstance(spec, FixedLenFeature):
            rows = [_fixed(example, key, spec) for example in examples]
            found[key] = _tensor(np.stack(rows)) if rows else _tensor(_array([], spec.dtype, (0,)))
        elif isinstance(spec, FixedLenSequenceFeature):
            found[key] = _sequences(examples, key, spec)
        elif isinstance(spec, RaggedFeature | VarLenFeature):
            source = getattr(spec, "value_key", None) or key
            lists = [_values(example, source, spec.dtype) or [] for example in examples]
            flat = _array([one for row in lists for one in row], spec.dtype, (-1,))
            found[key] = RaggedTensor.from_row_lengths(_tensor(flat), list(map(len, lists)))
        else:
            raise ValueError(
                f"Feature {key!r} must be described by a tf.io.FixedLenFeature, FixedLenSequenceFeature, RaggedFeature "
                f"or VarLenFeature; got {spec!r}"
            )
    return found


def _sequences(examples: list[Example], key: str, spec: FixedLenSequenceFeature) -> Tensor:
    inner = tuple(as_shape(static(spec.shape) if spec.shape != [] else ()))
    rows = []
    for example in examples:
        values = _values(example, key, spec.dtype)
        if values is None and not spec.allow_missing:
            raise InvalidArgumentError(None, None, f"Feature: {key} is required but could not be found.")
        rows.append(_array(values or [], spec.dtype, (-1, *inner)))
    text = dtypes.as_dtype(spec.dtype) is dtypes.string
    default = (b"" if text else 0) if spec.default_value is None else spec.default_value
    out = np.full((len(rows), max(map(len, rows), default=0), *inner), default, _array([], spec.dtype, (0,)).dtype)
    for k, row in enumerate(rows):
        out[k, : len(row)] = row
    return _tensor(out)
