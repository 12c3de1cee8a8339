"""Changes of Tensors in place, by `x += y` and `x[key] = y`, as functions that run again or are traced once must know.

A branch, a step of a loop or a checkpoint runs again for its derivative: it must find the Tensors around it as they
were, whatever was done to them since. And it must not change them itself, since it would do so again, or a step that is
traced once would do it once. What it makes itself it may change: that is gone when it has returned, but for results.

So former values are kept of Tensors that are changed while there is a `Moment`, which somebody may go back to. A
Tensor is known by a weak reference: one that nobody has any more is of no concern.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from threading import get_ident
from typing import Any, NamedTuple
from weakref import WeakSet, ref

from tape_core.base.contexts import contextmanager
from tape_core.base.user_code import user_frame
from tape_core.engine.tensor import Tensor, alias

_clock = count()
_moments: WeakSet[Moment] = WeakSet()
_latest = 0  # the time of the moment that was made last


class _Change(NamedTuple):
    time: int
    """When it was made."""
    former: tuple[Any, Any, Any]
    """The array, the slots and the backend before it."""
    thread: int
    """Who made it."""
    place: str
    """The file and the line, for messages."""


class _History:
    """The changes of a Tensor, of those after each moment the first at least."""

    __slots__ = ("changes", "last", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        key = id(tensor)
        self.tensor = ref(tensor, lambda gone: _forget(key, gone))
        self.changes: list[_Change] = []
        self.last = -1

    def since(self, time: int) -> _Change | None:
        """Return the first change after a time."""
        return next((change for change in self.changes if change.time > time), None)


_histories: dict[int, _History] = {}  # by the id of the Tensor


def _forget(key: int, gone: Any) -> None:
    found = _histories.get(key)
    if found is not None and found.tensor is gone:
        del _histories[key]


def on_change(tensor: Tensor) -> None:
    """Note that a Tensor is about to be changed in place."""
    if not _moments:
        if _histories:
            _histories.clear()
        return
    found = _histories.get(id(tensor))
    if found is None or found.tensor() is not tensor:
        found = _histories[id(tensor)] = _History(tensor)
    time = next(_clock)
    # A value that was there at no moment is of no use to anybody.
    if found.last < _latest:
        frame = user_frame()
        place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        found.changes.append(_Change(time, (tensor._array, tensor._slots, tensor.backend), get_ident(), place))
    found.last = time


class Moment:
    """A moment in a program, to which Tensors that are changed in place later can be set back."""

    __slots__ = ("__weakref__", "_time")

    def __init__(self) -> None:
        global _latest
        self._time = _latest = next(_clock)
        _moments.add(self)

    def _changed(self) -> list[tuple[Tensor, _Change]]:
        found = []
        for history in list(_histories.values()):
            change = history.since(self._time) if history.last > self._time else None
            if change is not None and (tensor := history.tensor()) is not None:
                found.append((tensor, change))
        return found

    @contextmanager
    def restored(self) -> Iterator[None]:
        """A context in which Tensors are what they were at this moment."""
        found = self._changed() if _histories else []
        now = [(tensor, (tensor._array, tensor._slots, tensor.backend)) for tensor, _ in found]
        try:
            for tensor, change in found:
                _set(tensor, change.former)
            yield
        finally:
            for tensor, value in now:
                _set(tensor, value)

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """A context that sets back what this thread has changed since, if an exception ends it."""
        try:
            yield
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Set back what this thread has changed since."""
        for tensor, change in self._changed() if _histories else ():
            if change.thread == get_ident():
                _set(tensor, change.former)

    def settled(
        self, outs: list[Tensor], refuse: Callable[[str], Exception], own: Sequence[Tensor] = ()
    ) -> list[Tensor]:
        """Return the results of a function that has run since, if it has changed nothing in place that others have.

        The results are other Tensors of the same values where it has changed any.

        Args:
            outs: the results. Nobody else may hold the list, which is emptied.
            refuse: makes the exception, of words that name the Tensor and the line.
            own: Tensors that it may change.
        """
        if not _histories:
            return outs
        mine = {id(tensor) for tensor in own}

        def is_of_others(tensor: Tensor) -> bool:
            return id(tensor) not in mine

        if not self._survivors(is_of_others):
            return outs
        found = [alias(out) if type(out) is Tensor and id(out) not in mine else out for out in outs]
        outs.clear()
        self.check(refuse, is_of_others)
        return found

    def check(self, refuse: Callable[[str], Exception], concerns: Callable[[Tensor], bool]) -> None:
        """Raise if there are Tensors of concern that this thread has changed since; all are set back then.

        Args:
            refuse: makes the exception, of words that name a Tensor and the line.
            concerns: says of which Tensors that is.
        """
        if not _histories:
            return
        # Closures that refer to each other hold what they have made until it is collected: what is young, quickly.
        for generation in (0, 2):
            if not self._survivors(concerns):
                return
            gc.collect(generation)
        if survivors := self._survivors(concerns):
            shape, place = survivors[0]
            self.undo()
            raise refuse(f"changes a Tensor of shape {shape} from around it, in {place}")

    def _survivors(self, concerns: Callable[[Tensor], bool]) -> list[tuple[tuple[int, ...], str]]:
        return [
            (tensor.shape, change.place)
            for tensor, change in self._changed()
            if change.thread == get_ident() and concerns(tensor)
        ]


def _set(tensor: Tensor, value: tuple[Any, Any, Any]) -> None:
    tensor._array, tensor._slots, tensor.backend = value
