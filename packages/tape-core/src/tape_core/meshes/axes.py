"""Axes of meshes: their names and sizes, in a mesh and as a user asks for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import ClassVar, Generic, NamedTuple, TypeVar

from tape_core.base.mistakes import meant
from tape_core.base.reprs import lenient

M = TypeVar("M")


class NamedMesh(Generic[M]):
    """The processes, or devices, of a program in a grid, whose axes have names: what the meshes of engines share.

    Args:
        device_mesh: the library's own mesh.
        axes: the number of processes, or devices, along each axis, by name.
        kind: of the devices, such as `"cpu"`.
    """

    engine_name: ClassVar[str]
    """The name of the engine's module."""

    def __init__(self, device_mesh: M, axes: Mapping[str, int], kind: str) -> None:
        self.device_mesh = device_mesh
        self._axes = dict(axes)
        self._kind = kind

    @property
    def axes(self) -> dict[str, int]:
        """The number of processes, or devices, along each axis, by the axis's name, in the order of the mesh."""
        return dict(self._axes)

    @property
    def size(self) -> int:
        """The number of processes, or devices."""
        return math.prod(self._axes.values())

    @property
    def rank(self) -> int:
        """The number of this process among all, from 0."""
        raise NotImplementedError(f"{type(self).__name__} has no property `rank`")

    @property
    def engine(self) -> ModuleType:
        """The module of the mesh, such as `tape_torch.distributed`, for code that takes the meshes of several."""
        return import_module(self.engine_name)

    def check_axis(self, axis: str) -> str:
        """Return the name of an axis.

        Raises:
            ValueError: the mesh has no such axis.
        """
        if axis not in self._axes:
            raise ValueError(no_axis(axis, self))
        return axis

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self.device_mesh == other.device_mesh)

    def __hash__(self) -> int:
        return hash(self.device_mesh)

    @lenient
    def __repr__(self) -> str:
        return f"Mesh({self._axes}, rank {self.rank}, on {self._kind})"


def no_axis(axis: str, mesh: NamedMesh[M]) -> str:
    """Return what messages say of an axis that a mesh does not have."""
    return f"the mesh has no axis {axis!r}; its axes are {', '.join(map(repr, mesh.axes))}{meant(axis, mesh.axes)}"


def check_mesh(mesh: object, expected: type[NamedMesh[M]], own: type[M], caller: str) -> None:
    """Refuse what is no mesh of an engine, whose class is `expected`; `own` is the library's class.

    Raises:
        TypeError: it is one of the library, of another engine, or none.
    """
    if isinstance(mesh, expected):
        return
    name = expected.engine_name
    cure = f"; make it {name}.Mesh(mesh)" if isinstance(mesh, own) else ""
    raise TypeError(f"{caller}: mesh must be a Mesh of {name}.mesh(axes); got {mesh!r}{cure}")


class AxesAsked(NamedTuple):
    """The axes that a user asks a mesh to have: their sizes by name, of which one may be -1."""

    caller: str
    unit: str  # "processes" or "devices"
    axes: dict[str, int]

    @property
    def least(self) -> int:
        """The product of the sizes that are given."""
        return math.prod([n for n in self.axes.values() if n != -1])

    def __str__(self) -> str:
        number = f"a multiple of {self.least}" if -1 in self.axes.values() else self.least
        return f"{self.caller}: {self.axes} asks for {number} {self.unit}"

    def shape(self, n: int, note: str = "", cure: str = "") -> tuple[int, ...]:
        """Return the sizes of all axes, where there are `n` processes or devices; messages say `note` and `cure`, too.

        Raises:
            ValueError: so many cannot be divided so.
        """
        rest, left = divmod(n, self.least)
        found = tuple([rest if size == -1 and not left else size for size in self.axes.values()])
        if math.prod(found) != n:
            raise ValueError(
                f"{self}, and there are {n}{note}: the product of the axes must be {n}; one of -1 takes what "
                f"remains{cure}"
            )
        return found


def asked(caller: str, unit: str, axes: Mapping[str, int] | None) -> AxesAsked:
    """Return the axes that a user asks for; None: one, of the name `"data"`, for all there is.

    Raises:
        TypeError: they are no mapping of names to numbers.
        ValueError: there are none, or a number is no positive one or -1.
    """
    given: object = {"data": -1} if axes is None else axes  # callers without a type checker may pass anything
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f"{caller}: axes are a number of {unit} by the name of each axis, such as {{'data': -1}}; got {given!r}"
        )
    found = dict(given)
    sizes = list(found.values())
    if not found or not all(hasattr(n, "__index__") and (n == -1 or n > 0) for n in sizes) or sizes.count(-1) > 1:
        raise ValueError(
            f"{caller}: got the axes {found}; each is a name with a positive number of {unit}, and one of them may be "
            f"-1"
        )
    return AxesAsked(caller, unit, found)
