"""Types for users, seen by mypy --strict and by pyright: `python -m nox -s typecheck` runs this."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tape_conformance.new import project, write

HERE = Path(__file__).parent
PACKAGES = HERE.parent.parent / "packages"
SOURCES = sorted(str(path) for path in PACKAGES.glob("*/src"))


def lines_with_errors_mypy(file: str, folder: Path, known: Path) -> list[int]:
    options = ["--strict", "--python-version", "3.11", "--config-file", "", "--cache-dir", str(known)]
    # `--output json` gives one object a line. The packages' own files are not of interest here.
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--follow-imports", "silent", "--output", "json", str(HERE / file)],
        env={**os.environ, "MYPYPATH": os.pathsep.join(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not run.stderr, run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return sorted({one["line"] for one in found if one["severity"] == "error"})


def lines_with_errors_pyright(file: str, folder: Path, known: Path) -> list[int]:
    settings = {
        "typeCheckingMode": "strict",
        "reportUnusedExpression": False,  # the mistakes have some
        "pythonVersion": "3.11",
        "include": [str(HERE / file)],
        "extraPaths": SOURCES,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    run = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] == 1, run.stdout
    return sorted(
        {one["range"]["start"]["line"] + 1 for one in found["generalDiagnostics"] if one["severity"] == "error"}
    )


CHECKERS = [
    pytest.param(check, marks=pytest.mark.skipif(find_spec(tool) is None, reason=f"{tool} is not installed"), id=tool)
    for tool, check in (("mypy", lines_with_errors_mypy), ("basedpyright", lines_with_errors_pyright))
]


PROGRAMS = ["program.py", "tensorflow_program.py"]


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A folder in which mypy keeps what it has found out about the packages: it does so for each set of options."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("check", CHECKERS)
def test_a_program_has_no_errors(check, program, tmp_path, known):
    assert check(program, tmp_path, known) == []


@pytest.mark.parametrize("check", CHECKERS)
def test_each_mistake_is_an_error(check, tmp_path, known):
    lines = (HERE / "mistakes.py").read_text().splitlines()
    expected = [number for number, line in enumerate(lines, 1) if line.endswith("# mistake")]
    assert len(expected) == 31
    assert check("mistakes.py", tmp_path, known) == expected


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
@pytest.mark.parametrize(("kind", "name"), [("backend", "newlib"), ("compiler", "new-walker"), ("op", "new_swirl")])
def test_a_new_project_has_no_errors(kind, name, tmp_path, cache):
    write(project(kind, name), tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache)],
        env={**os.environ, "MYPYPATH": os.pathsep.join(["src", *SOURCES])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_runs(program):
    runpy.run_path(str(HERE / program))["main"]()


@pytest.mark.parametrize("package", sorted(path.name for path in PACKAGES.iterdir() if (path / "src").is_dir()))
def test_every_package_says_that_it_has_types(package):
    assert (PACKAGES / package / "src" / package.replace("-", "_") / "py.typed").exists()
