"""Peak memory of one step: NumPy reports its arrays to tracemalloc, PyTorch its tensors to its own profiler.

What other libraries' arrays take is not told: there the growth of the whole process is all that can be seen.
"""

from __future__ import annotations

import gc
import json
import tempfile
import tracemalloc
from pathlib import Path

from workloads import Step

# MyGrad is not here: its tensors keep the gradients of the step before.
ON_NUMPY = ("numpy", "numpy_out", "tape", "tape_compiled", "tape_checkpoint", "autograd")
ON_TORCH = ("tape_torch", "torch")


def of_arrays(peer: str, step: Step) -> dict[str, float]:
    """`arrays`: bytes of arrays at the peak of one step, for the peers that tell."""
    if peer in ON_NUMPY:
        return {"arrays": peak(step)}
    return {"arrays": torch_peak(step)} if peer in ON_TORCH else {}


def peak(step: Step) -> int:
    """Bytes at the peak of one step, its results included, above what was there before it."""
    step()
    tracemalloc.start()
    try:
        step()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def torch_peak(step: Step) -> int:
    """The same, of PyTorch's tensors on the CPU: every allocation and every free of its allocator."""
    from torch.autograd import profiler

    step()
    gc.collect()
    with profiler.profile(profile_memory=True) as profile:
        step()
    # The list of functions has sums for each; the trace has the single events.
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = [(event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"]
    if not changes:
        raise RuntimeError("the profiler has seen no memory")
    now = highest = 0
    for _, change in sorted(changes, key=lambda at: at[0]):
        now += change
        highest = max(highest, now)
    return highest


def of_process(entry: str) -> int:
    """`VmRSS`, the memory of this process that is resident now, or `VmHWM`, the most so far: bytes, 0 if not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{entry}:")), 0)
