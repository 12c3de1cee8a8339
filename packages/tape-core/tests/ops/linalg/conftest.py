"""A fixture for what SciPy's routines compute where it is installed."""

from __future__ import annotations

import pytest
import tape_numpy.linalg


@pytest.fixture(params=["scipy", "numpy alone"])
def with_and_without_scipy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with SciPy's routines and without."""
    if request.param == "scipy":
        pytest.importorskip("scipy")
    else:
        monkeypatch.setattr(tape_numpy.linalg, "_routines", lambda: None)
        monkeypatch.setattr(tape_numpy.linalg, "_sparse", lambda: None)
