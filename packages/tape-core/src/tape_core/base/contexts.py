"""Contexts that are left whatever happens, also where Ctrl-C comes while one is entered or left.

An interrupt is an exception between two instructions, in `__enter__` after what it has done, or in `__exit__` before it
does anything. So the `with` statement itself guards the block: it holds what it will call at the end, and nothing else
does. When that goes, the block is over, and what `__exit__` has not done is done then.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial, wraps
from types import MethodType, TracebackType
from typing import Any, ParamSpec, TypeVar
from weakref import ref

P = ParamSpec("P")
T = TypeVar("T")


# Up to Python 3.13 the `with` statement holds the method while it runs. From 3.14 on it takes a method apart into
# function and instance before the call, so that the method goes with the block still to be left; a partial it keeps.
_bound: Callable[..., Any] = MethodType if sys.version_info < (3, 14) else partial


class Leaving:
    """An `__exit__` that runs in any case.

    Instances have an attribute `_guard`, at first None. `leave` sets it to None as the last thing it does.

    Args:
        leave: leaves the block; a function of the instance and the three arguments of `__exit__`.
        abandon: leaves the block if `leave` was interrupted, or the block was not entered: it may be called when there
            is nothing to do.
        entered: returns whether the instance is in its block already: then a look-up of `__exit__` does not begin one.
    """

    __slots__ = ("entered", "leave", "over")

    def __init__(
        self,
        leave: Callable[..., Any],
        abandon: Callable[[Any], Any],
        entered: Callable[[Any], bool] | None = None,
    ) -> None:
        self.leave = leave
        self.entered = entered

        def over(instance: Any, guard: object) -> None:
            if instance._guard is guard:
                instance._guard = None
                abandon(instance)

        self.over = over

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        # The `with` statement looks up `__exit__` before it calls `__enter__`, and holds the bound method until the
        # block is over. The weak reference notices when that method goes, called or not, as after an interrupt.
        if instance is None:
            return self.leave
        leaving = _bound(self.leave, instance)
        if instance._guard is None and ((entered := self.entered) is None or not entered(instance)):
            instance._guard = ref(leaving, MethodType(self.over, instance))
        return leaving


class _Block(contextlib._GeneratorContextManager):  # type: ignore[type-arg]
    """The context of a generator, which is closed if its block is not left."""

    _guard: Any = None

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        suppressed = super().__exit__(kind, error, trace)
        self._guard = None
        return suppressed

    def _abandon(self) -> None:
        self.gen.close()

    __exit__ = Leaving(_leave, _abandon)


def contextmanager(function: Callable[P, Iterator[T]]) -> Callable[P, contextlib.AbstractContextManager[T]]:
    """Make a context of a generator, as `contextlib.contextmanager` does; its `finally` runs whatever interrupts it."""

    @wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> contextlib.AbstractContextManager[T]:
        return _Block(function, args, kwargs)  # type: ignore[arg-type]

    return make


class setting:
    """A context in which context variables have other values.

    >>> level = ContextVar("level", default=0)
    >>> with setting(level, 1):
    ...     level.get()
    1
    >>> level.get()
    0
    """

    __slots__ = ("_before", "_entered", "_guard", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: object) -> None:
        self._variable = variable
        self._value = value
        self._guard: Any = None
        self._before = variable.get()
        self._entered = False

    def __enter__(self) -> None:
        self._entered = True
        self._variable.set(self._value)

    def _leave(self, *_: object) -> None:
        self._variable.set(self._before)
        self._guard = None

    def _abandon(self) -> None:
        # A traceback may hold the guard of a block that was not entered until those around it are over: then the value
        # is not this block's to change.
        if self._entered:
            self._leave()

    __exit__ = Leaving(_leave, _abandon)
