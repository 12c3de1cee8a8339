"""Runs with arrays that are broadcast and lines that are reduced: in blocks of whole lines, with the bits of eager."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tape_numpy import blocks, tiles

SHAPES = [(70, 40), (30, 40), (2100, 3), (3, 800), (1, 2500), (6, 50, 10), (5, 4, 130), (3, 1, 900), (40, 10, 7)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Arrays of a few thousand elements are large, and in many blocks."""
    fusion = importlib.import_module("tape_core.compiled.passes.fusion")
    monkeypatch.setattr(fusion, "LARGE", 1000)
    monkeypatch.setattr(fusion, "ENOUGH", 1)
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
BINARY: list[Callable[[Any, Any], Any]] = [tc.add, tc.subtract, tc.multiply, tc.maximum, tc.divide]
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
