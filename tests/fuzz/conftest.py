"""The fuzzers compare with PyTorch: they run where it is, which is in one of the two sessions of tests."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
