"""The wire format of protocol buffers: reading and writing fields of messages, of which TensorFlow's files consist.

The messages here have a handful of fields, so that a reader of the format is shorter than what the package protobuf
needs to describe them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tape_tf.errors import InvalidArgumentError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Encode an integer in groups of seven bits; a negative one as its 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number: int, value: int, keep_zero: bool = False) -> bytes:
    """Encode an integer field; zero, the default of every field, is left out."""
    return varint(number << 3 | _VARINT) + varint(value) if value or keep_zero else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field of bytes: a string, a message, or packed numbers."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def signed(value: int) -> int:
    """Return an integer of 64 bits with its sign."""
    return value - 2**64 if value >= 2**63 else value


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer that begins at a place, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number ends early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7


def varints(data: bytes) -> Iterator[int]:
    """Yield packed integers."""
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield value


def fields(data: bytes, what: str) -> list[tuple[int, Any]]:
    """Return the fields of a message: their numbers, and an int or bytes each.

    Args:
        what: what is read, for the message of the error.

    Raises:
        InvalidArgumentError: the bytes are no message.
    """
    found: list[tuple[int, Any]] = []
    at = 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            number, kind = tag >> 3, tag & 7
            value: Any
            if kind == _VARINT:
                value, at = read_varint(data, at)
            else:
                if kind == _BYTES:
                    size, at = read_varint(data, at)
                else:
                    size = {_FIXED64: 8, _FIXED32: 4}[kind]
                value, at = data[at : at + size], at + size
                if at > len(data):
                    raise ValueError("a field ends early")
            if not number:
                raise ValueError("a field has the number 0")
            found.append((number, value))
    except (ValueError, KeyError) as error:
        raise InvalidArgumentError(None, None, f"{what}: could not parse the message: {error}") from None
    return found


def packed_floats(values: list[float]) -> bytes:
    """Encode numbers as packed floats of 32 bits."""
    return struct.pack(f"<{len(values)}f", *values)
