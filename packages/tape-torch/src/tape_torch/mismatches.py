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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple
from zlib import crc32

import torch
import torch.distributed as dist
from tape_core import Variable
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tape_torch.divided import is_asked_for
from tape_torch.divided_names import name_of
from tape_torch.meetings import Call, Meetings, MismatchError

VARIABLE: Final = "TAPE_CHECK_RANKS"
TIMEOUT: Final = 300.0
"""Seconds that a process waits for the others in a collective, where a mesh is checked and nothing else is said."""

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


class Known(NamedTuple):
    """A collective that was compared.

    Attributes:
        number: a checksum of what it is, of 32 bits.
        told: what it is, in the words of users.
    """

    number: int
    told: list[str]


def compare_first(
    key: tuple[Any, ...], describe: Callable[[], Call], group_name: str, waits: Waits, *, always: bool = False
) -> Known:
    """Compare a collective with those of the other processes of a group, the first time that this one calls such a one.

    Return what it is, which is the same in all processes.

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
    known = _first.known.get(key)
    if known is not None:
        return known
    if always or not _comparing:  # which compares all
        _meet(describe, distributed_c10d._resolve_process_group(group_name), waits)  # type: ignore[arg-type,attr-defined]
    call = describe()
    told = [call] if isinstance(call, str) else call
    found = _first.known[key] = Known(crc32(json.dumps(told).encode()), told)
    return found


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
        _begin_anew()


def _meet(describe: Callable[[], Call], group: Any, waits: Waits, cure: str | None = None) -> bool:
    if group.size() < 2 or dist.get_backend(group) in _NOT_REAL:
        return False
    try:
        if _comparing:
            _comparing[0].meetings.compare(group, describe(), cure=cure)
        else:
            limit = waits(group)
            _first.meetings().compare(group, describe(), TIMEOUT if limit is None else limit.total_seconds(), cure)
    except MismatchError:
        _begin_anew()
        raise
    return True


beginnings: Final[list[Callable[[], None]]] = []
"""Functions that are called where processes begin anew: those of another group, and after an error on all of them."""


def _begin_anew() -> None:
    for begin in beginnings:
        begin()


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
        self.meetings = Meetings("programs", timeout)

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
        self.known: dict[tuple[Any, ...], Known] = {}
        self._meetings: Meetings | None = None

    def meetings(self) -> Meetings:
        """Return where the processes compare them."""
        if self._meetings is None:
            self._meetings = Meetings("first", TIMEOUT)
        return self._meetings


_first: Final = _First()


def _end() -> None:
    while _comparing:
        with suppress(Exception):
            _comparing.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]


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


def described(func: Any, args: Sequence[Any], shapes: bool = True) -> str:
    """Return a collective in the words of users, such as `all_reduce (sum) of float32 (4, 2)`, or without shapes."""
    name = func.__name__.partition(".")[0]
    shown: str = _NAMES.get(name.strip("_"), name.strip("_"))
    given = _tensors(args[_FIRST.get(name, 0)]) if args else []
    if shown == "all_to_all":  # of which processes may send each other as much as they like
        shape = f" (..., {', '.join(map(str, given[0].shape[1:]))})" if given and shapes else ""
        arrays = ", ".join([f"{_dtype(x)}{shape}" for x in given[:1]])
    else:
        arrays = ", ".join([described_array(x) if shapes else _dtype(x) for x in given])
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
