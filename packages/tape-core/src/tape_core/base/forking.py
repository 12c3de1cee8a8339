"""Locks and pools that work in a forked child process.

`fork` copies the memory of a process and the thread that calls it, and no other thread. A lock that another thread held
stays locked in the child for ever, and the threads of a pool are not there. So both are made anew in the child. An
array library with threads of its own is told by its backend to do without them there, where it cannot make them anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tape_core.base.contexts import Leaving

_LOCKS: WeakSet[Lock] = WeakSet()
_FORGETTING: list[Callable[[], object]] = []


class Lock:
    """A reentrant lock that, in a forked child, nobody holds but the thread that forked.

    >>> lock = Lock()
    >>> with lock.now, lock.now:
    ...     pass

    Attributes:
        now: the lock. It is entered itself, and not through this object, since an interrupt could come between the
            steps of a method.
    """

    __slots__ = ("__weakref__", "now")

    def __init__(self) -> None:
        self.now = RLock()
        _LOCKS.add(self)

    def held(self) -> Holding:
        """Return a context in which the thread holds the lock; afterwards it does not, wherever an interrupt comes."""
        return Holding(self.now)

    def _renew(self) -> None:
        if self.now.acquire(blocking=False):  # it is free, or held by the thread that forked, which will release it
            self.now.release()
        else:
            self.now = RLock()


class Holding:
    """A context in which a lock is held; it is released also if an interrupt comes while it is entered or left."""

    __slots__ = ("_guard", "_lock", "_mine")

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._guard: Any = None
        self._mine = False

    def __enter__(self) -> None:
        self._mine = not self._lock._is_owned()  # else it is held by a block around this one
        if self._mine:  # set before: an interrupt right after `acquire` finds that the lock is this block's to release
            self._lock.acquire()

    def _leave(self, *_: object) -> None:
        self._abandon()
        self._guard = None

    def _abandon(self) -> None:
        if self._mine and self._lock._is_owned():
            self._lock.release()
        self._mine = False

    if TYPE_CHECKING:

        def __exit__(self, *_: object) -> None: ...

    else:
        __exit__ = Leaving(_leave, _abandon)


def forget_in_children(forget: Callable[[], object]) -> None:
    """Call `forget` in each forked child, before anything else of Tape runs there."""
    _FORGETTING.append(forget)


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock._renew()
    for forget in _FORGETTING:
        forget()


if hasattr(os, "register_at_fork"):  # not on Windows, where there is no fork
    os.register_at_fork(after_in_child=_after_fork)
