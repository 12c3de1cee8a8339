"""Layouts: along which axes of a mesh the axes of an array are divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

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
    what = f"the layout of {label} of shape {tuple(shape)} on {mesh!r} is"
    entries = [layout] if isinstance(layout, Placement) else list(layout) if not isinstance(layout, str) else None
    if entries is None:
        raise TypeError(f"{what} {layout!r}: make it a tuple, ({layout!r},)")
    if entries and all(isinstance(entry, Placement) for entry in entries):
        return _checked([entry for entry in entries if isinstance(entry, Placement)], mesh, shape, what)
    if len(entries) > len(shape):
        raise ValueError(f"{what} {layout!r}: it has {len(entries)} entries, and the array has {len(shape)} axes")
    found: dict[str, Placement] = {}
    for dim, entry in enumerate(entries):
        names = (entry,) if isinstance(entry, str) else () if entry is None else entry
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                f"{what} {layout!r}: its entries are names of the mesh's axes, tuples of them, or None; or all are "
                f"placements of PyTorch"
            )
        for name in names:
            if name not in mesh.axes:
                raise ValueError(f"{what} {layout!r}: the mesh has no axis {name!r}; {_list(mesh)}")
            if name in found:
                raise ValueError(f"{what} {layout!r}: an axis of the mesh divides one axis of the array")
            found[name] = Shard(dim)
        if [name for name in mesh.axes if name in names] != list(names):
            raise ValueError(f"{what} {layout!r}: name several axes of the mesh in its order; {_list(mesh)}")
    return tuple([found.get(name, Replicate()) for name in mesh.axes])


def _list(mesh: Mesh) -> str:
    return f"its axes are {', '.join(map(repr, mesh.axes))}"


def _checked(entries: list[Placement], mesh: Mesh, shape: Sequence[int], what: str) -> tuple[Placement, ...]:
    if len(entries) != len(mesh.axes):
        raise ValueError(f"{what} {tuple(entries)!r}: give one placement for each axis of the mesh")
    found: list[Placement] = []
    for entry in entries:
        if isinstance(entry, Partial):
            raise ValueError(f"{what} {tuple(entries)!r}: {entry!r} is for results that are not yet added up")
        if isinstance(entry, Shard):
            dim = entry.dim + len(shape) if entry.dim < 0 else entry.dim
            if not 0 <= dim < len(shape):
                raise ValueError(f"{what} {tuple(entries)!r}: {entry!r}, and the array has {len(shape)} axes")
            entry = Shard(dim)
        found.append(entry)
    return tuple(found)
