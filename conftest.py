"""Fixtures for the tests of all packages."""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tape_compile.codegen.source import Source
from tape_core.backends.kernels import DEFAULT_KERNELS
from tape_core.extend import registry

pytest.register_assert_rewrite("support")

try:
    import hypothesis
except ImportError:  # where the conformance suite runs alone
    hypothesis = None  # type: ignore[assignment]

if hypothesis is not None:
    # The same examples in every run, and a busy machine is no failure.
    hypothesis.settings.register_profile(
        "tape", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True, database=None
    )
    hypothesis.settings.load_profile("tape")


@pytest.fixture
def _ops_are_forgotten() -> Iterator[None]:
    """Ops that a test declares go with it."""
    before = set(registry), set(DEFAULT_KERNELS)
    yield
    for name in set(registry) - before[0]:
        registry._ops.pop(name)
    for name in set(DEFAULT_KERNELS) - before[1]:
        DEFAULT_KERNELS.pop(name)


@pytest.fixture(scope="session", autouse=True)
def _shown_source_is_what_runs(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fail where the text of a compiled function, read by Python, is not the tree that was compiled, line by line.

    Reading takes longer than compiling: of the runs of the conformance suite, whose texts are alike, one does it.
    """
    if pytestconfig.getoption("--tape-backend", default=None) not in (None, "numpy"):
        yield
        return
    init = Source.__init__

    def checked(self: Source, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        read, made = ast.parse(self.joined), self.tree()
        assert ast.dump(read) == ast.dump(made), self.joined
        lines = [[part.lineno for part in ast.walk(tree) if isinstance(part, ast.stmt)] for tree in (read, made)]
        assert lines[0] == lines[1], self.joined

    Source.__init__ = checked  # type: ignore[method-assign]
    yield
    Source.__init__ = init  # type: ignore[method-assign]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which `-m "each_backend ..."` selects nothing: to import them is long, and compiles on JAX.

    Tests are marked in their file, or by the conftest.py of a folder that it lies in.
    """
    asked = config.option.markexpr.split()
    if asked[:1] != ["each_backend"] or "or" in asked or collection_path.suffix != ".py":
        return None
    folders = [folder for folder in collection_path.parents if config.rootpath in folder.parents]
    may_mark = [collection_path, *(folder / "conftest.py" for folder in folders)]
    return None if any(path.is_file() and "each_backend" in path.read_text("utf-8") for path in may_mark) else True


def pytest_collection_finish() -> None:
    """Freeze what collecting the tests has made: many tests ask for garbage collections, which would go through it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Freeze what a file of tests leaves: libraries that it imported, compiled functions that are kept."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much the fuzzers of tests/fuzz have drawn."""
    found: Counter[str] = Counter()
    seeds = []
    for report in [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, ())]:
        for name, value in report.user_properties:
            if name.startswith("fuzzed "):
                found[name.removeprefix("fuzzed ")] += value
            elif name == "fuzz_seed":
                seeds.append(f"{report.nodeid}: {value}")
    if found:
        terminalreporter.section("fuzzers")
        terminalreporter.line("drawn: " + ", ".join(f"{number} {what}" for what, number in sorted(found.items())))
        for line in seeds:
            terminalreporter.line(f"seed of {line}")
