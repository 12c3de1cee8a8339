"""The pictures of the page: ratios, first calls, and how the time of an operation grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import targets
from peers import LABELS

# peer -> color, marker
LOOKS = {
    "tape": ("#e39aa4", "s"),
    "tape_compiled": ("#c1121f", "s"),
    "tape_torch": ("#b08968", "s"),
    "tape_torch_compiled": ("#7f5539", "s"),
    "tape_inductor": ("#582f0e", "s"),
    "autograd": ("#8d99ae", "v"),
    "mygrad": ("#c9a0c0", "v"),
    "torch": ("#f4a259", "o"),
    "torch_compile": ("#d96704", "D"),
    "jax": ("#8ecae6", "o"),
    "jax_jit": ("#0466c8", "D"),
    "tensorflow": ("#95d5b2", "o"),
    "tf_function": ("#40916c", "^"),
    "tf_xla": ("#1b4332", "D"),
    "numpy": ("#222222", "x"),
}
DOTS = ("autograd", "torch", "torch_compile", "jax_jit", "tf_function", "tf_xla")


def draw(results: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Those that there are results for."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, make, wanted in (
        ("ratios", ratios, results["workloads"]),
        ("first", first, results["workloads"]),
        ("growth", growth, results.get("growth")),
    ):
        if wanted:
            drawn[name] = folder / f"benchmarks-{name}.png"
            figure = make(results)
            figure.savefig(drawn[name], dpi=100)
            mpl.pyplot.close(figure)
    return drawn


def shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"


def plain(axis: Any, unit: str = "") -> None:
    """A logarithmic axis with numbers as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}{unit}"))
    axis.set_minor_formatter(NullFormatter())


def ratios(results: dict[str, Any]) -> Any:
    """Bars of Tape, dots of the others, relative to NumPy by hand; a line where compiled Tape should be."""
    import matplotlib.pyplot as plt

    workloads = {n: w for n, w in results["workloads"].items() if "numpy" in w["times"]}
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.62 * len(workloads)), layout="constrained")
    labels, handles = [], {}
    for row, (name, workload) in enumerate(workloads.items()):
        times = workload["times"]
        base = times["numpy"]["minimum"]
        labels.append(f"{name}\nby hand {shown(base * 1e3)} ms")
        target = targets.COMPILED.get(name, {}).get("numpy")
        for peer, shift in (("tape", -0.2), ("tape_compiled", 0.2)):
            if peer in times:
                value = times[peer]["minimum"] / base
                handles[peer] = axes.barh(row + shift, value - 1, 0.38, left=1, color=LOOKS[peer][0], zorder=1)
                end = min(value, 1, target or 1) if peer == "tape_compiled" else min(value, 1)
                axes.annotate(
                    f"{value:.2f} ", (end, row + shift), ha="right", va="center", fontsize=7.5,
                    color=LOOKS[peer][0] if peer == "tape_compiled" else "#a05060", zorder=3,
                )  # fmt: skip
        for peer in DOTS:
            if peer in times:
                color, marker = LOOKS[peer]
                value = times[peer]["minimum"] / base
                handles[peer] = axes.scatter(
                    value, row, 34, color=color, marker=marker, edgecolors="white", linewidths=0.6, zorder=4
                )
        if target is not None:
            line = axes.plot([target] * 2, [row, row + 0.42], color="black", linewidth=2.2, zorder=5)
            handles["target"] = line[0]
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(left * 0.6, right)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    plain(axes.xaxis, " ×")
    axes.axvline(1, color="black", linewidth=0.8, zorder=2)
    axes.grid(axis="x", color="#e5e5e5", zorder=0)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("time of one step relative to NumPy by hand, one thread (less is better)")
    names = {**LABELS, "target": "wanted of Tape, compiled"}
    figure.legend(
        handles.values(), [names[h] for h in handles], loc="outside upper center", ncols=5, frameon=False, fontsize=8.5
    )
    return figure


def first(results: dict[str, Any]) -> Any:
    """The first call of what is compiled, on a logarithmic axis; an arrow where it was given up."""
    import matplotlib.pyplot as plt

    peers = ("tape_compiled", "tape_torch_compiled", "torch_compile", "jax_jit", "tf_function", "tf_xla")
    workloads = results["workloads"]
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.32 * len(workloads)), layout="constrained")
    for row, workload in enumerate(workloads.values()):
        for k, peer in enumerate(peers):
            color, marker = LOOKS[peer]
            height = row + (k - 2.5) * 0.07
            look = {"color": color, "marker": marker, "edgecolors": "white", "linewidths": 0.5, "s": 40}
            if peer in workload["first"]:
                axes.scatter(workload["first"][peer], height, **look, zorder=3)
            elif peer in workload["unfinished"]:
                axes.scatter(results["limit"], height, **look, zorder=3)
                end = (results["limit"] * 2.2, height)
                axes.annotate(
                    "", end, (results["limit"] * 1.1, height), arrowprops={"arrowstyle": "->", "color": color}
                )
    for peer in peers:
        color, marker = LOOKS[peer]
        axes.scatter([], [], 40, color=color, marker=marker, label=LABELS[peer])
    axes.set_xscale("log")
    axes.set_xlim(right=results["limit"] * 3)
    plain(axes.xaxis, " s")
    axes.axvline(results["limit"], color="#999999", linewidth=0.8, linestyle=":")
    axes.grid(axis="x", color="#e5e5e5")
    axes.grid(axis="y", color="#f2f2f2")
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(workloads)), list(workloads))
    axes.invert_yaxis()
    axes.set_xlabel(f"the first call: tracing and compiling (given up after {results['limit']:.0f} s)")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def growth(results: dict[str, Any]) -> Any:
    """Microseconds of an operation against the length of a chain; nanoseconds of an element against their number."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 5.4), layout="constrained")
    handles = {}
    for axes, what in ((left, "lengths"), (right, "sizes")):
        for peer, points in results["growth"][what].items():
            if not points:
                continue
            color, marker = LOOKS[peer]
            style = "-" if peer in ("tape", "tape_compiled", "numpy") else "--"
            width = 2.2 if peer in ("tape", "tape_compiled") else 1.2
            xs = [point[0] for point in points]
            ys = [point[1] * (1e6 if what == "lengths" else 1e9 / point[0]) for point in points]
            handles[peer] = axes.plot(xs, ys, style, color=color, marker=marker, linewidth=width, markersize=4.5)[0]
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain(axes.yaxis, "")
        axes.grid(color="#ececec")
    plain(left.xaxis)
    left.set_title("scalars: time of an operation", fontsize=10)
    left.set_xlabel("operations in the chain")
    left.set_ylabel("µs per operation, forward and backward")
    right.set_title("arrays: time of an operation for one element", fontsize=10)
    right.set_xlabel("elements of the arrays")
    right.set_ylabel("ns per operation and element, forward and backward")
    order = [peer for peer in LABELS if peer in handles]
    figure.legend(
        [handles[p] for p in order], [LABELS[p] for p in order], loc="outside upper center", ncols=5, frameon=False
    )
    return figure
