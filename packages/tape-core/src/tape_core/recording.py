"""Which tapes record here and now."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tape_core.tape import GradientTape

ACTIVE: ContextVar[tuple[GradientTape, ...]] = ContextVar("tape_core.active", default=())
"""The tapes that record in this context, in the order they were entered."""


_THREADS_INHERIT = bool(getattr(sys.flags, "thread_inherit_context", False))


def activate(tape: GradientTape) -> None:
    """Let `tape` record."""
    _set((*ACTIVE.get(), tape))


def deactivate(tape: GradientTape) -> None:
    """Stop `tape`, wherever it stands: tapes may be left in any order, and an exception leaves none behind."""
    tapes = ACTIVE.get()
    if tapes and tapes[-1] is tape:
        _set(tapes[:-1])
    else:
        _set(tuple([other for other in tapes if other is not tape]))


def is_active(tape: GradientTape) -> bool:
    """Whether `tape` records here."""
    tapes = ACTIVE.get()
    return bool(tapes) and tape in tapes


def _set(tapes: tuple[GradientTape, ...]) -> None:
    owner = _owner() if tapes else None
    ACTIVE.set(tapes if owner is None else _Owned(tapes, owner))


class _Owned(tuple):  # type: ignore[type-arg]
    """Tapes entered where contexts are inherited: by asyncio tasks, and by threads of free-threaded Python.

    A task copies the context it is created in, and with it the tapes; it must not see them. So those tapes show
    themselves to their owner only. Elsewhere a plain tuple does, and the hot path pays nothing.
    """

    def __new__(cls, tapes: tuple[GradientTape, ...], owner: Any) -> _Owned:
        self = super().__new__(cls, tapes)
        self.owner = owner
        return self

    owner: Any

    def __bool__(self) -> bool:
        return bool(self.owner == _owner())

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self else iter(())


def _owner() -> Any:
    """Who runs, where a ContextVar alone does not tell: (thread, asyncio task), else None."""
    thread = threading.get_ident() if _THREADS_INHERIT else None
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return thread, asyncio.current_task()
    return (thread, None) if _THREADS_INHERIT else None
