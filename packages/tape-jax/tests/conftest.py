"""Skip all tests without JAX; mark them as a matter of the library that computes."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("jax") is None or find_spec("tape_jax") is None:
    collect_ignore_glob = ["*"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what lies here."""
    item.add_marker("each_backend")
