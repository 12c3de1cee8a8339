"""The test that pytest collects: `pytest --pyargs tape_conformance --tape-backend=NAME`. A check's id is the test's.

A plugin's own tests may import both functions, as projects of `python -m tape_conformance new` do; then a mere `pytest`
runs the suite, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tape_conformance.checking import Check, Skipped
from tape_conformance.expectations import Expectations
from tape_conformance.suite import checks, target_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each check; one that the backend declares to fail must fail."""
    if "check" not in metafunc.fixturenames:  # another test of a module that imports this one
        return
    name = metafunc.config.getoption("--tape-backend")
    if name is None:
        raise pytest.UsageError("tape_conformance: name the backend to check: --tape-backend=NAME")
    names = metafunc.config.getoption("--tape-compiler") or []
    expectations = Expectations.of(target_of(name))
    only = metafunc.config.getoption("--tape-only") or ["*"]
    found = checks(name, only, compiled_by=names, quick=metafunc.config.getoption("--tape-quick"))
    if not found:
        raise pytest.UsageError(f"tape_conformance: --tape-only={' '.join(only)} selects no check")
    metafunc.parametrize("check", [_param(check, expectations.reason(check.id)) for check in found])


def _param(check: Check, reason: str | None) -> object:
    # Strict: a check that passes though it is expected to fail is a failure, so that the entry is removed.
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(check, id=check.id, marks=marks)


def test(check: Check, record_property: Callable[[str, object], None], pytestconfig: pytest.Config) -> None:
    """Run one check."""
    __tracebackhide__ = True
    record_property("tape-check", check.id)
    if check.traits is not None:
        record_property("tape-traits", list(check.traits().items()))
    try:
        check.function()
    except Skipped as skipped:
        pytest.skip(str(skipped))
    except Exception as error:
        if rule := getattr(error, "rule", ""):
            record_property("tape-rule", rule)
        if pytestconfig.getoption("tbstyle") == "line":
            raise error from None  # pytest would print what caused it as well, and first
        raise
