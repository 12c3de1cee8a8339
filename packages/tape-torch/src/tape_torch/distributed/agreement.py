"""What several processes do together before they act, so that an error of one is an error on all, and none waits."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.distributed as dist

from tape_torch.peers import naming_peers

SHOWN: Final = 80  # characters of a text in a message
LISTED: Final = 8  # differences


def has_processes() -> bool:
    """Return whether there is a process group."""
    return dist.is_available() and dist.is_initialized()


def check_met(caller: str) -> None:
    """Refuse to act alone in one of several processes that have not met: each would take itself for the only one.

    Raises:
        RuntimeError: `torchrun` has started several, and there is no process group yet.
    """
    if not has_processes() and "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError(
            f"{caller}: this is one of {os.environ['WORLD_SIZE']} processes, which have not met yet: call "
            f"tape_torch.distributed.mesh(axes) before"
        )


def gathered(group: Any, value: object) -> list[Any]:
    """Return what each process gives."""
    if group is None:
        return [value]
    found: list[Any] = [None] * dist.get_world_size(group)
    with naming_peers("what the processes tell each other"):
        dist.all_gather_object(found, value, group=group)
    return found


def on_first(group: Any, act: Callable[[], Any]) -> Any:
    """Return the result of a function that process 0 calls, or raise its error, on every process."""
    if group is None:
        return act()
    told: list[Any] = [None, None]
    if dist.get_rank(group) == 0:
        try:
            told[0] = act()
        except Exception as error:  # noqa: BLE001 - whatever it is, all processes are to raise it
            told[1] = error
    with naming_peers("what process 0 tells all"):
        dist.broadcast_object_list(told, src=0, group=group)
    if told[1] is not None:
        raise told[1]
    return told[0]


def on_all(what: str, group: Any, act: Callable[[], None]) -> None:
    """Call a function on every process; if one raises, raise its error on all, with the number of the process."""
    caught: Exception | None = None
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever it is, all processes are to raise it
        caught = error
    if group is None:
        if caught is not None:
            raise caught
        return
    rank = dist.get_rank(group)
    told = None if caught is None else of_process(what, rank, type(caught), str(caught))
    for one in gathered(group, told):
        if one is not None:
            raise one from caught


def agree_on(caller: str, group: Any, what: str, value: Mapping[str, str], *, cure: str = "", on: str = "cpu") -> None:
    """Check that all processes give the same, in the same order.

    Args:
        caller, what, cure: for the message.
        value: what this process gives, by name.
        on: the kind of device that the group sends from.

    Raises:
        ValueError: they do not; the message says what differs, and where.
    """
    if group is None or dist.get_world_size(group) == 1:
        return
    digest = int.from_bytes(hashlib.sha256(json.dumps(list(value.items())).encode()).digest()[:7])
    both = torch.tensor([digest, -digest], device=on)
    with naming_peers(f"{caller}, which compares what the processes give,"):
        dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
    greatest, least = both.tolist()
    if greatest == -least:
        return
    given = gathered(group, dict(value))
    problems = []
    for name in dict.fromkeys(name for one in given for name in one):
        of_first = given[0].get(name, "missing")
        for rank, one in enumerate(given):
            if (here := one.get(name, "missing")) != of_first:
                shown, first = _where_they_differ(here, of_first)
                problems.append(f"{name!r} is {shown} on process {rank} and {first} on process 0")
    listed = "\n  ".join([*(problems or ["their order differs"])[:LISTED], *["..."] * (len(problems) > LISTED)])
    raise ValueError(
        f"{caller}: the processes must give the same {what}, and do not:\n  {listed}{cure and chr(10) + cure}"
    )


def _where_they_differ(one: str, other: str) -> tuple[str, str]:
    """Return two texts, of long ones the part in which they first differ."""
    if max(len(one), len(other)) <= SHOWN:
        return one, other
    same = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    begin = max(same - SHOWN // 2, 0)
    shown = [f"{'...' if begin else ''}{text[begin : begin + SHOWN]}..." for text in (one, other)]
    return shown[0], shown[1]


def of_process(what: str, rank: int, kind: type[BaseException], text: str) -> Exception:
    """Return the error of a process, to be raised on all."""
    text = text.removeprefix(f"{what}: ")
    whose = text if text.startswith("process ") else f"process {rank}: {text}"
    for known in (FileNotFoundError, NotADirectoryError, PermissionError, OSError, TypeError, ValueError):
        if issubclass(kind, known):
            return known(f"{what}: {whose}")
    return RuntimeError(f"{what}: {whose} ({kind.__name__})")
