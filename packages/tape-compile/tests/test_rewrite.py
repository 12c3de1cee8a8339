"""The rewrite driver: which rule is tried on which call, and what becomes of the program."""

from __future__ import annotations

import operator

import numpy as np
import tape_core as tc
from tape_compile.program import Argument, Program, Ref
from tape_compile.rewrite import Rewriter, Rules


def traced(f: object) -> Program:
    """The program of a function of an array, before all passes."""
    compiled = tc.function(f)  # type: ignore[call-overload]
    compiled(tc.asarray(np.ones(3), backend="numpy"))
    program: Program = compiled._compiled.all[0].traced
    return program


def names(program: Program) -> list[str]:
    return [instruction.name for instruction in program.instructions]


def test_a_program_to_which_no_rule_applies_is_itself() -> None:
    rules = Rules()

    @rules.rewrite("sin")
    def never(r: Rewriter, x: Argument) -> bool:
        r.call("cos", np.cos, x, spec=r.out)
        return False

    program = traced(tc.sin)
    assert rules.run(program) is program


def test_the_first_rule_that_applies_wins() -> None:
    rules = Rules()

    @rules.rewrite("sin")
    def to_cos(r: Rewriter, x: Argument) -> bool:
        return r.become("cos", np.cos, x)

    @rules.rewrite("sin", "cos")
    def to_tan(r: Rewriter, x: Argument) -> bool:
        return r.become("tan", np.tan, x)

    assert names(rules.run(traced(tc.sin))) == ["cos"]  # what a rule emits is not visited again
    assert names(rules.run(traced(tc.cos))) == ["tan"]


def test_a_rule_is_for_the_arguments_that_it_has() -> None:
    rules = Rules()

    @rules.rewrite("sum")
    def of_all(r: Rewriter, x: Argument) -> bool:
        return r.become("of all", np.sum, x)

    @rules.rewrite("sum")
    def along(r: Rewriter, x: Argument, *, axis: int) -> bool:
        return r.become(f"along {axis}", np.sum, x, axis=axis)

    assert names(rules.run(traced(tc.sum))) == ["of all"]
    assert names(rules.run(traced(lambda x: tc.sum(x, axis=0)))) == ["along 0"]
    assert names(rules.run(traced(lambda x: tc.sum(x, axis=0, keepdims=True)))) == ["sum"]


def test_later_calls_and_results_see_the_value_that_stands_for_another() -> None:
    rules = Rules()

    @rules.rewrite("negative")
    def none(r: Rewriter, x: Argument) -> bool:
        return r.replace_by(x)

    program = rules.run(traced(lambda x: (tc.exp(tc.negative(-x)), -tc.sin(x))))
    assert names(program) == ["exp", "sin"]
    assert program.instructions[0].args == (Ref(program.inputs[0]),)
    assert program.outputs[1] == program.instructions[1].out


def test_a_value_of_another_shape_or_dtype_stands_for_none() -> None:
    rules = Rules()

    @rules.rewrite("sum", "astype")
    def none(r: Rewriter, x: Argument, *_: Argument) -> bool:
        return r.replace_by(x)

    program = traced(lambda x: (tc.sum(x), tc.astype(x, "float32")))
    assert rules.run(program) is program


def test_rules_see_what_earlier_ones_made() -> None:
    rules = Rules()

    @rules.rewrite("sin")
    def to_cos(r: Rewriter, x: Argument) -> bool:
        inner = r.maker(x, "cos")
        return r.become("sin of cos" if inner is not None else "cos", np.cos, x)

    assert names(rules.run(traced(lambda x: tc.sin(tc.sin(x))))) == ["cos", "sin of cos"]


def test_calls_with_effects_are_left_alone() -> None:
    rules = Rules()

    @rules.rewrite("random_bits")
    def never(r: Rewriter, *args: Argument) -> bool:
        raise AssertionError

    program = traced(lambda x: x + tc.random.global_rng().normal((3,)))
    assert "random_bits" in names(program)
    rules.run(program)


def test_a_rule_of_constants_is_not_asked_about_values_that_change() -> None:
    rules = Rules()
    seen: list[Argument] = []

    @rules.rewrite("multiply", of_constant=True)
    def note(r: Rewriter, x: Argument, y: Argument) -> bool:
        seen.append(y)
        return False

    constant = tc.asarray(np.arange(3.0), backend="numpy")
    rules.run(traced(lambda x: x * x * 2.0 * constant))
    assert len(seen) == 2


def test_new_calls_have_values_and_constants_of_their_own() -> None:
    rules = Rules()

    @rules.rewrite("exp")
    def shifted(r: Rewriter, x: Ref) -> bool:
        one = r.constant("one", lambda: np.ones(3))
        return r.become("exp", np.exp, r.call("add", operator.add, x, one, spec=r.spec(x)))

    program = traced(lambda x: tc.exp(tc.exp(x)))
    before = dict(program.specs), dict(program.constants)
    found = rules.run(program)
    assert names(found) == ["add", "exp", "add", "exp"]
    assert (program.specs, program.constants) == before
    assert len(found.constants) == len(program.constants) + 1  # one for each key
