"""Compiled functions on large arrays: in blocks, to the last bit what NumPy gives, whatever the number of threads."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.engine import pytree
from tape_numpy.compiler_support import blocks


def draw(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return tc.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def assert_same(f: Callable[..., Any], *args: Any, fused: bool = True) -> Any:
    compiled = tc.function(f)
    compiled(*args)
    for found, expected in zip(compiled(*args), f(*args), strict=True):
        assert found.dtype is expected.dtype
        assert found.shape == expected.shape
        assert found.numpy().tobytes() == expected.numpy().tobytes()
    stats = compiled.stats()[0]
    assert (stats["fusion"] < stats["dce"]) is fused
    return compiled


def wide(x: Any, w: Any, b: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch([x, w, b])
        y = tc.sum(tc.tanh(x * w + b) ** 2 * tc.exp(-x * x))
    return (y, *tape.gradient(y, [x, w, b]))


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_value_and_gradients(threads: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_NUM_THREADS", threads)
    blocks._threads.cache_clear()
    try:
        for shape in ((300_003,), (700, 301), (65_536,)):
            compiled = assert_same(wide, *(draw(*shape, seed=k, dtype=dtype) for k in range(3)))
            assert compiled.stats()[0]["fusion"] == 1
    finally:
        blocks._threads.cache_clear()


def test_functions_of_every_kind() -> None:
    def f(x: Any, y: Any) -> Any:
        mask = (x > 0) & (y <= 1.0)
        z = tc.relu(x) + tc.astype(mask, "float32") * tc.abs(y) / 3.0 - tc.sqrt(tc.abs(x)) ** 2
        return z, tc.sin(z) * 2 - tc.log1p(tc.abs(z)), mask, tc.astype(z, "float64"), tc.maximum(x, y) == y, x**3 + y

    assert_same(f, draw(70_001), draw(70_001, seed=1))


def test_scalars_and_arrays_that_lie_otherwise() -> None:
    def f(x: Any, s: Any) -> Any:
        total = tc.sum(x * x)
        return x * s + 1.0, x / total, tc.sum(x * s) * 2, tc.sum(tc.exp(x)) + total

    transposed = tc.matrix_transpose(draw(300, 400))
    compiled = assert_same(f, draw(400, 300), tc.asarray(np.float32(3)))
    for x in (transposed, draw(800, 300)[::2]):
        args = x, tc.asarray(np.float32(2))
        for found, expected in zip(compiled(*args), f(*args), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()


def test_arrays_that_lie_otherwise_are_let_go_of() -> None:
    def f(x: Any) -> Any:
        return tc.exp(tc.sin(x) + 1.0) * x

    x = tc.matrix_transpose(draw(400, 500, dtype=np.float64))
    compiled = assert_same(lambda x: (f(x),), x)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        found = compiled(x)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert now < 1.1 * found[0].numpy().nbytes
    assert peak < 3.1 * found[0].numpy().nbytes


def test_what_is_assigned_and_what_comes_back_is_nobody_elses_memory() -> None:
    v = tc.Variable(draw(70_000))

    @tc.function
    def step() -> Any:
        old = v.value
        v.assign(v * 0.5 + 1.0)
        return old, v.value

    first = step()
    kept = [t.numpy() for t in first]
    for _ in range(3):
        old, new = step()
        assert np.array_equal(new.numpy(), old.numpy() * np.float32(0.5) + np.float32(1))
    assert all(np.array_equal(t.numpy(), k) for t, k in zip(first, kept, strict=True))


def test_small_arrays_and_what_is_not_elementwise_are_left_alone() -> None:
    assert_same(wide, *(draw(100, seed=k) for k in range(3)), fused=False)
    assert_same(lambda x: (tc.cumulative_sum(x), x[::-1]), draw(70_000), fused=False)


def test_results_are_written_into_memory_that_nothing_needs() -> None:
    b = draw(70)

    def f(x: Any, w: Any) -> Any:
        y = x @ w
        h = tc.tanh(y * 2.0 + b) - y.mT.mT[0]  # y is seen through a view, and stays
        z = tc.relu(h @ w[:70] + 1.0) / 3.0
        return z * z, h

    x, w = draw(100, 80), draw(80, 70)
    compiled = assert_same(f, x, w, fused=False)
    assert "out=" in compiled.text()
    before = [x.numpy(), w.numpy(), b.numpy()]
    first = [t.numpy() for t in compiled(x, w)]
    for found, expected in zip(compiled(x, w), first, strict=True):
        assert np.array_equal(found.numpy(), expected)
    assert all(np.array_equal(t.numpy(), k) for t, k in zip((x, w, b), before, strict=True))
    plain = tc.function(passes={"in_place": False})(f)
    plain(x, w)
    assert "out=" not in plain.text()
    assert_same(f, tc.matrix_transpose(draw(80, 100)), tc.matrix_transpose(draw(70, 80)), fused=False)


def test_the_number_of_threads_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_NUM_THREADS", "many")
    blocks._threads.cache_clear()
    try:
        with pytest.raises(ValueError, match="TAPE_NUM_THREADS must be a positive number, got 'many'"):
            blocks._threads()
    finally:
        blocks._threads.cache_clear()


def _product(x: Any, y: Any) -> Any:
    return x * (x * x + 1.0) + y


def _power(x: Any, y: Any) -> Any:
    return x**y * x**2.5


@pytest.mark.parametrize("f", [_product, _power])
@pytest.mark.parametrize("of", ["values", "gradients"])
def test_products_of_large_complex_arrays_have_the_same_bits_compiled(f: Any, of: str) -> None:
    # NumPy computes `a * temporary` as `temporary * a` from 256 KiB on, and rounds differently then on some processors.
    rng = np.random.default_rng(0)
    x, y = (tc.asarray(rng.normal(size=40_000) + 1j * rng.normal(size=40_000), backend="numpy") for _ in range(2))
    computed = f if of == "values" else tc.grad(lambda x, y: tc.sum(tc.real(f(x, y))), argnums=(0, 1))
    wanted = computed(x, y)
    g = tc.function(computed)
    for _ in range(3):
        for found, expected in zip(pytree.flatten(g(x, y))[0], pytree.flatten(wanted)[0], strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
