"""Skip all tests without PyTorch; run PyTorch on one thread, so that tests in parallel do not slow each other down."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    collect_ignore_glob = ["*"]
else:
    import torch

    torch.set_num_threads(1)
