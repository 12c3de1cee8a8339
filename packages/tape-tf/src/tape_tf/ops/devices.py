"""tf.device and tf.config: the devices of the selected backend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tape_core as tc
from tape_core.support import contextmanager

from tape_tf.names import exported


@exported("config.PhysicalDevice config.LogicalDevice")
class PhysicalDevice(NamedTuple):
    """A device of the selected backend."""

    name: str
    device_type: str


def _devices(prefix: str, device_type: str | None) -> list[Any]:
    found = []
    for device in tc.get_backend().devices():
        kind, _, number = str(device).partition(":")
        kind = {"cpu": "CPU", "cuda": "GPU"}.get(kind, kind.upper())
        if kind != "META" and device_type in (None, kind):  # PyTorch's meta device has shapes but no values
            found.append(PhysicalDevice(f"{prefix}{kind}:{number or 0}", kind))
    return found


@exported("config.list_physical_devices config.experimental.list_physical_devices config.get_visible_devices")
def list_physical_devices(device_type: str | None = None) -> list[Any]:
    """Return the devices of the selected backend, or those of one type, `"CPU"` or `"GPU"`."""
    return _devices("/physical_device:", device_type)


@exported("config.list_logical_devices config.experimental.list_logical_devices")
def list_logical_devices(device_type: str | None = None) -> list[Any]:
    """Return the devices of the selected backend under the names that `tf.device` takes."""
    return _devices("/device:", device_type)


@exported("config.experimental.set_memory_growth", differs="does nothing: the array library allocates as it does")
def set_memory_growth(device: object, enable: bool) -> None:
    """Do nothing: the array library allocates memory as it needs it."""


@exported("device", differs="a device that is not there is an error; TensorFlow takes the CPU instead")
@contextmanager
def device(device_name: str | None) -> Iterator[None]:
    """Make new tensors on a device inside the block: `with tf.device("/GPU:0"): ...`. None changes nothing.

    Raises:
        RuntimeError: the selected backend has no such device.
        ValueError: `device_name` is not the name of a device.
    """
    if device_name is None:
        yield
        return
    match = re.search(r"(?:^|/|device:)(CPU|GPU)(?::(\d+|\*))?$", str(device_name), re.IGNORECASE)
    if match is None:
        raise ValueError(f"Unknown attribute: {device_name!r} is no name of a device; use '/CPU:0' or '/GPU:0'")
    kind, number = match[1].upper(), match[2] or "0"
    backend = tc.get_backend()
    name = "cpu" if kind == "CPU" else f"cuda:{'0' if number == '*' else number}"
    if name not in [str(d) for d in backend.devices()]:
        there = ", ".join(d.name for d in list_logical_devices())
        raise RuntimeError(
            f"{device_name}: the backend {backend.name!r} has the devices {there}; another backend is selected with "
            f"TAPE_BACKEND or tape_core.use_backend"
        )
    with tc.use_backend(backend, device=name):
        yield
