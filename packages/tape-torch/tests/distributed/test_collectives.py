"""Collectives and averages of gradients, in two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("collectives_in_processes.py")


@pytest.mark.parametrize("checked", ["0", "1"])
def test_values_and_derivatives(checked: str) -> None:
    """Those that compare what they do compute the same."""
    run_processes(PROGRAM.read_text(encoding="utf-8"), 2, environment={"TAPE_CHECK_RANKS": checked})
