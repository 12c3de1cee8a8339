"""Tensors over DTensors: values, derivatives, constants and training, in one process and in two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import run_processes, run_python

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("in_processes.py")


def test_two_processes_compute_and_train_as_one() -> None:
    first, second = run_processes(PROGRAM.read_text(encoding="utf-8"), 2)
    alone = run_python(str(PROGRAM), environment={"OMP_NUM_THREADS": "1"}, timeout=120)
    assert first == second
    assert json.loads(first) == pytest.approx(json.loads(alone), rel=1e-5)


@pytest.mark.long_on_torch
def test_a_transformer_trains_in_each_layout_as_in_one_process() -> None:
    run_processes(PROGRAM.with_name("layouts_in_processes.py").read_text(encoding="utf-8"), 4)


def test_a_mesh_of_several_processes_needs_torchrun() -> None:
    code = "from tape_torch.distributed import mesh\ntry: mesh({'data': 2})\nexcept RuntimeError as e: print(e)"
    assert "torchrun --nproc-per-node" in run_python("-c", code, timeout=120)


@pytest.mark.parametrize("axes", [{}, {"data": 0}, {"a": -1, "b": -1}])
def test_axes_that_are_none(axes: dict[str, int]) -> None:
    from tape_torch.distributed import mesh

    with pytest.raises(ValueError, match="one of them may be -1"):
        mesh(axes)
