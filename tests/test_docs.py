"""The code in the documentation and in docstrings runs, and prints what it says it prints.

Every ```python block of a page is run, in order, in an interpreter of the page's own, as a
reader would. Blocks with `>>>` are doctests; others, such as a class, are plain code.
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path

import pytest
from pages import OPTIONS, PAGES, ROOT, AnyBackend, leave_out_results, run, runner
from tape_core.extend import registry

pytestmark = pytest.mark.each_backend


MODULES = [
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    for source in sorted(ROOT.glob("packages/*/src"))
    for path in sorted(source.rglob("*.py"))
    if path.name != "__main__.py"
]


def _on_torch(page: str) -> bool:
    """Whether a page runs in every session with PyTorch: it is about that, or among the first that a user reads."""
    about = re.search(r"^(?:>>> )?(?:import|from) (?:tape_)?torch\b", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    return about is not None or page in ("README.md", "docs/quickstart.md")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long_on_torch] * (not _on_torch(page))) for page in PAGES]
)
def test_page(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    imported = re.findall(r"^(?:>>> )?(?:import|from) (\w+)", text, re.MULTILINE)
    choose(*[package for package, library in LARGE.items() if library in imported], *imported)
    command = [sys.executable, "-W", "error", "-X", "utf8", str(ROOT / "tests" / "pages.py"), page]
    environment = {**os.environ, "MPLBACKEND": "Agg"}  # notebooks draw, and there may be no screen
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr


LARGE = {"tape_torch": "torch", "tape_jax": "jax"}
"""The packages of large libraries, which have environments of their own."""


OPTIONAL = {*LARGE, "diffrax", "equinox", "optax", "matplotlib", "sklearn"}
"""Packages that need not be there: their examples run where they are installed."""


def choose(*packages: str) -> None:
    """Skip what is not for this environment."""
    for package in packages:
        if package in OPTIONAL and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    choose(name.partition(".")[0])
    module = importlib.import_module(name)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    choose(*re.findall(r"^ *>>> (?:import|from) (\w+)", source, re.MULTILINE))
    finder, run = doctest.DocTestFinder(), runner().run
    tests = finder.find(module)
    # doctest takes ops for imported, since their call paths are made elsewhere.
    for op in registry.values():
        if op.function.__module__ == name:
            tests += finder.find(op.function, f"{name}.{op.name}", module=module)
    report: list[str] = []
    for test in tests:
        leave_out_results(test)
        run(test, out=report.append)
    assert not report, "".join(report)


def test_failures_name_page_and_line() -> None:
    page = "Text.\n\n```python\nx = 1\n```\n\n```python\n>>> x\n1\n>>> x + 1\n3\n```\n"
    assert 'File "page.md", line 10, in page.md' in run(page, "page.md")


def test_the_last_column_of_a_table_runs_where_the_page_says_so() -> None:
    table = "| there | here |\n|---|---|\n| `a.b` | `x = 1`, `y = x \\| 2` |\n| `c` | `1 / (y - 3)` |\n"
    assert run(f"{table}\n```python\n>>> 1\n1\n```\n", "page.md") == ""
    with pytest.raises(ZeroDivisionError) as raised:
        run(f"<!-- the last column runs -->\n\n{table}", "page.md")
    place = traceback.extract_tb(raised.tb)[-1]
    assert (place.filename, place.lineno) == ("page.md", 6)


@pytest.mark.parametrize(
    ("got", "same"),
    [
        ("Tensor([1.0 2.50001], shape=(2,), dtype=float32, backend=torch)", True),
        ("Tensor([1.  2.5], shape=(2,),\n dtype=float32, backend=torch)", True),
        ("Tensor([1.0 2.51], shape=(2,), dtype=float32, backend=torch)", False),
        ("Tensor([1.0 2.5], shape=(2,), dtype=float64, backend=torch)", False),
        ("Tensor([1.0 2.5 3.0], shape=(2,), dtype=float32, backend=torch)", False),
        ("Variable([1.0 2.5], shape=(2,), dtype=float32, backend=torch)", False),
    ],
)
def test_on_another_backend_its_name_and_roundings_may_differ(got: str, same: bool) -> None:
    want = "Tensor([1.  2.5], shape=(2,), dtype=float32, backend=numpy)"
    assert AnyBackend().check_output(want + "\n", got + "\n", OPTIONS) is same


def test_pages_and_modules_are_found() -> None:
    """Without any, everything above would pass."""
    assert "README.md" in PAGES
    assert "tape_core" in MODULES


def test_the_plugin_that_a_page_builds_is_the_one_that_conformance_runs_on() -> None:
    page = (ROOT / "docs" / "write-a-backend.md").read_text(encoding="utf-8")
    plugin = ROOT / "tests" / "plugins" / "tape-strict" / "src" / "tape_strict"
    assert (plugin / "__init__.py").read_text(encoding="utf-8") in page
    assert (plugin / "expectations.toml").read_text(encoding="utf-8").partition("\n\n")[2] in page


def test_no_page_announces_what_is_there_or_is_not() -> None:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        found = re.findall(r"still to come|not there yet", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name} says {found}"
