"""Lowering: a call of a kernel becomes the calls of the array library that it consists of."""

from __future__ import annotations

from collections.abc import Sequence

from tape_compile.library import support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Instruction, Program
from tape_compile.rewrite import Rewriter, Rule, Rules


@pass_(stage="lowering", after=["inline_kernels"])
def lower_kernels(program: Program) -> Program:
    """Replace kernels by calls of the array library, where the backend has a rule for that.

    Two kernels then share what they have in common, and sums inside them end fused blocks.
    """
    support = support_of(program)
    if support is None or not support.lowering:
        return program
    rewriter = _Lowering(program, support.lowering)
    return rewriter.run(support.lowering) if rewriter.candidates else program


class _Lowering(Rewriter):
    """A rewriter whose rules stand under the functions that are called."""

    def __init__(self, program: Program, rules: Rules) -> None:
        super().__init__(program)
        self.candidates: dict[int, Sequence[Rule]] = {}
        for fn in program.functions:
            try:
                found = rules.get(fn)
            except TypeError:  # it has no hash
                continue
            if found is not None:
                self.candidates[id(fn)] = found

    def select(self, instruction: Instruction, rules: Rules) -> Sequence[Rule]:
        candidates = self.candidates.get(id(instruction.fn), ())
        # A result of a loop has another shape in another call, on which rules must not rely.
        if candidates and any([-1 in self.program.specs[k].shape for k in instruction.inputs]):
            return ()
        return candidates
