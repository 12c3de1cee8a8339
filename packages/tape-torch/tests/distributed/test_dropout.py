"""Dropout of divided arrays drops what it drops in one process, and each process draws the numbers of its part."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("dropout_in_processes.py")


@pytest.mark.parametrize(("n", "by_parts"), [(4, "0"), (2, "1")])
def test_each_process_draws_its_part_of_a_mask(n: int, by_parts: str) -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), n, environment={"TAPE_COMPILED_PARTS": by_parts})
