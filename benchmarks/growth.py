"""How the time of an operation grows: with the length of a chain of them, and with the size of the arrays.

An operation is one of the forward pass; its time has its share of the gradient in it. Each peer is alone at work here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import groups
from workers import WorkerError, Workers

LENGTHS = (8, 100, 1_000, 3_000, 10_000)  # with its gradient, 3,000 are 10,000 calls
SIZES = tuple(10**k for k in range(1, 9))
OPERATIONS = 8  # of wide's forward pass
ARRAYS = 16  # of wide that live at once, at most

PEERS_OF_LENGTHS = (
    "numpy", "tape", "tape_compiled", "tape_torch", "autograd", "mygrad", "torch", "jax", "jax_jit", "tensorflow",
    "tf_function", "tf_xla",
)  # fmt: skip
PEERS_OF_SIZES = (
    "numpy", "tape", "tape_compiled", "autograd", "torch", "jax_jit", "tf_function", "tf_xla",
)  # fmt: skip
LONGEST = 3.0  # seconds: steps that would take longer are left out


def memory() -> float:
    """Bytes of this machine's memory that are free, or could be."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 8e9


def measure(
    workers: Workers, peers: list[str], seconds: float, limit: float, show: Callable[[str], None]
) -> dict[str, Any]:
    """`lengths` and `sizes`: peer -> [[length or size, seconds of an operation, seconds of the first step]]."""
    found: dict[str, Any] = {"lengths": {}, "sizes": {}, "unfinished": []}
    for what, workload, values, chosen in (
        ("lengths", "scalar_chain", LENGTHS, PEERS_OF_LENGTHS),
        ("sizes", "wide", SIZES, PEERS_OF_SIZES),
    ):
        for name, environment, members in groups([peer for peer in peers if peer in chosen]):
            for peer in members:
                points: list[list[float]] = []
                best = 0.0
                for k, value in enumerate(values):
                    expected = best * value / values[k - 1] if k else 0.0
                    if expected > LONGEST or (what == "sizes" and value * 4 * ARRAYS > memory() / 2):
                        break
                    try:
                        worker = workers.get(name, environment, members)
                        times = worker.ask("first_and_best", f"{workload}:{value}", peer, seconds, limit=limit)
                    except WorkerError as error:
                        found["unfinished"].append(f"{workload} with {value:,}, {peer}: {error}")
                        break
                    best = times["best"]
                    operations = value // 4 * 4 if what == "lengths" else OPERATIONS
                    points.append([value, best / operations, times["first"]])
                found[what][peer] = points
                shown = ", ".join(f"{value:,} {each * 1e6:.3g}" for value, each, _ in points)
                show(f"growth, {what}, {peer}: µs of an operation: {shown}")
                if what == "sizes":
                    workers.end()  # a process keeps memory that was freed
    return found
