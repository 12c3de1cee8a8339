"""What a program of parts need not compute, send or copy a second time.

- An array that is gathered twice, as a weight of `Sharded` is for its product and for the derivative of that, is
  gathered once, if few bytes are kept meanwhile.
- A sum over processes goes to the memory of what is added up, where nothing else needs that.
- What is computed of such a sum elementwise goes to its memory, too: one of an optimizer's new values does.
- A product that is sent with other arrays is computed in the memory of all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tape_compile.extend import Instruction, Ref, Spec

from tape_torch.blocks import OnParts
from tape_torch.gloo import EXTREMES
from tape_torch.thresholds import GATHERED_KEPT_BYTES

_TRANSPOSE = torch.ops.aten.transpose.int


def collective(line: Instruction) -> str:
    """Return the name of the collective that an instruction calls, or waits for; "" for any other function."""
    fn: Any = line.fn
    return str(fn._schema.name.partition("::")[2]) if "c10d" in getattr(fn, "namespace", "") else ""


def is_barrier(line: Instruction) -> bool:
    """Return whether an instruction has its place: it writes into a tensor, or does what is not known here."""
    return line.effect and not collective(line)


def bytes_of(spec: Spec) -> int:
    """Return how much memory a value takes."""
    return spec.size * int(spec.dtype.itemsize)


def gathered_once(lines: Sequence[Instruction], specs: dict[int, Spec]) -> tuple[list[Instruction], dict[int, int]]:
    """Return the lines without what gathers an array again, and by what that gave the values that there are."""
    found: list[Instruction] = []
    same: dict[int, int] = {}
    turned: dict[int, tuple[int, Any]] = {}  # by a transpose, what it is of
    seen: dict[Any, Any] = {}  # by calls of gathers, and of what is computed of these alone, their results
    begins: dict[int, int] = {}  # by what is computed of a gather, what that gave
    kept: dict[int, int] = {}  # by what a gather gave, its bytes
    for line in lines:
        line = line.substitute(same)
        if is_barrier(line):
            seen.clear()
        if line.fn is _TRANSPOSE:
            axes = frozenset([axis % len(specs[line.out].shape) for axis in line.args[1:]])
            if turned.get(line.inputs[0], (0, None))[1] == axes:
                same[line.out] = turned[line.inputs[0]][0]
                continue
            turned[line.out] = line.inputs[0], axes
        name = collective(line)
        sources = {begins.get(k) for k in line.inputs}
        source = sources.pop() if len(sources) == 1 else None
        if name != "all_gather_into_tensor" and (source is None or not (name == "wait_tensor" or _is_of_values(line))):
            found.append(line)
            continue
        key = (line.fn, repr(line.args), repr(line.kwargs))
        if key in seen:
            out, number = seen[key]
            total = kept | {number: bytes_of(specs[number])}
            if sum(total.values()) <= GATHERED_KEPT_BYTES:
                kept = total
                same |= dict(zip(line.outputs, out, strict=True))
                continue
        number = line.out if source is None else source
        seen[key] = line.outputs, number
        begins |= dict.fromkeys(line.outputs, number)
        found.append(line)
    return found, same


def _is_of_values(line: Instruction) -> bool:
    """Return whether a line calls a function of PyTorch's that gives the same for the same arguments."""
    fn: Any = line.fn
    return (
        not line.effect and getattr(fn, "namespace", "") == "aten" and torch.Tag.nondeterministic_seeded not in fn.tags
    )


def summed_in_place(lines: Sequence[Instruction], outputs: Sequence[int]) -> list[Instruction]:
    """Return the lines with sums over processes in the memory of arrays that nothing else needs.

    Args:
        lines, outputs: of the program.
    """
    new = {line.out for line in lines if line.fn in _NEW}.difference(outputs)
    used = Counter([k for line in lines for k in line.inputs])
    found = []
    for line in lines:
        # Of what is an argument elsewhere, too, there may be views.
        is_sum = collective(line) == "all_reduce" and line.args[1] not in EXTREMES
        if is_sum and line.inputs[0] in new and used[line.inputs[0]] == 1:
            fn = torch.ops._c10d_functional.all_reduce_.default
            line = Instruction(line.name, fn, line.args, {}, line.out, line.place, effect=True)
        found.append(line)
    return found


def made_in_place(
    lines: Sequence[Instruction], specs: dict[int, Spec], fresh: Callable[[Spec], int], outputs: Sequence[int]
) -> list[Instruction]:
    """Return the lines with products that are sent with other arrays made where they are sent from.

    Args:
        lines, outputs: of the program.
        specs: of values, by number.
        fresh: returns the number of a new value.
    """
    used = Counter([k for line in lines for k in line.inputs])
    products = {line.out: at for at, line in enumerate(lines) if line.fn is _PRODUCT and used[line.out] == 1}
    first: dict[int, Instruction] = {}  # by the place before which it is to be, what makes memory
    instead: dict[int, Instruction] = {}
    for at, line in enumerate(lines):
        direct = [k for k in line.inputs if k in products and k not in outputs] if line.fn is flattened else []
        if not direct:
            continue
        begin = min([products[k] for k in direct])
        place = {k: fresh(specs[k]) for k in line.inputs}
        out = (flat := fresh(specs[line.out]), *place.values())
        like = (Ref(lines[begin].inputs[0]),)
        room = _Room([specs[k].shape for k in line.inputs])
        first[begin] = Instruction("room", room, like, {}, out, lines[begin].place)
        for k in direct:
            one = lines[products[k]]
            into = {"out": Ref(place[k])}
            instead[products[k]] = Instruction(one.name, torch.ops.aten.mm.out, one.args, into, one.out, one.place)
        others = [k for k in line.inputs if k not in direct]
        args = (Ref(flat), *[tuple(map(Ref, some)) for some in (direct, others, [place[k] for k in others])])
        instead[at] = Instruction(line.name, _filled, args, {}, line.out, line.place)
    found = []
    for at, line in enumerate(lines):
        if at in first:
            found.append(first[at])
        found.append(instead.get(at, line))
    return found


def updated_in_place(lines: Sequence[Instruction], outputs: Sequence[int]) -> list[Instruction]:
    """Return the lines with results of fused functions in the memory of sums that nothing else needs.

    Args:
        lines, outputs: of the program, after `summed_in_place`.
    """
    used = Counter([k for line in lines for k in line.inputs])
    sums = {line.out for line in lines if collective(line) == "all_reduce_" and used[line.out] == 1}
    own = {
        line.out
        for line in lines
        if collective(line) == "wait_tensor" and line.inputs[0] in sums and used[line.out] == 1
    }.difference(outputs)
    found = []
    for line in lines:
        fused = getattr(line.fn, "__self__", None)
        dead = [at for at, arg in enumerate(line.args) if type(arg) is Ref and arg.id in own]
        if isinstance(fused, OnParts) and dead:
            given = dict(zip(fused.group.inputs, line.args, strict=True))
            function = fused.into([fused.group.inputs[at] for at in dead])
            targets = function.targets
            out = tuple([given[targets[k]] if k in targets else None for k in fused.group.outputs])
            line = Instruction(line.name, function, line.args, {"out": out}, line.out, line.place)
        found.append(line)
    return found


class _Room:
    """Returns memory for arrays of some shapes, one after the other, and the place of each in it."""

    __name__ = "room"

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._sizes = [math.prod(shape) for shape in shapes]

    def __call__(self, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = like.new_empty(sum(self._sizes))
        parts = torch.split(flat, self._sizes)
        return flat, *[part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]


def _filled(flat: torch.Tensor, made: Any, others: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> Any:
    """Return memory in which some arrays are, `made`, and to which others are copied."""
    for x, place in zip(others, places, strict=True):
        place.copy_(x)
    return flat


def flattened(*parts: torch.Tensor) -> torch.Tensor:
    """Return the elements of several tensors one after the other."""
    return torch.cat([part.reshape(-1) for part in parts])


_PRODUCT = torch.ops.aten.mm.default

_NEW = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default, flattened)
"""Functions whose results are contiguous, and in memory of their own."""
