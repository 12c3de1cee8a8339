"""How training in several processes compares with one: runs of `several_devices.py`, started by `torchrun`.

python docs/examples/several_processes.py
python docs/examples/several_processes.py --processes 2 4 8 --epochs 8

The picture has the losses, which are those of one process, and what a process has to do and to keep.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

LAYOUTS = ("replicated", "sharded", "tensor", "both")
parser = argparse.ArgumentParser(description="A transformer is trained by 1, 2 and 4 processes, in each layout.")
parser.add_argument("--processes", type=int, nargs="+", default=[2, 4], help="how many, besides one")
parser.add_argument("--layouts", nargs="+", default=LAYOUTS, help="how model and batches are divided")
parser.add_argument("--epochs", type=int, default=2, help="passes over the data")
parser.add_argument("--quick", action="store_true", help="little data, a small network, and few passes")
parser.add_argument("--out", type=Path, default=Path("several_processes.png"), help="where the picture goes")
args = parser.parse_args()


def run(layout: str, processes: int) -> dict[str, Any]:
    """Train in so many processes; return the losses, the seconds of a step, and the bytes that a process keeps."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        program = str(Path(__file__).with_name("several_devices.py"))
        options = ["--layout", layout, "--dtype", "float64", "--epochs", str(args.epochs), "--report", str(report)]
        options += ["--compile", "--out", str(Path(folder, "loss.png")), *(["--quick"] if args.quick else [])]
        # Processes find each other at an address of this machine, with a port that is free.
        start = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--rdzv-backend", "c10d"]
        start += ["--rdzv-endpoint", "localhost:0"]
        command = [sys.executable, *(start if layout != "alone" else []), program, *options]
        threads = str(max(1, (os.cpu_count() or 1) // processes))
        environment = {**os.environ, "TAPE_BACKEND": "torch:cpu", "OMP_NUM_THREADS": threads}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
        if found.returncode:
            raise SystemExit(f"{layout} in {processes} processes failed:\n{found.stderr}")
        result: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    print(
        f"{layout:>10} {processes} processes: loss {result['loss'][-1]:.6f}, {1e3 * result['step']:7.1f} ms a step, "
        f"{result['bytes'] / 1e6:.2f} MB kept by each"
    )
    return result


alone = run("alone", 1)
found = {layout: {n: run(layout, n) for n in args.processes} for layout in args.layouts}

figure = Figure(figsize=(12, 3.8), layout="constrained")
losses, times, sizes = figure.subplots(1, 3)
epochs = range(1, len(alone["loss"]) + 1)
losses.plot(epochs, alone["loss"], color="black", linewidth=5, alpha=0.25, label="one process")
for layout, results in found.items():
    most = max(results)
    losses.plot(epochs, results[most]["loss"], marker=".", label=f"{layout}, {most}")
    counts = [1, *results]
    times.plot(counts, [1e3 * r["step"] for r in (alone, *results.values())], marker="o", label=layout)
    sizes.plot(counts, [r["bytes"] / 1e6 for r in (alone, *results.values())], marker="o", label=layout)
losses.set(title="The loss is that of one process", xlabel="epoch", ylabel="loss", xticks=list(epochs))
times.set(title=f"A step, on {os.cpu_count()} cores", xlabel="processes", ylabel="ms", ylim=(0, None))
sizes.set(title="Weights and optimizer's state", xlabel="processes", ylabel="MB in each process", ylim=(0, None))
for axes in (losses, times, sizes):
    axes.grid(alpha=0.3)
    axes.legend()
for axes in (times, sizes):
    axes.set_xticks([1, *args.processes])
figure.savefig(args.out, dpi=110)
print(f"The picture is {args.out.resolve()}")
