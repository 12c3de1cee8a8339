"""What the packages of this repository must agree on."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from support import run_python

pytestmark = pytest.mark.each_backend


PACKAGES = sorted(path.parent for path in Path(__file__).parents[1].glob("packages/*/pyproject.toml"))
NAMES = [path.name for path in PACKAGES]
# tape-torch, with the large PyTorch, is not in every environment.
INSTALLED = [name for name in NAMES if find_spec(name.replace("-", "_")) is not None]


@pytest.mark.parametrize("name", INSTALLED)
def test_one_version(name: str) -> None:
    assert version(name) == version("tape-core")


@pytest.mark.parametrize("name", INSTALLED)
def test_own_requirements_admit_this_version(name: str) -> None:
    for line in requires(name) or []:
        requirement = Requirement(line)
        if requirement.name in NAMES:
            assert version("tape-core") in requirement.specifier


@pytest.mark.parametrize("path", PACKAGES, ids=NAMES)
def test_each_package_refuses_the_same_versions_of_core_as_pip(path: Path) -> None:
    if path.name == "tape-core":
        return
    project = tomllib.loads((path / "pyproject.toml").read_text("utf-8"))["project"]
    sources = path.glob("src/*/*.py")
    said = [found for file in sources for found in re.findall(r"require_core\((.*)\)\n", file.read_text("utf-8"))]
    (needed,) = [line for line in project["dependencies"] if Requirement(line).name == "tape-core"]
    assert said == [f'"{path.name}", "{needed}"']


@pytest.mark.parametrize("path", PACKAGES, ids=NAMES)
def test_packages_require_each_other_in_their_own_version_or_a_later_patch(path: Path) -> None:
    # They use of each other what is no contract, so that an older one may lack what a newer one uses.
    own = Version(version("tape-core"))
    project = tomllib.loads((path / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    for line in [*project["dependencies"], *extras]:
        requirement = Requirement(line)
        if requirement.name in NAMES:
            lowest = [Version(clause.version) for clause in requirement.specifier if clause.operator in (">=", "==")]
            assert lowest == [Version(own.base_version)], f"{path.name} requires {line}"
            assert f"{own.major}.{own.minor + 1}" not in requirement.specifier


@pytest.mark.parametrize("path", PACKAGES, ids=NAMES)
def test_what_each_package_brings(path: Path) -> None:
    assert (path / "src" / path.name.replace("-", "_") / "py.typed").is_file()
    assert (path / "LICENSE").read_bytes() == (path.parents[1] / "LICENSE").read_bytes()
    first = tomllib.loads((PACKAGES[0] / "pyproject.toml").read_text())["project"]
    project = tomllib.loads((path / "pyproject.toml").read_text())["project"]
    for key in ("requires-python", "license", "authors", "classifiers"):
        assert project[key] == first[key]


def test_the_session_with_pytorch_looks_where_tests_are_marked_for_it() -> None:
    root = PACKAGES[0].parents[1]
    marked = [path for path in root.glob("packages/*/tests/**/*.py") if "each_backend" in path.read_text("utf-8")]
    found = {path.relative_to(root).parts[1] for path in marked}
    session = (root / "noxfile.py").read_text("utf-8")
    assert found, "no test is marked"
    assert not [name for name in found if f'"packages/{name}/tests"' not in session]


def test_the_session_with_jax_draws_programs_of_xla_which_need_no_pytorch() -> None:
    session = (PACKAGES[0].parents[1] / "noxfile.py").read_text("utf-8")
    listed = session.partition("ON_JAX = [")[2].partition("\n]")[0]
    assert '"tests/fuzz/test_xla.py"' in listed
    assert '"tests/fuzz/test_divided.py"' in listed
    tests = Path(__file__).parent
    without = f"import sys; sys.modules['torch'] = None; sys.path[:0] = [{str(tests)!r}, {str(tests / 'fuzz')!r}]"
    draws = "from tape_fuzz.programs import programs; program, check = programs('xla').example(); print(check)"
    compositions = (
        "from tape_fuzz.compositions import XLA, programs; print(programs(2, XLA, ['jax']).example().backend)"
    )
    command = f"{without}; {draws}; {compositions}"
    printed = run_python("-W", "ignore", "-c", command, environment={"TAPE_BACKEND": "numpy"})
    assert printed.split() == ["compiled", "by", "XLA", "jax"]


def test_the_page_of_plugins_lists_those_of_this_repository() -> None:
    root = PACKAGES[0].parents[1]
    page = (root / "docs" / "plugins.md").read_text("utf-8")
    for path in PACKAGES:
        groups = tomllib.loads((path / "pyproject.toml").read_text("utf-8"))["project"].get("entry-points", {})
        for group, kind in (("tape.backends", "backend"), ("tape.compilers", "compiler")):
            table = page.partition(f"| {kind} | package |")[2].partition("\n\n")[0]
            for name in groups.get(group, {}):
                assert f"| `{name}` | [{path.name}](" in table, f"{kind} {name!r} is not listed"
    for folder in re.findall(r"`(tests/plugins/[\w-]+)`", page):
        about = tomllib.loads((root / folder / "pyproject.toml").read_text("utf-8"))["project"]
        (name,) = about["entry-points"]["tape.backends"]
        assert f"| `{name}` | `{folder}` |" in page
