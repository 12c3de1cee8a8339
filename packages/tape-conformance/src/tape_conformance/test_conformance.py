"""The test that pytest collects: `pytest --pyargs tape_conformance --tape-backend=NAME`. A check's id is the test's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tape_conformance.checking import Check, Skipped
from tape_conformance.expectations import Expectations
from tape_conformance.suite import checks, target_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each check; one that the backend declares to fail must fail."""
    name = metafunc.config.getoption("--tape-backend")
    if name is None:
        raise pytest.UsageError("tape_conformance: name the backend to check: --tape-backend=NAME")
    names = metafunc.config.getoption("--tape-compiler") or []
    expectations = Expectations.of(target_of(name))
    found = checks(name, compiled_by=names)
    metafunc.parametrize("check", [_param(check, expectations.reason(check.id)) for check in found])


def _param(check: Check, reason: str | None) -> object:
    # Strict: a check that passes though it is expected to fail is a failure, so that the entry is removed.
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(check, id=check.id, marks=marks)


def test(check: Check, record_property: Callable[[str, object], None]) -> None:
    """Run one check."""
    record_property("tape-check", check.id)
    try:
        check.function()
    except Skipped as skipped:
        pytest.skip(str(skipped))
