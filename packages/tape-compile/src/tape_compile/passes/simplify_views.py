"""Views: a chain of transpositions and axes of length 1, there and back again, is one view, or none at all."""

from __future__ import annotations

from typing import Any

from tape_compile.program import Instruction, Program, Ref, Spec, renewed

_NAMES = frozenset({"matrix_transpose", "mT", "T", "permute_dims", "reshape", "getitem"})
Axes = tuple[int | None, ...]
"""For each axis of a view that of the array which it is a view of; None for a new one, of length 1."""


def views(program: Program) -> Program:
    """The program in which views of views are views of the array itself, where that is one call.

    Only where axes are exchanged, or those of length 1 come and go: so its elements lie as they did.
    """
    if not any([spec.shape for spec in program.distinct_specs]):
        return program  # of numbers alone
    specs = program.specs
    replaced: dict[int, int] = {}
    known: dict[int, tuple[int, Axes]] = {}
    kept: list[Instruction] = []
    for instruction in renewed(program.instructions, replaced):
        if instruction.name not in _NAMES:
            kept.append(instruction)
            continue
        step = None if instruction.effect or type(instruction.out) is not int else _step(instruction, specs)
        if step is not None:
            out, inner = instruction.out, instruction.args[0].id
            root, before = known.get(inner, (inner, tuple(range(len(specs[inner].shape)))))
            axes = tuple([None if axis is None else before[axis] for axis in step])
            known[out] = root, axes
            if axes == tuple(range(len(specs[root].shape))) and specs[root] == specs[out]:
                replaced[out] = root
                continue
            if root != inner:
                instruction = _one_call(instruction, root, axes, program) or instruction
        kept.append(instruction)
    return program.replaced(kept, [replaced.get(k, k) for k in program.outputs])


def _one_call(instruction: Instruction, root: int, axes: Axes, program: Program) -> Instruction | None:
    """The view as one call; None where it would take two."""
    if program.backend is None:
        return None
    n, spec = len(program.specs[root].shape), program.specs[instruction.out]
    real = [axis for axis in axes if axis is not None]
    name: str
    args: tuple[Any, ...]
    if real == sorted(real):
        name, args = "reshape", (Ref(root), spec.shape)
    elif len(axes) != n or len(real) != n:
        return None
    elif real == [*range(n - 2), n - 1, n - 2]:
        name, args = "matrix_transpose", (Ref(root),)
    else:
        name, args = "permute_dims", (Ref(root), axes)
    return Instruction(name, getattr(program.backend.xp, name), args, {}, instruction.out, instruction.place)


def _step(instruction: Instruction, specs: dict[int, Spec]) -> Axes | None:
    """Where the axes of a view come from; None for what is none of these views."""
    args, name = instruction.args, instruction.name
    if instruction.kwargs or not args or type(args[0]) is not Ref:
        return None
    given, out = specs[args[0].id], specs[instruction.out]
    if given.size != out.size:  # most slices
        return None
    if given.kind is not out.kind or given.dtype != out.dtype or -1 in given.shape or -1 in out.shape:
        return None
    n = len(given.shape)
    axes: Axes | None = None
    if name in ("matrix_transpose", "mT") and len(args) == 1:
        axes = (*range(n - 2), n - 1, n - 2)
    elif name == "T" and len(args) == 1 and n == 2:
        axes = (1, 0)
    elif name == "permute_dims" and len(args) == 2 and type(args[1]) is tuple:
        axes = tuple([axis % n for axis in args[1] if type(axis) is int])
    elif name == "reshape" and len(args) == 2:
        axes = _reshaped(given.shape, out.shape)
    elif name == "getitem" and len(args) == 2:
        axes = _indexed(args[1] if type(args[1]) is tuple else (args[1],), given.shape)
    if axes is None or tuple([1 if axis is None else given.shape[axis] for axis in axes]) != out.shape:
        return None
    return axes


def _reshaped(shape: tuple[int, ...], to: tuple[int, ...]) -> Axes | None:
    """The axes of a reshape in which only some of length 1 come or go."""
    long = [axis for axis, length in enumerate(shape) if length != 1]
    if [shape[axis] for axis in long] != [length for length in to if length != 1]:
        return None
    if len(shape) == len(to):
        return tuple(range(len(shape))) if shape == to else None
    rest = iter(long)
    return tuple([None if length == 1 else next(rest) for length in to])


def _indexed(key: tuple[Any, ...], shape: tuple[int, ...]) -> Axes | None:
    """The axes of `x[key]`, where it takes all that there is."""
    if any([part is not None and type(part) not in (int, slice, type(...)) for part in key]):
        return None
    taken = sum([part is not None and part is not ... for part in key])
    axes: list[int | None] = []
    axis = 0
    for part in key:
        if part is None:
            axes.append(None)
        elif part is ...:
            more = len(shape) - taken
            axes += range(axis, axis + more)
            axis += more
        elif type(part) is slice and _takes_all(part, shape[axis]):
            axes.append(axis)
            axis += 1
        elif type(part) is int and shape[axis] == 1:
            axis += 1
        else:
            return None
    return (*axes, *range(axis, len(shape)))


def _takes_all(part: slice, length: int) -> bool:
    plain = all([v is None or type(v) is int for v in (part.start, part.stop, part.step)])
    return plain and part.indices(length) == (0, length, 1)
