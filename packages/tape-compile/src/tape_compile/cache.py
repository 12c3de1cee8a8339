"""The traces that a compiled function keeps: a bounded number, and none for objects that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, count
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from tape_core import Variable

from tape_compile.methods import kept


class _Used(Protocol):
    age: int
    recent: bool


T = TypeVar("T", bound=_Used)

MAX_TRACES = 256  # traces of one function that are kept by default, since each holds code and constants


class Traces(dict[Any, list[T]], Generic[T]):
    """Traces by the kind of call, those of a kind newest first.

    Where there are more than `most`, the one goes that was not used for longest, nearly: each use marks a trace as
    `recent`, and the oldest one without the mark goes. Lists are replaced, never changed: other threads look through
    them.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._ages = count()

    def add(self, kind: Any, trace: T) -> None:
        """Keep one more; the caller has the function's lock."""
        trace.age = next(self._ages)
        self[kind] = [trace, *self.get(kind, ())]
        while len(self.all) > self.most:
            self._drop_one(trace)

    def _drop_one(self, newest: T) -> None:
        known = [(k, one) for k, several in list(self.items()) for one in several if one is not newest]
        known.sort(key=lambda entry: entry[1].age)
        for kind, trace in known:
            if not trace.recent:
                self.remove(kind, trace)
                return
            trace.recent, trace.age = False, next(self._ages)
        if known:  # else their objects are gone by now
            self.remove(*known[0])

    def remove(self, kind: Any, trace: T) -> None:
        """Keep it no longer."""
        rest = [one for one in self.get(kind, ()) if one is not trace]
        if rest:
            self[kind] = rest
        else:
            self.pop(kind, None)

    @property
    def all(self) -> list[T]:
        """Each trace."""
        return list(chain.from_iterable(list(self.values())))


def remember(known: dict[Any, Any], key: Any, value: Any, most: int = 1000) -> None:
    """Put a value into a dict, and take the oldest out where there are many."""
    known[key] = value
    while len(known) > most:
        known.pop(next(iter(known)), None)


def known_weakly(value: Any) -> bool:
    """Whether a static argument is known by which object it is, so that nothing need keep it alive."""
    kind: Any = type(value)
    return isinstance(value, Variable) or bool(
        kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__ and kind.__weakrefoffset__ != 0
    )


def when_gone(values: Iterable[Any], forget: Callable[[], Any]) -> list[Any]:
    """References to those of the values that are known weakly; while one is kept, its value's end calls `forget`."""
    return [ref(value, lambda _: forget()) for value in map(kept, values) if known_weakly(value)]
