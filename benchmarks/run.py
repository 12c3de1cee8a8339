"""Measure Tape, on NumPy and on PyTorch, against NumPy by hand, HIPS autograd, MyGrad and PyTorch: one thread each."""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import allocator
import chart
import comparison
import compiled
import derivatives
import memory
import report
import startup
import timing
import training
from workloads import PEERS, WORKLOADS, setup, start, workload_data

# Read when NumPy is loaded or the process starts, hence the second process at the end of this file.
ENVIRONMENT = {f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "TAPE")}
if allocator.is_glibc():
    ENVIRONMENT |= allocator.KEEPS  # for all peers; allocator.py measures the other conditions

ROOT = Path(__file__).resolve().parent
PARTS = ("times", "derivatives", "compiled", "training", "memory", "imports", "allocator")
PROCESSES = 3  # where code and data happen to lie in memory changes a process's times by up to a fifth
TOLERANCE = 1e-4  # float32, and a recurrent chain of 100 steps


def arguments() -> argparse.Namespace:
    def choice(known: tuple[str, ...]):
        def parse(text: str) -> list[str]:
            names = text.split(",")
            unknown = [name for name in names if name not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
            return [name for name in known if name in names]

        return parse

    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--workloads", type=choice(WORKLOADS), default=list(WORKLOADS), help=", ".join(WORKLOADS))
    add("--peers", type=choice(PEERS), default=list(PEERS), help=", ".join(PEERS))
    add("--parts", type=choice(PARTS), default=list(PARTS), help=", ".join(PARTS))
    add("--seconds", type=float, default=12, help="for each workload (default: 12)")
    add("--quick", action="store_true", help="a look: 2 seconds for each workload")
    add("--out", type=Path, default=ROOT / "results", help="folder for json, md and png")
    add("--docs", action="store_true", help="also write the documentation's page and chart")
    return parser.parse_args()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def busy() -> str:
    """Says so where other work is running: this process has hardly begun."""
    if not hasattr(os, "getloadavg") or os.getloadavg()[0] < 0.5 * (os.cpu_count() or 1):
        return ""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def show(line: str, *, last: bool = True) -> None:
    """Print a line; on a terminal, a line that is not the last is written over by the next."""
    if last:
        print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, flush=True)
    elif sys.stdout.isatty():
        print(f"\r\x1b[K{line}", end="", flush=True)


def start_peers(names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The versions of the peers that are there, and why the others are not."""
    versions, missing = {}, {}
    for peer in names:
        try:
            versions[peer] = start(peer)
        except ImportError as error:
            missing[peer] = f"{type(error).__name__}: {error}"
            show(f"{peer}: skipped, {missing[peer]}")
    return versions, missing


def measure(workload: str, peers: list[str], seconds: float) -> dict[str, Any]:
    """Check that the peers agree, then time those that do."""
    data = workload_data(workload)
    reference = setup(workload, "numpy", data)
    assert reference is not None
    steps, failures, worst = {}, {}, 0.0
    for peer in peers:
        show(f"{workload}: checking {peer}", last=False)
        try:
            step = setup(workload, peer, data)
            if step is None:
                continue
            difference = timing.disagreement(step, reference)
        except Exception as error:  # noqa: BLE001  # one peer's failure must not end the run
            failures[peer] = f"{type(error).__name__}: {error}"
            continue
        if difference > TOLERANCE:
            failures[peer] = f"differs from NumPy by hand by {difference:.1e}"
            continue
        worst = max(worst, difference)
        steps[peer] = step

    def progress(done: float) -> None:
        show(f"{workload}: {done:.0%}", last=False)

    times = timing.interleaved(steps, seconds, progress) if steps else {}
    return {"times": times, "difference": worst, "failures": failures}


def measure_all(workloads: list[str], peers: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    """All workloads, in a process of their own."""
    for peer in peers:
        start(peer)
    return {workload: measure(workload, peers, seconds) for workload in workloads}


def measure_in_processes(workloads: list[str], peers: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    """The samples of several processes, put together."""
    rounds = []
    for number in range(1, PROCESSES + 1):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            rounds.append(executor.submit(measure_all, workloads, peers, seconds / PROCESSES).result())
        show(f"process {number} of {PROCESSES}: done", last=number == PROCESSES)
    results = {}
    for workload in workloads:
        each = [found[workload] for found in rounds]
        failures = {peer: why for found in each for peer, why in found["failures"].items()}
        times = {
            peer: timing.Times([sample for found in each for sample in found["times"][peer].samples])
            for peer in each[0]["times"]
            if peer not in failures
        }
        difference = max(found["difference"] for found in each)
        shown = ", ".join(f"{peer} {t.minimum * 1e3:.3g}" for peer, t in times.items())
        show(f"{workload}: agree within {difference:.0e}; minima in ms: {shown}")
        for peer, why in failures.items():
            show(f"{workload}: {peer} FAILED: {why}")
        results[workload] = {
            "times": {p: {"minimum": t.minimum, "median": t.median, "samples": t.samples} for p, t in times.items()},
            "difference": difference,
            "failures": failures,
        }
    return results


def compare_all(comparisons: comparison.Comparisons, peers: list[str], seconds: float) -> dict[str, Any]:
    """All comparisons, in a process of their own."""
    for peer in peers:
        start(peer)
    return comparison.measure(comparisons, peers, seconds)


def compare_in_processes(comparisons: comparison.Comparisons, peers: list[str], seconds: float) -> dict[str, Any]:
    """The minima of several processes."""
    rounds = []
    for _ in range(PROCESSES):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            rounds.append(executor.submit(compare_all, comparisons, peers, seconds / PROCESSES).result())
    results = comparison.merged(rounds)
    for name, found in results.items():
        show(f"{name}: minima in ms: " + ", ".join(f"{c} {t * 1e3:.3g}" for c, t in found["minima"].items()))
    return results


# MyGrad is not here: its tensors keep the gradients of the step before.
ON_NUMPY = dict.fromkeys(("numpy", "tape", "tape_compiled", "autograd"), memory.peak)
ON_TORCH = dict.fromkeys(("tape_torch", "torch"), memory.torch_peak)
PEAKS = {
    "mnist_mlp": ON_NUMPY | ON_TORCH,
    "convnet": ON_TORCH,  # by hand, it keeps all windows
    "deep_mlp": dict.fromkeys(("numpy", "tape", "tape_checkpoint"), memory.peak),
}


def peak_memory(peers: list[str]) -> dict[str, dict[str, int]]:
    """workload -> peer -> bytes."""
    peaks: dict[str, dict[str, int]] = {}
    for workload, by_peer in PEAKS.items():
        data = workload_data(workload)
        steps = {peer: setup(workload, peer, data) for peer in by_peer if peer in peers}
        peaks[workload] = {peer: by_peer[peer](step) for peer, step in steps.items() if step is not None}
        shown = ", ".join(f"{p} {size / 2**20:.2f} MiB" for p, size in peaks[workload].items())
        show(f"memory, {workload}: {shown}")
    return {workload: found for workload, found in peaks.items() if found}


def import_times(peers: list[str], rounds: int) -> dict[str, list[float]]:
    times = startup.import_times(peers, rounds)
    show("imports: " + ", ".join(f"{peer} {t[0] * 1e3:.0f} ms" for peer, t in times.items()))
    return times


def main() -> int:
    options = arguments()
    seconds = 2 if options.quick else options.seconds
    rounds = 1 if options.quick else 4
    if load := busy():
        show(f"note: this machine is busy ({load}); trust minima, not medians")
    versions, missing = start_peers(options.peers)
    peers = list(versions)
    results: dict[str, Any] = {
        "system": {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "processor": processor(),
            "platform": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "busy": load,
        },
        "versions": versions,
        "missing": missing,
        "tolerance": TOLERANCE,
        "workloads": {},
        "failures": {},
    }
    if "times" in options.parts:
        results["workloads"] = measure_in_processes(options.workloads, peers, seconds)
    others: dict[str, Callable[[], Any]] = {
        "derivatives": lambda: compare_in_processes(derivatives.COMPARISONS, peers, seconds / 2),
        "compiled": lambda: compare_in_processes(compiled.COMPARISONS, peers, seconds / 2),
        "training": lambda: compare_in_processes(training.COMPARISONS, peers, seconds),
        "memory": lambda: peak_memory(peers),
        "imports": lambda: import_times(peers, 3 * rounds),
        "allocator": lambda: allocator.experiment(peers, rounds, seconds=0.5),
    }
    for part in (part for part in others if part in options.parts):
        try:
            results[part] = others[part]()
        except Exception as error:  # noqa: BLE001  # what was measured before must not be lost
            results["failures"][part] = f"{type(error).__name__}: {error}"
            show(f"{part} FAILED: {error}")

    write(results, options.out / "results.md", options.out / "benchmarks.png")
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    if options.docs:
        docs = ROOT.parent / "docs"
        write(results, docs / "benchmarks-results.md", docs / "_static" / "benchmarks.png")
    failed = [w for w in results["workloads"].values() if w["failures"]]
    return 1 if failed or results["failures"] else 0


def write(results: dict[str, Any], page: Path, picture: Path) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    relative = picture.relative_to(page.parent).as_posix()
    page.write_text(report.markdown(results, relative), encoding="utf-8")
    show(f"wrote {page}")
    if results["workloads"]:
        try:
            chart.draw(results["workloads"], picture)
            show(f"wrote {picture}")
        except ImportError as error:
            show(f"no chart: {error}")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        command = [sys.executable, *sys.orig_argv[1:]]
        sys.exit(subprocess.call(command, env=os.environ | ENVIRONMENT))
    sys.exit(main())
