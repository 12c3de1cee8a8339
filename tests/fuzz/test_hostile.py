"""Hostile arguments of every op: refused, or worked on, in the same way however the op is called."""

from __future__ import annotations

from typing import Any

import pytest
from tape_fuzz import hostile
from tape_fuzz.search import search


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("shard", range(2))
def test_hostile_arguments_are_refused_or_taken_alike_in_every_way(
    backend: str, shard: int, record_property: Any
) -> None:
    search(hostile.check, hostile.programs(backend), 300, record_property, "hostile calls", shard)
