"""The times of the workloads: peers in processes of their own environments, in turns."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np
import timing
from peers import PEERS
from workers import START_LIMIT, Worker, WorkerError, Workers
from workloads import workload

REPLICAS = 3  # of the process with Tape: where code and data happen to lie changes a process's times by up to a fifth
TOLERANCE = 1e-4  # float32, and a recurrent chain of 100 steps
SLOW = 0.1  # seconds: of steps that take longer there are no more rounds than these
ROUNDS = 5


def groups(peers: list[str], replicas: int = 1) -> list[tuple[str, str, list[str]]]:
    """The names of workers, their environments, their peers."""
    found: dict[tuple[str, str], list[str]] = {}
    for peer in peers:
        known = PEERS[peer]
        copies = 1 if known.alone or known.environment != "tape" else replicas
        for k in range(copies):
            name = peer if known.alone else known.environment
            found.setdefault((f"{name} {k}", known.environment), []).append(peer)
    return [(name, environment, members) for (name, environment), members in found.items()]


def tolerance(name: str) -> float:
    return getattr(workload(name), "TOLERANCE", TOLERANCE)


def find(workers: Workers, peers: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The versions of the peers that are there, and why the others are not."""
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}

    def ask(group: tuple[str, str, list[str]]) -> None:
        name, environment, members = group
        for peer in members:
            try:
                versions.update(workers.get(name, environment, []).ask("start", [peer], limit=START_LIMIT))
            except WorkerError as error:
                missing[peer] = str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(ask, groups(peers)))
    return {peer: versions[peer] for peer in peers if peer in versions}, missing


class Measured:
    """What becomes of one workload: samples of each peer, the first steps' seconds, and what went wrong."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reference: list[np.ndarray] | None = None
        self.samples: dict[str, list[float]] = {}
        self.first: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        self.unfinished: dict[str, str] = {}
        self.difference = 0.0

    def prepare(self, worker: Worker, peers: list[str], limit: float, check: bool) -> list[tuple[Worker, str]]:
        """The peers of a worker whose results agree, ready to be timed; `limit` is for each, in seconds."""
        ready = []
        for peer in peers:
            try:
                made = worker.ask("prepare", self.name, peer, check, limit=limit)
                if made is None:
                    continue
                if check:
                    self.check(peer, made["results"])
            except (WorkerError, ValueError) as error:
                late = str(error).startswith("did not finish")
                (self.unfinished if late else self.failures)[peer] = str(error)
                if not worker.alive:
                    break
                continue
            self.first[peer] = min(made["first"], self.first.get(peer, np.inf))
            ready.append((worker, peer))
        return ready

    def check(self, peer: str, results: list[np.ndarray]) -> None:
        if self.reference is None:
            self.reference = results  # by hand: the first of all
        difference = timing.disagreement(results, self.reference)
        if difference > tolerance(self.name):
            raise ValueError(f"differs from NumPy by hand by {difference:.1e}")
        self.difference = max(self.difference, difference)

    def result(self) -> dict[str, Any]:
        times = {p: {"minimum": min(s), "median": float(np.median(s)), "samples": s} for p, s in self.samples.items()}
        return {
            "times": {peer: times[peer] for peer in PEERS if peer in times},
            "first": self.first,
            "difference": self.difference,
            "tolerance": tolerance(self.name),
            "failures": self.failures,
            "unfinished": self.unfinished,
        }


def measure(
    workers: Workers,
    name: str,
    peers: list[str],
    seconds: float,
    limit: float,
    progress: Callable[[str], None],
    replicas: int = REPLICAS,
) -> dict[str, Any]:
    """Check that the peers agree, then time those that do, in turns."""
    measured, start = Measured(name), perf_counter()
    # By hand first, as the reference, and what has few seconds to compile alone; then the others, one on each core.
    of_tape, others = [], []
    for group in groups(peers, replicas):
        (of_tape if group[0].startswith("tape ") else others).append(group)

    def prepare(group: tuple[str, str, list[str]]) -> list[tuple[Worker, str]]:
        worker_name, environment, members = group
        progress(f"{name}: preparing {', '.join(members)}")
        try:
            worker = workers.get(worker_name, environment, members)
        except WorkerError as error:
            measured.failures |= dict.fromkeys(members, str(error))
            return []
        return measured.prepare(worker, members, limit, check=worker_name.endswith(" 0"))

    ready = [pair for group in of_tape for pair in prepare(group)]
    if measured.reference is None:
        raise WorkerError(f"{name}: there is nothing by hand to compare with: {measured.failures}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ready += [pair for pairs in pool.map(prepare, others) for pair in pairs]

    prepared = perf_counter() - start
    begin, rounds = perf_counter(), 0
    while rounds < ROUNDS or perf_counter() - begin < seconds:
        for worker, peer in ready:
            samples = measured.samples.setdefault(peer, [])
            if peer in measured.failures or (rounds >= ROUNDS and min(samples) > SLOW):
                continue
            try:
                samples.append(worker.ask("sample", peer, limit=60))
            except WorkerError as error:
                measured.failures[peer] = str(error)
        rounds += 1
        progress(f"{name}: {min(1.0, (perf_counter() - begin) / seconds):.0%}")
    for worker in {id(worker): worker for worker, _ in ready}.values():
        if worker.alive:
            worker.ask("forget", limit=60)
    measured.samples = {peer: s for peer, s in measured.samples.items() if s and peer not in measured.failures}
    return measured.result() | {"prepared": prepared}
