"""What is timed in turns beside the workloads: a few columns, the ratios of some, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import timing

Step = Callable[[], Any]

TOLERANCE = 1e-4  # float32


@dataclass
class Comparison:
    """What is timed in turns; `ratios` of two columns, with the largest wanted; `same` are compared before.

    With `calls` a step is so many calls, and what is wanted is the most microseconds that one may take above the other.
    Where steps change what they work on, `outcomes` give what is compared in their place.
    """

    steps: dict[str, Step]
    ratios: dict[tuple[str, str], float]
    same: tuple[str, ...]
    calls: int | None = None
    outcomes: dict[str, Step] = field(default_factory=dict)


Comparisons = dict[str, Callable[[list[str]], Comparison]]


def _compared(a: float, b: float, calls: int | None) -> float:
    return a / b if calls is None else (a - b) / calls * 1e6


def _difference(found: Any, expected: Any) -> float:
    pairs = zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
    arrays = [(timing.to_numpy(a), timing.to_numpy(b)) for a, b in pairs]
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in arrays)


def measure(comparisons: Comparisons, peers: list[str], seconds: float) -> dict[str, Any]:
    """name -> what it is, the columns' minima in seconds, the ratios wanted."""
    found: dict[str, Any] = {}
    for name, make in comparisons.items():
        comparison = make(peers)
        if not comparison.steps:
            continue
        outcomes = {column: (comparison.outcomes or comparison.steps)[column]() for column in comparison.same}
        first, *others = comparison.same or (None,)
        for other in others:
            difference = _difference(outcomes[first], outcomes[other])
            if difference > TOLERANCE:
                raise AssertionError(f"{name}: {other} differs from {first} by {difference:.1e}")
        times = timing.interleaved(comparison.steps, seconds)
        minima = {column: t.minimum for column, t in times.items()}
        what = (make.__doc__ or "").strip()
        found[name] = {"what": what, "minima": minima, "wanted": comparison.ratios, "calls": comparison.calls}
    return found


def merged(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The minima of several processes, and their ratios with the targets."""
    together: dict[str, Any] = {}
    for name, first in rounds[0].items():
        minima = {column: min(found[name]["minima"][column] for found in rounds) for column in first["minima"]}
        ratios = [
            {"of": a, "to": b, "value": _compared(minima[a], minima[b], first["calls"]), "target": target}
            for (a, b), target in first["wanted"].items()
            if a in minima and b in minima
        ]
        together[name] = {"what": first["what"], "minima": minima, "ratios": ratios}
    return together
