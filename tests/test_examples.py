"""The examples run as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tape_core as tc
from support import run_processes

pytest.importorskip("matplotlib")
pytest.importorskip("scipy")
pytest.importorskip("sklearn")
pytest.importorskip("tqdm")

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def run(name: str, folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=True,
    )


def digits(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run("digits", folder, *options)


def accuracy(result: subprocess.CompletedProcess[str]) -> float:
    found = re.search(r"([\d.]+)% of 359 held-out digits read correctly after", result.stdout)
    assert found, result.stdout
    return float(found[1])


@pytest.mark.each_backend
@pytest.mark.long_on_torch
def test_digits(tmp_path: Path) -> None:
    result = digits(tmp_path)
    assert accuracy(result) >= 97
    picture = tmp_path / "digits.png"
    assert f"The picture is {picture.resolve()}" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "30/30" in result.stderr  # the progress bar


def test_digits_options(tmp_path: Path) -> None:
    options = ["--epochs", "2", "--seed", "5", "--out", "other.png"]
    first, second = digits(tmp_path, *options), digits(tmp_path, *options)
    assert accuracy(first) == accuracy(second) > 85
    assert [path.name for path in tmp_path.iterdir()] == ["other.png"]
    with pytest.raises(subprocess.CalledProcessError) as error:
        digits(tmp_path, "--backend", "nonesuch")
    assert "nonesuch" in error.value.stderr


def test_digits_compiled(tmp_path: Path) -> None:
    output = digits(tmp_path, "--quick", "--compile").stdout
    assert re.search(r"As it is, not compiled, training takes [\d.]+ s: [\d.]+ times as long", output)
    assert "Every loss is the same, to the last bit" in output


@pytest.mark.each_backend
@pytest.mark.skipif(find_spec("tape_torch") is None, reason="tape-torch is not installed")
def test_digits_are_read_as_well_on_pytorch(tmp_path: Path) -> None:
    options = ["--epochs", "4", "--seed", "3"]
    on_numpy = accuracy(digits(tmp_path, *options, "--backend", "numpy"))
    assert accuracy(digits(tmp_path, *options, "--backend", "torch")) == pytest.approx(on_numpy, abs=0.5)


def drawn(name: str, folder: Path, *options: str, **environment: str) -> str:
    """What the example prints; it must have drawn its picture, on the backend that is selected."""
    output = run(name, folder, *options, **environment).stdout
    picture = folder / f"{name}.png"
    assert f"The picture is {picture.resolve()}" in output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f" on {environment.get('TAPE_BACKEND', tc.get_backend().name)}\n" in output
    return output


def number(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    assert found, output
    return float(found[1])


@pytest.mark.each_backend
@pytest.mark.long_on_torch
def test_the_convnet_reads_more_than_the_dense_network(tmp_path: Path) -> None:
    output = drawn("digits_convnet", tmp_path, "--seed", "1")
    assert number(r"([\d.]+)% of 359 held-out digits read correctly", output) >= 98.5


@pytest.mark.each_backend
@pytest.mark.long_on_torch
def test_the_transformer_learns(tmp_path: Path) -> None:
    output = drawn("transformer", tmp_path, "--quick")
    assert number(r"([\d.]+) bits per held-out character", output) < 5  # of 103 characters, all alike, it were 6.7
    sample = output.split("\n", 1)[1]
    assert sample.startswith("The statement ")
    assert len(sample.split("The picture is")[0].rstrip("\n")) > 30


@pytest.mark.each_backend
@pytest.mark.long_on_torch
def test_the_gaussian_process_finds_the_noise(tmp_path: Path) -> None:
    output = drawn("gaussian_process", tmp_path)
    assert number(r"noise ([\d.]+) ", output) == pytest.approx(0.15, abs=0.03)
    assert number(r"length ([\d.]+),", output) == pytest.approx(1.1, abs=0.3)


@pytest.mark.each_backend
@pytest.mark.long_on_torch
def test_the_pendulum_is_found(tmp_path: Path) -> None:
    output = drawn("pendulum", tmp_path)
    found = re.findall(r"(\w+) +(-?[\d.]+) \+- ([\d.]+), in truth ([\d.]+)", output)
    assert [name for name, *_ in found] == ["length", "friction", "angle", "speed"]
    for name, value, deviation, truth in found:
        assert abs(float(value) - float(truth)) < 4 * float(deviation), name
        assert float(deviation) < 0.2, name


@pytest.mark.each_backend
@pytest.mark.skipif(find_spec("tape_torch") is None, reason="tape-torch is not installed")
@pytest.mark.parametrize(
    ("name", "figures"), [("pendulum", r"[\d.]+ \+- [\d.]+"), ("gaussian_process", r"noise [\d.]+")]
)
def test_examples_find_the_same_on_pytorch(name: str, figures: str, tmp_path: Path) -> None:
    found = [re.findall(figures, drawn(name, tmp_path, "--quick", TAPE_BACKEND=b)) for b in ("numpy", "torch")]
    assert found[0] == found[1] != []


def losses(output: str) -> list[float]:
    found = [float(number) for number in re.findall(r"(?:loss|held out) ([\d.]+)", output)]
    assert len(found) == 4, output
    return found


@pytest.mark.each_backend
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_one_program_for_one_device_and_for_several(engine: str, tmp_path: Path) -> None:
    if find_spec(f"tape_{engine}") is None:
        pytest.skip(f"tape-{engine} is not installed")
    options = ["--quick", "--out", str(tmp_path / "several_devices.png"), "--layout"]
    alone = losses(drawn("several_devices", tmp_path, *options, "alone", TAPE_BACKEND="numpy"))
    if engine == "torch":
        program = (EXAMPLES / "several_devices.py").read_text(encoding="utf-8")
        first, second = run_processes(program, 2, *options, "sharded", environment={"TAPE_BACKEND": "torch:cpu"})
        assert second == ""  # one of them prints
    else:
        flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
        selected = {"TAPE_BACKEND": "jax:cpu", "XLA_FLAGS": flags, "NPROC": "32"}
        first = run("several_devices", tmp_path, *options, "sharded", "--compile", "xla", **selected).stdout
    assert "sharded, 2 along data, " in first
    assert (tmp_path / "several_devices.png").read_bytes().startswith(b"\x89PNG")
    assert losses(first) == pytest.approx(alone, rel=1e-4)


def test_processes_are_compared_with_one(tmp_path: Path) -> None:
    pytest.importorskip("tape_torch")
    options = ("--quick", "--processes", "2", "--layouts", "sharded", "--out", str(tmp_path / "several_processes.png"))
    printed = run("several_processes", tmp_path, *options).stdout
    alone, sharded = re.findall(r"\d processes: loss ([\d.]+).* ([\d.]+) MB", printed)
    assert sharded[0] == alone[0]
    assert float(sharded[1]) < 0.65 * float(alone[1])
    assert (tmp_path / "several_processes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 150
