"""Different programs in the processes: an error that says what each of them does, in place of a wait without end.

Tape's own collectives are compared the first time that a process calls them with such arrays, see `compare_first`.

Where a mesh is checked, each process tells the others by the store that all have met in what it is about to do, before
each collective, and waits for what they tell. It does so in PyTorch's dispatcher, which all collectives go through:
those of DTensors, of `torch.distributed` and of Tape. PyTorch's own check, `TORCH_DISTRIBUTED_DEBUG=DETAIL`, looks at
some of them, and not at those that gather and scatter DTensors (2.13).
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
import torch.distributed as dist
from tape_core import Variable
from tape_core.staging import UnrepeatableError
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tape_torch.divided import is_asked_for
from tape_torch.divided_names import name_of

VARIABLE: Final = "TAPE_CHECK_RANKS"
TIMEOUT: Final = 300.0
"""Seconds that a process waits for the others in a collective, where a mesh is checked and nothing else is said."""

_AT_ONCE: Final = 50  # how often to ask for the others without a pause: most come within a millisecond
_PAUSES: Final = (0.0005, 0.05)
"""Seconds between questions after that, and after half a second. Not the store's own wait, in which nobody else of this
process can use it, such as the signs of life of `watched`, and whose end is a warning."""

_SPACES: Final = ("c10d", "_c10d_functional", "_dtensor")
_OTHERS: Final = ("wait_tensor", "wrap_tensor", "send", "recv", "isend", "irecv", "batch_p2p", "monitored")
"""Beginnings of names in these namespaces that are no collectives."""

_NAMES: Final = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "allgather": "all_gather", "all_gather_into_tensor": "all_gather", "allgather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "all_to_all_single": "all_to_all", "alltoall": "all_to_all",
    "alltoall_base": "all_to_all", "shard_dim_alltoall": "all_to_all",
}  # fmt: skip
"""The names that users know of ops of PyTorch's dispatcher, without underscores at their ends."""

_FIRST: Final = {"allgather_": 1, "gather_": 1, "reduce_scatter_": 1, "alltoall_": 1, "_allgather_base_": 1}
"""Where the arrays are that a process gives, in ops that have the results before them."""

_NOT_REAL: Final = ("fake", "threaded")
"""PyTorch's groups of processes that are none."""

_CURE: Final = (
    "All processes must run the same program: call the same functions, in the same order, with arrays of the same "
    "shapes and dtypes. Look for what depends on the rank, or on data that only one process has, before these lines"
)

_CURE_OF_MANY: Final = (
    ". What is sent is to be of the same Variables in all processes, in the same order: look for layers that are "
    "called in another order, a Variable that is trainable in one process alone, gradients of others than "
    "model.trainable_variables, and orders of sets"
)

Call = str | list[str]
"""What a process is about to do, in the words of users; of many arrays in a list, with one after the other."""


class MismatchError(RuntimeError, UnrepeatableError):
    """The processes do not run the same program; :func:`tape_torch.distributed.mesh` says how it is compared."""


def is_wanted(checked: bool | None) -> bool:
    """Return whether a mesh is to be checked: as its argument says, or else the environment.

    Raises:
        ValueError: the environment variable is neither 0 nor 1.
    """
    if checked is not None:
        return bool(checked)
    return is_asked_for(VARIABLE)


def compare(timeout: float | None) -> None:
    """Have this process compare, from now on, what it is about to do with the others; all of them call this.

    It is for the collectives of the thread that calls it.

    Args:
        timeout: the seconds that a process waits for the others; by default as before, or five minutes.
    """
    if dist.get_world_size() == 1:
        return
    if not _comparing:
        _comparing.append(_Comparing(TIMEOUT))
        _comparing[0].__enter__()  # type: ignore[no-untyped-call]
        atexit.register(_end)
    if timeout is not None:
        _comparing[0].meetings.timeout = timeout


def compare_first(
    key: tuple[Any, ...], describe: Callable[[], Call], group_name: str, waits: Waits, *, always: bool = False
) -> None:
    """Compare a collective with those of the other processes of a group, the first time that this one calls such a one.

    Programs that are the same in all processes have the same first times. Where one process calls what it has called
    before and another one something new, the first waits in its collective, and the second here until its time is over:
    no bytes are taken for others. What both have called before is not compared.

    Args:
        key: what tells such calls from others.
        describe: returns it in the words of users.
        waits: from a group to how long its operations wait for other processes, or None.
        always: whether processes of a checked mesh compare this, too: it says more than the collective itself.

    Raises:
        MismatchError: the others call something else, have ended, or do not come.
    """
    _begin()
    if key in _first.known:
        return
    if always or not _comparing:  # which compares all
        _meet(describe, distributed_c10d._resolve_process_group(group_name), waits)  # type: ignore[arg-type,attr-defined]
    _first.known.add(key)


def meet(call: Call, group: Any, waits: Waits, cure: str | None = None) -> bool:
    """Compare what this process is about to do with the other processes of a group; return whether there are any.

    Raises:
        MismatchError: they are about to do something else, have ended, or do not come.
    """
    _begin()
    return _meet(lambda: call, group, waits, cure)


def is_checked() -> bool:
    """Return whether a mesh is checked."""
    return bool(_comparing)


def is_met() -> bool:
    """Return whether a collective is called that was compared with what it is of."""
    return bool(_met)


@contextmanager
def not_again() -> Iterator[None]:
    """Context in which a checked mesh does not compare a collective: it was compared."""
    _met.append(None)
    try:
        yield
    finally:
        _met.pop()


def _begin() -> None:
    world = dist.group.WORLD
    if world is not _first.world:
        _first.begin(world)


def _meet(describe: Callable[[], Call], group: Any, waits: Waits, cure: str | None = None) -> bool:
    if group.size() < 2 or dist.get_backend(group) in _NOT_REAL:
        return False
    if _comparing:
        _comparing[0].meetings.compare(group, describe(), cure=cure)
    else:
        limit = waits(group)
        _first.meetings().compare(group, describe(), TIMEOUT if limit is None else limit.total_seconds(), cure)
    return True


def identity(sources: Sequence[Any]) -> tuple[Any, ...]:
    """Return what tells sources of gradients, in this order, from others of such shapes: names, and who is older.

    It takes as good as no time, and programs that are alike have the same in all processes.
    """
    serials = [x._serial if isinstance(x, Variable) and name_of(x) is None else -1 for x in sources]
    names = [(name_of(x) or x.name, x.trainable) if isinstance(x, Variable) else None for x in sources]
    return (*names, *sorted(range(len(serials)), key=serials.__getitem__))


def names_of(sources: Sequence[Any]) -> list[str]:
    """Return what tells sources of gradients from others of such shapes, for the messages of `compare_first`.

    Of Variables that were not distributed, and have one name, or none, it is the place in the order in which they were
    made: the same in all processes, also where one of them has made Variables of its own.
    """
    alike: dict[Any, set[int]] = {}
    for x in sources:
        if isinstance(x, Variable) and name_of(x) is None:
            alike.setdefault((x.name, x.dtype, x.shape), set()).add(x._serial)
    shown = []
    for x in sources:
        if not isinstance(x, Variable):
            shown.append("")
            continue
        same, name = sorted(alike.get((x.name, x.dtype, x.shape), ())), name_of(x)
        notes = ["not trainable"] * (not x.trainable)
        if name is None and len(same) > 1:
            notes.append(f"number {same.index(x._serial) + 1} of {len(same)} in the order of their making")
        if name is None and x.name is not None:
            name = repr(x.name)
        shown.append(" ".join([*[name or ""] * (name is not None), *[f"({', '.join(notes)})"] * bool(notes)]))
    return shown


looks: Final[list[Callable[[float], None]]] = []
"""Functions that are called every now and then in a wait, with its seconds, and may end it by an error."""

_comparing: Final[list[_Comparing]] = []

_met: Final[list[None]] = []  # not empty while `is_met`

Waits = Callable[[Any], timedelta | None]


class _Comparing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Compares collectives before they are called, and calls all else as it is."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or each call of an op would go through PyTorch's compiler, to be told that it is not compiled

    def __init__(self, timeout: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.meetings = _Meetings("tape/programs", timeout)

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if DTensor in types:
            return NotImplemented  # what it calls comes here
        if is_collective(func) and not _met:
            self.meetings.compare(group_of(args), described(func, args))
        return func(*args, **(kwargs or {}))


class _First:
    """The collectives that this process has called since there is a group of processes."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, world: Any) -> None:
        """Forget those of another group."""
        self.world = world
        self.known: set[tuple[Any, ...]] = set()
        self._meetings: _Meetings | None = None

    def meetings(self) -> _Meetings:
        """Return where the processes compare them."""
        if self._meetings is None:
            self._meetings = _Meetings("tape/first", TIMEOUT)
            atexit.register(self._meetings.end)
        return self._meetings


class _Meetings:
    """Where processes tell each other, by the store that all have met in, what they are about to do."""

    def __init__(self, place: str, timeout: float) -> None:
        self.timeout = timeout
        self._rank = dist.get_rank()
        own: Any = distributed_c10d._get_default_store()
        self._store: Any = distributed_c10d.PrefixStore(place, own)
        self._counts: dict[str, int] = {}
        self._store.set(f"who/{self._rank}", json.dumps([*machine(), os.getpid()]))

    def compare(self, group: Any, call: Call, timeout: float | None = None, cure: str | None = None) -> None:
        """Wait for the other processes of a group, and compare what they are about to do.

        Raises:
            MismatchError: it is something else, or they do not come.
        """
        ranks = dist.get_process_group_ranks(group)
        if len(ranks) < 2:
            return
        of = f"{group.group_name}/{','.join(map(str, ranks))}"
        count = self._counts[of] = self._counts.get(of, 0) + 1
        place = f"{of}/{count}"
        self._store.set(f"{place}/{self._rank}", json.dumps([call, _line()]))
        others = [k for k in ranks if k != self._rank]
        keys = [f"{place}/{k}" for k in others]
        if not self._have_come(keys):
            self._wait(place, others, _in_short(call), self.timeout if timeout is None else timeout)
        found = {k: json.loads(text) for k, text in zip(others, self._store.multi_get(keys), strict=True)}
        if any([theirs != call for theirs, _ in found.values()]):
            found[self._rank] = [call, _line()]
            calls = [theirs for theirs, _ in found.values()]
            said = "; ".join(
                [f"rank {k} calls {_in_short(theirs, calls)} at {line}" for k, (theirs, line) in sorted(found.items())]
            )
            if cure is None:
                cure = _CURE + _CURE_OF_MANY * all([isinstance(one, list) for one in calls])
            raise MismatchError(f"the processes run different programs: {said}. {cure}")
        if count > 1:  # all have come to this one, so they have read the one before
            self._store.delete_key(f"{of}/{count - 1}/{self._rank}")

    def _have_come(self, keys: list[str]) -> bool:
        """Ask for the others for half a second."""
        for k in range(_AT_ONCE + 1000):
            if self._store.check(keys):
                return True
            if k >= _AT_ONCE:
                time.sleep(_PAUSES[0])
        return False

    def _wait(self, place: str, others: list[int], call: str, timeout: float) -> None:
        """Wait longer, and look what the others do meanwhile.

        Raises:
            MismatchError: some have ended, or wait for this one in another collective, or the time is over.
        """
        begun, missing, was_stuck = time.monotonic(), others, set[int]()
        # Those that have given up a wait before, and may be elsewhere by now.
        old = [note for note in self._notes("waits").values() if note[4]]
        note = [place, others, call, _line()]
        self._store.set(f"waits/{self._rank}", json.dumps([*note, False]))
        while missing := [k for k in missing if not self._store.check([f"{place}/{k}"])]:
            ended = {k: "ended" for k, who in self._notes("who").items() if is_dead(who)} | self._notes("ended")
            waiting = {k: n for k, n in self._notes("waits").items() if n not in old}
            stuck = self._stuck(waiting)
            waited = time.monotonic() - begun
            for look in looks:
                look(waited)
            if ended.keys() & missing or (self._rank in stuck and stuck == was_stuck) or waited > timeout:
                self._store.set(f"waits/{self._rank}", json.dumps([*note, True]))
                said = {self._rank: f"calls {call} at {note[3]}"}
                for k in missing:
                    said[k] = f"has not come within {waited:.0f} s: it hangs, or calls what it has called before"
                    if k in ended:
                        said[k] = f"has {ended[k]}"
                    elif k in waiting:
                        said[k] = f"calls {waiting[k][2]} at {waiting[k][3]}"
                text = "; ".join([f"rank {k} {said[k]}" for k in sorted(said)])
                raise MismatchError(
                    f"the processes run different programs, and would wait for each other: {text}. {_CURE}"
                )
            was_stuck = stuck
            time.sleep(_PAUSES[1])
        self._store.set(f"waits/{self._rank}", "null")

    def _notes(self, kind: str) -> dict[int, Any]:
        """Return what processes have noted of a kind."""
        keys = {k: f"{kind}/{k}" for k in range(dist.get_world_size())}
        found = {k: json.loads(self._store.get(key)) for k, key in keys.items() if self._store.check([key])}
        return {k: note for k, note in found.items() if note is not None}

    def _stuck(self, waiting: dict[int, Any]) -> set[int]:
        """Return the processes that wait for ever: those that have given up, and those that wait for such ones."""
        gone = {k for k, note in waiting.items() if note[4]}
        missing = {
            k: [q for q in ranks if not self._store.check([f"{place}/{q}"])]
            for k, (place, ranks, _, _, _) in waiting.items()
        }
        found = set(waiting)
        while free := {k for k in found - gone if not found & set(missing[k])}:
            found -= free
        return found

    def end(self) -> None:
        """Tell the others that this process has come to its end."""
        if not dist.is_initialized():
            return
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        how = "come to the end of its program" if error is None else f"ended by {type(error).__name__}"
        with suppress(Exception):  # the process that keeps the store may have ended before
            self._store.set(f"ended/{self._rank}", json.dumps(how))


def machine() -> list[str]:
    """Return what processes have in common that see each other's numbers: the machine, and on Linux the container."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return [socket.gethostname(), space]


def is_dead(who: list[Any]) -> bool:
    """Return whether a process of this machine is no more; `who` is what it has as its `machine`, and its number."""
    if who[:-1] != machine():
        return False
    try:
        os.kill(who[-1], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    with suppress(OSError), open(f"/proc/{who[-1]}/stat", encoding="utf-8", errors="replace") as stream:
        return stream.read().rpartition(")")[2].split()[0] == "Z"  # dead, but its parent does not know yet
    return False


_first: Final = _First()


def _end() -> None:
    while _comparing:
        mode = _comparing.pop()
        if dist.is_initialized():
            mode.meetings.end()
        with suppress(Exception):
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]


def _in_short(call: Call, calls: Sequence[Call] = ()) -> str:
    """Return what a process is about to do in one line: of many arrays the first that others have otherwise.

    That is of interest where the calls themselves are alike, up to numbers, such as those in shapes.
    """
    if isinstance(call, str):
        return call
    many = [one for one in calls if isinstance(one, list) and _without_numbers(one[0]) == _without_numbers(call[0])]
    for k in range(1, max(map(len, many), default=0)):
        if len({one[k] if k < len(one) else None for one in many}) > 1:
            return f"{call[0]}, of which {call[k]} differs," if k < len(call) else f"{call[0]}, which end too early,"
    return call[0]


def _without_numbers(text: str) -> str:
    return "".join([sign for sign in text if not sign.isdigit()])


def described_array(x: torch.Tensor, name: str = "") -> str:
    """Return an array in the words of users, such as `'kernel' float32 (4, 2)`."""
    return f"{name}{name and ' '}{_dtype(x)} {tuple(x.shape)}"


def is_collective(func: Any) -> bool:
    """Return whether an op of PyTorch's dispatcher is one that other processes take part in."""
    return func.namespace in _SPACES and not func.__name__.lstrip("_").startswith(_OTHERS)


def group_of(args: Sequence[Any]) -> Any:
    """Return the group of processes among the arguments of a collective."""
    for arg in reversed(args):
        if isinstance(arg, str):
            with suppress(Exception):  # it is a reduction, such as "sum"
                return distributed_c10d._resolve_process_group(arg)  # type: ignore[arg-type,attr-defined]
        elif isinstance(arg, dist.ProcessGroup):
            return arg
        elif isinstance(arg, torch.ScriptObject):
            with suppress(Exception):  # it is another object, such as a ReduceOp
                return dist.ProcessGroup.unbox(arg)
    return dist.group.WORLD


def described(func: Any, args: Sequence[Any]) -> str:
    """Return a collective in the words of users, such as `all_reduce (sum) of float32 (4, 2)`."""
    name = func.__name__.partition(".")[0]
    shown: str = _NAMES.get(name.strip("_"), name.strip("_"))
    given = _tensors(args[_FIRST.get(name, 0)]) if args else []
    if shown == "all_to_all":  # of which processes may send each other as much as they like
        arrays = ", ".join([f"{_dtype(x)} (..., {', '.join(map(str, x.shape[1:]))})" for x in given[:1]])
    else:
        arrays = ", ".join([f"{_dtype(x)} {tuple(x.shape)}" for x in given])
    how = (
        next((arg for arg in args if isinstance(arg, str)), None) if shown in ("all_reduce", "reduce_scatter") else None
    )
    if name == "broadcast":
        how = f"from {args[1]}"
    elif name == "broadcast_":
        how = f"from place {args[2]}"
    return shown + (f" ({how})" if how else "") + (f" of {arrays}" if arrays else "")


def _tensors(arg: Any) -> list[torch.Tensor]:
    if isinstance(arg, torch.Tensor):
        return [arg]
    return [x for part in arg for x in _tensors(part)] if isinstance(arg, list | tuple) else []


def _dtype(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _line() -> str:
    """Return the file and the line of the user's code that led here."""
    frame: FrameType | None = sys._getframe(1)
    found = frame
    while frame is not None:
        found = frame
        # What is generated, as by `eval`, has no name.
        if not str(frame.f_globals.get("__name__") or "tape_").startswith(("torch", "tape_", "contextlib", "optree")):
            break
        frame = frame.f_back
    assert found is not None  # this frame, at least
    return f"{Path(found.f_code.co_filename).name}:{found.f_lineno}"
