"""Agreement of the peers, and their times: taken in turns, so a disturbance hits all alike."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from workloads import Rows, Step

SAMPLE_SECONDS = 0.005  # of each sample, far above the timer's resolution


@dataclass
class Times:
    """Seconds per step."""

    samples: list[float] = field(default_factory=list)

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


def to_numpy(value: Any) -> np.ndarray:
    """Any peer's array, or sparse gradient, as a dense NumPy array."""
    if isinstance(value, Rows):
        dense = np.zeros(value.shape, value.values.dtype)
        np.add.at(dense, value.indices, value.values)
        return dense
    if hasattr(value, "densify"):  # tape's IndexedSlices
        value = value.densify()
    if getattr(value, "is_sparse", False):  # torch's embedding
        value = value.to_dense()
    if hasattr(value, "detach"):
        value = value.detach()
    if hasattr(value, "numpy"):
        value = value.numpy()
    return np.asarray(getattr(value, "data", value) if type(value).__name__ == "Tensor" else value)


def disagreement(step: Step, reference: Step) -> float:
    """The largest relative difference of value and gradients.

    Relative to the largest element: single elements of a float32 gradient may cancel.
    """
    value, gradients = step()
    expected, expected_gradients = reference()
    worst = 0.0
    for got, want in zip([value, *gradients], [expected, *expected_gradients], strict=True):
        got, want = to_numpy(got), to_numpy(want)
        if got.shape != want.shape:
            raise ValueError(f"a result has shape {got.shape}, the hand-written one {want.shape}")
        if not np.all(np.isfinite(got)):
            raise ValueError("a result is not finite")
        worst = max(worst, float(np.max(np.abs(got - want)) / np.max(np.abs(want))))
    return worst


def repeats(step: Step) -> int:
    """How many steps make one sample."""
    step()
    count = 1
    while True:
        start = perf_counter()
        for _ in range(count):
            step()
        elapsed = perf_counter() - start
        if elapsed >= SAMPLE_SECONDS / 2:
            return max(1, round(count * SAMPLE_SECONDS / elapsed))
        count *= 2


def sample(step: Step, count: int) -> float:
    """Seconds per step, over `count` steps without a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        step()  # brings the caches back from the peer that ran before
        start = perf_counter()
        for _ in range(count):
            step()
        return (perf_counter() - start) / count
    finally:
        gc.enable()


def interleaved(
    steps: dict[str, Step], seconds: float, progress: Callable[[float], None] = lambda done: None
) -> dict[str, Times]:
    """Samples of all steps in turns, for about `seconds` and at least 5 rounds."""
    counts = {name: repeats(step) for name, step in steps.items()}
    times = {name: Times() for name in steps}
    gc.collect()
    gc.freeze()  # what exists by now makes the collections between samples slow, and is not garbage
    start, rounds = perf_counter(), 0
    while rounds < 5 or perf_counter() - start < seconds:
        for name, step in steps.items():
            times[name].samples.append(sample(step, counts[name]))
        rounds += 1
        progress(min(1.0, (perf_counter() - start) / seconds))
    gc.unfreeze()
    return times
