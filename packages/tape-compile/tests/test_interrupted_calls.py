"""A compiled call that raises or is interrupted leaves every Variable as it was, or as it is after the call."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_fuzz.injection import interrupted_at

N = 20_000  # elements: memory of arrays of this size is used again


def moments(call: Callable[[], Any]) -> list[int]:
    """Numbers of opcodes of a call, spread over it, and all of its end."""
    for _ in range(3):  # from then on all calls are alike
        call()
    low, high = 1, 2
    while interrupted_at(high, call):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if interrupted_at(middle, call) else (low, middle)
    return sorted({*range(1, low, max(1, low // 100)), *range(max(1, low - 80), low + 1)})


def bits(variables: list[tc.Variable]) -> list[bytes]:
    return [v.numpy().tobytes() for v in variables]


def two_variables() -> tuple[list[tc.Variable], Any]:
    v, w = tc.Variable(np.full(N, 1.0)), tc.Variable(np.full((N // 10, 10), 0.5))

    def step(m: Any) -> Any:
        t = tc.sin(v)
        u = tc.cumulative_sum(t) * 1e-3
        w.assign(tc.cos(w * 0.5) + w)
        v.assign_add(tc.cos(u) * 0.5 + t)
        y = tc.linalg.inv(m)
        w.assign_add(tc.full_like(w, 0.25) * y[0, 0])
        return y

    return [v, w], tc.function(step)


def label_check() -> tuple[list[tc.Variable], Any]:
    v, w = tc.Variable(np.full(N, 1.0)), tc.Variable(np.full(N, 2.0))

    def step(m: Any) -> Any:
        v.assign(tc.sin(v) + tc.exp(-w))
        found = tc.take(v, tc.astype(m[0], tc.int64) * 10_000)
        w.assign(tc.sin(w) * 0.5 + v)
        return found

    return [v, w], tc.function(step)


def called_python() -> tuple[list[tc.Variable], Any]:
    from tape_core.staging import opaque

    v, w = tc.Variable(np.full(N, 1.0)), tc.Variable(np.full(N, 2.0))

    @opaque
    def check(m: Any, variable: Any) -> Any:
        variable.assign(variable * 2)
        if float(tc.sum(m)) == 0:
            raise ValueError("nothing there")
        return m * 1.0

    def step(m: Any) -> Any:
        v.assign(tc.sin(v) + tc.exp(-w))
        found = check(m, v)
        w.assign(tc.sin(w) * 0.5 + v)
        return found, tc.linalg.inv(m)

    return [v, w], tc.function(step)


GOOD, BAD, LATE = np.eye(3), np.zeros((3, 3)), np.ones((3, 3))


@pytest.mark.parametrize("make", [two_variables, label_check, called_python])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_an_error_leaves_all_variables_as_they_were(make: Any, calls: int) -> None:
    variables, step = make()
    for _ in range(calls):
        step(tc.asarray(GOOD))
    before = bits(variables)
    kept = [v.value for v in variables]
    errors = [BAD] if make is not label_check else [GOOD * 3, -9 * GOOD]
    for bad in [*errors, *([LATE] if make is called_python else [])]:
        with pytest.raises((ValueError, IndexError, np.linalg.LinAlgError)):
            step(tc.asarray(bad))
        assert bits(variables) == before
    step(tc.asarray(GOOD))
    assert [k.numpy().tobytes() for k in kept] == before != bits(variables)


@pytest.mark.parametrize("make", [two_variables, called_python])
def test_an_interrupt_at_any_opcode_of_a_call_leaves_all_variables_old_or_new(make: Any) -> None:
    variables, step = make()
    good = tc.asarray(GOOD)
    step(good)
    starts = [v.value for v in variables]
    old = bits(variables)
    step(good)
    new = bits(variables)
    seen = set()
    for number in moments(lambda: step(good)):
        for v, start in zip(variables, starts, strict=True):
            v.assign(start)
        assert interrupted_at(number, lambda: step(good))
        found = bits(variables)
        assert found in (old, new), number
        seen.add(found == new)
    assert seen == {True, False}


def test_tensors_that_an_argument_is_changed_into_are_assigned_with_the_variables() -> None:
    v = tc.Variable(np.full(N, 1.0))

    @tc.function
    def step(x: Any) -> None:
        x += tc.sin(v)
        v.assign(v * 0.5 + 1.0)

    def call() -> None:
        step(x)

    x = tc.asarray(np.zeros(N))
    step(x)
    old_x, old_v = x.numpy().copy(), v.value
    step(x)
    new = x.numpy().tobytes(), bits([v])
    for number in moments(call):
        x = tc.asarray(old_x)
        v.assign(old_v)
        assert interrupted_at(number, call)
        assert (x.numpy().tobytes(), bits([v])) in (new, (old_x.tobytes(), [old_v.numpy().tobytes()])), number


def test_a_handler_of_signals_sees_the_values_of_one_step() -> None:
    v, w = (tc.Variable(np.zeros(300_000)) for _ in range(2))

    @tc.function
    def step() -> None:
        v.assign(v * 1.0 + 1.0)
        w.assign(w * 1.0 + 1.0)

    seen: list[set[float]] = []

    def look(*_: Any) -> None:
        seen.append({float(find(tensor.array)) for tensor in (v, w) for find in (np.min, np.max)})
        signal.setitimer(signal.ITIMER_REAL, 1e-3)

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    try:
        while len(seen) < 40:
            step()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [len(values) for values in seen] == [1] * len(seen)


@pytest.mark.parametrize("compiled", [True, False])
def test_another_thread_reads_whole_values_that_do_not_change(compiled: bool) -> None:
    v = tc.Variable(np.zeros(400_000))

    def step() -> None:
        v.assign_add(tc.ones(v.shape, dtype=tc.float64))

    run = tc.function(step) if compiled else step
    run()
    stop, torn = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            for tensor in (v * 1.0, tc.stop_gradient(v), v.value):
                first = tensor.numpy()
                value = first[0]
                if not (first == value).all() or tensor[0].item() != value:
                    torn.append(value)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(150):
            run()
    finally:
        stop.set()
        reader.join()
    assert not torn


def test_rows_are_added_to_what_nobody_reads() -> None:
    table = tc.Variable(np.zeros((5000, 4)))
    kept = []
    numbers = np.array([1, 7, 1])
    for k in range(4):
        numbers[:] = [k, k + 1, k]  # a loader's buffer
        kept.append((table.value, table.numpy().copy()))
        table.assign_add(tc.IndexedSlices(tc.ones((3, 4), dtype=tc.float64), tc.asarray(numbers), table.shape))
        if k == 2:
            kept = kept[2:]
    for tensor, values in kept:
        assert np.array_equal(tensor.numpy(), values)
    expected = np.zeros((5000, 4))
    for k in range(4):
        np.add.at(expected, [k, k + 1, k], 1.0)
    assert np.array_equal(table.numpy(), expected)


def test_a_memory_error_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    variables, step = two_variables()
    step(tc.asarray(GOOD))
    before = bits(variables)
    assert interrupted_at(60, lambda: step(tc.asarray(GOOD)), MemoryError())
    assert bits(variables) == before


def test_an_opaque_call_alone_sees_values_of_the_middle_of_a_run() -> None:
    from tape_core.staging import opaque

    v = tc.Variable(1.0)
    seen, inside = [], []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(v.item()))
    fails = False

    @opaque
    def call(x: Any, variable: Any) -> Any:
        inside.append(variable.item())
        variable.assign(variable * 10.0)
        signal.raise_signal(signal.SIGTERM)
        thread = threading.Thread(target=lambda: seen.append(v.item()))
        thread.start()
        thread.join()
        if fails:
            raise ValueError("too late")
        return x + variable

    @tc.function
    def step(x: Any) -> Any:
        v.assign(v + 1.0)
        y = call(x, v)
        v.assign(v + 1.0)
        return y

    try:
        assert [step(tc.asarray(0.0)).item() for _ in range(3)] == [20.0, 220.0, 2220.0]
        assert (inside, seen) == ([2.0, 22.0, 222.0], [1.0, 1.0, 21.0, 21.0, 221.0, 221.0])
        fails = True
        with pytest.raises(ValueError, match="too late"):
            step(tc.asarray(0.0))
        assert (v.item(), seen[-2:]) == (2221.0, [2221.0, 2221.0])
        assert signal.getsignal(signal.SIGTERM).__name__ == "<lambda>"  # type: ignore[union-attr]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupt_while_variables_are_bound_leaves_no_call_that_passes_the_binding_by() -> None:
    from tape_core.engine import binding

    v = tc.Variable(1.0)

    def bound() -> float:
        with binding.bind([v], [tc.asarray(5.0)]):
            return float((v * 2.0).item())

    for number in range(1, 10_000):
        if not interrupted_at(number, bound):
            break
        assert bound() == 10.0, number
        assert (v * 2.0).item() == 2.0
    assert number > 100
