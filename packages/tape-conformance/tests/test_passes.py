"""Checks of compiled functions catch faults: of passes, one by one, and of a compiler that traces too often."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tape_compile import passes
from tape_compile.program import Instruction, Program, Ref
from tape_conformance import check_backend
from tape_conformance.kinds import compiled
from tape_conformance.samples import AS_SAMPLED, Case, Replaced
from tape_core.staging import guard

SAMPLES = {
    "constant_folding": "add/compiled/2x3,2x3",
    "simplify": "pow/compiled/2x3,2",
    "simplify_views": "expand_dims/compiled/2,axis=[]",
    "reassociate": "inv/compiled/3x3",
    "lower_kernels": "add/compiled/broadcast:2x3,3",
    "cse": "hypot/compiled/2x3,2x3",
    "dce": "add/compiled/2x3,2x3",
    "fusion": "add/compiled/2x3,2x3",
    "scalars_to_arrays": "tanh/compiled/2x3",
    "in_place": "inv/compiled/3x3",
    "inline_kernels": "to_device/compiled/2,cpu,cpu",
}
"""A sample in which each pass finds something to do."""

NEED_SEVERAL_OPS = {"batch_slices", "merge_scatters", "prove_checks", "hoist_broadcasts", "schedule_updates"}
"""Passes that find nothing in a single op: packages/tape-compile/tests/passes has programs for them."""


def negate_first_result(program: Program) -> Program:
    first = program.outputs[0]
    new = max(program.specs) + 1
    program.specs[new] = program.specs[first]
    negated = Instruction("negative", operator.neg, (Ref(first),), {}, new, None)
    return program.replace([*program.instructions, negated], [new, *program.outputs[1:]])


def wrong_where_it_changes(transform: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """Return the pass with a fault: where it changes a program, the first result has the other sign."""

    def run(program: Program) -> Program:
        found = transform(program)
        if found.instructions == program.instructions and found.outputs == program.outputs:
            return found
        return negate_first_result(found)

    return run


def plant(monkeypatch: pytest.MonkeyPatch, name: str, transform: Callable[[Program], Program]) -> None:
    monkeypatch.setitem(passes.PASSES, name, passes.PASSES[name]._replace(transform=transform))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_pass_that_changes_a_result_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_backend("numpy", only=SAMPLES[name]).ok
    given = passes.PASSES[name]
    plant(monkeypatch, name, wrong_where_it_changes(given.transform))
    (result,) = check_backend("numpy", only=SAMPLES[name]).results
    assert result.outcome == "failed"
    assert ("is wrong" if given.stage == "rounding" else "has other bits") in result.detail


def test_every_pass_has_a_sample() -> None:
    assert set(passes.PASSES) == set(SAMPLES) | NEED_SEVERAL_OPS


def test_a_pass_that_is_wrong_for_jacobians_is_caught_by_compiled_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    given = passes.PASSES["dce"].transform

    def wrong_for_jacobians(program: Program) -> Program:
        found = given(program)
        given_ndim = max([len(found.specs[k].shape) for k in found.inputs], default=0)
        is_jacobian = any([len(found.specs[k].shape) > given_ndim for k in found.outputs])
        return negate_first_result(found) if is_jacobian else found

    plant(monkeypatch, "dce", wrong_for_jacobians)
    report = check_backend("numpy", only=["sin/compiled/2x3", "sin/compiled-derivatives/x/2x3"])
    (failed,) = report.failed
    assert failed.id == "sin/compiled-derivatives/x/2x3"
    assert "a compiled jacrev" in failed.detail


def test_a_pass_that_writes_to_an_argument_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    given = passes.PASSES["in_place"].transform

    def negative_in_place(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.negative(x, out=x)

    def overwrites_an_argument(program: Program) -> Program:
        found = given(program)
        new = max(found.specs) + 1
        found.specs[new] = found.specs[found.inputs[0]]
        last = Instruction("negative", negative_in_place, (Ref(found.inputs[0]),), {}, new, None)
        return found.replace([*found.instructions, last], list(found.outputs))

    plant(monkeypatch, "in_place", overwrites_an_argument)
    (result,) = check_backend("numpy", only="tanh/compiled/2x3").results
    assert result.outcome == "failed"


def test_a_function_that_is_traced_in_each_call_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count()
    call = Case.call

    def guarded(self: Case, replaced: Replaced = AS_SAMPLED) -> tuple[Any, ...]:
        guard(lambda: next(count))  # never the same twice
        return call(self, replaced)

    monkeypatch.setattr(Case, "call", guarded)
    (result,) = check_backend("numpy", only="tanh/compiled/2x3").results
    assert result.outcome == "failed"
    assert "the number of traces" in result.detail


def test_what_a_kernel_returned_is_not_taken_for_what_it_returns_with_other_parameters() -> None:
    def scaled(factor: object, x: Any, *, shift: object = 0) -> Any:
        return x * factor + shift

    known: dict[object, Any] = {}
    x = np.asarray([1.0, 2.0])
    found = [
        compiled._remembered(known, fn, x).tolist()
        for fn in (partial(scaled, 2), partial(scaled, 3), partial(scaled, 3, shift=1), partial(scaled, 2))
    ]
    assert found == [[2.0, 4.0], [3.0, 6.0], [4.0, 7.0], [2.0, 4.0]]
    assert len(known) == 3
    # Arrays that are bound are not told apart: nothing is remembered of such a kernel.
    assert compiled._remembered(known, partial(scaled, x), x).tolist() == [1.0, 4.0]
    assert len(known) == 3
