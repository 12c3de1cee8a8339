"""Random programs on arrays that two processes hold, and of collectives, say what they should."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from support import run_processes
from tape_fuzz.search import MINUTES, SEED

pytest.importorskip("tape_torch")
pytestmark = pytest.mark.each_backend

_PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from tape_fuzz.%s import main
main()
"""


NUMBERS = {"divided": 30, "collectives": 30, "training": 8}
"""How many programs of a grammar are drawn where no minutes are given."""


@pytest.mark.parametrize("grammar", NUMBERS)
def test_programs_in_two_processes(grammar: str, record_property: Any, tmp_path: Path) -> None:
    program = _PROGRAM % grammar
    folder = ("--folder", str(tmp_path)) if grammar == "training" else ()
    minutes = os.environ.get(MINUTES)
    if minutes is None:
        run_processes(program, 2, "--number", str(NUMBERS[grammar]), *folder, timeout=300)
        return
    start = int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 30))
    record_property("fuzz_seed", start)
    end, done = time.monotonic() + 60 * float(minutes), 0
    while time.monotonic() < end:
        run_processes(program, 2, "--number", "100", "--seed", str(start + done), *folder, timeout=600)
        done += 100
    record_property(f"fuzzed programs: {grammar}", done)
