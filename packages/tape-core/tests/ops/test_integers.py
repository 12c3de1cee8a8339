"""Unsigned integers of all sizes, and integers of Python's beside arrays that cannot hold them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import tape_core as tc

pytestmark = pytest.mark.each_backend

UNSIGNED = {"uint8": 2**8 - 2, "uint16": 2**16 - 2, "uint32": 2**32 - 2, "uint64": 2**64 - 2}


def values(dtype: str) -> np.ndarray:
    return np.array([[1, UNSIGNED[dtype], 3], [UNSIGNED[dtype], 5, 6]], dtype=dtype)


MASK = np.array([[False, True, False], [True, True, True]])
KEYS: dict[str, Any] = {
    "mask": MASK, "mask of rows": MASK[:, 2], "rows": np.array([1, 1]), "slice": slice(0, 1), "integer": 1,
    "last axis": (..., 1), "pairs": (np.array([0, 1]), np.array([2, 0])),
}  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dtype", UNSIGNED)
def test_elements_of_unsigned_arrays_are_read_and_replaced(dtype, key):
    a, k = values(dtype), KEYS[key]
    x = tc.asarray(a)
    assert x[k].tolist() == a[k].tolist()
    for new in (7, UNSIGNED[dtype]):
        expected = a.copy()
        expected[k] = np.array(new, dtype=dtype)
        found = tc.asarray(a.copy())
        found[k] = new
        assert found.tolist() == tc.at(x)[k].set(new).tolist() == expected.tolist()
        assert tc.at(x)[k].set(x[k] * 0 + tc.asarray(new, dtype=dtype)).tolist() == expected.tolist()
    assert x.tolist() == a.tolist()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("update", ["add", "multiply", "min", "max"])
def test_elements_of_unsigned_arrays_are_updated_as_numpy_does(update, dtype, key):
    a, k = values(dtype), KEYS[key]
    function: Any = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[update]
    for value in (3, UNSIGNED[dtype]):
        expected = a.copy()
        function.at(expected, k, np.array(value, dtype=dtype))
        assert getattr(tc.at(tc.asarray(a))[k], update)(value).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_a_large_unsigned_value_is_a_python_number(dtype):
    x = tc.asarray(values(dtype))[0, 1]
    n = UNSIGNED[dtype]
    assert x.item() == int(x) == n
    assert float(x) == float(n)
    assert bool(x)
    x = x + 0
    x[tc.asarray(True)] = 5
    assert x.item() == 5


WIDE = {"uint8": [256, -1], "int8": [128, -129], "int32": [2**31, -(2**40)], "uint64": [2**64, -1], "int64": [2**63]}
CALLS: dict[str, Any] = {
    "+": lambda x, n: x + n, "n -": lambda x, n: n - x, "*=": lambda x, n: x.__imul__(n),
    "maximum": lambda x, n: tc.maximum(x, n), "where": lambda x, n: tc.where(x > 1, x, n),
    "where of n": lambda x, n: tc.where(x > 1, n, x), "full_like": lambda x, n: tc.full_like(x, n),
    "asarray": lambda x, n: tc.asarray(n, dtype=x.dtype), "list": lambda x, n: tc.asarray([1, n], dtype=x.dtype),
    "full": lambda x, n: tc.full((2,), n, dtype=x.dtype), "set": lambda x, n: tc.at(x)[0].set(n),
    "x[0] =": lambda x, n: x.__setitem__(0, n), "add at": lambda x, n: tc.at(x)[x > 1].add(n),
    "pad": lambda x, n: tc.pad(x, 1, constant_values=n), "pad two": lambda x, n: tc.pad(x, 1, constant_values=(0, n)),
    "arange": lambda x, n: tc.arange(n, n + 2, dtype=x.dtype),
    "linspace": lambda x, n: tc.linspace(0, n, 3, dtype=x.dtype),
    "floor_divide": lambda x, n: tc.floor_divide(x, n), "bitwise_xor": lambda x, n: tc.bitwise_xor(n, x),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", WIDE)
def test_an_integer_that_the_dtype_does_not_have_is_an_error(dtype, call):
    """Libraries wrap it, make a float of it, or raise errors of several classes."""
    for n in WIDE[dtype]:
        x = tc.asarray([1, 2], dtype=dtype)
        with pytest.raises(OverflowError, match=r"out of bounds for|does not fit into"):
            CALLS[call](x, n)
        assert x.tolist() == [1, 2]
        with pytest.raises(OverflowError, match=r"out of bounds for|does not fit into"):
            tc.function(CALLS[call])(x, n)


COMPARISONS = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int64"])
def test_comparisons_with_integers_that_the_dtype_does_not_have(dtype, name):
    """Libraries take -1 for 255, or raise an error. Python's integers have no bounds."""
    limits = tc.iinfo(tc.asarray([0], dtype=dtype).dtype)
    numbers = [0, 1, limits.min, limits.max]
    x = tc.asarray(numbers, dtype=dtype)
    compare, function = COMPARISONS[name], getattr(tc, name)
    for n in (limits.min - 1, limits.max + 1, -(2**70), 2**70):
        expected = [compare(number, n) for number in numbers]
        reflected = [compare(n, number) for number in numbers]
        assert compare(x, n).tolist() == function(x, n).tolist() == expected
        assert compare(n, x).tolist() == function(n, x).tolist() == reflected
        assert compare(x, n).dtype is tc.bool
    # `n` is the last one, and what was expected of it.
    assert tc.function(lambda x: compare(x, n))(x).tolist() == expected
    assert tc.vmap(lambda x: function(n, x))(x).tolist() == reflected


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16"])
def test_functions_whose_results_are_floats_take_any_integer(dtype):
    x = tc.asarray([2, 5, 100], dtype=dtype)
    wide = tc.asarray([2.0, 5.0, 100.0])
    for n in (-1, 70_000):
        for function in (tc.atan2, tc.hypot, tc.copysign, tc.divide, tc.logical_and, tc.logical_or):
            np.testing.assert_allclose(function(x, n).numpy(), function(wide, float(n)).numpy(), rtol=1e-6)
            np.testing.assert_allclose(function(n, x).numpy(), function(float(n), wide).numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_bounds_positions_and_members_that_the_dtype_does_not_have(dtype):
    x = tc.asarray([0, 5, 100], dtype=dtype)
    for clip in (tc.clip, tc.function(tc.clip)):
        assert clip(x, -(2**70), 50).tolist() == [0, 5, 50]
        assert clip(x, 3, 2**70).tolist() == [3, 5, 100]
        assert clip(x, -(2**70), 2**70).tolist() == [0, 5, 100]
        assert clip(x, -0.5, 2**40).dtype is tc.float32
        for bounds in ((2**70, None), (None, -(2**70)), (2**70, 2**71)):
            with pytest.raises(OverflowError, match="out of bounds for"):
                clip(x, *bounds)
    if dtype != "int64":
        assert [tc.searchsorted(x, n).item() for n in (-(2**40), 2**40)] == [0, 3]
        for n in (-256, -251, 256, 261, 2**16 + 5, 2**32 + 5):
            assert tc.isin(x, n).tolist() == [False] * 3
            assert not tc.isin(n, x).item()


def test_integers_that_fit_floats_and_quotients_are_let_pass():
    x = tc.asarray([1, 2], dtype="uint8")
    assert (x / 300).dtype is tc.float32
    assert tc.clip(x, 0, 300).tolist() == [1, 2]
    assert (tc.asarray([1.0, 2.0]) + 2**40).dtype is tc.float32
    assert (tc.asarray([True, False]) + 300).tolist() == [301, 300]
    assert (tc.asarray([1, 2], dtype="uint8") + 253).tolist() == [254, 255]
    assert (tc.asarray([1, 2], dtype="int8") * -128).dtype is tc.int8


def test_integers_to_the_power_of_negative_ones_are_an_error():
    """XLA makes garbage of them, and PyTorch 0."""
    x = tc.asarray([2, 3, -1])
    exponents = tc.asarray([2, -1, 3])
    for call in (lambda x: x**-1, lambda x: tc.pow(x, -2), lambda x: x**exponents, lambda x: 2 ** (x * exponents)):
        with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
            call(x)
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        tc.function(lambda x: x**-1)(x)
    assert (x ** abs(exponents)).tolist() == [4, 3, -1]
    assert (x**-1.0).tolist() == [0.5, pytest.approx(1 / 3), -1.0]
    assert (x**2 + 2 ** abs(x)).tolist() == [8, 17, 3]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_elements_are_repeated_by_counts_of_any_dtype(dtype):
    """JAX adds up uint8 counts in uint8."""
    counts = [100, 120, 0, 120]
    repeated = tc.repeat(tc.arange(4), tc.asarray(counts, dtype=dtype))
    assert np.bincount(repeated.numpy(), minlength=4).tolist() == counts


def test_reciprocals_of_integers_are_floats():
    """NumPy's are integers."""
    x = tc.reciprocal(tc.asarray([1, 2, -4], dtype="int8"))
    assert x.dtype is tc.float32
    assert x.tolist() == [1.0, 0.5, -0.25]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_integers_are_shifted_out(dtype):
    bits = tc.iinfo(tc.asarray([0], dtype=dtype).dtype).bits
    x = tc.asarray([2**bits - 1, 1, 2 ** (bits - 1)], dtype=dtype)
    assert (x >> (bits - 1)).tolist() == [1, 0, 1]
    assert (x >> tc.asarray([bits, bits + 1, 120], dtype=dtype)).tolist() == [0, 0, 0]
    assert (x << tc.asarray([bits, bits + 1, 120], dtype=dtype)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_norms_of_integers_are_floats(dtype):
    """The magnitude of -128 is no int8."""
    numbers = np.array([[-128, 127, 3]]).astype(dtype)
    x, wide = tc.asarray(numbers), numbers.astype("float64")
    for order in (1, 2, 3, 0, np.inf, -np.inf):
        norm = tc.linalg.vector_norm(x, ord=order)
        assert norm.dtype is tc.float32
        assert norm.item() == pytest.approx(np.linalg.norm(wide[0], order), rel=1e-6)
    for order in ("fro", "nuc", 1, -1, 2, np.inf):
        norm = tc.linalg.matrix_norm(x, ord=order)
        assert norm.dtype is tc.float32
        assert norm.item() == pytest.approx(np.linalg.norm(wide, order), rel=1e-6)
