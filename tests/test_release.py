"""What a release does to files: one version everywhere, and recipes that say what the packages say."""

from __future__ import annotations

import importlib
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tape_core import __version__
from tape_core.backends.versions import satisfies

ROOT = Path(__file__).parents[1]
REQUIRED = re.compile(r"tape-[a-z]+(?:\[\w+\])?>=[^\s\"']+")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of `.ci/release` by their names."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci" / "release"))
    return importlib.import_module


def requirements(root: Path) -> set[str]:
    paths = [*root.glob("packages/*/pyproject.toml"), *root.glob("packages/*/src/*/__init__.py")]
    return {line for path in paths for line in REQUIRED.findall(path.read_text("utf-8"))}


def test_the_version_is_set_everywhere(release: Any, tmp_path: Path) -> None:
    for path in (ROOT / "packages").iterdir():
        ignored = shutil.ignore_patterns("tests", "__pycache__", "[!_p]*.py")
        shutil.copytree(path, tmp_path / "packages" / path.name, ignore=ignored)
    shutil.copy(ROOT / "CITATION.cff", tmp_path)
    for version, other in (("0.2.0", "0.1.9"), ("0.2.3", "0.2.2")):
        release("distributions").set_version(tmp_path, version)
        found = requirements(tmp_path)
        assert len(found) > 2
        assert all(satisfies(version, line) and not satisfies(other, line) for line in found), found
        assert release("distributions").version(tmp_path) == version
        assert f"\nversion: {version}\n" in (tmp_path / "CITATION.cff").read_text("utf-8")


def test_a_citation_has_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


@pytest.mark.parametrize("path", sorted(ROOT.glob("packages/*/pyproject.toml")), ids=lambda path: path.parent.name)
def test_a_recipe_requires_what_the_package_requires(path: Path, release: Any) -> None:
    recipes = release("recipes")
    project = tomllib.loads(path.read_text("utf-8"))["project"]
    text = recipes.recipe(path.parent, "0" * 64)
    run = text[text.index("  run:") : text.index("tests:")]
    for line in project["dependencies"]:
        found = re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", line)
        assert found is not None
        assert f"    - {recipes.NAMES.get(found[1], found[1])} {found[2]}\n" in run
    extras = [line for line in project["dependencies"] if "[" in line]  # of which conda has packages of their own
    listed = run.partition("run_constraints:")[0].count("    - ")
    assert 0 <= listed - 1 - len(project["dependencies"]) <= len(extras), run  # Python is the other one
    assert f'version: "{__version__}"' in text
    assert f'python_min: "{project["requires-python"][2:]}"' in text
