"""Faults at random instructions of compiled calls and of updates of optimizers."""

from __future__ import annotations

from typing import Any

import pytest
from tape_fuzz import faults
from tape_fuzz.search import search


@pytest.mark.parametrize("shard", range(4))
def test_a_fault_leaves_all_that_a_step_assigns_old_or_new(shard: int, record_property: Any) -> None:
    injected = 0

    def check(program: faults.Program) -> None:
        nonlocal injected
        injected += faults.check(program)

    try:
        search(check, faults.programs(), 20, record_property, "steps with faults")
    finally:
        record_property("fuzzed faults", injected)
