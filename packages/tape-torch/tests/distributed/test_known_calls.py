"""Eager calls of divided arrays that are like former ones give what the first of them gave."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("known_calls_in_processes.py")


def test_calls_like_former_ones_give_what_these_gave() -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), 2)
