"""Kernels that are written in terms of others are opened where arrays are large, with the same bits."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import tape_core as tc
from support import assert_same, values

array = partial(values, dtype="float64", backend="numpy")


def with_slope(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return y, tape.gradient(y, x)

    return run


CASES: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda x: tc.layer_norm(x, x.shape[-1]) * 2.0,
    "logsumexp": lambda x: tc.logsumexp(x * 2.0, axis=1, keepdims=True) - x,
    "gelu": lambda x: tc.gelu(x, approximate=True) + 1.0,
    "softplus": lambda x: tc.softplus(x) * x,
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_part_of_runs(name: str) -> None:
    f = with_slope(CASES[name])
    compiled, closed = tc.function(f), tc.function(passes={"inline_kernels": False})(f)
    for x in (array(900, 60), array(900, 60, seed=1), tc.matrix_transpose(array(60, 900))):
        for found, also, expected in zip(compiled(x), closed(x), f(x), strict=True):
            assert found.numpy().tobytes() == also.numpy().tobytes() == expected.numpy().tobytes()
    (stats,), (as_it_was,) = compiled.stats(), closed.stats()
    assert stats["inline_kernels"] > stats["simplify_views"]
    assert stats["fusion"] <= as_it_was["fusion"]


def test_what_looks_at_values_stays_closed_and_small_arrays_do() -> None:
    def f(x: Any) -> Any:
        return tc.layer_norm(x, 3), tc.linalg.expm(x @ x.mT)

    compiled = tc.function(f)
    for x in (array(2, 3), array(2, 3, seed=1)):
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
    (stats,) = compiled.stats()
    assert stats.get("inline_kernels", stats["simplify_views"]) == stats["simplify_views"]


def test_what_takes_more_memory_in_the_open_stays_closed() -> None:
    images, k = array(16, 32, 32, 4), array(5, 5, 4, 4)

    @with_slope
    def f(k: Any) -> Any:
        y = tc.relu(tc.conv(images, k, padding="same"))
        return tc.sum(tc.conv(y, k, padding="same") ** 2)

    def peak(f: Callable[[Any], Any]) -> int:
        f(k)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        f(k)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        gc.enable()
        return found

    assert peak(tc.function(f)) <= 1.05 * peak(f)


def test_arrays_of_unknown_length_are_left_to_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    # The carries of a while loop are as many as it has steps. A program in which other arrays are divided among
    # processes lays their cotangents out, by a default kernel where the library divides none.
    monkeypatch.setattr("tape_core.engine.layouts.in_use", True)

    def slopes(x: tc.Tensor) -> tc.Tensor:
        with tc.GradientTape() as tape:
            tape.watch(x)
            last = tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, tc.sin(c[1]) * x), (tc.asarray(0), x))[1]
            y = tc.sum(last)
        return tape.gradient(y, x)

    x = array(20_000)
    compiled = tc.function(slopes)
    for _ in range(2):
        assert_same(compiled(x), slopes(x))
