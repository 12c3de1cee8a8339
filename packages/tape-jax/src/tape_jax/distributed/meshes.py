"""Meshes: the devices of a program in a grid, whose axes have names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from tape_jax.tasks import jax_backend


class Mesh:
    """The devices of a program in a grid, whose axes have names: a view of a `jax.sharding.Mesh`.

    Axes of JAX's type Explicit become those of type Auto, which arrays of Tape have.

    >>> from tape_jax.distributed import mesh
    >>> mesh({"data": 1}, device="cpu")  # where JAX has one device
    Mesh({'data': 1}, rank 0, on cpu)

    Attributes:
        device_mesh: JAX's own mesh, for functions of JAX.
    """

    def __init__(self, device_mesh: jax.sharding.Mesh) -> None:
        kinds = (AxisType.Auto,) * len(device_mesh.axis_names)
        if not kinds:
            raise ValueError("Mesh: it has no axes; make it by jax.make_mesh(shape, names)")
        make: Any = jax.sharding.Mesh
        self.device_mesh: Any = make(device_mesh.devices, device_mesh.axis_names, axis_types=kinds)
        self._axes = {str(name): int(n) for name, n in self.device_mesh.shape.items()}

    @property
    def axes(self) -> dict[str, int]:
        """The number of devices along each axis, by the axis's name, in the order of the mesh."""
        return dict(self._axes)

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self._axes.values())

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
    def engine(self) -> ModuleType:
        """The module `tape_jax.distributed`, for code that takes the meshes of several engines."""
        return import_module("tape_jax.distributed")

    @property
    def is_here(self) -> bool:
        """Whether this process has all devices of the mesh."""
        return all([device.process_index == jax.process_index() for device in self.device_mesh.devices.flat])

    def check_axis(self, axis: str) -> str:
        """Return the name of an axis.

        Raises:
            ValueError: the mesh has no such axis.
        """
        if axis not in self._axes:
            raise ValueError(f"the mesh has no axis {axis!r}; its axes are {', '.join(map(repr, self._axes))}")
        return axis

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.device_mesh == other.device_mesh

    def __hash__(self) -> int:
        return hash(self.device_mesh)

    def __repr__(self) -> str:
        return f"Mesh({self._axes}, rank {self.rank}, on {self.device_mesh.devices.flat[0].platform})"


def mesh(axes: Mapping[str, int] | None = None, *, device: str | None = None) -> Mesh:
    """Return the mesh of all devices of the program, those of all its processes.

    For some of the devices, or in another order, make a mesh of JAX and take `Mesh(jax_mesh)`.

    >>> from tape_jax.distributed import mesh
    >>> mesh({"data": -1}).axes["data"] == mesh().size  # as many as there are
    True

    Args:
        axes: the number of devices along each axis, by name; one may be -1, for what remains. By default all devices
            are along one axis, `"data"`.
        device: the kind of the devices, `"cpu"`, `"gpu"` or `"tpu"`; by default JAX's preferred one.

    Raises:
        ValueError: the axes are not what the devices can be divided into, or a number is no positive one or -1.
        RuntimeError: JAX has no devices of this kind.
    """
    wanted = {"data": -1} if axes is None else dict(axes)
    shape = _checked(wanted)
    jax_backend()  # before JAX makes arrays: it sets 64 bits
    devices = jax.devices() if device is None else jax.devices({"cuda": "gpu"}.get(device, device))
    fixed = math.prod([n for n in shape if n != -1])
    if -1 in shape and len(devices) % fixed == 0:
        shape = [len(devices) // fixed if n == -1 else n for n in shape]
    if math.prod(shape) != len(devices):
        raise ValueError(
            f"tape_jax.distributed.mesh: {wanted} asks for {_product(wanted)} devices, and there are {len(devices)}: "
            f"the product of the axes must be {len(devices)}; one of -1 takes what remains{_cure(fixed, devices)}"
        )
    return Mesh(jax.make_mesh(tuple(shape), tuple(wanted), devices=devices, axis_types=(AxisType.Auto,) * len(shape)))


def check_mesh(mesh: object, caller: str) -> None:
    """Refuse what is no mesh of this module.

    Raises:
        TypeError: it is one of JAX, of another engine, or none.
    """
    if isinstance(mesh, Mesh):
        return
    cure = "; make it tape_jax.distributed.Mesh(mesh)" if isinstance(mesh, jax.sharding.Mesh) else ""
    raise TypeError(f"{caller}: mesh must be a Mesh of tape_jax.distributed.mesh(axes); got {mesh!r}{cure}")


def _checked(wanted: Mapping[str, int]) -> list[int]:
    shape = list(wanted.values())
    if not wanted or any(n != -1 and n < 1 for n in shape) or shape.count(-1) > 1:
        raise ValueError(
            f"tape_jax.distributed.mesh: got the axes {dict(wanted)}; each is a name with a positive number of "
            f"devices, and one of them may be -1"
        )
    return shape


def _product(wanted: Mapping[str, int]) -> str:
    fixed = math.prod([n for n in wanted.values() if n != -1])
    return f"a multiple of {fixed}" if -1 in wanted.values() else str(fixed)


def _cure(wanted: int, devices: list[Any]) -> str:
    if devices[0].platform != "cpu" or wanted <= len(devices):
        return ""
    flags = f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}"
    return f". The CPU is one device of JAX unless the environment says more before JAX starts: {flags}"
