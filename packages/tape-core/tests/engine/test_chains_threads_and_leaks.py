"""Long chains, threads, tasks, generators, exceptions and leaks."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.base.ambient import ACTIVE
from tape_core.extend import elementwise, op, registry, vjp


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = set(registry)
    yield
    for name in set(registry) - before:
        registry._ops.pop(name)
    assert tuple(ACTIVE.get()) == ()


# -- length


def test_a_chain_of_a_million_records_differentiates() -> None:
    """No recursion anywhere; forward and backward take seconds."""
    n = 1_000_000
    v = tc.Variable(1.0, dtype="float64")
    gc.disable()  # it would take most of the time, looking through a million records again and again
    try:
        start = time.process_time()
        with tc.GradientTape() as tape:
            y = v
            for _ in range(n):
                y = y + 1.0
        assert len(tape._records) >= n
        assert tape.gradient(y, v).item() == 1.0
        assert time.process_time() - start < 30
    finally:
        gc.enable()


def test_a_long_chain_is_freed_without_recursion() -> None:
    v = tc.Variable([1.0])
    with tc.GradientTape() as tape:
        y = v
        for _ in range(100_000):
            y = tc.sin(y)
    reference = weakref.ref(y)
    del tape, y
    assert reference() is None


def test_a_long_chain_has_second_derivatives() -> None:
    v = tc.Variable(1.0)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = v * v
            for _ in range(10_000):
                y = y * 1.0
        g = inner.gradient(y, v)
    assert outer.gradient(g, v).item() == 2.0


# -- threads


def test_ops_and_reads_of_other_threads_are_not_recorded() -> None:
    v, w = tc.Variable(3.0), tc.Variable(5.0)
    results: list[Any] = []
    with tc.GradientTape() as tape:
        y = v * v
        n = len(tape._records)
        thread = threading.Thread(target=lambda: results.append(w * y))
        thread.start()
        thread.join()
        assert len(tape._records) == n
    assert tape.watched_variables() == (v,)
    assert tape.gradient(results, [v, w]) == [None, None]


def test_a_finished_tape_can_be_used_from_another_thread() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(tape.gradient, y, v).result().item() == 6.0


@pytest.fixture
def _eager_switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_eager_switching")
def test_parallel_threads_have_independent_tapes() -> None:
    """They share Variables, whose slots every thread writes to."""
    v = tc.Variable(tc.full((8,), 2.0))
    ready = threading.Barrier(4)

    def work(k: int) -> list[float]:
        ready.wait(timeout=60)
        found = []
        for step in range(100):
            with tc.GradientTape() as outer:
                with tc.GradientTape() as tape:
                    y = v * v * float(k)
                    for _ in range(step % 7):
                        y = y + v
                g = tape.gradient(y, v)
            found.append(g.numpy()[0] - step % 7)
            found.append(outer.gradient(g, v).numpy()[0])
        return found

    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(work, range(4))):
            assert found == [4.0 * k, 2.0 * k] * 100


@pytest.mark.usefixtures("_eager_switching")
def test_parallel_threads_watch_the_same_new_tensor() -> None:
    n = 4
    ready = threading.Barrier(n)
    shared: list[tc.Tensor] = []

    def work(k: int) -> list[float | None]:
        found = []
        for step in range(150):
            if ready.wait(timeout=60) == 0:
                shared.append(tc.asarray(3.0))
            ready.wait(timeout=60)
            x = shared[step]
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = x * x
            g = tape.gradient(y, x)
            found.append(None if g is None else g.item())
        return found

    with ThreadPoolExecutor(n) as pool:
        for found in pool.map(work, range(n)):
            assert found == [6.0] * 150


# -- asyncio


def test_tasks_do_not_see_each_others_tapes() -> None:
    v, w = tc.Variable(3.0), tc.Variable(5.0)

    async def work(k: int) -> tuple[float, int]:
        with tc.GradientTape() as tape:
            y = v * float(k)
            for _ in range(5):
                await asyncio.sleep(0)
                y = y + (v if k % 2 else w)
        return tape.gradient(y, v).item(), len(tape.watched_variables())

    async def main() -> list[tuple[float, int]]:
        return await asyncio.gather(*(work(k) for k in range(6)))

    found = asyncio.run(main())
    assert found == [(k + 5.0, 1) if k % 2 else (float(k), 2) for k in range(6)]


def test_child_tasks_callbacks_and_threads_made_inside_a_block_do_not_see_its_tape() -> None:
    v = tc.Variable(3.0)
    seen: list[Any] = []

    async def child() -> Any:
        seen.append(tuple(ACTIVE.get()))
        with tc.GradientTape() as own:
            y = v * v
            await asyncio.sleep(0)
            z = y * v
        assert own.gradient(z, v).item() == 27.0
        seen.append(tuple(ACTIVE.get()))
        return z

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with tc.GradientTape() as tape:
            tasks = [asyncio.create_task(child()) for _ in range(2)]
            loop.call_soon(lambda: seen.append(tuple(ACTIVE.get())))
            seen.append(await asyncio.to_thread(lambda: tuple(ACTIVE.get())))
            mine = v * 2.0
            theirs = await asyncio.gather(*tasks)
            assert tuple(ACTIVE.get()) == (tape,)
            mine = mine + v
        assert tape.gradient([mine, *theirs], v).item() == 3.0
        assert tuple(ACTIVE.get()) == ()

    asyncio.run(main())
    assert seen == [()] * 6


def test_a_task_that_is_cancelled_leaves_no_tape_behind() -> None:
    v = tc.Variable(3.0)

    async def endless() -> None:
        with tc.GradientTape():
            while True:
                _ = v * v
                await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.create_task(endless())
        for _ in range(3):
            await asyncio.sleep(0)
        with tc.GradientTape() as tape:
            y = v * v
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert tuple(ACTIVE.get()) == (tape,)
        assert tape.gradient(y, v).item() == 6.0

    asyncio.run(main())


def test_awaiting_inside_a_block_goes_on_recording() -> None:
    v = tc.Variable(3.0)

    async def helper(x: Any) -> Any:
        await asyncio.sleep(0)
        return x * v

    async def main() -> None:
        with tc.GradientTape() as outer:
            with tc.GradientTape() as inner:
                y = await helper(await helper(v))
            g = inner.gradient(y, v)
        assert (g.item(), outer.gradient(g, v).item()) == (27.0, 18.0)

    asyncio.run(main())


# -- exceptions


def test_exceptions_in_nested_tapes_leave_every_level_usable() -> None:
    v = tc.Variable(2.0)
    tapes = [tc.GradientTape(persistent=True) for _ in range(4)]

    def descend(k: int) -> Any:
        if k == len(tapes):
            raise LookupError("bottom")
        with tapes[k]:
            y = v * float(k + 1)
            try:
                descend(k + 1)
            except LookupError:
                if k != 1:
                    raise
            return y * v

    with pytest.raises(LookupError, match="bottom"), tapes[0]:
        descend(1)
        raise LookupError("bottom")
    for tape in tapes:
        with tape:
            y = v * v
        assert tape.gradient(y, v).item() == 4.0


def test_an_error_of_a_kernel_leaves_no_record() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = v * v
        n = len(tape._records)
        for call in (
            lambda: v + tc.ones(3),
            lambda: tc.matmul(v, tc.ones(3)),
            lambda: tc.sum(v, axis=5),
            lambda: tc.concat([v, tc.ones((2, 2))]),
            lambda: v[7],
        ):
            with pytest.raises((ValueError, IndexError)):
                call()
        assert len(tape._records) == n
    assert tape.gradient(y, v).tolist() == [2.0, 4.0]


def test_an_error_in_a_rule_passes_through_the_sweep_of_nested_tapes() -> None:
    def rule(xp: Any, x: Any) -> Any:
        raise ZeroDivisionError("in a rule")

    @elementwise(x=rule, kernel=lambda xp, x: x * 1.0)
    def fails_in_its_rule(x: Any, /) -> Any:
        """Its rule raises."""

    v = tc.Variable(2.0)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = fails_in_its_rule(v)
        with pytest.raises(ZeroDivisionError, match="in a rule"):
            inner.gradient(y, v)
        z = v * v
    assert outer.gradient(z, v).item() == 4.0


# -- memory


def growth(step: Callable[[], Any], warm: int, n: int) -> int:
    """How many blocks of memory n steps leave behind."""
    for _ in range(warm):
        step()
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(n):
        step()
    gc.collect()
    return sys.getallocatedblocks() - blocks


def test_10_000_training_steps_leave_memory_flat() -> None:
    w, b = tc.Variable([[0.5], [0.1]]), tc.Variable(0.0)
    x, y = tc.asarray([[1.0, 2.0], [3.0, 4.0]]), tc.asarray([[1.0], [2.0]])
    losses: list[Any] = []

    def step() -> None:
        with tc.GradientTape() as tape:
            tape.watch(x)
            loss = tc.mean((x @ w + b - y) ** 2)
        dw, db = tape.gradient(loss, [w, b])
        w.assign_sub(dw * 0.01)
        b.assign_sub(db * 0.01)
        losses[:] = [loss]

    assert growth(step, 500, 9_500) < 500
    assert losses[0].item() < 0.05


@pytest.mark.parametrize("kind", ["nested", "persistent", "dropped", "failing", "reset", "reused"])
def test_other_uses_of_tapes_leave_memory_flat(kind: str) -> None:
    v, x = tc.Variable([0.5, 0.1]), tc.asarray([1.0, 2.0])
    kept = tc.GradientTape()

    def step() -> None:
        if kind == "reset":
            kept.reset()
            tc.sum(v * x)
            return
        tape = kept if kind == "reused" else tc.GradientTape(persistent=kind == "persistent")
        with tape:
            tape.watch(x)
            if kind == "nested":
                with tc.GradientTape() as inner:
                    y = tc.sum(tc.sin(v * x))
                y = inner.gradient(y, v)
            else:
                y = tc.sum(tc.sin(v * x))
        if kind == "failing":
            with pytest.raises(ValueError, match="output_gradients"):
                tape.gradient(y, v, [1.0, 2.0, 3.0])
        elif kind != "dropped":
            tape.gradient(y, [v, x])

    if kind == "reset":
        with kept:
            blocks = growth(step, 300, 2_000)
    else:
        blocks = growth(step, 300, 2_000)
    assert blocks < 500
    assert len(v._slots) < 20
    assert len(x._slots) < 20


def test_values_watched_by_many_tapes_do_not_collect_slots() -> None:
    x, c, v = tc.asarray([1.0, 2.0]), tc.asarray([3.0, 4.0]), tc.Variable([1.0, 1.0])
    for _ in range(500):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = x * c * v
        tape.gradient(y, x)
    assert max(len(t._slots) for t in (x, c, v)) < 20
    tapes = [tc.GradientTape() for _ in range(30)]
    for tape in tapes:
        tape.watch(x)
        with tape:
            y = x * x
        assert tape.gradient(y, x).tolist() == [2.0, 4.0], "also while earlier tapes live"


def test_a_kept_loss_keeps_no_graph_alive() -> None:
    v = tc.Variable(np.ones(1000, "float32"))
    with tc.GradientTape() as tape:
        hidden = tc.exp(v)
        loss = tc.sum(hidden * hidden)
    reference = weakref.ref(hidden._array)
    del hidden
    assert reference() is not None, "the tape needs it"
    losses = [loss]
    del tape
    assert reference() is None
    assert np.isfinite(losses[0].item())


def test_a_gradient_releases_what_the_tape_kept() -> None:
    v = tc.Variable(np.ones(1000, "float32"))
    for persistent in (False, True):
        with tc.GradientTape(persistent=persistent) as tape:
            hidden = tc.exp(v)
            loss = tc.sum(hidden * hidden)
        reference = weakref.ref(hidden._array)
        del hidden
        tape.gradient(loss, v)
        assert (reference() is not None) == persistent
        del tape
        assert reference() is None


def test_what_no_watched_value_reaches_is_not_kept() -> None:
    x, v = tc.asarray(np.ones(1000, "float32")), tc.Variable(np.ones(1000, "float32"))
    with tc.GradientTape() as tape:
        hidden = tc.exp(x)
        y = tc.sum(hidden * hidden)
        z = tc.exp(v)
        dead = weakref.ref(z._array)
    reference = weakref.ref(hidden._array)
    del hidden, z
    assert reference() is None
    assert dead() is not None, "a dead branch of a watched value is kept"
    assert tape.gradient(y, v) is None
    assert dead() is None


def test_a_gradient_frees_records_while_it_walks() -> None:
    """When the rule of the first op runs, what later ops kept is gone, unless the tape persists."""
    alive: list[int] = []
    references: list[Any] = []

    def rule(xp: Any, g: Any) -> Any:
        alive.append(sum(reference() is not None for reference in references))
        return g

    @op(x=vjp(rule), kernel=lambda xp, x: x * 1.0)
    def counts_what_is_alive(x: Any, /) -> Any:
        """The identity."""

    v = tc.Variable(np.ones(1000, "float32"))
    for persistent in (False, True):
        references.clear()
        with tc.GradientTape(persistent=persistent) as tape:
            y = counts_what_is_alive(v)
            for _ in range(10):
                y = tc.exp(y * 0.1)
                references.append(weakref.ref(y._array))
        loss = tc.sum(y)
        with tape:
            loss = tc.sum(y)
        del y
        tape.gradient(loss, v)
    assert alive == [0, 10]


def test_the_peak_of_a_gradient_is_below_twice_the_forward() -> None:
    v = tc.Variable(np.ones(100_000, "float64"))
    with tc.GradientTape() as tape:
        y = v
        for _ in range(50):
            y = tc.sin(y)
        loss = tc.sum(y)
    del y
    tracemalloc.start()
    tape.gradient(loss, v)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 800_000, "some cotangents, not one for each record"


def test_a_constant_of_a_record_does_not_outlive_it() -> None:
    v = tc.Variable(np.ones(1000, "float32"))
    constant = tc.asarray(np.full(1000, 2.0, "float32"))
    raw = np.full(1000, 3.0, "float32")
    references = [weakref.ref(constant._array), weakref.ref(constant), weakref.ref(raw)]
    with tc.GradientTape() as tape:
        y = tc.sum(v * constant * raw)
    del constant, raw
    assert references[1]() is None, "the tape keeps arrays, not Tensors"
    tape.gradient(y, v)
    assert [reference() for reference in references] == [None, None, None]


def test_a_tape_is_freed_without_the_garbage_collector() -> None:
    v = tc.Variable([1.0, 2.0])
    gc.disable()
    try:
        with tc.GradientTape() as tape:
            y = tc.sum(tc.sin(v) * v)
        with tc.GradientTape() as outer:
            tape.gradient(y, v)
        references = [weakref.ref(tape), weakref.ref(outer)]
        del tape, outer
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()
