"""Calls that write new values of Variables into spare memory, that of former values; see `tape_core.base.spares`.

A function that has more in memory before its updates than in them would grow by what it keeps. So it keeps as much as
leaves its peak where it is, by the sizes of its program's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

from tape_core.backends import Backend
from tape_core.support import Overwriting, Spare, give_back, may_overwrite, spare_of

from tape_compile import thresholds
from tape_compile.codegen import overwriting
from tape_compile.library import LibrarySupport
from tape_compile.program import VIEWS, IfExclusive, Instruction, Program, Raw, Ref, Spec


class _Taken:
    """Called without arguments, it returns memory for a new value, or None where there is none to be had."""

    __slots__ = ("_backend", "_spare", "_spec")
    __name__ = "spare"

    def __init__(self, spare: Spare, spec: Spec, backend: Backend) -> None:
        self._spare = spare
        self._spec = spec
        self._backend = backend

    def __call__(self) -> Raw | None:
        kept = self._spare.kept
        return self._backend.spare_memory(kept, self._spec.shape, self._spec.dtype) if kept else None


class Spares:
    """The spare memory of a compiled function.

    Args:
        support: of the library of the arrays; backend: that library.
        places: of each Variable that is assigned, in order, what holds its value, and the attribute; None for one whose
            old array is not kept.
        old: the numbers of the old values in programs.
        size: the bytes of the arrays that are kept.
    """

    def __init__(
        self,
        support: LibrarySupport,
        backend: Backend,
        places: Sequence[tuple[object, str] | None],
        old: Iterable[int],
        size: int,
    ) -> None:
        self._support = support
        self._backend = backend
        self._all = [None if place is None else spare_of(*place) for place in places]
        self._old = [None if spare is None else k for spare, k in zip(self._all, old, strict=True)]
        self._used: dict[int, Spare] = {}
        self._late: dict[int, Spare] = {}
        self._size = size
        self._unsettled = thresholds.GIVE_BACK_CALLS

    def planned(self, program: Program) -> Program:
        """Return a program that writes new values of Variables, its last outputs, into spare memory.

        Or over the old ones, by calls that are put off; see `overwriting.py`.
        """
        outputs = program.outputs[len(program.outputs) - len(self._all) :]
        found = _sites(program, outputs, [spare is not None for spare in self._all], self._support)
        chosen = _that_fit(program, found, self._support)
        specs, number = dict(program.specs), max([*program.specs, *program.inputs, *program.constants])
        before: dict[int, list[Instruction]] = {}
        instead: dict[int, Instruction] = {}
        for site in chosen:
            spare, at, spec = self._all[site.index], site.at, program.specs[site.value]
            assert spare is not None  # as it has a site
            number += 1
            specs[number] = spec
            line = instead.get(at, program.instructions[at])
            taken = _Taken(spare, spec, self._backend)
            before.setdefault(at, []).append(Instruction("spare", taken, (), {}, number, line.place))
            into: Any = Ref(number)
            if type(line.out) is not int:
                given = list(line.kwargs.get("out") or [None] * len(line.out))
                given[line.out.index(site.value)] = into
                into = tuple(given)
            fn = self._support.takes_memory(line, specs) or line.fn
            instead[at] = Instruction(line.name, fn, line.args, {"out": into}, line.out, line.place)
            self._used[site.index] = spare
        lines: list[Instruction] = []
        for at, line in enumerate(program.instructions):
            lines += [*before.get(at, ()), instead.get(at, line)]
        planned = program.replace(lines, specs=specs)
        late, which = overwriting.put_off(planned, outputs, self._old, self._support)
        if not late:
            return planned if chosen else program
        self._late |= {index: spare for index in which if (spare := self._all[index]) is not None}
        return planned.replace([late.get(at, line) for at, line in enumerate(planned.instructions)])

    def commit(
        self,
        objects: Sequence[Any],
        names: Sequence[str],
        values: Sequence[Raw],
        before: Sequence[Raw],
        finish: Callable[[list[Raw]], list[Any]],
    ) -> None:
        """Give objects new attributes, all at once, and write over old values of Variables, or keep their arrays.

        Args:
            values: the new values of Variables, in the order of `places`, of which some are late; before: the old ones.
            finish: makes of the values all that the objects get.
        """
        over = Overwriting() if may_overwrite() else None
        found, written = overwriting.settle(values, before, self._late, self._backend, over)
        news = finish(found)
        if written:
            assert over is not None
            if not over.make(objects, names, news):
                found, written = overwriting.settle(values, before, self._late, self._backend, None)
                news = finish(found)
        if not written:
            any(map(setattr, objects, names, news))
        for index, spare in (self._late | self._used).items():
            if index in written:
                spare.kept.clear()
            elif index in self._used:
                spare.keep(before[index], news[index])
                continue
            spare.made = ref(news[index])

    def settle(self) -> None:
        """Give back to the system what the first calls have freed."""
        if self._unsettled:
            self._unsettled -= 1
            give_back(self._size)

    def release(self) -> None:
        """Free the memory: a call comes that does not take it."""
        for spare in self._used.values():
            spare.kept.clear()


class _Site:
    """A call that allocates what becomes the new value of a Variable.

    Attributes:
        at: its index; value: the number of its result; index: which Variable it is.
    """

    __slots__ = ("at", "index", "value")

    def __init__(self, at: int, value: int, index: int) -> None:
        self.at = at
        self.value = value
        self.index = index


def _sites(program: Program, outputs: Sequence[int], kept: Sequence[bool], support: LibrarySupport) -> list[_Site]:
    """Return the calls that may write into spare memory, in order."""
    specs, made = program.specs, {k: at for at, line in enumerate(program.instructions) for k in line.outputs}
    found: dict[int, _Site] = {}
    for index, (output, is_kept) in enumerate(zip(outputs, kept, strict=True)):
        if not is_kept or specs[output].size < thresholds.SPARE_MIN_ELEMENTS or program.outputs.count(output) > 1:
            continue
        value: int | None = output
        while value in made and value not in found:  # back to where its memory comes from
            at = made[value]
            line = program.instructions[at]
            into = _lies_in(line, value, support)
            if into is None:
                if support.takes_memory(line, specs) is not None and specs[value] == specs[output]:
                    found[value] = _Site(at, value, index)
                break
            value = into
    return sorted(found.values(), key=lambda site: site.at)


def _lies_in(line: Instruction, value: int, support: LibrarySupport) -> int | None:
    """Return the value in whose memory a result of a call lies; None if it has memory of its own."""
    targets = line.kwargs.get("out")
    if targets is not None:
        target = targets[line.out.index(value)] if type(targets) is tuple else targets
        if type(target) is Ref or type(target) is IfExclusive:
            return target.id
    return support.lies_in(line, value)


def _that_fit(program: Program, sites: Iterable[_Site], support: LibrarySupport) -> list[_Site]:
    """Return the sites whose memory can be kept from the beginning on without a higher peak; the first ones first."""
    live = _live_bytes(program, support)
    most = thresholds.SPARE_MAX_GROWTH * max(live, default=0)
    chosen: list[_Site] = []
    peak = start = 0  # the most bytes that there are before `start`, with what is kept until a later site
    for site in sites:
        size = _bytes(program.specs[site.value])
        peak = max([peak, *live[start : site.at]])
        start = site.at
        # What is kept is there from the beginning on: so it adds to all that comes before.
        if peak + size <= most:
            chosen.append(site)
            peak += size
    return chosen


def _bytes(spec: Spec) -> int:
    return max(0, spec.size) * int(getattr(spec.dtype, "itemsize", 0))


def _live_bytes(program: Program, support: LibrarySupport) -> list[int]:
    """Return how many bytes are alive in each call, those of inputs and their views included."""
    specs = program.specs
    lies: dict[int, int] = {}  # by value the one that has allocated its memory
    born: dict[int, int] = dict.fromkeys([*program.inputs, *program.constants], 0)
    last: dict[int, int] = {}
    for at, line in enumerate(program.instructions):
        for k in line.outputs:
            into = _lies_in(line, k, support)
            if into is None and line.name in VIEWS and line.inputs:
                into = line.inputs[0]
            if into is None:
                born[k] = at
            else:
                lies[k] = lies.get(into, into)
        for k in (*line.inputs, *line.outputs):
            last[lies.get(k, k)] = at
    end = len(program.instructions)
    for k in (*program.inputs, *program.constants, *program.outputs):
        last[lies.get(k, k)] = end
    changes = [0] * (end + 2)
    for k, at in born.items():
        size = _bytes(specs[k])
        changes[at] += size
        changes[last.get(k, at) + 1] -= size
    live, now = [], 0
    for change in changes[:end]:
        now += change
        live.append(now)
    return live


def spares_for(
    program: Program,
    support: LibrarySupport | None,
    places: Sequence[tuple[object, str] | None],
    examples: Mapping[int, Raw],
) -> Spares | None:
    """Return the spare memory of a function; None if it keeps none.

    Args:
        program: with its `updates`.
        support: of the library of its arrays.
        places: as for :class:`Spares`.
        examples: by the numbers of inputs, arrays that they may be.
    """
    if support is None or program.backend is None or program.backend.array_class is None or program.replaced:
        return None  # no library, or one whose references cannot be counted
    found: list[tuple[object, str] | None] = []
    size = 0
    for place, k in zip(places, program.updates, strict=True):
        spec = program.specs[k]
        is_kept = spec.size >= thresholds.SPARE_MIN_ELEMENTS and program.backend.has_spares(examples[k])
        found.append(place if is_kept else None)
        size += _bytes(spec) if is_kept else 0
    return Spares(support, program.backend, found, program.updates, size) if size else None
