"""A process that computes and times steps for run.py, in the Python of its peers: it needs NumPy and what they need.

It reads pickled pairs of a function's name and its arguments from its standard input, and writes pickled pairs of "ok"
and the result, or "error" and a message, to what was its standard output.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from time import perf_counter
from typing import Any

import memory
import peers
import timing
from workloads import Step, workload_data

prepared: dict[str, tuple[Step, int]] = {}


def start(names: list[str]) -> dict[str, str]:
    """The versions of the peers."""
    return {name: peers.start(name) for name in names}


def prepare(name: str, peer: str, returned: bool = True) -> dict[str, Any] | None:
    """Make a peer's step of a workload and take it: the seconds of the first, and what it computed."""
    step = peers.setup(name, peer, workload_data(name))
    if step is None:
        return None
    begin = perf_counter()
    value, gradients = step()
    first = perf_counter() - begin
    found = timing.results(lambda: (value, gradients)) if returned else []
    value = gradients = None
    prepared[peer] = step, timing.repeats(step)
    gc.collect()
    gc.freeze()  # what exists by now makes the collections between samples slow, and is not garbage
    return {"first": first, "results": found}


def sample(peer: str) -> float:
    """Seconds per step."""
    return timing.sample(*prepared[peer])


def forget() -> None:
    """Drop all steps."""
    prepared.clear()
    gc.unfreeze()
    gc.collect()


def first_and_best(name: str, peer: str, seconds: float) -> dict[str, float] | None:
    """The first step's seconds and the least of the next ones', for about so long: no comparison, no turns."""
    step = peers.setup(name, peer, workload_data(name))
    if step is None:
        return None
    begin = perf_counter()
    step()
    first = perf_counter() - begin
    begin = perf_counter()
    step()
    samples = [perf_counter() - begin]
    if samples[0] < 0.5:
        count, samples, begin = timing.repeats(step), [], perf_counter()
        while perf_counter() - begin < seconds or len(samples) < (5 if sum(samples) * count < 0.5 else 1):
            samples.append(timing.sample(step, count))
    step = None
    forget()
    return {"first": first, "best": min(samples)}


def peak_memory(name: str, peer: str) -> dict[str, float]:
    """Bytes: what arrays take at a step's peak, where the library tells, and the process's growth in three steps."""
    step = peers.setup(name, peer, workload_data(name))
    if step is None:
        raise ValueError(f"{name} has no step of {peer}")
    before = memory.of_process("VmRSS")
    for _ in range(3):
        step()
    return {"process": memory.of_process("VmHWM") - before} | memory.of_arrays(peer, step)


def main() -> None:
    # The channel is not where libraries print to.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    received = sys.stdin.buffer
    functions = {f.__name__: f for f in (start, prepare, sample, forget, first_and_best, peak_memory)}
    while True:
        try:
            name, arguments = pickle.load(received)
        except EOFError:
            return
        try:
            answer = "ok", functions[name](*arguments)
        except Exception as error:  # noqa: BLE001  # the other side decides what becomes of it
            answer = "error", f"{type(error).__name__}: {error}"
        pickle.dump(answer, out)
        out.flush()


if __name__ == "__main__":
    main()
