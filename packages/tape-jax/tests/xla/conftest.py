"""Fixtures of the tests of XLA's compiler."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def programs():
    """The names of events of JAX, which are as many as it compiles programs."""
    import jax  # the tests here are left out without it

    names: list[str] = []

    def listen(name: str, *_: Any, **__: Any) -> None:
        if "backend_compile" in name:
            names.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
