"""What compiled functions tell Python's logging."""

from __future__ import annotations

import logging

import pytest
import tape_core as tc
from support import run_python


def test_traces_are_told(caplog: pytest.LogCaptureFixture) -> None:
    @tc.function(donate="y")
    def product(x: tc.Tensor, y: tc.Tensor, n: int) -> tc.Tensor:
        return tc.sum(x * y) * n

    with caplog.at_level(logging.DEBUG, "tape_compile"):
        product(tc.ones((2, 3)), tc.ones((2, 3)), 2)
        product(tc.ones((2, 3)), tc.ones((2, 3)), 2)
        product(tc.ones((4, 3)), tc.ones((4, 3)), 2)
    first, again = caplog.records
    assert first.levelname == "DEBUG"
    assert first.getMessage().startswith("product is traced for (2, float32[2, 3], a donated Tensor): ")
    assert " instructions, " in first.getMessage()
    assert again.levelname == "INFO"
    assert "product is traced again, trace 2, for (2, float32[4, 3]" in again.getMessage()


def test_why_a_function_runs_as_python_is_told(caplog: pytest.LogCaptureFixture) -> None:
    @tc.function(fallback="silent")
    def decides(x: tc.Tensor) -> tc.Tensor:
        return x if x > 0 else -x

    with caplog.at_level(logging.INFO, "tape_compile"):
        decides(tc.asarray(1.0))
    (record,) = caplog.records
    assert "decides runs as plain Python for these arguments: " in record.getMessage()


def test_nothing_is_told_where_nobody_asks(caplog: pytest.LogCaptureFixture) -> None:
    tc.function(lambda x: x + 1)(tc.ones(2))
    assert caplog.records == []


def test_lines_are_seen_in_a_program_that_asks_for_them() -> None:
    code = (
        "import logging, tape_core as tc\n"
        "logging.basicConfig(level=logging.DEBUG, format='%(name)s %(message)s')\n"
        "tc.function(lambda x: x + 1)(tc.ones(2))\n"
        "import sys; sys.stdout.write('done')"
    )
    assert run_python("-c", code) == "done"
