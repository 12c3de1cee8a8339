"""Steps after the first are compared by some numbers that go along with what is sent.

The first time that processes send something they compare what it is, by their store. Later on, one of them may call
what all have called before, and the others something else that all have called before: another order of layers, another
branch, another trace of a compiled function. Where it has the same shapes, PyTorch adds the gradient of one weight to
that of another. Likewise an optimizer may get another learning rate in one process alone.

So each process keeps a checksum of what it has sent and set since its last gradients, and puts a number for each bit of
it behind the next ones, 1 or -1. The sum over n processes is n or -n for each where they all agree, and for no process
so where they do not: all of them notice, at no further message. Only then do they tell each other what it was.

Where no gradients are sent, as along an axis of `TensorParallel` or by programs without a backward pass, the numbers go
by themselves after some collectives. Nobody waits for these: they are looked at before the next ones are sent.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import torch
import torch.distributed as dist
from tape_core.support import layouts
from torch.distributed import distributed_c10d
from torch.utils._python_dispatch import _disable_current_modes

from tape_torch import new_values
from tape_torch.divided import is_divided
from tape_torch.divided_names import is_alike
from tape_torch.divided_origins import meet_all, meet_in_first_step, waits_of
from tape_torch.meetings import check_same, ends
from tape_torch.mismatches import beginnings, meet
from tape_torch.notes import line
from tape_torch.peers import naming_peers

COUNT: Final = 32
"""Numbers that go along with gradients of a dtype."""

_OFTEN: Final = 32
"""Collectives after which the numbers go by themselves, if there were no gradients to go along with."""

_FEW: Final = 8
"""Collectives in a group of which a backward pass is the last, after which they do."""

_SHOWN: Final = 256  # of what was sent and set, that are told where processes differ

_EXACT: Final = {torch.float16: 1 << 11, torch.bfloat16: 1 << 8}
"""How many processes can be counted in a dtype; in others 2 ** 24."""

_CALL: Final = "the sum of gradients after a step"

_LAST: Final = "the end of all, after its last gradients"

_CURE: Final = (
    "All processes must run the same program, in each step: look for layers that are called in another order, another "
    "branch or another argument of a compiled function, a setting of an optimizer that is changed, and an update or an "
    "assignment of a Variable that is made or left out, in one process alone"
)

Text = str | list[str]
"""What was sent or set, in the words of users; a list of what belongs together."""


class _Log:
    """What this process has sent in a group, and set, since its last gradients there."""

    def __init__(self, begun: _Log | None = None) -> None:
        self.digest: int = 0 if begun is None else begun.digest
        self.texts: deque[Text] = deque(() if begun is None else begun.texts, maxlen=_SHOWN)
        self.sends = 0
        self.before: new_values.Sums = new_values.sums() if begun is None else begun.before
        """What new values of Variables there had been at its beginning."""

    def told(self) -> list[str]:
        """Return what there is, as text."""
        return _flat(self.texts)

    def add(self, number: int, text: Text, sends: int = 0) -> None:
        self.digest = crc32(number.to_bytes(4, "little"), self.digest)
        self.texts.append(text)
        self.sends += sends


def _flat(texts: Iterable[Text]) -> list[str]:
    found: list[str] = []
    for text in texts:
        found += text if isinstance(text, list) else [text]
    return found


_logs: Final[dict[str, _Log]] = {}
"""By the names of groups of processes."""

_set: Final = [_Log()]
"""What this process has set: of groups in which nothing was sent yet, this is what there is."""


def _log_of(group: str) -> _Log:
    log = _logs.get(group)
    if log is None:
        log = _logs[group] = _Log(_set[0])
    return log


def forget() -> None:
    """Forget what was sent and set: the processes begin anew, all of them."""
    _logs.clear()
    _under_way.clear()
    _waiting.clear()
    new_values.forget()
    _set[:] = [_Log()]


beginnings.append(forget)


def note(group: str, number: int, text: Text, sends: int = 1) -> None:
    """Note what this process sends in a group.

    Args:
        number: a checksum of it, of 32 bits.
        text: what it is.
        sends: how many collectives it is; 0 if it is followed by a `Ballot`.
    """
    log = _log_of(group)
    log.add(number, text, sends)
    if log.sends >= _OFTEN:
        compare_later(group)


def compare_variables() -> None:
    """Have optimizers of Variables that are divided, or alike in all processes, compared from now on."""
    layouts.compare_among(_is_shared, _meet, note_everywhere, new_values.count)


def _is_shared(variable: Any) -> bool:
    array = variable._array
    return is_alike(variable) or is_divided(getattr(array, "value", array))


def _meet(variables: Sequence[Any], told: list[str], cure: str) -> None:
    values = [new_values.described(v) for v in variables if is_alike(v) and not is_divided(v._raw)]
    meet_all([*told, *values], f"{cure}{new_values.CURE * bool(values)}")


def compare_later(group: str) -> None:
    """Send what this process says in a group by itself, to be compared before the next time that it says something."""
    if _size(group) > 1:
        tally = Tally(group)
        _under_way[group] = tally
    else:
        _logs[group] = _Log()


def end_pass() -> None:
    """Say that a backward pass is over: where it has sent more than a little, what this process says is sent."""
    for group, log in list(_logs.items()):
        if log.sends >= _FEW:
            compare_later(group)


def note_everywhere(text: str) -> None:
    """Note what this process has set, which is the same in all others."""
    number = crc32(text.encode())
    for log in (*_set, *_logs.values()):
        log.add(number, text)


class Ballot:
    """What this process says in one collective, and what comes of it.

    Args:
        group: the name of the processes that it is for.
    """

    __slots__ = ("_texts", "digest", "group")

    def __init__(self, group: str) -> None:
        if (former := _under_way.pop(group, None)) is not None:
            former.check()
        log = _log_of(group)
        _logs[group] = _Log()
        self.group = group
        self.digest = new_values.mixed(log.digest, log.before)
        self._texts = log.texts

    def numbers(self, like: torch.Tensor) -> torch.Tensor:
        """Return what is added up with the gradients, in the dtype of a tensor and where it is."""
        return _numbers(self.digest, _size(self.group), like.dtype, like.device)[0]

    def check(self, sums: torch.Tensor) -> None:
        """Compare what has come of it with what would have, if all processes had said the same.

        On the CPU it is compared at once. Elsewhere that would wait for the device, so it is with the next one.

        Raises:
            MismatchError: another process has said something else, by all processes.
        """
        expected = _numbers(self.digest, _size(self.group), sums.dtype, sums.device)[1]
        if sums.device.type == "cpu":
            if not torch.equal(sums, expected):
                self.differ()
            return
        waiting, _waiting[:] = list(_waiting), []
        _waiting.append((self, (sums == expected).all().to("cpu", non_blocking=True), _event(sums.device)))
        for ballot, is_same, event in waiting:
            event.synchronize()
            if not bool(is_same):
                _waiting.clear()
                ballot.differ()

    def differ(self) -> None:
        """Have the processes, all of which call this, tell each other what they have sent and set.

        Raises:
            MismatchError: in any case.
        """
        told = [*new_values.told(), *_flat(self._texts)]
        group = distributed_c10d._resolve_process_group(self.group)  # type: ignore[arg-type,attr-defined]
        with naming_peers("the sum of gradients"):
            meet([_CALL, *told], group, waits_of, _CURE)
        raise RuntimeError(
            f"{_CALL}: the processes have not sent and set the same since the gradients before, and all say that it "
            f"was {'; '.join(told)}: their numbers were changed on the way"
        )


def compare_in_passing(store: Any) -> None:
    """Tell the others what this process has sent and set since its last gradients; who comes last compares it.

    Nobody waits for processes that do not come. All of them call this, or none.

    Args:
        store: PyTorch's, of this occasion alone.

    Raises:
        MismatchError: they have not sent and set the same. Only who comes last raises it.
    """
    for tally in list(_under_way.values()):
        tally.check()
    _under_way.clear()
    rank, size = dist.get_rank(), dist.get_world_size()
    # With the processes of each group, since who comes last is in some of the groups alone.
    own = {
        group: [[digest, [*new_values.told(assignments=False), *log.told()], line()], ranks]
        for group, log in _logs.items()
        if (digest := new_values.mixed(log.digest, log.before, assignments=False)) or log.texts
        if (ranks := _ranks(group)) is not None
    }
    try:
        store.set(f"{rank}", json.dumps(own))
        if store.add("came", 1) < size:
            return
        said = {k: json.loads(store.get(f"{k}")) for k in range(size)}
    except dist.DistNetworkError:  # the process that keeps the store has come to its end before, and waits for nobody
        return
    for group, ranks in {group: ranks for told in said.values() for group, (_, ranks) in told.items()}.items():
        found: dict[int, Any] = {k: said[k][group][0] if group in said[k] else [0, [], "the end"] for k in ranks}
        if len({digest for digest, _, _ in found.values()}) > 1:
            check_same({k: [[_LAST, *told], at] for k, (_, told, at) in found.items()}, _CURE)


ends.append(compare_in_passing)


def _ranks(group: str) -> list[int] | None:
    """Return the numbers of the processes of a group; None if this is none of them, or there is no such group."""
    try:
        return dist.get_process_group_ranks(distributed_c10d._resolve_process_group(group))  # type: ignore[arg-type,attr-defined]
    except (LookupError, RuntimeError, ValueError):
        return None


class Tally:
    """A ballot in a collective of its own.

    Args:
        group: the name of the processes that it is for.
    """

    def __init__(self, group: str) -> None:
        self._ballot = Ballot(group)
        processes: Any = distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type,attr-defined]
        self._sums = self._ballot.numbers(_example(distributed_c10d._get_object_coll_device(processes))).clone()
        meet_in_first_step(_CALL, processes)
        with naming_peers(_CALL), _disable_current_modes():  # it is none of the program's own
            self._work: Any = dist.all_reduce(self._sums, group=processes, async_op=True)

    def check(self) -> None:
        """Wait, and compare as `Ballot.check` does."""
        with naming_peers(_CALL):
            self._work.wait()
        self._ballot.check(self._sums)


class Standing:
    """The votes of a compiled function: constants of its program, which are set anew before each run.

    Args:
        number, told: as for `note`: of what it sends, in order.
        groups: the names of the groups that it sends in.
    """

    def __init__(self, number: int, told: list[str], groups: Sequence[str]) -> None:
        self._number, self._told = number, told
        self._numbers: dict[str, list[torch.Tensor]] = {group: [] for group in groups}
        self._ballots: dict[str, Ballot] = {}

    def numbers(self, group: str, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return what is added up with other arrays of a dtype, in a group."""
        found = torch.zeros(COUNT, dtype=dtype, device=device)
        self._numbers.setdefault(group, []).append(found)
        return found

    def begin(self) -> None:
        """Set the numbers, before a run."""
        for group, numbers in self._numbers.items():
            # Where none of its sums has room for them, a run counts as several of its collectives.
            note(group, self._number, self._told, 0 if numbers else _OFTEN // 4)
            if not numbers:
                continue
            before, ballot = self._ballots.get(group), Ballot(group)
            self._ballots[group] = ballot
            if before is None or before.digest != ballot.digest:
                for own in numbers:
                    own.copy_(ballot.numbers(own))

    def check(self, group: str, sums: torch.Tensor) -> None:
        """Compare, as `Ballot.check` does, what has come of them in a run."""
        self._ballots[group].check(sums)


def compare_now(told: list[str]) -> None:
    """Compare with all others, by a message, what this process is about to do: in a first run.

    Raises:
        MismatchError: it is something else, or they do not come.
    """
    meet(told, dist.group.WORLD, waits_of, _CURE)


_waiting: Final[list[tuple[Ballot, torch.Tensor, Any]]] = []

_under_way: Final[dict[str, Tally]] = {}
"""By the names of groups what this process has said there by itself, and has not compared yet."""


@lru_cache(maxsize=8)
def _example(device: str) -> torch.Tensor:
    return torch.empty(0, device=device)


def _event(device: torch.device) -> Any:
    event: Any = torch.Event(device)
    event.record()
    return event


@lru_cache(maxsize=256)
def _numbers(digest: int, n: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    bits = [1 if digest >> k & 1 else -1 for k in range(COUNT)]
    if n > _EXACT.get(dtype, 1 << 24):
        bits = [0] * COUNT
    own = torch.tensor(bits, dtype=dtype, device=device)
    return own, own * n


def _size(group: str) -> int:
    return int(distributed_c10d._resolve_process_group(group).size())  # type: ignore[arg-type,attr-defined]
