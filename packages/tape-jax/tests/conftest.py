"""Skip all tests without JAX; mark them as a matter of the library that computes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("jax") is None or find_spec("tape_jax") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture
def on_jax() -> Iterator[None]:
    """Select JAX, and float64 by default."""
    import tape_core as tc  # the tests here are left out without JAX

    before = tc.get_default_dtype()
    tc.set_default_dtype(tc.float64)
    with tc.use_backend("jax"):
        yield
    tc.set_default_dtype(before)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what lies here."""
    item.add_marker("each_backend")
