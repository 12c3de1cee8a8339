"""Fixtures of the tests of XLA's compiler."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
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


@pytest.fixture
def interrupted() -> Iterator[Callable[[Callable[[], object]], bool]]:
    """A function that calls another 20 times, and interrupts that at some moment; it returns whether it has done so."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        pytest.skip("there are no alarms here")
    draw = random.Random(0)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    def call(step: Callable[[], object]) -> bool:
        try:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 5e-4))
            for _ in range(20):
                step()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            return True
        return False

    former = signal.signal(signal.SIGALRM, ring)
    try:
        yield call
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
