"""tf.device and tf.config: the devices of the selected backend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import tape_core as tc
from tape_core.support import contextmanager

from tape_tf.names import exported
from tape_tf.tensor import spelled_device


@exported("config.PhysicalDevice config.LogicalDevice")
class PhysicalDevice(NamedTuple):
    """A device of the selected backend."""

    name: str
    device_type: str


@exported("config.LogicalDeviceConfiguration config.experimental.VirtualDeviceConfiguration")
class LogicalDeviceConfiguration(NamedTuple):
    """How much of a device a logical device is; the memory is in megabytes."""

    memory_limit: float | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


class _Settings:
    """What `tf.config` sets for the process.

    Attributes:
        hidden: the names of the physical devices that are not to be used.
        configured: the configurations of logical devices, by the names of physical ones.
        soft: use the selected device in place of one that is not there.
    """

    hidden: ClassVar[set[str]] = set()
    configured: ClassVar[dict[str, list[LogicalDeviceConfiguration]]] = {}
    soft: ClassVar[bool] = False


_PREFIX = "/physical_device:"


def _devices(prefix: str, device_type: str | None) -> list[Any]:
    found = []
    for device in tc.get_backend().devices():
        name = spelled_device(str(device))
        kind = name.partition(":")[0]
        if kind != "META" and device_type in (None, kind):  # PyTorch's meta device has shapes but no values
            found.append(PhysicalDevice(f"{prefix}{name}", kind))
    return found


@exported("config.list_physical_devices config.experimental.list_physical_devices")
def list_physical_devices(device_type: str | None = None) -> list[Any]:
    """Return the devices of the selected backend, or those of one type, `"CPU"` or `"GPU"`.

    >>> import tape_tf as tf
    >>> tf.config.list_physical_devices("CPU")
    [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    return _devices(_PREFIX, device_type)


@exported("config.get_visible_devices config.experimental.get_visible_devices")
def get_visible_devices(device_type: str | None = None) -> list[Any]:
    """Return the physical devices that may be used: all, unless :func:`set_visible_devices` has hidden some."""
    return [found for found in list_physical_devices(device_type) if found.name not in _Settings.hidden]


@exported("config.set_visible_devices config.experimental.set_visible_devices")
def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Hide all other devices: `list_logical_devices` does not list them, and `tf.device` refuses them.

    Args:
        devices: one of `list_physical_devices()`, or a list of them.
        device_type: hide devices of this type only.

    Raises:
        ValueError: a device is none of the selected backend, or not of this type.
        RuntimeError: the selected device would be hidden. Then nothing is changed.
    """
    wanted = devices if isinstance(devices, list | tuple) and not isinstance(devices, PhysicalDevice) else [devices]
    there = list_physical_devices(device_type)
    for found in wanted:
        _check_physical(found, there)
    hidden = {found.name for found in there if found not in wanted}
    selected = f"{_PREFIX}{spelled_device(tc.zeros(()).device)}"
    if selected in hidden:
        raise RuntimeError(
            f"set_visible_devices would hide {selected}, where new tensors are made; select another device before, "
            "with TAPE_BACKEND or tape_core.use_backend"
        )
    _Settings.hidden = _Settings.hidden - {found.name for found in there} | hidden


def _check_physical(found: object, there: list[Any]) -> None:
    """Raise a ValueError unless a device is one of these."""
    if found not in there:
        raise ValueError(
            f"Unrecognized device: {found!r}; the devices are {', '.join(map(repr, there)) or 'none'}, from "
            "tf.config.list_physical_devices()"
        )


@exported("config.list_logical_devices config.experimental.list_logical_devices")
def list_logical_devices(device_type: str | None = None) -> list[Any]:
    """Return the devices that may be used, under the names that `tf.device` takes."""
    hidden = {name.removeprefix(_PREFIX) for name in _Settings.hidden}
    return [found for found in _devices("/device:", device_type) if found.name.removeprefix("/device:") not in hidden]


@exported(
    "config.set_logical_device_configuration config.experimental.set_virtual_device_configuration",
    differs="a device is one logical device, without a limit of memory",
)
def set_logical_device_configuration(device: Any, logical_devices: Any) -> None:
    """Say how a physical device is divided: it cannot be here, so this accepts one part, without a limit.

    Args:
        device: one of `list_physical_devices()`.
        logical_devices: a list of at most one `tf.config.LogicalDeviceConfiguration`.

    Raises:
        ValueError: the device is none of the selected backend, or memory of a CPU is to be limited.
        RuntimeError: the device is to be several, or its memory is to be limited.
    """
    _check_physical(device, list_physical_devices())
    wanted = list(logical_devices or [])
    limits = [part.memory_limit for part in wanted if part.memory_limit is not None]
    if limits and device.device_type == "CPU":
        raise ValueError("Setting memory limit on CPU virtual devices is currently not supported")
    if len(wanted) > 1:
        raise RuntimeError(
            f"{device.name} is one logical device: it cannot stand for {len(wanted)}. For code that is spread over "
            "several devices, start several processes, which torch.distributed connects, also on one CPU: see "
            "docs/torch.md"
        )
    if limits:
        raise RuntimeError(
            f"the memory of {device.name} is PyTorch's to limit: "
            "torch.cuda.set_per_process_memory_fraction(fraction, device)"
        )
    _Settings.configured[device.name] = wanted


@exported("config.get_logical_device_configuration config.experimental.get_virtual_device_configuration")
def get_logical_device_configuration(device: Any) -> Any:
    """Return what :func:`set_logical_device_configuration` was given; None if it was not called."""
    _check_physical(device, list_physical_devices())
    return _Settings.configured.get(device.name)


@exported("config.experimental.set_memory_growth", differs="does nothing: the array library allocates as it does")
def set_memory_growth(device: object, enable: bool) -> None:
    """Do nothing: the array library allocates memory as it needs it.

    Raises:
        ValueError: the device is none of the selected backend.
    """
    _check_physical(device, list_physical_devices())


@exported("config.experimental.get_memory_growth")
def get_memory_growth(device: object) -> bool:
    """Return True: the array library allocates memory as it needs it."""
    _check_physical(device, list_physical_devices())
    return True


@exported("config.set_soft_device_placement")
def set_soft_device_placement(enabled: bool) -> None:
    """Say whether `tf.device` of a device that is not there takes the selected one; by default it is an error."""
    _Settings.soft = bool(enabled)


@exported("config.get_soft_device_placement", differs="False at first")
def get_soft_device_placement() -> bool:
    """Return what :func:`set_soft_device_placement` has set."""
    return _Settings.soft


@exported("device", differs="a device that is not there is an error, unless tf.config.set_soft_device_placement says")
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
    kind, number = match[1].upper(), (match[2] or "0").replace("*", "0")
    backend = tc.get_backend()
    spelled = {spelled_device(str(d)): str(d) for d in backend.devices()}
    name = spelled.get(f"{kind}:{number}")
    usable = [d for spelling, d in spelled.items() if f"{_PREFIX}{spelling}" not in _Settings.hidden]
    if name not in usable and _Settings.soft:
        yield
        return
    if name not in usable:
        there = ", ".join(d.name for d in list_logical_devices())
        raise RuntimeError(
            f"{device_name}: the backend {backend.name!r} has the devices {there}; another backend is selected with "
            f"TAPE_BACKEND or tape_core.use_backend"
        )
    with tc.use_backend(backend, device=name):
        yield
