"""What eager steps do for several divided arrays at once, where PyTorch goes from op to op.

- Gradients are added up, or scattered, several by one collective, as a backward pass comes to them: processes wait for
  each collective in turn, which takes longer than a small one's bytes.
- An optimizer computes with this process's parts of a Variable, its slots and its gradient, which lie alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import crc32

import torch
import torch.distributed as dist
from tape_core.support import counted
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from tape_torch.divided import added_up, is_watched, own_part, sent, sent_later, wait_for_dropped
from tape_torch.divided_origins import end_first_step, waits_of
from tape_torch.divided_specs import divided_as, with_spec
from tape_torch.divided_weights import forget_all
from tape_torch.mismatches import compare_first, described_array, identity, names_of
from tape_torch.peers import naming_peers
from tape_torch.thresholds import SUMMED_ALONE_BYTES, SUMMED_TOGETHER_BYTES, TAKEN_TOGETHER_BYTES
from tape_torch.votes import COUNT, Ballot, Tally, end_pass, note


def number_later(x: Any) -> Any:
    """Return a result without terms that are still to be added up, as `added_up` does; one number may be on its way.

    A loss is read after its backward pass, which goes on meanwhile.
    """
    if x.ndim or not any([p.is_partial() for p in x.placements]):
        return added_up(x)
    spec = _summed(x._spec)
    if spec is None or spec.mesh is not x.device_mesh or x.requires_grad or is_watched():
        return sent(x, [Replicate() if p.is_partial() else p for p in x.placements])
    # The one collective that it takes: to ask PyTorch what has to be sent takes longer than to send a number.
    wait_for_dropped()
    (axis,) = [k for k, p in enumerate(x.placements) if type(p) is Partial]
    name = spec.mesh.get_group(axis).group_name
    part, reduction, functions = own_part(x), x.placements[axis].reduce_op, torch.ops._c10d_functional
    if reduction in _SUMS:  # by the function that the other one calls of a copy: see `tape_torch.gloo`
        part = functions.all_reduce_(part.clone(), reduction, name)
    else:
        part = functions.all_reduce(part, reduction, name)
    return sent_later(with_spec(AsyncCollectiveTensor(part), spec))


_SUMS: Final = ("sum", "avg")


@lru_cache(maxsize=256)
def _summed(spec: Any) -> Any:
    """Return the description of the sum of an array; None where it takes more than one collective, or another one."""
    if [type(p) for p in spec.placements if p.is_partial()] != [Partial]:
        return None
    to = tuple([Replicate() if p.is_partial() else p for p in spec.placements])
    return DTensorSpec(spec.mesh, to, tensor_meta=spec.tensor_meta)


# -- an optimizer's update


def parts_alike(arrays: list[Any]) -> tuple[list[torch.Tensor], Callable[[list[torch.Tensor]], list[Any]]] | None:
    """Return the parts of DTensors that are divided alike, and what makes DTensors of new values for all but the first.

    None if they are not: an elementwise function is not one of their parts then.
    """
    first = arrays[0]
    if type(first) is not DTensor:
        return None
    spec = first._spec
    if any([p.is_partial() for p in spec.placements]):
        return None
    for x in arrays[1:]:
        if type(x) is not DTensor:
            return None
        own = x._spec
        if own is not spec and (own.shape, own.placements, own.mesh) != (spec.shape, spec.placements, spec.mesh):
            return None
    parts = [own_part(x) for x in arrays]

    def joined(new: list[torch.Tensor]) -> list[Any]:
        return [_as_former(x, part, own) for x, part, own in zip(new, parts[1:], arrays[1:], strict=True)]

    return parts, joined


def _as_former(new: torch.Tensor, part: torch.Tensor, former: Any) -> Any:
    if new.dtype is not part.dtype:
        return DTensor.from_local(
            new, former.device_mesh, former.placements, run_check=False, shape=former.shape, stride=former.stride()
        )
    if new.stride() != part.stride():
        new = torch.empty_strided(part.shape, part.stride(), dtype=new.dtype, device=new.device).copy_(new)
    return with_spec(new, former._spec)


# -- gradients


_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # PyTorch < 2.13


class _Kind(NamedTuple):
    """What gradients have in common that are sent together.

    Attributes:
        mesh, axis: the processes among which they are added up, those along an axis.
        scattered: whether each keeps a part of the sum.
    """

    mesh: Any
    axis: int
    scattered: bool
    dtype: torch.dtype


class _Bucket:
    """Gradients that are sent together.

    Attributes:
        members: of each its key, what this process adds, the source's array, and along which axis it is scattered.
        sources: the source of each.
        nbytes: of all, as they are whole.
    """

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.members: list[tuple[int, torch.Tensor, Any, int]] = []
        self.sources: list[Any] = []
        self.nbytes = 0
        self._found: list[torch.Tensor] = []
        self._work: Any = None
        self._ballot: Any = None
        self._votes: Any = None

    def send(self) -> None:
        """Begin the collective; each process calls this for the same buckets in the same order."""
        mesh, axis, scattered, _ = self.kind
        group, n = mesh.get_group(axis), mesh.size(axis)
        key = ("gradients", self.kind, *[(x.shape, dim) for _, x, _, dim in self.members], *identity(self.sources))
        note(group.group_name, *compare_first(key, self._described, group.group_name, waits_of, always=True), 0)
        self._ballot = Ballot(group.group_name)
        votes = self._ballot.numbers(self.members[0][1])
        if not scattered:
            flat = torch.cat([*[x.reshape(-1) for _, x, _, _ in self.members], votes])
            self._work = dist.all_reduce(flat, group=group, async_op=True)
            shapes = [x.shape for _, x, _, _ in self.members]
        else:
            # Of each process's part first the one of the first gradient, then that of the next one.
            turned = [_in_parts(x, dim, n).movedim(dim, 0) for _, x, _, dim in self.members]
            whole = torch.cat([*[x.reshape(n, -1) for x in turned], votes.expand(n, -1)], dim=1)
            flat = whole.new_empty(whole.shape[1])
            self._work = _reduce_scatter(flat, whole.view(-1), group=group, async_op=True)
            shapes = [x.shape[1:] for x in turned]
        *parts, self._votes = torch.split(flat, [*[shape.numel() for shape in shapes], COUNT])
        self._found = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _described(self) -> list[str]:
        arrays = [like for _, _, like, _ in self.members]
        manner = " that are scattered" * self.kind.scattered
        each = map(described_array, arrays, names_of(self.sources))
        return [f"the sum of {counted(len(arrays), 'gradient')}{manner}", *each]

    def received(self) -> dict[int, Any]:
        """Wait, and return the gradients by their keys."""
        with naming_peers("the sum of gradients"):
            self._work.wait()
        self._ballot.check(self._votes)
        return {key: divided_as(part, like) for (key, _, like, _), part in zip(self.members, self._found, strict=True)}


def _in_parts(x: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    return x.reshape([*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :]])


class Together:
    """Gradients on their way into the layouts of their sources, several by one collective."""

    def __init__(self) -> None:
        self._open: dict[_Kind, _Bucket] = {}
        self._sent: list[_Bucket] = []
        self._alone: dict[str, None] = {}  # in order the groups of processes in which something is sent by itself

    def add(self, key: int, gradient: Any, source: Any) -> bool:
        """Take a gradient that is to be laid out as another array; return False if it goes another way.

        What is taken depends on shapes and layouts alone, which are the same in all processes.
        """
        like = source._array
        if type(gradient) is not DTensor or type(like) is not DTensor:
            return False
        found = _way(gradient._spec, like._spec)
        if found is None:
            self._note(gradient, source)
            return False
        axis, dim, nbytes = found
        kind = _Kind(gradient.device_mesh, axis, dim >= 0, gradient.dtype)
        bucket = self._open.get(kind)
        if bucket is None:
            bucket = self._open[kind] = _Bucket(kind)
        bucket.members.append((key, own_part(gradient), like, dim))
        bucket.sources.append(source)
        bucket.nbytes += nbytes
        # The first one begins early, as that of DistributedDataParallel.
        if bucket.nbytes >= (SUMMED_TOGETHER_BYTES if self._sent else TAKEN_TOGETHER_BYTES):
            self._send(kind)
        return True

    def finish(self) -> dict[int, Any]:
        """Send what is left, and return all gradients by their keys once they are there."""
        for kind in list(self._open):
            self._send(kind)
        tallies = [*map(Tally, self._alone)]
        end_pass()
        forget_all()  # the pass is over
        if self._sent:
            end_first_step()
        wait_for_dropped()  # losses of former steps, say, which nobody has read
        found: dict[int, Any] = {}
        for bucket in self._sent:
            found |= bucket.received()
        for tally in tallies:
            tally.check()
        return found

    def _note(self, gradient: Any, source: Any) -> None:
        """Note a gradient that is sent by itself."""
        for axis, (own, to) in enumerate(zip(gradient.placements, source._array.placements, strict=True)):
            if own.is_partial() and own != to and gradient.device_mesh == source._array.device_mesh:
                group = gradient.device_mesh.get_group(axis).group_name
                text = f"the gradient of {described_array(gradient, names_of([source])[0])}"
                note(group, crc32(text.encode()), text, 0)
                self._alone[group] = None

    def _send(self, kind: _Kind) -> None:
        bucket = self._open.pop(kind)
        with naming_peers("the sum of gradients"):
            bucket.send()
        self._alone.pop(kind.mesh.get_group(kind.axis).group_name, None)  # it is told of with these
        self._sent.append(bucket)


@lru_cache(maxsize=1024)
def _way(x: Any, like: Any) -> tuple[int, int, int] | None:
    """Return along which axis of the mesh summands are added up, and along which of its own an array is scattered.

    The latter is -1 if each process gets the sum. The third is the number of bytes. None where it takes more than one
    collective, or something else.

    Args:
        x, like: PyTorch's descriptions of an array, and of one that it is to be laid out as.
    """
    dtype, shape = x.tensor_meta.dtype, x.shape
    nbytes = math.prod(shape) * dtype.itemsize
    if not dtype.is_floating_point or dtype is not like.tensor_meta.dtype or not 0 < nbytes < SUMMED_ALONE_BYTES:
        return None
    if shape != like.shape or x.mesh != like.mesh:
        return None
    unlike = [k for k, (p, q) in enumerate(zip(x.placements, like.placements, strict=True)) if p != q]
    if len(unlike) != 1:
        return None
    (axis,) = unlike
    before, after = x.placements[axis], like.placements[axis]
    if type(before) is not Partial or before.reduce_op != "sum":
        return None
    if any([p.is_partial() for p in like.placements]):
        return None
    if type(after) is Replicate:
        return axis, -1, nbytes
    if type(after) is not Shard or shape[after.dim] % x.mesh.size(axis):
        return None
    if any([not p.is_replicate() for k, p in enumerate(like.placements) if k != axis]):
        return None  # which of the two divides a part of the other
    return axis, after.dim, nbytes
