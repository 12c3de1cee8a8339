"""Most fuzzers compare with PyTorch: they run where it is. Those of XLA and of JAX's meshes need JAX alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

_WITHOUT_TORCH = ("test_divided.py", "test_xla.py")

if find_spec("torch") is None:
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name not in _WITHOUT_TORCH]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what lies here as a matter of the library that computes."""
    item.add_marker("each_backend")
