"""Eager steps of divided arrays send several gradients at once, and have the results of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("together_in_processes.py")


@pytest.mark.long_on_torch
def test_eager_steps_in_four_processes_are_those_of_one() -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), 4)
