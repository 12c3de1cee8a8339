"""Interrupted blocks: wherever Ctrl-C comes, no tape records on, and nothing else is left of the block."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tape_core as tc
from tape_compile.turns import TRACING
from tape_core.base import contexts
from tape_core.base.ambient import ACTIVE, FORMER, OBSERVERS, OPEN_AXES, SELECTIONS, STAGE
from tape_core.debugging import journal
from tape_core.debugging.journal import NotedKernel
from tape_core.engine import recording
from tape_core.engine.op import BOUND
from tape_fuzz.injection import let_go_of_locks

FINALIZING = (weakref.finalize.__call__.__code__,)
OURS = str(Path(tc.__file__).parent)
CLASS = dict(vars(tc.Variable))


def residue() -> list[str]:
    """What is left of blocks."""
    found = [str(variable) for variable in (ACTIVE, FORMER, OBSERVERS, OPEN_AXES) if variable.get() != ()]
    left = (STAGE, TRACING)
    found += [str(variable) for variable in left if variable.get() not in (None, False)]
    if SELECTIONS.get() != ():
        found.append("the selected backend")
    if journal._in_blocks:
        found.append("a debugging tape")
    bound = [(op, op.bindings[backend][0]) for op, backend in BOUND if backend in op.bindings]  # some tests unbind ops
    found += [f"kernel of {op.name}" for op, kernel in bound if type(kernel) is NotedKernel]
    if not gc.isenabled():
        found.append("the garbage collector is off")
    if dict(vars(tc.Variable)) != CLASS:
        found.append("the class of Variables")
    return found


def interrupted(block: Callable[[], Any], at: int) -> int:
    """How many instructions of Tape's functions a block runs, until it is interrupted at one of them."""
    count = 0

    def on_event(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        code = frame.f_code
        # Python itself drops what is raised in a `__del__`, and in what is called when an object is gone.
        if not code.co_filename.startswith(OURS) or code.co_name == "__del__" or frame.f_back.f_code in FINALIZING:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count += 1
            if count == at:
                raise KeyboardInterrupt
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        block()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        let_go_of_locks()
    return count


x = tc.asarray([0.5, 1.5])


def _tape() -> None:
    with tc.GradientTape() as tape:
        tape.watch(x)


def _debugging() -> None:
    with tc.GradientTape(debug=True) as tape:
        tape.watch(x)


def _stopped() -> None:
    with tc.GradientTape() as tape, tape.stop_recording():
        tc.sin(x)


def _accumulator() -> None:
    with tc.ForwardAccumulator(x, x):
        tc.sin(x)


def _backend() -> None:
    with tc.use_backend("numpy"):
        pass


def _nested() -> None:
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape(persistent=True) as inner:
            inner.watch(x)
            y = tc.sum(x * x * x)
        g = inner.gradient(y, x)
    outer.gradient(g, x)


def _vmap() -> None:
    tc.vmap(tc.grad(lambda x: x * x))(x)


def _checkpoint() -> None:
    tc.grad(lambda x: tc.sum(tc.checkpoint(tc.sin)(x)))(x)


def _scan() -> None:
    tc.grad(lambda x: tc.scan(lambda c, _: (c * c, c), 0.5 * tc.mean(x), length=20)[0])(x)


def _hessian() -> None:
    tc.hessian(lambda x: tc.sum(x**3))(x)


def _compiled() -> None:
    tc.function(lambda x: x * x + 1.0)(x)


def _compiled_in_tape() -> None:
    f = tc.function(lambda x: x * x)
    for _ in range(2):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        tape.gradient(y, x)


BLOCKS = [
    _tape, _debugging, _stopped, _accumulator, _backend, _nested, _vmap, _checkpoint, _scan, _hessian, _compiled,
    _compiled_in_tape,
]  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS, ids=[block.__name__[1:] for block in BLOCKS])
def test_an_interrupt_leaves_nothing_behind(block: Callable[[], None]) -> None:
    block()
    n = interrupted(block, sys.maxsize)
    # Short blocks at each instruction, long ones at some.
    for at in range(1, n + 1, 1 if n < 800 else n // 97):
        interrupted(block, at)
        assert residue() == [], at
    block()


@pytest.mark.parametrize("block", [_tape, _stopped, _accumulator, _backend])
def test_a_block_is_guarded_as_from_python_3_14_on(block: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "_bound", partial)
    test_an_interrupt_leaves_nothing_behind(block)


def test_what_is_watched_is_not_recorded_after_an_interrupt_on_the_way_into_a_block() -> None:
    tape = tc.GradientTape()

    def enter() -> None:
        with tape:
            pass

    for at in range(1, interrupted(enter, sys.maxsize) + 1):
        interrupted(enter, at)
        assert not recording.is_active(tape)
    with tape:  # it is of use as ever
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x).tolist() == [1.0, 3.0]


def test_a_generator_that_ends_in_another_thread_leaves_no_tape() -> None:
    runs = []

    def steps() -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            yield tape

    f = tc.function(lambda x: runs.append(1) or x * 2.0)
    f(x)
    generator = steps()
    tape = next(generator)
    thread = threading.Thread(target=generator.close)
    thread.start()
    thread.join()
    f(x)
    assert runs == [1], "the function ran as it is, for a tape that was left"
    assert ACTIVE.get() == ()
    assert not recording.is_active(tape)


def test_a_tape_that_is_left_by_hand_or_by_a_stack_records_between() -> None:
    by_hand = tc.GradientTape()
    by_hand.__enter__()
    by_hand.watch(x)
    y = x * x
    by_hand.__exit__(None, None, None)
    assert by_hand.gradient(y, x).tolist() == [1.0, 3.0]
    with ExitStack() as stack:
        tape = stack.enter_context(tc.GradientTape())
        assert callable(tape.__exit__)  # looking at it does not leave it
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x).tolist() == [1.0, 3.0]
    leaving = tc.GradientTape()
    enter, leave = leaving.__enter__, leaving.__exit__
    enter()
    leaving.watch(x)
    y = x * x
    leave(None, None, None)
    assert leaving.gradient(y, x).tolist() == [1.0, 3.0]
    assert residue() == []


@pytest.mark.parametrize("make", [tc.GradientTape, lambda: tc.ForwardAccumulator(x, x)])
def test_a_block_that_was_not_entered_is_not_left(make: Any) -> None:
    recorder = make()
    with pytest.raises(RuntimeError, match="is not recording"):
        recorder.__exit__(None, None, None)
    with recorder:
        pass
    with pytest.raises(RuntimeError, match="is not recording"):
        recorder.__exit__(None, None, None)


@pytest.mark.parametrize("make", [tc.GradientTape, lambda: tc.ForwardAccumulator(x, x)])
@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, pickle.dumps])
def test_recorders_are_not_copied(make: Any, twin: Any) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        twin(make())


def test_a_tape_of_wrong_arguments_raises_a_type_error_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="persist"):
            tc.GradientTape(persist=True)  # type: ignore[call-arg]
        gc.collect()


def test_an_interrupt_in_one_context_leaves_others_alone() -> None:
    with tc.GradientTape() as tape:
        tape.watch(x)
        for at in range(1, 200, 7):
            copy_context().run(interrupted, _nested, at)
            assert recording.is_active(tape)
        y = x * x
    assert tape.gradient(y, x).tolist() == [1.0, 3.0]
