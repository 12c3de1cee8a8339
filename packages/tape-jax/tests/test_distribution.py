"""Arrays on a mesh of devices, and of processes, as their users meet them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_python

HERE = Path(__file__).parent
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # compiled for one call each


@pytest.mark.parametrize(
    "which",
    [
        "training and perceptron",
        pytest.param("training and not perceptron", marks=pytest.mark.long_on_jax),
        "not training",
    ],
)
def test_programs_on_eight_devices(which: str) -> None:
    # A collective blocks a thread for each device, and XLA has as many threads as cores or devices. Where other work
    # needs one meanwhile, as on two cores, all wait for ever, and after 40 seconds XLA aborts the process.
    eight = {"XLA_FLAGS": f"--xla_force_host_platform_device_count=8 {QUICK}", "NPROC": "32"}
    programs = str(HERE / "on_eight_devices.py")
    report = run_python("-m", "pytest", programs, "-q", "-n", "0", "-k", which, environment=eight, timeout=280)
    assert " passed" in report


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def test_two_processes_train_as_one() -> None:
    """Each process has two devices and half of each batch."""
    address = f"localhost:{_free_port()}"
    # Threads enough, as above: with as many as devices each process soon waits for the other.
    devices = {"XLA_FLAGS": f"--xla_force_host_platform_device_count=2 {QUICK}", "NPROC": "32"}
    environment = {**os.environ, **devices}
    program = str(HERE / "in_two_processes.py")

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, program, *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip

    running = [start(address, "2", str(k)) for k in range(2)] + [start(address, "1", "0")]
    try:
        texts = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            process.kill()
    if any("UNIMPLEMENTED" in errors or ("gloo" in errors and "not available" in errors) for _, errors in texts):
        pytest.skip("this JAX has no collectives between processes on the CPU")
    for process, (_, errors) in zip(running, texts, strict=True):
        assert process.returncode == 0, errors[-3000:]
    first, second, alone = [json.loads(text.splitlines()[-1]) for text, _ in texts]
    assert first == second
    assert first["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert first["weights"] == pytest.approx(alone["weights"], rel=1e-3)
