"""Layouts: along which axes of a mesh the axes of an array are divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tape_core.meshes import axes_of_dimensions, check_divides, described
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from tape_torch.distributed.meshes import Mesh

Layout: TypeAlias = Sequence[str | tuple[str, ...] | None] | Sequence[Placement] | Placement
"""How an array is divided. An entry for each axis of the array: the axis of the mesh along which it is divided, a tuple
of several, or None (those that are left out at the end are None, and `()` is a copy in each process); or PyTorch's
placements, one for each axis of the mesh."""


def placements(layout: Layout, mesh: Mesh, shape: Sequence[int], label: str = "an array") -> tuple[Placement, ...]:
    """Return PyTorch's placements of a layout, one for each axis of the mesh.

    >>> from tape_torch.distributed import mesh, placements
    >>> placements((None, "data"), mesh({"data": 1}), (3, 4))
    (Shard(dim=1),)

    Args:
        layout: see :data:`Layout`.
        mesh: whose axes the layout names.
        shape: of the array that it is for.
        label: what the array is, for messages.

    Raises:
        ValueError: the mesh has no such axis, the array has fewer axes, or an axis occurs twice.
        TypeError: it is no layout.
    """
    entries: object = [layout] if isinstance(layout, Placement) else layout
    if isinstance(entries, Sequence) and entries and all(isinstance(entry, Placement) for entry in entries):
        what = described(layout, mesh, shape, label)
        return _checked([entry for entry in entries if isinstance(entry, Placement)], mesh, shape, what)
    others = "; or all are placements of PyTorch"
    names = axes_of_dimensions(layout, mesh, shape, label, in_order=True, others=others)
    found = {name: Shard(dim) for dim, axes in enumerate(names) for name in axes}
    return tuple([found.get(name, Replicate()) for name in mesh.axes])


def placements_dividing(
    layout: Layout, mesh: Mesh, shape: Sequence[int], label: str, caller: str
) -> tuple[Placement, ...]:
    """Return the placements of a layout that divides an array into equal parts; see :func:`placements`.

    Raises:
        ValueError: the mesh does not divide an axis of the shape.
    """
    found = placements(layout, mesh, shape, label)
    axes = [
        [name for name, place in zip(mesh.axes, found, strict=True) if place.is_shard(dim)] for dim in range(len(shape))
    ]
    check_divides(caller, label, shape, axes, mesh, found)
    return found


def _checked(entries: list[Placement], mesh: Mesh, shape: Sequence[int], what: str) -> tuple[Placement, ...]:
    if len(entries) != len(mesh.axes):
        raise ValueError(f"{what}: give one placement for each axis of the mesh")
    found: list[Placement] = []
    for entry in entries:
        if isinstance(entry, Partial):
            raise ValueError(f"{what}: {entry!r} is for results that are not yet added up")
        if isinstance(entry, Shard):
            dim = entry.dim + len(shape) if entry.dim < 0 else entry.dim
            if not 0 <= dim < len(shape):
                raise ValueError(f"{what}: {entry!r}, and the array has {len(shape)} axes")
            entry = Shard(dim)
        found.append(entry)
    return tuple(found)
