"""Processes that run checks together: one is told what to run, and they all do; none waits for another for ever."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

from tape_conformance.checking import Skipped
from tape_conformance.distributions import Distribution

START_SECONDS = 300.0  # until all processes have imported everything, on a busy machine
CHECK_SECONDS = 120.0  # for one check, of which the longest takes a second
GRACE_SECONDS = 5.0  # for the others, once one process has failed: they may wait for it


@dataclass
class Processes:
    """A group of processes that run checks by their ids; they are started when the first check is run.

    A check in which a process fails, dies or does not answer in time ends the group; the next check starts a new one.
    """

    distribution: Distribution
    limit: float = CHECK_SECONDS
    _group: _Group | None = field(default=None, init=False)

    def run(self, id: str) -> None:
        """Run a check in all processes.

        Raises:
            Skipped: the check does not apply.
            AssertionError: it fails in a process, which the message names.
        """
        if self._group is None:
            self._group = _Group(self.distribution, self.limit)
            atexit.register(self.close)
        group = self._group
        try:
            answers = group.run(id, self.limit)
        except BaseException:  # a KeyboardInterrupt, too: processes are in the middle of something
            self.close()
            raise
        texts = [answer.get("error") for answer in answers]
        if None in texts and any(text is not None for text in texts):
            self.close()  # some may have sent what nobody has received
        if all(answer.get("skipped") is not None for answer in answers):
            raise Skipped(answers[0]["skipped"])
        failures = [f"process {rank}: {text}" for rank, text in enumerate(texts) if text is not None]
        if failures:
            raise AssertionError("\n".join(failures if len(set(texts)) > 1 else [f"in every process: {texts[0]}"]))

    def close(self) -> None:
        """End the processes."""
        group, self._group = self._group, None
        if group is not None:
            group.close()


class _Group:
    """Processes that have found each other."""

    def __init__(self, distribution: Distribution, limit: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tape-conformance-")
        store = Path(self._folder.name) / "store"
        self._size = distribution.processes
        self._answers: Queue[tuple[int, dict[str, Any] | None]] = Queue()
        self._children: list[subprocess.Popen[str]] = []
        self._errors: list[Path] = []
        for rank in range(self._size):
            errors = Path(self._folder.name) / f"stderr-{rank}"
            what = [distribution.backend, distribution.kind, str(self._size), distribution.module]
            command = [sys.executable, "-m", "tape_conformance.worker", *what, str(rank), str(store)]
            with errors.open("w") as file:
                child = subprocess.Popen(
                    [*command, str(limit)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    encoding="utf-8",
                    env={"OMP_NUM_THREADS": "1", **_LOOPBACK, **os.environ},
                )
            self._children.append(child)
            self._errors.append(errors)
            threading.Thread(target=self._read, args=(rank, child.stdout), daemon=True).start()
        self._gather("the start", START_SECONDS)

    def _read(self, rank: int, lines: IO[str]) -> None:
        for line in lines:
            self._answers.put((rank, json.loads(line)))
        self._answers.put((rank, None))  # it has ended

    def run(self, id: str, limit: float) -> list[dict[str, Any]]:
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(f"{id}\n")
            child.stdin.flush()
        return self._gather(f"the check {id}", limit + GRACE_SECONDS)

    def _gather(self, what: str, limit: float) -> list[dict[str, Any]]:
        """Return the answers of all processes, or raise an AssertionError that names those which give none."""
        found: dict[int, dict[str, Any]] = {}
        wait = limit
        while len(found) < self._size:
            try:
                rank, answer = self._answers.get(timeout=wait)
            except Empty:
                missing = [rank for rank in range(self._size) if rank not in found]
                failures = [f"process {rank}: {a['error']}" for rank, a in found.items() if a.get("error")]
                lines = [*failures, f"{what}: no answer of process {', '.join(map(str, missing))} within {wait:g} s"]
                raise AssertionError("\n".join([*lines, *[self._said(rank) for rank in missing]])) from None
            if answer is None:
                raise AssertionError(f"{what}: process {rank} has ended\n{self._said(rank)}")
            found[rank] = answer
            if answer.get("error") is not None:
                wait = min(wait, GRACE_SECONDS)
        return [found[rank] for rank in range(self._size)]

    def _said(self, rank: int) -> str:
        """Return the end of what a process has written to stderr, where it also says what it was doing."""
        return self._errors[rank].read_text(encoding="utf-8", errors="replace")[-3000:].strip()

    def close(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        self._folder.cleanup()


# Gloo looks up the host's name otherwise, which fails where there is no network.
_LOOPBACK = next(({"GLOO_SOCKET_IFNAME": name} for name in ("lo", "lo0") if Path("/sys/class/net", name).exists()), {})
