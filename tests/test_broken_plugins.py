"""Broken plugins of a third party: real packages, installed, in an interpreter of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tape_core import __version__

PLUGINS = Path(__file__).parent / "plugins"

# For each package that is broken: its version, its backend, and what is wrong with it.
BROKEN = {
    "tape-unimportable": (
        "0.3.1",
        "unimportable",
        "importing tape_unimportable raised ModuleNotFoundError: No module named 'unimportable_arrays'",
    ),
    "tape-tomorrow": (
        "9.0.0",
        "tomorrow",
        f"it is written to version 99 of the backend contract, and tape-core {__version__} speaks version 1",
    ),
    "tape-typeless": ("0.1", "typeless", "array_types must be a tuple of 'module:qualname' strings, not ()"),
    "tape-misspelled": (
        "0.7",
        "misspelled",
        "checking its hooks raised PluginValidationError: unknown hook 'tape_lode_backend'",
    ),
}
HINTS: dict[str, list[str]] = {
    "tape-tomorrow": [
        "Install a newer tape-core: pip install --upgrade tape-core",
        'or an older tape-tomorrow: pip install "tape-tomorrow<9.0.0"',
    ],
    "tape-misspelled": ["The hooks are tape_backend_info, tape_load_backend, tape_register_rules"],
}
PACKAGES = [*BROKEN, "tape-twin-one", "tape-twin-two", "tape-raising"]

USE = """
import json, sys
import numpy as np
import tape_core as tc


def numpy_works():
    x = tc.Variable([3.0, 4.0], backend="numpy")
    with tc.GradientTape() as tape:
        y = tc.sum(tc.sin(x) * 0 + x * x * np.ones(2, dtype="float32"))
    return tape.gradient(y, x).tolist() == [6.0, 8.0]


def outcome(call):
    try:
        call()
        what = None
    except Exception as error:
        cause = error.__cause__
        what = {
            "error": type(error).__name__,
            "message": str(error),
            "notes": getattr(error, "__notes__", []),
            "cause": cause and type(cause).__name__,
        }
    return what, numpy_works()


report = {"alone": numpy_works()}
for name in sys.argv[1:]:
    report[name] = outcome(lambda: tc.zeros(2, backend=name))

x = tc.ones(2, backend="raising")
with tc.GradientTape(persistent=True) as tape:
    tape.watch(x)
    y = tc.sum(x * x)
    report["sin"] = outcome(lambda: tc.sin(x))
    report["cos"] = outcome(lambda: tc.cos(x))
    z = tc.sum(x * tc.exp(x - 1))
report["after"] = [tape.gradient(y, x).tolist(), tape.gradient(z, x).tolist()]
print(json.dumps(report))
"""


def expose(source: Path, site: Path) -> None:
    """What an installer leaves of a package of one module: the module, and metadata out of its pyproject.toml."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = project["name"].replace("-", "_")
    (site / f"{module}.py").write_text((source / f"{module}.py").read_text(encoding="utf-8"), encoding="utf-8")
    info = site / f"{module}-{project['version']}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    entry_points = []
    for group, entries in project["entry-points"].items():
        entry_points += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(entry_points) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    site = tmp_path_factory.mktemp("site")
    for name in PACKAGES:
        expose(PLUGINS / name, site)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TAPE_")}
    return {**variables, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)}


def run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report(environment: dict[str, str]) -> Any:
    names = [backend for _, backend, _ in BROKEN.values()]
    return json.loads(run(environment, "-W", "error", "-c", USE, *names, "twin"))


@pytest.mark.parametrize("package", BROKEN)
def test_the_error_names_backend_package_version_and_cause(report: Any, package: str) -> None:
    version, backend, problem = BROKEN[package]
    outcome, numpy_works = report[backend]
    assert outcome["error"] == "BackendLoadError"
    first, *hints = outcome["message"].split("\n  ")
    where = f"backend {backend!r} ({package} {version}, entry point {package.replace('-', '_')})"
    assert first.startswith(f"{where} cannot be loaded: {problem}")
    assert hints == HINTS.get(package, [])
    raised = problem.partition(" raised ")[2].partition(":")[0]
    assert outcome["cause"] == (raised or None)
    assert numpy_works


def test_of_two_packages_that_claim_a_name_none_is_taken(report: Any) -> None:
    outcome, numpy_works = report["twin"]
    assert outcome["error"] == "BackendLoadError"
    first, hint = outcome["message"].split("\n  ")
    assert first.startswith("backend 'twin' cannot be loaded: several packages claim its name: ")
    assert "tape-twin-one 1.0" in first
    assert "tape-twin-two 2.0" in first
    assert hint == "Uninstall all but one of them"
    assert numpy_works


def test_a_kernel_that_raises(report: Any) -> None:
    sin, numpy_works = report["sin"]
    assert (sin["error"], sin["message"]) == ("OSError", "the driver has gone away")
    assert sin["notes"] == ["in tape_core.sin(x: float32[2])"]
    assert numpy_works
    cos, numpy_works = report["cos"]
    assert (cos["error"], cos["cause"]) == ("ValueError", "ValueError")
    assert cos["message"] == "cos(x: float32[2]): no cosines today"
    assert numpy_works
    assert report["after"] == [[2.0, 2.0], [2.0, 2.0]], "what the tape recorded before and after is whole"


def test_numpy_works_before(report: Any) -> None:
    assert report["alone"]


def test_the_report_lists_them_with_their_errors(environment: dict[str, str]) -> None:
    out = run(environment, "-m", "tape_core")
    rows = {line.split()[0]: " ".join(line.split()) for line in out.splitlines() if "tape-" in line}
    for package, (version, backend, problem) in BROKEN.items():
        assert rows[backend].startswith(f"{backend} {package} {version} - - broken: {problem}")
    assert "broken: several packages claim its name: tape-twin-" in rows["twin"]
    assert rows["numpy"].endswith("cpu ok")
    assert rows["raising"].endswith(" ok"), "its kernel has not run"
    assert "selected: numpy (numpy is installed)" in " ".join(out.split())
