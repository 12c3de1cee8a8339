"""Sorting, searching, sets, data type functions, inspection and DLPack: NumPy's values, the standard's rules."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import tape_core as tc
from hypothesis import given, settings
from hypothesis import strategies as st

FAST = settings(max_examples=25, deadline=None, derandomize=True, database=None)
SMALL = hnp.arrays(
    st.sampled_from(["int64", "float32", "float64"]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    elements=st.integers(-3, 3).map(float) | st.integers(-3, 3),
)
INTEGERS = hnp.arrays("int64", hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), elements=st.integers(-3, 3))
SORTED = [tc.bool, tc.int8, tc.int16, tc.int32, tc.int64, tc.uint8, tc.uint16, tc.uint32, tc.uint64]
FLOATING = [tc.float32, tc.float64, tc.complex64, tc.complex128]


@FAST
@given(x=INTEGERS, data=st.data(), descending=st.booleans())
def test_sort_and_argsort(x: Any, data: st.DataObject, descending: bool) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    before = x.copy()
    t = tc.asarray(x)
    order = tc.argsort(t, axis=axis, descending=descending)
    found = tc.sort(t, axis=axis, descending=descending)
    # Stable in both directions: as of the values, larger first where descending.
    expected = np.argsort(-x if descending else x, axis=axis, stable=True)
    assert order.tolist() == expected.tolist()
    assert found.tolist() == np.take_along_axis(x, expected, axis=axis).tolist()
    assert found.dtype is t.dtype
    assert np.array_equal(x, before), "the input was changed"


def test_the_gradient_of_sort_goes_where_the_elements_came_from() -> None:
    x = tc.asarray([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    weights = tc.asarray([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        up, down = tc.sort(x) * weights, tc.sort(x, descending=True) * weights
    assert tape.gradient(up, x).tolist() == [[30.0, 10.0, 20.0], [2.0, 3.0, 1.0]]
    assert tape.gradient(down, x).tolist() == [[10.0, 30.0, 20.0], [1.0, 2.0, 3.0]]


@FAST
@given(x=INTEGERS)
def test_sets_and_nonzero(x: Any) -> None:
    t = tc.asarray(x)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        found, expected = getattr(tc, name)(t), getattr(np, name)(x)
        assert found._fields == expected._fields
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    assert sorted(tc.unique_values(t).tolist()) == np.unique(x).tolist()  # in no order
    assert [part.tolist() for part in tc.nonzero(t)] == [part.tolist() for part in np.nonzero(x)]


@FAST
@given(data=st.data(), side=st.sampled_from(["left", "right"]))
def test_searchsorted(data: st.DataObject, side: Any) -> None:
    x = np.asarray(data.draw(st.lists(st.integers(-3, 3), min_size=1)), dtype="float64")
    v = data.draw(INTEGERS).astype("float64")
    sorter = np.argsort(x)
    assert tc.searchsorted(tc.asarray(np.sort(x)), tc.asarray(v), side=side).tolist() == (
        np.searchsorted(np.sort(x), v, side=side).tolist()
    )
    assert tc.searchsorted(tc.asarray(x), tc.asarray(v), side=side, sorter=tc.asarray(sorter)).tolist() == (
        np.searchsorted(x, v, side=side, sorter=sorter).tolist()
    )


@FAST
@given(x=INTEGERS, n=st.integers(0, 3), data=st.data())
def test_diff(x: Any, n: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    edge = x.take([0], axis=axis)
    assert tc.diff(tc.asarray(x), axis=axis, n=n).tolist() == np.diff(x, axis=axis, n=n).tolist()
    found = tc.diff(tc.asarray(x), axis=axis, n=n, prepend=tc.asarray(edge), append=tc.asarray(edge))
    assert found.tolist() == np.diff(x, axis=axis, n=n, prepend=edge, append=edge).tolist()


def test_diff_is_differentiable_and_refuses_what_makes_no_sense() -> None:
    x = tc.asarray([1.0, 4.0, 9.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.diff(x) ** 2
    assert tape.gradient(y, x).tolist() == [-6.0, -4.0, 10.0]
    with pytest.raises(ValueError, match="n must not be negative"):
        tc.diff(x, n=-1)
    with pytest.raises(IndexError, match="no axis 1"):
        tc.diff(x, axis=1)


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
