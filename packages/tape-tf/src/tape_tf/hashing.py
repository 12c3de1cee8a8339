"""Hash functions of strings, with the numbers that TensorFlow's have: FarmHash's Fingerprint64, and SipHash-2-4.

Both have a published definition, so that a number that a table, a layer or a file was made with is found again.
"""

from __future__ import annotations

import struct

_ALL = 0xFFFFFFFFFFFFFFFF  # 64 bits: Python's integers are longer
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F  # FarmHash's primes


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _right(value: int, by: int) -> int:
    """Rotate 64 bits to the right."""
    value &= _ALL
    return (value >> by | value << (64 - by)) & _ALL


def _mixed(value: int) -> int:
    value &= _ALL
    return value ^ value >> 47


def _joined(u: int, v: int, factor: int) -> int:
    a = _mixed(((u ^ v) & _ALL) * factor)
    return _mixed(((v & _ALL) ^ a) * factor) * factor & _ALL


def fingerprint64(data: bytes) -> int:
    """Return FarmHash's Fingerprint64 of some bytes.

    >>> from tape_tf.hashing import fingerprint64
    >>> hex(fingerprint64(b""))
    '0x9ae16a3b2f90404f'
    """
    size = len(data)
    if size > 64:
        return _long_fingerprint(data)
    factor = _K2 + 2 * size
    if size > 16:
        return _middle_fingerprint(data, factor)
    if size >= 8:
        a, b = _word(data, 0) + _K2, _word(data, size - 8)
        return _joined(_right(b, 37) * factor + a, (_right(a, 25) + b) * factor, factor)
    if size >= 4:
        first, last = (int.from_bytes(part, "little") for part in (data[:4], data[-4:]))
        return _joined(size + (first << 3), last, factor)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _mixed(y * _K2 ^ z * _K0) * _K2 & _ALL
    return _K2


def _middle_fingerprint(data: bytes, factor: int) -> int:
    """Return the fingerprint of 17 to 64 bytes."""
    size = len(data)
    a, b = _word(data, 0) * (_K1 if size <= 32 else _K2), _word(data, 8)
    c, d = _word(data, size - 8) * factor, _word(data, size - 16) * _K2
    y = _right(a + b, 43) + _right(c, 30) + d
    z = _joined(y, a + _right(b + _K2, 18) + c, factor)
    if size <= 32:
        return z
    e, f = _word(data, 16) * factor, _word(data, 24)
    g, h = (y + _word(data, size - 32)) * factor, (z + _word(data, size - 24)) * factor
    return _joined(_right(e + f, 43) + _right(g, 30) + h, e + _right(f + a, 18) + g, factor)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = struct.unpack_from("<4Q", data, at)
    a += w
    b = _right(b + a + z, 21)
    c = a
    a += x + y
    return (a + z) & _ALL, (b + _right(a, 44) + c) & _ALL


def _long_fingerprint(data: bytes) -> int:
    """Return the fingerprint of more than 64 bytes."""
    x, y = 81, 81 * _K1 + 113
    z = _mixed(y * _K2 + 113) * _K2
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _word(data, 0)
    rest = (len(data) - 1) & 63  # of the last 64 bytes, those that no full block before has; less one

    def step(at: int, factor: int, nine: int) -> None:
        nonlocal x, y, z, v, w
        x = _right(x + y + v[0] + _word(data, at + 8), 37) * factor
        y = _right(y + v[1] + _word(data, at + 48), 42) * factor
        x ^= w[1] * nine
        y += v[0] * nine + _word(data, at + 40)
        z = _right(z + w[0], 33) * factor
        v = _weak(data, at, v[1] * factor, x + w[0])
        w = _weak(data, at + 32, z + w[1], y + _word(data, at + 16))
        x, z = z & _ALL, x & _ALL
        y &= _ALL

    for at in range(0, (len(data) - 1) // 64 * 64, 64):
        step(at, _K1, 1)
    factor = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + rest, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    step(len(data) - 64, factor, 9)
    return _joined(
        _joined(v[0], w[0], factor) + _mixed(y) * _K0 + z, _joined(v[1], w[1], factor) + x, factor
    )  # fmt: skip


def siphash24(data: bytes, key: tuple[int, int]) -> int:
    """Return SipHash-2-4 of some bytes under a key of two numbers of 64 bits.

    >>> from tape_tf.hashing import siphash24
    >>> hex(siphash24(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)))
    '0xa129ca6149be45e5'
    """
    k0, k1 = (part & _ALL for part in key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = (v0 + v1) & _ALL, (v2 + v3) & _ALL
            v1, v3 = _right(v1, 51) ^ v0, _right(v3, 48) ^ v2
            v0 = _right(v0, 32)
            v2, v0 = (v2 + v1) & _ALL, (v0 + v3) & _ALL
            v1, v3 = _right(v1, 47) ^ v2, _right(v3, 43) ^ v0
            v2 = _right(v2, 32)

    whole = len(data) // 8 * 8
    last = data[whole:] + bytes(7 - (len(data) - whole)) + bytes([len(data) & 0xFF])
    for at in range(0, whole + 8, 8):
        word = _word(data, at) if at < whole else _word(last, 0)
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3
