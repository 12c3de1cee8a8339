"""Keys of all kinds, in reading and in updates."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from support import STRICT

BACKENDS = pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])


def moved(value: Any) -> Any:
    """A value of a sample on the strict backend."""
    if isinstance(value, tc.Tensor):
        return tc.asarray(value, backend=STRICT)
    if isinstance(value, np.ndarray):
        return array_api_strict.asarray(value)
    return tuple(moved(v) for v in value) if isinstance(value, tuple) else value


SHAPE = (2, 3, 4)

KEYS: dict[str, Any] = {
    "negative integer": -1,
    "slice beyond the ends": slice(-9, 9, 2),
    "empty slice": (0, slice(5, 9)),
    "backwards": (..., slice(None, None, -2)),
    "new axes": (None, 1, None, slice(1, None), None),
    "mask": np.arange(24).reshape(SHAPE) % 5 == 0,
    "mask of rows": np.asarray([False, True]),
    "mask in the middle": (slice(None), np.asarray([True, False, True])),
    "array behind a slice": (slice(None), np.asarray([0, 0, -1])),
    "array before a new axis": (np.asarray([[0, 1], [1, 1]]), None),
    "array and integer side by side": (1, np.asarray([0, 2, 2])),
    "arrays apart": (np.asarray([0, 1]), slice(None), np.asarray([3, -1])),
    "array and integer apart": (0, ..., np.asarray([3, 3])),
    "arrays parted by nothing": (np.asarray([0, 1]), slice(1, 2), ..., np.asarray([3, -1])),
    "arrays that broadcast": (slice(None), np.asarray([[0], [1]]), np.asarray([0, 2, 2])),
    "mask and arrays": (np.asarray([True, True]), np.asarray([0, 2]), np.asarray([3, -1])),
    "mask of one and arrays": (np.asarray([True, False]), np.asarray([2]), np.asarray([3])),
    "0-d array": np.asarray(1),
    "empty array": np.asarray([], dtype="int64"),
}


@BACKENDS
@pytest.mark.parametrize("name", KEYS)
def test_every_kind_of_key(backend: Any, name: str) -> None:
    key = KEYS[name]
    rng = np.random.default_rng(1)
    x = rng.standard_normal(SHAPE)
    values = rng.standard_normal(x[key].shape)
    own = key if backend == "numpy" else moved(key)

    def check(found: tc.Tensor, ufunc: Any) -> None:
        expected = x.copy()
        ufunc.at(expected, key, values)
        tc.testing.assert_close(found.numpy(), expected, rtol=1e-12)

    t, v = tc.asarray(x, backend=backend), tc.asarray(values, backend=backend)
    at = tc.at(t, own)
    assert np.array_equal(at.get().numpy(), x[key])
    check(at.add(v), np.add)
    check(at.subtract(v), np.subtract)
    check(at.multiply(v), np.multiply)
    check(at.divide(v), np.divide)
    check(at.min(v), np.minimum)
    check(at.max(v), np.maximum)
    expected = x.copy()
    expected[key] = values
    assert np.array_equal(at.set(v).numpy(), expected)
    assert np.array_equal(t.numpy(), x), "the input was changed"


@pytest.mark.parametrize(("mask", "column"), [([True, False], [1]), ([True, True], [0, 1])])
def test_the_gradient_of_what_a_mask_beside_integers_picks(mask: list[bool], column: list[int]) -> None:
    x = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
    expected = np.zeros((2, 2))
    expected[mask, column] = 1
    key = (np.asarray(mask), np.asarray(column))
    assert tc.grad(lambda x: tc.sum(x[key]))(x).tolist() == expected.tolist()


@BACKENDS
@pytest.mark.parametrize(
    ("key", "match"),
    [
        ((0, 3), "out of bounds"),
        ((0, 0, 0, 0), "too many indices"),
        (1.5, "ind"),
        (np.asarray([0, 2]), "out of bounds"),
        ((..., np.asarray([-5])), "out of bounds"),
        ((slice(None), np.asarray([True, False])), "mask|boolean"),
        ((np.asarray([0.5]), 1), "arrays|holds"),
    ],
)
def test_bad_keys(backend: Any, key: Any, match: str) -> None:
    x = tc.zeros(SHAPE, backend=backend)
    key = key if backend == "numpy" else moved(key)
    for call in (lambda: x[key], lambda: tc.at(x)[key].add(1.0), lambda: tc.at(x)[key].max(1.0)):
        with pytest.raises(IndexError, match=match):
            call()
