"""Skip all tests without PyTorch; run PyTorch on one thread, so that tests in parallel do not slow each other down."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    collect_ignore_glob = ["*"]
else:
    import torch

    torch.set_num_threads(1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what lies here as a matter of the library that computes."""
    item.add_marker("each_backend")
