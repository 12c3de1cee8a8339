"""The notes of a debugging tape: calls of ops, and the values between them, by numbers. No array is held."""

from __future__ import annotations

import linecache
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tape_core.engine import record
from tape_core.engine.levels import innermost
from tape_core.staging import current
from tape_core.typing import Raw, Record

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Op


class Place(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return the text that tracebacks show, with the line itself if it can be read."""
        code = linecache.getline(self.file, self.line).strip()
        return f'File "{self.file}", line {self.line}, in {self.function}' + f"\n  {code}" * bool(code)


class Scope:
    """One call of a function of the user's, or of a layer."""

    __slots__ = ("name", "outer")

    def __init__(self, name: str, outer: Scope | None) -> None:
        self.name = name
        self.outer = outer

    def chain(self) -> list[Scope]:
        """The scopes around it, outermost first, and itself."""
        scopes: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            scopes.append(scope)
            scope = scope.outer
        return scopes[::-1]


class Call:
    """A call of an op, recorded or not; an assignment to a Variable is one without an op.

    Attributes:
        name: the op's name, or the method's.
        inputs: for each input the number of its value, None for what is no array.
        extra: the numbers of arrays among the parameters, such as the key of an indexing.
        outputs: the numbers of the results.
        specs: shape and dtype of each result.
        layouts: how each is divided among devices or processes, as its text says; empty where it is not.
        order: how many calls came before.
        paused: True if the tape was stopped at the time.
        nested: True if the kernel of another op made the call, as inside vmap.
    """

    __slots__ = (
        "bytes", "dtype", "extra", "inputs", "layouts", "name", "nested", "op", "order", "outputs", "paused", "place",
        "scope", "seconds", "specs",
    )  # fmt: skip

    name: str
    op: Op | None
    inputs: tuple[int | None, ...]
    extra: tuple[int, ...]
    outputs: tuple[int, ...]
    specs: tuple[tuple[tuple[int, ...], str], ...]
    layouts: tuple[str, ...]
    place: Place
    scope: Scope | None
    order: int
    seconds: float
    bytes: int
    paused: bool
    nested: bool


class Entry:
    """The note of a slot, which stays when the record itself is gone.

    Attributes:
        call: the call that was recorded; None for a leaf.
        slots: for each input its slot, None where it was not watched; `inputs` are those that were.
        part: of several results, which one; its only input is the op's own slot.
        place: for a leaf, where it was first read or watched.
        order: how many calls came before.
        kept: bytes that the record holds on to, those of an earlier record not counted again.
        backward: seconds that backward passes took for it.
        shared: checksums of the arrays of the user's in the record, by their place among `named_arrays`.
    """

    __slots__ = ("backward", "call", "inputs", "kept", "order", "part", "place", "shared", "slots")

    def __init__(self, call: Call | None, slots: tuple[int | None, ...], order: int) -> None:
        self.call = call
        self.slots = slots
        self.inputs = tuple([slot for slot in slots if slot is not None])
        self.order = order
        self.part: int | None = None
        self.place: Place | None = None
        self.kept = 0
        self.backward = 0.0
        self.shared: dict[int, int] = {}


class Event(NamedTuple):
    """A value left Tape, or was detached: `how` is the method or function."""

    how: str
    number: int
    order: int
    place: Place


class Generation:
    """The notes of the time in which the tape had one key: until reset(), or until its gradient used up the records."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.calls: list[Call] = []
        self.events: list[Event] = []
        self.producers: list[Call | None] = []  # by the number of a value
        self.specs: list[tuple[tuple[int, ...], str]] = []  # likewise
        self.values: dict[int, set[int]] = {}  # the numbers of the values that a Variable, by its id, had
        self._numbers: dict[int, tuple[int, Any]] = {}  # by the id of an array; and what makes the id mean something
        self._owners: set[Any] = set()
        self._given: set[Any] = set()  # names of the memory of arrays that no op made

    def number(self, array: Raw, *, new: bool = False) -> int:
        """Return the number of a value; a value that is new gets one."""
        array = raw(array)
        name = id(array)
        found = self._numbers.get(name)
        if found is not None and not new:
            return found[0]
        n = len(self.producers)
        self.producers.append(None)
        self.specs.append((tuple(array.shape), str(array.dtype).rpartition(".")[2]))
        numbers = self._numbers
        try:
            witness: Any = weakref.ref(array, lambda _: numbers.pop(name, None))
        except TypeError:
            witness = array  # a NumPy scalar: small, and kept
        numbers[name] = n, witness
        return n

    def known(self, array: Raw) -> int | None:
        """Return the number of a value, or None if it has none yet."""
        found = self._numbers.get(id(raw(array)))
        return None if found is None else found[0]

    def given(self, backend: Backend, arrays: Iterable[Any]) -> None:
        """Ops get these arrays: those that no op made are the user's, who may write to them."""
        if current() is not None:
            return
        for array in map(raw, arrays):
            known = self.known(array)
            if known is not None and self.producers[known] is None:
                self._given.add(backend.library.memory(array)[0])

    def checksums(self, backend: Backend, rec: tuple[Any, ...], plan: Any) -> dict[int, int]:
        """Checksums of the user's arrays in a record, views of them among that, by place."""
        if current() is not None:
            return {}
        return {
            k: checksum(backend, array)
            for k, (array, _) in enumerate(named_arrays(rec, plan))
            if backend.library.memory(array)[0] in self._given
        }

    def newly_kept(self, backend: Backend, arrays: Sequence[Any]) -> int:
        """Return the bytes of the arrays that no earlier record keeps alive."""
        total = 0
        for array in arrays:
            owner, size = backend.memory(array)
            if owner not in self._owners:
                self._owners.add(owner)
                total += size
        return total


def raw(array: Raw) -> Any:
    """Return the array of the array library, also inside vmap."""
    return innermost(array)[0]


def checksum(backend: Backend, array: Raw) -> int:
    """Return the CRC-32 of an array's elements, to notice that somebody wrote to it; 0 where others have some."""
    try:
        return zlib.crc32(backend.library.numpy(array).tobytes())
    except ValueError:
        return 0


def named_arrays(rec: tuple[Any, ...], plan: Any) -> Iterator[tuple[Any, str]]:
    """The arrays that a record reads in a backward pass, each with what it is to the op."""
    names = plan.op.inputs
    for k in range(plan.n):
        for array in _each_array(record.array(rec, k)):
            yield array, names[min(k, len(names) - 1)]
    for array in _each_array(record.out(rec)):
        yield array, "its result"
    for array in _each_array((record.params(rec), record.kwargs(rec), record.residuals(rec))):
        yield array, "a parameter"


def _each_array(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from _each_array(part)
    elif isinstance(value, dict):
        yield from _each_array(list(value.values()))
    elif hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        yield raw(value)


def arrays_in(rec: tuple[Any, ...], plan: Any) -> list[Any]:
    """Return the arrays that a record keeps alive."""
    found: list[Any] = []
    for field in (*[record.array(rec, k) for k in range(plan.n)], record.out(rec), record.residuals(rec)):
        several = type(field) is tuple or type(field) is list
        found += [one for one in (field if several else (field,)) if hasattr(one, "shape")]
    return found


def slots_in(rec: Record) -> tuple[int | None, ...]:
    """Return the slots of the inputs of a record, None where they are not watched."""
    found: list[int | None] = []
    for at in record.input_slots(rec):
        found.extend(at if type(at) is tuple else (at,))
    return tuple(found)
