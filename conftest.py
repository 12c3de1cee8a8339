"""Fixtures for the tests of all packages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tape_core.backends.kernels import DEFAULT_KERNELS
from tape_core.extend import registry

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
