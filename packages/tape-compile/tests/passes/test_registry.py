"""Passes declare their stage and place: a pass of one's own runs where it says, and nowhere that its stage forbids."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tape_core as tc
from support import code
from tape_compile.passes import NOT_BEFORE_SPLIT, NOT_EXPORTED, PASSES, Stage, pass_, run
from tape_compile.passes.registry import DEPRECATED
from tape_compile.program import Program


@pytest.fixture
def _passes_are_forgotten() -> Iterator[None]:
    """Passes that a test registers go with it."""
    before = set(PASSES)
    yield
    for name in set(PASSES) - before:
        del PASSES[name]


pytestmark = pytest.mark.usefixtures("_passes_are_forgotten")


def array() -> tc.Tensor:
    return tc.asarray(np.ones(3), backend="numpy")


def noted(stage: Stage, **place: list[str]) -> list[int]:
    """Register a pass that notes the lengths of programs that come by."""
    seen: list[int] = []

    @pass_(stage=stage, **place)
    def note(program: Program) -> Program:
        seen.append(len(program.instructions))
        return program

    return seen


def test_each_pass_comes_after_those_that_it_names() -> None:
    order = list(PASSES)
    for name, found in PASSES.items():
        assert all(order.index(other) < order.index(name) for other in found.after)


def test_memory_comes_last() -> None:
    stages = [found.stage for found in PASSES.values()]
    noted("exact", after=["in_place"])
    assert stages[-1] == "memory"
    assert list(PASSES)[-1] == "in_place"


def test_a_pass_comes_right_behind_the_last_that_it_names() -> None:
    noted("exact", after=["simplify", "cse"])
    order = list(PASSES)
    assert order.index("cse") < order.index("note") < order.index("batch_slices")


def test_a_pass_comes_before_those_that_it_names() -> None:
    noted("exact", before=["constant_folding"])
    assert next(iter(PASSES)) == "note"


def test_a_pass_of_ones_own_runs_and_is_in_the_statistics() -> None:
    seen = noted("exact", after=["dce"])
    f = tc.function(lambda x: tc.sin(x) * 2.0)
    f(array())
    assert seen == [2]
    assert f.stats()[0]["note"] == 2
    left_out = tc.function(lambda x: tc.sin(x) * 2.0, passes={"note": False})
    left_out(array())
    assert seen == [2]
    assert "note" not in left_out.stats()[0]


def test_a_pass_that_rounds_runs_on_request_only() -> None:
    seen = noted("rounding")
    tc.function(lambda x: x * 2.0)(array())
    assert seen == []
    tc.function(lambda x: x * 2.0, passes={"note": True})(array())
    assert seen == [1]


def test_passes_for_one_library_are_not_exported(tmp_path: Path) -> None:
    f = tc.function(lambda x: x * 2.0)
    f(array())
    for stage in ("exact", *sorted(NOT_EXPORTED)):
        seen = noted(stage)  # type: ignore[arg-type]
        f.export(tmp_path / "f.py")
        assert len(seen) == (stage == "exact")
        del PASSES["note"]


def test_passes_that_tie_calls_together_do_not_run_before_a_function_and_its_derivative_are_apart() -> None:
    def instructions(stage: Stage) -> list[int]:
        seen = noted(stage)
        f = tc.function(lambda x: tc.sin(x) * 2.0)
        x = tc.Variable(np.ones(3))
        for _ in range(3):
            with tc.GradientTape() as tape:
                y = f(x)
            tape.gradient(y, x)
        del PASSES["note"]
        return seen

    together = len(instructions("exact"))
    for stage in sorted(NOT_BEFORE_SPLIT):
        assert 0 < len(instructions(stage)) < together


def trigonometry(text: str) -> int:
    """The number of calls of sin and cos."""
    return text.count("sin(") + text.count("cos(")


def branch(x: tc.Tensor) -> tc.Tensor:
    return tc.cond(tc.sum(x) > 0.0, lambda: tc.sin(x) + tc.sin(x), lambda: x)


def loop(x: tc.Tensor) -> tc.Tensor:
    return tc.while_loop(lambda x: tc.sum(x) < 9.0, lambda x: x + tc.sin(x) + tc.sin(x), x)


def steps(x: tc.Tensor) -> tc.Tensor:
    def step(c: tc.Tensor, e: tc.Tensor) -> tuple[tc.Tensor, None]:
        return c + tc.sin(e) + tc.sin(e), None

    return tc.scan(step, tc.sum(x), x)[0]


def nested(x: tc.Tensor) -> tc.Tensor:
    return tc.scan(lambda c, e: (branch(c + e), None), x, tc.stack([x, x]))[0]


@pytest.mark.parametrize("f", [branch, loop, steps, nested])
def test_a_pass_that_is_off_leaves_branches_and_loops_alone(f: Callable[[tc.Tensor], tc.Tensor]) -> None:
    on, off = tc.function(f), tc.function(f, passes={"cse": False})
    assert on(array()).numpy().tolist() == off(array()).numpy().tolist()
    assert trigonometry(code(on)) < trigonometry(code(off))


@pytest.mark.parametrize("f", [branch, loop, steps, nested])
def test_a_pass_of_ones_own_sees_branches_and_loops_unless_it_is_off(f: Callable[[tc.Tensor], tc.Tensor]) -> None:
    seen: list[str] = []

    @pass_(stage="exact")
    def note(program: Program) -> Program:
        seen.extend(instruction.name for instruction in program.instructions)
        return program

    tc.function(f)(array())
    assert "sin" in seen
    del seen[:]
    tc.function(f, passes={"note": False})(array())
    assert seen == []


@pytest.mark.parametrize("f", [branch, steps, nested])
def test_a_pass_that_is_off_leaves_branches_and_loops_of_derivatives_alone(
    f: Callable[[tc.Tensor], tc.Tensor],
) -> None:
    many = tc.asarray(np.ones(200), backend="numpy")  # so many steps are one record

    def texts(**passes: bool) -> tuple[str, str]:
        compiled = tc.function(f, passes=passes)
        x = tc.Variable(many.numpy())
        for _ in range(3):
            with tc.GradientTape() as tape:
                y = compiled(x)
            tape.gradient(y, x)
        slope = tc.function(tc.grad(lambda x: tc.sum(f(x))), passes=passes)
        slope(many)
        return code(compiled), code(slope)

    for on, off in zip(texts(), texts(cse=False), strict=True):
        assert trigonometry(on) < trigonometry(off)


@pytest.mark.parametrize("f", [branch, loop, steps, nested])
def test_a_pass_that_is_off_leaves_branches_and_loops_of_exported_files_alone(
    f: Callable[[tc.Tensor], tc.Tensor], tmp_path: Path
) -> None:
    def calls(**passes: bool) -> int:
        compiled = tc.function(f, passes=passes)
        compiled(array())
        compiled.export(tmp_path / "f.py")
        # Without the comments, which show the lines of the function.
        return trigonometry(ast.unparse(ast.parse((tmp_path / "f.py").read_text())))

    assert calls() < calls(cse=False)


def test_what_is_left_out_is_left_out_whatever_is_asked_for() -> None:
    seen = noted("layout")
    program = Program([], [], {}, [], {})
    assert run(program, {"note": True}, NOT_EXPORTED)[1].keys() == run(program, {"note": False}, NOT_EXPORTED)[1].keys()
    assert seen == []


def test_a_name_that_is_taken_or_unknown_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is a pass 'cse' already"):

        @pass_(stage="exact")
        def cse(program: Program) -> Program:
            return program

    with pytest.raises(ValueError, match="stage must be one of exact, rounding, lowering"):
        pass_(stage="exakt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pass 'note' comes after 'cs', which is no pass; did you mean 'cse'\?"):
        noted("exact", after=["cs"])
    assert "note" not in PASSES


def test_passes_in_a_circle_are_an_error() -> None:
    with pytest.raises(ValueError, match="passes run in a circle: "):
        noted("exact", after=["dce"], before=["cse"])
    assert "note" not in PASSES


@pytest.mark.parametrize("old", DEPRECATED)
def test_the_names_of_before_work_with_a_warning(old: str) -> None:
    new = DEPRECATED[old]
    with pytest.warns(DeprecationWarning, match=f"the pass '{old}' is called '{new}' now"):
        f = tc.function(lambda x: tc.sin(x) + tc.sin(x), passes={old: False})
    f(array())
    (stats,) = f.stats()
    assert new not in stats
    (stats,) = _traced().stats()
    with pytest.warns(DeprecationWarning, match=f"the pass '{old}' is called '{new}' now"):
        assert stats[old] == stats[new]
    with pytest.raises(KeyError):
        stats["nothing"]


def test_methods_warn_of_an_old_name_once() -> None:
    class Model:
        @property
        def name(self) -> str:
            return "model"

    def call(self: Model, x: tc.Tensor) -> tc.Tensor:
        return x * 2.0

    with pytest.warns(DeprecationWarning, match="the pass 'same_calls'"):
        Model.call = tc.function(call, passes={"same_calls": False})  # type: ignore[attr-defined]
    assert Model().call(array()).numpy().tolist() == [2.0, 2.0, 2.0]  # type: ignore[attr-defined]


def _traced() -> tc.Function:
    f = tc.function(lambda x: operator.mul(x, x))
    f(array())
    return f
