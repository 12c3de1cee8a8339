"""Recorders: what watches the ops of a context, and which of them are active here and now."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from operator import attrgetter
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from tape_core.base.ambient import ACTIVE, OBSERVERS
from tape_core.base.contexts import Leaving
from tape_core.base.user_code import is_ours
from tape_core.typing import Raw, Record, Records, Slot

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.base.dtypes import DType
    from tape_core.engine.cuts import Cuts
    from tape_core.engine.op import Op
    from tape_core.engine.tensor import Tensor
    from tape_core.engine.variable import Variable
    from tape_core.random import Generator


class Recorder:
    """A base class of what watches the ops that run in a context: tapes, accumulators of forward mode, and others.

    The call path of an op asks each recorder in `ACTIVE` for the slots of the inputs under its `_key`. If there is
    one, the result gets the slot `len(recorder._records)`, and the recorder is told of the record by `_on_op`. A tape
    keeps it: its `_on_op` is the bound `append` of its list, so that a call path pays for one call of a C function and
    no more. Any other recorder uses the record at once and may put what it likes in place of the slot; its `_records`
    are always empty.

    The verbs, all of them without an effect by default:

    ====================================  =========================================================================
    `_on_op(rec)`                         an op has run whose inputs the recorder knows; `record` has the layout
    `_before_op(op, backend, out, at)`    such a record follows, of an op or a dtype that may need more care
    `_on_read(variable)`                  a Variable was read that has no slot: return the slot if it has one now
    `_on_twin(tensor)`                    a Tensor gets a twin: return whether the twin has the slot as well
    `_on_leave(tensor, how)`              a method takes values out of Tape, such as `item()` or `stop_gradient`
    `_on_assigned(variable, ...)`         a Variable is given another value
    `_on_assign(variable)`                a Variable is about to be assigned: raise to refuse; see `OBSERVERS`
    `_on_draw(generator)`                 random numbers are about to be drawn; see `OBSERVERS`
    ====================================  =========================================================================

    They are private names since tapes and accumulators are classes of users.
    """

    __slots__ = ()

    _key: int
    """Names the recorder in the slots of Tensors."""

    _on_op: Callable[[Record], object]

    _records: Records | tuple[()] = ()
    """The records that a tape keeps. Their number is the next slot."""

    _forward: bool = False
    """True if records must have all inputs and the result, since they are used at once, as in forward mode."""

    _special: int = 0
    """The flags of `special_dtype` for all that was recorded; if any is set, records have specs of all inputs."""

    _cuts: Cuts | None = None
    """Notes on why values that the recorder knows lead nowhere, if anybody asks; see `tape_core.engine.cuts`."""

    _open: bool = True
    """True while the recorder is in its block."""

    def _before_op(self, op: Op, backend: Backend, out: Raw, at: Sequence[Slot] = ()) -> None:
        """Note what the fast backward pass does not handle: a record of this op, its result and input slots follows."""

    def _on_read(self, variable: Variable) -> Slot:
        """Return the slot that a Variable has from now on, or None."""

    def _watches(self, variable: Variable) -> bool:
        """Return whether a Variable would get a slot if it were read now."""
        return False

    def _on_twin(self, tensor: Tensor) -> bool:
        """Return whether a twin of a Tensor that the recorder knows is known as well."""
        return True

    def _on_leave(self, tensor: Tensor, how: str) -> None:
        """Note that a method, `how`, was called that gives the values of a Tensor without their derivative."""
        if self._cuts is not None:
            self._cuts.on_leave(self._key, tensor, how)

    def _on_assign(self, variable: Variable) -> None:
        """Raise if the Variable must not be assigned to here."""

    def _on_assigned(self, variable: Variable, array: Raw, method: str, given: object) -> None:
        """Note that a Variable gets another value: `array`, made of `given`, the argument of its `method`."""

    def _on_draw(self, generator: Generator) -> None:
        """Note that a generator is about to give random numbers."""


COMPLEX, NARROW = 1, 2
"""Flags of dtypes for which the fast backward pass is not enough: complex, and computed in float32 by the backend."""


def special_dtype(backend: Backend, dtype: DType) -> int:
    """Return the flag of a dtype, COMPLEX or NARROW, or 0 if the fast backward pass handles it."""
    return COMPLEX if dtype.kind == "complex floating" else NARROW if dtype in backend.narrow else 0


_get_active = ACTIVE.get  # globals, since CPython 3.11 calls methods of imported names more slowly
_set_active = ACTIVE.set

# No key is used twice: values keep the slots of recorders that are gone, and a new one must not take these for its own.
_keys = count()
LIVE: set[int] = set()
"""The keys in use. Other keys in the slots of Tensors are left over from recorders that are gone."""


def report_leave(tensor: Tensor, how: str, caller: FrameType) -> None:
    """Tell the recorders that a method, `how`, takes values out of Tape, unless Tape's own code has called it.

    Printing a Tensor, for one, reads its values and cuts no path of the user's.
    """
    if not is_ours(caller):
        for recorder in _get_active():
            recorder._on_leave(tensor, how)


def report_assigned(variable: Variable, array: Raw, method: str, given: object) -> None:
    """Tell the recorders that a Variable gets another value; see `Recorder._on_assigned`."""
    for recorder in _get_active():
        recorder._on_assigned(variable, array, method, given)


def check_assignable(variable: Variable) -> None:
    """Raise if a Variable must not be assigned to here."""
    if observers := OBSERVERS.get():
        bound = variable._bound()
        if bound is not None:  # a function may assign to values of its own as often as it runs
            observers = bound.observers()
        for observer in reversed(observers):  # the innermost function knows best
            observer._on_assign(variable)


def report_draw(generator: Generator) -> None:
    """Tell those who will run the function again that numbers are about to be drawn from a generator."""
    for observer in OBSERVERS.get():
        observer._on_draw(generator)


def new_key() -> int:
    """Return a new key, which names a recorder in the slots of Tensors."""
    key = next(_keys)
    LIVE.add(key)
    return key


def retire(key: int) -> None:
    """Note that the recorder of a key is gone."""
    LIVE.discard(key)


# From Python 3.14 on a new thread may copy the context of the one that starts it; free-threaded builds do so by
# default.
_THREADS_INHERIT = bool(getattr(sys.flags, "thread_inherit_context", False))


class RecordingError(RuntimeError, ValueError):
    """A tape was entered, left or stopped in the wrong order. (A ValueError too, as TensorFlow raises.)"""


def activate(tape: Recorder) -> None:
    """Let a recorder record.

    Accumulators come last: by the time that they compute the tangent of a result, the tapes know the result, and record
    what is computed with it.
    """
    if not _get_active():
        _set((tape,))
        return
    tapes = tuple(active_recorders())
    k = len(tapes)
    while k and tapes[k - 1]._forward and not tape._forward:
        k -= 1
    _set((*tapes[:k], tape, *tapes[k:]))


def recorders_around(accumulator: Recorder) -> tuple[Recorder, ...]:
    """Return the recorders of the tangents that an accumulator computes: all tapes, and the accumulators around it."""
    tapes = tuple(_get_active())
    return tapes[: tapes.index(accumulator)]


def deactivate(tape: Recorder) -> None:
    """Stop a recorder, wherever it stands: tapes may be left in any order, and an exception leaves none behind."""
    tapes = _get_active()
    # The common case: what was entered last is left first.
    if tapes and tapes[-1] is tape:
        rest = tapes[:-1]
        if rest:
            _set(rest)
        else:
            # An empty tuple needs no owner: nobody finds a recorder in it.
            _set_active(rest)
    else:
        _set(tuple([other for other in tapes if other is not tape]))


class InBlock(Recorder):
    """A base class of recorders that record in a `with` block, and are in it once at a time.

    Instances have the attributes `_open`, whether they are in their block, and `_guard`: see :class:`Leaving`.
    """

    __slots__ = ("_guard", "_open")
    _kind = "Tape"
    """The word for it in errors."""
    _open: bool
    _guard: Any

    def _on_stop(self) -> None:
        """Do what else is to be done when the block is left."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled, which `copy` asks here, too: values know a recorder by its key.

        Raises:
            TypeError: always.
        """
        name = type(self).__name__
        raise TypeError(
            f"{name}: it cannot be copied or pickled: what it knows belongs to the Tensors of this process. Make a new "
            f"{name}, or pickle the gradients"
        )

    def _leave(self, *_: object) -> None:
        """Leave the block.

        Raises:
            RuntimeError: it is in no block.
        """
        if not self._open:
            raise RecordingError(f"{self._kind} is not recording.")
        deactivate(self)
        self._on_stop()
        self._open = False
        self._guard = None

    def _abandon(self) -> None:
        if self._open:
            self._leave()

    if TYPE_CHECKING:

        def __exit__(self, *_: object) -> None: ...

    else:
        __exit__ = Leaving(_leave, _abandon, attrgetter("_open"))


def active_recorders() -> tuple[Recorder, ...]:
    """Return the active recorders without those that were left in another thread, where a generator ended."""
    tapes = _get_active()
    # A thread can set the variable of its own context only: here the recorder that it has closed is still listed.
    if tapes and not all([tape._open for tape in tapes]):
        _set(tuple([tape for tape in tapes if tape._open]))
    return _get_active()


def is_active(tape: Recorder) -> bool:
    """Return whether a recorder is active here."""
    tapes = _get_active()
    return bool(tapes) and tape in tapes


def _set(tapes: tuple[Recorder, ...]) -> None:
    owner = _owner() if tapes else None
    _set_active(tapes if owner is None else _Owned(tapes, owner))


class _Owned(tuple):  # type: ignore[type-arg]
    """Recorders entered where contexts are inherited: in asyncio tasks, and in threads of free-threaded Python.

    A task copies the context that it is created in, and with it the recorders, which it must not see. So they show
    themselves to their owner only. Elsewhere a plain tuple does, and the hot path pays nothing.
    """

    def __new__(cls, tapes: tuple[Recorder, ...], owner: object) -> _Owned:
        self = super().__new__(cls, tapes)
        self.owner = owner
        return self

    owner: Any

    # The hot path asks `if active`, or iterates: for everybody but the owner there is nothing here.
    def __bool__(self) -> bool:
        return bool(self.owner == _owner())

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self else iter(())


def _owner() -> Any:
    """Return (thread, asyncio task) where a ContextVar alone does not tell who is running, else None."""
    thread = threading.get_ident() if _THREADS_INHERIT else None
    # As long as nobody has imported asyncio no task runs, and importing it takes longer than a small program.
    asyncio = sys.modules.get("asyncio")
    # `asyncio.get_running_loop` would raise where no loop runs, as in most calls; this one returns None.
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return thread, asyncio.current_task()
    return (thread, None) if _THREADS_INHERIT else None
