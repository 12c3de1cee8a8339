"""Indices of small and unsigned dtypes, on axes longer than these count, are those of int64: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.extend import registry

pytestmark = pytest.mark.each_backend

N = 300
SIGNED = ["int8", "int16", "int32"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
PLACES = {"int8": [-1, 5, -128, 127], "int16": [-1, 5, -200, 299], "int32": [-1, 5, -200, 299]}

LINE = np.random.default_rng(0).standard_normal(N)
ROWS = LINE.reshape(N, 1) * [1.0, 2.0]
TABLE = np.random.default_rng(1).standard_normal((4, N))


def gradient(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return tc.grad(lambda x: tc.sum(f(x) ** 2))


# Of an array and four indices.
ON_A_LINE: dict[str, Callable[[Any, Any], Any]] = {
    "getitem": lambda x, i: x[i],
    "take": lambda x, i: tc.take(x, i, axis=0),
    "take_along_axis": lambda x, i: tc.take_along_axis(x, i),
    "one of them": lambda x, i: x[i[0]],
    "set": lambda x, i: tc.at(x)[i].set(7.0),
    "add": lambda x, i: tc.at(x)[i].add(7.0),
    "multiply": lambda x, i: tc.at(x)[i].multiply(7.0),
    "max": lambda x, i: tc.at(x)[i].max(7.0),
    "gradient": lambda x, i: gradient(lambda x: x[i])(x),
    "gradient of take": lambda x, i: gradient(lambda x: tc.take(x, i, axis=0))(x),
    "vmap": lambda x, i: tc.vmap(lambda k: tc.at(x)[k].add(x[k]))(i),
}
ON_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, i: x[i],
    "gather": lambda x, i: tc.asarray(gradient(lambda x: tc.gather(x, i))(x)),
    "pairs": lambda x, i: gradient(lambda x: x[i, 1])(x),
    "max of rows": lambda x, i: tc.at(x)[i].max(0.5),
}
# Of a table with a line for each index.
ON_A_TABLE: dict[str, Callable[[Any, Any], Any]] = {
    "pairs": lambda x, i: gradient(lambda x: x[tc.arange(4), i])(x),
    "along": lambda x, i: gradient(lambda x: tc.take_along_axis(x, i[:, None], axis=1))(x),
    "vmap": lambda x, i: tc.vmap(lambda x, k: gradient(lambda x: x[k])(x))(x, i),
}
# Not counted from the end.
OF_LABELS: dict[str, Callable[[Any, Any], Any]] = {
    "cross_entropy": lambda x, i: gradient(lambda x: tc.cross_entropy(x, i))(x),
    "one_hot": lambda x, i: tc.one_hot(i, N),
    "segment_sum": lambda x, i: tc.segment_sum(x[:, 0], i, N),
    "add_rows": lambda x, i: registry["add_rows"].function(tc.matrix_transpose(x), i, x[:, :4]),
}
CASES = [
    *[(LINE, name, f, True) for name, f in ON_A_LINE.items()],
    *[(ROWS, name, f, True) for name, f in ON_ROWS.items()],
    *[(TABLE, name, f, True) for name, f in ON_A_TABLE.items()],
    *[(TABLE, name, f, False) for name, f in OF_LABELS.items()],
]


@pytest.mark.parametrize(("array", "name", "f", "from_end"), CASES, ids=[f"{len(c[0])}-{c[1]}" for c in CASES])
def test_they_are_indices_like_others(array: np.ndarray, name: str, f: Callable[..., Any], from_end: bool) -> None:
    """PyTorch takes uint8 for a mask, and JAX adds the length of the axis to an index in the dtype of the index."""
    x = tc.asarray(array)
    for dtype in [*SIGNED, *UNSIGNED]:
        places = PLACES.get(dtype, [5, 255, 127, 0])
        if not from_end:
            places = [abs(k) % 128 for k in places]
        expected = f(x, tc.asarray(places)).numpy()
        indices = tc.asarray(np.array(places, dtype=dtype))
        for found in (f(x, indices), tc.function(f)(x, indices)):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-15, err_msg=dtype)


def test_an_array_of_uint8_is_no_mask() -> None:
    """It is as long as the array here, as a mask would be."""
    x = tc.asarray([1.0, 2.0, 3.0])
    indices = tc.asarray([0, 0, 2], dtype="uint8")
    assert x[indices].tolist() == [1.0, 1.0, 3.0]
    assert tc.at(x)[indices].set(9.0).tolist() == [9.0, 2.0, 9.0]
    assert tc.at(x)[indices].add(1.0).tolist() == [3.0, 2.0, 4.0]
    assert tc.grad(lambda x: tc.sum(x[indices]))(x).tolist() == [2.0, 0.0, 1.0]
