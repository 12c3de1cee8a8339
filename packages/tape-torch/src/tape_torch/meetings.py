"""Meetings of processes, in which they tell each other what they are about to do, and learn if one does not come.

They meet by the store of PyTorch that all of them know since they have begun.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

import torch.distributed as dist
from tape_core.staging import UnrepeatableError

from tape_torch.notes import board, line
from tape_torch.peers import lost

FEW = 16
"""Processes of a group, each of which reads what all others tell; in a larger group they count who tells the same."""

_ALIKE: Final = b"alike"
_AT_ONCE: Final = 50  # how often to ask for the others without a pause: most come within a millisecond
_PAUSES: Final = (0.0005, 0.05)
"""Seconds between questions after that, and after half a second. Not the store's own wait, in which nobody else of this
process can use it, such as the signs of life of `watched`, and whose end is a warning."""

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

looks: Final[list[Callable[[float], None]]] = []
"""Functions that are called every now and then in a wait, with its seconds, and may end it by an error."""

ends: Final[list[Callable[[Any], None]]] = []
"""Functions that are called at the end of a watched block, and of the program, with a store of this occasion alone."""


class MismatchError(RuntimeError, UnrepeatableError):
    """The processes do not run the same program; :func:`tape_torch.distributed.mesh` says how it is compared."""


class Meetings:
    """Where processes tell each other, by the store that all have met in, what they are about to do."""

    def __init__(self, place: str, timeout: float) -> None:
        self.timeout = timeout
        self._place = place
        self._board = board()
        self._rank, self._store = self._board.rank, self._board.store
        self._counts: dict[str, int] = {}
        self._counted: dict[str, str] = {}  # by groups of many the digest of the last call

    def compare(self, group: Any, call: Call, timeout: float | None = None, cure: str | None = None) -> None:
        """Wait for the other processes of a group, and compare what they are about to do.

        Raises:
            MismatchError: it is something else, or they do not come.
            PeerError: they have died, or ended by an error.
        """
        ranks = dist.get_process_group_ranks(group)
        if len(ranks) < 2:
            return
        of = f"{self._place}/{group.group_name}/{','.join(map(str, ranks))}"
        count = self._counts[of] = self._counts.get(of, 0) + 1
        place = f"{of}/{count}"
        self._store.set(f"{place}/{self._rank}", json.dumps([call, line()]))
        few = len(ranks) <= FEW
        if not few:
            self._count(place, call, len(ranks))
        others = [k for k in ranks if k != self._rank]
        keys = [f"{place}/{k}" for k in others]
        if not self._have_come(keys if few else [f"{place}/all"], len(ranks)):
            self._wait(place, others, _in_short(call), self.timeout if timeout is None else timeout)
        if few or self._store.get(f"{place}/all") != _ALIKE:
            self._read(keys, others, call, cure)
        if count > 1:  # all have come to this one, so they have read the one before
            self._store.delete_key(f"{of}/{count - 1}/{self._rank}")
            if not few and self._rank == ranks[0]:
                for name in ("all", "came", self._counted.pop(of, "")):
                    self._store.delete_key(f"{of}/{count - 1}/{name}")
        if not few and self._rank == ranks[0]:
            self._counted[of] = _digest(call)

    def _count(self, place: str, call: Call, n: int) -> None:
        """Count this process with those that are about to do the same; who comes last says whether that is all.

        If each of n processes read what all others are about to do, the store would send n * n messages.
        """
        alike = f"{place}/{_digest(call)}"
        self._store.add(alike, 1)
        if self._store.add(f"{place}/came", 1) == n:  # so all have counted themselves
            self._store.set(f"{place}/all", _ALIKE if self._store.add(alike, 0) == n else b"differ")

    def _read(self, keys: list[str], others: list[int], call: Call, cure: str | None) -> None:
        """Compare with what others have told.

        Raises:
            MismatchError: it is something else.
        """
        found = {k: json.loads(text) for k, text in zip(others, self._store.multi_get(keys), strict=True)}
        found[self._rank] = [call, line()]
        check_same(found, cure)

    def _have_come(self, keys: list[str], n: int) -> bool:
        """Ask for the others for half a second, or longer for many."""
        pause = _PAUSES[0] * max(1, n // FEW)
        for k in range(_AT_ONCE + 1000):
            if self._store.check(keys):
                return True
            if k >= _AT_ONCE:
                time.sleep(pause)
        return False

    def _wait(self, place: str, others: list[int], call: str, timeout: float) -> None:
        """Wait longer, and look what the others do meanwhile.

        Raises:
            MismatchError: some have ended, or wait for this one in another collective, or the time is over.
            PeerError: some have died, or ended by an error.
        """
        begun, missing, was_stuck = time.monotonic(), others, set[int]()
        # Those that have given up a wait before, and may be elsewhere by now.
        old = [note for note in self._board.notes("waits").values() if note[4]]
        at = line()
        note = [place, others, call, at]
        self._board.note("waits", [*note, False])
        while missing := [k for k in missing if not self._store.check([f"{place}/{k}"])]:
            ended, stopped = self._board.ended(), self._board.notes("stopped")
            waiting = {k: n for k, n in self._board.notes("waits").items() if n not in old}
            stuck = self._stuck(waiting)
            waited = time.monotonic() - begun
            for look in looks:
                look(waited)
            is_stuck = self._rank in stuck and stuck == was_stuck
            if (ended | stopped).keys() & set(missing) or is_stuck or waited > timeout:
                self._board.note("waits", [*note, True])
                gave_up = {*stopped, *[k for k, note in waiting.items() if note[4]]}  # they may be gone since
                gone = {k: how for k, how in ended.items() if k in missing and k not in gave_up}
                if (error := lost(gone, call, at)) is not None:
                    raise error
                said = {self._rank: f"calls {call} at {at}"}
                for k in missing:
                    said[k] = f"has not come within {waited:.0f} s: it hangs, or calls what it has called before"
                    if k in stopped:
                        said[k] = f"has waited in {stopped[k][0]} at {stopped[k][1]} until its time was over"
                    elif k in ended:
                        said[k] = f"has {ended[k]}"
                    elif k in waiting:
                        said[k] = f"calls {waiting[k][2]} at {waiting[k][3]}"
                text = "; ".join([f"rank {k} {said[k]}" for k in sorted(said)])
                raise MismatchError(
                    f"the processes run different programs, and would wait for each other: {text}. {_CURE}"
                )
            was_stuck = stuck
            time.sleep(_PAUSES[1])
        self._board.note("waits", None)

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


def check_same(found: dict[int, list[Any]], cure: str | None = None) -> None:
    """Refuse what processes do not all do.

    Args:
        found: by the numbers of processes what each does, and at which line.
        cure: what to do about it.

    Raises:
        MismatchError: they do not all do the same.
    """
    calls: list[Call] = [call for call, _ in found.values()]
    if all([call == calls[0] for call in calls]):
        return
    said = "; ".join(
        [f"rank {k} calls {_in_short(call, calls)} at {place}" for k, (call, place) in sorted(found.items())]
    )
    if cure is None:
        cure = _CURE + _CURE_OF_MANY * all([isinstance(one, list) for one in calls])
    raise MismatchError(f"the processes run different programs: {said}. {cure}")


def _in_short(call: Call, calls: Sequence[Call] = ()) -> str:
    """Return what a process is about to do in one line: of many arrays the first that others have otherwise.

    That is of interest where the calls themselves are alike, up to numbers, such as those in shapes.
    """
    if isinstance(call, str):
        return call
    many = [one for one in calls if isinstance(one, list) and _without_numbers(one[0]) == _without_numbers(call[0])]
    for k in range(1, max(map(len, many), default=0)):
        if len({one[k] if k < len(one) else None for one in many}) > 1:
            # What only others have moves the rest: it is that which differs.
            absent = [one[k] for one in many if k < len(one) and one[k] not in call]
            if absent and (k >= len(call) or all([call[k] in one for one in many])):
                return f"{call[0]}, without {absent[0]},"
            return f"{call[0]}, of which {call[k]} differs," if k < len(call) else f"{call[0]}, which end too early,"
    return call[0]


def _without_numbers(text: str) -> str:
    return "".join([sign for sign in text if not sign.isdigit()])


def _digest(call: Call) -> str:
    return sha256(json.dumps(call).encode()).hexdigest()
