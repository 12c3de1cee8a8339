"""Nodes and weights of quadrature rules."""

from __future__ import annotations

import math


def gauss_legendre(n: int) -> list[tuple[float, float]]:
    """The nodes and weights of Gauss-Legendre quadrature on the interval from 0 to 1."""
    found = []
    for k in range(n):
        x = math.cos(math.pi * (k + 0.75) / (n + 0.5))
        for _ in range(100):  # Newton's method
            p, before = 1.0, 0.0
            for j in range(n):
                p, before = ((2 * j + 1) * x * p - j * before) / (j + 1), p
            slope = n * (x * p - before) / (x * x - 1)
            step = p / slope
            x -= step
            if abs(step) < 1e-16:
                break
        found.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return found
