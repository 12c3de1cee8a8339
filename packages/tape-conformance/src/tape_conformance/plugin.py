"""The pytest plugin: `--tape-backend`, `--tape-compiler`, `--tape-only`, `--tape-quick` and `--tape-report`.

pytest loads it in every run of any project where this package is installed; so it imports Tape only when one of the
options is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tape_conformance.marks import Outcome
    from tape_conformance.report import Report, Result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("tape", "tape-conformance: pytest --pyargs tape_conformance --tape-backend=NAME")
    group.addoption(
        "--tape-backend",
        metavar="NAME",
        help="the backend to check, as TAPE_BACKEND: numpy, torch:cuda:0; or torch:dtensor:4, arrays of 4 processes",
    )
    group.addoption(
        "--tape-compiler",
        metavar="NAME",
        action="append",
        help="also compare the code of this compiler with eager calls; may be repeated; all: every installed one",
    )
    group.addoption(
        "--tape-quick", action="store_true", help="run the checks that find most mistakes in little time, and no others"
    )
    group.addoption(
        "--tape-only",
        metavar="PATTERN",
        action="append",
        help="run the checks whose ids match, such as 'softmax/*', and draw no samples for others; may be repeated",
    )
    group.addoption("--tape-report", metavar="FILE", help="write the support matrix, as FILE.md and FILE.html")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a run without a backend, or with one that cannot be used, before anything is collected."""
    name = config.getoption("--tape-backend")
    if name is None:
        if (
            any(map(config.getoption, ("--tape-report", "--tape-quick", "--tape-only")))
            or "tape_conformance" in config.args
        ):
            raise pytest.UsageError("tape_conformance: name the backend to check: --tape-backend=NAME")
        return
    from tape_core.backends import BackendError, CompilerError

    from tape_conformance.suite import target_of

    try:
        target = target_of(name, config.getoption("--tape-compiler") or [])
    except BackendError as error:
        raise pytest.UsageError(f"--tape-backend={name}: {error}") from None
    except (CompilerError, ValueError) as error:
        raise pytest.UsageError(f"--tape-compiler: {error}") from None
    if not hasattr(config, "workerinput"):  # with pytest-xdist the first process gathers the results
        gathered = Results(target.name, config.getoption("--tape-report"))
        config.pluginmanager.register(gathered, "tape-results")


class Results:
    """A pytest plugin that gathers the results of the checks; when all have run it tells which rules are wrong.

    It writes the support matrix if a file is given.
    """

    def __init__(self, backend: str, file: str | None) -> None:
        self.backend = backend
        self.file = file
        self.results: dict[str, Result] = {}
        self.written: list[Path] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a check: pytest reports set-up, call and tear-down, and a failure in any counts."""
        from tape_conformance.report import Result

        # A property, since under pytest-xdist a report comes from another process, which sends its properties along.
        properties: dict[str, Any] = dict(report.user_properties)
        id = properties.get("tape-check")
        if id is None or (report.when != "call" and report.passed):
            return
        outcome: Outcome = "passed"
        detail = ""
        # pytest reports an expected failure as skipped, with this attribute; so it is asked for first.
        if hasattr(report, "wasxfail"):
            outcome, detail = "expected", report.wasxfail.removeprefix("reason: ")
        elif report.failed:
            # A strict xfail that passes has a text in place of a traceback.
            crash = getattr(report.longrepr, "reprcrash", None)
            outcome, detail = "failed", str(report.longrepr) if crash is None else crash.message
        elif report.skipped:
            outcome = "skipped"
        rule, traits = str(properties.get("tape-rule", "")), dict(properties.get("tape-traits", ()))
        self.results[str(id)] = Result(str(id), outcome, detail, rule, traits)

    @property
    def report(self) -> Report:
        """The report of what has run."""
        from tape_conformance.report import Report

        # Sorted by id, since parallel processes finish in any order.
        return Report(self.backend, sorted(self.results.values(), key=lambda r: r.id))

    def pytest_sessionfinish(self) -> None:
        """Write the support matrix."""
        if self.file is not None:
            self.written = self.report.write(self.file)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a sentence for each rule that is wrong, and the paths of the support matrix."""
        if headlines := self.report.headlines():
            terminalreporter.section("wrong derivatives", sep="-")
            terminalreporter.write_line("\n".join(headlines))
        if self.written:
            terminalreporter.write_line(f"support matrix: {' and '.join(map(str, self.written))}")
