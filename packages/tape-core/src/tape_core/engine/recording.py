"""Which tapes record here and now."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import count
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from tape_core.base.contexts import Leaving

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.base.dtypes import DType
    from tape_core.engine.variable import Variable


class Recorder(Protocol):
    """What the hot path asks of tapes and accumulators. `tape_core.engine.rules` has the layout of a record."""

    _key: int
    """Names it in the slots of tensors."""
    _sparse: bool
    _masked: bool
    """What its records met that the fast backward pass does not handle."""

    @property
    def _met(self) -> int:
        """Likewise, of dtypes: COMPLEX, NARROW or both; then records say what shapes and dtypes were."""

    @property
    def _forward(self) -> bool:
        """Whether records must have all inputs and the result: they are used at once."""

    @property
    def _records(self) -> Any:
        """Where records are appended, each at the slot that is its length before."""

    _on_twin: Any
    """None, or what is called with a Tensor of which a twin is made; then the twin does not get its slot."""

    @property
    def _cuts(self) -> Any:
        """What is told of values that end, or None; see `tape_core.engine.cuts`."""

    def _on_read(self, variable: Variable) -> Any:
        """A variable without a slot was read: its slot, if it has one now."""

    def _watches(self, variable: Variable) -> bool:
        """Whether a variable would have a slot if it were read now."""

    def _meet(self, op: Any, backend: Any, out: Any) -> None:
        """A record of this op and result follows."""


COMPLEX, NARROW = 1, 2
"""What `Recorder._met` consists of: complex dtypes, and those with which the backend computes in float32."""


def met(backend: Backend, dtype: DType) -> int:
    """What a tape meets in a value of this dtype: COMPLEX, NARROW, or 0 for all that the fast backward pass handles."""
    return COMPLEX if dtype.kind == "complex floating" else NARROW if dtype in backend.narrow else 0


ACTIVE: ContextVar[tuple[Recorder, ...]] = ContextVar("tape_core.active", default=())
"""The tapes that record in this context, in the order they were entered."""


LISTENERS: list[Any] = []
"""What debugging tapes have here while they record, one for all of them; see `tape_core.debugging.journal`."""

ASSIGNING: ContextVar[Any] = ContextVar("tape_core.assigning", default=None)
"""What is called with a Variable that is about to be assigned, in a function that is run again for its derivative."""

_keys = count()
LIVE: set[int] = set()
"""The keys in use. Other keys in the slots of tensors are of tapes that are gone."""


def new_key() -> int:
    """What names a recorder in the slots of tensors."""
    key = next(_keys)
    LIVE.add(key)
    return key


def retire(key: int) -> None:
    """Its recorder is gone."""
    LIVE.discard(key)


_THREADS_INHERIT = bool(getattr(sys.flags, "thread_inherit_context", False))


class RecordingError(RuntimeError, ValueError):
    """A tape was entered, left or stopped in the wrong order. (A ValueError too, as TensorFlow raises.)"""


def not_copied(recorder: Any) -> TypeError:
    """The error of what cannot be copied or pickled."""
    name = type(recorder).__name__
    return TypeError(
        f"{name}: it cannot be copied or pickled: what it knows belongs to the Tensors of this process. Make a new "
        f"{name}, or pickle the gradients"
    )


def activate(tape: Recorder) -> None:
    """Let `tape` record.

    Accumulators come last: what they compute with a result is recorded by tapes that know the result by then.
    """
    if not ACTIVE.get():
        _set((tape,))
        return
    tapes = tuple(in_blocks())
    k = len(tapes)
    while k and tapes[k - 1]._forward and not tape._forward:
        k -= 1
    _set((*tapes[:k], tape, *tapes[k:]))


def without(accumulator: Recorder) -> tuple[Recorder, ...]:
    """What records the tangents that an accumulator computes: all tapes, and the accumulators around it."""
    tapes = tuple(ACTIVE.get())
    return tapes[: tapes.index(accumulator)]


def deactivate(tape: Recorder) -> None:
    """Stop `tape`, wherever it stands: tapes may be left in any order, and an exception leaves none behind."""
    tapes = ACTIVE.get()
    if tapes and tapes[-1] is tape:
        rest = tapes[:-1]
        if rest:
            _set(rest)
        else:
            ACTIVE.set(rest)
    else:
        _set(tuple([other for other in tapes if other is not tape]))


class InBlock:
    """A base class of what records in a `with` block, and is in it once at a time.

    Instances have the attributes `_open`, whether they are in their block, and `_guard`: see :class:`Leaving`.
    """

    __slots__ = ("_guard", "_open")
    _kind = "Tape"
    """What errors call it."""
    _open: bool
    _guard: Any

    def _stopped(self) -> None:
        """What else is to be done when the block is left."""

    def _leave(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Record no longer.

        Raises:
            RuntimeError: it is in no block.
        """
        if not self._open:
            raise RecordingError(f"{self._kind} is not recording.")
        deactivate(self)  # type: ignore[arg-type]
        self._stopped()
        self._open = False
        self._guard = None

    def _abandon(self) -> None:
        if self._open:
            self._leave()

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __exit__ = Leaving(_leave, _abandon, attrgetter("_open"))


def in_blocks() -> tuple[Recorder, ...]:
    """The tapes that record here. One that was left in another thread, as by a generator that ended there, is not."""
    tapes = ACTIVE.get()
    if tapes and not all([getattr(tape, "_open", True) for tape in tapes]):
        _set(tuple([tape for tape in tapes if getattr(tape, "_open", True)]))
    return ACTIVE.get()


def is_active(tape: Recorder) -> bool:
    """Whether `tape` records here."""
    tapes = ACTIVE.get()
    return bool(tapes) and tape in tapes


def _set(tapes: tuple[Recorder, ...]) -> None:
    owner = _owner() if tapes else None
    ACTIVE.set(tapes if owner is None else _Owned(tapes, owner))


class _Owned(tuple):  # type: ignore[type-arg]
    """Tapes entered where contexts are inherited: by asyncio tasks, and by threads of free-threaded Python.

    A task copies the context it is created in, and with it the tapes; it must not see them. So those tapes show
    themselves to their owner only. Elsewhere a plain tuple does, and the hot path pays nothing.
    """

    def __new__(cls, tapes: tuple[Recorder, ...], owner: Any) -> _Owned:
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
