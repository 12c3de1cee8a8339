"""The bar chart: times relative to the hand-written version, on a logarithmic axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from report import number

COLORS = {
    "tape": "#d1495b",
    "tape_torch": "#edae49",
    "autograd": "#8d99ae",
    "mygrad": "#c9ada7",
    "torch": "#4a6fa5",
}
LABELS = {
    "tape": "Tape",
    "tape_torch": "Tape on PyTorch",
    "autograd": "HIPS autograd",
    "mygrad": "MyGrad",
    "torch": "PyTorch eager",
}


def milliseconds(seconds: float) -> str:
    return f"{number(seconds * 1e3)} ms"


def draw(workloads: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    names = [name for name, workload in workloads.items() if "numpy" in workload["times"]]
    peers = [p for p in COLORS if any(p in workloads[name]["times"] for name in names)]
    figure, axes = plt.subplots(figsize=(9, 0.9 + 1.15 * len(names)), layout="constrained")

    middles, labels, bottom, labelled = [], [], 0.0, set()
    for name in names:
        times = workloads[name]["times"]
        base, top = times["numpy"]["minimum"], bottom
        for peer in (p for p in peers if p in times):
            seconds = times[peer]["minimum"]
            ratio = seconds / base
            label = None if peer in labelled else LABELS[peer]
            labelled.add(peer)
            axes.barh(bottom, ratio - 1, left=1, height=0.85, color=COLORS[peer], label=label)
            text = f" {number(ratio)} × · {milliseconds(seconds)}"
            weight = "bold" if peer.startswith("tape") else "normal"
            axes.text(max(ratio, 1), bottom, text, va="center", fontsize=8, fontweight=weight)
            bottom += 1
        middles.append((top + bottom - 1) / 2)
        labels.append(f"{name}\nby hand {milliseconds(base)}")
        bottom += 0.8

    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, 0.9), right * 3)  # room for the text behind the longest bar
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(middles, labels)
    axes.invert_yaxis()
    axes.set_xlabel("time of one step, value and gradients, relative to NumPy by hand (less is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.02)
    figure.legend(loc="outside upper center", ncols=len(peers), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
