"""Layouts of arrays: the names in them are read, and shapes that they do not divide are refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeVar

from tape_core.meshes.axes import NamedMesh, no_axis

M = TypeVar("M")


def described(layout: object, mesh: NamedMesh[M], shape: Sequence[int], label: str) -> str:
    """Return the beginning of messages about a layout."""
    return f"the layout of {label} of shape {tuple(shape)} on {mesh!r} is {layout!r}"


def axes_of_dimensions(
    layout: object, mesh: NamedMesh[M], shape: Sequence[int], label: str, *, in_order: bool = False, others: str = ""
) -> list[tuple[str, ...]]:
    """Return for each dimension of an array the axes of the mesh along which a layout divides it.

    Args:
        layout: for each dimension the name of an axis, a tuple of names, or None; those that are left out at the end
            are None.
        shape, label: of the array, and what it is, for messages.
        in_order: the library divides a dimension along several axes in the order of the mesh only.
        others: what the message says of other layouts that the library has.

    Raises:
        ValueError: the mesh has no such axis, the array has fewer dimensions, or an axis occurs twice.
        TypeError: it is no layout.
    """
    what = described(layout, mesh, shape, label)
    if isinstance(layout, str):
        raise TypeError(f"{what}: make it a tuple, ({layout!r},)")
    if not isinstance(layout, Iterable) or isinstance(layout, Mapping | Set):
        raise TypeError(f"{what}, which is no layout: make it a tuple of the names of the mesh's axes")
    entries = list(layout)
    if len(entries) > len(shape):
        raise ValueError(f"{what}: it has {len(entries)} entries, and the array has {len(shape)} axes")
    found: list[tuple[str, ...]] = []
    used: set[str] = set()
    for entry in entries:
        names = (entry,) if isinstance(entry, str) else () if entry is None else entry
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"{what}: its entries are names of the mesh's axes, tuples of them, or None{others}")
        for name in names:
            if name not in mesh.axes:
                raise ValueError(f"{what}: {no_axis(name, mesh)}")
            if name in used:
                raise ValueError(f"{what}: an axis of the mesh divides one axis of the array")
            used.add(name)
        if in_order and [name for name in mesh.axes if name in names] != list(names):
            listed = ", ".join(map(repr, mesh.axes))
            raise ValueError(f"{what}: name several axes of the mesh in its order; its axes are {listed}")
        found.append(names)
    return found + [()] * (len(shape) - len(found))


def check_divides(
    caller: str, label: str, shape: Sequence[int], axes: Iterable[Sequence[str]], mesh: NamedMesh[M], layout: object
) -> None:
    """Refuse an array that cannot be divided into equal parts.

    Args:
        axes: of the mesh, along which each dimension is to be divided.
        label, layout: what the array is, and what asks for it, for messages.

    Raises:
        ValueError: the mesh does not divide a dimension.
    """
    for axis, (n, names) in enumerate(zip(shape, axes, strict=True)):
        count = math.prod([mesh.axes[name] for name in names])
        if n % count:
            raise ValueError(
                f"{caller}: {label} of shape {tuple(shape)} cannot be divided into {count} equal parts along its axis "
                f"{axis}, as the mesh {mesh.axes} asks for by {layout}; pad it to a length of "
                f"{-(-n // count) * count}, choose another axis, or leave it undivided, () (rank {mesh.rank})"
            )
