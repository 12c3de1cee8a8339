"""Sums of scattered parts in compiled functions: put together once, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import same

ZEROS = np.array([-0.0, 0.0, -0.0, 1.5, -2.0, -0.0])
"""The sign of a zero is what an addition of zeros changes."""


def gradient(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return run


def thirds(x: Any) -> Any:
    a, b, c = tc.split(x, 3)
    return tc.sum(a * a * tc.asarray(ZEROS[:2])) + tc.sum(tc.abs(b) * b * -0.0) - tc.sum(tc.tanh(c) * c * 0.0)


def rows(x: Any) -> Any:
    x = tc.stack([x, x * 2.0, -x])
    total = tc.sum(x[0] * x[0]) * 0.0
    for k in range(4):
        total = total + tc.sum(x[0] ** (k + 2) * ZEROS[k]) - tc.sum(tc.sin(x[-1] * (k + 1)) * ZEROS[5 - k])
    return total


def parts_of_a_row(x: Any) -> Any:
    return -x[1] * x[1] * 0.0 - tc.sum(x[4:] ** 3 * tc.asarray(ZEROS[:2])) + tc.sin(x[1]) * 0.0


@pytest.mark.parametrize(
    ("f", "name"), [(thirds, "joined"), (rows, "placed"), (parts_of_a_row, "placed")], ids=["thirds", "rows", "parts"]
)
def test_parts_are_put_together_with_the_same_bits(f: Callable[[Any], Any], name: str) -> None:
    eager = gradient(f)
    compiled = tc.function(eager)
    for x in (tc.asarray(ZEROS), tc.asarray(np.array([np.nan, np.inf, -np.inf, -0.0, 1e308, -1e308]))):
        for _ in range(2):
            with np.errstate(all="ignore"):
                assert same(compiled(x), eager(x), any_nan=True)
    assert f"{name}(" in compiled.text()
    plain = tc.function(passes={"merge_scatters": False})(eager)
    plain(tc.asarray(ZEROS))
    assert compiled.text().count("scatter(") + 1 < plain.text().count("scatter(")


def test_one_place_alone_keeps_the_sign_of_zeros() -> None:
    eager = gradient(lambda x: tc.sum(x[2:4] ** 2 * -0.0) + tc.sum(tc.sin(x[2:4]) * -0.0))
    compiled = tc.function(eager)
    x = tc.asarray(ZEROS)
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == eager(x).numpy().tobytes()
    assert compiled.text().count("scatter(") == 1


def test_places_that_overlap_and_parts_that_others_need_are_left_alone() -> None:
    def overlapping(x: Any) -> Any:
        return tc.sum(tc.sin(x[:3])) + tc.sum(tc.cos(x[2:]))

    def needed(x: Any) -> Any:
        g = gradient(lambda x: tc.sum(tc.sin(x[:3])))(x)
        return g + gradient(lambda x: tc.sum(tc.cos(x[3:])))(x), g

    x = tc.asarray(ZEROS)
    f = tc.function(gradient(overlapping))
    for _ in range(2):
        assert f(x).numpy().tobytes() == gradient(overlapping)(x).numpy().tobytes()
    assert f.text().count("scatter(") == 2
    g = tc.function(needed)
    for _ in range(2):
        for found, expected in zip(g(x), needed(x), strict=True):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
    assert g.text().count("scatter(") == 2


@pytest.mark.parametrize(
    "key", [(None, slice(0, 2)), (slice(None), None), (..., None), ([0, 1],), (slice(None, None, 2),)]
)
def test_keys_that_are_no_boxes_are_left_alone(key: Any) -> None:
    eager = gradient(lambda x: tc.sum(x[key] ** 2) + tc.sum(x[4:] ** 3))
    compiled = tc.function(eager)
    x = tc.asarray(ZEROS)
    for _ in range(2):
        assert compiled(x).numpy().tobytes() == eager(x).numpy().tobytes()
