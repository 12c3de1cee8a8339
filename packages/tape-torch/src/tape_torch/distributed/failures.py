"""A process that dies, fails or hangs is an error on all others, with its number and within a time.

When a process dies, gloo tells those that talk to it that a connection was closed, but not to whom. So each process
leaves notes in the store that all of them have met in: who it is, a sign of life every now and then, and why it has
left. After a failed operation, the others read the notes of all.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

import torch.distributed as dist
from tape_core.support import contextmanager, real, without_arrays
from torch.distributed import distributed_c10d

from tape_torch import meetings
from tape_torch.distributed.agreement import check_met
from tape_torch.notes import board, is_kept_by_first
from tape_torch.peers import PeerError, cure_of, is_of_peers, watches

BEAT_SECONDS: Final = 0.5
SILENCE: Final = 10.0  # seconds without a sign of life after which a process of another machine counts as dead
PATIENCE: Final = 15.0  # seconds to look for the cause of an error
PATIENCE_OF_LEFT: Final = 2.0  # of these, where a process has left
POLL_SECONDS: Final = 0.05


@contextmanager
def watched(timeout: float | None = 300.0) -> Iterator[None]:
    """Watch all processes of a run while they are in a block: none waits for ever for one that does not come.

    All processes enter it. If one dies, raises an error in the block, leaves it too early or hangs, the operation that
    the others wait in ends with an error, and this becomes a :class:`PeerError` that says which process it was. Within
    another such block, and in a run of one process, this one does nothing.

    >>> from tape_torch import distributed
    >>> with distributed.watched(timeout=60.0):
    ...     pass  # the training loop

    Args:
        timeout: how many seconds processes may wait for each other, in any operation. The slowest thing that one does
            alone, such as reading data, must be faster. With None what their groups have, half an hour by default.

    Raises:
        PeerError: another process has died, failed or hangs.
        RuntimeError: it is entered in one of several processes before there is a mesh.
    """
    seconds = None if timeout is None else real("watched", "timeout", timeout)
    if seconds is not None and seconds <= 0:
        raise ValueError(f"watched: timeout must be more than 0; got {timeout}")
    check_met("watched")
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1 or watches:
        yield
        return
    watch = _Watch(seconds)
    watches.append(watch)
    meetings.looks.append(watch.look)
    try:
        yield
        for compare in meetings.ends:
            compare(watch.store_at_end)
    except PeerError as error:
        watch.note("waited", list(error.ranks))
        raise
    except BaseException as error:
        # An interrupt is the user's, and says nothing of other processes.
        if not is_of_peers(error):
            watch.note("failed", f"{type(error).__name__}: {error}")
            raise
        watch.note("waited", [])
        found = watch.culprits()
        if not found:
            error.add_note(
                "No process is known to have died or failed: one was slower than the time limit, or they run different "
                "programs and wait for each other, which TAPE_CHECK_RANKS=1 in the environment finds"
            )
            raise
        watch.note("waited", list(found))
        reasons = "; ".join(f"process {rank} of {watch.size} {why}" for rank, why in sorted(found.items()))
        raise PeerError(f"{reasons}. Process {watch.rank} cannot go on without it: {error}", sorted(found)) from error
    else:
        watch.note("left", None)
    finally:
        watches.remove(watch)
        meetings.looks.remove(watch.look)
        watch.end()


_count = 0  # of the blocks so far: each has notes of its own


def time_limit() -> timedelta | None:
    """Return how long an operation may wait in the block of :func:`watched` around this call; None outside of one."""
    seconds = watches[-1].seconds if watches else None
    return None if seconds is None else timedelta(seconds=seconds)


def waits_of(group: Any) -> timedelta | None:
    """Return how long operations of a group of processes wait; None if its library has no such limit."""
    try:
        backend: Any = group._get_backend(group._device_types[0])
        found: timedelta = backend.options._timeout
    except (AttributeError, IndexError, RuntimeError):
        return None
    return found


@dataclass
class _Notes:
    """What another process was last known to say."""

    beat: int = 0
    heard: float = field(default_factory=time.monotonic)


class _Seen(NamedTuple):
    """What other processes have done, by their numbers."""

    causes: dict[int, str]
    """Those that have died, or failed."""
    left: dict[int, str]
    """Those that have left the block: the cause if nobody else is. They may have got the last message of a dead one."""
    others: dict[int, str]
    """Those that must be the cause if no other is."""


class _Watch:
    def __init__(self, seconds: float | None) -> None:
        global _count
        _count += 1
        self.rank, self.size, self.seconds = dist.get_rank(), dist.get_world_size(), seconds
        own: Any = distributed_c10d._get_default_store()
        self.store: Any = distributed_c10d.PrefixStore(f"tape/watch/{_count}", own)
        self.store_at_end: Any = distributed_c10d.PrefixStore(f"tape/watch/{_count}/end", own)
        self.board = board()
        self.store.set(f"{self.rank}/beat", "0")
        self._limit_waiting()
        self._over = threading.Event()
        # A daemon: a process that is about to end must not be kept by it.
        self._thread = threading.Thread(target=self._beat, name="tape-watch", daemon=True)
        self._thread.start()

    def _limit_waiting(self) -> None:
        """Limit how long operations wait, in all groups of processes that there are, and put it back at the end."""
        self._before: list[tuple[Any, timedelta]] = []
        if self.seconds is None:
            return
        limit = timedelta(seconds=self.seconds)
        for group in list(distributed_c10d._world.pg_map):
            if (before := waits_of(group)) is not None:
                self._before.append((group, before))
                group.set_timeout(limit)

    def _beat(self) -> None:
        beat, own = 0, threading.get_ident()
        without_arrays.add(own)
        try:
            while not self._over.wait(BEAT_SECONDS):
                beat += 1
                with suppress(RuntimeError):  # the store is gone: the operation that is waited for says so
                    self.store.set(f"{self.rank}/beat", str(beat))
        finally:
            without_arrays.discard(own)  # a later thread may have its identifier

    def note(self, key: str, value: object) -> None:
        """Tell the others something."""
        with suppress(RuntimeError):
            self.store.set(f"{self.rank}/{key}", json.dumps(value))

    def end(self) -> None:
        """Give no further signs of life."""
        self._over.set()
        self._thread.join()
        for group, before in self._before:
            with suppress(Exception):
                group.set_timeout(before)

    def look(self, waited: float) -> None:
        """End a wait of a checked mesh, by the error that a collective would have ended with.

        Raises:
            DistError: a process is gone, or the time is over.
        """
        seen = self._look({rank: _Notes() for rank in range(self.size) if rank != self.rank})
        if seen.causes or seen.left or (self.seconds is not None and waited > self.seconds):
            raise dist.DistError(f"waited for {waited:.0f} s for processes that are to compare what they do")

    def culprits(self) -> dict[int, str]:
        """Return which processes are the cause of an error here, and what they have done."""
        known = {rank: _Notes() for rank in range(self.size) if rank != self.rank}
        begun = time.monotonic()
        seen = _Seen({}, {}, {})
        while (waited := time.monotonic() - begun) < PATIENCE:
            try:
                seen = self._look(known)
            except RuntimeError:
                return {0: "has died, and with it the store that all have met in"} if is_kept_by_first() else {}
            if seen.causes:
                return seen.causes
            if seen.left and waited > PATIENCE_OF_LEFT:
                break
            time.sleep(POLL_SECONDS)
        return seen.left or seen.others

    def _look(self, known: dict[int, _Notes]) -> _Seen:
        """Return what the other processes have said, and whether they live."""
        seen, ended = _Seen({}, {}, {}), self.board.ended()
        for rank, notes in known.items():
            if (failed := self._read(rank, "failed")) is not None:
                seen.causes[rank] = f"has failed: {failed}"
            elif self._has(rank, "left"):
                seen.left[rank] = "has left the block that the others are still in"
            elif (waited := self._read(rank, "waited")) is not None:
                for one in waited:  # it has found the cause, and may be gone by now
                    if one != self.rank:
                        seen.others[one] = "has died or hangs"
            elif (how := ended.get(rank)) is not None:  # it may not have come to the block at all
                seen.causes[rank] = f"has {how}" if how == "died" else f"has {how}. {cure_of(how)}"
            else:
                beat, now = int(self._read(rank, "beat") or 0), time.monotonic()
                if beat != notes.beat:
                    notes.beat, notes.heard = beat, now
                if now - notes.heard > SILENCE:
                    seen.causes[rank] = f"gives no sign of life for {SILENCE:.0f} s"
                else:
                    seen.others[rank] = "lives, but hangs, or waits elsewhere"
        return seen

    def _has(self, rank: int, key: str) -> bool:
        return bool(self.store.check([f"{rank}/{key}"]))

    def _read(self, rank: int, key: str) -> Any:
        return json.loads(self.store.get(f"{rank}/{key}")) if self._has(rank, key) else None
