"""The fuzzers compare with PyTorch: they run where it is, which is in one of the two sessions of tests."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what lies here as a matter of the library that computes."""
    item.add_marker("each_backend")
