"""Calls of a compiled function that run as plain Python have all of their effects or none, as compiled ones do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_fuzz.injection import Injection, interrupted_at

pytestmark = pytest.mark.each_backend

# Python drops what is raised in a `__del__`, and pytest warns of it: the call goes on to its end.
DROPPED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SAMPLES = 25  # instructions of a call at which it is interrupted: a third of a call is between its assignments


class Program:
    """Four Variables, an optimizer and an argument, which one function changes.

    Attributes:
        fails: whether the function raises an error at its end.
    """

    def __init__(self, **options: Any) -> None:
        self.fails = False
        self.watched = tc.Variable(np.full(3, 0.5))
        self.statistics = tc.Variable(np.full(3, 1.0), trainable=False)
        self.steps = tc.Variable(0, trainable=False)
        self.slow = tc.Variable(np.full(3, 2.0), trainable=False)
        self.optimizer = nn.SGD(0.125, momentum=0.5)
        self.optimizer.apply_gradients([(tc.ones(3, dtype=tc.float64), self.slow)])
        self.x = tc.asarray(np.full(3, 0.25))
        self.function = tc.function(self.step, **options)

    def step(self, x: Any) -> Any:
        self.watched.assign(tc.sin(self.watched) + self.statistics)
        y = tc.sum(x * self.watched)
        x += 1.0
        self.statistics.assign(self.statistics * 0.5 + y)
        self.optimizer.apply_gradients([(self.statistics * 0.5, self.slow)])
        self.steps.assign_add(1)
        if self.fails:
            raise ValueError("no such step")
        if float(y) > 0:
            y = y + tc.sum(self.slow)
        self.watched.assign_sub(self.statistics * 0.25)
        return y

    def state(self) -> list[bytes]:
        slots = self.optimizer.state_dict({"slow": self.slow}).values()
        tensors = [self.watched, self.statistics, self.steps, self.slow, self.x, *slots]
        return [tensor.numpy().tobytes() for tensor in tensors] + [bytes([self.optimizer.iterations])]


def in_tapes(count: int, before: int = 0) -> Callable[[], tuple[Program, Callable[[], Any]]]:
    def make() -> tuple[Program, Callable[[], Any]]:
        program = Program()

        def call() -> None:
            # No ExitStack: where Ctrl-C comes at the end of `__enter__`, that leaves the tape active.
            with tc.GradientTape() as tape, tc.GradientTape() if count == 2 else nullcontext():
                tape.watch(program.x)
                program.function(program.x)

        for _ in range(before):
            call()
        return program, call

    return make


def fallback() -> tuple[Program, Callable[[], Any]]:
    program = Program(fallback="silent")
    program.function(program.x)
    return program, lambda: program.function(program.x)


KINDS = {
    "first in a tape": in_tapes(1),
    "second in a tape": in_tapes(1, before=1),
    "third in a tape": in_tapes(1, before=2),
    "in two tapes": in_tapes(2),
    "fallback": fallback,
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_an_error_undoes_what_a_plain_call_has_assigned(make: Any) -> None:
    program, call = make()
    before = program.state()
    program.fails = True
    with pytest.raises(ValueError, match="no such step"):
        call()
    assert program.state() == before
    program.fails = False
    call()
    assert program.state() != before


@DROPPED
@pytest.mark.parametrize("make", [KINDS["first in a tape"], KINDS["in two tapes"]], ids=["first in a tape", "two"])
def test_an_interrupt_leaves_all_that_a_plain_call_assigns_old_or_new(make: Any) -> None:
    program, call = make()
    old = program.state()
    whole = Injection(0, None)
    whole.into(call)
    new = program.state()
    assert old != new
    for number in [*range(1, whole.seen, max(1, whole.seen // SAMPLES)), *range(whole.seen - 12, whole.seen)]:
        program, call = make()
        interrupted_at(number, call)
        assert program.state() in (old, new), number


@DROPPED
@pytest.mark.parametrize("how", [None, "xla"])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_calls_that_are_compiled_in_a_tape_are_interrupted_before_all_assignments_or_after(
    how: Any, calls: int
) -> None:
    if how is not None:
        pytest.importorskip("tape_jax")
        pytest.importorskip("jax")
    x = tc.asarray(np.full(3, 0.25))

    def make() -> tuple[list[tc.Variable], Callable[[], Any]]:
        v, w = (tc.Variable(np.full(3, start), trainable=False) for start in (1.0, 2.0))

        @tc.function(compile=how)
        def step(x: Any) -> Any:
            v.assign(tc.sin(v) + tc.exp(-w))
            y = tc.sum(x * v)
            w.assign(tc.sin(w) * 0.5 + v)
            return y

        def call() -> None:
            with tc.GradientTape() as tape:
                tape.watch(x)
                step(x)

        for _ in range(calls):
            call()
        return [v, w], call

    variables, call = make()
    old = [v.numpy().tobytes() for v in variables]
    whole = Injection(0, None)
    whole.into(call)
    new = [v.numpy().tobytes() for v in variables]
    for number in range(1, whole.seen, max(1, whole.seen // 12)):
        variables, call = make()
        interrupted_at(number, call)
        assert [v.numpy().tobytes() for v in variables] in (old, new), number


def test_a_call_that_fails_inside_another_is_undone_alone() -> None:
    v, w = tc.Variable(1.0), tc.Variable(1.0)

    @tc.function
    def inner() -> None:
        v.assign(5.0)
        raise ValueError

    @tc.function
    def outer(fails: bool) -> None:
        v.assign(2.0)
        w.assign(3.0)
        try:
            inner()
        except ValueError:
            w.assign_add(v)
        if fails:
            raise KeyError

    with tc.GradientTape(), tc.GradientTape():
        with pytest.raises(KeyError):
            outer(True)
        assert (v.item(), w.item()) == (1.0, 1.0)
        outer(False)
    assert (v.item(), w.item()) == (2.0, 5.0)


def test_a_variable_that_is_put_back_is_the_leaf_that_it_was() -> None:
    v = tc.Variable(3.0)

    @tc.function
    def fail() -> None:
        v.assign(v * 2.0)
        raise ValueError

    with tc.GradientTape() as tape:
        y = v * v
        with pytest.raises(ValueError):  # noqa: PT011 - the one above
            fail()
        z = v * y
    assert tape.gradient(z, v).item() == 27.0


def test_compiled_calls_inside_a_plain_one_are_undone_with_it() -> None:
    v, counts = tc.Variable(1.0, trainable=False), []

    @tc.staging.opaque
    def count(x: Any, variable: Any) -> Any:
        counts.append(variable.item())
        variable.assign(variable + 1.0)
        return x * 1.0

    @tc.function
    def inner(x: Any) -> Any:
        v.assign(v * 10.0)
        return count(x, v)

    @tc.function
    def outer(x: Any) -> Any:
        v.assign_add(1.0)
        with tc.GradientTape.stop_recording(tape):
            inner(x)
        v.assign_add(1.0)
        raise ValueError

    x = tc.asarray(1.0)
    for _ in range(2):
        inner(x)
    before = v.item()
    with tc.GradientTape() as tape:
        with pytest.raises(ValueError):  # noqa: PT011 - the one above
            outer(x)
    assert v.item() == before == 111.0
    assert counts == [10.0, 110.0, 1120.0]
