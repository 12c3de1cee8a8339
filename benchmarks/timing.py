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
    if hasattr(value, "dense_shape"):  # TensorFlow's
        value = to_numpy(Rows(value.values.numpy(), value.indices.numpy(), tuple(value.dense_shape.numpy())))
    if getattr(value, "is_sparse", False):  # torch's embedding
        value = value.to_dense()
    if hasattr(value, "detach"):
        value = value.detach()
    if hasattr(value, "numpy"):
        value = value.numpy()
    return np.asarray(getattr(value, "data", value) if type(value).__name__ == "Tensor" else value)


def results(step: Step) -> list[np.ndarray]:
    """The value and the gradients of a step."""
    value, gradients = step()
    return [to_numpy(value), *map(to_numpy, gradients)]


def disagreement(found: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """The largest relative difference of value and gradients.

    Relative to the largest element: single elements of a float32 gradient may cancel.
    """
    worst = 0.0
    for got, want in zip(found, reference, strict=True):
        if got.shape != want.shape:
            raise ValueError(f"a result has shape {got.shape}, the hand-written one {want.shape}")
        if got.dtype != want.dtype:
            raise ValueError(f"a result is of {got.dtype}, the hand-written one of {want.dtype}")
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
        if count > 1:
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
