"""The examples run as a user runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pytest.importorskip("tqdm")

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def digits(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "digits.py"), *options]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=True,
    )


def accuracy(result: subprocess.CompletedProcess[str]) -> float:
    found = re.search(r"([\d.]+)% of 359 held-out digits read correctly after", result.stdout)
    assert found, result.stdout
    return float(found[1])


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


@pytest.mark.skipif(find_spec("tape_torch") is None, reason="tape-torch is not installed")
def test_digits_are_read_as_well_on_pytorch(tmp_path: Path) -> None:
    options = ["--epochs", "4", "--seed", "3"]
    on_numpy = accuracy(digits(tmp_path, *options, "--backend", "numpy"))
    assert accuracy(digits(tmp_path, *options, "--backend", "torch")) == pytest.approx(on_numpy, abs=0.5)
