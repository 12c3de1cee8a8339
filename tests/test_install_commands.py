"""What errors and pages say to install is there: packages of this repository, or others that we mean."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import pytest

ROOT = pages.ROOT
PROJECTS: dict[str, dict[str, Any]] = {
    path.parent.name: tomllib.loads(path.read_text("utf-8"))["project"]
    for path in sorted(ROOT.glob("packages/*/pyproject.toml"))
}
MODULES = {
    "array_api_compat": "array-api-compat",
    "array_api_strict": "array-api-strict",
    "autograd": "tape-autograd",  # by the alias that tape_autograd makes
    "diffrax": "diffrax",
    "einops": "einops",
    "equinox": "equinox",
    "jax": "jax",
    "ml_dtypes": "ml_dtypes",
    "numpy": "numpy",
    "optax": "optax",
    "matplotlib": "matplotlib",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "torch": "torch",
}
"""The modules of other packages that the code of pages imports, with the names of these packages."""

TOOLS = {
    *("nox", "pytest-xdist", "hypothesis", "expecttest"),
    *("array-api-extra", "tqdm"),
}
OTHERS = {*MODULES.values(), *TOOLS}
EXAMPLES = {"mylib", "tape-mine", "tape-tomorrow"}
"""What stands in texts for a package of the reader's."""

WORD = r"[\"']?[A-Za-z][\w./-]*(?:\[[\w,.-]+\])?[<>=!~\d.,]*[\"']?"
COMMAND = re.compile(rf"pip install (?:--upgrade |--no-deps |-e )*((?:{WORD} ?|-e |-c )+)")
REQUIREMENT = re.compile(r"([A-Za-z][\w.-]*)(?:\[([\w,.-]+)\])?")


def texts() -> Iterator[Path]:
    """Files that tell a reader what to install."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    for pattern in ("docs/*.md", "docs/examples/*.py", "packages/*/README.md", "packages/*/src/**/*.py"):
        yield from sorted(ROOT.glob(pattern))


def named(text: str) -> Iterator[tuple[str, list[str]]]:
    """The packages that the commands of a text install, each with its extras."""
    for match in COMMAND.finditer(text):
        for word in match[1].split():
            found = REQUIREMENT.match(word.strip("\"'"))
            if found and "/" not in word and not word.endswith(".txt"):
                yield found[1].rstrip("."), found[2].split(",") if found[2] else []
            # In prose a command ends with its quote, and a sentence may go on after it.
            if word.endswith((".", '"', "'")) and word[0] not in "\"'":
                break


def test_commands_name_packages_that_there_are() -> None:
    seen = set()
    for path in texts():
        for name, extras in named(path.read_text("utf-8")):
            where = f"{path.relative_to(ROOT)}: {name}"
            if name in PROJECTS:
                assert set(extras) <= set(PROJECTS[name].get("optional-dependencies", {})), f"{where}{extras}"
            else:
                assert name in OTHERS | EXAMPLES, where
            seen.add(name)
    assert {"tape-numpy", "tape-torch", "tape-jax", "tape-compile", "tape-core"} <= seen


def brought(requirement: str) -> set[str]:
    """The packages that installing one brings, as far as Tape's own say so."""
    found = REQUIREMENT.match(requirement)
    assert found is not None
    name, extras = found[1], (found[2] or "").split(",")
    project = PROJECTS.get(name)
    if project is None:
        return {name, *extras} & {name, "numpy"}  # safetensors[numpy]
    optional = project.get("optional-dependencies", {})
    lines = [*project["dependencies"], *(line for extra in extras if extra for line in optional[extra])]
    return {name}.union(*(brought(line) for line in lines))


@pytest.mark.parametrize("page", pages.PAGES)
def test_a_page_says_what_its_code_imports(page: str) -> None:
    requirements = pages.installed_by(page)
    assert requirements, f"{page} does not say what to install: add a line that begins with {pages.TO_RUN!r}"
    have = set().union(*(brought(line) for line in requirements))
    code = "".join(block for _, block in pages.blocks((ROOT / page).read_text("utf-8")))
    imported = set(re.findall(r"^(?:(?:>>>|\.\.\.) +)?(?:import|from) (\w+)", code, re.MULTILINE))
    for module in imported - set(sys.stdlib_module_names):
        name = module.replace("_", "-") if module.startswith("tape_") else MODULES.get(module)
        assert name is not None, f"{page} imports {module}: say in MODULES which package has it"
        assert name in have, f"{page} imports {module}, and says to install {' '.join(requirements)}"


def test_readers_of_a_page_need_no_test_tools() -> None:
    """The release runs each page where there is nothing else than what it names."""
    source = (ROOT / "tests" / "pages.py").read_text("utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
    assert imported == {"__future__", "collections", "doctest", "math", "os", "pathlib", "re", "sys"}
