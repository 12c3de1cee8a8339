"""The code in the documentation and in docstrings runs, and prints what it says it prints.

Every ```python block of a page is run, in order, in an interpreter of the page's own, as a
reader would. Blocks with `>>>` are doctests; others, such as a class, are plain code.
"""

from __future__ import annotations

import doctest
import importlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tape_core.extend import registry

pytestmark = pytest.mark.each_backend


ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "packages/*/README.md")
    for path in sorted(ROOT.glob(pattern))
    if "```python\n" in path.read_text(encoding="utf-8")
]
MODULES = [
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    for source in sorted(ROOT.glob("packages/*/src"))
    for path in sorted(source.rglob("*.py"))
    if path.name != "__main__.py"
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


ON_ANOTHER_LIBRARY = not os.environ.get("TAPE_BACKEND", "numpy").startswith("numpy")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?![\w])")
CLOSE = {"rel_tol": 2e-4, "abs_tol": 1e-5}
"""What is printed shows NumPy's last digits; another library computes others."""


OF_NUMPY = (
    "tc.sum(np.ones((2, 3), dtype=np.float32), axis=0).array",  # an array of NumPy
    "walk.show()",  # code for NumPy
    "energy.show()",
)
"""How examples begin that run on each backend, and show what NumPy alone prints."""


class AnyBackend(doctest.OutputChecker):
    """Compare what a program prints on another backend with what it prints on NumPy.

    The name of the backend differs, and numbers by what rounding makes of them; all other text is the same.
    """

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        wanted, found = (re.sub(r"backend=\w+", "backend=", text) for text in (want, got))
        numbers = [NUMBER.findall(text) for text in (wanted, found)]
        if len(numbers[0]) != len(numbers[1]):
            # Numbers in a text that the page leaves out with "...".
            return super().check_output(wanted, found, optionflags)
        if not all(math.isclose(float(a), float(b), **CLOSE) for a, b in zip(*numbers, strict=True)):
            return False
        # Columns are as wide as the longest number, and brackets end where they do.
        texts = [re.sub(r"\s+", "", NUMBER.sub("0", text)) for text in (wanted, found)]
        return super().check_output(texts[0], texts[1], optionflags)


def runner() -> doctest.DocTestRunner:
    checker = AnyBackend() if ON_ANOTHER_LIBRARY else None
    return doctest.DocTestRunner(checker=checker, optionflags=OPTIONS)


def leave_out_results(test: doctest.DocTest) -> None:
    """Have any result of examples of NumPy's own accepted on another backend."""
    for example in test.examples if ON_ANOTHER_LIBRARY else ():
        if example.source.startswith(OF_NUMPY) and example.exc_msg is None:
            example.want = f"{doctest.ELLIPSIS_MARKER}\n"


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Each block's code and the number of its first line, from 0."""
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start(1)), match[1]


def run(text: str, page: str) -> str:
    """Run the blocks of a page; returns what failed, in doctest's words: page, line, difference."""
    run_block, parser = runner().run, doctest.DocTestParser()
    namespace = {"__name__": "__main__"}
    report: list[str] = []
    for line, code in blocks(text):
        if ">>> " in code:
            test = parser.get_doctest(code, {}, page, page, line)
            leave_out_results(test)
            test.globs = namespace  # shared: get_doctest copies what it is given
            run_block(test, out=report.append, clear_globs=False)
            if report:
                break  # what follows may fail only because this did
        else:
            exec(compile("\n" * line + code, page, "exec"), namespace)
    return "".join(report)


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    imported = re.findall(r"^(?:>>> )?(?:import|from) (\w+)", text, re.MULTILINE)
    choose(*[package for package, library in LARGE.items() if library in imported], *imported)
    command = [sys.executable, "-W", "error", "-X", "utf8", __file__, page]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 0, result.stdout + result.stderr


LARGE = {"tape_torch": "torch", "tape_jax": "jax"}
"""The packages of large libraries, which have environments of their own."""


OPTIONAL = {*LARGE, "diffrax", "equinox", "optax"}
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


if __name__ == "__main__":
    sys.exit(run((ROOT / sys.argv[1]).read_text(encoding="utf-8"), sys.argv[1]) or 0)


def test_no_page_announces_what_is_there_or_is_not() -> None:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        found = re.findall(r"still to come|not there yet", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name} says {found}"
