"""Updates whose results are written over the old values of Variables, when all else of a call is done.

A call that makes new values of Variables and nothing else is put off: it returns a `Late` in place of each, and keeps
what it computes from. The commit writes them over the old values, all at once, where nobody else has these; see
`tape_core/engine/overwriting.py`. So a step needs no second state, and a call that fails has changed nothing. Where
somebody has an old value the update is computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tape_core.backends import Backend
from tape_core.support import Overwriting, Spare, may_overwrite

from tape_compile.library import LibrarySupport, Overwrites
from tape_compile.program import Instruction, Program, Raw, Ref


class Wrap(Protocol):
    """Makes the array that a Variable gets of one of this process."""

    def __call__(self, array: Raw, /) -> Raw: ...

    def keeps(self, old: Raw) -> bool:
        """Return whether it makes an array like the old one, which has the same memory."""


class PutOff:
    """Called as a fused function, it puts off the call where nobody is to see old values of Variables later.

    Args:
        run: the function, which takes `out=` if it is ever given; overwrites: makes the calls that do the same in the
            memory of arguments; old: of each result the place of the old value among the arguments.
        divided: whether the results are divided, so that it is made of the parts of this process.
    """

    __slots__ = ("__name__", "_divided", "_old", "_overwrites", "_run")

    def __init__(
        self, run: Callable[..., tuple[Raw, ...]], overwrites: Overwrites, old: Sequence[int], divided: bool
    ) -> None:
        self.__name__ = getattr(run, "__name__", "update")
        self._run = run
        self._overwrites = overwrites
        self._old = old
        self._divided = divided

    def __call__(self, *args: Raw, **out: Any) -> tuple[Raw, ...]:
        if not may_overwrite():
            return self._run(*args, **out)
        call = _Call(self._run, self._overwrites, self._old, self._divided, [*args], out)
        return tuple([Late(call, k) for k in range(len(self._old))])


class _Call:
    """A call that is put off, for all of its results."""

    __slots__ = ("_args", "_divided", "_made", "_out", "_overwrites", "_run", "old")

    def __init__(
        self,
        run: Callable[..., tuple[Raw, ...]],
        overwrites: Overwrites,
        old: Sequence[int],
        divided: bool,
        args: list[Raw],
        out: dict[str, Any],
    ) -> None:
        self._run = run
        self._overwrites = overwrites
        self.old = old
        self._divided = divided
        self._args = args
        self._out = out
        self._made: tuple[Raw, ...] | None = None

    def overwrite(self, former: Sequence[Raw], backend: Backend, over: Overwriting) -> list[Raw] | None:
        """Add to `over` what writes over former values; return these as they will be, or None, with nothing done.

        Args:
            former: of each result the value of its Variable.
        """
        args, joined = self._args, None
        if self._divided:
            large = [k for k, x in enumerate(args) if hasattr(x, "shape")]
            alike, as_former = backend.parts_alike([args[k] for k in large]), backend.parts_alike([former[0], *former])
            if alike is None or as_former is None:
                return None
            args, joined = [*args], as_former[1]
            for k, part in zip(large, alike[0], strict=True):
                args[k] = part
        found = [backend.old_value(value, args[at]) for value, at in zip(former, self.old, strict=True)]
        memory = [old.memory for old in found if old is not None]
        if len(memory) < len(found):
            return None
        made = self._overwrites(_with(args, self.old, memory))
        if made is None:
            return None
        calls, pieces = made
        new = memory if joined is None else joined(memory)
        self._args = _with(self._args, self.old, new)  # without the old values, of which references are counted
        watched = [old.watched(pieces) for old in found if old is not None]
        over.add([count for own, _ in watched for count in own], [n for _, own in watched for n in own], calls)
        return new

    def old_value(self, index: int) -> Raw:
        """Return the argument over which a result may be written."""
        return self._args[self.old[index]]

    def made(self) -> tuple[Raw, ...]:
        """Compute the results beside the old values, once: they may have the memory of what they are computed from."""
        if self._made is None:
            self._made = self._run(*self._args, **self._out)
        return self._made


def _with(args: Sequence[Raw], places: Sequence[int], arrays: Sequence[Raw]) -> list[Raw]:
    """Return arguments with other arrays in some places."""
    found = [*args]
    for at, array in zip(places, arrays, strict=True):
        found[at] = array
    return found


class Late:
    """A new value of a Variable that is computed when it is committed."""

    __slots__ = ("call", "index", "wrap")

    def __init__(self, call: _Call, index: int, wrap: Wrap | None = None) -> None:
        self.call = call
        self.index = index
        self.wrap = wrap

    @property
    def old(self) -> Raw:
        """The value among what it is computed from that it may be written over."""
        return self.call.old_value(self.index)

    def wrapped(self, wrap: Wrap) -> Late:
        """Return this value as one of which the Variable gets what `wrap` makes."""
        return Late(self.call, self.index, wrap)


def put_off(
    program: Program, outputs: Sequence[int], old: Sequence[int | None], support: LibrarySupport
) -> tuple[dict[int, Instruction], set[int]]:
    """Return the calls of a program that may be put off, as such, by their places; and of which outputs they are.

    Args:
        outputs: the new values of Variables; old: of each the number of the old one, None if that is to stay.
    """
    used = {k for line in program.instructions for k in line.inputs}
    index = {k: at for at, k in enumerate(outputs) if program.outputs.count(k) == 1 and k not in used}
    found: dict[int, Instruction] = {}
    which: set[int] = set()
    for at, line in enumerate(program.instructions):
        results = line.out
        if type(results) is not tuple or line.effect or not all([type(k) is int and k in index for k in results]):
            continue
        places = {arg.id: n for n, arg in enumerate(line.args) if type(arg) is Ref}
        over: dict[int, int] = {}
        for k in results:
            own = old[index[k]]
            if own in places and own not in over.values() and program.specs[own] == program.specs[k]:
                over[k] = own
        overwrites = support.overwrites(line, over) if len(over) == len(results) else None
        if overwrites is None or len(places) < len([arg for arg in line.args if type(arg) is Ref]):
            continue
        divided = support.can_be_divided(program.specs[results[0]])
        fn: Any = PutOff(line.fn, overwrites, [places[over[k]] for k in results], divided)
        found[at] = Instruction(line.name, fn, line.args, line.kwargs, line.out, line.place)
        which.update([index[k] for k in results])
    return found, which


def settle(
    new: Sequence[Raw], before: Sequence[Raw], spares: Mapping[int, Spare], backend: Backend, over: Overwriting | None
) -> tuple[list[Raw], set[int]]:
    """Return new values of Variables with arrays for those that are late, and which are written over old ones.

    Args:
        new: the values; before: the old ones.
        spares: by Variable, what knows whether an update has made the old value: memory of others may be a file's.
        over: gets the calls that write over old values; without it all values are computed beside them.
    """
    calls: dict[int, list[int]] = {}
    for at, value in enumerate(new):
        if type(value) is Late:
            calls.setdefault(id(value.call), []).append(at)
    settled, overwritten = list(new), set[int]()
    for places in calls.values():
        late: list[Late] = sorted([new[at] for at in places], key=lambda value: value.index)
        at_of = {new[at].index: at for at in places}
        call, former = late[0].call, [before[at_of[value.index]] for value in late]
        made: Sequence[Raw] | None = None
        if over is not None and all([
            (spare := spares[at_of[value.index]]).made is not None
            and spare.made() is old
            and (value.wrap is None or value.wrap.keeps(old))
            for value, old in zip(late, former, strict=True)
        ]):  # fmt: skip
            made = call.overwrite(former, backend, over)
        if made is None:
            made = call.made()
        else:
            overwritten.update(places)
        for value, array in zip(late, made, strict=True):
            settled[at_of[value.index]] = array if value.wrap is None else value.wrap(array)
    return settled, overwritten
