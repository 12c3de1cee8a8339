"""What a first call of a compiled function leaves to Python's garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import tape_core as tc
from tape_core.backends.traced import TRACE


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    gc.collect()
    yield
    gc.enable()
    gc.unfreeze()


def _chain(x: Any) -> Any:
    for _ in range(400):
        x = tc.sin(x)
    return x


def test_a_new_program_is_not_looked_through() -> None:
    tc.function(_chain)(tc.ones(2))  # what is imported then
    gc.collect()
    tc.function(_chain)(tc.ones(2))
    assert len(gc.get_objects(0)) < 1000, "the program is still to be looked through"


def _leaving(left: list[Any]) -> Any:
    """A compiled function with one inside that calls itself, and so refers to itself."""

    def f(x: Any) -> Any:
        y = x * 2.0

        def power(n: int) -> Any:
            return y if n == 0 else power(n - 1) * y

        left.append(weakref.ref(power))
        return power(3)

    return tc.function(f)


def test_what_a_function_leaves_is_collected_by_its_first_call() -> None:
    left: list[Any] = []
    f = _leaving(left)
    f(tc.ones(2))
    assert left[0]() is None
    assert f(tc.ones(2)).tolist() == [16.0, 16.0]


@pytest.mark.parametrize("variable", [False, True])
def test_a_trace_goes_without_the_garbage_collector(variable: bool) -> None:
    w = tc.Variable(2.0)
    traces: list[Any] = []

    @tc.function
    def step(x: Any) -> Any:
        traces.append(weakref.ref(TRACE.get()))
        with tc.GradientTape() as tape:
            loss = w * x
        if variable:
            w.assign_sub(tape.gradient(loss, w))
        return loss

    gc.disable()
    step(tc.asarray(1.0))
    assert traces[0]() is None


def test_what_is_frozen_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    tc.function(_chain)(tc.ones(2))
    assert 0 < gc.get_freeze_count() <= frozen


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    left: list[Any] = []
    _leaving(left)(tc.ones(2))
    assert left[0]() is not None
    assert not gc.isenabled()
