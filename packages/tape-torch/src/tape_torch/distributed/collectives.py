"""Collectives: differentiable ops on plain Tensors of which each process has its own.

Every process calls them, in the same order and with the same shapes; in a compiled function they are effects, which no
pass moves, merges or drops. Their derivatives are those of the sum over all processes' targets, as those of JAX's
`psum` and of `torch.distributed.nn` are: the cotangent of `all_gather` is that of `reduce_scatter`, and so on. So
differentiate a process's own loss, and add gradients up, or average them: where each process differentiates the sum of
all losses, each counts every loss.

`mesh(..., checked=True)` has the processes compare their calls before each, and say what each of them does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from tape_core import Tensor, Variable, asarray, concat, reshape
from tape_core.backends import backend_of_type
from tape_core.extend import batching, linear, op, transpose, vjp
from tape_core.meshes import check_mesh
from tape_core.support import counted
from tape_core.typing import ArrayLike
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh

from tape_torch import new_values
from tape_torch.distributed.failures import waits_of
from tape_torch.distributed.meshes import Mesh
from tape_torch.mismatches import compare_first, described_array
from tape_torch.peers import naming_peers
from tape_torch.votes import COUNT, Ballot, note

# PyTorch 2.13 has other names for them.
_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
_scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor

Reduction = Literal["sum", "mean", "max", "min"]


def _ordered(kernel: Any) -> Any:
    """Mark a kernel as an effect of compiled functions; where it fails, the error names the cause."""
    name = kernel.__name__.strip("_").removesuffix("_in_group")
    called: Any = naming_peers(_SHOWN.get(name, name))(kernel)
    called.is_effect = True
    return called


_SHOWN = {"means": "averaged gradients", "<lambda>": "all_reduce"}


def _check_first(name: str, x: torch.Tensor, group: Any, *how: Any) -> None:
    """Compare a collective with those of the other processes: at once if this one has not called such a one before."""
    if type(x) is torch.Tensor:  # and not one of PyTorch's traces
        key = (name, group, x.shape, x.dtype, how)
        manner = f" ({', '.join(map(str, how))})" if how else ""
        known = compare_first(key, lambda: f"{name}{manner} of {described_array(x)}", group, waits_of)
        note(group, *known)


def _wait(found: Any) -> torch.Tensor:
    return functional.wait_tensor(found)  # type: ignore[no-any-return, no-untyped-call]


def _to_front(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.movedim(x, axis, 0).contiguous()


@_ordered
def _all_reduce(xp: Any, x: torch.Tensor, group: Any, reduction: str = "sum") -> torch.Tensor:
    _check_first("all_reduce", x, group, reduction)
    found = _wait(functional.all_reduce(x.contiguous(), "avg" if reduction == "mean" else reduction, group))
    return new_values.with_mark(found, group)


@_ordered
def _all_gather(xp: Any, x: torch.Tensor, group: Any, size: int, axis: int = 0) -> torch.Tensor:
    _check_first("all_gather", x, group, f"along {axis}")
    found = _wait(_gather(_to_front(x, axis), 0, group))
    return torch.movedim(found, 0, axis)


@_ordered
def _reduce_scatter(xp: Any, x: torch.Tensor, group: Any, size: int, axis: int = 0) -> torch.Tensor:
    _check_first("reduce_scatter", x, group, f"along {axis}")
    found = _wait(_scatter(_to_front(x, axis), "sum", 0, group))
    return torch.movedim(found, 0, axis)


@_ordered
def _all_to_all(xp: Any, x: torch.Tensor, group: Any, size: int, split: int, concat: int) -> torch.Tensor:
    _check_first("all_to_all", x, group, f"split {split}", f"concat {concat}")
    parts = torch.stack(x.chunk(size, split))
    received = _wait(functional.all_to_all_single(parts, None, None, group))
    return torch.cat(list(received.unbind(0)), concat)


@_ordered
def _broadcast(xp: Any, x: torch.Tensor, group: Any, source: int, is_source: bool) -> torch.Tensor:
    _check_first("broadcast", x, group, f"from {source}")
    return new_values.with_mark(_wait(functional.broadcast(x.contiguous(), source, group)), group)


def _broadcast_transpose(xp: Any, g: Any, group: str, source: int, is_source: bool) -> Any:
    # By all, also where nothing comes of it. The zeros depend on it, so that all take part in its derivative, too.
    total = xp.all_reduce_in_group(g, group)
    return total if is_source else xp.where(xp.zeros_like(xp.real(total), dtype=bool), total, xp.zeros_like(total))


def _extreme_vjp(xp: Any, g: Any, x: Any, out: Any, group: str) -> Any:
    """Share the cotangent among the elements of all processes that are the extreme one."""
    chosen = xp.astype(xp.equal(x, out), g.dtype)
    return chosen * xp.all_reduce_in_group(g, group) / xp.all_reduce_in_group(chosen, group)


@linear(
    x=transpose(lambda xp, g, group, reduction: xp.all_reduce_in_group(g, group, reduction=reduction)),
    kernel=_all_reduce,
    batch=batching.elementwise,
)
def all_reduce_in_group(x: ArrayLike, /, group: str, *, reduction: str = "sum") -> Tensor:
    """Add up, or average, the arrays of all processes of a group."""
    raise NotImplementedError


@op(
    x=vjp(_extreme_vjp),
    kernel=_ordered(lambda xp, x, group, reduction="max": _all_reduce(xp, x, group, reduction)),
    batch=batching.elementwise,
)
def extreme_in_group(x: ArrayLike, /, group: str, *, reduction: str = "max") -> Tensor:
    """Return the greatest, or least, of the arrays of all processes of a group, by element."""
    raise NotImplementedError


@linear(
    x=transpose(lambda xp, g, group, size, axis: xp.reduce_scatter_in_group(g, group, size, axis=axis)),
    kernel=_all_gather,
    batch=batching.along,
)
def all_gather_in_group(x: ArrayLike, /, group: str, size: int, *, axis: int = 0) -> Tensor:
    """Concatenate the arrays of all processes of a group."""
    raise NotImplementedError


@linear(
    x=transpose(lambda xp, g, group, size, axis: xp.all_gather_in_group(g, group, size, axis=axis)),
    kernel=_reduce_scatter,
    batch=batching.along,
)
def reduce_scatter_in_group(x: ArrayLike, /, group: str, size: int, *, axis: int = 0) -> Tensor:
    """Add up the arrays of all processes of a group, and return a part of the sum."""
    raise NotImplementedError


@linear(
    x=transpose(lambda xp, g, group, size, split, concat: xp.all_to_all_in_group(g, group, size, concat, split)),
    kernel=_all_to_all,
    batch=lambda call, x: call(x.value, split=call.params["split"] + 1, concat=call.params["concat"] + 1),
    axes_of=None,
)
def all_to_all_in_group(x: ArrayLike, /, group: str, size: int, split: int, concat: int) -> Tensor:
    """Exchange parts among the processes of a group."""
    raise NotImplementedError


@linear(x=transpose(_broadcast_transpose), kernel=_broadcast, batch=batching.elementwise)
def broadcast_in_group(x: ArrayLike, /, group: str, source: int, is_source: bool) -> Tensor:
    """Return the array of one process of a group in all of them."""
    raise NotImplementedError


def _described_in_order(arrays: Sequence[torch.Tensor], labels: Sequence[str]) -> list[str]:
    """Return gradients in the order of their sources: they are sent from the last to the first."""
    shown = [*map(described_array, arrays, labels)]
    return [f"averaged gradients of {counted(len(arrays), 'array')}", *reversed(shown)]


@_ordered
def _means_in_group(xp: Any, arrays: Any, group: Any, size: int, labels: tuple[str, ...]) -> torch.Tensor:
    is_compared = size > 1 and type(arrays[0]) is torch.Tensor
    sizes = [*[x.numel() for x in arrays], *[COUNT] * is_compared]
    # Divided on the way into the array that is sent, in whose memory the sum is taken.
    flat = torch.empty(sum(sizes), dtype=arrays[0].dtype, device=arrays[0].device)
    for x, place in zip(arrays, torch.split(flat, sizes), strict=False):
        torch.div(x, size, out=place.view(x.shape))
    if not is_compared:
        return _wait(torch.ops._c10d_functional.all_reduce_(flat, "sum", group))
    key = ("averaged gradients by ops", group, labels, arrays[0].dtype, *[x.shape for x in arrays])
    note(group, *compare_first(key, lambda: _described_in_order(arrays, labels), group, waits_of, always=True), 0)
    ballot = Ballot(group)
    flat[-COUNT:] = ballot.numbers(flat)
    found = _wait(torch.ops._c10d_functional.all_reduce_(flat, "sum", group))
    ballot.check(found[-COUNT:])
    return found[:-COUNT]


def _means_in_group_transpose(
    xp: Any, g: Any, arrays_spec: Any, group: str, size: int, labels: tuple[str, ...]
) -> list[Any]:
    total, pieces, start = xp.all_reduce_in_group(g, group, reduction="mean"), [], 0
    for spec in arrays_spec:
        stop = start + math.prod(spec.shape)
        pieces.append(xp.reshape(total[start:stop], spec.shape))
        start = stop
    return pieces


def _means_in_group_batch(call: Any, *arrays: Any) -> Any:
    n = batching.size_of(arrays)
    flat = [reshape(x, (n, math.prod(x.shape[1:]))) for x in [batching.spread(x, n) for x in arrays]]
    return all_reduce_in_group(concat(flat, axis=1), call.params["group"], reduction="mean")


@linear(arrays=transpose(_means_in_group_transpose), kernel=_means_in_group, sequence=True, batch=_means_in_group_batch)
def means_in_group(arrays: Sequence[ArrayLike], /, group: str, size: int, *, labels: tuple[str, ...]) -> Tensor:
    """Average arrays of one dtype over all processes of a group; return them one after the other, flat.

    `labels` has what tells each from others of its shape, to be compared between the processes.
    """
    raise NotImplementedError


# -- what users call


def all_reduce(x: ArrayLike, mesh: Mesh, axis: str | None = None, *, reduction: Reduction = "sum") -> Tensor:
    """Return the sum, mean, greatest or least of the arrays of all processes, by element.

    >>> from tape_torch.distributed import all_reduce, mesh
    >>> all_reduce([1.0, 2.0], mesh({"data": -1})).tolist()
    [1.0, 2.0]

    Args:
        x: this process's array, of the same shape and dtype in all.
        mesh: the processes.
        axis: only those along this axis of the mesh, beside this one; by default all.
        reduction: `"sum"`, `"mean"`, `"max"` or `"min"`. Of equal extremes each has its share of the cotangent.

    Raises:
        ValueError: the mesh has no such axis, or there is no such reduction.
        TypeError: `x` is divided among processes already, the mean of integers is asked for, or `mesh` is none.
    """
    tensor = _plain(x, "all_reduce", mesh)
    group = mesh.group(axis).group_name
    if reduction == "mean" and not tensor.dtype.inexact:
        raise TypeError(f"all_reduce: reduction='mean' is for floating-point arrays; this one is {tensor.dtype}")
    if reduction in ("sum", "mean"):
        return all_reduce_in_group(tensor, group, reduction=reduction)
    if reduction in ("max", "min"):
        return extreme_in_group(tensor, group, reduction=reduction)
    raise ValueError(f"all_reduce: reduction={reduction!r} is none of 'sum', 'mean', 'max', 'min'")


def all_gather(x: ArrayLike, mesh: Mesh, axis: str | None = None, *, along: int = 0) -> Tensor:
    """Return the arrays of all processes, concatenated in their order.

    >>> from tape_torch.distributed import all_gather, mesh
    >>> all_gather([1.0, 2.0], mesh({"data": -1})).shape
    (2,)

    Args:
        x: this process's array, of the same shape and dtype in all; it has an axis.
        mesh, axis: as for :func:`all_reduce`.
        along: the axis of the arrays along which they are concatenated.

    Raises:
        ValueError: the mesh has no such axis, or the array has none.
        TypeError: `x` is divided among processes already.
    """
    tensor = _plain(x, "all_gather", mesh)
    _check_parts(tensor, along, 1, "all_gather")
    group = mesh.group(axis)
    return all_gather_in_group(tensor, group.group_name, group.size(), axis=along)


def reduce_scatter(x: ArrayLike, mesh: Mesh, axis: str | None = None, *, along: int = 0) -> Tensor:
    """Return this process's part of the sum of the arrays of all processes: the first has the first part.

    >>> from tape_torch.distributed import mesh, reduce_scatter
    >>> reduce_scatter([1.0, 2.0], mesh({"data": -1})).tolist()
    [1.0, 2.0]

    Args:
        x: this process's array, of the same shape and dtype in all.
        mesh, axis: as for :func:`all_reduce`.
        along: the axis of the arrays that is divided into as many parts as there are processes.

    Raises:
        ValueError: the mesh has no such axis, or the processes do not divide the array's.
        TypeError: `x` is divided among processes already.
    """
    tensor = _plain(x, "reduce_scatter", mesh)
    group = mesh.group(axis)
    _check_parts(tensor, along, group.size(), "reduce_scatter")
    return reduce_scatter_in_group(tensor, group.group_name, group.size(), axis=along)


def all_to_all(x: ArrayLike, mesh: Mesh, axis: str | None = None, *, split: int = 0, concat: int = 0) -> Tensor:
    """Send a part of this process's array to each process, and return the parts received, concatenated in their order.

    >>> from tape_torch.distributed import all_to_all, mesh
    >>> all_to_all([[1.0, 2.0]], mesh({"data": -1}), split=1).tolist()
    [[1.0, 2.0]]

    Args:
        x: this process's array, of the same shape and dtype in all.
        mesh, axis: as for :func:`all_reduce`.
        split: the axis of the array that is divided into as many parts as there are processes.
        concat: the axis along which the parts received are concatenated.

    Raises:
        ValueError: the mesh has no such axis, or the processes do not divide the array's.
        TypeError: `x` is divided among processes already.
    """
    tensor = _plain(x, "all_to_all", mesh)
    group = mesh.group(axis)
    _check_parts(tensor, split, group.size(), "all_to_all")
    _check_parts(tensor, concat, 1, "all_to_all")
    n = len(tensor.shape)
    return all_to_all_in_group(tensor, group.group_name, group.size(), split % n, concat % n)


def broadcast(x: ArrayLike, mesh: Mesh, axis: str | None = None, *, source: int = 0) -> Tensor:
    """Return the array of one process in all of them.

    >>> from tape_torch.distributed import broadcast, mesh
    >>> broadcast(3.0, mesh({"data": -1})).item()
    3.0

    Args:
        x: this process's array, of the same shape and dtype in all; only the source's values are looked at.
        mesh, axis: as for :func:`all_reduce`.
        source: the place of that process along the axis, or its rank.

    Raises:
        ValueError: the mesh has no such axis, or there is no such process.
        TypeError: `x` is divided among processes already.
    """
    tensor = _plain(x, "broadcast", mesh)
    group = mesh.group(axis)
    if not 0 <= source < group.size():
        where = "" if axis is None else f" along axis {axis!r}"
        raise ValueError(f"broadcast: source={source}, and there are {group.size()} processes{where}, counted from 0")
    # The op takes the place of the source within the group, where `torch.distributed.broadcast` takes its rank.
    return broadcast_in_group(tensor, group.group_name, source, source == group.rank())


def _plain(x: ArrayLike, name: str, mesh: Mesh) -> Tensor:
    check_mesh(mesh, Mesh, DeviceMesh, name)
    backend = backend_of_type(torch.Tensor)
    assert backend is not None  # this package provides it
    tensor = asarray(x) if isinstance(x, Tensor | Variable) else asarray(x, backend=backend)
    if tensor.backend.library is not backend:
        raise TypeError(f"{name}: takes arrays of the backend 'torch'; this one is of {tensor.backend.name!r}")
    if hasattr(tensor.array, "placements"):
        raise TypeError(
            f"{name}: takes an array of which each process has its own, and this one is divided among them "
            f"({tensor.backend.place(tensor.array)}): PyTorch communicates by itself, tape_torch.distributed.full(x) "
            f"makes it whole, and local(x) is the part of this process"
        )
    return tensor


def _check_parts(tensor: Tensor, along: int, parts: int, name: str) -> None:
    shape = tensor.shape
    if not -len(shape) <= along < len(shape):
        raise ValueError(f"{name}: an array of shape {shape} has no axis {along}")
    if shape[along] % parts:
        raise ValueError(
            f"{name}: axis {along} of an array of shape {shape} cannot be divided into {parts} equal parts, one for "
            f"each process"
        )
