"""Random programs: eager, compiled, exported, differentiated, on both backends and in autograd they say the same."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tape_core import use_backend
from tape_fuzz.programs import check, programs
from tape_fuzz.search import MINUTES, search

# Which kind of programs, and how many. Each run draws the same ones, which find what a change breaks in every kind;
# new ones are found by `nox -s fuzz`, which draws for as long as it is told to.
SHARDS = [("mixed", 190)] * 5 + [("state", 150)] * 2 + [("products", 125)] * 2 + [("training", 120)] + [("draws", 60)]
SHARDS += [("masks", 60), ("calls", 50)]
if MINUTES in os.environ:
    SHARDS.append(("inductor", 1))  # which takes seconds for each program


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(len(SHARDS)))
def test_programs_say_the_same_in_every_way_they_can_be_run(shard: int, record_property: Any) -> None:
    kind, number = SHARDS[shard]
    with use_backend("numpy"):  # programs name the other one where they use it
        search(check, programs(kind), number, record_property, "programs", shard)
