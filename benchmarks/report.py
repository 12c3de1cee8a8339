"""The results as Markdown, with the targets that the project has set itself."""

from __future__ import annotations

from functools import partial
from typing import Any

from allocator import SYSTEM

Results = dict[str, Any]

# tape's time divided by the peer's: ratios of minima in one run, one thread.
TARGETS = {
    "scalar_chain": {"numpy": 2.4, "autograd": 0.15, "torch": 0.4},
    "small_mlp": {"numpy": 1.7, "autograd": 0.25, "torch": 0.85},
    "mnist_mlp": {"numpy": 1.10, "autograd": 0.6, "torch": 0.95},
    "wide": {"numpy": 1.3, "autograd": 0.6, "torch": 0.6},
    "rnn": {"numpy": 1.6, "autograd": 0.30, "torch": 0.75},
    "embed": {"numpy": 4, "autograd": 0.02, "torch": 1.0},
}
# The time of tape on PyTorch divided by that of PyTorch, eager.
TORCH_TARGETS = {
    "scalar_chain": 0.8,
    "small_mlp": 1.0,
    "mnist_mlp": 1.0,
    "wide": 1.0,
    "rnn": 0.85,
    "embed": 1.2,
    "convnet": 1.05,
}
# The time of compiled Tape divided by others', on one thread.
COMPILED_TARGETS = {
    "scalar_chain": {"numpy": 1.0},
    "small_mlp": {"numpy": 1.0},
    "mnist_mlp": {"numpy": 1.0},
    "wide": {"numpy": 0.35, "numpy_out": 0.9},
    "rnn": {"numpy": 0.9},
}
MEMORY_TARGET = 1.3  # times the hand-written peak
TORCH_MEMORY_TARGET = 1.05  # times PyTorch's peak
CHECKPOINT_MEMORY_TARGET = 0.3  # times the peak without
CHECKPOINT_TIME_TARGET = 1.4  # times the time without
IMPORT_TARGET = 0.060  # seconds above `import numpy`
ALLOCATOR_TARGET = 0.5  # of the hand-written time where glibc hands memory back

NAMES = {
    "numpy": "NumPy by hand",
    "numpy_out": "NumPy by hand, `out=`",
    "tape": "Tape",
    "tape_compiled": "Tape, compiled",
    "tape_checkpoint": "Tape, checkpoint",
    "tape_torch": "Tape on PyTorch",
    "tape_torch_compiled": "Tape on PyTorch, compiled",
    "autograd": "HIPS autograd",
    "mygrad": "MyGrad",
    "torch": "PyTorch eager",
    SYSTEM: "Tape, `TAPE_NUMPY_ALLOCATOR=system`",
}


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def verdict(value: float, target: float, shown: str) -> str:
    return f"≤ {shown} {'met' if value <= target else '**not met**'}"


def times_table(results: Results) -> str:
    workloads = results["workloads"]
    peers = [p for p in NAMES if any(p in w["times"] for w in workloads.values())]
    rows = []
    for name, workload in workloads.items():
        cells = [name]
        for peer in peers:
            t = workload["times"].get(peer)
            failed = "failed" if peer in workload["failures"] else ""
            cells.append(f"{number(t['minimum'] * 1e3)} ({number(t['median'] * 1e3)})" if t else failed)
        rows.append(cells)
    return table(["ms per step: minimum (median)", *(NAMES[p] for p in peers)], rows)


def ratios(results: Results, workload: str, peer: str, of: str = "tape") -> tuple[float, float] | None:
    """The time of `of` divided by the peer's: of the minima and of the medians."""
    times = results["workloads"][workload]["times"]
    if of not in times or peer not in times:
        return None
    tape, other = times[of], times[peer]
    return tape["minimum"] / other["minimum"], tape["median"] / other["median"]


def ratios_table(results: Results) -> str:
    peers = ["numpy", "autograd", "torch", "mygrad"]
    rows = []
    for workload in results["workloads"]:
        cells = [workload]
        for peer in peers:
            both = ratios(results, workload, peer)
            if both is None:
                cells.append("")
                continue
            cell = f"{number(both[0])} ({number(both[1])})"
            target = TARGETS.get(workload, {}).get(peer)
            if target is not None:
                cell += f" {verdict(both[0], target, str(target))}"
            cells.append(cell)
        rows.append(cells)
    return table(["Tape's time ÷", *(NAMES[p] for p in peers)], rows)


def compiled_table(results: Results) -> str:
    """Compiled functions against what is written by hand, and against the same steps as they are."""
    pairs = (
        ("numpy", "tape_compiled"), ("numpy_out", "tape_compiled"), ("tape", "tape_compiled"),
        ("torch", "tape_torch_compiled"), ("tape_torch", "tape_torch_compiled"),
    )  # fmt: skip
    rows = []
    for workload in results["workloads"]:
        cells = [workload]
        for peer, compiled in pairs:
            both = ratios(results, workload, peer, compiled)
            cell = "" if both is None else f"{number(both[0])} ({number(both[1])})"
            target = COMPILED_TARGETS.get(workload, {}).get(peer)
            if both is not None and target is not None:
                cell += f" {verdict(both[0], target, str(target))}"
            cells.append(cell)
        rows.append(cells)
    return table(["the time of compiled Tape ÷", *(NAMES[peer] for peer, _ in pairs)], rows)


def torch_table(results: Results) -> str:
    rows = []
    for workload in results["workloads"]:
        both = ratios(results, workload, "torch", "tape_torch")
        if both is None:
            continue
        cell = f"{number(both[0])} ({number(both[1])})"
        target = TORCH_TARGETS.get(workload)
        if target is not None:
            cell += f" {verdict(both[0], target, str(target))}"
        rows.append([workload, cell])
    return table(["the time of Tape on PyTorch ÷", NAMES["torch"]], rows)


def checkpoint_lines(results: Results) -> list[str]:
    """The time of a step with checkpoints, divided by that without."""
    lines = []
    for workload in results["workloads"]:
        both = ratios(results, workload, "tape", "tape_checkpoint")
        if both is not None:
            cell = f"{number(both[0])} ({number(both[1])}), {verdict(both[0], CHECKPOINT_TIME_TARGET, '1.4')}"
            lines.append(f"{workload}, the time of {NAMES['tape_checkpoint']} ÷ {NAMES['tape']}: {cell}.")
    return lines


# What is measured alike: torch's tensors are not NumPy's arrays, and are counted elsewhere.
MEMORY_RATIOS = (
    ("tape", "numpy", MEMORY_TARGET),
    ("tape_torch", "torch", TORCH_MEMORY_TARGET),
    ("tape_checkpoint", "tape", CHECKPOINT_MEMORY_TARGET),
)


def memory_lines(memory: dict[str, dict[str, int]]) -> list[str]:
    """The peaks of each workload's peers, and their ratios."""
    peers = [p for p in NAMES if any(p in peaks for peaks in memory.values())]
    rows = [[name, *(f"{peaks[p] / 2**20:.1f}" if p in peaks else "" for p in peers)] for name, peaks in memory.items()]
    lines = [table(["peak memory of one step, MiB", *(NAMES[p] for p in peers)], rows)]
    for name, peaks in memory.items():
        for tape, peer, target in MEMORY_RATIOS:
            if tape in peaks and peer in peaks:
                ratio = peaks[tape] / peaks[peer]
                shown = verdict(ratio, target, str(target))
                lines.append(f"{name}, {NAMES[tape]} ÷ {NAMES[peer]}: {ratio:.2f}, {shown}.")
    return lines


def import_lines(times: dict[str, list[float]]) -> list[str]:
    rows = [
        ["NumPy" if peer == "numpy" else "Tape with its NumPy backend", f"{wall * 1e3:.0f}", f"{cpu * 1e3:.0f}"]
        for peer, (wall, cpu) in times.items()
    ]
    lines = [table(["importing, in a fresh process", "ms", "processor ms"], rows)]
    if "tape" in times and "numpy" in times:
        wall, cpu = (t - n for t, n in zip(times["tape"], times["numpy"], strict=True))
        shown = verdict(wall, IMPORT_TARGET, f"{IMPORT_TARGET * 1e3:.0f} ms")
        lines.append(f"Tape above NumPy: {wall * 1e3:.0f} ms, {shown}; {cpu * 1e3:.0f} processor ms.")
    return lines


def allocator_lines(allocator: dict[str, dict[str, Any]]) -> list[str]:
    columns = list(next(iter(allocator.values())))
    rows = [
        [
            NAMES[column],
            *(
                f"{number(by[column]['minimum'] * 1e3)} ({number(by[column]['median'] * 1e3)})"
                f", {by[column]['faults']} faults"
                for by in allocator.values()
            ),
        ]
        for column in columns
    ]
    header = [
        "`wide`, ms: minimum (median), page faults per step",
        *(f"glibc {c}" for c in allocator),
    ]
    lines = [table(header, rows)]
    for condition, by in allocator.items():
        if "tape" not in by or "numpy" not in by:
            continue
        ratio = by["tape"]["minimum"] / by["numpy"]["minimum"]
        medians = by["tape"]["median"] / by["numpy"]["median"]
        line = f"Tape ÷ NumPy by hand, glibc {condition}: {ratio:.2f} (medians {medians:.2f})"
        if condition == "hands back":
            line += f", {verdict(ratio, ALLOCATOR_TARGET, str(ALLOCATOR_TARGET))}"
        lines.append(f"{line}.")
    return lines


def comparison_lines(title: str, comparisons: dict[str, Any]) -> list[str]:
    """What comparison.py measured."""
    rows = []
    for name, found in comparisons.items():
        minima = ", ".join(f"{column} {number(t * 1e3)}" for column, t in found["minima"].items())
        ratios = [
            f"{r['of']} : {r['to']} {number(r['value'])} {verdict(r['value'], r['target'], str(r['target']))}"
            for r in found["ratios"]
        ]
        rows.append([f"{name}: {found['what']}", minima, "; ".join(ratios)])
    return [table([title, "ms: minima", "ratios"], rows)]


def markdown(results: Results, chart: str) -> str:
    """The whole report; `chart` is the path of the picture relative to it."""
    system = results["system"]
    versions = ", ".join(f"{NAMES[p]} {v}" for p, v in results["versions"].items() if p != "numpy_out")
    parts = ["# Benchmark results"]
    parts.append(
        f"Written by `python benchmarks/run.py` on {system['date']}. {system['processor']}, "
        f"{system['platform']}, Python {system['python']}, one thread. {versions}."
    )
    if system["busy"]:
        parts.append(f"The machine was busy ({system['busy']}): trust minima, not medians.")
    parts += [f"Skipped: {peer} ({reason})." for peer, reason in results["missing"].items()]
    for workload, measured in results["workloads"].items():
        parts += [f"Failed: {workload}, {p}: {why}." for p, why in measured["failures"].items()]
    parts += [f"Failed: {part}: {why}." for part, why in results["failures"].items()]
    if results["workloads"]:
        parts.append(
            "A step computes the value and the gradients once. All peers agree within "
            f"{results['tolerance']:g} (relative to the largest element)."
        )
        parts.append(times_table(results))
        parts.append(f"![Time per step relative to NumPy by hand]({chart})")
        if any("tape" in w["times"] for w in results["workloads"].values()):
            parts += [
                "Ratios of the minima, of the medians in parentheses, with the project's targets:",
                ratios_table(results),
            ]
        if any("tape_torch" in w["times"] and "torch" in w["times"] for w in results["workloads"].values()):
            parts.append(torch_table(results))
        if any("tape_compiled" in found["times"] for found in results["workloads"].values()):
            parts.append(compiled_table(results))
        parts += checkpoint_lines(results)
    for part, lines in (
        ("derivatives", partial(comparison_lines, "derivatives, on NumPy")),
        ("compiled", partial(comparison_lines, "compiled functions, on NumPy")),
        ("training", partial(comparison_lines, "training")),
        ("memory", memory_lines),
        ("imports", import_lines),
        ("allocator", allocator_lines),
    ):
        if results.get(part):
            parts += lines(results[part])
    return "\n\n".join(parts) + "\n"
