"""Peak memory of one step: NumPy reports its arrays to tracemalloc, PyTorch its tensors to its own profiler."""

from __future__ import annotations

import gc
import json
import tempfile
import tracemalloc
from pathlib import Path

from workloads import Step


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
