"""What each process of a run lets the others know: who it is, what it waits for, and how it has ended.

It is in the store of PyTorch that all of them have met in, which answers also while a collective is waited for.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import distributed_c10d

_PLACE: Final = "tape/notes"
_SHOWN: Final = 200  # characters of another process's error


class Board:
    """Where the processes of a group of all leave notes, of several kinds, of which each has one of a kind.

    Attributes:
        rank, size: the number of this process, and how many there are.
        store: PyTorch's store of what is left here.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        own: Any = distributed_c10d._get_default_store()
        self.store: Any = distributed_c10d.PrefixStore(_PLACE, own)
        self.note("who", [*machine(), os.getpid()])
        self._process = os.getpid()
        atexit.register(self.end)

    def note(self, kind: str, value: object) -> None:
        """Leave a note in place of the former one of its kind; None is none."""
        self.store.set(f"{kind}/{self.rank}", json.dumps(value))

    def notes(self, kind: str) -> dict[int, Any]:
        """Return the notes of a kind by the numbers of the processes."""
        keys = {k: f"{kind}/{k}" for k in range(self.size)}
        found = {k: json.loads(self.store.get(key)) for k, key in keys.items() if self.store.check([key])}
        return {k: note for k, note in found.items() if note is not None}

    def ended(self) -> dict[int, str]:
        """Return how processes have ended, by their numbers."""
        return {k: "died" for k, who in self.notes("who").items() if is_dead(who)} | self.notes("ended")

    def end(self) -> None:
        """Tell the others that this process has come to its end."""
        if not dist.is_initialized() or os.getpid() != self._process:  # a fork's end is its own
            return
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        how = "come to the end of its program"
        if error is not None:
            how = f"ended by {type(error).__name__}: {error}".rstrip(": ").partition("\n")[0][:_SHOWN]
        with suppress(Exception):  # the process that keeps the store may have ended before
            self.note("ended", how)


_boards: Final[list[tuple[Any, Board]]] = []


def board() -> Board:
    """Return the board of the processes that there are; the first call lets the others know of this one."""
    world = dist.group.WORLD
    if not _boards or _boards[0][0] is not world:
        _boards[:] = [(world, Board())]
    return _boards[0][1]


def is_kept_by_first() -> bool:
    """Return whether the store ends with process 0: elsewhere it is a file, or torchrun keeps it."""
    store: Any = distributed_c10d._get_default_store()
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return isinstance(store, TCPStore) and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


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


def line() -> str:
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
