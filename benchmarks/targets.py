"""What the project has set itself, and what was measured: ratios of minima in one run, one thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARED = ("derivatives", "compiled", "training", "draws")
"""The parts whose columns are timed in turns, by comparison.py."""

Results = dict[str, Any]

# The time of compiled Tape divided by others'.
COMPILED = {
    "scalar_chain": {"numpy": 1.0},
    "small_mlp": {"numpy": 1.0, "jax_jit": 1.2},
    "mnist_mlp": {"numpy": 1.0},
    "wide": {"numpy_out": 0.9, "jax_jit": 1.5},
    "rnn": {"numpy": 0.9, "jax_jit": 2.0},
    "jacobian": {"numpy": 1.5, "jax_jit": 1.5},
    "gmm": {"numpy": 1.0, "jax_jit": 1.2},
}
# The time of Tape as it is, on NumPy.
EAGER = {
    "scalar_chain": {"numpy": 2.4, "autograd": 0.15, "torch": 0.4},
    "small_mlp": {"numpy": 1.7, "autograd": 0.25, "torch": 0.85},
    "mnist_mlp": {"numpy": 1.10, "autograd": 0.6, "torch": 0.95},
    "wide": {"numpy": 1.3, "autograd": 0.6, "torch": 0.6},
    "rnn": {"numpy": 1.6, "autograd": 0.30, "torch": 0.75},
    "embed": {"numpy": 4, "autograd": 0.02, "torch": 1.0},
    "jacobian": {"autograd": 0.12, "torch_func": 1.2},
    "hessian": {"autograd": 0.3, "torch_func": 1.0},
}
# The time of Tape on PyTorch, as it is and compiled.
ON_TORCH = {
    "scalar_chain": {"torch": 0.8},
    "small_mlp": {"torch": 1.0},
    "mnist_mlp": {"torch": 1.0},
    "wide": {"torch": 1.0},
    "rnn": {"torch": 0.85},
    "embed": {"torch": 1.2},
    "convnet": {"torch": 1.05},
}
COMPILED_ON_TORCH = {"small_mlp": {"torch": 0.85}, "rnn": {"torch": 0.85}}
INDUCTOR = {name: {"torch_compile": 1.05} for name in ("small_mlp", "mnist_mlp", "wide", "rnn")}

MEMORY = {  # peaks of arrays: (workload, peer, other peer) -> the largest ratio
    ("mnist_mlp", "tape", "numpy"): 1.3,
    ("mnist_mlp", "tape_torch", "torch"): 1.05,
    ("convnet", "tape_torch", "torch"): 1.05,
    ("mnist_mlp", "tape_compiled", "tape"): 0.6,
    ("mnist_step", "tape_compiled", "tape"): 0.6,
    ("deep_mlp", "tape_checkpoint", "tape"): 0.3,
}
CHECKPOINT_TIME = 1.4  # times the time without
IMPORT = 0.060  # seconds above `import numpy`
ALLOCATOR = 0.5  # of the hand-written time where glibc hands memory back
AS_IT_IS = 0.35  # compiled, of the time by hand as people write and run it, in a process with glibc's own settings
LSTM, LSTM_FIRST = 0.008, 0.3  # seconds of a compiled step, and of the first
TRACED, TRACED_FIRST = 3_000, 0.4  # the length of a chain that has 10,000 calls, and seconds of its first step
THREADS = 1.6  # wide on one thread, divided by wide on two


@dataclass(frozen=True)
class Verdict:
    """A figure beside what is wanted of it."""

    what: str
    value: float
    target: float
    unit: str = "×"
    least: bool = False  # the target is the least, not the most

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.least else self.value <= self.target


def ratio(results: Results, workload: str, of: str, to: str) -> float | None:
    """The minimum of one peer divided by the other's."""
    times = results["workloads"].get(workload, {}).get("times", {})
    return times[of]["minimum"] / times[to]["minimum"] if of in times and to in times else None


def other_verdicts(results: Results, labels: dict[str, str]) -> Iterator[Verdict]:
    """All targets that are no ratios of two peers' times of a workload on one thread."""
    found = results["workloads"].get("lstm", {})
    if "tape_compiled" in found.get("times", {}):
        yield Verdict("lstm, compiled", found["times"]["tape_compiled"]["minimum"] * 1e3, LSTM * 1e3, "ms")
        yield Verdict("lstm, first call", found["first"]["tape_compiled"] * 1e3, LSTM_FIRST * 1e3, "ms")
    for points in [results.get("growth", {}).get("lengths", {}).get("tape_compiled", [])]:
        for length, _, first in points:
            if length == TRACED:
                yield Verdict("first call, 10,000 captured calls", first * 1e3, TRACED_FIRST * 1e3, "ms")
    threads = results.get("threads", {})
    if wide := threads.get("speed_up"):
        what = f"wide, compiled, {threads['count']} threads: speed-up, in turns"
        yield Verdict(what, wide["one"] / wide["all"], THREADS, least=True)
    if (slower := ratio(results, "deep_mlp", "tape_checkpoint", "tape")) is not None:
        yield Verdict("deep_mlp, time with checkpoints ÷ without", slower, CHECKPOINT_TIME)
    for (workload, of, to), target in MEMORY.items():
        peaks = results.get("memory", {}).get(workload, {})
        if "arrays" in peaks.get(of, {}) and "arrays" in peaks.get(to, {}):
            what = f"{workload}, peak memory: {labels[of]} ÷ {labels[to]}"
            yield Verdict(what, peaks[of]["arrays"] / peaks[to]["arrays"], target)
    imports = results.get("imports", {}).get("times", {})
    if "tape" in imports and "numpy" in imports:
        above = imports["tape"][0] - imports["numpy"][0]
        yield Verdict("import of Tape with NumPy, above NumPy", above * 1e3, IMPORT * 1e3, "ms")
    handing = results.get("allocator", {}).get("hands back", {})
    if "tape" in handing and "numpy" in handing:
        what = "wide where glibc hands memory back: Tape ÷ NumPy by hand"
        yield Verdict(what, handing["tape"]["minimum"] / handing["numpy"]["minimum"], ALLOCATOR)
    default = results.get("allocator", {}).get("default", {})
    if "tape_compiled" in default and "numpy" in default:
        what = "wide, each in a process as it is: Tape, compiled ÷ NumPy by hand"
        yield Verdict(what, default["tape_compiled"]["minimum"] / default["numpy"]["minimum"], AS_IT_IS)
    for part in COMPARED:
        for name, compared in results.get(part, {}).items():
            for r in compared["ratios"]:
                between = "above" if compared.get("calls") else "÷"
                unit = "µs" if compared.get("calls") else "×"
                yield Verdict(f"{name}: {r['of']} {between} {r['to']}", r["value"], r["target"], unit)
