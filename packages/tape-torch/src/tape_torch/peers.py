"""A collective that has failed is an error that says which other process is the cause, where that can be known.

When a process dies, gloo tells those that talk to it that a connection was closed, but not to whom, and when one does
not come, that the time is over. So a process whose collective has failed looks at the notes of all others (see
`tape_torch.notes`), and leaves one itself, for those that come later or wait elsewhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final, NamedTuple

import torch.distributed as dist
from tape_core.staging import UnrepeatableError
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from tape_torch.notes import board, is_kept_by_first, line

PATIENCE: Final = 5.0
"""Seconds to look for the cause of an error: other processes notice it, or end, a little later."""

_POLL_SECONDS: Final = 0.05

_FAMILIAR: Final = (
    "/gloo/", "nccl", "connection closed by peer", "connection reset by peer", "timed out waiting",
    "application timeout caused pair closure",
)  # fmt: skip
"""What errors of operations among processes have in their texts, in small letters."""

_OF_ERROR: Final = "Its own error says why; start all processes again, from the last checkpoint if there is one"
_OF_DEAD: Final = (
    "Its output, or the log of its machine, may say why: a lack of memory, say, or gloo's `op.preamble.length <= "
    "op.nbytes`, where processes that run different programs send other lengths, as where one alone computes a metric "
    "or calls full(x) (TAPE_CHECK_RANKS=1 in the environment finds where). Start all processes again, from the last "
    "checkpoint if there is one"
)
_OF_FEWER: Final = (
    "All processes must take as many steps, and call the same functions: look for a loop that goes round less often on "
    "one rank, as over fewer batches (drop_last=True of a loader makes them alike, and nn.fit compares them), for a "
    "break, and for a step in an `if`"
)
_OF_OTHERS: Final = (
    "All processes must run the same program: look for what depends on the rank, or on data that only one process has, "
    "such as a shape or dtype for which a compiled function is traced anew. TAPE_CHECK_RANKS=1 in the environment "
    "finds where the programs part"
)
_OF_LATE: Final = (
    "It hangs, takes longer than the time-out allows, for which mesh(timeout=) is, or calls something else, which "
    "TAPE_CHECK_RANKS=1 in the environment finds"
)


_GAVE_UP: Final = "ended by MismatchError"

_PLACE: Final = re.compile(r"\[\S+/gloo/\S+\] ")


class PeerError(RuntimeError, UnrepeatableError):
    """Another process has died, failed or hangs.

    Attributes:
        ranks: the numbers of these processes.
    """

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


watches: Final[list[Any]] = []
"""The block of `watched` that this process is in, if it is in one: it finds the cause by itself."""


_named: Final[ContextVar[str]] = ContextVar("what is waited for", default="")


class _Seen(NamedTuple):
    """What is known of another process.

    Attributes:
        what: it has done.
        cure: what to do about it.
        blame: 2 for the cause, 1 for one that has done something else than this process, and 0.
    """

    what: str
    cure: str
    blame: int


def is_of_peers(error: BaseException) -> bool:
    """Return whether an error is that of an operation among processes."""
    if isinstance(error, dist.DistError | PeerError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _FAMILIAR)


def explained(error: Exception, what: str) -> PeerError | None:
    """Return what to raise in place of an error of PyTorch's that a collective has failed; None for other errors.

    Args:
        what: the collective, or what it belongs to, in the words of users.
    """
    if isinstance(error, PeerError) or watches or not is_of_peers(error) or not dist.is_initialized():
        return None
    what = _named.get() or what
    here, own = dist.get_rank(), [what, line()]
    is_late = any(words in str(error).lower() for words in ("timed out", "timeout"))
    try:
        former = board().notes("waits")
        board().note("stopped", [*own, is_late])
        seen = _look(own, is_late, former)
    except RuntimeError:  # of the store
        if here == 0 or not is_kept_by_first():
            return None
        said = f"{what} at {own[1]} has failed on rank {here}: rank 0 has died, and with it the store of all"
        return PeerError(f"{said}. {_OF_DEAD}", [0])
    if not seen:
        return None
    most = max([one.blame for one in seen.values()])
    causes = {k: one for k, one in seen.items() if one.blame == most}
    said = "; ".join([f"rank {k} {one.what}" for k, one in sorted(causes.items())])
    cures = ". ".join(dict.fromkeys([one.cure for _, one in sorted(causes.items())]))
    words = _PLACE.sub("", str(error)).partition(". ")[0].partition("\n")[0]
    return PeerError(
        f"{what} at {own[1]} has failed on rank {here} of {dist.get_world_size()}: {said}. {cures}. PyTorch's own "
        f"words: {words}",
        sorted(causes),
    )


def lost(ended: Mapping[int, str], call: str, at: str) -> PeerError | None:
    """Return the error of processes that are gone while others wait for them; None where none has died or failed.

    One that has come to the end of its program, or given up since programs differ, is no peer that was lost.

    Args:
        ended: how processes have ended, by their numbers.
        call, at: what they are waited for in, in the words of users, and at which line.
    """
    gone = {k: how for k, how in ended.items() if how == "died" or (how.startswith("ended") and _GAVE_UP not in how)}
    if not gone:
        return None
    said = "; ".join([f"rank {k} has {how}" for k, how in sorted(gone.items())])
    cures = ". ".join(dict.fromkeys([cure_of(how) for how in gone.values()]))
    return PeerError(
        f"{call} at {at} has failed on rank {dist.get_rank()} of {dist.get_world_size()}: {said}. {cures}", sorted(gone)
    )


def cure_of(how: str) -> str:
    """Return what to do about a process that has ended so."""
    return _OF_DEAD if how == "died" else _OF_ERROR if how.startswith("ended") else _OF_FEWER


@contextmanager
def naming_peers(what: str) -> Iterator[None]:
    """Context in which a collective that fails is an error that names the cause, as `explained` says.

    Within another one the name of that one counts.
    """
    token = _named.set(_named.get() or what)
    try:
        yield
    except RuntimeError as error:
        if (found := explained(error, what)) is not None:
            raise found from error
        raise
    finally:
        _named.reset(token)


@cache
def name_peers_in_waits() -> None:
    """Have a call that computes with an array on its way, and waits for it in vain, name the peer that is the cause.

    It may be anybody's: the optimizer's, say, or the user's own on an array of PyTorch.
    """
    dispatch: Any = AsyncCollectiveTensor.__torch_dispatch__

    def called(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return dispatch(func, types, args, kwargs)
        except RuntimeError as error:
            if (found := explained(error, "waiting for a value")) is not None:
                raise found from error
            raise

    AsyncCollectiveTensor.__torch_dispatch__ = classmethod(called)  # type: ignore[assignment, method-assign]


def _look(own: list[str], is_late: bool, former: dict[int, Any]) -> dict[int, _Seen]:
    """Return what is known of the other processes, as soon as one is the cause, or each has said something.

    Args:
        own: what has failed in this process, and at which line.
        is_late: whether its time was over.
        former: what the processes had waited for before this one told of that.

    Raises:
        RuntimeError: the store is gone.
    """
    notes = board()
    pause = _POLL_SECONDS * max(1, notes.size // 16)
    until = time.monotonic() + PATIENCE
    while True:
        ended, waits, stopped = notes.ended(), notes.notes("waits"), notes.notes("stopped")
        seen: dict[int, _Seen] = {}
        for k in range(notes.size):
            how = ended.get(k)
            if k == notes.rank:
                continue
            if k in stopped:
                seen[k] = _stopped(stopped[k], own, is_late)
            # Who has given up a wait, and goes on, may be elsewhere by now, unless this process was the cause.
            elif k in waits and (waits[k] != former.get(k) or (how or "").startswith(_GAVE_UP if waits[k][4] else "")):
                seen[k] = _Seen(f"calls {waits[k][2]} at {waits[k][3]}", _OF_OTHERS, 2)
            elif how is not None:
                seen[k] = _Seen(f"has {how}", cure_of(how), 2)
        late = time.monotonic() > until
        if late or len(seen) == notes.size - 1 or any([one.blame == 2 for one in seen.values()]):
            break
        time.sleep(pause)
    if late:
        others = [k for k in range(notes.size) if k != notes.rank and k not in seen]
        seen |= {k: _Seen("has not come, and has not ended", _OF_LATE, 2) for k in others}
    return seen


def _stopped(note: list[Any], own: list[str], is_late: bool) -> _Seen:
    """Return what is known of a process whose collective has failed, too."""
    what, at, was_late = note
    is_same = [what, at] == own
    cure = _OF_LATE if is_same else _OF_OTHERS
    if is_late and not was_late:
        return _Seen(f"came to {what} at {at} when the time of this process was over", cure, 1)
    until = "its time was over" if was_late else "that failed"
    return _Seen(f"has waited in {what} at {at} until {until}", cure, 1 - is_same)
