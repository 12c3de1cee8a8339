"""Layouts: along which axes of a mesh the axes of an array are divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from jax.sharding import NamedSharding, PartitionSpec
from tape_core.meshes import axes_of_dimensions, check_divides, described

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
    given: Any = layout
    if isinstance(given, NamedSharding):
        if Mesh(cast("jax.sharding.Mesh", given.mesh)) != mesh:
            raise ValueError(
                f"{described(given, mesh, shape, label)}: it is of another mesh; use one mesh for a program"
            )
        given = given.spec
    entries: list[Any] = [
        names[0] if len(names) == 1 else names or None for names in axes_of_dimensions(given, mesh, shape, label)
    ]
    while entries and entries[-1] is None:
        entries.pop()
    return of_spec(mesh, *entries)


def sharding_dividing(layout: Layout, mesh: Mesh, shape: Sequence[int], label: str, caller: str) -> NamedSharding:
    """Return the sharding of a layout that divides an array into equal parts; see :func:`sharding`.

    Raises:
        ValueError: the mesh does not divide an axis of the shape.
    """
    found = sharding(layout, mesh, shape, label)
    check_divides(caller, label, shape, axes_of_dimensions(found.spec, mesh, shape, label), mesh, tuple(found.spec))
    return found


def of_spec(mesh: Mesh, *entries: str | tuple[str, ...] | None) -> NamedSharding:
    """Return a sharding on a mesh; without entries, that of a copy on each device."""
    make: Any = NamedSharding
    spec: Any = PartitionSpec
    found: NamedSharding = make(mesh.device_mesh, spec(*entries))
    return found
