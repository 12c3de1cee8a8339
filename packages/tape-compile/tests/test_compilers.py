"""The contract of compilers: what they are given, what they are spared, and what users are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_compile.extend import BRANCHES, EFFECTS, NUMBERS, Compiler, Program, Run
from tape_core.backends import CompilerLoadError, compilers


class Seen(Compiler):
    """Leaves the code as it is, and keeps what it is given."""

    def __init__(self, *supports: str, fuses: bool = True) -> None:
        self.supports = frozenset(supports)
        self.fuses = fuses
        self.programs: list[Program] = []
        self.examples: list[Sequence[Any]] = []

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        self.programs.append(program)
        self.examples.append(examples)
        return run


def test_a_compiler_is_given_a_program_once_for_each_trace_and_examples_of_its_inputs() -> None:
    compiler = Seen()
    f = tc.function(compile=compiler)(lambda x, w: tc.sum(tc.tanh(x @ w)))
    for n in (2, 2, 3):
        f(tc.ones((n, 4)), tc.ones((4, 5)))
    assert len(compiler.programs) == 2
    program = compiler.programs[0]
    assert [i.name for i in program.instructions] == ["matmul", "tanh", "sum"]
    assert [tuple(a.shape) for a in compiler.examples[0]] == [(2, 4), (4, 5)]
    assert [program.specs[k].shape for k in program.inputs] == [(2, 4), (4, 5)]


def test_gradients_are_part_of_the_program() -> None:
    compiler = Seen()
    f = tc.function(compile=compiler)(tc.grad(lambda x: tc.sum(tc.sin(x))))
    x = tc.asarray([0.5, 1.0])
    f(x)
    assert np.array_equal(f(x).numpy(), tc.cos(x).numpy())
    assert "cos" in [i.name for i in compiler.programs[0].instructions]


@pytest.mark.parametrize("fuses", [True, False])
def test_a_compiler_that_fuses_by_itself_sees_each_kernel(fuses: bool) -> None:
    compiler = Seen(fuses=fuses)
    f = tc.function(compile=compiler)(lambda x: ((x * 0.5 + 1.0) * x - x) / 3.0)
    x = tc.asarray(np.linspace(0, 1, 1 << 19), backend="numpy")
    f(x)
    assert np.array_equal(f(x).numpy(), f.python(x).numpy())
    assert len(compiler.programs[0].instructions) == (5 if fuses else 1)


def test_what_a_compiler_does_not_support_is_an_error_that_says_what_to_do() -> None:
    v = tc.Variable(1.0)

    def draws(x: tc.Tensor) -> tc.Tensor:
        return x + tc.default_rng(0).uniform(())

    def branches(x: tc.Tensor) -> tc.Tensor:
        return tc.cond(x > 0, tc.sin, tc.cos, x)

    def updates(x: tc.Tensor) -> tc.Tensor:
        v.assign(x)
        return v * 2.0

    x = tc.asarray(1.0)
    with pytest.raises(ValueError, match=r"draws: compile=.*random_bits.*draw random numbers outside"):
        tc.function(compile=Seen(BRANCHES, NUMBERS))(draws)(x)
    with pytest.raises(ValueError, match=r"branches: compile=.*cond decide by values: leave out compile"):
        tc.function(compile=Seen(EFFECTS, NUMBERS))(branches)(x)
    for function in (draws, branches):
        f = tc.function(compile=Seen(EFFECTS, NUMBERS, BRANCHES))(function)
        f(x)
        f(x)
    f = tc.function(compile=Seen())(updates)  # a Variable is an array like any other
    assert [f(tc.asarray(value)).item() for value in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]
    assert v.item() == 3.0


def test_a_backend_may_offer_a_compiler_where_the_user_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Offering(Seen):
        exact = True

        def offer(self, program: Program, run: Run, examples: Sequence[Any]) -> Run | None:
            def counted(arrays: list[Any]) -> tuple[Any, ...]:
                calls.append(1)
                return run(arrays)

            return counted if len(program.instructions) > 1 else None

    x = tc.ones(3, backend="numpy")
    monkeypatch.setattr(x.backend, "compilers", ("offering",))
    monkeypatch.setattr("tape_core.backends.compilers.load", {"offering": Offering()}.__getitem__)
    few, many = tc.function(tc.sin), tc.function(lambda x: tc.sin(x) * 2.0 + x)
    for _ in range(3):
        few(x)
        assert np.array_equal(many(x).numpy(), many.python(x).numpy())
    assert len(calls) == 2  # the first call traces


def test_an_error_of_a_compiler_reaches_the_user_and_leaves_the_function_usable() -> None:
    class Failing(Compiler):
        def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
            raise RuntimeError("no compiler for this processor")

    f = tc.function(compile=Failing())(lambda x: tc.sin(x) * 2.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no compiler for this processor"):
            f(tc.ones(2))
    assert f.traces == 0


class Made(Compiler):
    """Makes of a program what a function of its code says."""

    supports = frozenset({BRANCHES, EFFECTS, NUMBERS})

    def __init__(self, make: Callable[[Run], Any]) -> None:
        self.make = make

    def compile(self, program: Program, run: Run, examples: Sequence[Any]) -> Run:
        made: Run = self.make(run)
        return made

    def __repr__(self) -> str:
        return "Made"


def _raise(error: type[BaseException]) -> Any:
    raise error("it broke")


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (lambda found: found[:-1], "a tuple of 1, and the program has 2 outputs"),
        (lambda found: (*found, 1), "a tuple of 3, and the program has 2 outputs"),
        (lambda found: None, "None, not a tuple of arrays"),
        (lambda found: (found[0], None), "None for output 1, not an array"),
        (lambda found: (found[0][None], found[1]), r"shape \(1,\)"),
        (lambda found: (found[0].astype("float64"), found[1]), "float64"),
    ],
)
def test_wrong_results_of_a_compiler_are_assigned_to_nothing(results: Callable[[Any], Any], message: str) -> None:
    w = tc.Variable(0.0, backend="numpy")

    @tc.function(compile=Made(lambda run: lambda arrays: results(run(arrays))))
    def f(x: tc.Tensor) -> tc.Tensor:
        w.assign_add(1.0)
        return tc.sum(x * w)

    x = tc.ones(3, backend="numpy")
    f(x)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"f: the function that compile=Made made of the program.*{message}"):
            f(x)
        assert float(w) == 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda run: None, "f: compile=Made returned None for the program, which is not a function"),
        (lambda run: _raise(KeyError), "f: compile=Made failed with KeyError: 'it broke'"),
        (lambda run: _raise(NotImplementedError), r"f: compile=Made has no compile\(\)"),
        (lambda run: _raise(ValueError), "^it broke$"),  # meant for the user
    ],
)
def test_a_compiler_that_fails_is_named_and_nothing_has_happened(make: Callable[[Run], Any], message: str) -> None:
    w = tc.Variable(0.0)

    @tc.function(compile=Made(make))
    def f(x: tc.Tensor) -> tc.Tensor:
        w.assign_add(1.0)
        return x * w

    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match=message):
            f(tc.ones(3))
        assert float(w) == 0.0


@pytest.mark.parametrize("when", ["compiling", "running"])
def test_an_interrupted_compiler_leaves_no_half_of_a_call(when: str) -> None:
    interrupts = [KeyboardInterrupt]

    def interrupted(found: Any) -> Any:
        if interrupts:
            raise interrupts.pop()
        return found

    made = interrupted if when == "compiling" else lambda run: lambda arrays: interrupted(run(arrays))
    w = tc.Variable(0.0)

    @tc.function(compile=Made(made))
    def f(x: tc.Tensor) -> tc.Tensor:
        w.assign_add(1.0)
        return x * w

    if when == "running":
        f(tc.ones(3))
    before = float(w)
    with pytest.raises(KeyboardInterrupt):
        f(tc.ones(3))
    assert float(w) == before
    f(tc.ones(3))
    assert float(w) == before + 1


def test_a_plugin_whose_object_is_not_a_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "load", lambda name: SimpleNamespace(compile=lambda *args: None))
    with pytest.raises(CompilerLoadError, match=r"compiler 'duck' .* not a tape_compile.extend.Compiler"):
        tc.function(compile="duck")(lambda x: x + 1)(tc.ones(3))
