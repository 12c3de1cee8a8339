"""Sorts of a program for XLA: an array and its order by one sort, and no sort of an order.

These are calls of JAX's functions, which Python cannot run in the program of another library: programs get them last.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tape_compile.extend import Argument, Instruction, Program, Ref, Rewriter, Rules, Spec

from tape_jax.sorting import inverse, sort_with_residuals, unsorted
from tape_jax.xla.lowering import INVERSE, UNSORTED
from tape_jax.xla.simplify import without_unused

RULES = Rules()


def with_fewer_sorts(program: Program) -> Program:
    """Return a program for XLA alone that computes the same by fewer sorts."""
    found = _with_joined_sorts(RULES.run(program))
    return program if found is program else without_unused(found)


def _with_joined_sorts(program: Program) -> Program:
    """Return the program with one call in place of two that sort an array, of which one gives the order.

    The gradient of a sort asks for the order, which the sort finds along with the elements.
    """
    found: dict[Hashable, dict[str, Instruction]] = {}
    for instruction in program.instructions:
        if instruction.name in _SORTS and type(instruction.args[0]) is Ref and len(instruction.args) == 1:
            options = _sort_options(program.specs[instruction.args[0].id], instruction)
            found.setdefault((instruction.args[0].id, *options.items()), {}).setdefault(instruction.name, instruction)
    joined: dict[int, Instruction | None] = {}
    for pair in found.values():
        if len(pair) == 2:
            first, second = pair.values()
            options = _sort_options(program.specs[first.args[0].id], first)
            out = pair["sort"].out, (pair["argsort"].out,)
            name = "sort_with_residuals"
            joined[id(first)] = Instruction(name, sort_with_residuals, first.args, options, out, first.place)
            joined[id(second)] = None
    if not joined:
        return program
    calls = [joined.get(id(instruction), instruction) for instruction in program.instructions]
    return program.replace([call for call in calls if call is not None])


_SORTS = frozenset({"sort", "argsort"})


def _sort_options(x: Spec, instruction: Instruction) -> dict[str, Any]:
    """Return the options of a sort of an array, with defaults, and an axis that is counted from the front."""
    given = instruction.kwargs
    axis, descending, stable = given.get("axis", -1), given.get("descending", False), given.get("stable", True)
    return {"axis": axis % max(1, len(x.shape)), "descending": bool(descending), "stable": bool(stable)}


# The argsort of an order is its inverse, which needs no sort.
@RULES.rewrite("argsort")
def order_of_order(
    r: Rewriter, order: Argument, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> bool:
    made = r.makers.get(order.id) if type(order) is Ref else None
    if made is None or made.name != "argsort" or descending or len(made.args) != 1 or type(order) is not Ref:
        return False
    spec = r.spec(order)
    axis = _sort_options(spec, r.instruction)["axis"]
    return axis == _sort_options(spec, made)["axis"] and r.become(INVERSE, inverse, order, axis=axis)


@RULES.rewrite("take_along_axis")
def taken_by_inverse(r: Rewriter, x: Argument, indices: Argument, *, axis: int = -1) -> bool:
    made = r.makers.get(indices.id) if type(indices) is Ref else None
    if made is None or made.name != INVERSE or type(x) is not Ref or type(indices) is not Ref:
        return False
    shape = r.spec(indices).shape
    if r.spec(x).shape != shape or axis % len(shape) != made.kwargs["axis"]:
        return False
    return r.become(UNSORTED, unsorted, x, made.args[0], axis=made.kwargs["axis"])
