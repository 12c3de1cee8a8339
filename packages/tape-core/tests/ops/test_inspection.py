"""What the namespace can do, DLPack, and shapes that broadcast."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc


def test_broadcast_shapes() -> None:
    for shapes in ((), ((),), ((2, 1), (3,)), ((0,), (1,)), ((5, 1, 3), (1, 4, 1), ())):
        assert tc.broadcast_shapes(*shapes) == np.broadcast_shapes(*shapes)
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(0,\) do not broadcast"):
        tc.broadcast_shapes((2,), (0,))


SORTED = [tc.bool, tc.int8, tc.int16, tc.int32, tc.int64, tc.uint8, tc.uint16, tc.uint32, tc.uint64]

FLOATING = [tc.float32, tc.float64, tc.complex64, tc.complex128]


def test_the_namespace_says_what_it_can_do() -> None:
    info = tc.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.capabilities()["boolean indexing"]
    assert info.default_dtypes() == {
        "real floating": tc.float32,
        "complex floating": tc.complex64,
        "integral": tc.int64,
        "indexing": tc.int64,
    }
    assert set(info.dtypes()) == {d.name for d in SORTED + FLOATING}
    assert info.dtypes(kind="complex floating") == {"complex64": tc.complex64, "complex128": tc.complex128}
    assert list(info.dtypes(kind=("bool", "signed integer"))) == ["bool", "int8", "int16", "int32", "int64"]
    assert tc.ones(1).__array_namespace__() is tc
    assert tc.__array_api_version__ == "2025.12"


def test_dlpack_both_ways() -> None:
    raw = np.arange(3.0)
    x = tc.from_dlpack(raw)
    assert x.dtype is tc.float64
    assert np.shares_memory(x.array, raw)
    assert not np.shares_memory(tc.from_dlpack(raw, copy=True).array, raw)
    assert np.from_dlpack(x).tolist() == [0.0, 1.0, 2.0]
    assert x.__dlpack_device__() == (1, 0)
    assert tc.from_dlpack(x).tolist() == x.tolist()
    with pytest.raises(TypeError, match="'list' has no __dlpack__"):
        tc.from_dlpack([1.0])
