"""The names by which processes tell each other of Variables: those by which all of them have distributed them.

A Variable's own name may be that of others, and in which order Variables are made depends on the program of a process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final

from tape_core import Variable

_named: Final[dict[int, tuple[weakref.ref[Variable], str]]] = {}
"""By the id of a Variable the name."""

changes: Final = [0]
"""How many names were given."""

_counts: Final[dict[str, int]] = {}

_alike: Final[dict[int, tuple[weakref.ref[Variable], str]]] = {}
"""By the id of a Variable of a plain array that is the same in all processes the name."""

shared: Final[dict[int, tuple[weakref.ref[Variable], str]]] = {}
"""By the id of a Variable of either kind the name."""


def add_names(named: Iterable[tuple[str, Variable]]) -> None:
    """Note Variables that all processes distribute, in one order and by the same names; those of before keep theirs."""
    for name, variable in named:
        if name_of(variable) is None:
            _put(_named, name, variable)
            changes[0] += 1


def _put(names: dict[int, tuple[weakref.ref[Variable], str]], name: str, variable: Variable) -> None:
    key, count = id(variable), _counts.get(name, 0) + 1
    _counts[name] = count
    shown = repr(name) if count == 1 else f"{name!r} (number {count} of this name)"

    def end(reference: object) -> None:
        for one in (names, shared):
            if key in one and one[key][0] is reference:
                del one[key]

    names[key] = shared[key] = weakref.ref(variable, end), shown


def name_of(variable: Any) -> str | None:
    """Return the name of a Variable, in quotes; None for one that was not distributed."""
    found = _named.get(id(variable))
    return found[1] if found is not None and found[0]() is variable else None


def add_alike(sources: Iterable[Any]) -> None:
    """Note Variables of plain arrays whose gradients all processes average: they are the same in all of them."""
    for x in sources:
        if id(x) not in _alike and isinstance(x, Variable):
            _put(_alike, x.name or "Variable", x)


def is_alike(variable: Any) -> bool:
    """Return whether all processes are to have the same value of a Variable of a plain array."""
    found = _alike.get(id(variable))
    return found is not None and found[0]() is variable


def shared_name(variable: Any) -> str | None:
    """Return the name of a Variable that was distributed, or is the same in all processes; None for others."""
    found = shared.get(id(variable))
    return found[1] if found is not None and found[0]() is variable else None


def all_named() -> Iterator[tuple[Variable, str]]:
    """Yield the Variables that there are, with their names."""
    for reference, name in list(_named.values()):
        if (variable := reference()) is not None:
            yield variable, name
