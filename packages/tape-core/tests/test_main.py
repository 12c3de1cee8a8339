"""`python -m tape_core`."""

from __future__ import annotations

import os
import subprocess
import sys

from tape_core import __version__
from tape_core.__main__ import main
from tape_core.base.installing import install_command


def report(capsys, *, code: int = 0) -> tuple[list[str], str]:
    assert main([]) == code
    out, err = capsys.readouterr()
    return out.splitlines(), err


def columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def clear_environment(monkeypatch) -> None:
    for name in os.environ:
        if name.startswith("TAPE_"):
            monkeypatch.delenv(name)


def test_report(site, monkeypatch, capsys):
    clear_environment(monkeypatch)
    site.add("alpha")
    site.add("beta", plugin={"import NAMElib": "import gone_library"})
    site.add("gamma")
    site.add("numpy")
    monkeypatch.setenv("TAPE_DISABLE_BACKENDS", "gamma")
    problem = "tape_load_backend() raised ModuleNotFoundError: No module named 'gone_library'"
    (title, _, *table, _, environment, selected), err = report(capsys)
    assert title.startswith(f"tape-core {__version__}, Python 3.")
    assert [columns(line) for line in table] == [
        ["backend", "package", "array library", "devices", "status"],
        ["alpha", "tape-alpha 1.5", "alphalib 3.1", "cpu, gpu:0, gpu:1", "ok"],
        [
            "beta",
            "tape-beta 1.5",
            "-",
            "-",
            f"broken: {problem}",
        ],
        ["gamma", "tape-gamma 1.5", "-", "-", "disabled"],
        ["numpy", "tape-numpy 1.5", "numpylib 3.1", "cpu, gpu:0, gpu:1", "ok"],
    ]
    assert len({line.index(" tape-") for line in table[1:]}) == 1  # aligned
    assert environment == "environment: TAPE_DISABLE_BACKENDS=gamma"
    assert selected == "selected:    numpy (numpy is installed)"
    assert err == ""


def test_selected_by_the_environment(site, monkeypatch, capsys):
    clear_environment(monkeypatch)
    site.add("alpha")
    site.add("numpy")
    monkeypatch.setenv("TAPE_BACKEND", "alpha:gpu:1")
    *_, environment, selected = report(capsys)[0]
    assert environment == "environment: TAPE_BACKEND=alpha:gpu:1"
    assert selected == "selected:    alpha on gpu:1 (TAPE_BACKEND=alpha:gpu:1)"


def test_devices_that_cannot_be_listed(site, monkeypatch, capsys):
    site.add("alpha", library={'return ("cpu", "gpu:0", "gpu:1")': 'raise OSError("no driver")'})
    lines, _ = report(capsys)
    assert columns(lines[3])[-1] == "broken: OSError: no driver"
    assert lines[-1] == "selected:    alpha (the only backend installed)"


def test_nothing_installed(site, monkeypatch, capsys):
    clear_environment(monkeypatch)
    lines, err = report(capsys, code=1)
    assert lines[2:] == ["environment: no TAPE_ variable is set", "selected:    none"]
    assert "no backend is installed" in err
    assert install_command("tape-numpy") in err


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tape_core", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_command_line():
    failed = run(TAPE_BACKEND="gone_backend")
    assert failed.returncode == 1
    assert "environment: TAPE_BACKEND=gone_backend" in failed.stdout
    assert "selected:    none" in failed.stdout
    assert failed.stderr.startswith("\nno backend named 'gone_backend' is installed\n")
    assert "It was asked for by TAPE_BACKEND=gone_backend" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_help():
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python -m tape_core")
    for variable in ("TAPE_BACKEND", "TAPE_DISABLE_BACKENDS", "TAPE_TRACE_PLUGINS"):
        assert variable in done.stdout
    assert run("--nonsense").returncode == 2


def test_the_report_lists_compilers_and_says_which_is_selected(monkeypatch, capsys):
    clear_environment(monkeypatch)
    monkeypatch.setenv("TAPE_COMPILER", "python")
    lines, _ = report(capsys)
    at = next(k for k, line in enumerate(lines) if line.startswith("compiler "))
    assert columns(lines[at]) == ["compiler", "package", "for arrays of", "what it makes", "status"]
    python = next(columns(line) for line in lines[at:] if line.startswith("python "))
    assert [python[0], python[-1]] == ["python", "ok"]
    assert python[1].startswith("tape-compile ")
    assert python[2] == "all"
    assert lines[-1] == "compiler:    python (TAPE_COMPILER=python)"
    monkeypatch.setenv("TAPE_COMPILER", "pyton")
    _, err = report(capsys, code=1)
    assert "no compiler named 'pyton' is installed" in err
    assert "It was asked for by TAPE_COMPILER=pyton" in err
