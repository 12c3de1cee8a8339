"""A line search for the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, section 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tape_nn.thresholds import CURVATURE, LINE_SEARCH_STEPS, LONGEST_EXTRAPOLATION, SHARE_FROM_ENDS, SUFFICIENT_DECREASE


class Point(NamedTuple):
    """A point on the line: how far along the direction, the function's value and slope, and its whole gradient."""

    t: float
    value: float
    slope: float
    gradient: Any


def strong_wolfe(evaluate: Callable[[float], Point], start: Point, t: float, smallest: float) -> Point:
    """Return a point at which the function has decreased enough and its slope is flat enough.

    >>> def line(t):
    ...     return Point(t, (t - 3.0) ** 2, 2 * (t - 3.0), None)
    >>> strong_wolfe(line, line(0.0), 10.0, 1e-9).t
    3.0

    Args:
        evaluate: returns the point at a distance.
        start: the point at 0, where the slope is negative.
        t: the first distance to try.
        smallest: intervals that are shorter than this are not divided any more.

    Returns:
        Such a point, or after a number of evaluations the best that was found; `start` if none is better.
    """
    before, left = start, LINE_SEARCH_STEPS
    while left:
        left -= 1
        now = evaluate(t)
        if not _decreases(now, start) or (before is not start and now.value >= before.value):
            return _zoom(evaluate, start, before, now, left, smallest)
        if abs(now.slope) <= -CURVATURE * start.slope:
            return now
        if now.slope >= 0:
            return _zoom(evaluate, start, now, before, left, smallest)
        farthest = t * LONGEST_EXTRAPOLATION
        nearest = t + (t - before.t) * SHARE_FROM_ENDS
        before, t = now, min(max(_minimum(before, now, farthest), nearest), farthest)
    return before


def _decreases(point: Point, start: Point) -> bool:
    """Return whether the function has decreased enough for the distance; a value that is not finite has not."""
    return point.value <= start.value + SUFFICIENT_DECREASE * point.t * start.slope


def _zoom(
    evaluate: Callable[[float], Point], start: Point, low: Point, high: Point, left: int, smallest: float
) -> Point:
    """Search between two points, of which `low` has decreased enough and is the lower one."""
    for _ in range(left):
        width = high.t - low.t
        if abs(width) * abs(start.slope) <= smallest * abs(start.slope):
            break
        middle = low.t + width / 2
        guess = _minimum(low, high, middle)
        # Where a guess is at an end, the interval would hardly become smaller.
        a, b = sorted((low.t + SHARE_FROM_ENDS * width, high.t - SHARE_FROM_ENDS * width))
        now = evaluate(guess if a <= guess <= b else middle)
        if not _decreases(now, start) or now.value >= low.value:
            high = now
            continue
        if abs(now.slope) <= -CURVATURE * start.slope:
            return now
        if now.slope * width >= 0:
            high = low
        low = now
    return low


def _minimum(a: Point, b: Point, otherwise: float) -> float:
    """Return where the cubic through two points with their slopes has its minimum, if it has one."""
    if not all(map(math.isfinite, (a.value, a.slope, b.value, b.slope))) or a.t == b.t:
        return otherwise
    if a.t > b.t:
        a, b = b, a
    d = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = d * d - a.slope * b.slope
    if square < 0:
        return otherwise
    root = math.sqrt(square)
    below = b.slope - a.slope + 2 * root
    return otherwise if below == 0 else b.t - (b.t - a.t) * (b.slope + root - d) / below
