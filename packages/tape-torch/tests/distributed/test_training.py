"""Runs of `fit` in several processes are that of one process: replicated, sharded, and divided by layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("training_in_processes.py")


def test_a_run_in_four_processes_is_that_of_one(tmp_path: Path) -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), 4, str(tmp_path))
