"""Layouts: along which axes of a mesh the axes of an array are divided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from jax.sharding import NamedSharding, PartitionSpec

from tape_jax.distributed.meshes import Mesh

if TYPE_CHECKING:
    import jax

Layout: TypeAlias = Sequence[str | tuple[str, ...] | None] | PartitionSpec | NamedSharding
"""How an array is divided. An entry for each axis of the array: the axis of the mesh along which it is divided, a tuple
of several, or None (those that are left out at the end are None, and `()` is a copy on each device). JAX's
PartitionSpec is the same, and a NamedSharding is one whose mesh is this mesh."""


def sharding(layout: Layout, mesh: Mesh, shape: Sequence[int], label: str = "an array") -> NamedSharding:
    """Return JAX's sharding of a layout.

    >>> from tape_jax.distributed import mesh, sharding
    >>> sharding((None, "data"), mesh({"data": -1}), (3, 4)).spec
    P(None, 'data')

    Args:
        layout: see :data:`Layout`.
        mesh: whose axes the layout names.
        shape: of the array that it is for.
        label: what the array is, for messages.

    Raises:
        ValueError: the mesh has no such axis, the array has fewer axes, or an axis occurs twice; or a NamedSharding is
            of another mesh.
        TypeError: it is no layout.
    """
    what = f"the layout of {label} of shape {tuple(shape)} on {mesh!r} is"
    if isinstance(layout, str):
        raise TypeError(f"{what} {layout!r}: make it a tuple, ({layout!r},)")
    given: Any = layout  # callers without a type checker may pass anything
    if isinstance(given, NamedSharding):
        if Mesh(cast("jax.sharding.Mesh", given.mesh)) != mesh:
            raise ValueError(f"{what} {given!r}: it is of another mesh; use one mesh for a program")
        given = given.spec
    if not isinstance(given, Sequence | PartitionSpec):
        raise TypeError(f"{what} {given!r}, which is no layout: make it a tuple of the names of the mesh's axes")
    entries: list[Any] = list(given)
    if len(entries) > len(shape):
        raise ValueError(f"{what} {layout!r}: it has {len(entries)} entries, and the array has {len(shape)} axes")
    used: set[str] = set()
    for entry in entries:
        names = (entry,) if isinstance(entry, str) else () if entry is None else entry
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"{what} {layout!r}: its entries are names of the mesh's axes, tuples of them, or None")
        for name in names:
            if name not in mesh.axes:
                listed = ", ".join(map(repr, mesh.axes))
                raise ValueError(f"{what} {layout!r}: the mesh has no axis {name!r}; its axes are {listed}")
            if name in used:
                raise ValueError(f"{what} {layout!r}: an axis of the mesh divides one axis of the array")
            used.add(name)
    while entries and not entries[-1]:
        entries.pop()
    return of_spec(mesh, *entries)


def of_spec(mesh: Mesh, *entries: str | tuple[str, ...] | None) -> NamedSharding:
    """Return a sharding on a mesh; without entries, that of a copy on each device."""
    make: Any = NamedSharding
    spec: Any = PartitionSpec
    found: NamedSharding = make(mesh.device_mesh, spec(*entries))
    return found


def check_divides(shape: Sequence[int], to: NamedSharding, mesh: Mesh, name: str, caller: str) -> None:
    """Refuse an array that cannot be divided into equal parts.

    Raises:
        ValueError: the mesh does not divide an axis of the shape.
    """
    for axis, entry in enumerate(to.spec):
        names = (entry,) if isinstance(entry, str) else entry or ()
        parts = math.prod([mesh.axes[name] for name in names])
        if shape[axis] % parts:
            raise ValueError(
                f"{caller}: {name} of shape {tuple(shape)} cannot be divided into {parts} equal parts along its axis "
                f"{axis}, as the mesh {mesh.axes} asks for by {tuple(to.spec)}; pad it, choose another axis, or leave "
                f"it undivided, ()"
            )
