"""Processes that part in the midst of a run: an error on all of them, with their ranks, and none waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend


def test_steps_that_were_compared_before_and_are_mixed_up_now_and_updates_of_one_process_alone() -> None:
    programs = [str(Path(__file__).with_name(f"{name}_in_processes.py")) for name in ("later_steps", "drifting")]
    assert run_processes(f"import runpy\nfor path in {programs}: runpy.run_path(path)", 2) == ["done\ndone\n"] * 2


@pytest.mark.parametrize("by_parts", ["1", "0"])
def test_what_no_gradients_go_along_with_and_updates_that_differ(by_parts: str) -> None:
    program = Path(__file__).with_name("unlike_updates_in_processes.py")
    environment = {"TAPE_COMPILED_PARTS": by_parts}
    told = run_processes(program.read_text(encoding="utf-8"), 2, environment=environment)
    assert sum(map(int, told)) == 3  # who comes last to the end, of three programs


def test_a_process_that_is_lost_is_named_outside_of_a_watched_block() -> None:
    program = Path(__file__).with_name("lost_peers_in_processes.py")
    assert run_processes(program.read_text(encoding="utf-8"), 2, may_fail=[1])[0] == "done\n"
