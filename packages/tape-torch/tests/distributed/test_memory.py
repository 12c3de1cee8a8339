"""A step of divided arrays has one state and the gradients in memory, or two states, and next to nothing else."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("memory_in_processes.py")


def test_steps_in_two_processes_have_two_states_at_most() -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), 2)


def test_steps_by_parts_write_into_the_memory_of_former_values() -> None:
    program = PROGRAM.with_name("spares_in_processes.py")
    run_processes(program.read_text(encoding="utf-8"), 2)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc")
def test_large_arrays_that_processes_free_do_not_stay_in_their_heaps() -> None:
    program = PROGRAM.with_name("heap_in_processes.py")
    run_processes(program.read_text(encoding="utf-8"), 2)
