"""Peak memory of one step: NumPy reports its arrays to tracemalloc."""

from __future__ import annotations

import gc
import tracemalloc

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
