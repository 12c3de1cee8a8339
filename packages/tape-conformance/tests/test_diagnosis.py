"""What is said of a wrong derivative: which rule, on which samples, at which elements."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tape_conformance import Report, Result, check_backend
from tape_conformance.checking import expect_close, is_close
from tape_core.extend import Draw, Sample, elementwise, vjp
from tape_numpy.backend import NumPyBackend


def _samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3), 1.0)
    yield Sample(draw(3), 2.5)
    yield Sample(draw(2, 2), 1.0)


@pytest.fixture
def softclip(_ops_are_forgotten: None) -> Any:
    """An op whose rule forgets its parameter."""

    @elementwise(
        x=lambda xp, out: 1 - out * out, kernel=lambda xp, x, width: width * xp.tanh(x / width), samples=_samples
    )
    def softclip(x: Any, /, width: float) -> Any:
        """Clip softly."""

    return softclip


@pytest.mark.usefixtures("softclip")
def test_a_wrong_rule_is_named_with_the_samples_and_the_elements() -> None:
    report = check_backend("numpy", only=["softclip/value/*", "softclip/vjp/*"])
    (headline,) = report.headlines()
    rule = r"the rule of 'softclip' for 'x' \(test_diagnosis\.py:\d+\)"
    assert re.fullmatch(rf"{rule} is wrong on 1 of 3 samples, those with width=2\.5", headline)
    assert str(report).splitlines()[1] == headline
    (failed,) = report.failed
    first, *entries = failed.detail.splitlines()
    number = r"-?[\d.]+"
    assert re.fullmatch(
        rf"AssertionError: {rule} is wrong for \(float64\[3\], width=2\.5\): along a random direction it gives "
        rf"{number}, differences of values give {number}",
        first,
    )
    assert len(entries) == 3
    for entry in entries:
        match = re.fullmatch(
            rf"  d result\[(\d)\] / d x\[\1\]: ({number}), by differences ({number}), where x\[\1\] is ({number})",
            entry,
        )
        assert match is not None, entry
        own, true, x = (float(match[k]) for k in (2, 3, 4))
        assert np.allclose([own, true], [1 - (2.5 * np.tanh(x / 2.5)) ** 2, 1 / np.cosh(x / 2.5) ** 2], atol=1e-4)


def test_a_rule_of_the_backend_is_named_where_it_is() -> None:
    backend = NumPyBackend()
    backend.rules["matmul"] = {"x1": vjp(lambda xp, g, x2: 2 * g @ xp.matrix_transpose(x2) if x2.ndim == 2 else g)}
    report = check_backend(backend, only=["matmul/vjp/x1/2x3,3x4", "matmul/jvp/2x3,3x4", "matmul/second/2x3,3x4"])
    assert [failed.id for failed in report.failed][:1] == ["matmul/vjp/x1/2x3,3x4"]
    assert "test_diagnosis.py" in report.headlines()[0]
    assert "on 1 of 1 samples" in report.headlines()[0]
    assert "d result[1, 1] / d x1[1, 2]" in report.failed[0].detail


def test_a_headline_says_what_the_samples_share() -> None:
    def results(op: str, *traits: dict[str, str], wrong: int) -> list[Result]:
        return [
            Result(f"{op}/vjp/x/{k}", "failed" if k < wrong else "passed", "", "the rule" if k < wrong else "", own)
            for k, own in enumerate(traits)
        ]

    axis, negative, empty = {"axis": "0"}, {"axis": "-1"}, {"axis": "0", "empty arrays": ""}
    report = Report(
        "mylib",
        [
            *results("a", negative, axis, empty, wrong=1),
            *results("b", axis, negative, wrong=2),
            *results("c", empty, axis, wrong=1),
            *results("d", axis, axis, wrong=1),
            Result("d/value/0", "failed", ""),
        ],
    )
    assert report.headlines() == [
        "the rule is wrong on 1 of 3 samples, those with axis=-1",
        "the rule is wrong on 2 of 2 samples",
        "the rule is wrong on 1 of 2 samples, those with empty arrays",
        "the rule is wrong on 1 of 2 samples; but values of the op are wrong, too, so look at these first",
    ]


PLUGIN = """
import tape_numpy.backend
from tape_core.extend import vjp


class Backend(tape_numpy.backend.NumPyBackend):
    def user_error(self, error):
        return TypeError(f"in the user's terms: {error}")


def make():
    backend = Backend()
    backend.rules["square"] = {"x": lambda xp, x: 3 * x}
    return backend
"""


@pytest.mark.parametrize("parallel", [(), ("-n", "1")], ids=["one process", "two processes"])
def test_pytest_prints_the_headlines_and_one_error_for_each_failure(tmp_path: Path, parallel: tuple[str, ...]) -> None:
    (tmp_path / "faulty.py").write_text(PLUGIN)
    options = ["--pyargs", "tape_conformance", "--tape-backend=faulty:make", "--tb=line", "-p", "no:cacheprovider"]
    chosen = "square/vjp or test[add/refused"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", chosen, *parallel],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = run.stdout.splitlines()
    (headline,) = [line for line in lines if line.startswith("the rule of 'square' for 'x' (faulty.py:")]
    assert "samples" in headline
    # The error of the library and that in the user's terms are in the message of the last.
    assert "direct cause" not in run.stdout
    wrong = [line for line in lines if "it raised TypeError(" in line]
    assert wrong
    assert all("AssertionError" in line for line in wrong)


def test_arrays_that_differ_are_told_by_the_worst_element() -> None:
    with pytest.raises(AssertionError) as caught:
        expect_close([1.0, 2.5, 3.0], [1.0, 2.0, 3.1], "result 0", 1e-3)
    assert str(caught.value) == "result 0 is wrong: 2 of 3 elements differ; at [1] 2.5, expected 2.0 to within 0.0051"
    for found, expected in (([np.inf, 1], [1, 1]), ([np.nan], [1]), ([1], [np.nan]), ([-np.inf], [np.inf]), ([2], [1])):
        with pytest.raises(AssertionError, match="is wrong"):
            expect_close(found, expected, "it", 1e-3, atol=0)
    expect_close([np.nan, np.inf, 1e300], [np.nan, np.inf, 1e300], "it", 0)
    expect_close(np.asarray([True]), np.asarray([True]), "it", 0)
    assert is_close(1.0, 1.0005, 1e-3)
    assert not is_close(1.0, 1.0025, 1e-3)
    assert not is_close(np.nan, 1.0, 1e-3)
