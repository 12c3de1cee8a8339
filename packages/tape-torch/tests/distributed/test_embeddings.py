"""Tables that are divided among processes, or looked up with divided indices: values, gradients and training."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_processes

pytestmark = pytest.mark.each_backend
PROGRAM = Path(__file__).with_name("embeddings_in_processes.py")


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.long_on_torch)])
def test_rows_are_looked_up_and_trained_as_in_one_process(n: int) -> None:
    run_processes(PROGRAM.read_text(encoding="utf-8"), n)
