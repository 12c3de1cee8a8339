"""New projects: what `python -m tape_conformance new` writes passes its own tests, and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tape_conformance import new
from tape_conformance.__main__ import main
from tape_conformance.new import NewError, note, project, write
from tape_core import __version__
from tape_core.backends import CONTRACT_VERSION

PROJECTS = {"backend": "newlib", "compiler": "new-walker", "op": "new_swirl"}


def expose(folder: Path, site: Path) -> None:
    """What an editable installation leaves: the module on the path, and metadata out of pyproject.toml."""
    about = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    info = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {about['name']}", f"Version: {about['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in about["dependencies"]]
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    groups = about.get("entry-points", {}).items()
    text = "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in groups)
    (info / "entry_points.txt").write_text(text, "utf-8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("projects")
    found = {}
    for kind, name in PROJECTS.items():
        found[kind] = home / f"{kind} of mine"  # a folder of any name
        assert main(["new", kind, name, "--out", str(found[kind]), "--owner", "me"]) == 0
        expose(found[kind], home / "site")
    return found


def run_tests(folder: Path, *arguments: str) -> str:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TAPE_")}
    path = [str(folder / "src"), str(folder.parent / "site"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments],
        env={**variables, "PYTHONPATH": os.pathsep.join(path).rstrip(os.pathsep)},
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_backend_passes_its_tests(folders: dict[str, Path]) -> None:
    # A part of them: the whole takes as long as the conformance suite.
    chosen = [f"--tape-only={only}" for only in ("contract/dtype/*", "contract/backward/quiet", "multiply/*", "sum/*")]
    printed = run_tests(folders["backend"], "--tape-quick", *chosen)
    assert "test_plugin.py::test_a_gradient PASSED" in printed
    assert "test[contract/dtype/float64] PASSED" in printed
    assert "test[multiply/vjp/x1/" in printed
    assert "test[contract/backward/quiet] XFAIL" in printed


def test_a_new_compiler_passes_its_tests(folders: dict[str, Path]) -> None:
    addopts = tomllib.loads((folders["compiler"] / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    assert addopts["ini_options"]["addopts"][-1] == "--tape-only=*/compiled-by-new-walker/*"
    # Of all ops' samples these two: the pattern of all draws all.
    options = ["-o", "addopts=--tape-backend=numpy --tape-compiler=new-walker"]
    options += [f"--tape-only={op}/compiled-by-new-walker/*" for op in ("matmul", "sort")]
    printed = run_tests(folders["compiler"], "--tape-quick", *options)
    assert "test_plugin.py::test_a_compiled_step_changes_a_variable PASSED" in printed
    assert "test[matmul/compiled-by-new-walker/" in printed


def test_a_new_op_passes_its_tests(folders: dict[str, Path]) -> None:
    printed = run_tests(folders["op"], "-k", "test_values or vjp or second or refused")
    assert "test_values.py::test_value_and_gradient PASSED" in printed
    assert "test[new_swirl/vjp/x/2x3,2x3] PASSED" in printed
    assert "test[new_swirl/second/" in printed
    assert "multiply" not in printed


@pytest.mark.parametrize("kind", PROJECTS)
def test_what_a_project_has(folders: dict[str, Path], kind: str) -> None:
    folder, name = folders[kind], PROJECTS[kind]
    module = f"tape_{name.replace('-', '_')}"
    for path in (
        "README.md",
        ".gitignore",
        ".github/workflows/ci.yml",
        f"src/{module}/py.typed",
        f"src/{module}/__init__.py",
    ):
        assert (folder / path).is_file(), path
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert "<<" not in path.read_text("utf-8"), path
            assert "MODULE" not in str(path)
    about = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert about["name"] == module.replace("_", "-")
    (core,) = [Requirement(line) for line in about["dependencies"] if line.startswith("tape-core")]
    assert __version__ in core.specifier
    readme = (folder / "README.md").read_text("utf-8")
    assert f"https://github.com/me/{about['name']}/actions/workflows/ci.yml/badge.svg" in readme
    assert "Licence" in readme
    if kind != "op":
        assert f"contract={CONTRACT_VERSION}," in (folder / "src" / module / "__init__.py").read_text("utf-8")
        assert about["entry-points"][f"tape.{kind}s"] == {name: module}
    assert "pytest --tape-quick" in (folder / ".github/workflows/ci.yml").read_text("utf-8") or kind == "op"


@pytest.mark.parametrize(
    ("library", "array_class", "required"),
    [
        ("array_api_strict", "array_api_strict:Array", ["array-api-strict"]),
        ("array_api_compat.numpy", "numpy:ndarray", ["numpy", "array-api-compat"]),
    ],
)
def test_the_class_of_the_arrays_is_found(library: str, array_class: str, required: list[str]) -> None:
    files = project("backend", "newlib", library=library)
    text = files["src/tape_newlib/__init__.py"]
    assert f'ARRAY_TYPES = ("{array_class}",)' in text
    assert f"import {library} as xp" in text
    lines = tomllib.loads(files["pyproject.toml"])["project"]["dependencies"]
    assert [Requirement(line).name for line in lines] == ["tape-core", *required]


def test_a_library_that_is_not_there_needs_the_name_of_its_class() -> None:
    with pytest.raises(NewError, match=r"'nowhere.xp' cannot be imported .*--array-class nowhere:Array"):
        project("backend", "newlib", library="nowhere.xp")
    files = project("backend", "newlib", library="nowhere.xp", array_class="nowhere:Grid")
    assert 'ARRAY_TYPES = ("nowhere:Grid",)' in files["src/tape_newlib/__init__.py"]
    assert '"nowhere"' in files["pyproject.toml"]


def test_the_default_library_need_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = new.find_spec
    monkeypatch.setattr(new, "find_spec", lambda name: None if name == "array_api_strict" else there(name))
    files = project("backend", "newlib")
    assert 'ARRAY_TYPES = ("array_api_strict:Array",)' in files["src/tape_newlib/__init__.py"]
    assert '"array-api-strict"' in files["pyproject.toml"]


def test_arrays_that_have_a_backend_are_named() -> None:
    assert "Arrays of numpy:ndarray belong to the installed backend 'numpy'" in note("numpy")
    assert note("nowhere", "nowhere:Array") == ""


REFUSED = {
    "backend numpy": "there is a backend 'numpy', of tape-numpy .*; choose another name",
    "backend torch": "(there is a backend 'torch'|tape-torch is a package of the Tape project).*; choose another name",
    "backend nn": "tape-nn is a package of the Tape project; choose another name",
    "backend My.Lib": "'My.Lib' cannot be the name of a backend; .*: 'my-lib'",
    "backend tape-mine": "'tape-mine' cannot be the name of a backend; .* without 'tape-': 'mine'",
    "backend 7": "'7' cannot be the name of a backend; .* begins with a letter",
    f"compiler {'x' * 31}": "at most 30 small letters",
    "compiler python": "there is a compiler 'python', of tape-compile",
    "compiler xla": "there is a compiler 'xla', of tape-jax",
    "op sum": "there is an op 'sum' in Tape; choose another name",
    "op my-op": "'my-op' cannot be the name of an op; .*: 'my_op'",
    "op lambda": "'lambda' is a word of Python's own.*; write 'lambda_op'",
    "op elementwise": "'elementwise' is a name of tape_core.extend",
    "op swirl --library numpy": "--library and --array-class are for backends alone; leave them out",
    "backend mine --library math": "'math' is no namespace of the Array API standard: it has no asarray",
    "backend mine --library ./x": "--library is the name of a module such as",
    "backend mine --array-class Array": "--array-class is a class as module:qualname",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_is_refused_is_one_sentence_with_the_cure(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert re.search(REFUSED[arguments], err), err
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    files = {"a/b.txt": "text\n"}
    (tmp_path / ".git").mkdir()
    write(files, tmp_path)  # a fresh repository is empty
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "text\n"
    with pytest.raises(NewError, match=r"is not empty, and nothing in it is overwritten; name another one by --out"):
        write({"a/b.txt": "other"}, tmp_path)
    with pytest.raises(NewError, match=r"b\.txt is a file; name another folder by --out"):
        write(files, tmp_path / "a" / "b.txt")
    with pytest.raises(NewError, match=r"cannot be written: .*; name another folder by --out"):
        write(files, tmp_path / "a" / "b.txt" / "c")
    assert (tmp_path / "a" / "b.txt").read_text("utf-8") == "text\n"


def test_the_command_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "op", "new_swirl"]) == 0
    out = capsys.readouterr().out
    assert "cd tape-new-swirl\n" in out
    assert 'python -m pip install -e ".[test]"' in out
    assert "account OWNER: write yours there, or name it by --owner" in out
    assert (tmp_path / "tape-new-swirl" / "pyproject.toml").is_file()
