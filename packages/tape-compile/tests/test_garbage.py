"""What a first call of a compiled function leaves to Python's garbage collector."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.staging import current


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    gc.collect()
    yield
    gc.enable()


def _chain(x: Any) -> Any:
    for _ in range(400):
        x = tc.sin(x)
    return x


@pytest.mark.parametrize("variable", [False, True])
def test_a_trace_goes_without_the_garbage_collector(variable: bool) -> None:
    w = tc.Variable(2.0)
    traces: list[Any] = []

    @tc.function
    def step(x: Any) -> Any:
        traces.append(weakref.ref(current()))
        with tc.GradientTape() as tape:
            loss = w * x
        if variable:
            w.assign_sub(tape.gradient(loss, w))
        return loss

    gc.disable()
    step(tc.asarray(1.0))
    assert traces[0]() is None


def test_a_first_call_leaves_the_collector_and_the_class_of_variables_as_they_are() -> None:
    seen: list[Any] = []
    w = tc.Variable(2.0)

    def look() -> Any:
        return gc.isenabled(), gc.get_freeze_count(), gc.get_threshold(), dict(vars(tc.Variable))

    @tc.function
    def f(x: Any) -> Any:
        seen.append(look())
        w.assign_add(x)
        return w * _chain(x)

    before = look()
    f(tc.ones(()))
    assert seen == [before]
    assert look() == before


def test_a_collector_that_is_off_stays_off_and_what_is_frozen_frozen() -> None:
    gc.disable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    tc.function(_chain)(tc.ones(2))
    assert not gc.isenabled()
    assert 0 < gc.get_freeze_count() <= frozen


def test_other_threads_read_and_assign_variables_while_a_trace_runs() -> None:
    w = tc.Variable([1.0, 2.0])
    traced, go_on = threading.Event(), threading.Event()

    @tc.function
    def f(x: Any) -> Any:
        w.assign(w * x)
        traced.set()
        assert go_on.wait(60)
        return tc.tanh(w) + w * w + w.value + tc.where(x > 0.0, w, 0.0)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(f, tc.asarray(3.0))
        assert traced.wait(60)
        assert (w * w).tolist() == [1.0, 4.0]
        assert (w + 1).tolist() == [2.0, 3.0]
        assert tc.negative(w).tolist() == [-1.0, -2.0]
        assert tc.concat([w, w]).tolist() == [1.0, 2.0, 1.0, 2.0]
        assert w.backend is tc.asarray(1.0).backend
        with tc.GradientTape() as tape:
            y = tc.sum(w * w)
        assert tape.gradient(y, w).tolist() == [2.0, 4.0]
        go_on.set()
        expected = np.tanh([3.0, 6.0]) + [9.0, 36.0] + np.asarray([3.0, 6.0]) * 2
        np.testing.assert_allclose(job.result(60).numpy(), expected, rtol=1e-6)
    assert w.tolist() == [3.0, 6.0]
