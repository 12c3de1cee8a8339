"""Spare memory: what the former values of Variables had, and into which a later call writes new values.

A step of training has the old state and the new one in memory until it commits. If it frees the old arrays afterwards
and allocates new ones in the next step, the C library's heap falls to pieces, and the process grows far beyond two
states. So a compiled function keeps the old arrays, and takes their memory for the next values, if nobody else has it
by then: as two buffers that take turns. Current values of Variables are never written to: a call that fails leaves them
as they are, and other threads see one state or the other.

Before that, the first calls have left pieces of the heap, in which nothing fits any more: they are given back to the
system.

A function that has more in memory before its updates than in them would grow by what it keeps. So it keeps as much as
leaves its peak where it is, by the sizes of its program's values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from weakref import WeakValueDictionary, ref

from tape_compile import thresholds
from tape_compile.library import LibrarySupport
from tape_compile.program import VIEWS, IfExclusive, Instruction, Program, Raw, Ref, Spec


class Spare:
    """The former array of a Variable; all functions that assign to the Variable have the same object.

    Attributes:
        kept: a list of that array, or of none: `pop` takes it once, whatever other threads do.
        made: a weak reference to the last array that a call has made. Arrays from elsewhere are not kept: their memory
            may be a file's, or a part of other memory.
    """

    __slots__ = ("__weakref__", "kept", "made")

    def __init__(self) -> None:
        self.kept: list[Raw] = []
        self.made: ref[Any] | None = None


_spares: WeakValueDictionary[tuple[int, str], Spare] = WeakValueDictionary()
"""By the identity of what holds a Variable's value, and the attribute. That the identity may be one of a former object
does no harm, since an array is taken by its shape and dtype."""


def release_spares() -> None:
    """Free all spare memory: what comes now may need it, and is no call that takes it."""
    for spare in list(_spares.values()):
        spare.kept.clear()


class _Taken:
    """Called without arguments, it returns memory for a new value, or None where there is none to be had."""

    __slots__ = ("_spare", "_spec", "_support")
    __name__ = "spare"

    def __init__(self, spare: Spare, spec: Spec, support: LibrarySupport) -> None:
        self._spare = spare
        self._spec = spec
        self._support = support

    def __call__(self) -> Raw | None:
        kept = self._spare.kept
        return self._support.spare_memory(kept, self._spec) if kept else None


class Spares:
    """The spare memory of a compiled function.

    Args:
        support: of the library of the arrays.
        places: of each Variable that is assigned, in order, what holds its value, and the attribute; None for one whose
            old array is not kept.
        size: the bytes of the arrays that are kept.
    """

    def __init__(self, support: LibrarySupport, places: Sequence[tuple[object, str] | None], size: int) -> None:
        self._support = support
        self._all = [None if place is None else _spare_of(*place) for place in places]
        self._used: list[tuple[int, Spare]] = []
        self._unsettled = thresholds.GIVE_BACK_CALLS if size >= thresholds.GIVE_BACK_MIN_BYTES else 0

    def planned(self, program: Program) -> Program:
        """Return a program that writes new values of Variables, its last outputs, into spare memory."""
        outputs = program.outputs[len(program.outputs) - len(self._all) :]
        found = _sites(program, outputs, [spare is not None for spare in self._all], self._support)
        chosen = _that_fit(program, found, self._support)
        if not chosen:
            return program
        specs, number = dict(program.specs), max([*program.specs, *program.inputs, *program.constants])
        before: dict[int, list[Instruction]] = {}
        instead: dict[int, Instruction] = {}
        for site in chosen:
            spare, at, spec = self._all[site.index], site.at, program.specs[site.value]
            assert spare is not None  # as it has a site
            number += 1
            specs[number] = spec
            line = instead.get(at, program.instructions[at])
            taken = _Taken(spare, spec, self._support)
            before.setdefault(at, []).append(Instruction("spare", taken, (), {}, number, line.place))
            into: Any = Ref(number)
            if type(line.out) is not int:
                given = list(line.kwargs.get("out") or [None] * len(line.out))
                given[line.out.index(site.value)] = into
                into = tuple(given)
            fn = self._support.takes_memory(line, specs) or line.fn
            instead[at] = Instruction(line.name, fn, line.args, {"out": into}, line.out, line.place)
            self._used.append((site.index, spare))
        lines: list[Instruction] = []
        for at, line in enumerate(program.instructions):
            lines += [*before.get(at, ()), instead.get(at, line)]
        return program.replace(lines, specs=specs)

    def keep(self, before: Sequence[Raw], after: Sequence[Raw]) -> None:
        """Keep old arrays of Variables, in the order of `places`, after the new ones are assigned."""
        for index, spare in self._used:
            last, spare.made = spare.made, ref(after[index])
            if last is not None and last() is before[index]:
                spare.kept[:] = (before[index],)
        if self._unsettled:
            self._unsettled -= 1
            if trim := _malloc_trim():
                trim(0)

    def release(self) -> None:
        """Free the memory: a call comes that does not take it."""
        for _, spare in self._used:
            spare.kept.clear()


@cache
def _malloc_trim() -> Callable[[int], Any] | None:
    """Return the function of glibc that gives freed memory back to the system; None with another C library."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return None
    return found


def _spare_of(holder: object, attribute: str) -> Spare:
    key = id(holder), attribute
    found = _spares.get(key)
    if found is None:
        found = _spares[key] = Spare()
    return found


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
        is_kept = spec.size >= thresholds.SPARE_MIN_ELEMENTS and support.has_spares(examples[k])
        found.append(place if is_kept else None)
        size += _bytes(spec) if is_kept else 0
    return Spares(support, found, size) if size else None
