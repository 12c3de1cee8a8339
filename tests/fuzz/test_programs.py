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
SHARDS = [("mixed", 100)] * 5 + [("state", 80)] * 2 + [("products", 70)] * 2 + [("training", 60)] + [("draws", 25)]
SHARDS += [("masks", 40), ("calls", 40)]
if MINUTES in os.environ:
    SHARDS.append(("inductor", 1))  # which takes seconds for each program


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard", range(len(SHARDS)))
def test_programs_say_the_same_in_every_way_they_can_be_run(shard: int, record_property: Any) -> None:
    kind, number = SHARDS[shard]
    with use_backend("numpy"):  # programs name the other one where they use it
        search(check, programs(kind), number, record_property, "programs", shard)
