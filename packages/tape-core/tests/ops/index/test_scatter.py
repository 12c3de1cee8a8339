"""Indexed updates, segments, the largest elements, membership; on NumPy and through the kernels of the standard."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend
from tape_core.backends.errors import BatchError
from tape_core.extend import Draw, Refused, Sample, registry
from tape_core.staging import TracingError

STRICT = ArrayAPIBackend("strict", array_api_strict)
BACKENDS = pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])

OPS = [
    "getitem", "setitem", "scatter", "places", "take", "take_along_axis", "gather", "add_rows", "repeat",
    "scatter_add", "scatter_multiply", "scatter_min", "scatter_max", "top_k", "isin", "expand_dims", "search_in_order",
]  # fmt: skip


def cases() -> list[Any]:
    return [
        pytest.param(name, sample, id=f"{name}-{k}")
        for name in OPS
        for k, sample in enumerate(registry[name].samples(Draw(1)))  # type: ignore[misc]
    ]


def moved(value: Any) -> Any:
    """A value of a sample on the strict backend."""
    if isinstance(value, tc.Tensor):
        return tc.asarray(value, backend=STRICT)
    if isinstance(value, np.ndarray):
        return array_api_strict.asarray(value)
    return tuple(moved(v) for v in value) if isinstance(value, tuple) else value


def results(op: Any, args: Any, kwargs: Any) -> list[Any]:
    """Values and gradients."""
    watched = [a for a in args if isinstance(a, tc.Tensor) and a.dtype.inexact]
    with tc.GradientTape() as tape:
        tape.watch(watched)
        out = op.function(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    found = tape.gradient([o for o in outs if o.dtype.inexact], watched) if op.differentiable else []
    return [o.numpy() for o in (*outs, *(g.densify() if isinstance(g, tc.IndexedSlices) else g for g in found))]


@pytest.mark.parametrize(("name", "sample"), cases())
def test_the_standard_alone_gives_what_numpy_gives(name: str, sample: Sample) -> None:
    op = registry[name]
    args = [moved(a) for a in sample.args]
    kwargs = {k: moved(v) for k, v in sample.kwargs.items()}
    if isinstance(sample, Refused):
        with pytest.raises(sample.error):
            op.function(*args, **kwargs)
        return
    expected = results(op, sample.args, sample.kwargs)
    found = results(op, args, kwargs)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        tc.testing.assert_close(a, b, rtol=1e-12)


# -- keys


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


# -- at


def gradients(f: Callable[..., Any], *values: Any, backend: Any = "numpy") -> list[Any]:
    tensors = [tc.asarray(v, dtype="float64", backend=backend) for v in values]
    with tc.GradientTape() as tape:
        tape.watch(tensors)
        y = f(*tensors)
    return [g.tolist() for g in tape.gradient(y, tensors)]


@BACKENDS
def test_products_with_zeros_have_exact_derivatives(backend: Any) -> None:
    i = tc.asarray([0, 0, 1, 1, 2], backend=backend)

    def f(x: Any, v: Any) -> Any:
        return tc.sum(tc.at(x)[i].multiply(v) * tc.asarray([1.0, 10.0, 100.0, 7.0], dtype="float64", backend=backend))

    x, v = gradients(f, [2.0, 3.0, 0.0, 5.0], [0.0, 4.0, 0.0, 0.0, 6.0], backend=backend)
    assert x == [0.0, 0.0, 600.0, 7.0]
    assert v == [8.0, 0.0, 0.0, 0.0, 0.0]

    def second(v: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(v)
            y = tc.at(tc.ones(1, dtype="float64", backend=backend))[i * 0].multiply(v)
        return tape.gradient(y, v)[0]

    # The product of all but the first, which two zeros leave with one factor each.
    assert gradients(second, [7.0, 0.0, 2.0, 0.0, 3.0], backend=backend) == [[0.0, 0.0, 0.0, 0.0, 0.0]]
    assert gradients(second, [0.0, 5.0, 2.0, 0.0, 3.0], backend=backend) == [[0.0, 0.0, 0.0, 30.0, 0.0]]


def test_the_derivative_of_a_product_that_underflows() -> None:
    i = tc.asarray([0, 0, 0])
    (v,) = gradients(lambda v: tc.at(tc.ones(1, dtype="float64"))[i].multiply(v), [1e-200, 1e250, 1e-200])
    assert v == pytest.approx([1e50, 0.0, 1e50])


@BACKENDS
@pytest.mark.parametrize("sign", [1, -1], ids=["max", "min"])
def test_extrema_that_tie_share_the_gradient(backend: Any, sign: int) -> None:
    i = tc.asarray([0, 0, 1, 2, 2], backend=backend)

    def f(x: Any, v: Any) -> Any:
        return (tc.at(x)[i].max if sign == 1 else tc.at(x)[i].min)(v)

    x, v = np.asarray([3.0, 1.0, 5.0, 2.0]), np.asarray([3.0, 3.0, 4.0, 5.0, 0.0])
    gx, gv = gradients(f, sign * x, sign * v, backend=backend)
    assert gx == pytest.approx([1 / 3, 0.0, 0.5, 1.0])
    assert gv == pytest.approx([1 / 3, 1 / 3, 1.0, 0.5, 0.0])


@BACKENDS
def test_of_values_set_twice_the_last_has_the_gradient(backend: Any) -> None:
    i = tc.asarray([1, 0, 1], backend=backend)
    x, v = gradients(lambda x, v: tc.at(x)[i].set(v) * 2.0, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], backend=backend)
    assert (x, v) == ([0.0, 0.0, 2.0], [0.0, 2.0, 2.0])


@BACKENDS
def test_quotients_and_powers(backend: Any) -> None:
    x = tc.asarray([-8.0, 0.0, 2.0], backend=backend)
    i = tc.asarray([0, 0, 2], backend=backend)
    v = tc.asarray([2.0, 2.0, 3.0], backend=backend)
    assert tc.at(x)[i].divide(v).tolist() == pytest.approx([-2.0, 0.0, 2 / 3])
    assert tc.at(x)[i].power(v).tolist() == [4096.0, 0.0, 8.0]
    gx, gv = gradients(lambda x, v: tc.at(x)[i].divide(v), [-8.0, 0.0, 2.0], [2.0, 2.0, 4.0], backend=backend)
    assert (gx, gv) == ([0.25, 1.0, 0.25], [1.0, 1.0, -0.125])
    gx, gv = gradients(lambda x, v: tc.at(x)[i].power(v), [3.0, 0.0, 2.0], [2.0, 1.0, 3.0], backend=backend)
    assert gx == [6.0, 1.0, 12.0]
    assert gv == pytest.approx([9 * math.log(3), 18 * math.log(3), 8 * math.log(2)])


@BACKENDS
def test_dtypes_and_scalars(backend: Any) -> None:
    x = tc.asarray([1.0, 2.0], backend=backend)
    wide = tc.asarray([0.5, 0.5], dtype="float64", backend=backend)
    for method in ("set", "add", "subtract", "multiply", "divide", "power", "min", "max"):
        for values in (wide, 3, 0.5, tc.asarray([1, 2], backend=backend)):
            assert getattr(tc.at(x)[tc.asarray([0, 0], backend=backend)], method)(values).dtype == tc.float32
    small = tc.asarray([5, 7], dtype="uint8", backend=backend)
    assert tc.at(small)[0].subtract(2).tolist() == [3, 7]
    assert tc.at(small)[0].power(2).tolist() == [25, 7]
    assert tc.at(small)[:].max(6).dtype == tc.uint8
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = tc.at(v)[0].add(v[1] * v[1])
    assert tape.gradient(y, v).tolist() == [1.0, 5.0]


def test_nan_stays() -> None:
    x = tc.asarray([math.nan, 1.0, 2.0])
    i = tc.asarray([0, 1, 1])
    for method in ("add", "multiply", "min", "max"):
        y = getattr(tc.at(x)[i], method)(tc.asarray([0.0, math.nan, 1.0]))
        assert [math.isnan(value) for value in y.tolist()] == [True, True, False]


def test_mistakes_with_at() -> None:
    x = tc.ones(3)
    for call, error, match in (
        (lambda: tc.at(x).add(1.0), ValueError, r"name the elements first: at\(x\)\[key\]"),
        (lambda: tc.at(x, 0)[1], ValueError, "named already"),
        (lambda: tc.at(x)[0].add(1j), TypeError, "values of dtype complex64 do not fit into elements of dtype float32"),
        (lambda: tc.at(tc.asarray([1, 2]))[0].divide(2), TypeError, "must be floating, not int64"),
        (lambda: tc.at(tc.asarray([True]))[0].add(True), TypeError, "must hold numbers"),
        (lambda: tc.at(2.0)[()].add(1.0), TypeError, "x must be an array"),
        (lambda: tc.at(x)[:2].add(tc.ones(3)), ValueError, "broadcast"),
        (lambda: tc.at(x)[tc.asarray([0, 1])].max(tc.ones(3)), ValueError, "broadcast"),
    ):
        with pytest.raises(error, match=match):
            call()


# -- segments


SEGMENTS: dict[str, tuple[Any, Any, float]] = {
    "segment_sum": (tc.segment_sum, np.sum, 0.0),
    "segment_mean": (tc.segment_mean, np.mean, 0.0),
    "segment_prod": (tc.segment_prod, np.prod, 1.0),
    "segment_max": (tc.segment_max, np.max, -math.inf),
    "segment_min": (tc.segment_min, np.min, math.inf),
}


@BACKENDS
@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 2), (7, 0)], ids=str)
def test_segments(backend: Any, name: str, shape: tuple[int, ...]) -> None:
    function, reduce, empty = SEGMENTS[name]
    ids = np.asarray([4, 0, 4, 1, 0, 4, 1])
    x = np.random.default_rng(2).standard_normal(shape)
    expected = np.full((6, *shape[1:]), empty)
    for k in (0, 1, 4):
        expected[k] = reduce(x[ids == k], axis=0)
    found = function(tc.asarray(x, backend=backend), tc.asarray(ids, backend=backend), 6)
    tc.testing.assert_close(found.numpy(), expected, rtol=1e-12)
    assert function(tc.asarray(x, backend=backend), tc.asarray(ids, backend=backend)).shape == (5, *shape[1:])


@BACKENDS
def test_gradients_of_segments(backend: Any) -> None:
    ids = tc.asarray([1, 0, 1, 1], backend=backend)
    weights = tc.asarray([1.0, 10.0, 100.0], dtype="float64", backend=backend)

    def slope(f: Any, x: Any) -> Any:
        return gradients(lambda x: tc.sum(weights[:2] * f(x, ids)), x, backend=backend)[0]

    assert slope(tc.segment_sum, [5.0, 6.0, 7.0, 8.0]) == [10.0, 1.0, 10.0, 10.0]
    assert slope(tc.segment_mean, [5.0, 6.0, 7.0, 8.0]) == pytest.approx([10 / 3, 1.0, 10 / 3, 10 / 3])
    assert slope(tc.segment_max, [5.0, 6.0, 8.0, 8.0]) == [0.0, 1.0, 5.0, 5.0]
    assert slope(tc.segment_min, [5.0, 6.0, 5.0, 8.0]) == [5.0, 1.0, 5.0, 0.0]
    assert slope(tc.segment_prod, [0.0, 6.0, 2.0, 3.0]) == [60.0, 1.0, 0.0, 0.0]
    # A value that is what an empty segment holds has its whole share, too.
    inf = math.inf
    assert slope(tc.segment_max, [-inf, -inf, -inf, -inf]) == pytest.approx([10 / 3, 1.0, 10 / 3, 10 / 3])
    assert slope(tc.segment_min, [inf, inf, inf, 2.0]) == [0.0, 1.0, 0.0, 10.0]


def test_segments_of_integers_of_grids_and_of_nothing() -> None:
    ids = tc.asarray([0, 2, 0])
    x = tc.asarray([7, 1, -3], dtype="int8")
    assert tc.segment_sum(x, ids).tolist() == [4, 0, 1]
    assert tc.segment_max(x, ids).tolist() == [7, -128, 1]
    assert tc.segment_min(x, ids).tolist() == [-3, 127, 1]
    assert tc.segment_max(x, ids).dtype == tc.int8
    assert tc.segment_mean(x, ids).tolist() == [2.0, 0.0, 1.0]
    assert tc.segment_mean(x, ids).dtype == tc.float32
    grid = tc.asarray([[0, 1], [1, 1]])
    assert tc.segment_sum(tc.ones((2, 2, 3)), grid).tolist() == [[1.0] * 3, [3.0] * 3]
    nothing = tc.zeros((0, 2)), tc.asarray([], dtype="int64")
    assert tc.segment_sum(*nothing).shape == (0, 2)
    assert tc.segment_prod(*nothing, 2).tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("name", SEGMENTS)
def test_mistakes_with_segments(name: str) -> None:
    function, x = SEGMENTS[name][0], tc.ones((3, 2))
    for ids, n, error, match in (
        ([0, 5, 1], 3, ValueError, rf"{name}: segment_ids must be in \[0, 3\), got 0 to 5"),
        ([0, -1, 1], None, ValueError, r"segment_ids must be in \[0, 2\), got -1 to 1"),
        ([0, 1], None, ValueError, r"segment_ids of shape \(2,\) must have the shape of the first dimensions of x"),
        ([0.0, 1.0, 2.0], None, TypeError, "segment_ids must be integers, not float32"),
    ):
        with pytest.raises(error, match=match):
            function(x, tc.asarray(ids), n)
    with pytest.raises(ValueError, match="one dimension or more"):
        function(2.0, 1)
    if name in ("segment_max", "segment_min"):
        with pytest.raises(TypeError, match="no order"):
            function(tc.astype(x, "complex64"), tc.asarray([0, 1, 0]))
        with pytest.raises(TypeError, match="must hold numbers"):
            function(x > 0, tc.asarray([0, 1, 0]))


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_compiled_and_for_each_example(name: str) -> None:
    function, x = SEGMENTS[name][0], tc.asarray([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
    ids, rows = tc.asarray([1, 0, 1]), tc.asarray([[1, 0, 1], [2, 2, 0]])

    def total(x: Any, ids: Any) -> Any:
        return tc.sum(function(x, ids, 3)[:2] ** 2)

    compiled, slope = tc.function(lambda ids: function(x, ids, 3)), tc.function(tc.grad(total))
    for _ in range(2):
        assert compiled(ids).tolist() == function(x, ids, 3).tolist()
        assert slope(x, tc.asarray([1, 0, 0])).tolist() == tc.grad(total)(x, tc.asarray([1, 0, 0])).tolist()
    assert tc.vmap(lambda ids: function(x, ids, 3))(rows).tolist() == [function(x, row, 3).tolist() for row in rows]
    for call, bad in ((compiled, ids - 1), (tc.vmap(lambda ids: function(x, ids, 3)), rows - 1)):
        with pytest.raises(ValueError, match=rf"{name}: segment_ids must be in \[0, 3\), got -1 to [01]"):
            call(bad)
    for call, given in (
        (tc.function(lambda ids: function(x, ids)), ids),
        (tc.vmap(lambda ids: function(x, ids)), rows),
    ):
        with pytest.raises((TracingError, BatchError), match=f"{name}: .*: give num_segments"):
            call(given)


# -- the largest elements


@BACKENDS
@pytest.mark.parametrize("n", [5, 300])
def test_top_k_takes_the_first_of_equal_elements(backend: Any, n: int) -> None:
    x = np.random.default_rng(3).integers(0, 4, (3, n)).astype("float32")
    t = tc.asarray(x, backend=backend)
    for largest in (True, False):
        order = np.argsort(-x if largest else x, axis=1, stable=True)
        for k in (0, 1, 4, n):
            values, indices = tc.top_k(t, k, largest=largest)
            assert np.array_equal(indices.numpy(), order[:, :k])
            assert np.array_equal(values.numpy(), np.take_along_axis(x, order[:, :k], 1))
            assert values.dtype == tc.float32


@BACKENDS
@pytest.mark.parametrize("n", [4, 300])
def test_nan_is_the_largest(backend: Any, n: int) -> None:
    x = np.arange(n, dtype="float64")
    x[1] = math.nan
    t = tc.asarray(x, backend=backend)
    assert tc.top_k(t, 2).indices.tolist() == [1, n - 1]
    assert tc.top_k(t, 2, largest=False).indices.tolist() == [0, 2]
    assert tc.top_k(t, n, largest=False).indices[-1].item() == 1


@BACKENDS
def test_the_gradient_of_top_k_goes_to_what_is_taken(backend: Any) -> None:
    def f(x: Any) -> Any:
        return tc.sum(tc.top_k(x, 2, axis=0).values * tc.asarray([[1.0], [10.0]], dtype="float64", backend=backend))

    x = [[2.0, 1.0], [2.0, 3.0], [0.0, 2.0]]
    assert gradients(f, x, backend=backend) == [[[1.0, 0.0], [10.0, 1.0], [0.0, 10.0]]]


# -- of standard 2025.12


@BACKENDS
def test_isin(backend: Any) -> None:
    rng = np.random.default_rng(4)
    for dtype in ("int64", "uint8", "float32"):
        for n in (0, 1, 5):
            a, b = rng.integers(0, 9, (2, 3)).astype(dtype), rng.integers(0, 9, n).astype(dtype)
            for invert in (False, True):
                found = tc.isin(tc.asarray(a, backend=backend), tc.asarray(b, backend=backend), invert=invert)
                assert found.dtype == tc.bool
                assert np.array_equal(found.numpy(), np.isin(a, b, invert=invert))
    x = tc.asarray([1.0, math.nan], backend=backend)
    assert tc.isin(x, x).tolist() == [True, False]
    assert tc.isin(x, 1.0).tolist() == [True, False]
    assert tc.isin(2.0, x, invert=True).item() is True


def test_broadcast_shapes() -> None:
    for shapes in ((), ((),), ((2, 1), (3,)), ((0,), (1,)), ((5, 1, 3), (1, 4, 1), ())):
        assert tc.broadcast_shapes(*shapes) == np.broadcast_shapes(*shapes)
    with pytest.raises(ValueError, match=r"shapes \(2,\), \(0,\) do not broadcast"):
        tc.broadcast_shapes((2,), (0,))
