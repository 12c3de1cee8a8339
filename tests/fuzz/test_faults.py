"""Faults at random instructions of compiled calls and of updates of optimizers."""

from __future__ import annotations

from typing import Any

import pytest
from tape_compile import thresholds
from tape_fuzz import faults
from tape_fuzz.search import search


@pytest.mark.parametrize("shard", range(4))
def test_a_fault_leaves_all_that_a_step_assigns_old_or_new(
    shard: int, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    if shard % 2:  # new values go into the memory of former ones, as those of large arrays do
        any_size = {"SPARE_MIN_ELEMENTS": 2, "SPARE_MAX_GROWTH": 100.0, "FUSE_MIN_ELEMENTS": 2, "FUSE_MIN_WORK": 1}
        for name, value in any_size.items():
            monkeypatch.setattr(thresholds, name, value)
    injected = 0

    def check(program: faults.Program) -> None:
        nonlocal injected
        injected += faults.check(program)

    try:
        search(check, faults.programs(), 20, record_property, "steps with faults")
    finally:
        record_property("fuzzed faults", injected)
