"""The check of the built documentation finds what it is to find; `nox -s site` runs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from support import run_python

SCRIPT = Path(__file__).parents[1] / "docs" / "check_site.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages, of which the second is not in the navigation and has three links that lead nowhere."""
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "site.css").write_text("")
    (tmp_path / "index.html").write_text(
        '<link href="_static/site.css?v=1"><aside><div class="sidebar-tree"></div></aside><h1 id="here">'
        '<a href="#here">1</a><a href="other.html#there">2</a><a href="https://example.org/#x">3</a><a href="#">4</a>'
    )
    (tmp_path / "other.html").write_text(
        '<p id="there"><a href="index.html#nowhere">1</a><a href="missing.html">2</a><img src="missing.png">'
    )
    return tmp_path


def test_links_that_lead_nowhere_are_found(check: ModuleType, site: Path) -> None:
    assert check.dead_links(site) == [
        "other.html: index.html#nowhere leads to no place on that page",
        "other.html: missing.html leads to no file",
        "other.html: missing.png leads to no file",
    ]


def test_pages_outside_the_navigation_are_found(check: ModuleType, site: Path) -> None:
    assert check.outside_the_navigation(site) == ["other.html: not in the navigation"]
    tree = '<div class="sidebar-tree"><a href="other.html#there">other</a></div></aside>'
    (site / "index.html").write_text(tree)
    assert check.outside_the_navigation(site) == []


@pytest.mark.parametrize(
    ("language", "text", "says"),
    [
        ("python", "x = 1\ny = x", None),
        ("python", "Traceback (most recent call last):", "no Python: line 1"),
        ("pycon", ">>> x = 1", "prompts"),
        ("python", "def f(x):\n... return x", "prompts"),
        ("console", "python -m nox \\\n    -s docs\nTAPE_BACKEND=torch python a.py  # a comment\n", None),
        ("console", "$ python -m nox", "prompts"),
        ("console", "python a.py\nloss 0.1", "no command: 'loss 0.1'"),
        ("text", "loss 0.1", "nothing that runs"),
        ("toml", "[project]", None),
    ],
)
def test_what_a_copy_button_gives_must_run(check: ModuleType, language: str, text: str, says: str | None) -> None:
    found = check.does_not_run(language, text)
    assert found is None if says is None else says in found


def test_without_a_browser_it_says_so_and_checks_the_links(site: Path) -> None:
    (site / "other.html").write_text('<p id="there">')
    (site / "index.html").write_text('<div class="sidebar-tree"><a href="other.html#there">1</a></aside>')
    program = (
        f"import runpy, shutil, sys; from pathlib import Path; shutil.which = lambda name: None; "
        f"Path.is_file = lambda path: path.exists() and path.suffix == '.html'; "
        f"sys.argv = ['check_site.py', {str(site)!r}]; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    printed = run_python("-c", program, environment={"CHROME": ""})
    assert "No Chromium or Chrome was found" in printed
    assert "0 problems" in printed
