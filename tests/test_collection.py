"""The conftest.py at the top: what `-m each_backend` leaves out is what it would not run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FILES = {
    "pytest.ini": "[pytest]\nmarkers =\n  each_backend\n  long\n",
    "test_marked.py": "import pytest\n@pytest.mark.each_backend\ndef test_a(): pass\ndef test_b(): pass\n",
    "test_other.py": "raise ImportError('what takes long')\ndef test_c(): pass\n",
    "marked/conftest.py": (
        "import pytest\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.path.parent.name == 'inner':\n"
        "            item.add_marker(pytest.mark.each_backend)\n"
    ),
    "marked/inner/test_inner.py": "def test_d(): pass\n",
}


def collected(folder: Path, *options: str) -> tuple[int, list[str]]:
    """Return pytest's exit status, and the names of the tests that it would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    return done.returncode, [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_files_without_a_marked_test_are_not_imported(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert collected(tmp_path, "-m", "each_backend") == (0, ["test_d", "test_a"])
    assert collected(tmp_path, "-m", "each_backend and not long") == (0, ["test_d", "test_a"])
    # Where a file may have other tests that are asked for, it is imported, and its errors are seen.
    for asked in (["-m", "each_backend or long"], ["-m", "not long"], []):
        assert collected(tmp_path, *asked)[0] == pytest.ExitCode.INTERRUPTED
