"""Skip all tests without JAX."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("jax") is None or find_spec("tape_jax") is None:
    collect_ignore_glob = ["*"]
