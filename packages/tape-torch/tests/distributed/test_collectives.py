"""Collectives and averages of gradients, in two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("collectives_in_processes.py")


def test_values_and_derivatives() -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), 2)


def test_processes_that_call_with_different_shapes_are_told() -> None:
    program = """
import tape_core as tc
from tape_torch.distributed import all_reduce, mesh
tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu")
all_reduce(tc.ones((2 + m.rank,)), m)
"""
    with pytest.raises(AssertionError, match=r"mismatch between collectives on ranks"):
        run_processes(program, 2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
