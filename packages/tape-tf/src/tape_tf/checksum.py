"""CRC-32C, the checksum of TFRecord files, on NumPy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tape_tf.typing import NumPyArray

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, with its bits reversed
_SHORT = 512  # bytes; below, a loop in Python is quicker than NumPy's


def _byte_table() -> NumPyArray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _byte_table()
_TABLE_LIST: list[int] = _TABLE.tolist()


def _extend(state: int, data: bytes) -> int:
    """Return the register after some bytes."""
    for byte in data:
        state = _TABLE_LIST[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


@lru_cache(maxsize=64)
def _zeros(log_length: int) -> Any:
    """Return tables of what `2**log_length` zero bytes do to a register: one for each of its four bytes.

    The register is a vector of bits, and bytes of zeros a linear map of it.
    """
    columns = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if log_length:
        half = _zeros(log_length - 1)
        images = _apply(half, _apply(half, columns))
    else:
        images = _TABLE[columns & 0xFF] ^ (columns >> 8)
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    return [np.bitwise_xor.reduce(bits * images[8 * k : 8 * k + 8], axis=1).astype(np.uint32) for k in range(4)]


def _apply(tables: Any, state: Any) -> Any:
    return (
        tables[0][state & 0xFF]
        ^ tables[1][(state >> 8) & 0xFF]
        ^ tables[2][(state >> 16) & 0xFF]
        ^ tables[3][(state >> 24) & 0xFF]
    )


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes.

    >>> from tape_tf.checksum import crc32c
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    state = 0xFFFFFFFF
    if len(data) >= _SHORT:
        # Pieces of one length are processed side by side, each from a register of zero, and then joined: the register
        # after a piece is that of the piece alone, and what its length of zeros makes of the register before.
        log_length = max((len(data).bit_length()) // 2, 4)
        length = 1 << log_length
        count = len(data) // length
        rows = np.frombuffer(data, np.uint8, count * length).reshape(count, length).T.astype(np.uint32)
        registers = np.zeros(count, np.uint32)
        for column in rows:
            registers = _TABLE[(registers ^ column) & 0xFF] ^ (registers >> 8)
        tables = [table.tolist() for table in _zeros(log_length)]
        for register in registers.tolist():
            state = register ^ _apply(tables, state)
        data = data[count * length :]
    return _extend(state, data) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Return the masked checksum that TFRecord files hold: rotated, and a constant added."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
