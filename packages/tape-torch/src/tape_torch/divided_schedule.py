"""The order of a program of parts, in which no process waits for others sooner than it must.

Collectives are the same in all processes, in one order. What moves is what they are waited for by. Small arrays are
added up, and gathered, by one collective for several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from tape_compile.extend import Instruction, Ref, Spec
from torch.distributed import distributed_c10d

from tape_torch.divided_savings import (
    bytes_of,
    collective,
    flattened,
    gathered_once,
    is_barrier,
    made_in_place,
    summed_in_place,
    updated_in_place,
)
from tape_torch.thresholds import (
    GATHERED_TOGETHER_BYTES,
    REDUCTIONS_IN_FLIGHT,
    SUMMED_ALONE_BYTES,
    SUMMED_TOGETHER_BYTES,
    TAKEN_TOGETHER_BYTES,
)
from tape_torch.votes import COUNT, Standing

_WAIT = "wait_tensor"
_GATHERS = ("all_gather_into_tensor", "broadcast")
_SUM = "all_reduce"


class Schedule:
    """Instructions in an order in which much is computed while collectives are on their way.

    Args:
        lines: the instructions in another order.
        specs: of values, by number.
        fresh: returns the number of a new value.
        votes, device: what goes along with sums, by which the processes notice that they run other programs, and where
            the arrays are; None if they are not to be compared.

    Attributes:
        lines: the instructions.
        constants: values that are new, by number.
        pieces: by the number of a value that a collective of its own gave, the number that it has now.
        sent: what is sent, in order, as text: it must be the same in all processes.
    """

    def __init__(
        self,
        lines: Sequence[Instruction],
        specs: dict[int, Spec],
        fresh: Callable[[Spec], int],
        outputs: Sequence[int],
        votes: Standing | None = None,
        device: torch.device | None = None,
    ) -> None:
        specs = dict(specs)

        def new(spec: Spec) -> int:
            specs[number := fresh(spec)] = spec
            return number

        once, same = gathered_once(lines, specs)
        late = _ReducedLate(specs, new, votes if device is not None else None, device)
        together, gathered = _gathered_together(late.of(_waited_late(once)), specs, new)
        self.lines = _gathered_ahead(together)
        self.constants = late.constants
        self.pieces = {k: gathered.get(piece, piece) for k, piece in late.pieces.items()} | gathered
        self.pieces = {k: self.pieces.get(one, one) for k, one in same.items()} | self.pieces
        places = {k: at for at, line in enumerate(filter(collective, lines)) for k in line.outputs}
        joined = [places[k] for k in sorted(self.pieces, key=self.pieces.__getitem__) if k in places]
        sent = [
            (line.name, len(line.args), [places.get(k) for k in line.outputs])
            for line in self.lines
            if collective(line) not in ("", _WAIT) or line.fn is flattened
        ]
        self.sent = f"{sent} {joined}"
        kept = [self.pieces.get(k, k) for k in outputs]
        self.lines = made_in_place(updated_in_place(summed_in_place(self.lines, kept), kept), specs, new, kept)


def _waited_late(lines: Sequence[Instruction]) -> list[Instruction]:
    """Return the lines, with each wait before the first one that needs it."""
    waits: dict[int, Instruction] = {}  # by the numbers of their results
    found: list[Instruction] = []
    for line in lines:
        if is_barrier(line):
            found += waits.values()
            waits.clear()
        for k in line.inputs:
            if k in waits:
                found.append(waits.pop(k))
        if collective(line) == _WAIT:
            waits[line.out] = line
        else:
            found.append(line)
    return [*found, *waits.values()]


class _Sums(NamedTuple):
    """Sums that will be taken by one collective, which has not begun.

    Attributes:
        kind: what they must have in common.
        at: which one the collective is among all.
    """

    kind: Any
    at: int
    lines: list[Instruction]


class _ReducedLate:
    """Orders lines such that what needs a sum of all processes comes after the next sums have begun.

    Args:
        specs, fresh, votes, device: as for :class:`Schedule`.
    """

    def __init__(
        self, specs: dict[int, Spec], fresh: Callable[[Spec], int], votes: Standing | None, device: torch.device | None
    ) -> None:
        self._specs = specs
        self._fresh = fresh
        self._votes, self._device = votes, device
        self.constants: dict[int, torch.Tensor] = {}
        self._found: list[Instruction] = []
        self._late: list[list[Instruction]] = []  # what needs each collective that is on its way, the first begun first
        self._held: dict[int, int] = {}  # by values that wait, the collective that they need last
        self._begun: dict[int, int] = {}  # by what a collective gives, which one it is
        self._first = 0  # of those that are on their way
        self._sums: _Sums | None = None
        self._is_first = True  # of those that are taken together: it begins early, as that of DistributedDataParallel
        self.pieces: dict[int, int] = {}  # by what a collective of its own would have given, its part of a larger one

    def of(self, lines: Sequence[Instruction]) -> list[Instruction]:
        """Return the lines in another order."""
        for line in lines:
            if is_barrier(line):
                self._come(self._first + len(self._late))
                self._found.append(line.substitute(self.pieces))
            else:
                self._add(line)
        self._come(self._first + len(self._late))
        return self._found

    def _add(self, line: Instruction) -> None:
        name = collective(line)
        needed = [self._held[k] for k in line.inputs if k in self._held]
        if name == _WAIT and self._begun.get(line.inputs[0], -1) >= self._first:
            needed.append(self._begun[line.inputs[0]])
        if needed and name and name != _WAIT:
            self._come(max(needed) + 1)  # it is one that the others wait for
            needed = []
        if needed:
            self._late[max(needed) - self._first].append(line)
            self._held |= dict.fromkeys(line.outputs, max(needed))
            return
        if name == _SUM:
            self._sum(line)
            return
        self._write(line)
        if name and name != _WAIT and name not in _GATHERS:
            self._begun |= dict.fromkeys(line.outputs, self._first + len(self._late))
            self._begin()

    def _sum(self, line: Instruction) -> None:
        line = self._as_sum(line)
        spec = self._specs[line.inputs[0]]
        kind = line.args[1:], spec.dtype
        if bytes_of(spec) >= SUMMED_ALONE_BYTES:
            self._begun[line.out] = self._first + len(self._late)
            self._write(line)
            self._begin()
            return
        if self._sums is not None and self._sums.kind != kind:
            self._take()
        if self._sums is None:
            self._sums = _Sums(kind, self._first + len(self._late), [])
            self._begin()
        self._sums.lines.append(line)
        self._begun[line.out] = self._sums.at
        most = TAKEN_TOGETHER_BYTES if self._is_first else SUMMED_TOGETHER_BYTES
        if sum([bytes_of(self._specs[each.inputs[0]]) for each in self._sums.lines]) >= most:
            self._is_first = False
            self._take()

    def _as_sum(self, line: Instruction) -> Instruction:
        """Return the sum that a mean is, of summands that are divided first, such that it is taken with other sums."""
        spec, count = self._specs[line.inputs[0]], _size_of_group(line.args[2])
        if line.args[1] != "avg" or not spec.dtype.is_floating_point or not count:
            return line
        divided = self._fresh(spec)
        self._write(Instruction(line.name, torch.ops.aten.div.Scalar, (line.args[0], count), {}, divided, line.place))
        args = (Ref(divided), "sum", *line.args[2:])
        return Instruction(line.name, line.fn, args, {}, line.out, line.place, effect=True)

    def _begin(self) -> None:
        """Count a collective that begins, and do what needs the first one if there are many on their way."""
        self._late.append([])
        if len(self._late) > REDUCTIONS_IN_FLIGHT:
            self._come(self._first + 1)

    def _come(self, until: int) -> None:
        """Write what needs the collectives before one."""
        while self._first < until:
            if self._sums is not None and self._sums.at == self._first:
                self._take()
            for line in self._late.pop(0):
                self._write(line)
            self._first += 1
        self._held = {k: at for k, at in self._held.items() if at >= self._first}

    def _take(self) -> None:
        """Write the collective of sums that are taken together."""
        sums, self._sums = self._sums, None
        assert sums is not None
        if len(sums.lines) == 1 and (not self._can_vote(sums) or self._specs[sums.lines[0].inputs[0]].shape):
            self._write(sums.lines[0])
            return
        sums.lines.sort(
            key=lambda line: -self._specs[line.inputs[0]].size
        )  # large arrays begin where memory is aligned
        like = [self._specs[line.inputs[0]] for line in sums.lines]
        given = tuple([line.args[0] for line in sums.lines])
        length, check = sum([spec.size for spec in like]), None
        if self._can_vote(sums):
            assert self._votes is not None
            assert self._device is not None
            group, dtype = sums.lines[0].args[2], like[0].dtype
            self.constants[k := self._fresh(Spec(torch.Tensor, (COUNT,), dtype))] = self._votes.numbers(
                group, dtype, self._device
            )
            given, check, length = (*given, Ref(k)), partial(self._votes.check, group), length + COUNT
        flat = Spec(torch.Tensor, (length,), like[0].dtype)
        joined, begun, there = self._fresh(flat), self._fresh(flat), self._fresh(flat)
        pieces = tuple([self._fresh(spec) for spec in like])
        first = sums.lines[0]
        wait = torch.ops._c10d_functional.wait_tensor.default
        self._write(Instruction("joined", flattened, given, {}, joined, first.place))
        self._write(Instruction(_SUM, first.fn, (Ref(joined), *first.args[1:]), {}, begun, first.place, effect=True))
        self._late[sums.at - self._first][:0] = [
            Instruction(_WAIT, wait, (Ref(begun),), {}, there, first.place, effect=True),
            Instruction("parted", _Parted(like, check), (Ref(there),), {}, pieces, first.place),
        ]
        self.pieces |= {line.out: piece for line, piece in zip(sums.lines, pieces, strict=True)}

    def _can_vote(self, sums: _Sums) -> bool:
        """Return whether votes go along with sums: not with other reductions, nor where nothing is compared."""
        dtype: Any = self._specs[sums.lines[0].inputs[0]].dtype
        is_sum = sums.lines[0].args[1] == "sum" and dtype.is_floating_point
        return is_sum and self._votes is not None and self._device is not None

    def _write(self, line: Instruction) -> None:
        if collective(line) == _WAIT and line.inputs[0] in self.pieces:
            self.pieces[line.out] = self.pieces[line.inputs[0]]  # all of it has been waited for
        else:
            self._found.append(line.substitute(self.pieces))


def _size_of_group(name: Any) -> int:
    """Return how many processes a group has; 0 if there is none of this name."""
    try:
        return int(distributed_c10d._resolve_process_group(name).size())  # type: ignore[attr-defined]
    except (RuntimeError, LookupError, ValueError):
        return 0


class _Parted:
    """Returns arrays of some shapes that lie one after the other in a flat one; votes behind them are checked."""

    __name__ = "parted"

    def __init__(self, like: Sequence[Spec], check: Callable[[torch.Tensor], None] | None) -> None:
        self._shapes = [spec.shape for spec in like]
        self._sizes = [math.prod(shape) for shape in self._shapes]
        self._check = check
        if check is not None:
            self._sizes.append(COUNT)

    def __call__(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = list(torch.split(flat, self._sizes))
        if self._check is not None:
            self._check(parts.pop())
        return tuple([part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)])


def _gathered_together(
    lines: Sequence[Instruction], specs: dict[int, Spec], fresh: Callable[[Spec], int]
) -> tuple[list[Instruction], dict[int, int]]:
    """Return the lines with small arrays gathered by one collective for several, and the numbers of what it gives.

    Arrays are gathered with the first one whose place all that they need can be moved to.
    """
    made = {k: at for at, line in enumerate(lines) for k in line.outputs}
    groups: list[list[int]] = []
    moved: dict[int, list[int]] = {}  # by the place before which it is to be, what is moved there
    kind: Any = None
    total = 0
    for at, line in enumerate(lines):
        if is_barrier(line):
            kind = None
        if collective(line) != _GATHERS[0]:
            continue
        spec = specs[line.inputs[0]]
        if not spec.shape:
            kind = None
            continue
        chain = None if kind is None else _chain(lines, made, at, groups[-1][0])
        total += bytes_of(spec)
        if kind == (line.args[1:], spec.dtype) and chain is not None and total <= GATHERED_TOGETHER_BYTES:
            groups[-1].append(at)
            moved.setdefault(groups[-1][0], []).extend([k for k in chain if k != at])
        else:
            kind, total = (line.args[1:], spec.dtype), bytes_of(spec)
            groups.append([at])
    first = {group[0]: group for group in groups if len(group) > 1}
    gone = {at for chain in moved.values() for at in chain} | {at for group in first.values() for at in group[1:]}
    ends: dict[int, list[Instruction]] = {}  # by what a collective of its own gave, what waits for the one of all
    found: list[Instruction] = []
    pieces: dict[int, int] = {}
    for at, line in enumerate(lines):
        found += [lines[k].substitute(pieces) for k in sorted(set(moved.get(at, ())))]
        if at in gone:
            continue
        if at in first:
            members = [lines[k] for k in first[at]]
            like = [specs[one.inputs[0]] for one in members]
            count: int = line.args[1]
            flat = Spec(torch.Tensor, (sum([spec.size for spec in like]),), like[0].dtype)
            whole = flat._replace(shape=(count * flat.size,))
            joined, begun = fresh(flat), fresh(whole)
            given = tuple([one.args[0] for one in members])
            found.append(Instruction("joined", flattened, given, {}, joined, line.place).substitute(pieces))
            args = (Ref(joined), *line.args[1:])
            found.append(Instruction(line.name, line.fn, args, {}, begun, line.place, effect=True))
            new = tuple([fresh(spec._replace(shape=(count * spec.shape[0], *spec.shape[1:]))) for spec in like])
            parted = Instruction("parted", _Gathered(like, count), (Ref(there := fresh(whole)),), {}, new, line.place)
            wait = torch.ops._c10d_functional.wait_tensor.default
            end = [Instruction(_WAIT, wait, (Ref(begun),), {}, there, line.place, effect=True), parted]
            ends |= {one.out: end for one in members}
            pieces |= {one.out: piece for one, piece in zip(members, new, strict=True)}
            continue
        if collective(line) == _WAIT and line.inputs[0] in ends:
            pieces[line.out] = pieces[line.inputs[0]]
            end = ends[line.inputs[0]]
            found += end
            end.clear()  # the first of them that is waited for has waited for all
            continue
        found.append(line.substitute(pieces))
    return found, pieces


class _Gathered:
    """Returns arrays of the parts of all processes, each joined along its first axis, of what one collective gave."""

    __name__ = "parted"

    def __init__(self, like: Sequence[Spec], count: int) -> None:
        self._count = count
        self._shapes = [(count * spec.shape[0], *spec.shape[1:]) for spec in like]
        self._sizes = [spec.size for spec in like]

    def __call__(self, flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = torch.split(flat.view(self._count, -1), self._sizes, dim=1)
        # In order in memory, as a collective of its own gives each.
        return tuple([part.reshape(shape).contiguous() for part, shape in zip(parts, self._shapes, strict=True)])


def _gathered_ahead(lines: Sequence[Instruction]) -> list[Instruction]:
    """Return the lines, with each gather that can be begun before the wait for the last collective begun there."""
    made = {k: at for at, line in enumerate(lines) for k in line.outputs}
    moved: dict[int, list[int]] = {}  # by the place before which it is to be, what is moved there
    wait: dict[int, int] = {k: at for at, line in enumerate(lines) if collective(line) == _WAIT for k in line.inputs}
    last: int | None = None  # where the last collective is waited for
    for at, line in enumerate(lines):
        name = collective(line)
        if is_barrier(line):
            last = None
        if not name or name == _WAIT:
            continue
        if name in _GATHERS and last is not None and last < at:
            chain = _chain(lines, made, at, last)
            if chain is not None:
                moved.setdefault(last, []).extend(chain)
        last = wait.get(line.outputs[0], last)
    gone = {at for chain in moved.values() for at in chain}
    found: list[Instruction] = []
    for at, line in enumerate(lines):
        found += [lines[k] for k in moved.get(at, ())]
        if at not in gone:
            found.append(line)
    return found


def _chain(lines: Sequence[Instruction], made: dict[int, int], at: int, before: int) -> list[int] | None:
    """Return the places of what a line needs that comes after another place; None if a collective is among it."""
    chain, left = [at], [at]
    while left:
        for k in lines[left.pop()].inputs:
            source = made.get(k)
            if source is None or source < before or source in chain:
                continue
            if collective(lines[source]):
                return None
            chain.append(source)
            left.append(source)
    return sorted(chain)
