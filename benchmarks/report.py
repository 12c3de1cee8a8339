"""The results as Markdown, with the targets that the project has set itself."""

from __future__ import annotations

from typing import Any

import targets
from allocator import SYSTEM
from peers import COMPILED, LABELS
from targets import COMPARED, Results

TAPES = ("numpy", "numpy_out", "tape", "tape_compiled", "autograd", "mygrad")
COMPILERS = ("numpy", "tape_compiled", "torch_compile", "jax", "jax_jit", "tensorflow", "tf_function", "tf_xla")
ON_TORCH = ("tape_torch", "tape_torch_compiled", "tape_inductor", "torch", "torch_func", "torch_compile")

LIBRARIES = {  # the peers whose versions tell those of all
    "numpy": "NumPy",
    "tape": "Tape",
    "torch": "PyTorch",
    "autograd": "HIPS autograd",
    "mygrad": "MyGrad",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
}

REPRODUCE = """\
```console
python -m nox -s bench -- --docs
```

makes an environment for each library where there is none yet, measures, and writes this page and its pictures. What
cannot be installed is left out and named above. Without nox, and parts of it:

```console
python benchmarks/environments.py FOLDER
python benchmarks/run.py --environments FOLDER --docs
python benchmarks/run.py --environments FOLDER --parts times --workloads gmm,lstm --compile-limit 300
```

How it measures is told in `benchmarks/README.md`."""


AGREEMENT = """\
A step computes the value and the gradients, or the Jacobian, once; one thread. All peers agree with NumPy by hand:
within 0.0001 of the largest element in float32, within 1e-10 in float64 (jacobian, hessian, gmm, ba, lstm)."""


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def number(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def verdict(value: float, target: float, least: bool = False) -> str:
    met = value >= target if least else value <= target
    return f"{'≥' if least else '≤'} {target:.3g} {'met' if met else '**missed**'}"


def times_table(workloads: dict[str, Any], peers: tuple[str, ...]) -> str:
    """Minima, with medians in parentheses."""
    peers = tuple(p for p in peers if any(p in w["times"] for w in workloads.values()))
    rows = []
    for name, workload in workloads.items():
        cells = [name]
        for peer in peers:
            t = workload["times"].get(peer)
            reason = "failed" if peer in workload["failures"] else "–" if peer in workload["unfinished"] else ""
            cells.append(f"{number(t['minimum'] * 1e3)} ({number(t['median'] * 1e3)})" if t else reason)
        if any(cells[1:]):
            rows.append(cells)
    return table(["ms: minimum (median)", *(LABELS[p] for p in peers)], rows)


def ratios_table(results: Results, of: str, wanted: dict[str, dict[str, float]], others: tuple[str, ...]) -> str:
    """The time of a peer divided by that of others, with the targets."""
    rows = []
    others = tuple(o for o in others if any(o in w["times"] for w in results["workloads"].values()))
    for name in results["workloads"]:
        cells = [name]
        for other in others:
            value = targets.ratio(results, name, of, other)
            target = wanted.get(name, {}).get(other)
            cell = "" if value is None else number(value)
            cells.append(cell if not cell or target is None else f"{cell} {verdict(value, target)}")
        if any(cells[1:]):
            rows.append(cells)
    return table([f"the time of {LABELS[of]} ÷", *(LABELS[o] for o in others)], rows)


def others_table(results: Results) -> str:
    rows = [
        [v.what, f"{number(v.value)} {v.unit}", verdict(v.value, v.target, v.least)]
        for v in targets.other_verdicts(results, LABELS)
    ]
    return table(["beside the workloads", "measured", "wanted"], rows)


def first_table(results: Results) -> str:
    """Seconds of the first call of what is compiled."""
    workloads = results["workloads"]
    peers = [p for p in COMPILED if any(p in w["first"] or p in w["unfinished"] for w in workloads.values())]
    rows = []
    for name, workload in workloads.items():
        cells = [
            number(workload["first"][p]) if p in workload["first"] else f"> {results['limit']:.0f}"
            if p in workload["unfinished"] else ""
            for p in peers
        ]  # fmt: skip
        rows.append([name, *cells])
    return table(["seconds of the first call", *(LABELS[p] for p in peers)], rows)


def threads_table(results: Results) -> str:
    """Milliseconds with all threads, and how many times as fast that is as one."""
    threads, one = results["threads"], results["workloads"]
    peers = [p for p in LABELS if any(p in w["times"] for w in threads["workloads"].values())]
    rows = []
    for name, workload in threads["workloads"].items():
        cells = [name]
        for peer in peers:
            many, alone = workload["times"].get(peer), one.get(name, {}).get("times", {}).get(peer)
            cell = number(many["minimum"] * 1e3) if many else ""
            cells.append(f"{cell} ({alone['minimum'] / many['minimum']:.2f})" if many and alone else cell)
        rows.append(cells)
    return table([f"ms with {threads['count']} threads (speed-up)", *(LABELS[p] for p in peers)], rows)


def memory_table(memory: dict[str, Any]) -> str:
    peers = [p for p in LABELS if any(p in peaks for peaks in memory.values())]
    rows = []
    for name, peaks in memory.items():
        for kind, what in (("arrays", "arrays"), ("process", "process")):
            cells = [f"{peaks[p][kind] / 2**20:.1f}" if kind in peaks.get(p, {}) else "" for p in peers]
            rows.append([f"{name}, {what}", *cells])
    return table(["peak, MiB", *(LABELS[p] for p in peers)], rows)


def imports_table(imports: dict[str, Any]) -> str:
    names = LIBRARIES | {"tape": "Tape with its NumPy backend"}
    rows = [
        [names[peer], number(wall * 1e3), number(cpu * 1e3), f"{imports['sizes'].get(peer, 0) / 1e6:.0f}"]
        for peer, (wall, cpu) in imports["times"].items()
    ]
    return table(["importing, in a fresh process", "ms", "processor ms", "installed, with all it needs, MB"], rows)


def allocator_table(allocator: dict[str, dict[str, Any]]) -> str:
    labels = LABELS | {SYSTEM: "Tape, `TAPE_NUMPY_ALLOCATOR=system`"}
    rows = [
        [labels[column]]
        + [
            f"{number(found['minimum'] * 1e3)} ({number(found['median'] * 1e3)}), {found['faults']} faults"
            for found in (by[column] for by in allocator.values())
        ]
        for column in next(iter(allocator.values()))
    ]
    return table(["`wide`, ms, page faults per step", *(f"glibc {c}" for c in allocator)], rows)


def comparison_table(results: Results) -> str:
    """What comparison.py measured; its ratios are among the targets."""
    rows = []
    for part in COMPARED:
        for name, found in results.get(part, {}).items():
            minima = ", ".join(f"{column} {number(t * 1e3)}" for column, t in found["minima"].items())
            rows.append([f"{name}: {found['what']}", minima])
    return table(["derivatives, compiled functions, training, random numbers", "ms: minima"], rows)


def heading(results: Results) -> list[str]:
    system = results["system"]
    versions = [f"{LIBRARIES[p]} {v}" for p, v in results["versions"].items() if p in LIBRARIES]
    lines = ["# Benchmark results"]
    took = f", in {system['minutes']:.0f} minutes" if "minutes" in system else ""
    lines.append(
        f"Written by `python benchmarks/run.py` on {system['date']}{took}. {system['processor']}, "
        f"{system['cores']} cores, {system['platform']}, Python {system['python']}. {', '.join(versions)}."
    )
    if system["busy"]:
        lines.append(f"The machine was busy ({system['busy']}): trust minima, not medians.")
    lines += [f"Skipped: {LABELS[peer]} ({reason})." for peer, reason in results["missing"].items()]
    for workload, measured in results["workloads"].items():
        lines += [f"Failed: {workload}, {LABELS[p]}: {why}." for p, why in measured["failures"].items()]
    lines += [f"Failed: {part}: {why}." for part, why in results["failures"].items()]
    return lines


def tally(results: Results) -> str:
    """How many targets are met, and which are not."""
    met, missed = 0, []
    for of, wanted in (
        ("tape_compiled", targets.COMPILED), ("tape", targets.EAGER), ("tape_torch", targets.ON_TORCH),
        ("tape_torch_compiled", targets.COMPILED_ON_TORCH), ("tape_inductor", targets.INDUCTOR),
    ):  # fmt: skip
        for name, by in wanted.items():
            for other, target in by.items():
                value = targets.ratio(results, name, of, other)
                if value is None:
                    continue
                met += value <= target
                if value > target:
                    missed.append(f"{name}, {LABELS[of]} ÷ {LABELS[other]}: {number(value)}, wanted {target:.3g}")
    for v in targets.other_verdicts(results, LABELS):
        met += v.met
        if not v.met:
            missed.append(f"{v.what}: {number(v.value)} {v.unit}, wanted {v.target:.3g}")
    counted = f"{met} of {met + len(missed)} targets are met"
    return "\n".join([f"{counted}. Missed:", "", *(f"- {line}" for line in missed)] if missed else [f"{counted}."])


def markdown(results: Results, pictures: dict[str, str]) -> str:
    """The whole report; `pictures` are paths relative to it."""
    workloads = results["workloads"]
    parts = heading(results)
    parts.append(tally(results))
    if workloads:
        unfinished = [f"{n}, {LABELS[p]}" for n, w in workloads.items() for p in w["unfinished"]]
        lines = ["## Compiled functions"]
        if "ratios" in pictures:
            lines.append(f"![Time per step relative to NumPy by hand]({pictures['ratios']})")
        others = ("numpy", "numpy_out", "tape", "jax_jit", "tf_function", "tf_xla", "torch_compile")
        lines.append(ratios_table(results, "tape_compiled", targets.COMPILED, others))
        lines += ["## The first call"]
        if "first" in pictures:
            lines.append(f"![Seconds of the first call]({pictures['first']})")
        lines.append(first_table(results))
        if unfinished:
            lines.append(f"Given up after {results['limit']:.0f} s: {'; '.join(unfinished)}.")
        parts += lines
    if "growth" in pictures:
        lost = results["growth"]["unfinished"]
        parts += ["## How cost grows", f"![Time of an operation]({pictures['growth']})"]
        parts.append(
            "An operation of the forward pass with its share of the gradient: scalar_chain with 8 to 10,000 of them, "
            "and wide with 10 elements and more. Lines end where a step would take too long."
            + (f" Given up: {'; '.join(lost)}." if lost else "")
        )
    if workloads:
        parts += [
            "## Times",
            AGREEMENT,
            times_table(workloads, TAPES),
            times_table(workloads, COMPILERS),
            times_table(workloads, ON_TORCH),
            "## Ratios without compiling, and on PyTorch",
            ratios_table(results, "tape", targets.EAGER, ("numpy", "autograd", "torch", "torch_func", "mygrad")),
        ]
        for of, wanted, others in (
            ("tape_torch", targets.ON_TORCH, ("torch",)),
            ("tape_torch_compiled", targets.COMPILED_ON_TORCH, ("torch", "torch_compile")),
            ("tape_inductor", targets.INDUCTOR, ("torch_compile",)),
        ):
            if any(of in w["times"] for w in workloads.values()):
                parts.append(ratios_table(results, of, wanted, others))
    parts += ["## Other targets", others_table(results)]
    if any(results.get(part) for part in COMPARED):
        parts.append(comparison_table(results))
    for title, part, make in (
        ("## All threads", "threads", lambda found: threads_table(results)),
        ("## Memory", "memory", memory_table),
        ("## Importing and installing", "imports", imports_table),
        ("## The allocator", "allocator", allocator_table),
    ):
        if results.get(part):
            parts += [title, make(results[part])]
            if part == "memory":
                parts.append(
                    "Arrays: at the peak of one step, its results included. Process: the growth in three steps."
                )
    parts += ["## How to reproduce", REPRODUCE]
    return "\n\n".join(parts) + "\n"
