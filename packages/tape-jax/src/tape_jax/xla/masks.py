"""What a sweep does about NaN behind masks, for XLA, to which each comparison is work in a loop over all elements.

A sweep that came through `where` puts 0 in place of the NaN that a zero cotangent makes of an infinite derivative; see
`mask_nans` in tape_core, and the careful plans. XLA cannot know what that is for, so it is told by fewer calls. The
elements are the same, but for the sign of a zero that was masked.
"""

from __future__ import annotations

import numpy as np
from tape_compile.extend import Argument, Program, Ref, Rules

from tape_jax.xla.lowering import MASKED, UNMASKED, masked, on_host, unmasked
from tape_jax.xla.simplify import Simplifier, host_value, is_alike, without_unused

RULES = Rules()

_FINITE = 2.0**15
"""A number below which numbers are finite in every dtype."""


def with_fewer_masks(program: Program) -> Program:
    """Return a program for XLA alone, with fewer calls where NaN is looked for."""
    found = Simplifier(program).run(RULES)
    return program if found is program else without_unused(found)


@RULES.rewrite("where")
def looked_for_nan(r: Simplifier, condition: Argument, yes: Argument, no: Argument) -> bool:
    """Simplify what a sweep does about the NaN of a product of a zero cotangent: see `mask_nans` in tape_core."""
    if not _is_zero(r, yes) or type(no) is not Ref or not is_alike(r.spec(no), r.out):
        return False
    cotangent = _looked_at(r, condition, no)
    if cotangent is not None:
        if _is_zero_of(r, no, cotangent):
            return r.replace_by(no)
        made = r.makers.get(no.id)
        factors = _FACTORS.get(made.name, 0) if made is not None else 0
        # The product is NaN or 0 where the cotangent is 0. Where nothing else needs to know of which elements this is,
        # as tangents do, one comparison takes the place of three calls.
        if (
            made is not None
            and cotangent in made.args[:factors]
            and type(condition) is Ref
            and r.uses[condition.id] == 1
        ):
            return r.become(MASKED, masked, no, cotangent)
    whole = _all_looked_at(r, condition, no)
    if whole is not None:
        return r.become(UNMASKED, unmasked, no, whole)
    # Zeros of the shape of each array are one number to XLA, and calls that are equal become one.
    return type(yes) is Ref and r.become("where", r.instruction.fn, condition, 0, no)


_FACTORS = {"multiply": 2, "divide": 1}
"""By the names of calls how many of their arguments are factors of the result."""


def _looked_at(r: Simplifier, condition: Argument, product: Ref) -> Ref | None:
    """Return the cotangent, if a condition is that it is 0 and a product of it NaN."""
    both = r.maker(condition, "logical_and", "bitwise_and")
    is_zero, is_nan = (None, None) if both is None else (r.maker(both.args[0], "equal"), r.maker(both.args[1], "isnan"))
    if is_zero is None or is_nan is None or is_nan.args != (product,):
        return None
    cotangent, zero = is_zero.args
    if type(cotangent) is not Ref or not _is_zero(r, zero) or not is_alike(r.spec(cotangent), r.out):
        return None
    return cotangent if r.out.dtype_name.startswith("float") else None


def _all_looked_at(r: Simplifier, condition: Argument, result: Ref) -> Ref | None:
    """Return the cotangent, if a condition is that all of it is 0 and a result of it NaN."""
    both = r.maker(condition, "logical_and", "bitwise_and")
    if both is None:
        return None
    is_nan, is_zero = r.maker(both.args[0], "isnan"), r.maker(both.args[1], "logical_not")
    some = None if is_zero is None else r.maker(is_zero.args[0], "any")
    unequal = None if some is None else r.maker(some.args[0], "not_equal")
    if is_nan is None or is_nan.args != (result,) or unequal is None or not _is_zero(r, unequal.args[1]):
        return None
    cotangent = unequal.args[0]
    return cotangent if type(cotangent) is Ref and r.out.dtype_name.startswith("float") else None


def _is_zero(r: Simplifier, x: Argument) -> bool:
    """Return whether an argument is 0 everywhere, and not -0."""
    if r.is_number(x, 0):
        return True
    if type(x) is not Ref or x.id not in r.constants or not r.spec(x).dtype_name.startswith("float"):
        return False
    known = on_host(r.constants[x.id])
    return known is not None and not known.any() and not np.signbit(known).any()


_DEPTH = 6
"""So many calls are looked back, since what they are made of may be the same values again and again."""


def _is_zero_of(r: Simplifier, x: Argument, cotangent: Ref, depth: int = _DEPTH) -> bool:
    """Return whether a value is surely 0 where a cotangent is."""
    if x == cotangent:
        return True
    made = r.makers.get(x.id) if type(x) is Ref else None
    if made is None or made.kwargs or not depth:
        return type(x) is Ref and _is_zero(r, x)
    parts = [_is_zero_of(r, part, cotangent, depth - 1) for part in made.args] if made.name in _LINEAR else []
    if made.name == "multiply":
        one, other = made.args
        return (parts[0] and _is_finite(r, other)) or (parts[1] and _is_finite(r, one))
    if made.name == "where":
        return all([zero or _is_zero(r, part) for zero, part in zip(parts[1:], made.args[1:], strict=True)])
    return made.name == "negative" and parts[0]


_LINEAR = frozenset({"multiply", "negative", "where"})


def _is_finite(r: Simplifier, x: Argument, depth: int = _DEPTH) -> bool:
    """Return whether the elements of a value are surely finite, whatever the inputs are."""
    if isinstance(x, int | float):
        return abs(x) < _FINITE
    if type(x) is not Ref:
        return False
    if r.spec(x).dtype_name == "bool":
        return True
    if x.id in r.constants:
        known = host_value(r.constants[x.id], r.spec(x))
        return known is not None and known.dtype.kind in "biuf" and bool(np.all(np.abs(known) < _FINITE))
    made = r.makers.get(x.id)
    if made is None or not depth:
        return False
    if made.name in ("astype", "negative", "broadcast_to", "reshape"):
        return _is_finite(r, made.args[0], depth - 1)
    return made.name == "where" and not made.kwargs and all([_is_finite(r, one, depth - 1) for one in made.args[1:]])
