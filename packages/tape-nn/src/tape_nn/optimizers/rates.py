"""Learning rates: numbers, and schedules, which are functions of the number of updates so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tape_core.staging import host_function
from tape_core.support import real

Schedule: TypeAlias = Callable[[int], float]


@host_function
def check_rate(value: object, name: str) -> float:
    """Return a learning rate as a Python float, which is weak in promotion.

    Raises:
        TypeError: it is no real number.
        ValueError: it is below 0 or not finite.
    """
    rate = real("", name, value)
    if not 0 <= rate < math.inf:
        raise ValueError(f"{name} must be a number of at least 0; got {value}")
    return rate


@host_function
def scheduled_rate(schedule: Schedule, iterations: int) -> float:
    """Return the learning rate that a schedule gives after so many updates."""
    return check_rate(schedule(iterations), "the schedule's learning rate")
