"""Collectives and averages of gradients, in two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes, run_python

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("collectives_in_processes.py")


@pytest.mark.parametrize("checked", ["0", "1"])
def test_values_and_derivatives(checked: str) -> None:
    """Those that compare what they do compute the same."""
    run_processes(PROGRAM.read_text(encoding="utf-8"), 2, environment={"TAPE_CHECK_RANKS": checked})


def test_collectives_along_an_axis_are_among_its_processes() -> None:
    # PyTorch counts the source of a broadcast within the group: with its rank among all, another process's array came.
    run_processes(PROGRAM.with_name("collectives_along_axes.py").read_text(encoding="utf-8"), 4)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.long_on_torch)])
def test_nan_of_one_process_is_in_the_extremes_of_all(processes: int) -> None:
    """Gloo's own extremes lose it, for some orders of the processes."""
    run_processes(PROGRAM.with_name("extremes_in_processes.py").read_text(encoding="utf-8"), processes)


def test_a_gather_of_parts_has_a_short_name() -> None:
    """Gloo writes names of more than 15 characters without a lock, which ends processes: see `tape_torch.gloo`."""
    code = (
        "import torch, torch.profiler\nfrom tape_torch.distributed import mesh\nmesh()\n"
        "with torch.profiler.profile() as profile:\n"
        "    one = torch.ops._c10d_functional.all_gather_into_tensor(torch.ones(3), 1, '0')\n"
        "    torch.ops._c10d_functional.wait_tensor(one)\n"
        "print(*{event.name for event in profile.events() if event.name.startswith('c10d::')})"
    )
    assert run_python("-c", code, timeout=120).strip() == "c10d::_allgather_base_"
