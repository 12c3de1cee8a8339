"""Fixtures of the tests of XLA's compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(params=["numpy", "torch", "jax"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a backend, which is selected."""
    from tape_core import use_backend

    if request.param == "torch":
        pytest.importorskip("tape_torch")
    with use_backend(request.param):
        yield request.param


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
