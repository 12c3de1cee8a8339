"""`tape_jax.distributed` on eight devices, as its users meet it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_python

HERE = Path(__file__).parent
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # compiled for one call each
# Of the threads, see test_distribution.py.
EIGHT = {"XLA_FLAGS": f"--xla_force_host_platform_device_count=8 {QUICK}", "NPROC": "32"}


@pytest.mark.parametrize("program", ["on_a_mesh.py", "training_on_a_mesh.py"])
def test_programs_on_a_mesh_of_eight_devices(program: str) -> None:
    report = run_python("-m", "pytest", str(HERE / program), "-q", "-n", "0", environment=EIGHT, timeout=280)
    assert " passed" in report
