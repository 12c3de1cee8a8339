"""Most fuzzers compare with PyTorch: they run where it is. Those of XLA need JAX alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None:
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_xla.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what lies here as a matter of the library that computes."""
    item.add_marker("each_backend")
