"""Runs with arrays that are broadcast and lines that are reduced: in blocks of whole lines, with the bits of eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tape_compile import thresholds
from tape_numpy.compiler_support import blocks, tiles

SHAPES = [(70, 40), (30, 40), (2100, 3), (3, 800), (1, 2500), (6, 50, 10), (5, 4, 130), (3, 1, 900), (40, 10, 7)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Arrays of a few thousand elements are large, and in many blocks."""
    monkeypatch.setattr(thresholds, "FUSE_MIN_ELEMENTS", 1000)
    monkeypatch.setattr(thresholds, "FUSE_MIN_WORK", 1)
    monkeypatch.setattr(tiles, "_block_length", lambda nbytes, size: 500)
    tiles.bounds.cache_clear()
    yield
    tiles.bounds.cache_clear()
    blocks._threads.cache_clear()


def with_threads(n: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_NUM_THREADS", n)
    blocks._threads.cache_clear()


def array(shape: tuple[int, ...], seed: int, dtype: Any = np.float64) -> tc.Tensor:
    return tc.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype), backend="numpy")


def assert_same(f: Callable[..., Any], *args: Any) -> Any:
    compiled = tc.function(f)
    compiled(*args)
    for found, expected in zip(compiled(*args), f(*args), strict=True):
        a, b = found.numpy(), expected.numpy()
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return compiled


UNARY: list[Callable[[Any], Any]] = [tc.tanh, tc.exp, tc.square, tc.abs, lambda x: -x, lambda x: 0.5 * x + 1, tc.relu]
BINARY: list[Callable[[Any, Any], Any]] = [
    tc.add, tc.subtract, tc.multiply, tc.maximum, tc.divide, lambda x, y: tc.where(x > y, y, 2 * x),
]  # fmt: skip
OVER: list[Callable[..., Any]] = [tc.sum, tc.max, tc.min, tc.mean]


@st.composite
def programs(draw: Any) -> tuple[tuple[int, ...], Callable[..., Any], int]:
    """A shape, and a function of an array of it and smaller ones, in a list of steps."""
    shape = draw(st.sampled_from(SHAPES))
    smaller = [tuple(n if keep else 1 for n, keep in zip(shape, kept, strict=True)) for kept in draw(
        st.lists(st.tuples(*[st.booleans()] * len(shape)), min_size=1, max_size=3)
    )]  # fmt: skip
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(["unary", "binary", "small", "line", "total"]), *[st.integers(0, 99)] * 3),
            min_size=2,
            max_size=9,
        )
    )

    def f(x: Any, *small: Any) -> Any:
        values, totals = [x], []
        for kind, a, b, c in steps:
            value = values[a % len(values)]
            if kind == "unary":
                values.append(UNARY[b % len(UNARY)](value))
            elif kind == "binary":
                values.append(BINARY[c % len(BINARY)](value, values[b % len(values)]))
            elif kind == "small":
                values.append(BINARY[c % len(BINARY)](value, small[b % len(small)]))
            elif kind == "line":
                line = OVER[b % len(OVER)](value, axis=-1, keepdims=c % 2 == 0)
                line = UNARY[c % len(UNARY)](line)
                values.append(value - (line if c % 2 == 0 else line[..., None]))
                totals.append(line)
            else:
                totals.append(tc.sum(value))
        return (*values[-2:], *totals)

    return shape, lambda x: f(x, *[array(s, 7 + n) for n, s in enumerate(smaller)]), draw(st.integers(0, 99))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs(), st.sampled_from([np.float32, np.float64]), st.sampled_from(["1", "2", "5"]))
def test_any_program(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch, program: Any, dtype: Any, threads: str
) -> None:
    shape, f, seed = program
    with_threads(threads, monkeypatch)
    with np.errstate(all="ignore"):
        assert_same(f, array(shape, seed, dtype))


def normalised(x: Any, w: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch([x, w])
        h = tc.tanh(x @ w + w[0])
        y = tc.sum(
            tc.softmax(h * 2.0, axis=-1) * tc.logsumexp(h, axis=-1, keepdims=True) / tc.mean(h * h, axis=-1)[:, None]
        )
    return (y, *tape.gradient(y, [x, w]))


@pytest.mark.parametrize(("n", "classes"), [(3000, 10), (1000, 130)])
def test_softmax_and_logsumexp_are_runs_that_end_where_another_axis_is_reduced(n: int, classes: int) -> None:
    compiled = assert_same(normalised, array((n, 8), 0), array((8, classes), 1))
    stats = compiled.stats()[0]
    assert stats["fusion"] < 0.5 * stats["dce"]
    for name in ("exp(", "max("):
        assert name not in compiled.text()


def test_lines_of_infinity_and_nan() -> None:
    def f(x: Any) -> Any:
        return (
            tc.softmax(x, axis=-1),
            tc.logsumexp(x, axis=-1),
            tc.log_softmax(x),
            tc.max(x - 1.0, axis=1),
            tc.mean(x * x, axis=1),
        )

    compiled = tc.function(f)
    x = array((4000, 10), 0).numpy().copy()
    compiled(tc.asarray(x))
    x[3], x[5, 2], x[7, 1], x[9], x[11, 0] = -np.inf, np.inf, np.nan, -0.0, 1e308
    with np.errstate(all="ignore"):
        expected = f(tc.asarray(x))
    for found, wanted in zip(compiled(tc.asarray(x)), expected, strict=True):
        assert found.numpy().tobytes() == wanted.numpy().tobytes()


def test_arrays_that_lie_otherwise_are_taken_as_they_are() -> None:
    def f(x: Any, row: Any) -> Any:
        y = tc.tanh(x - row) * 2.0
        return y, tc.sum(y, axis=1), tc.max(x, axis=1, keepdims=True) * y

    compiled = tc.function(f)
    compiled(array((700, 60), 0), array((60,), 1))
    x, row = array((1400, 60), 2), array((120,), 3)
    for large, small in ((x[::2], row[:60]), (tc.matrix_transpose(array((60, 700), 4)), row[::2]), (x[:700], row[60:])):
        for found, wanted in zip(compiled(large, small), f(large, small), strict=True):
            assert found.numpy().tobytes() == wanted.numpy().tobytes()
            assert found.numpy().strides == wanted.numpy().strides


def test_a_run_writes_over_what_dies_with_it_and_over_nothing_else() -> None:
    def f(x: Any, w: Any, scale: Any) -> Any:
        y = x @ w
        kept = x @ (w * 2.0)
        z = tc.exp(y - scale) * 2.0 + tc.sum(y, axis=1, keepdims=True)
        return tc.tanh(z * kept) - 1.0 + y, kept

    x, w, scale = array((2000, 30), 0), array((30, 40), 1), array((2000, 1), 2)
    compiled = assert_same(f, x, w, scale)
    (trace,) = compiled._compiled[next(iter(compiled._compiled))]
    (run,) = [i.fn for i in trace.program.instructions if i.name == "fused"]
    assert run.targets
    before = [t.numpy() for t in (x, w, scale)]
    results = [compiled(x, w, scale) for _ in range(3)]
    for result in results:
        for found, wanted in zip(result, f(x, w, scale), strict=True):
            assert np.array_equal(found.numpy(), wanted.numpy())
    assert all(np.array_equal(t.numpy(), b) for t, b in zip((x, w, scale), before, strict=True))


@pytest.mark.parametrize("shape", [(900, 3), (1025, 17), (70, 128), (40, 129), (7, 30, 20), (2, 3, 700), (3, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_over_any_axes(shape: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    axes = [
        *range(-len(shape), len(shape)),
        *([(0, 1), (1, 2), (-2, -1), (0, 2), (2, 1)] if len(shape) > 2 else [(0,), (-1,)]),
    ]
    for axis in axes:
        for keepdims in (False, True):
            found = tc.sum(tc.asarray(x), axis=axis, keepdims=keepdims).numpy()
            expected = x.astype(np.float64).sum(axis=axis, keepdims=keepdims)
            assert found.shape == expected.shape
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, atol=1000 * np.finfo(dtype).eps)
