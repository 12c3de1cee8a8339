"""Layouts: along which axes of a mesh the axes of an array are divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from tape_torch.distributed.meshes import Mesh

Layout: TypeAlias = Sequence[str | None] | Sequence[Placement] | Placement
"""How an array is divided. An entry for each axis of the array: the axis of the mesh along which it is divided, or None
(those that are left out at the end are None, and `()` is a copy in each process); or PyTorch's placements, one for each
axis of the mesh."""


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
    what = f"{label} of shape {tuple(shape)}"
    entries = [layout] if isinstance(layout, Placement) else list(layout) if not isinstance(layout, str) else None
    if entries is None:
        raise TypeError(f"the layout of {what} is {layout!r}: make it a tuple, ({layout!r},)")
    if entries and all(isinstance(entry, Placement) for entry in entries):
        return _checked([entry for entry in entries if isinstance(entry, Placement)], mesh, shape, what)
    found: dict[str, Placement] = {}
    for dim, name in enumerate(entries):
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(
                f"the layout of {what} is {layout!r}: its entries are names of the mesh's axes or None, or all are "
                f"placements of PyTorch"
            )
        mesh.check_axis(name)
        if name in found:
            raise ValueError(f"the layout of {what} is {layout!r}: an axis of the mesh divides one axis of the array")
        found[name] = Shard(dim)
    if len(entries) > len(shape):
        raise ValueError(f"the layout of {what} is {layout!r}: it has more entries than the array has axes")
    return tuple([found.get(name, Replicate()) for name in mesh.axes])


def _checked(entries: list[Placement], mesh: Mesh, shape: Sequence[int], what: str) -> tuple[Placement, ...]:
    if len(entries) != len(mesh.axes):
        raise ValueError(
            f"the placements of {what} are {tuple(entries)!r}: give one for each axis of the mesh {mesh.axes}"
        )
    found: list[Placement] = []
    for entry in entries:
        if isinstance(entry, Partial):
            raise ValueError(f"the placements of {what} have {entry!r}, which is for results that are not yet added up")
        if isinstance(entry, Shard):
            dim = entry.dim + len(shape) if entry.dim < 0 else entry.dim
            if not 0 <= dim < len(shape):
                raise ValueError(f"the placements of {what} have {entry!r}, and the array has {len(shape)} axes")
            entry = Shard(dim)
        found.append(entry)
    return tuple(found)
