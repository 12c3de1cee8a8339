"""Promotion and the limits of data types."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import BackendError

SORTED = [tc.bool, tc.int8, tc.int16, tc.int32, tc.int64, tc.uint8, tc.uint16, tc.uint32, tc.uint64]

FLOATING = [tc.float32, tc.float64, tc.complex64, tc.complex128]


@pytest.mark.parametrize("group", [SORTED, FLOATING], ids=["integers", "floating"])
def test_promotion_is_numpys_where_the_standard_has_it(group: list[tc.DType]) -> None:
    for a in group:
        for b in group:
            if tc.bool in (a, b) and a is not b:
                with pytest.raises(TypeError, match="result_type: "):
                    tc.result_type(a, b)
                continue
            expected = np.result_type(a.name, b.name)
            if expected == np.float64 and group is SORTED:  # uint64 with a signed one
                with pytest.raises(TypeError, match="result_type: "):
                    tc.result_type(a, b)
                continue
            assert tc.result_type(a, b).name == expected.name
            assert tc.can_cast(a, b) == np.can_cast(a.name, b.name)


def test_python_scalars_are_weak() -> None:
    assert tc.result_type(tc.ones(2), 1, True) is tc.float32
    assert tc.result_type(tc.float64, 1j) is tc.complex128
    assert tc.result_type(tc.uint8, 3) is tc.uint8
    for mixed in ((tc.int64, 1.5), (tc.bool, 1), (tc.int64, tc.float32)):
        with pytest.raises(TypeError, match=r"result_type: .* none"):
            tc.result_type(*mixed)
    with pytest.raises(ValueError, match="give an array or a dtype"):
        tc.result_type(1, 2.0)
    assert not tc.can_cast(tc.int64, tc.float32)


@pytest.mark.parametrize("dtype", FLOATING)
def test_finfo(dtype: tc.DType) -> None:
    found, expected = tc.finfo(dtype), np.finfo(dtype.name)
    for name in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(found, name) == getattr(expected, name)
        assert type(getattr(found, name)) in (int, float)
    assert found.dtype.name == expected.dtype.name
    assert tc.finfo(tc.ones(1, dtype=dtype)).eps == found.eps
    with pytest.raises(TypeError, match="use iinfo"):
        tc.finfo(tc.int64)


@pytest.mark.parametrize("dtype", SORTED[1:])
def test_iinfo(dtype: tc.DType) -> None:
    found, expected = tc.iinfo(dtype), np.iinfo(dtype.name)
    assert (found.bits, found.min, found.max) == (expected.bits, expected.min, expected.max)
    with pytest.raises(TypeError, match="use finfo"):
        tc.iinfo(tc.float32)


def test_the_method_that_moves_a_tensor_is_differentiable_and_names_missing_devices() -> None:
    x = tc.Variable([1.0, 2.0], backend="numpy")
    with tc.GradientTape() as tape:
        y = tc.sum((x * 1.0).to_device("cpu") ** 2)
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    with pytest.raises(BackendError, match="no device 'moon'"):
        tc.ones(2, backend="numpy").to_device("moon")
