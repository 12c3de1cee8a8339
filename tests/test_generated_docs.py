"""What is generated of the documentation is that of today's source, and its pages cover what they promise to."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import house
import pytest
from tape_compile.passes import PASSES
from tape_core.extend import registry

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATE = DOCS / "generate"

OPS = ["tape_core", "tape_core.fft", "tape_core.linalg", "tape_core.special"]
"""The modules with ops that users call."""

TERMS = (
    "primal tangent cotangent VJP JVP transpose residual record slot plan sweep tape recorder watch leaf kernel rule "
    "op backend namespace sample pytree trace tracer instruction program pass CSE DCE lowering inlining fusion "
    "in-place schedule effect guard donation opaque fallback lifting eager weak"
)
PHRASES = [
    "constant folding",
    "host callback",
    "host number",
    "cache key",
    "axis of the vmap",
    "batch rule",
    "partial derivative",
    "forward mode",
    "raw array",
]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="calls are those of CPython")
@pytest.mark.skipif(
    bool(getattr(sys.flags, "thread_inherit_context", False)), reason="tapes ask for their thread there"
)
def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, "-X", "utf8", str(GENERATE), "--check"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=ROOT)
    assert result.returncode == 0, f"run `python docs/generate`:\n{result.stdout}{result.stderr}"


def test_the_page_of_rules_has_every_op_of_tape() -> None:
    page = text(DOCS / "rules.md")
    rules = page.partition("## The functions")[0]
    ops = [op for op in registry.values() if op.function.__module__.startswith("tape_core.ops.")]
    assert len(ops) > 200
    for op in ops:
        assert re.search(rf"^{op.name}\(|`{op.name}`", rules, re.MULTILINE), op.name


def test_help_of_each_public_op_says_what_becomes_of_its_derivative() -> None:
    public = {id(getattr(import_module(face), name)) for face in OPS for name in import_module(face).__all__}
    ops = [
        op for op in registry.values() if id(op.function) in public and op.function.__module__.startswith("tape_core.")
    ]
    assert len(ops) > 200
    said = re.compile(r"^(Derivative by|No derivative by|There is no derivative by|Nothing flows back)", re.MULTILINE)
    assert [op.name for op in ops if not said.search(inspect.getdoc(op.function) or "")] == []
    assert "Derivative by `x`: `xp.cos(x)`." in (inspect.getdoc(registry["sin"].function) or "")


def test_the_page_of_rules_shows_the_functions_that_it_names() -> None:
    rules, _, functions = text(DOCS / "rules.md").partition("## The functions")
    named = set(re.findall(r"  \w+: (_\w+)$", rules, re.MULTILINE))
    assert len(named) > 50
    assert [name for name in sorted(named) if f"def {name}(" not in functions] == []


def test_the_house_has_every_file_of_tape_core() -> None:
    page = text(DOCS / "house.md")
    source = ROOT / "packages" / "tape-core" / "src" / "tape_core"
    for path in source.rglob("*.py"):
        if path.name == "__init__.py":
            folder = path.parent.relative_to(source).as_posix()
            assert folder == "." or f"### `{folder}/`" in page, folder
        else:
            assert f"| `{path.name}` |" in page or path.name == "_version.py", path


FACES = ["tape_core", "tape_nn", "tape_nn.fitting", "tape_conformance"]
FACES += [f"{package}.{name}" for package, names in house.DECLARED.items() for name in names]
ENTRY = re.compile(r"^\.\. (?:auto\w+|py:data):: (\S+)(?:(?:\n   .*|\n)*?\n   Also (.+)\.$)?", re.MULTILINE)


def chapters() -> Counter[str]:
    """How often the chapters of the reference have each name, other names of a thing included."""
    found: Counter[str] = Counter()
    for page in sorted((DOCS / "api").glob("*.md")):
        for first, others in ENTRY.findall(text(page)):
            found.update([first, *re.findall(r"`(\S+)`", others)])
    return found


@pytest.mark.parametrize("face", FACES)
def test_each_public_name_is_in_one_chapter_of_the_reference(face: str) -> None:
    module, found = import_module(face), chapters()
    names = [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    wrong = {name: count for name in names if (count := found[f"{face}.{name}"]) != 1}
    assert wrong == {}, f"of {face}, so often: {wrong}; run `python docs/generate`"


def test_the_reference_has_no_name_that_there_is_not() -> None:
    def value(full: str) -> object:
        parts = full.split(".")
        module = import_module(".".join(parts[:-1]))
        return getattr(module, parts[-1]) if hasattr(module, parts[-1]) else import_module(full)

    # Not of tape-torch and tape-jax, where these are not installed.
    found = [name for name in chapters() if find_spec(name.partition(".")[0])]
    assert [name for name in found if value(name) is None and name != "tape_core.newaxis"] == []


def test_each_chapter_of_the_reference_is_listed() -> None:
    listed = re.findall(r"\]\((api/[\w-]+\.md)\)", text(DOCS / "api.md"))
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "api").glob("*.md"))


@pytest.mark.parametrize("term", [*TERMS.split(), *PHRASES])
def test_the_glossary_has(term: str) -> None:
    defined = " ".join(re.findall(r"^\*\*(.+?)\.?\*\*", text(DOCS / "glossary.md"), re.MULTILINE))
    whole = text(DOCS / "glossary.md")
    emphasised = " ".join(re.findall(r"\*(\w[\w ]+)\*", whole))
    assert re.search(rf"\b{re.escape(term)}\b", f"{defined} {emphasised}", re.IGNORECASE), f"{term!r} has no entry"


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([\w./-]*\.md)?(#[\w-]+)?\)", text(page))


def anchor(heading: str) -> str:
    """GitHub's name of a heading, which MyST shares."""
    heading = re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", ""))
    return heading.replace(" ", "-")


@pytest.mark.parametrize(
    "page",
    [page for pattern in ("*.md", "api/*.md", "notebooks/*.md") for page in sorted(DOCS.glob(pattern))],
    ids=lambda page: page.relative_to(DOCS).as_posix(),
)
def test_links_lead_somewhere(page: Path) -> None:
    for target, fragment in links(page):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name}: {target}"
        if fragment:
            headings = re.findall(r"^#+ (.+)$", text(file), re.MULTILINE)
            assert fragment[1:] in map(anchor, headings), f"{page.name}: {target}{fragment}"


def test_files_that_docstrings_and_comments_name_exist() -> None:
    files = [path.as_posix() for folder in ("packages", "tests", "docs") for path in (ROOT / folder).rglob("*.py")]
    for path in ROOT.glob("packages/*/src/**/*.py"):
        for name in re.findall(r"`((?:\w+/)*[a-z_]+\.py)`", text(path)):
            assert any(file.endswith(f"/{name}") for file in files), f"{path.relative_to(ROOT)}: {name}"


def test_the_page_of_compiled_functions_has_each_pass_in_its_order() -> None:
    table = text(DOCS / "compiled.md").partition("| pass | what it does |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(PASSES)


SOURCES = [ROOT, DOCS, *ROOT.glob("packages/*/src"), *ROOT.glob("packages/*/src/*")]


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_files_that_pages_name_exist(page: Path) -> None:
    files = set(re.findall(r"`((?:[\w-]+/)+\w+\.py)`", text(page))) - NOT_OURS
    assert [name for name in sorted(files) if not any((source / name).exists() for source in SOURCES)] == []
    sources = [path for source in ROOT.glob("packages/*/src") for path in source.rglob("*/")]
    known = {path.name for path in [*sources, *ROOT.iterdir(), *DOCS.iterdir()]} | {"dist"}
    folders = set(re.findall(r"`((?:[\w-]+/)+)`", text(page)))
    assert [name for name in sorted(folders) if Path(name).name not in known] == []


NOT_OURS = {"tape_strict/__init__.py"}  # of the plugin that a page writes
ELSEWHERE = {"index", "benchmarks-results"}  # the latter is a part of another page


def test_every_page_is_in_the_table_of_contents() -> None:
    index = text(DOCS / "index.md")
    listed = {
        line.strip() for block in re.findall(r"```\{toctree\}(.*?)```", index, re.DOTALL) for line in block.splitlines()
    }
    pages = [path.relative_to(DOCS).as_posix() for pattern in ("*.md", "notebooks/*.md") for path in DOCS.glob(pattern)]
    assert sorted({page.removesuffix(".md") for page in pages} - listed - ELSEWHERE) == []


PROMISES = re.compile(
    r"still to come|not there yet|\bcoming soon\b|will be (?:added|supported)|not yet implemented", re.IGNORECASE
)
PROSE = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(ROOT.glob("packages/*/README.md")),
    *sorted(ROOT.glob("packages/*/src/**/*.py")),
]


def test_nothing_is_promised() -> None:
    """A page says what there is. A promise grows wrong on the day on which it is kept."""
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path in PROSE for match in PROMISES.finditer(text(path))]
    found += [f"{path.name}: planned" for path in DOCS.glob("*.md") if re.search(r"\bplanned\b", text(path))]
    assert found == []
