"""Assignments that are undone where the call that made them does not end: of Variables, host numbers and attributes.

A compiled call computes new values beside the old ones and puts them in place together. A function that runs as plain
Python assigns one after the other; so the values from before are kept, and put back if it is ended by an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from tape_core.base.ambient import FORMER
from tape_core.base.attributes import set_attribute
from tape_core.base.contexts import Leaving


class undone_on_error:
    """A context whose assignments are undone if an exception ends it, a KeyboardInterrupt at any moment included.

    What assigns calls :func:`keep_former` before. Contexts may be nested: each keeps its own values from before.

    Args:
        objects: whose attributes `names` are kept from the start.
        names: of attributes.

    >>> class Counter:
    ...     count = 0
    >>> counter = Counter()
    >>> try:
    ...     with undone_on_error():
    ...         keep_former([counter], ["count"])
    ...         counter.count = 1 / 0
    ... except ZeroDivisionError:
    ...     counter.count
    0
    """

    __slots__ = ("_before", "_entered", "_former", "_guard")

    def __init__(self, objects: Iterable[Any] = (), names: Iterable[str] = ()) -> None:
        self._former: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        _keep(self._former, objects, names)
        self._before = FORMER.get()
        self._guard: Any = None
        self._entered = False

    def __enter__(self) -> None:
        self._entered = True
        FORMER.set((*self._before, self._former))

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._put_back()
        FORMER.set(self._before)
        self._guard = None  # from here on the assignments hold

    def _abandon(self) -> None:
        if self._entered:
            self._put_back()
            FORMER.set(self._before)
            self._guard = None

    def _put_back(self) -> None:
        # One call of a C function, which no signal handler interrupts; see `tape_core.engine.commit`.
        if self._former:
            any(map(set_attribute, *zip(*self._former.values(), strict=True)))

    __exit__ = Leaving(_leave, _abandon)


def keep_former(objects: Iterable[Any], names: Iterable[str]) -> None:
    """Keep the values of attributes that are about to be assigned to, where that may be undone."""
    for former in FORMER.get():
        _keep(former, objects, names)


def _keep(former: dict[tuple[int, str], tuple[Any, str, Any]], objects: Iterable[Any], names: Iterable[str]) -> None:
    # The first value counts. The object is kept with it, so that no other one gets its id.
    for instance, name in zip(objects, names, strict=True):
        former.setdefault((id(instance), name), (instance, name, getattr(instance, name)))
