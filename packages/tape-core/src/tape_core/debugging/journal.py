"""What a debugging tape knows beyond its records: every call of an op in its block, also those it did not record.

While such a tape is in its block, anywhere in the process, kernels are bound to ops through `Kernel`, which tells the
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
from tape_core.engine.op import BOUND
from tape_core.engine.plan import Part
from tape_core.engine.record import PLAN
from tape_core.engine.recording import ACTIVE, LISTENERS
from tape_core.engine.tensor import SCALARS, Tensor

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Op
    from tape_core.engine.variable import Variable

_MAX_SCOPES = 50  # frames of the user's that are noted of one call


class Trace:
    """What one debugging tape was told."""

    def __init__(self, *, check_numerics: bool) -> None:
        self.check_numerics = check_numerics
        self.now = self.past = Generation()
        self.key = -1
        self.pending: Call | None = None  # the call whose records come next
        self.depth = 0  # of kernels that call other ops, as those inside vmap do
        self._listener: _Listening | None = None
        self._root: FrameType | None = None
        self._stack: list[tuple[FrameType, Scope]] = []

    # -- what the tape says

    def begin(self, key: int) -> list[Any]:
        """A new key, and so a new list of records."""
        self.past, self.now, self.key = self.now, Generation(), key
        return _Records(self)

    def start(self) -> None:
        """The block of the tape is entered, or goes on."""
        if self._listener is None:
            self._root = _block()
            self._listener = _Listening(self)
            install(self._listener)
            recording.activate(self._listener)

    def stop(self) -> None:
        """The block is left."""
        if self._listener is not None:
            recording.deactivate(self._listener)
            uninstall(self._listener)
            self._listener, self._root, self._stack = None, None, []

    # -- what kernels say

    def called(
        self, op: Op, backend: Backend, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, seconds: float
    ) -> Call:
        """An op has computed `out`."""
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
        self._finish(call, outs)
        return call

    def _finish(self, call: Call, outs: Sequence[Any]) -> None:
        now = self.now
        call.paused = not any([recorder._key == self.key for recorder in ACTIVE.get()])
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

    def left(self, tensor: Tensor, how: str) -> None:
        """A value went where no tape sees it."""
        if _told_by_us():
            return
        place, _ = self._where()
        self.now.events.append(Event(how, self.now.number(tensor._array), len(self.now.calls), place))

    def assigned(self, variable: Variable, array: Any, method: str, given: Any) -> None:
        """A variable gets a new value."""
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
        call.place, call.scope = self._where()
        call.paused = False
        now.producers[new] = call
        now.calls.append(call)

    def appended(self, rec: Any) -> Any:
        """A record is to be kept: it comes back with a plan that says how long it takes."""
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
        """The user's line that runs, and the innermost function of the user's, or layer, inside the tape's block."""
        place: Place | None = None
        frames: list[FrameType] = []
        frame: FrameType | None = sys._getframe(2)
        passed = False  # the frame of the block
        while frame is not None and (place is None or not (passed or len(frames) == _MAX_SCOPES)):
            ours = is_ours(frame)
            if place is None and (not ours or frame.f_back is None):
                place = device_of(frame)
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


def device_of(frame: FrameType) -> Place:
    """Where a frame is."""
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def _block() -> FrameType:
    """The frame whose block is entered: the user's, or a layer's."""
    frame = sys._getframe(2)
    while frame.f_back is not None and is_ours(frame) and not is_layer(frame):
        frame = frame.f_back
    return frame


def _has_name(frame: FrameType) -> bool:
    name = frame.f_code.co_name
    return not name.startswith("<") or name == "<lambda>"  # not a comprehension, nor a module


def _scope_name(frame: FrameType) -> str:
    return frame.f_code.co_qualname.rpartition("<locals>.")[2]


def _told_by_us() -> bool:
    """Whether the method of a Tensor was called by Tape's own code, as by printing."""
    return is_ours(sys._getframe(4))  # this function, Trace.left, _Switch.left, the method: its caller


def _arrays(values: Iterable[Any]) -> list[Any]:
    """The arrays among parameters."""
    found: list[Any] = []
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
            found.append(value)
        elif type(value) in (tuple, list):
            found.extend(_arrays(value))
    return found


# -- where the tape listens


class _Records(list[Any]):
    """The records of a debugging tape."""

    __slots__ = ("trace",)

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def append(self, rec: Any) -> None:
        """Keep a record, and note what it came from."""
        super().append(self.trace.appended(rec))


class _Listening:
    """Stands among the tapes that record, while the block of a debugging tape runs; it gives nothing a slot.

    The tape itself is not there inside `stop_recording`.
    """

    __slots__ = ("_key", "_masked", "_records", "_sparse", "trace")

    _forward = False
    _on_twin = None
    _met = 0
    _cuts = None

    def __init__(self, trace: Trace) -> None:
        self._key = -1
        self._records: list[Any] = []
        self._masked = self._sparse = False
        self.trace = trace

    def _watches(self, variable: Variable) -> bool:
        return False

    def _on_read(self, variable: Variable) -> None:
        """It watches nothing."""

    def _meet(self, op: Op, backend: Backend, out: Any) -> None:
        """It records nothing."""


def _traces() -> list[Trace]:
    """The debugging tapes of this context."""
    return [recorder.trace for recorder in ACTIVE.get() if type(recorder) is _Listening]


class Kernel:
    """The kernel of an op, which tells the debugging tapes what it was called with and what it gave."""

    __slots__ = ("backend", "keeps", "kernel", "op")

    def __init__(self, op: Op, backend: Backend, kernel: Callable[..., Any], *, keeps: bool) -> None:
        self.op = op
        self.backend = backend
        self.kernel = kernel
        self.keeps = keeps

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traces = _traces()
        if not traces:
            return self.kernel(*args, **kwargs)
        checked = [trace for trace in traces if trace.check_numerics and not trace.depth]
        for trace in traces:
            trace.depth += 1
        try:
            with self.backend.quiet() if checked else nullcontext():
                start = perf_counter()
                result = self.kernel(*args, **kwargs)
                seconds = perf_counter() - start
        finally:
            for trace in traces:
                trace.depth -= 1
        out = result[0] if self.keeps else result
        if type(out) in SCALARS:
            out = result = self.backend.asarray(out)
        for trace in traces:
            call = trace.called(self.op, self.backend, args, kwargs, out, seconds)
            if trace in checked and not call.paused:
                check_forward(call, self.backend, args, out)
        return result


class _Switch:
    """Puts such kernels in place while any debugging tape is in its block, and hears what methods of Tensors say."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users: list[_Listening] = []

    def listen(self, op: Op, backend: Backend) -> None:
        """Bind an op's kernels through `Kernel`."""
        if (bound := op.bindings.get(backend)) is not None and type(bound[0]) is not Kernel:
            kernel, plans = bound
            if plans.keeping is not None:
                plans.keeping = Kernel(op, backend, plans.keeping, keeps=True)
            op.bindings[backend] = Kernel(op, backend, kernel, keeps=False), plans

    def unlisten(self, op: Op, backend: Backend) -> None:
        """Bind them as they were."""
        bound = op.bindings.get(backend)
        if bound is not None and type(bound[0]) is Kernel:
            plans = bound[1]
            if type(plans.keeping) is Kernel:
                plans.keeping = plans.keeping.kernel
            op.bindings[backend] = bound[0].kernel, plans

    def left(self, tensor: Tensor, how: str) -> None:
        """A value went where no tape sees it."""
        for trace in _traces():
            trace.left(tensor, how)

    def assigned(self, variable: Variable, array: Any, method: str, given: Any) -> None:
        """A variable gets a new value."""
        for trace in _traces():
            trace.assigned(variable, array, method, given)


_switch = _Switch()


def install(listener: _Listening) -> None:
    """One more debugging tape is in its block."""
    with _switch.lock.now:
        _switch.users.append(listener)
        _turn()


def uninstall(listener: _Listening) -> None:
    """One less."""
    with _switch.lock.now:
        _switch.users[:] = [user for user in _switch.users if user is not listener]
        _turn()


def _turn() -> None:
    """Bind kernels as the tapes need them that are in their blocks."""
    if _switch.users:
        LISTENERS[:] = [_switch]
        for op, backend in BOUND:
            _switch.listen(op, backend)
    else:
        LISTENERS.clear()
        for op, backend in BOUND:
            _switch.unlisten(op, backend)


def _forget_other_threads() -> None:
    """In a forked child: the tapes of other threads are in no block any more."""
    here = ACTIVE.get()
    for user in [user for user in _switch.users if not any([user is recorder for recorder in here])]:
        uninstall(user)


forget_in_children(_forget_other_threads)


def check_unchanged(plan: Any, entry: Entry, rec: tuple[Any, ...]) -> None:
    """Before a backward pass: the arrays that were given are as they were.

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
    """Stands where a plan does in the records of a debugging tape: measures backward passes, and looks for NaN."""

    __slots__ = ("entry", "n", "plan", "trace")

    def __init__(self, plan: Any, entry: Entry, trace: Trace) -> None:
        self.plan = plan
        self.n = plan.n
        self.entry = entry
        self.trace = trace

    @property
    def op(self) -> Op:
        """The plan's."""
        return self.plan.op  # type: ignore[no-any-return]

    @property
    def backend(self) -> Backend:
        """The plan's."""
        return self.plan.backend  # type: ignore[no-any-return]

    @property
    def recorded(self) -> NotedPlan:
        """As of the plan."""
        return NotedPlan(self.plan.recorded, self.entry, self.trace)

    def toward(self, rec: tuple[Any, ...], wanted: bytearray) -> NotedPlan:
        """As of the plan."""
        return NotedPlan(self.plan.toward(rec, wanted), self.entry, self.trace)

    def backward(self, g: Any, rec: tuple[Any, ...], grads: list[Any], *rest: Any) -> None:
        """As of the plan."""
        self._noted(self.plan.backward, g, rec, grads, rest)

    def backward_reusing(self, g: Any, rec: tuple[Any, ...], grads: list[Any], xp: Any, backend: Backend) -> None:
        """The plan's `backward`: a cotangent that is looked at must not be overwritten."""
        self._noted(self.plan.backward, g, rec, grads, (xp,))

    def backward_careful(self, g: Any, rec: tuple[Any, ...], grads: list[Any], *rest: Any) -> None:
        """As of the plan."""
        self._noted(self.plan.backward_careful, g, rec, grads, rest)

    def _noted(
        self, backward: Callable[..., Any], g: Any, rec: tuple[Any, ...], grads: list[Any], rest: tuple[Any, ...]
    ) -> None:
        check_unchanged(self.plan, self.entry, rec)
        before = {i: grads[i] for i in self.entry.inputs} if self.trace.check_numerics else {}
        start = perf_counter()
        backward(g, rec, grads, *rest)
        self.entry.backward += perf_counter() - start
        if self.trace.check_numerics:
            check_backward(self.plan, self.entry, g, rec, before, grads)
