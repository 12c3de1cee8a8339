"""What a tape records: the section "Recording" of the semantics, a test for each row."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.base.ambient import ACTIVE


@pytest.fixture(autouse=True)
def _no_tape_is_left_behind() -> Iterator[None]:
    yield
    assert tuple(ACTIVE.get()) == ()


# -- inside and outside


def test_ops_outside_the_context_are_not_recorded() -> None:
    v = tc.Variable(3.0)
    before = v * v
    with tc.GradientTape() as tape:
        inside = v * 2.0
    after = inside * v
    assert tape.gradient([before, inside, after], v).item() == 2.0


def test_a_second_block_goes_on_and_keeps_the_first() -> None:
    v = tc.Variable(3.0)
    tape = tc.GradientTape()
    with tape:
        y = v * v
    between = y * 10.0
    with tape:
        z = y * v
    assert tape.gradient([z, between], v).item() == 27.0


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_entering_an_active_tape_is_both_errors(error: type[Exception]) -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        with pytest.raises(error) as caught, tape:
            pass
        y = v * v
    assert str(caught.value) == (
        "Tape is still recording, This can happen if you try to re-enter an already-active tape."
    )
    assert tape.gradient(y, v).item() == 6.0, "it keeps recording"


def test_after_its_gradient_a_tape_that_is_entered_again_is_fresh() -> None:
    v, w, x = tc.Variable(2.0), tc.Variable(5.0), tc.asarray(3.0)
    tape = tc.GradientTape()
    with tape:
        tape.watch(x)
        y = v * w * x
    assert [g.item() for g in tape.gradient(y, [v, w, x])] == [15.0, 6.0, 10.0]
    with tape:
        z = w * w + v * x + y
    assert tape.watched_variables() == (v, w)
    dv, dw, dx, dy = tape.gradient(z, [v, w, x, y])
    assert (dv.item(), dw.item()) == (3.0, 10.0), "slots of the first block do not count"
    assert dx is None, "constants must be watched again"
    assert dy is None, "earlier results are constants now"


def test_a_fresh_tape_forgets_the_variables_of_the_first_use() -> None:
    v, frozen = tc.Variable(2.0), tc.Variable(5.0, trainable=False)
    tape = tc.GradientTape()
    with tape:
        tape.watch(frozen)
        y = v * frozen
    tape.gradient(y, v)
    with tape:
        z = frozen * frozen
    assert tape.watched_variables() == ()
    assert tape.gradient(z, [v, frozen]) == [None, None]


# -- reset


def test_reset_forgets_records_and_watches_and_goes_on() -> None:
    v, x = tc.Variable(3.0), tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = v * x
        tape.reset()
        assert tape.watched_variables() == ()
        z = v * v + y * x
    assert tape.watched_variables() == (v,)
    dv, dx = tape.gradient([y, z], [v, x])
    assert dv.item() == 6.0, "v is watched again when it is read"
    assert dx is None


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_reset_of_a_tape_that_does_not_record(error: type[Exception]) -> None:
    tape = tc.GradientTape()
    with pytest.raises(error, match=r"^Tape is not recording\.$"):
        tape.reset()
    with tape:
        pass
    with pytest.raises(error, match=r"^Tape is not recording\.$"):
        tape.reset()


def test_an_outer_tape_can_be_reset_inside_an_inner_one() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as outer:
        y = v * v
        with tc.GradientTape() as inner:
            z = v * 5.0
            outer.reset()
            w = v * 7.0
    assert outer.gradient([y, z, w], v).item() == 7.0
    assert inner.gradient([z, w], v).item() == 12.0


# -- stop_recording


def test_nothing_inside_stop_recording_is_recorded() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
        with tape.stop_recording():
            paused = y * v
        z = y * paused
    assert tape.gradient(z, v).item() == 27.0 * 6.0


def test_stop_recording_stops_one_tape_only() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as outer, tc.GradientTape() as inner:
        with outer.stop_recording():
            y = v * v
    assert outer.gradient(y, v) is None
    assert inner.gradient(y, v).item() == 6.0


def test_recording_resumes_after_an_exception_and_a_break() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        with pytest.raises(KeyError), tape.stop_recording():
            raise KeyError
        for _ in range(2):
            with tape.stop_recording():
                break
        y = v * v
    assert tape.gradient(y, v).item() == 6.0


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_stop_recording_while_not_recording(error: type[Exception]) -> None:
    text = r"^Trying to stop recording a tape which is not recording\.$"
    tape = tc.GradientTape()
    with pytest.raises(error, match=text), tape.stop_recording():
        pass
    with tape, tape.stop_recording():
        with pytest.raises(error, match=text), tape.stop_recording():
            pass
    with pytest.raises(error, match=text), tape.stop_recording():
        pass


def test_a_gradient_inside_stop_recording_is_not_recorded_and_does_not_warn() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape(persistent=True) as tape:
        y = v * v * v
        with tape.stop_recording():
            g = tape.gradient(y, v)
        z = v * g
    assert g.item() == 27.0
    assert tape.gradient(z, v).item() == 27.0, "g is a constant"


def test_after_a_gradient_inside_its_own_stop_recording_a_fresh_tape_records() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
        with tape.stop_recording():
            assert tape.gradient(y, v).item() == 6.0
        z = v * y
    assert tape.gradient(z, v).item() == 9.0, "y is a constant now"


def test_watch_inside_stop_recording_counts_from_when_recording_resumes() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as tape:
        with tape.stop_recording():
            tape.watch(x)
            y = x * x
        z = x * 5.0
    assert tape.gradient([y, z], x).item() == 5.0


# -- exceptions


def test_an_exception_leaves_the_context_cleanly() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as outer:
        with pytest.raises(KeyError, match="mine"), tc.GradientTape() as inner:
            y = v * v
            raise KeyError("mine")
        assert tuple(ACTIVE.get()) == (outer,)
        z = y * v
    assert inner.gradient(y, v).item() == 6.0, "what came before is differentiable"
    assert outer.gradient(z, v).item() == 27.0


def test_tapes_may_be_left_in_any_order() -> None:
    v = tc.Variable(3.0)
    first, second = tc.GradientTape(), tc.GradientTape()
    first.__enter__()
    second.__enter__()
    y = v * v
    first.__exit__(None, None, None)
    z = y * v
    second.__exit__(None, None, None)
    assert first.gradient([y, z], v).item() == 6.0
    assert second.gradient([y, z], v).item() == 33.0


# -- control flow


def test_if_for_while_and_recursion_are_recorded_as_executed() -> None:
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    x = tc.Variable(2.0)
    with tc.GradientTape() as tape:
        y = power(x, 3) if x > 0 else x
        for _ in range(2):
            y = y * x
        while y < 100.0:
            y = y * y
    assert y.item() == 1024.0
    assert tape.gradient(y, x).item() == 10 * 2.0**9


def test_a_suspended_generator_keeps_its_tape_recording_for_the_caller() -> None:
    v = tc.Variable(3.0)

    def steps() -> Iterator[Any]:
        with tc.GradientTape() as tape:
            yield tape
        yield None

    generator = steps()
    tape = next(generator)
    y = v * v
    next(generator)
    assert tape.gradient([y, v * y], v).item() == 6.0


# -- assignment


@pytest.mark.parametrize("shape", [(), (3,), (300, 300)], ids=str)
def test_each_read_keeps_its_value_when_the_variable_is_assigned_to(shape: tuple[int, ...]) -> None:
    v = tc.Variable(tc.full(shape, 2.0))
    with tc.GradientTape() as tape:
        y = v * v
        v.assign(tc.full(shape, 10.0))
        z = y * v
    assert np.all(z.numpy() == 40.0)
    assert np.all(tape.gradient(z, v).numpy() == 44.0)


@pytest.mark.parametrize("shape", [(), (3,), (300, 300)], ids=str)
@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_an_assignment_after_the_context_changes_no_gradient(method: str, shape: tuple[int, ...]) -> None:
    v = tc.Variable(tc.full(shape, 2.0))
    with tc.GradientTape() as tape:
        y = v * v
    for _ in range(3):
        getattr(v, method)(tc.full(shape, 10.0))
    assert np.all(tape.gradient(y, v).numpy() == 4.0)


def test_updates_of_an_unread_variable_do_not_reach_values_handed_out() -> None:
    v = tc.Variable([[1.0, 2.0], [3.0, 4.0]])
    views = [v.value, v[0], v.T, tc.reshape(v, (4,)), tc.broadcast_to(v, (2, 2, 2)), tc.flip(v)]
    arrays = [v.array, v.numpy(), v.array[1:], np.asarray(v)]
    before = [t.tolist() for t in views], [a.tolist() for a in arrays]
    v.assign_add([[1.0, 1.0], [1.0, 1.0]])
    v.assign_sub(tc.IndexedSlices(tc.ones((1, 2)), tc.asarray([0]), (2, 2)))
    v.assign_add(tc.ones((2, 2)))
    assert ([t.tolist() for t in views], [a.tolist() for a in arrays]) == before
    assert v.tolist() == [[2.0, 3.0], [5.0, 6.0]]


def test_assigned_values_are_not_aliased() -> None:
    x = tc.ones((3,))
    raw = np.ones(3, dtype="float32")
    for value in (x, raw):
        v = tc.Variable(tc.zeros((3,)))
        v.assign(value)
        v.assign_add([1.0, 1.0, 1.0])
        assert x.tolist() == raw.tolist() == [1.0, 1.0, 1.0]
    raw[0] = 5.0
    assert v.tolist() == [2.0, 2.0, 2.0]


def test_nothing_flows_through_an_assignment() -> None:
    v, x = tc.Variable(3.0), tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        v.assign(x * x)
        v.assign_add(x)
        y = v * 5.0
    dv, dx = tape.gradient(y, [v, x])
    assert (y.item(), dv.item()) == (30.0, 5.0)
    assert dx is None


def test_the_result_of_assign_is_a_read_of_the_variable() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v.assign(2.0 * v) * 5.0
    assert y.item() == 30.0
    assert tape.gradient(y, v).item() == 5.0


def test_a_variable_made_from_a_tensor_is_a_new_leaf() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        v = tc.Variable(x * x)
        y = v * v
    dv, dx = tape.gradient(y, [v, x])
    assert dv.item() == 8.0
    assert dx is None


@pytest.mark.parametrize("operator", ["+=", "-=", "*=", "/=", "**=", "//=", "%=", "@="])
def test_operators_that_look_like_updates_are_refused(operator: str) -> None:
    """`v += 1` would silently make a Tensor of the variable."""
    namespace = {"v": tc.Variable([2.0])}
    with pytest.raises(RuntimeError, match=r"assign"):
        exec(f"v {operator} 1.0", namespace)
    assert isinstance(namespace["v"], tc.Variable)


def test_assign_refuses_other_shapes_and_dtypes_and_names_the_variable() -> None:
    v = tc.Variable([1.0, 2.0], name="w")
    with pytest.raises(ValueError, match=r"assign: .*shape \(\).*variable 'w' of shape \(2,\)"):
        v.assign(1.0)
    with pytest.raises(ValueError, match=r"assign_add: .*shape \(1,\)"):
        v.assign_add([1.0])
    with pytest.raises(TypeError, match=r"assign_sub: .*dtype float64.*astype"):
        v.assign_sub(np.ones(2))
    assert v.tolist() == [1.0, 2.0]


# -- cuts


def test_numpy_and_back_cuts_the_path() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape(persistent=True) as tape:
        cuts = [
            tc.asarray(v.numpy()) * 2.0,
            tc.asarray(v.tolist()) * 2.0,
            tc.asarray(float(v[0])) * 2.0,
            tc.asarray(v[0].item()) * 2.0,
            tc.stop_gradient(v) * 2.0,
        ]
        with pytest.warns(UserWarning, match="a NumPy array is made of a Variable"):
            cuts += [tc.asarray(np.asarray(v)) * 2.0]
    for y in cuts:
        assert tape.gradient(y, v) is None
    with pytest.raises(ValueError, match=r"does not depend on the source Variable.*shape \(2,\)"):
        tape.gradient(cuts[0], v, unconnected_gradients="error")


def test_a_cast_to_an_integer_and_back_cuts_the_path() -> None:
    v = tc.Variable([1.5, 2.0])
    x = tc.asarray([1.5, 2.0])
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.astype(tc.astype(v, tc.int64), tc.float32) * 2.0
        z = tc.astype(tc.astype(x, tc.bool), tc.float32)
    assert y.tolist() == [2.0, 4.0]
    assert tape.gradient([y, z], [v, x]) == [None, None]
    with pytest.raises(ValueError, match="by a cast to integers"):
        tape.gradient(y, x, unconnected_gradients="error")


# -- threads and tasks (more in test_chains_threads_and_leaks.py)


def test_another_thread_does_not_see_the_tape() -> None:
    v, found = tc.Variable(3.0), []
    with tc.GradientTape() as tape:
        thread = threading.Thread(target=lambda: found.append((tuple(ACTIVE.get()), v * v)))
        thread.start()
        thread.join()
    (active, y) = found[0]
    assert active == ()
    assert tape.watched_variables() == ()
    assert tape.gradient(y, v) is None


def test_another_asyncio_task_does_not_see_the_tape() -> None:
    v = tc.Variable(3.0)

    async def child() -> Any:
        return v * v

    async def main() -> None:
        with tc.GradientTape() as tape:
            mine = v * 2.0
            theirs = await asyncio.create_task(child())
            awaited = await child()
        assert tape.gradient(theirs, v) is None
        with tc.GradientTape() as tape:
            mine = v * 2.0
            theirs = await asyncio.create_task(child())
            awaited = await child()
        assert tape.gradient([mine, theirs, awaited], v).item() == 8.0

    asyncio.run(main())
