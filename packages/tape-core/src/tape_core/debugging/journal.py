"""The journal of a debugging tape: every call of an op in its block, also those that it did not record.

While such a tape is in its block, anywhere in the process, kernels are intercepted by `NotedKernel`, which tells the
debugging tapes of the calling context; afterwards the bindings are as before. So the call paths of ops know nothing of
it, and a program without such a tape pays nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from textwrap import indent
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE
from tape_core.base.forking import Lock, forget_in_children
from tape_core.base.user_code import is_layer, is_ours
from tape_core.debugging.notes import (
    Call,
    Entry,
    Event,
    Generation,
    Place,
    Scope,
    arrays_in,
    checksum,
    named_arrays,
    slots_in,
)
from tape_core.debugging.numerics import check_backward, check_forward
from tape_core.engine import record, recording
from tape_core.engine.op import Kernels, intercept_all, release_all
from tape_core.engine.plan import Part
from tape_core.engine.promotion import is_discarded
from tape_core.engine.record import PLAN
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.typing import Cotangent, Namespace, Raw, Record, Records

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Op
    from tape_core.engine.variable import Variable

_MAX_SCOPES = 50  # of the user's functions on the stack that are noted of one call


class Journal:
    """The calls, values, lines and times that one debugging tape was told of."""

    def __init__(self, *, check_numerics: bool) -> None:
        self.check_numerics = check_numerics
        self.now = self.past = Generation()
        self.key = -1
        self.pending: Call | None = None  # the call whose records come next
        self.depth = 0  # of kernels that call other ops, as those inside vmap do
        self._recorder: _JournalRecorder | None = None
        self._root: FrameType | None = None
        self._stack: list[tuple[FrameType, Scope]] = []

    # -- told by the tape

    def begin(self, key: int, records: Records) -> Callable[[Record | None], None]:
        """Begin anew, for a new key of the tape and its new list of records: return the tape's `_on_op`."""
        self.past, self.now, self.key = self.now, Generation(), key

        def on_op(rec: Record | None) -> None:
            records.append(self._noted(rec))

        return on_op

    def start(self) -> None:
        """Begin to take notes: the block of the tape is entered, or goes on."""
        if self._recorder is None:
            self._root = _block()
            self._recorder = _JournalRecorder(self)
            _enter(self._recorder)
            recording.activate(self._recorder)

    def stop(self) -> None:
        """Take no more notes: the block is left."""
        if self._recorder is not None:
            recording.deactivate(self._recorder)
            _leave(self._recorder)
            self._recorder, self._root, self._stack = None, None, []

    # -- told by kernels and Tensors

    def on_call(
        self, op: Op, backend: Backend, args: tuple[Any, ...], kwargs: dict[str, Any], out: Raw, seconds: float
    ) -> Call:
        """Note that an op has computed `out`."""
        now, n = self.now, len(op.inputs)
        outs = out if type(out) in (tuple, list) else (out,)
        values = tuple(args[0]) if op.sequence else args[:n]
        call = Call()
        call.op, call.seconds = op, seconds
        call.name = getattr(kwargs.get("call"), "name", op.name)
        call.inputs = tuple([now.number(v) if hasattr(v, "shape") else None for v in values])
        call.extra = tuple([now.number(v) for v in _arrays((*args[1 if op.sequence else n :], *kwargs.values()))])
        now.given(backend, [v for v in values if hasattr(v, "shape")])
        now.given(backend, _arrays((*args[1 if op.sequence else n :], *kwargs.values())))
        call.bytes = sum([backend.nbytes(o) for o in outs])
        call.layouts = tuple([backend.place(o) for o in outs])
        self._finish(call, outs)
        return call

    def _finish(self, call: Call, outs: Sequence[Any]) -> None:
        now = self.now
        call.paused = not any([recorder._key == self.key for recorder in ACTIVE.get()])
        call.nested = self.depth > 0
        call.order = len(now.calls)
        call.place, call.scope = self._where()
        numbers = []
        for o in outs:
            known = now.known(o)
            if known in call.inputs and known is not None:
                numbers.append(known)  # the op gave what it was given
            else:
                numbers.append(now.number(o, new=True))
                now.producers[numbers[-1]] = call
        call.outputs = tuple(numbers)
        call.specs = tuple([now.specs[k] for k in numbers])
        now.calls.append(call)
        self.pending = call

    def on_leave(self, tensor: Tensor, how: str) -> None:
        """Note that a value goes where no tape sees it."""
        place, _ = self._where()
        self.now.events.append(Event(how, self.now.number(tensor._array), len(self.now.calls), place))

    def on_assigned(self, variable: Variable, array: Raw, method: str, given: object) -> None:
        """Note that a Variable gets a new value."""
        now = self.now
        old = now.number(variable._array)
        now.values.setdefault(id(variable), {old})
        call = Call()
        call.op, call.name, call.seconds, call.bytes = None, f"Variable.{method}", 0.0, 0
        if isinstance(given, Tensor):
            given_numbers = [now.number(given._array)]
        else:  # of a list of Tensors an array has been made
            known = now.known(array)
            given_numbers = [] if known is None or known == old else [known]
        call.inputs, call.extra = tuple(given_numbers if method == "assign" else [old, *given_numbers]), ()
        order = len(now.calls)
        now.values[id(variable)].add(new := now.number(array, new=True))
        call.outputs, call.specs, call.order = (new,), (now.specs[new],), order
        call.layouts = (variable.backend.place(array),)
        call.place, call.scope = self._where()
        call.paused = call.nested = False
        now.producers[new] = call
        now.calls.append(call)

    def _noted(self, rec: Record | None) -> Record | None:
        """Note a record that is to be kept, None for a leaf; return it with a plan that measures its backward pass."""
        now, order = self.now, len(self.now.calls)
        if rec is None:
            now.entries.append(entry := Entry(None, (), order))
            entry.place = self._where()[0]
            return rec
        plan = rec[PLAN]
        if type(plan) is Part:
            slot = record.slot(rec, 0)
            now.entries.append(entry := Entry(now.entries[slot].call, (slot,), order))
            entry.part = plan.k
            return rec
        now.entries.append(entry := Entry(self.pending, slots_in(rec), order))
        entry.kept = now.newly_kept(plan.backend, arrays_in(rec, plan))
        entry.shared = now.checksums(plan.backend, rec, plan)
        return record.with_plan(rec, NotedPlan(plan, entry, self))

    # -- the user's code

    def _where(self) -> tuple[Place, Scope | None]:
        """Return the user's line that runs, and the innermost function of the user's, or layer, inside the block."""
        place: Place | None = None
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(1)
        passed = False  # the frame of the block
        while frame is not None and (place is None or not (passed or len(frames) == _MAX_SCOPES)):
            ours = is_ours(frame)
            if place is None and (not ours or frame.f_back is None):
                place = place_of(frame)
            passed = passed or frame is self._root
            if (not ours or is_layer(frame)) and not passed and _has_name(frame):
                frames.append(frame)
            frame = frame.f_back
        assert place is not None
        frames.reverse()
        stack, same = self._stack, 0
        while same < min(len(stack), len(frames)) and stack[same][0] is frames[same]:
            same += 1
        del stack[same:]
        for one in frames[same:]:
            stack.append((one, Scope(_scope_name(one), stack[-1][1] if stack else None)))
        return place, stack[-1][1] if stack else None


def place_of(frame: FrameType) -> Place:
    """Return the line that a frame runs."""
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def _block() -> FrameType:
    """Return the frame whose block is entered: the user's, or a layer's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame) and not is_layer(frame):
        frame = frame.f_back
    return frame


def _has_name(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    return not name.startswith("<") or name == "<lambda>"  # not a comprehension, nor a module


def _scope_name(frame: FrameType) -> str:
    return frame.f_code.co_qualname.rpartition("<locals>.")[2]


def _arrays(values: Iterable[Any]) -> list[Any]:
    """Return the arrays among parameters."""
    found: list[Any] = []
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
            found.append(value)
        elif type(value) in (tuple, list):
            found.extend(_arrays(value))
    return found


# -- how the journal is told


class _JournalRecorder(recording.Recorder):
    """Tells a journal what happens in the block of its tape; it gives nothing a slot.

    It is a recorder beside the tape, which is not there inside `stop_recording`.
    """

    __slots__ = ("_key", "journal")

    def __init__(self, journal: Journal) -> None:
        self._key = -1
        self.journal = journal

    def _on_leave(self, tensor: Tensor, how: str) -> None:
        self.journal.on_leave(tensor, how)

    def _on_assigned(self, variable: Variable, array: Raw, method: str, given: object) -> None:
        self.journal.on_assigned(variable, array, method, given)


def _journals() -> list[Journal]:
    """Return the journals of the debugging tapes of this context."""
    return [recorder.journal for recorder in ACTIVE.get() if type(recorder) is _JournalRecorder]


class NotedKernel:
    """The kernel of an op, which tells the debugging tapes what it was called with and what it gave."""

    __slots__ = ("backend", "keeps", "kernel", "op")

    def __init__(self, op: Op, backend: Backend, kernel: Callable[..., Any], *, keeps: bool) -> None:
        self.op = op
        self.backend = backend
        self.kernel = kernel
        self.keeps = keeps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        journals = _journals()
        if not journals:
            return self.kernel(*args, **kwargs)
        checked = [journal for journal in journals if journal.check_numerics and not journal.depth]
        for journal in journals:
            journal.depth += 1
        try:
            with self.backend.quiet() if checked else nullcontext():
                start = perf_counter()
                result = self.kernel(*args, **kwargs)
                seconds = perf_counter() - start
        finally:
            for journal in journals:
                journal.depth -= 1
        out = result[0] if self.keeps else result
        if type(out) in SCALARS:
            out = result = self.backend.asarray(out)
        if is_discarded(self.op, self.backend, args[0] if self.op.sequence else args[: len(self.op.inputs)], out):
            return result  # the call is made again with operands of other dtypes, and that one counts
        for journal in journals:
            call = journal.on_call(self.op, self.backend, args, kwargs, out, seconds)
            if journal in checked and not call.paused:
                check_forward(call, self.backend, args, out)
        return result


def _noting(op: Op, backend: Backend, kernels: Kernels) -> Kernels:
    """Return kernels that tell the debugging tapes of their context of each call."""
    kernel, residual_kernel = kernels
    noted = None if residual_kernel is None else NotedKernel(op, backend, residual_kernel, keeps=True)
    return NotedKernel(op, backend, kernel, keeps=False), noted


_lock = Lock()
_in_blocks: list[_JournalRecorder] = []  # those of all threads


def _enter(recorder: _JournalRecorder) -> None:
    """Note that one more debugging tape is in its block: kernels tell of their calls from the first on."""
    with _lock.now:
        _in_blocks.append(recorder)
        intercept_all(_noting)


def _leave(recorder: _JournalRecorder) -> None:
    """Note that a debugging tape is in its block no longer: kernels are as before after the last."""
    with _lock.now:
        _in_blocks[:] = [other for other in _in_blocks if other is not recorder]
        if not _in_blocks:
            release_all(_noting)


def _forget_other_threads() -> None:
    """Drop the tapes of other threads, which are in no block in a forked child."""
    here = ACTIVE.get()
    for recorder in [recorder for recorder in _in_blocks if not any([recorder is other for other in here])]:
        _leave(recorder)


forget_in_children(_forget_other_threads)


def check_unchanged(plan: Any, entry: Entry, rec: Record) -> None:
    """Check, before a backward pass, that arrays of the user's have not been written to since.

    Raises:
        RuntimeError: one was written to, so that the derivative would be of other values than the result.
    """
    for k, (array, what) in enumerate(named_arrays(rec, plan) if entry.shared else ()):
        if k in entry.shared and checksum(plan.backend, array) != entry.shared[k]:
            shape, dtype = tuple(array.shape), str(array.dtype).rpartition(".")[2]
            call = entry.call
            raise RuntimeError(
                f"an array of shape {shape}, dtype {dtype}, that {plan.op.name if call is None else call.name} was "
                f"recorded with ({what}) has been written to since, so its derivative would be of other values than "
                f"its result\n{'' if call is None else indent(str(call.place), '  ')}\n"
                f"Arrays that are given are not copied: compute derivatives before writing to it, or give a copy, "
                f"tape_core.asarray(array, copy=True)"
            )


class NotedPlan:
    """A plan in the records of a debugging tape, around the op's: it measures backward passes, and looks for NaN."""

    __slots__ = ("entry", "journal", "n", "plan")

    def __init__(self, plan: Any, entry: Entry, journal: Journal) -> None:
        self.plan = plan
        self.n = plan.n
        self.entry = entry
        self.journal = journal

    @property
    def op(self) -> Op:
        """The op of the plan."""
        return self.plan.op  # type: ignore[no-any-return]

    @property
    def backend(self) -> Backend:
        """The backend of the plan."""
        return self.plan.backend  # type: ignore[no-any-return]

    @property
    def recorded(self) -> NotedPlan:
        """The plan for a sweep that is recorded."""
        return NotedPlan(self.plan.recorded, self.entry, self.journal)

    def toward(self, rec: Record, wanted: bytearray) -> NotedPlan:
        """Return the plan without the rules for inputs into which no wanted slot flows."""
        return NotedPlan(self.plan.toward(rec, wanted), self.entry, self.journal)

    def backward(self, g: Cotangent, rec: Record, grads: list[Cotangent], *rest: Any) -> None:
        """Run the plan's `backward`."""
        self._noted(self.plan.backward, g, rec, grads, rest)

    def backward_reusing(
        self, g: Cotangent, rec: Record, grads: list[Cotangent], xp: Namespace, backend: Backend
    ) -> None:
        """Run the plan's `backward`: a cotangent that is looked at must not be overwritten."""
        self._noted(self.plan.backward, g, rec, grads, (xp,))

    def backward_careful(self, g: Cotangent, rec: Record, grads: list[Cotangent], *rest: Any) -> None:
        """Run the plan's `backward_careful`."""
        self._noted(self.plan.backward_careful, g, rec, grads, rest)

    def _noted(
        self, backward: Callable[..., Any], g: Cotangent, rec: Record, grads: list[Cotangent], rest: tuple[Any, ...]
    ) -> None:
        check_unchanged(self.plan, self.entry, rec)
        before = {i: grads[i] for i in self.entry.inputs} if self.journal.check_numerics else {}
        start = perf_counter()
        backward(g, rec, grads, *rest)
        self.entry.backward += perf_counter() - start
        if self.journal.check_numerics:
            check_backward(self.plan, self.entry, g, rec, before, grads)
