"""`wide` with glibc keeping freed memory and with glibc handing it back, each in a fresh process.

An array of 4 MB that goes back to the system costs a thousand page faults when the next one is
made. What glibc does depends on two thresholds. Setting either also switches off their dynamic
adjustment, so the conditions set both. tape-numpy sets them when it is loaded, unless
`TAPE_NUMPY_ALLOCATOR=system`: that changes the whole process, hence one process for each column.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

KEEPS = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
HANDS_BACK = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TRIM_THRESHOLD_": str(128 << 10)}
CONDITIONS: dict[str, dict[str, str]] = {"keeps": KEEPS, "default": {}, "hands back": HANDS_BACK}

SYSTEM = "tape, allocator=system"  # tape without its own setting


def is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def page_faults() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure(peer: str, seconds: float) -> dict[str, Any]:
    """In the child: the times of single steps."""
    from peers import setup, start
    from workloads import workload_data

    start(peer)
    step = setup("wide", peer, workload_data("wide"))
    assert step is not None
    for _ in range(5):
        step()
    times: list[float] = []
    faults, begin = page_faults(), perf_counter()
    while len(times) < 10 or perf_counter() - begin < seconds:
        before = perf_counter()
        step()
        times.append(perf_counter() - before)
    faults = (page_faults() - faults) // len(times)
    return {"times": times, "faults": faults}


def child(column: str, condition: dict[str, str], seconds: float) -> dict[str, Any]:
    """Measure one column in a process under a condition."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | condition
    environment.pop("TAPE_NUMPY_ALLOCATOR", None)
    if column == SYSTEM:
        environment["TAPE_NUMPY_ALLOCATOR"] = "system"
    peer = "tape" if column == SYSTEM else column
    command = [sys.executable, str(Path(__file__)), peer, str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{column}: {done.stderr.strip().splitlines()[-1]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def experiment(peers: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """condition -> column -> {minimum, median, faults}; the processes take turns."""
    columns: list[str] = [peer for peer in ("numpy", "numpy_out", "tape", "tape_compiled") if peer in peers]
    if "tape" in columns:
        columns.append(SYSTEM)
    conditions = CONDITIONS if is_glibc() else {"default": {}}
    results: dict[str, dict[str, Any]] = {}
    for name, condition in conditions.items():
        runs: dict[str, list[dict[str, Any]]] = {column: [] for column in columns}
        for _ in range(rounds):
            for column in columns:
                runs[column].append(child(column, condition, seconds))
        results[name] = {
            column: {
                "minimum": min(min(run["times"]) for run in done),
                "median": statistics.median(t for run in done for t in run["times"]),
                "faults": min(run["faults"] for run in done),
            }
            for column, done in runs.items()
        }
        shown = ", ".join(f"{c} {r['minimum'] * 1e3:.1f} ms" for c, r in results[name].items())
        print(f"allocator {name}: {shown}", flush=True)
    return results


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], float(sys.argv[2]))))
