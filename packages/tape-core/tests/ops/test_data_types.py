"""Promotion and the limits of data types."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import BackendError

SORTED = [tc.bool, tc.int8, tc.int16, tc.int32, tc.int64, tc.uint8, tc.uint16, tc.uint32, tc.uint64]

FLOATING = [tc.float32, tc.float64, tc.complex64, tc.complex128]


@pytest.mark.parametrize("group", [SORTED, FLOATING], ids=["integers", "floating"])
def test_promotion_within_a_kind_is_numpys(group: list[tc.DType]) -> None:
    for a in group:
        for b in group:
            expected = np.result_type(a.name, b.name).name
            if expected == "float64" and group is SORTED:  # uint64 with a signed one
                expected = "float32"
            else:
                assert tc.can_cast(a, b) == np.can_cast(a.name, b.name)
            assert tc.result_type(a, b).name == expected


def test_between_kinds_the_higher_one_decides() -> None:
    for low in SORTED:
        for high in (tc.float16, tc.bfloat16, *FLOATING):
            assert tc.result_type(low, high) is tc.result_type(high, low) is high
    assert tc.result_type(tc.float64, tc.complex64) is tc.complex128
    assert tc.result_type(tc.float16, tc.bfloat16) is tc.float32
    assert tc.result_type(tc.int64, tc.float32, tc.complex64) is tc.complex64
    assert tc.can_cast(tc.int64, tc.float32)


def test_numbers_are_weak_pythons_and_numpys() -> None:
    assert tc.result_type(tc.ones(2), 1, True) is tc.float32
    assert tc.result_type(tc.float64, 1j) is tc.complex128
    assert tc.result_type(tc.uint8, 3) is tc.uint8
    assert tc.result_type(tc.int64, 1.5) is tc.result_type(tc.bool, np.float64(1.5)) is tc.float32
    assert tc.result_type(tc.bool, 1) is tc.int64
    assert tc.result_type(tc.int8, 1j) is tc.complex64
    assert tc.result_type(tc.float16, np.float64(2)) is tc.float16
    assert tc.result_type(tc.float32, np.complex128(2)) is tc.complex64
    with pytest.raises(ValueError, match="give an array or a dtype"):
        tc.result_type(1, 2.0)


def test_the_default_dtype_is_that_of_functions_of_integers() -> None:
    n = tc.arange(1, 4)
    try:
        for dtype in (tc.float64, tc.float16, None):
            tc.set_default_dtype(dtype)
            default = tc.get_default_dtype()
            found = (n / 2, n * 0.5, n / n, tc.sin(n), tc.mean(n), tc.std(n), tc.asarray(n, dtype="int16") ** 0.5)
            assert [x.dtype for x in found] == [default] * 7
            assert (n * tc.ones(3, dtype="float32")).dtype is tc.float32
            assert tc.sin(tc.asarray([1], dtype="int16")).dtype is default
    finally:
        tc.set_default_dtype(None)


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


def test_a_call_that_is_made_again_in_another_dtype_warns_once() -> None:
    n, x = tc.asarray([0, 1]), tc.asarray([0.0, 1.0])
    for call in (
        lambda: tc.log(n),
        lambda: n / x,
        lambda: tc.logaddexp(tc.asarray([1, 2]), tc.asarray([1.0, 2.0])) + tc.log(n),
        lambda: tc.function(tc.log)(n),
    ):
        # Tests that interrupt at any opcode, also between `__enter__` and its block, may have left NumPy silent.
        with warnings.catch_warnings(record=True) as found, np.errstate(divide="warn", invalid="warn"):
            warnings.simplefilter("always")
            call()
        assert len(found) == (1 if tc.get_backend().name == "numpy" else 0)
