"""How often Variables that processes share have got new values: as often in all of them.

An update that one process leaves out, or makes twice, sends nothing. So each process counts the new values of such
Variables, and `tape_torch.votes` compares the counts with the next gradients. Only the host's numbers are counted: no
device is asked. An assignment that brings a former value back, as at the end of a block in which Variables have their
averages, takes the new values in between back, too. What a process may do alone, and then undo, it may so as before.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from weakref import ProxyType
from zlib import crc32

import torch
import torch.distributed as dist
from tape_core.support import counted
from torch.distributed import distributed_c10d

from tape_torch.conversion import bytes_of
from tape_torch.divided_names import shared, shared_name

CURE: Final = (
    ". And all are to begin with the same values of Variables: make them of one seed, or bring those of one process to "
    "all by variable.assign(broadcast(variable, mesh))"
)

_MASK: Final = (1 << 64) - 1
_MARK: Final = "_tape_is_alike"
_KEPT: Final = 8  # former values of a Variable


class Sums(NamedTuple):
    """Checksums of what was counted since the processes have begun: of updates, and of assignments."""

    updates: int = 0
    assignments: int = 0


class _Counts:
    """What new values a Variable has got.

    Attributes:
        number: the checksum of its name.
        updates: the number of those by optimizers, and in compiled functions.
        assignments: that of others, of single Variables or for a while, and the sum of the checksums of host data.
        former: values that may come back, and what was counted then.
    """

    __slots__ = ("assignments", "former", "number", "updates")

    def __init__(self, name: str) -> None:
        self.number = crc32(name.encode())
        self.updates = 0
        self.assignments = (0, 0)
        self.former: list[tuple[weakref.ref[Any], tuple[int, tuple[int, int]]]] = []

    def assign(self, former: Any, new: Any, given: object) -> None:
        """Count an assignment."""
        known = [entry for entry in self.former if entry[0]() is not None and entry[0]() is not former]
        before = self.updates, self.assignments
        self.former = [*known[-_KEPT:], (weakref.ref(former), before)]
        after = before[0], (before[1][0] + 1, before[1][1] + _checksum(given))
        if hasattr(new, _MARK):
            after = 0, (0, 0)
        for reference, then in known:
            if reference() is new:
                after = then
        self.updates, self.assignments = after
        _sums[0] += self.number * (after[0] - before[0])
        _sums[1] += self.number * (sum(after[1]) - sum(before[1]))

    def told(self, assignments: bool) -> str:
        """Return it in the words of users."""
        found = [counted(self.updates, "update")]
        if assignments and self.assignments[0]:
            found.append(counted(self.assignments[0], "assignment"))
        if assignments and self.assignments[1]:
            found.append(f"of values with the checksum {self.assignments[1] & 0xFFFFFFFF:08x}")
        return ", ".join(found)


_sums: Final = [0, 0]
_counts: Final[dict[str, _Counts]] = {}
"""By the names of Variables."""


def count(
    variables: Sequence[Any],
    former: Sequence[Any] | None = None,
    new: Sequence[Any] | None = None,
    given: object = None,
) -> None:
    """Count new values of Variables; see :func:`tape_core.support.layouts.count`."""
    total, known = 0, shared.get
    for k, variable in enumerate(variables):
        found = known(id(variable))
        if found is None and type(variable) is ProxyType:
            variable = variable._place  # of an argument of a compiled function
            found = known(id(variable))
        if found is None or found[0]() is not variable:
            continue
        counts = _counts.get(found[1]) or _counts.setdefault(found[1], _Counts(found[1]))
        if former is None or new is None:
            counts.updates += 1
            total += counts.number
        else:
            counts.assign(former[k], new[k], given)
    _sums[0] += total


def _checksum(given: Any) -> int:
    """Return the checksum of host data; that of anything else is 0."""
    if hasattr(given, "tobytes"):
        return crc32(given.tobytes())
    return crc32(repr(given).encode()) if isinstance(given, bool | int | float | complex) else 0


def with_mark(array: torch.Tensor, group: str) -> torch.Tensor:
    """Return what a collective has made, which is noted to be the same in all processes if they are in its group.

    Where it is assigned to a Variable, that has nothing any more of what each process has done with it before.
    """
    if distributed_c10d._resolve_process_group(group).size() == dist.get_world_size():  # type: ignore[arg-type,attr-defined]
        setattr(array, _MARK, True)
    return array


def described(variable: Any) -> str:
    """Return the name of a Variable that is the same in all processes, with a checksum of its value."""
    return f"the value of {shared_name(variable)}, with the checksum {crc32(bytes_of(variable._raw)):08x},"


def forget() -> None:
    """Forget what was counted: the processes begin anew, all of them."""
    _sums[:] = 0, 0
    _counts.clear()


def sums() -> Sums:
    """Return the checksums of what was counted."""
    return Sums(*_sums)


def mixed(digest: int, before: Sums, *, assignments: bool = True) -> int:
    """Return a checksum into which what was counted since then has gone.

    Args:
        digest: the checksum of 32 bits; it is returned where nothing was counted.
        assignments: whether these count, and not only updates.
    """
    now = [_sums[0] - before.updates, _sums[1] - before.assignments if assignments else 0]
    return digest if now == [0, 0] else crc32(b"".join([(n & _MASK).to_bytes(8, "little") for n in now]), digest)


def told(*, assignments: bool = True) -> list[str]:
    """Return what was counted, in the words of users, in an order that is the same in all processes."""
    return [f"{name} ({counts.told(assignments)})" for name, counts in sorted(_counts.items())]
