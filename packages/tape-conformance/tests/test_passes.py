"""Passes of compiled functions: one that changes a result is found by the samples of some op."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from tape_compile import passes
from tape_compile.program import Instruction, Program, Ref
from tape_conformance import check_backend

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
}
"""What each pass has something to do in. (For broadcasts that takes several ops: tape-numpy tests it.)"""


def wrong_where_it_changes(transform: Callable[[Program], Program]) -> Callable[[Program], Program]:
    """The pass, but where it does something the first result has the other sign."""

    def run(program: Program) -> Program:
        found = transform(program)
        if found.instructions == program.instructions and found.outputs == program.outputs:
            return found
        first = found.outputs[0]
        new = max(found.specs) + 1
        found.specs[new] = found.specs[first]
        turned = Instruction("negative", operator.neg, (Ref(first),), {}, new, None)
        return found.replace([*found.instructions, turned], [new, *found.outputs[1:]])

    return run


@pytest.mark.parametrize("name", SAMPLES)
def test_a_pass_that_changes_a_result_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_backend("numpy", only=SAMPLES[name]).ok
    given = passes.PASSES[name]
    given = passes.PASSES[name]
    monkeypatch.setitem(passes.PASSES, name, given._replace(transform=wrong_where_it_changes(given.transform)))
    (result,) = check_backend("numpy", only=SAMPLES[name]).results
    assert result.outcome == "failed"
    assert ("is wrong" if given.stage == "rounding" else "has other bits") in result.detail
