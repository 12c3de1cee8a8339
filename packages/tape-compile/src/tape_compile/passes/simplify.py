"""Algebra that is exact in floating-point arithmetic, also for infinities, NaN and -0: a table of rules.

`x + 0` is not in it, which is 0 where `x` is -0, and no product or quotient of complex numbers: `x * (1 + 0j)` is NaN
where a part of `x` is infinite.
"""

from __future__ import annotations

import operator

from tape_compile.library import support_of
from tape_compile.passes.registry import pass_
from tape_compile.program import Argument, Program, Ref, is_literal_number
from tape_compile.rewrite import Rewriter, Rules

RULES = Rules()
rewrite = RULES.rewrite


@pass_(stage="exact", after=["constant_folding"])
def simplify(program: Program) -> Program:
    """Replace `x * 1`, `x - 0`, `-(-x)`, what changes no shape or layout and so on by `x`, and `x ** 2` by `x * x`."""
    return RULES.run(program)


@rewrite("multiply", of_constant=True)
def times_one(r: Rewriter, x: Argument, y: Argument) -> bool:
    if type(x) is not Ref or not r.is_number(y, 1):
        x, y = y, x
    return type(x) is Ref and r.is_number(y, 1) and _is_real(r, x) and r.replace_by(x)


@rewrite("divide", "pow", of_constant=True)
def by_one(r: Rewriter, x: Argument, y: Argument) -> bool:
    return r.is_number(y, 1) and _is_real(r, x) and r.replace_by(x)


# For all x: -0 - 0 is -0, whereas -0 + 0 is 0. `is_number` knows 0 from -0, for which it is the other way round.
@rewrite("subtract", of_constant=True)
def minus_zero(r: Rewriter, x: Argument, y: Argument) -> bool:
    return r.is_number(y, 0) and r.replace_by(x)


@rewrite("reshape", "broadcast_to")
def to_own_shape(r: Rewriter, x: Argument, shape: Argument) -> bool:
    return type(x) is Ref and r.spec(x).shape == shape and r.replace_by(x)


@rewrite("negative")
def twice_negative(r: Rewriter, x: Argument) -> bool:
    inner = r.maker(x, "negative")
    return inner is not None and inner.fn == r.instruction.fn and r.replace_by(inner.args[0])


@rewrite("laid_out_like")
def twice_laid_out(r: Rewriter, x: Argument, like: Argument) -> bool:
    inner = r.maker(x, "laid_out_like")
    return inner is not None and inner.args[1] == like and type(x) is Ref and r.replace_by(x)


@rewrite("laid_out_like")
def laid_out_like_a_whole(r: Rewriter, x: Argument, like: Argument) -> bool:
    support = support_of(r.program)
    given = [r.spec(one) for one in (x, like) if type(one) is Ref]
    return support is not None and not all(map(support.can_be_divided, given)) and r.replace_by(x)


@rewrite("pow", of_constant=True)
def squared(r: Rewriter, x: Argument, y: Argument) -> bool:
    # So NumPy computes it for arrays, with the same bits; and the product may be there already.
    if r.instruction.fn is not operator.pow or type(x) is not Ref or not is_literal_number(y) or y != 2:
        return False
    spec = r.out
    if not spec.shape or spec.dtype_name not in ("float32", "float64") or r.spec(x) != spec:
        return False
    return r.become("multiply", operator.mul, x, x)


def _is_real(r: Rewriter, x: Argument) -> bool:
    return type(x) is Ref and "complex" not in r.spec(x).dtype_name
