"""Faults at random instructions of a step: what is raised there, who looks, who forks, who calls something else.

A step assigns to Variables: it is a compiled function, or one update of an optimizer as it is. The same step, without a
fault, says which values there are before and after each call. With a fault, Variables, arguments that are assigned to
and what the optimizer remembers are as before the call or as after it, all of them together, for whoever looks at any
moment; nothing else is left of the fault, and the calls after it give the values of the step without one.
"""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tape_core as tc
import tape_nn as nn
from hypothesis import strategies as st

from tape_fuzz.injection import Injection

CALLS = 4
OPTIMIZERS = (
    "SGD(0.1)", "SGD(0.1, momentum=0.9, nesterov=True)", "Adam(0.01)", "Adam(0.01, amsgrad=True)", "AdamW(0.01)",
    "Adamax(0.01)", "Nadam(0.01)", "RMSprop(0.01, momentum=0.5, centered=True)", "Adagrad(0.1)", "Adadelta(0.5)",
    "Ftrl(0.1)", "Lion(0.01)", "Adam(0.01, clipnorm=0.5)", "LossScaler(nn.Adam(0.01), growth_interval=2)",
    "GradientAccumulation(nn.Adam(0.01), 2)", "GradientAccumulation(nn.LossScaler(nn.SGD(0.1, 0.9)), 3)",
    "LossScaler(nn.GradientAccumulation(nn.AdamW(0.01), 2))",
    "Adam(0.01, groups=[nn.ParameterGroup(lambda v: v.ndim == 1, learning_rate=0.1, weight_decay=0.1)])",
)  # fmt: skip
SHAPES = ((), (3,), (5000,), (64, 80), (150_000,))
FAULTS = ("MemoryError", "KeyboardInterrupt", "handler", "thread", "fork", "fork in a thread", "first call")

Program = dict[str, Any]


@st.composite
def programs(draw: Any) -> Program:
    """A step with its Variables, and faults in it."""
    n = draw(st.integers(1, 3))
    number = st.integers(0, n - 1)
    lines = st.one_of(
        st.tuples(st.just("assign"), number, number, st.booleans()),
        st.tuples(st.just("view"), number, number),
        st.tuples(st.just("argument")),
        st.tuples(st.just("inv")),
        st.tuples(st.just("take"), number),
        st.tuples(st.just("update"), st.sampled_from(OPTIMIZERS), st.booleans()),
        st.tuples(st.just("rows"), number),
        st.tuples(st.just("scan"), number),
    )
    compiled = draw(st.booleans())
    update = st.tuples(st.just("update"), st.sampled_from(OPTIMIZERS), st.booleans())
    return {
        "shapes": draw(st.lists(st.sampled_from(SHAPES), min_size=n, max_size=n)),
        "dtype": draw(st.sampled_from(("float32", "float64"))),
        "compiled": compiled,
        "lines": draw(st.lists(lines, min_size=1, max_size=6)) if compiled else [draw(update)],
        "faults": draw(
            st.lists(
                st.tuples(
                    # JAX's threads are gone in a forked child, where its arrays wait for them.
                    st.sampled_from([f for f in FAULTS if "fork" not in f or tc.get_backend().name != "jax"]),
                    st.integers(0, CALLS - 2),
                    st.floats(0, 1, exclude_max=True).map(lambda x: round(x, 5)),
                ),
                min_size=1,
                max_size=3,
            )
        ),
    }


class Step:
    """A program's Variables and its step."""

    def __init__(self, program: Program) -> None:
        rng = np.random.default_rng(0)
        self.program = program
        backend = tc.get_backend().name
        self.variables = [
            tc.Variable(np.asarray(rng.uniform(0.2, 0.9, shape), program["dtype"]), name=f"v{k}", backend=backend)
            for k, shape in enumerate(program["shapes"])
        ]
        self.optimizers = {
            k: eval(f"nn.{line[1]}", {"nn": nn}) for k, line in enumerate(program["lines"]) if line[0] == "update"
        }
        self.argument = tc.asarray(np.full((4100,), 0.5, program["dtype"]), backend=backend)
        self.eye = tc.asarray(np.eye(3, dtype=program["dtype"]), backend=backend)
        self.numbers = tc.asarray(np.array([0, 2, 0]), backend=backend)
        self.function = tc.function(self.lines) if program["compiled"] else self.lines
        if not program["compiled"]:  # gradients are there before: the update is the step
            self.gradients = [v.value * 0.3 - 0.1 for v in self.variables]

    def __call__(self) -> None:
        self.function(self.argument, self.eye, self.numbers)

    def lines(self, x: Any, eye: Any, numbers: Any) -> Any:
        """What the program does."""
        vs, found = self.variables, []
        for k, line in enumerate(self.program["lines"]):
            kind = line[0]
            if kind == "assign":
                target, other = vs[line[1]], vs[line[2]]
                value = tc.sin(target) * 0.5 + tc.mean(tc.cos(other * 0.5)) * 0.25
                (target.assign_sub if line[3] else target.assign)(value * 0.9)
            elif kind == "view":
                target, other = vs[line[1]], vs[line[2]]
                part = tc.reshape(other, (-1,))[::2]
                found.append(part)
                target.assign(tc.cos(target * 0.7) * 0.6 + tc.sum(part) * 1e-4)
            elif kind == "argument":
                x *= 0.5
                x += tc.tanh(x) * 0.25
            elif kind == "inv":
                found.append(tc.linalg.inv(eye + 0.0))
            elif kind == "take":
                found.append(tc.take(tc.reshape(vs[line[1]], (-1,)), numbers * 0))
            elif kind == "rows" and vs[line[1]].ndim:
                v = vs[line[1]]
                rows = tc.full((3, *v.shape[1:]), 0.125, dtype=v.dtype)
                v.assign_add(tc.IndexedSlices(rows, numbers, v.shape))
            elif kind == "scan":
                v = vs[line[1]]
                v.assign(tc.scan(lambda carry, _: (tc.sin(carry) + 0.1, None), v.value, length=3)[0])
            elif kind == "update":
                optimizer = self.optimizers[k]
                if not self.program["compiled"]:
                    pairs = list(zip(self.gradients, vs, strict=True))
                else:
                    with tc.GradientTape() as tape:
                        loss = sum((tc.sum(v * v * 0.5) for v in vs), tc.asarray(0.0, dtype=self.program["dtype"]))
                        if line[2]:
                            loss = optimizer.scale_loss(loss)
                    pairs = list(zip(tape.gradient(loss, vs), vs, strict=True))
                optimizer.apply_gradients(pairs)
        return found

    def state(self) -> list[bytes]:
        """All that the step changes, to the bit."""
        found = [v.numpy().tobytes() for v in self.variables]
        found.append(self.argument.numpy().tobytes())
        named = {v.name: v for v in self.variables}
        for optimizer in self.optimizers.values():
            state = optimizer.state_dict(named)
            # Before its first update there is nothing that it remembers, or zeros.
            found += [b"".join([value.numpy().tobytes() for _, value in sorted(state.items())])]
        return found


def code_of(program: Program) -> str:
    """A program as code that runs."""
    lines = "".join([f"    {key!r}: {value!r},\n" for key, value in program.items()])
    return f"from tape_fuzz.faults import check\n\ncheck({{\n{lines}}})\n"


def check(program: Program) -> int:
    """Run a program with its faults, each in a step of its own; how many there were.

    Raises:
        AssertionError: with the program as code.
    """
    plain = Step(program)
    states = [_started(plain)]
    lengths = []
    for _ in range(CALLS):
        counted = Injection(0, None)
        counted.into(plain)
        lengths.append(counted.seen)
        states.append(plain.state())
    for fault in program["faults"]:
        try:
            _with_fault(program, fault, states, lengths)
        except AssertionError as error:
            raise AssertionError(f"{error}: {fault}\n\n{code_of({**program, 'faults': [fault]})}") from None
    return len(program["faults"])


def _started(step: Step) -> list[bytes]:
    for optimizer in step.optimizers.values():
        inner = optimizer
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        inner.build(step.variables)
    return step.state()


def _with_fault(program: Program, fault: Any, states: list[Any], lengths: list[int]) -> None:
    kind, k, fraction = fault
    step = Step(program)
    _started(step)
    for _ in range(k):
        step()
    assert step.state() == states[k], "a call gives other values in another run"
    allowed = states[k : k + 2]
    wrong: list[str] = []
    children: list[int] = []
    threads: list[threading.Thread] = []

    def look() -> None:
        if step.state() not in allowed:
            wrong.append("somebody sees values of no step")

    def raising() -> None:
        raise {"MemoryError": MemoryError, "KeyboardInterrupt": KeyboardInterrupt}[kind]("injected")

    def outside_of_traces() -> None:
        contextvars.Context().run(look)

    def in_thread(target: Callable[[], Any], *, wait: bool) -> None:
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        threads.append(thread)
        if wait:
            thread.join(20)

    def fork() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(15)
                sys.settrace(None)
                contextvars.Context().run(step)  # with whatever somebody has left locked
                found = contextvars.Context().run(step.state)
                code = 0 if found in states[k + 1 : k + 3] else 2
            finally:
                os._exit(code)
        children.append(child)

    def first_call() -> None:
        other = Step(program)
        _started(other)
        other()
        if other.state() != states[1]:
            wrong.append("another first call gives other values")

    acts: dict[str, Callable[[], Any]] = {
        "MemoryError": raising,
        "KeyboardInterrupt": raising,
        "handler": outside_of_traces,
        "thread": lambda: in_thread(look, wait=True),
        "fork": fork,
        "fork in a thread": lambda: in_thread(fork, wait=True),
        "first call": lambda: in_thread(first_call, wait=False),
    }
    enabled, errors = gc.isenabled(), np.geterr()
    try:
        Injection(1 + int(fraction * lengths[k]), acts[kind]).into(step)
    except (MemoryError, KeyboardInterrupt) as error:
        error.__traceback__ = None  # which holds arrays
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a thread hangs"
    for child in children:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "a forked child hangs, fails or computes something else"
    assert not wrong, wrong[0]
    found = step.state()
    assert found in allowed, "values of no step are left"
    assert gc.isenabled() is enabled, "the garbage collector is switched"
    assert np.geterr() == errors, "NumPy's handling of errors is another"
    _check_nothing_records()
    after = k if found == states[k] and states[k] != states[k + 1] else k + 1
    for number in range(after, CALLS):
        step()
        assert step.state() == states[number + 1], "a call after the fault gives other values"


def _check_nothing_records() -> None:
    v = tc.Variable(np.ones(3))
    y = v * 2.0
    made = weakref.ref(y.array)
    del y
    assert made() is None, "a tape is left recording"
