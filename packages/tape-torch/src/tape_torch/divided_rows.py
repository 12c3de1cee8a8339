"""Rows of tables that are divided among processes: looked up, and added to, without bringing a table together.

A process looks up the rows that it has, and zeros for those of others, so that the result is a sum over processes; it
adds to the rows that it has those that are meant for them. Where both a table's rows and the indices are divided along
one axis of a mesh, either is brought together, whichever has fewer rows: a large vocabulary stays where it is, and for
a small one it is as with other weights that are sharded.

PyTorch has a part of it: its `embedding` looks up rows of a divided table, but takes an index that counts from the end,
or is out of bounds, for a row of zeros; its indexing brings the whole table together, and its `index_add_` is lost on a
DTensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from tape_torch.divided import part_of

Kernel = Callable[..., torch.Tensor]
Places = list[Placement]

_SUMS: Final = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.int8, torch.uint8, torch.int32, torch.int64,
    }
)  # fmt: skip
"""The dtypes of which processes add up arrays."""


def on_rows(name: str, kernel: Kernel, mesh: DeviceMesh, args: Any, kwargs: Any) -> DTensor | None:
    """Return what a kernel of indexing returns, computed in each process on parts; None where there is no such way.

    Args:
        name: of the op: `add_rows`, `gather`, `getitem`, `scatter` or `take`.
        mesh: of all arrays among the arguments, which are DTensors.
    """
    found: Callable[..., DTensor | None] | None = _WAYS.get(name)
    return None if found is None else found(kernel, mesh, *args, **kwargs)


# -- the ops


def _gather(kernel: Kernel, mesh: DeviceMesh, params: Any, indices: Any) -> DTensor | None:
    return _looked_up(mesh, params, indices, 0, kernel)


def _take(kernel: Kernel, mesh: DeviceMesh, x: Any, indices: Any, *, axis: int | None = None) -> DTensor | None:
    place = 0 if axis is None and x.ndim == 1 else axis
    if place is None or not -x.ndim <= place < x.ndim:
        return None  # the kernel says what is wrong
    place %= x.ndim
    return _looked_up(mesh, x, indices, place, lambda x, rows: kernel(x, rows, axis=place))


def _getitem(kernel: Kernel, mesh: DeviceMesh, x: Any, key: Any) -> DTensor | None:
    found = _one_array(key, x.ndim) if isinstance(x, DTensor) else None
    if found is None:
        return None
    axis, indices = found
    return _looked_up(mesh, x, indices, axis, lambda x, rows: kernel(x, (slice(None),) * axis + (rows,)))


def _scatter(kernel: Kernel, mesh: DeviceMesh, values: Any, key: Any, shape: Sequence[int]) -> DTensor | None:
    if not isinstance(values, DTensor) or not math.prod(shape) or not values.numel():
        return None
    found = _one_array(key, len(shape))
    if found is None:
        return _scattered_lines(kernel, mesh, values, key, tuple(shape))
    axis, indices = found
    return _added_up(mesh, values, indices, axis, tuple(shape), [None] * mesh.ndim, kernel)


def _add_rows(
    kernel: Kernel, mesh: DeviceMesh, x: Any, indices: Any, rows: Any, *, in_place: bool = False
) -> DTensor | None:
    if not are_arrays(x, indices, rows):
        return None

    def added(values: torch.Tensor, key: Any, shape: tuple[int, ...]) -> torch.Tensor:
        zeros = torch.zeros(shape, dtype=x.dtype, device=values.device)
        return kernel(zeros, key[-1], values, in_place=True)

    by = _added_up(mesh, rows, indices, 0, tuple(x.shape), list(x.placements), added)
    return None if by is None else x + by.redistribute(mesh, x.placements)


_WAYS: Final[dict[str, Callable[..., DTensor | None]]] = {
    "add_rows": _add_rows,
    "gather": _gather,
    "getitem": _getitem,
    "scatter": _scatter,
    "take": _take,
}

# -- how they are computed


def _looked_up(mesh: DeviceMesh, x: Any, indices: Any, axis: int, kernel: Kernel) -> DTensor | None:
    """Look up `indices` along an axis of `x`; return None where it is not divided by equal parts."""
    # Never by PyTorch: a process whose own indices make its `embedding` fail would go on otherwise than the others.
    if not are_arrays(x, indices) or not are_plain(x, indices):
        return None
    n = x.shape[axis]
    # Rows are summands of processes only if they can be added up.
    keeps_table = indices.numel() <= n and x.dtype in _SUMS
    own: Places = []
    rows: Places = []
    out: Places = []
    final: Places = []
    for p, q in zip(x.placements, indices.placements, strict=True):
        if p.is_shard(axis) and x.dtype in _SUMS and (not isinstance(q, Shard) or keeps_table):
            own.append(p)
            rows.append(Replicate())
            out.append(Partial())
            final.append(Shard(axis + q.dim) if isinstance(q, Shard) else Partial())
            continue
        own.append(Replicate() if p.is_shard(axis) else p)
        if isinstance(p, Shard) and p.dim != axis:
            q = Replicate()
        rows.append(q)
        if isinstance(p, Shard) and p.dim != axis:
            out.append(Shard(p.dim if p.dim < axis else p.dim - 1 + indices.ndim))
        else:
            out.append(Shard(axis + q.dim) if isinstance(q, Shard) else Replicate())
        final.append(out[-1])
    part, places = part_as(x, own), part_as(indices, rows)
    if any([p.is_partial() for p in out]):
        first, length = own_range(x.shape, mesh, own, axis)
        places, mine = within(places, first, length, axis, n)
        picked = kernel(part, places) if length else part.new_zeros(_looked_up_shape(part, places, axis))
        picked = torch.where(beside(mine, axis, part.ndim - axis - 1), picked, torch.zeros_like(picked))
    else:
        picked = kernel(part, places)
    shape = torch.Size([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])
    found = joined(picked, mesh, out, shape)
    return found if out == final else found.redistribute(mesh, final)


def _added_up(
    mesh: DeviceMesh,
    values: Any,
    indices: Any,
    axis: int,
    shape: tuple[int, ...],
    wanted: Sequence[Placement | None],
    scatter: Kernel,
) -> DTensor | None:
    """Return zeros of a shape to which values are added at indices along an axis.

    Args:
        values: of the shape of what is looked up at the indices.
        wanted: how the result is to be divided, along each axis of the mesh; None where it does not matter. It may be
            divided otherwise, or left as summands.
        scatter: called with values, a key whose last part is indices along the axis, and a shape.
    """
    if not are_arrays(values, indices):
        return None
    # Rows of a batch of sequences, of which both axes were divided, lie apart; PyTorch has a placement for it.
    is_strided = not are_plain(values, indices)
    if is_strided and list(values.placements) != [_moved(q, axis) for q in indices.placements]:
        here = [Replicate()] * mesh.ndim
        values, indices = values.redistribute(mesh, here), indices.redistribute(mesh, here)
        is_strided = False
    if any([p is not None and type(p) not in (Shard, Replicate) for p in wanted]) or values.dtype not in _SUMS:
        return None
    if tuple(values.shape) != (*shape[:axis], *indices.shape, *shape[axis + 1 :]):
        values = values.expand((*shape[:axis], *indices.shape, *shape[axis + 1 :]))
    keeps_rows = indices.numel() <= shape[axis] and not is_strided
    given: Places = []
    rows: Places = []
    out: Places = []
    for p, q, to in zip(values.placements, indices.placements, wanted, strict=True):
        line = isinstance(p, Shard | _StridedShard) and axis <= p.dim < axis + indices.ndim
        is_divided = line or isinstance(q, Shard)
        if isinstance(to, Shard) and to.dim == axis and (not is_divided or keeps_rows):
            given.append(Replicate())
            rows.append(Replicate())
            out.append(to)
        elif isinstance(to, Shard) and to.dim != axis:
            given.append(Shard(to.dim if to.dim < axis else to.dim - 1 + indices.ndim))
            rows.append(Replicate())
            out.append(to)
        elif line:
            given.append(p)
            rows.append(_moved(p, -axis))
            out.append(Partial())
        elif isinstance(p, Shard):
            given.append(p)
            rows.append(Replicate())
            out.append(Shard(p.dim if p.dim < axis else p.dim + 1 - indices.ndim))
        else:
            given.append(Replicate())
            rows.append(Replicate())
            out.append(Replicate())
    part, places = part_as(values, given), part_as(indices, rows)
    local, _ = compute_local_shape_and_global_offset(shape, mesh, [Replicate() if p.is_partial() else p for p in out])
    if any([p.is_shard(axis) for p in out]):
        first, length = own_range(shape, mesh, out, axis)
        places, mine = within(places, first, length, axis, shape[axis])
        part = torch.where(beside(mine, axis, len(shape) - axis - 1), part, torch.zeros_like(part))
    if math.prod(local):
        found = scatter(part, (slice(None),) * axis + (places,), tuple(local))
    else:
        found = part.new_zeros(local)
    return joined(found, mesh, out, torch.Size(shape))


def _scattered_lines(
    kernel: Kernel, mesh: DeviceMesh, values: DTensor, key: Any, shape: tuple[int, ...]
) -> DTensor | None:
    """Scatter to a key of slices and integers, where values are divided only along axes that the key leaves whole."""
    parts = list(key) if type(key) is tuple else [key]
    if not all([type(part) in (int, slice) or part is None or part is ... for part in parts]) or not are_plain(values):
        return None
    used = len([part for part in parts if part is not None and part is not ...])
    if ... not in parts:
        parts.append(...)
    k = parts.index(...)
    parts[k : k + 1] = [slice(None)] * (len(shape) - used)
    axis, whole = 0, dict[int, int]()  # by an axis of the values the axis of the result that it is all of
    dim = 0
    for k, part in enumerate(parts):
        if part is None:
            dim += 1
            continue
        if type(part) is slice:
            if part.indices(shape[axis]) == (0, shape[axis], 1):
                whole[dim] = axis
                parts[k] = slice(None)
            dim += 1
        axis += 1
    if dim != values.ndim or axis != len(shape):
        return None  # values that are broadcast, or a key that does not fit
    out: Places = []
    local = list(shape)
    part_of_values = part_of(values)
    for p in values.placements:
        if not isinstance(p, Shard):
            out.append(p)
        elif p.dim in whole and values.shape[p.dim] == shape[whole[p.dim]]:
            out.append(Shard(whole[p.dim]))
            local[whole[p.dim]] = part_of_values.shape[p.dim]
        else:
            return None
    if not math.prod(local) or not part_of_values.numel():
        found = part_of_values.new_zeros(local)
    else:
        found = kernel(part_of_values, tuple(parts), tuple(local))
    return joined(found, mesh, out, torch.Size(shape))


def _one_array(key: Any, ndim: int) -> tuple[int, Any] | None:
    """Return the axis and the indices along it, if a key is one array of integers among whole slices; else None."""
    parts = list(key) if type(key) is tuple else [key]
    while parts and (parts[-1] is ... or (type(parts[-1]) is slice and parts[-1] == slice(None))):
        parts.pop()
    if not parts or any([type(part) is not slice or part != slice(None) for part in parts[:-1]]):
        return None
    rows = parts[-1]
    if not isinstance(rows, DTensor) or rows.dtype is torch.bool or rows.is_floating_point() or rows.is_complex():
        return None
    return (len(parts) - 1, rows) if len(parts) <= ndim else None


def are_arrays(*arrays: Any) -> bool:
    """Return whether all are DTensors with elements, on one mesh."""
    if not all([isinstance(x, DTensor) and x.numel() for x in arrays]):
        return False
    return all([x.device_mesh == arrays[0].device_mesh for x in arrays[1:]])


def are_plain(*arrays: DTensor) -> bool:
    """Return whether arrays are divided in no other way than by equal parts, one after the other, or not at all."""
    return all([type(p) in (Shard, Replicate) for x in arrays for p in x.placements])


def _moved(p: Placement, by: int) -> Placement:
    """Return a placement for an array that has some axes more, or fewer, before those of the array that it is for."""
    if isinstance(p, _StridedShard):
        return _StridedShard(p.dim + by, split_factor=p.split_factor)
    return Shard(p.dim + by) if isinstance(p, Shard) else p


def part_as(x: DTensor, placements: Places) -> torch.Tensor:
    return part_of(x if list(x.placements) == placements else x.redistribute(x.device_mesh, placements))


def joined(part: torch.Tensor, mesh: DeviceMesh, placements: Places, shape: torch.Size) -> DTensor:
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(part.contiguous(), mesh, placements, run_check=False, shape=shape, stride=stride)


def own_range(shape: Sequence[int], mesh: DeviceMesh, placements: Places, axis: int) -> tuple[int, int]:
    """Return the first of the rows along an axis that this process has, and their number."""
    along = [p if p.is_shard(axis) else Replicate() for p in placements]
    local, offset = compute_local_shape_and_global_offset(torch.Size(shape), mesh, along)
    return offset[axis], local[axis]


def within(rows: torch.Tensor, first: int, length: int, axis: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices of rows within a range, 0 where they are outside, and which are in it.

    Raises:
        IndexError: one is out of bounds for the whole; on a GPU it is an error of the device, as in indexing.
    """
    rows = rows.to(torch.int64)
    wrong = (rows < -n) | (rows >= n)
    if rows.device.type == "cpu" and wrong.any():
        raise IndexError(f"index {rows[wrong][0].item()} is out of bounds for axis {axis} with size {n}")
    rows = torch.where(rows < 0, rows + n, rows) - first
    mine = (rows >= 0) & (rows < length)
    return torch.where(wrong, n, torch.where(mine, rows, 0)), mine


def beside(mine: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """Return which rows are meant with axes of length 1 for the others."""
    return mine.reshape((1,) * before + tuple(mine.shape) + (1,) * after)


def _looked_up_shape(part: torch.Tensor, rows: torch.Tensor, axis: int) -> tuple[int, ...]:
    return (*part.shape[:axis], *rows.shape, *part.shape[axis + 1 :])
