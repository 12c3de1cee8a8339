"""New values of Variables that are written over the old ones, where nobody sees that: all at once, or not at all.

What computes them are calls of C functions for which all memory is there. They are made together with the assignments
of a commit, by one call of a C function that runs no Python code: so an exception such as KeyboardInterrupt comes
before all of them or after all, and no signal handler sees half of it. The same call first looks whether somebody has
got hold of an old value meanwhile. Where another thread could look, nothing is overwritten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from operator import eq, is_, is_not, length_hint
from typing import Any, Final, NamedTuple

from tape_core.base.ambient import ACTIVE, FORMER
from tape_core.base.attributes import set_attribute

Call = partial[Any]
"""A call of a C function that runs no Python code, and that fails only before it has done anything."""


class Old(NamedTuple):
    """The value of a Variable that may be overwritten."""

    memory: Any
    """An array of its own in the value's memory, or in that of the part that this process has."""

    watched: Callable[[int], tuple[list[Call], list[int]]]
    """Called with the number of pieces that this array is cut into, it returns calls that count references, and what
    they return if nobody but the Variable has the value, while a commit has these calls."""


def may_overwrite() -> bool:
    """Return whether nobody is to see old values later: no tape, no other thread, and nobody who puts them back."""
    return not ACTIVE.get() and not FORMER.get() and not _other_threads()


without_arrays: Final[set[int]] = set()
"""The identifiers of threads that never have an array, while they run: what they would see does not matter."""


def _other_threads() -> int:
    """Return how many threads of Python there are beside this one that may have arrays."""
    return len(sys._current_frames().keys() - without_arrays) - 1


class Overwriting:
    """The calls of a commit that write over old values."""

    __slots__ = ("_calls", "_counts", "_expected")

    def __init__(self) -> None:
        self._counts: list[Call] = []
        self._expected: list[int] = []
        self._calls: list[Call] = []

    def add(self, counts: Sequence[Call], expected: Sequence[int], calls: Sequence[Call]) -> None:
        """Add calls, and those that count who else has what they write over."""
        self._counts += counts
        self._expected += expected
        self._calls += calls

    def make(self, objects: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> bool:
        """Make the calls, and set attributes; return False, and do nothing, if somebody else has an old value.

        Raises:
            RuntimeError: a call has failed twice, and others have been made.
        """
        left = iter(self._calls)
        alone = map(eq, map(_call, self._counts), self._expected)
        try:
            return all(chain(alone, _made(left), _set(objects, names, values)))
        except BaseException as error:
            begun = len(self._calls) - length_hint(left)
            if not begun:
                raise
            self._finish(begun - 1, objects, names, values)
            if not isinstance(error, Exception):  # an interrupt is one when all is done
                raise
            return True

    def _finish(self, begun: int, objects: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> None:
        """Bring to its end what a failing call has left, beginning with that call."""
        try:
            all(chain(_made(iter(self._calls[begun:])), _set(objects, names, values)))
        except Exception as error:
            if not begun:  # nothing has been written
                raise
            raise RuntimeError(
                f"the new values of Variables were half written when {type(error).__name__} came: {error}. They are "
                f"lost: load the Variables, and the optimizer's state, from a checkpoint"
            ) from error


_call: Callable[[Call], Any] = partial.__call__


def _made(calls: Iterator[Call]) -> Iterator[bool]:
    return map(is_not, map(_call, calls), repeat(calls))  # True for each


def _set(objects: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> Iterator[bool]:
    return map(is_, map(set_attribute, objects, names, values), repeat(None))  # True for each
