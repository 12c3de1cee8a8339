"""Devices by name, of libraries whose devices are objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import ArrayAPIBackend, BackendError


class Device:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


DEVICES = [Device("cpu:0"), Device("gpu:0"), Device("gpu:1")]


class Library:
    """NumPy with three devices, which are objects; anything else as `device=` is an error deep inside."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def __array_namespace_info__(self) -> Any:
        return SimpleNamespace(devices=lambda: DEVICES, default_device=lambda: DEVICES[0])

    def _on(self, device: Any) -> None:
        if device is not None:
            assert device in DEVICES, f"{device!r} has no attribute '_is_concrete'"
            self.asked.append(device)

    def zeros(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
        self._on(device)
        return np.zeros(shape, dtype)

    def asarray(self, obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        self._on(device)
        return np.asarray(obj, dtype, copy=copy)


@pytest.mark.parametrize(
    ("name", "device"), [("cpu", DEVICES[0]), ("cpu:0", DEVICES[0]), ("gpu", DEVICES[1]), ("gpu:1", DEVICES[2])]
)
def test_a_name_is_the_device_of_that_name_or_the_first_of_its_kind(name, device):
    library = Library()
    backend = ArrayAPIBackend("objects", library, array_types=("tests:Array",))
    with tc.use_backend(backend, name):
        tc.zeros(2)
        tc.asarray([1.0])
    with tc.use_backend(backend):
        tc.zeros(2, device=name)
        tc.asarray([1.0], device=name)
    tc.zeros(2, backend=backend, device=name)
    assert library.asked == [device] * 5
    assert backend.find_device(name) == str(device)


def test_a_device_that_is_not_there_is_an_error_that_names_those_that_are():
    backend = ArrayAPIBackend("objects", Library(), array_types=("tests:Array",))
    message = "backend 'objects' has no device 'gpu:7'; its devices are cpu:0, gpu:0, gpu:1"
    calls = [
        lambda: tc.use_backend(backend, "gpu:7"), lambda: tc.zeros(2, backend=backend, device="gpu:7"),
        lambda: backend.raw_device("gpu:7"), lambda: backend.asarray([1.0], device="gpu:7"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(BackendError, match=message):
            call()
