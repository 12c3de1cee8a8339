"""Running the suite: with pytest, without it; what a backend says it cannot do; the support matrix."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import run_python
from tape_conformance import Report, Result, check_backend, checks, suite
from tape_conformance.expectations import Expectations
from tape_conformance.reference import functions
from tape_core.backends import BackendNotFoundError
from tape_core.extend import Draw, Sample, elementwise, registry
from tape_numpy.backend import NumPyBackend


def expecting(monkeypatch: pytest.MonkeyPatch, reasons: dict[str, str]) -> None:
    monkeypatch.setattr(suite.Expectations, "of", lambda target: Expectations("plugin/expectations.toml", reasons))


# -- with pytest


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a folder and a process of its own, as a plugin's author runs it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_a_run_names_its_backend(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, "--pyargs", "tape_conformance")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "name the backend to check: --tape-backend=NAME" in run.stderr


def test_a_backend_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, "--pyargs", "tape_conformance", "--tape-backend=numpi")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no backend named 'numpi' is installed" in run.stderr
    assert "Did you mean 'numpy'?" in run.stderr


def test_patterns_select_checks(tmp_path: Path) -> None:
    options = ("--pyargs", "tape_conformance", "--tape-backend=numpy", "--tape-only=hypot/v*", "--collect-only", "-q")
    found = run_pytest(tmp_path, *options, "--tape-only=tape/persistent").stdout
    assert "test[tape/persistent]" in found
    assert "test[hypot/vjp/x1/broadcast:2x3,3]" in found
    assert "test[hypot/samples]" not in found
    run = run_pytest(tmp_path, *options[:3], "--tape-only=hypo/*")
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "--tape-only=hypo/* selects no check" in run.stdout + run.stderr


def marks(matrix: str, op: str) -> dict[str, str]:
    """Return the marks of an op in a support matrix, by column."""
    header, row = (next(re.finditer(rf"^\| {name} \|.*$", matrix, re.MULTILINE))[0] for name in ("op", f"`{op}`"))
    return dict(zip(*[[cell.strip() for cell in line.split("|")[2:-1]] for line in (header, row)], strict=True))


@pytest.mark.parametrize("parallel", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_each_check_is_a_test_and_the_matrix_is_written(tmp_path: Path, parallel: tuple[str, ...]) -> None:
    selected = ("-k", "hypot or stop-recording")
    options = ("--tape-backend=numpy", "--tape-report=out/matrix", "-v", *parallel)
    run = run_pytest(tmp_path, "--pyargs", "tape_conformance", *options, *selected)
    assert run.returncode == 0, run.stdout
    assert "test[hypot/vjp/x1/broadcast:2x3,3]" in run.stdout
    assert "test[tape/stop-recording]" in run.stdout
    text = (tmp_path / "out" / "matrix.md").read_text(encoding="utf-8")
    row = marks(text, "hypot")
    assert {row[kind] for kind in ("value", "float32", "vjp", "jvp", "second", "batch", "compose", "special")} == {"✓"}
    assert (row["refused"], row["complex"]) == ("✓", "✓")
    assert "| `tape/stop-recording` | ✓ |" in text
    assert "<code>hypot</code>" in (tmp_path / "out" / "matrix.html").read_text(encoding="utf-8")


def test_a_run_of_another_project_imports_nothing_of_tape() -> None:
    # pytest loads the plugin in every run where the package is installed.
    code = (
        "import sys, tape_conformance.plugin; print([name for name in ('tape_core', 'numpy') if name in sys.modules])"
    )
    assert run_python("-c", code) == "[]\n"


# -- without pytest


def test_check_backend_runs_what_is_selected() -> None:
    report = check_backend("numpy", only=["sqrt/value/*", "tape/persistent"])
    assert report.ok
    labels = ["2x3", "0-d:()", "empty:0x2", "complex:2x3", "complex:0-d:()"]
    assert [r.id for r in report.results] == ["tape/persistent", *(f"sqrt/value/{label}" for label in labels)]


def test_what_selects_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="selects no check"):
        check_backend("numpy", only="sqrd/*")
    with pytest.raises(BackendNotFoundError):
        check_backend("numpi")


def test_ids_are_unique_and_every_op_is_there() -> None:
    ids = [check.id for check in checks("numpy")]
    assert len(set(ids)) == len(ids)
    assert {f"{name}/samples" for name in registry} <= set(ids)
    assert check_backend("numpy", only="suite/*").ok


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_an_op_without_samples_fails() -> None:
    @elementwise(x=lambda xp, x: xp.cos(x), kernel=lambda xp, x: xp.sin(x))
    def unsampled(x: Any, /) -> Any:
        """An op."""

    (failed,) = check_backend("numpy", only="unsampled/*").failed
    assert failed.id == "unsampled/samples"
    assert "carries no samples" in failed.detail
    assert not check_backend("numpy", only="suite/complete").ok


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_an_input_that_no_sample_differentiates_fails() -> None:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw(2), 2.0)

    @elementwise(x1=1, x2=1, kernel=lambda xp, x1, x2: x1 + x2, samples=samples)
    def half_sampled(x1: Any, x2: Any, /) -> Any:
        """An op."""

    failed = {result.id: result.detail for result in check_backend("numpy", only="half_sampled/*").failed}
    assert "'x2'" in failed["half_sampled/samples"]


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_an_op_of_somebody_else_is_checked_like_any_other() -> None:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw(2, 3))

    @elementwise(x=lambda xp, x: 2.5 * x, kernel=lambda xp, x: x * x, samples=samples)
    def wrong_square(x: Any, /) -> Any:
        """An op."""

    failed = {result.id for result in check_backend("numpy", only="wrong_square/*").failed}
    assert {"wrong_square/vjp/x/2x3", "wrong_square/jvp/2x3"} <= failed
    assert "wrong_square/value/2x3" not in failed


def test_every_op_beyond_the_standard_has_a_reference_of_its_own() -> None:
    """Its default kernel would be compared with itself."""
    beyond = [op.name for op in registry.values() if op.kernel is not None]
    assert not set(beyond) - set(functions())
    assert not set(functions()) - set(registry)


# -- expectations


def test_an_expected_failure_is_none_and_gives_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry["sqrt"].__dict__, "samples", None)
    expecting(monkeypatch, {"sqrt/samples": "nobody knows"})
    report = check_backend("numpy", only="sqrt/*")
    assert report.ok
    assert report.results == [Result("sqrt/samples", "expected", "nobody knows")]


def test_a_check_that_passes_against_expectation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    expecting(monkeypatch, {"sqrt/value/*": "it cannot"})
    report = check_backend("numpy", only="sqrt/value/2x3")
    assert "it passes, but is expected to fail: it cannot" in report.failed[0].detail


def test_a_stale_expectation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    expecting(monkeypatch, {"sqrt/valeu/*": "it cannot"})
    (failed,) = check_backend("numpy", only="suite/expectations").failed
    assert "plugin/expectations.toml" in failed.detail
    assert "sqrt/valeu/*" in failed.detail


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[expected]]\nid = "a"', "entry 1 must have an id and a reason"),
        ('[[expected]]\nid = "a"\nreason = " "', "entry 1 must have an id and a reason"),
        ('[[expected]]\nid = "a"\nreason = "b"\n' * 2, "'a' stands there twice"),
        ("expected =", "plugin/expectations.toml: "),
    ],
    ids=["no reason", "empty reason", "twice", "not TOML"],
)
def test_a_file_that_is_not_right_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Expectations.parse(text, "plugin/expectations.toml")


def test_an_id_with_brackets_is_matched_as_it_is() -> None:
    expectations = Expectations.parse('[[expected]]\nid = "concat/*/[2x3,1x3]"\nreason = "r"', "file")
    assert expectations.reason("concat/value/[2x3,1x3]") == "r"
    assert expectations.reason("concat/value/2") is None


# -- the matrix


def test_the_matrix_shows_the_worst_outcome_of_each_kind() -> None:
    report = Report(
        "mylib",
        [
            Result("exp/value/2", "passed", ""),
            Result("exp/value/3", "failed", "AssertionError: a | b"),
            Result("exp/vjp/x/complex:2", "expected", "not yet"),
            Result("exp/memory/2", "skipped", "a view"),
            Result("tape/gradient", "passed", ""),
        ],
    )
    assert report.matrix() == {"exp": {"value": "✗", "vjp": "~", "complex": "~", "memory": ""}}
    text = report.to_markdown()
    assert "1 failed, 1 fail as expected, 1 skipped" in text
    row = {kind: mark for kind, mark in marks(text, "exp").items() if mark}
    assert row == {"value": "✗", "vjp": "~", "complex": "~"}
    assert "| `exp/value/3` | AssertionError: a \\| b |" in text
    assert "| `exp/vjp/x/complex:2` | not yet |" in text
    assert "<td class=note>not yet</td>" in report.to_html()
    assert not report.ok
    assert "exp/value/3: AssertionError" in str(report)


# -- the quick checks


def test_the_quick_checks_are_a_few_of_every_op() -> None:
    assert check_backend("numpy", quick=True).ok
    every, quick = ([check.id for check in checks("numpy", quick=quick)] for quick in (False, True))
    assert set(quick) < set(every)
    assert len(quick) < len(every) / 10
    assert {f"{name}/samples" for name in registry} <= set(quick)
    values = [id.split("/")[0] for id in quick if "/value/" in id]
    assert sorted(values) == sorted(registry)  # one each
    chosen = [id for id in quick if id.startswith("multiply/")]
    broadcast = "broadcast:2x3,3"
    assert chosen == [
        "multiply/samples",
        f"multiply/value/{broadcast}",
        f"multiply/vjp/x1/{broadcast}",
        f"multiply/vjp/x2/{broadcast}",
        "multiply/refused/broadcast:2,3",
    ]
    assert "tape/gradient" in quick
    assert "contract/dtype/float64" in quick
    assert "contract/dtype/promotion" not in quick


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_the_quick_checks_find_mistakes_of_a_plugin() -> None:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw(2, 3))

    @elementwise(x=lambda xp, x: 2.5 * x, kernel=lambda xp, x: x * x, samples=samples)
    def wrong_square(x: Any, /) -> Any:
        """An op."""

    backend = NumPyBackend()
    backend.kernels["tanh"] = lambda x: x
    backend.kernels["concat"] = lambda arrays, *, axis=0: arrays[0]
    backend.rules["relu"] = {"x": lambda xp, x: 3.0 * x}
    report = check_backend(backend, quick=True)
    found = {result.id.rpartition("/")[0] for result in report.failed}
    assert {"tanh/value", "tanh/vjp/x", "concat/value", "relu/vjp/x", "wrong_square/vjp/x"} <= found


def test_pytest_runs_the_quick_checks_alone(tmp_path: Path) -> None:
    options = ("--pyargs", "tape_conformance", "--tape-backend=numpy", "--tape-quick", "--collect-only", "-q")
    run = run_pytest(tmp_path, *options)
    assert f"{len(checks('numpy', quick=True))} tests collected" in run.stdout, run.stdout


# -- what is shown


def test_a_prompt_shows_what_failed_and_the_matrix() -> None:
    report = check_backend("numpy", only=["sqrt/value/*", "sqrt/refused/*", "hypot/vjp/*"])
    first, header, hypot, sqrt = repr(report).splitlines()
    assert re.fullmatch(r"numpy: \d+ passed", first)
    assert header.split()[0] == "op"
    assert set(header.split()[1:]) <= {"value", "vjp", "complex", "refused"}
    assert hypot.split() == ["hypot", "✓"]
    assert sqrt.startswith("sqrt   ✓")


def outcomes(**details: str) -> Report:
    """A report of many ops, of which those that are named fail with a message."""
    ops = sorted({*list(registry)[:60], *details})
    found = [Result(f"{op}/value/2", "failed" if op in details else "passed", details.get(op, "")) for op in ops]
    return Report("mine", [*found, Result("tape/persistent", "expected", "a reason")])


def test_of_a_long_matrix_a_prompt_shows_what_is_wrong() -> None:
    lines = repr(outcomes(sinh="AssertionError: wrong\nby far")).splitlines()
    assert "1 failed, 1 fail as expected" in lines[0]
    assert lines[1:3] == ["  sinh/value/2: AssertionError: wrong", "  by far"]
    assert [line.split() for line in lines[3:5]] == [["op", "value"], ["sinh", "✗"]]
    assert lines[-1].endswith("other ops are not shown: to_markdown() and write(file) have all")
    many = repr(outcomes(**{f"op{k}": "wrong" for k in range(15)}))
    assert "and 5 more, which print() shows" in many


def test_a_notebook_shows_the_matrix() -> None:
    html = outcomes(sinh="found <b> & not <i>")._repr_html_()
    assert html.startswith("<div class=tape-report>")
    assert "<b>mine</b>: " in html
    assert '<tr><th scope=row><code>sinh</code></th><td class=failed title="fails">✗</td></tr>' in html
    assert "<details open><summary>1 failed</summary>" in html
    assert "found &lt;b&gt; &amp; not &lt;i&gt;" in html
    assert "<details><summary>1 failed as expected</summary>" in html
    assert "a reason" in html
    assert "jvp" not in html  # of which nothing ran
    assert "Backend and tape: 0 of 1 pass" in html
    assert "color:#" not in html  # the notebook's own colours, light or dark


def test_a_report_on_a_compiler_has_a_column_of_its_own() -> None:
    report = Report(
        "numpy", [Result("sin/compiled-by-mine/2", "passed", ""), Result("cos/compiled-by-mine/2", "failed", "no")]
    )
    assert "<th scope=col>compiled-by-mine</th>" in report._repr_html_()
    assert [line.split() for line in repr(report).splitlines()[2:]] == [
        ["op", "compiled-by-mine"],
        ["cos", "✗"],
        ["sin", "✓"],
    ]
