"""Layouts: a new value of a Variable is divided among devices as the former one, as far as a backend sees to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tape_core.typing import Raw

if TYPE_CHECKING:
    from tape_core.engine.tensor import Tensor
    from tape_core.engine.variable import Variable

Settle = Callable[[Raw, Raw], Raw]
Tell = Callable[[Raw], bool]
Meet = Callable[[Sequence[Any], list[str], str], None]
Note = Callable[[str], None]
Count = Callable[[Sequence[Any], Sequence[Raw] | None, Sequence[Raw] | None, object], None]


class Together(Protocol):
    """What lays out gradients as their sources, several at once, while a backward pass goes on."""

    def add(self, key: int, gradient: Raw, source: Tensor) -> bool:
        """Take a gradient that is to be laid out as its source; return False if it is laid out by itself."""

    def finish(self) -> dict[int, Raw]:
        """Return those that were taken, by their keys."""


in_use = False
"""Whether there is such a backend: nothing is asked before."""

are_compared = False
"""Whether processes compare what they do with some Variables: nothing is asked before."""

_settles: list[Settle] = []
_tells: list[Tell] = []
_meets: list[tuple[Callable[[Variable], bool], Meet]] = []
_notes: list[Note] = []
_counts: list[Count] = []


def keep_layouts(settle: Settle, is_divided: Tell | None = None) -> None:
    """Have a function called wherever Variables get new values.

    Args:
        settle: called with a new raw value of a Variable, of any backend, or of a host number, and the former one;
            returns the new one in the layout of the former, or itself.
        is_divided: called with a raw value of any backend; returns whether it is divided so that other orders of its
            rows are better than some: see `is_divided`.
    """
    global in_use
    if settle not in _settles:
        _settles.append(settle)
        if is_divided is not None:
            _tells.append(is_divided)
    in_use = True


def compare_among(is_shared: Callable[[Variable], bool], meet: Meet, note_set: Note, count_new: Count) -> None:
    """Have processes compare what they do with Variables.

    Args:
        is_shared: returns whether a Variable is to have the same value in all of them, or is divided among them.
        meet: called with the Variables of `compare` and what it tells: refuses what other processes do otherwise.
        note_set: called with what `note` gets: has it compared with what other processes note.
        count_new: called with what `count` gets: has it compared with what other processes count.
    """
    global are_compared
    if note_set not in _notes:
        _meets.append((is_shared, meet))
        _notes.append(note_set)
        _counts.append(count_new)
    are_compared = True


def compare(variables: Iterable[Variable], tell: Callable[[], tuple[list[str], str]]) -> bool:
    """Compare between processes what each of them is about to do with Variables, if they share one of them.

    All of them call this, or none. It returns whether there is such a one.

    Args:
        tell: returns what it is, and then its particulars, as text; and what to do where it differs.

    Raises:
        RuntimeError: it differs.
    """
    given = list(variables)
    wanted = [meet for is_shared, meet in _meets if any(map(is_shared, given))]
    for meet in wanted:
        meet(given, *tell())
    return bool(wanted)


def note(told: str) -> None:
    """Note what this process sets, as all others do: where one has set something else the next gradients are an error.

    Args:
        told: what it is, as text.
    """
    for note_set in _notes:
        note_set(told)


def count(
    variables: Sequence[Any],
    former: Sequence[Raw] | None = None,
    new: Sequence[Raw] | None = None,
    given: object = None,
) -> None:
    """Count new values of Variables: where another process has given them more or fewer it is an error later on.

    Args:
        variables: those that have new values; host numbers among them are passed over.
        former, new: the raw values before and after an assignment, which may bring a former value back; None for an
            update.
        given: what was assigned, as the user has given it.
    """
    for count_new in _counts:
        count_new(variables, former, new, given)


def settled(arrays: Iterable[Raw], former: Iterable[Raw]) -> list[Raw]:
    """Return new values in the layouts of the former ones."""
    found = list(arrays)
    for settle in _settles:
        found = list(map(settle, found, former))
    return found


def is_divided(array: Raw) -> bool:
    """Return whether a raw array is divided among processes, each of which would have to send its rows to append some.

    In a trace it is the array that was traced that counts.
    """
    array = _outside_traces(array)
    return any([tell(array) for tell in _tells])


def _outside_traces(array: Raw) -> Raw:
    """Return the array that is traced, of what stands for it in a trace."""
    array = getattr(array, "_array", array)
    return getattr(array, "value", array)
