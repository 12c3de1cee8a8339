"""Meshes: the devices of a program in a grid, whose axes have names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType
from tape_core.meshes import NamedMesh, asked
from tape_core.support import first_process_only

from tape_jax.tasks import jax_backend

first_process_only(lambda: jax.process_index())


class Mesh(NamedMesh[Any]):
    """The devices of a program in a grid, whose axes have names: a view of a `jax.sharding.Mesh`.

    Axes of JAX's type Explicit become those of type Auto, which arrays of Tape have.

    >>> from tape_jax.distributed import mesh
    >>> mesh({"data": 1}, device="cpu")  # where JAX has one device
    Mesh({'data': 1}, rank 0, on cpu)

    Attributes:
        device_mesh: JAX's own mesh, for functions of JAX.
    """

    engine_name = "tape_jax.distributed"

    def __init__(self, device_mesh: jax.sharding.Mesh) -> None:
        kinds = (AxisType.Auto,) * len(device_mesh.axis_names)
        if not kinds:
            raise ValueError("Mesh: it has no axes; make it by jax.make_mesh(shape, names)")
        make: Any = jax.sharding.Mesh
        own = make(device_mesh.devices, device_mesh.axis_names, axis_types=kinds)
        axes = {str(name): int(n) for name, n in own.shape.items()}
        super().__init__(own, axes, own.devices.flat[0].platform)

    @property
    def rank(self) -> int:
        """The number of this process among all, from 0: JAX's processes may have several devices each."""
        return jax.process_index()

    @property
    def coordinates(self) -> dict[str, int]:
        """The place of this process along each axis: that of the first of its devices."""
        mine = [device.process_index == jax.process_index() for device in self.device_mesh.devices.flat]
        place = np.unravel_index(mine.index(True), self.device_mesh.devices.shape)
        return {name: int(k) for name, k in zip(self._axes, place, strict=True)}

    @property
    def own_devices(self) -> list[Any]:
        """The devices of this process, in the order of the mesh."""
        return [device for device in self.device_mesh.devices.flat if device.process_index == jax.process_index()]

    def places(self, axis: str) -> range | None:
        """Return the places of this process's devices along an axis; None if they are not one after the other."""
        number = list(self._axes).index(axis)
        found = {
            int(place[number])
            for place, device in np.ndenumerate(self.device_mesh.devices)
            if device.process_index == jax.process_index()
        }
        places = range(min(found), max(found) + 1)
        return places if len(places) == len(found) else None

    @property
    def is_here(self) -> bool:
        """Whether this process has all devices of the mesh."""
        return all([device.process_index == jax.process_index() for device in self.device_mesh.devices.flat])


def mesh(axes: Mapping[str, int] | None = None, *, device: str | None = None, checked: bool | None = None) -> Mesh:
    """Return the mesh of all devices of the program, those of all its processes.

    For some of the devices, or in another order, make a mesh of JAX and take `Mesh(jax_mesh)`.

    >>> from tape_jax.distributed import mesh
    >>> mesh({"data": -1}).axes["data"] == mesh().size  # as many as there are
    True

    Args:
        axes: the number of devices along each axis, by name; one may be -1, for what remains. By default all devices
            are along one axis, `"data"`.
        device: the kind of the devices, `"cpu"`, `"gpu"` or `"tpu"`; by default JAX's preferred one.
        checked: as that of :func:`tape_torch.distributed.mesh`, for programs that are for both engines. One process,
            which has all devices, runs one program: there is nothing to compare. The environment variable
            `TAPE_CHECK_RANKS` is not looked at.

    Raises:
        ValueError: the axes are not what the devices can be divided into, or a number is no positive one or -1; or
            several processes are to be checked, whose collectives XLA makes.
        RuntimeError: JAX has no devices of this kind.
    """
    wanted = asked("tape_jax.distributed.mesh", "devices", axes)
    jax_backend()  # before JAX makes arrays: it sets 64 bits
    devices = jax.devices() if device is None else jax.devices({"cuda": "gpu"}.get(device, device))
    if checked and jax.process_count() > 1:
        raise ValueError(
            f"tape_jax.distributed.mesh: checked=True compares processes before each collective, and those of JAX are "
            f"made by XLA, where nobody sees them (this is rank {jax.process_index()} of {jax.process_count()}): leave "
            f"it out, and where processes wait for each other, compare what they compute with by "
            f"jax.experimental.multihost_utils.assert_equal(values)"
        )
    shape = wanted.shape(len(devices), cure=_cure(wanted.least, devices))
    return Mesh(jax.make_mesh(shape, tuple(wanted.axes), devices=devices, axis_types=(AxisType.Auto,) * len(shape)))


def _cure(wanted: int, devices: list[Any]) -> str:
    if devices[0].platform != "cpu" or wanted <= len(devices):
        return ""
    flags = f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}"
    return f". The CPU is one device of JAX unless the environment says more before JAX starts: {flags}"
