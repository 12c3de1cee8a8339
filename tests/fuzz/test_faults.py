"""Faults at random instructions of compiled calls and of updates of optimizers."""

from __future__ import annotations

from typing import Any

import pytest
from support import ignore_threads
from tape_compile import thresholds
from tape_core import use_backend
from tape_core.engine.overwriting import Overwriting
from tape_core.support import COUNTS_REFERENCES
from tape_fuzz import faults
from tape_fuzz.search import search


@pytest.mark.parametrize("shard", range(4))
def test_a_fault_leaves_all_that_a_step_assigns_old_or_new(
    shard: int, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    ignore_threads(monkeypatch)
    if shard % 2:  # new values go into the memory of former ones, as those of large arrays do
        any_size = {"SPARE_MIN_ELEMENTS": 2, "SPARE_MAX_GROWTH": 100.0, "FUSE_MIN_ELEMENTS": 2, "FUSE_MIN_WORK": 1}
        for name, value in any_size.items():
            monkeypatch.setattr(thresholds, name, value)
    injected = 0

    def check(program: faults.Program) -> None:
        nonlocal injected
        injected += faults.check(program)

    try:
        search(check, faults.programs(), 12, record_property, "steps with faults")
    finally:
        record_property("fuzzed faults", injected)


@pytest.mark.parametrize("optimizer", ["Adam(0.01)", "AdamW(0.01, clipnorm=0.5)", "SGD(0.1)"])
@pytest.mark.parametrize("kind", ["handler", "KeyboardInterrupt", "MemoryError", "thread"])
def test_an_update_that_writes_over_old_values_is_done_or_not(
    optimizer: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignore_threads(monkeypatch)
    make, overwritten = Overwriting.make, 0

    def counted(self: Overwriting, *args: Any) -> bool:
        nonlocal overwritten
        done = make(self, *args)
        overwritten += done
        return done

    monkeypatch.setattr(Overwriting, "make", counted)
    program = {"shapes": [(150_000,), (3,)], "dtype": "float32", "compiled": False}
    calls = [(kind, call, part / 5) for call in range(faults.CALLS - 1) for part in range(5)]
    with use_backend("torch:cpu"):
        faults.check({**program, "lines": [("update", optimizer, False)], "faults": calls})
    assert overwritten or not COUNTS_REFERENCES


@pytest.mark.parametrize(
    "optimizer", ["LossScaler(nn.Adam(0.01))", "LossScaler(nn.GradientAccumulation(nn.SGD(0.1), 2))"]
)
@pytest.mark.parametrize("kind", ["handler", "KeyboardInterrupt", "thread"])
def test_nobody_sees_the_middle_of_a_step_whose_optimizer_is_called_in_it(optimizer: str, kind: str) -> None:
    """While it ran, the Variables had the values that the step had assigned so far."""
    program = {"shapes": [()], "dtype": "float32", "compiled": True}
    lines = [("view", 0, 0), ("update", optimizer, False)]
    faults.check({**program, "lines": lines, "faults": [(kind, 1, part / 10) for part in range(3, 10)]})
