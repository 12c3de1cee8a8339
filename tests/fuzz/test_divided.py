"""Random programs on arrays of two processes, or of eight devices of JAX, and of collectives, say what they should."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from support import run_processes, run_python
from tape_fuzz.search import MINUTES, SEED

pytestmark = pytest.mark.each_backend

_PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from tape_fuzz.%s import main
main()
"""


NUMBERS = {"divided": 20, "collectives": 20, "orders": 20, "training": 6}
"""How many programs of a grammar are drawn where no minutes are given."""


@pytest.mark.parametrize("grammar", NUMBERS)
def test_programs_in_two_processes(grammar: str, record_property: Any, tmp_path: Path) -> None:
    pytest.importorskip("tape_torch")
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


EIGHT = {
    "TAPE_BACKEND": "jax",
    # Each program is compiled for two calls. A collective blocks a thread for each device: threads enough for all.
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
    "NPROC": "32",
}


@pytest.mark.long_on_jax
def test_programs_on_eight_devices_of_jax(record_property: Any) -> None:
    pytest.importorskip("tape_jax")
    program, minutes = _PROGRAM % "divided", os.environ.get(MINUTES)
    if minutes is None:
        run_python("-c", program, "--number", "6", environment=EIGHT, timeout=280)
        return
    start = int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 30))
    record_property("fuzz_seed", start)
    end, done = time.monotonic() + 60 * float(minutes), 0
    while time.monotonic() < end:
        run_python("-c", program, "--number", "20", "--seed", str(start + done), environment=EIGHT, timeout=1200)
        done += 20
    record_property("fuzzed programs: divided on JAX", done)
