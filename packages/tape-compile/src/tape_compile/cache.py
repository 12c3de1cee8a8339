"""The cache of a compiled function's traces: bounded, and without those for objects that are gone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain, count
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

from tape_core import Variable

from tape_compile.methods import unbound
from tape_compile.thresholds import MAX_FALLBACKS


class _Aging(Protocol):
    age: int
    recent: bool


T = TypeVar("T", bound=_Aging)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Traces(dict[Any, list[T]], Generic[T]):
    """Traces by cache key, those of a key newest first, of which at most `most` are kept.

    A trace is dropped by the second-chance rule, which comes close to least recently used and costs a use nothing but
    setting `recent`: the oldest trace without the mark goes, and those with it lose the mark and count as new. Lists
    are replaced, never changed, since other threads iterate over them.

    Attributes:
        latest: the trace of the last call, if it is kept still.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.latest: T | None = None
        self._ages = count()

    def add(self, kind: Hashable, trace: T) -> None:
        """Keep a trace; the caller holds the function's lock."""
        trace.age = next(self._ages)
        self[kind] = [trace, *self.get(kind, ())]
        while len(self.all) > self.most:
            self._drop_one(trace)

    def _drop_one(self, newest: T) -> None:
        # Of a copy: the end of an object drops its traces at any moment (`notify_on_end`), in whichever thread.
        known = [(k, one) for k, several in list(self.items()) for one in several if one is not newest]
        known.sort(key=lambda entry: entry[1].age)
        for kind, trace in known:
            if not trace.recent:
                self.remove(kind, trace)
                return
            trace.recent, trace.age = False, next(self._ages)
        if known:  # all were recent; or none is left, since the end of their objects has dropped them
            self.remove(*known[0])

    def remove(self, kind: Hashable, trace: T) -> None:
        """Drop a trace."""
        if self.latest is trace:
            self.latest = None
        rest = [one for one in self.get(kind, ()) if one is not trace]
        if rest:
            self[kind] = rest
        else:
            self.pop(kind, None)

    def forget(self, kind: Hashable) -> None:
        """Drop the traces of a key."""
        self.pop(kind, None)
        self.latest = None

    @property
    def all(self) -> list[T]:
        """All traces."""
        return list(chain.from_iterable(list(self.values())))


def remember(known: dict[K, V], key: K, value: V, most: int = MAX_FALLBACKS) -> None:
    """Put a value into a dict, and drop the oldest where there are more than `most`."""
    known[key] = value
    while len(known) > most:
        # Dicts keep the order of insertion, so the first key is the oldest; another thread may have dropped it
        # already.
        known.pop(next(iter(known)), None)


def compares_by_identity(value: object) -> bool:
    """Return whether a static argument is equal to nothing but itself: then a weak reference to it does in a key."""
    return isinstance(value, Variable) or identity_compares(type(value))


def identity_compares(kind: Any) -> bool:
    """Return whether instances of a class are equal to nothing but themselves, and can have weak references."""
    # A `__weakrefoffset__` of 0 means that instances cannot have weak references, as with `__slots__`.
    return bool(kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__ and kind.__weakrefoffset__ != 0)


def notify_on_end(values: Iterable[object], forget: Callable[[], object]) -> list[ref[object]]:
    """Return weak references to the values that compare by identity; each calls `forget` when its value ends."""
    return [ref(value, lambda _: forget()) for value in map(unbound, values) if compares_by_identity(value)]
