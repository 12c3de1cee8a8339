"""Names of JAX's devices: `cpu:0`, `gpu:1`, and the several devices of a sharded array, as `cpu:0-7`."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tape_core.backends import BackendError

_SEVERAL = re.compile(r"([a-z]+):(\d+(?:[-,]\d+)+)")


def name_of(device: jax.Device) -> str:
    """Return the name of a device: JAX's word for its kind, and its number."""
    return f"{device.platform}:{device.id}"


def present() -> list[Any]:
    """Return the devices of this process, those of JAX's preferred kind first, and the CPU's."""
    found: list[Any] = jax.local_devices()
    if found[0].platform != "cpu":
        with suppress(RuntimeError):  # JAX_PLATFORMS leaves it out
            found = [*found, *jax.local_devices(backend="cpu")]
    return found


def default() -> Any:
    """Return the device of new arrays: that of `jax.default_device`, or else JAX's first one."""
    chosen: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None:
        return jax.local_devices()[0]
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen


def find(name: str) -> Any:
    """Return the device of a name; for a name of several, the sharding of an array with a copy on each.

    Raises:
        BackendError: there is none.
    """
    if _SEVERAL.fullmatch(name):
        return _copies(name)
    for device in present():
        own = name_of(device)
        # CUDA's and ROCm's devices are `cuda:0` and `rocm:0` where JAX prints them.
        if name in (own, device.platform, str(device)):
            return device
    raise _missing(name)


def _missing(name: str) -> BackendError:
    names = ", ".join(map(name_of, present()))
    return BackendError("\n  ".join([f"backend 'jax' has no device {name!r}; its devices are {names}", *_cure(name)]))


def name_of_sharding(sharding: Any) -> str:
    """Return the name of the devices of an array, of which there may be several."""
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    numbers = [device.id for device in devices]
    if len(numbers) == 1:
        return name_of(devices[0])
    in_a_row = all(b == a + 1 for a, b in pairwise(numbers))
    listed = f"{numbers[0]}-{numbers[-1]}" if in_a_row else ",".join(map(str, numbers))
    return f"{devices[0].platform}:{listed}"


@lru_cache(maxsize=64)
def _copies(name: str) -> NamedSharding:
    platform, _, listed = name.partition(":")
    first, dash, last = listed.partition("-")
    numbers = range(int(first), int(last) + 1) if dash else [int(n) for n in listed.split(",")]
    # Of all processes: an array may be in several.
    by_number = {device.id: device for device in jax.devices(present()[0].platform) if device.platform == platform}
    if missing := [n for n in numbers if n not in by_number]:
        raise _missing(f"{platform}:{missing[0]}")
    return NamedSharding(Mesh(np.asarray([by_number[n] for n in numbers]), ("devices",)), PartitionSpec())  # type: ignore[no-untyped-call]


def _cure(name: str) -> list[str]:
    """Return what to do where a device is missing, if anything helps."""
    platform, _, number = name.partition(":")
    platforms = {device.platform for device in present()}
    if platform == "cpu" and number.isdigit():
        wanted = f"XLA_FLAGS=--xla_force_host_platform_device_count={int(number) + 1}"
        return [f"The CPU is one device of JAX unless the environment says more before JAX starts: {wanted}"]
    if platform in ("gpu", "cuda", "rocm") and "gpu" not in platforms:
        return ["JAX uses a GPU only with its plugin for it: pip install 'jax[cuda13]', or 'jax[cuda12]'"]
    if platform == "tpu" and "tpu" not in platforms:
        return ["JAX uses a TPU only with its plugin for it: pip install 'jax[tpu]'"]
    return []
