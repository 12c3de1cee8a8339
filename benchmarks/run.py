"""Measure Tape against NumPy by hand, HIPS autograd, MyGrad, PyTorch, JAX and TensorFlow, as they are and compiled."""

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
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import allocator
import comparison
import compiled
import derivatives
import draws
import environments
import growth
import measure
import report
import startup
import training
from peers import PEERS, start, threads_environment
from workers import WorkerError, Workers
from workloads import THREADED, WORKLOADS

# Read when NumPy is loaded or the process starts, hence the second process at the end of this file.
ENVIRONMENT = threads_environment(1) | {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",  # what compiling takes is measured
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
if allocator.is_glibc():
    ENVIRONMENT |= allocator.KEEPS  # for all peers; allocator.py measures the other conditions

ROOT = Path(__file__).resolve().parent
PARTS = (
    "times", "threads", "growth", "derivatives", "compiled", "training", "draws", "memory", "imports", "allocator",
)  # fmt: skip
COMPARING = 2  # processes for the parts that compare, one after the other


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
    add("--peers", type=choice(tuple(PEERS)), default=list(PEERS), help=", ".join(PEERS))
    add("--parts", type=choice(PARTS), default=list(PARTS), help=", ".join(PARTS))
    add("--seconds", type=float, default=4, help="for each workload (default: 4), its preparation apart")
    add("--compile-limit", type=float, default=60, help="seconds that a first step may take (default: 60)")
    add("--environments", type=Path, help="a folder that environments.py has made; without it, all is looked for here")
    add("--quick", action="store_true", help="a look: 1 second for each workload, 30 for a first step")
    add("--out", type=Path, default=ROOT / "results", help="folder for json, md and png")
    add("--docs", action="store_true", help="also write the documentation's page and pictures")
    add("--again", action="store_true", help="measure nothing: write pages and pictures of the results of --out again")
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


def passing(line: str) -> None:
    show(line, last=False)


def times(workers: Workers, names: list[str], peers: list[str], seconds: float, limit: float, **options: Any) -> Any:
    """workload -> what measure.measure finds."""
    results = {}
    for name in names:
        try:
            found = results[name] = measure.measure(workers, name, peers, seconds, limit, passing, **options)
        except WorkerError as error:
            show(f"{name} FAILED: {error}")
            results[name] = {"times": {}, "first": {}, "failures": {"numpy": str(error)}, "unfinished": {}}
            continue
        minima = ", ".join(f"{peer} {t['minimum'] * 1e3:.3g}" for peer, t in found["times"].items())
        show(f"{name}: prepared in {found['prepared']:.0f} s, agree within {found['difference']:.0e}")
        show(f"{name}: minima in ms: {minima}")
        for peer, why in found["failures"].items():
            show(f"{name}: {peer} FAILED: {why}")
        for peer, why in found["unfinished"].items():
            show(f"{name}: {peer} {why}")
    return results


def on_all_threads(pythons: dict[str, str], names: list[str], peers: list[str], seconds: float, limit: float) -> Any:
    """The workloads that more threads may help, with a thread for each core."""
    count = os.cpu_count() or 1
    if count == 1:
        return {}
    left_out = (
        "autograd", "mygrad", "jax", "tensorflow", "torch_func", "tape_checkpoint", "tape_inductor", "numpy_out",
    )  # fmt: skip
    with Workers(pythons, ENVIRONMENT | threads_environment(count)) as workers:
        names, peers = [name for name in names if name in THREADED], [peer for peer in peers if peer not in left_out]
        found = times(workers, names, peers, seconds, limit, replicas=1)
    speed_up = one_and_all_threads(pythons, count, seconds) if {"wide", "tape_compiled"} <= {*names, *peers} else None
    return {"count": count, "workloads": found, "speed_up": speed_up}


def one_and_all_threads(pythons: dict[str, str], count: int, seconds: float) -> dict[str, float]:
    """Seconds of wide, compiled, on one thread and on all: in turns, for processes and minutes differ."""
    samples: dict[str, list[float]] = {"one": [], "all": []}
    with ExitStack() as stack:
        ready = []
        for key, threads in (("one", 1), ("all", count)):
            workers = stack.enter_context(Workers(pythons, ENVIRONMENT | threads_environment(threads)))
            for k in range(measure.REPLICAS):
                worker = workers.get(f"tape {k}", "tape", ["tape_compiled"])
                worker.ask("prepare", "wide", "tape_compiled", False, limit=60)
                ready.append((key, worker))
        begin = perf_counter()
        while perf_counter() - begin < seconds:
            for key, worker in ready:
                samples[key].append(worker.ask("sample", "tape_compiled", limit=60))
    minima = {key: min(found) for key, found in samples.items()}
    show(f"wide, compiled, in turns: one thread {minima['one'] * 1e3:.3g} ms, all {minima['all'] * 1e3:.3g} ms")
    return minima


def compare_all(comparisons: comparison.Comparisons, peers: list[str], seconds: float) -> dict[str, Any]:
    """All comparisons, in a process of their own."""
    for peer in peers:
        start(peer)
    return comparison.measure(comparisons, peers, seconds)


def compare_in_processes(comparisons: comparison.Comparisons, peers: list[str], seconds: float) -> dict[str, Any]:
    """The minima of several processes, of the peers that live with Tape."""
    peers = [peer for peer in peers if PEERS[peer].environment == "tape"]
    rounds = []
    for _ in range(COMPARING):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            rounds.append(executor.submit(compare_all, comparisons, peers, seconds / COMPARING).result())
    results = comparison.merged(rounds)
    for name, found in results.items():
        show(f"{name}: minima in ms: " + ", ".join(f"{c} {t * 1e3:.3g}" for c, t in found["minima"].items()))
    return results


PEAKS = {
    "mnist_mlp": (
        "numpy", "tape", "tape_compiled", "tape_torch", "autograd", "mygrad", "torch", "jax_jit", "tf_function",
    ),
    "mnist_step": ("numpy", "tape", "tape_compiled"),
    "convnet": ("numpy", "tape", "tape_compiled", "tape_torch", "torch"),  # by hand, it keeps all windows
    "deep_mlp": ("numpy", "tape", "tape_compiled", "tape_checkpoint"),
}  # fmt: skip


def peak_memory(pythons: dict[str, str], names: list[str], peers: list[str]) -> dict[str, Any]:
    """workload -> peer -> bytes of `arrays` where they are known, and of the `process`: each in a fresh one."""
    peaks: dict[str, Any] = {}
    for name, of in PEAKS.items():
        for peer in (peer for peer in of if peer in peers and name in names):
            passing(f"memory, {name}: {peer}")
            with Workers(pythons, ENVIRONMENT) as workers:
                worker = workers.get(peer, PEERS[peer].environment, [peer])
                peaks.setdefault(name, {})[peer] = worker.ask("peak_memory", name, peer, limit=120)
    for name, found in peaks.items():
        shown = ", ".join(f"{p} {b['arrays'] / 2**20:.2f} MiB" for p, b in found.items() if "arrays" in b)
        show(f"memory of arrays, {name}: {shown}")
    return peaks


def imports(pythons: dict[str, str], peers: list[str], rounds: int) -> dict[str, Any]:
    """What the libraries cost before they compute."""
    found = {"times": startup.import_times(pythons, peers, rounds), "sizes": startup.sizes(pythons, peers)}
    show("imports: " + ", ".join(f"{peer} {t[0] * 1e3:.0f} ms" for peer, t in found["times"].items()))
    show("installed: " + ", ".join(f"{peer} {size / 1e6:.0f} MB" for peer, size in found["sizes"].items()))
    return found


def main() -> int:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    stored = options.out / "results.json"
    if options.again:
        write(json.loads(stored.read_text()), options)
        return 0
    seconds = 1 if options.quick else options.seconds
    limit = min(30, options.compile_limit) if options.quick else options.compile_limit
    rounds = 1 if options.quick else 3
    if load := busy():
        show(f"note: this machine is busy ({load}); trust minima, not medians")
    begin = perf_counter()
    pythons = environments.pythons(options.environments)
    with Workers(pythons, ENVIRONMENT) as workers:
        versions, missing = measure.find(workers, options.peers)
        for peer, why in missing.items():
            show(f"{peer}: skipped, {why}")
        if "numpy" not in versions:
            sys.exit("run.py: numpy, by hand, is what the others are compared with: name it among the peers")
        peers = list(versions)
        results: dict[str, Any] = {
            "system": {
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "processor": processor(),
                "cores": os.cpu_count(),
                "platform": f"{platform.system()} {platform.machine()}",
                "python": platform.python_version(),
                "busy": load,
            },
            "versions": versions,
            "missing": missing,
            "limit": limit,
            "workloads": {},
            "failures": {},
        }
        names = options.workloads
        parts: dict[str, Callable[[], Any]] = {
            "times": lambda: times(workers, names, peers, seconds, limit),
            "growth": lambda: growth.measure(workers, peers, seconds / 20, limit / 4, show),
            "threads": lambda: on_all_threads(pythons, names, peers, seconds / 2, limit),
            "derivatives": lambda: compare_in_processes(derivatives.COMPARISONS, peers, seconds / 2),
            "compiled": lambda: compare_in_processes(compiled.COMPARISONS, peers, seconds / 2),
            "training": lambda: compare_in_processes(training.COMPARISONS, peers, seconds / 2),
            "draws": lambda: compare_in_processes(draws.COMPARISONS, peers, seconds / 2),
            "memory": lambda: peak_memory(pythons, names, peers),
            "imports": lambda: imports(pythons, peers, rounds + 1),
            "allocator": lambda: allocator.experiment(peers, max(1, rounds - 1), seconds=0.3),
        }
        for part in (part for part in parts if part in options.parts):
            began = perf_counter()
            try:
                results["workloads" if part == "times" else part] = parts[part]()
            except Exception as error:  # noqa: BLE001  # what was measured before must not be lost
                results["failures"][part] = f"{type(error).__name__}: {error}"
                show(f"{part} FAILED: {error}")
            show(f"{part}: took {perf_counter() - began:.0f} s")
            if part == "growth":
                workers.end()
            stored.write_text(json.dumps(results, indent=1) + "\n")
    results["system"]["minutes"] = round((perf_counter() - begin) / 60, 1)
    stored.write_text(json.dumps(results, indent=1) + "\n")
    write(results, options)
    failed = [found for found in results["workloads"].values() if found["failures"]]
    return 1 if failed or results["failures"] else 0


def write(results: dict[str, Any], options: argparse.Namespace) -> None:
    """The page and its pictures."""
    docs = ROOT.parent / "docs"
    places = [(options.out / "results.md", options.out)]
    if options.docs:
        places.append((docs / "benchmarks-results.md", docs / "_static"))
    for page, pictures in places:
        try:
            import chart

            drawn = chart.draw(results, pictures)
        except ImportError as error:
            show(f"no pictures: {error}")
            drawn = {}
        relative = {name: path.relative_to(page.parent).as_posix() for name, path in drawn.items()}
        page.write_text(report.markdown(results, relative), encoding="utf-8")
        show(f"wrote {page}")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        command = [sys.executable, *sys.orig_argv[1:]]
        sys.exit(subprocess.call(command, env=os.environ | ENVIRONMENT))
    sys.exit(main())
