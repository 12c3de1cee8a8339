"""Random nestings of transformations and control flow have the derivatives of the same program unrolled."""

from __future__ import annotations

from typing import Any

import pytest
from tape_fuzz.compositions import (
    BACKWARD,
    BATCHES,
    FLOWS,
    FORWARD,
    IMPLICIT,
    LONG,
    TWICE,
    WRAPPERS,
    check,
    programs,
)
from tape_fuzz.search import search

# By the outermost combinators, how deep and how many.
SHARDS = {
    "flat": (FLOWS + BATCHES, 2, 60),
    "flows": (FLOWS, 3, 60),
    "batches": (BATCHES, 3, 50),
    "wrappers": (WRAPPERS, 4, 50),
    "forward": (FORWARD, 3, 60),
    "backward": (BACKWARD, 3, 40),
    "twice": (TWICE, 3, 30),
    "long": (LONG, 2, 4),
    "implicit": (IMPLICIT, 2, 20),
}


@pytest.mark.parametrize("shard", SHARDS)
def test_a_composition_has_the_derivatives_of_the_same_program_unrolled(shard: str, record_property: Any) -> None:
    outermost, depth, number = SHARDS[shard]
    search(check, programs(depth, outermost), number, record_property, "compositions")
