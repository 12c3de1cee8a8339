"""Averages of gradients over processes, in flat buckets, while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from tape_core import GradientTape, IndexedSlices, Tensor, reshape
from tape_core.meshes import check_mesh
from tape_core.staging import current
from tape_core.support import ACTIVE, READY, counted, dense, pytree, setting, wrap
from tape_core.typing import PyTree
from torch.distributed.device_mesh import DeviceMesh

from tape_torch.distributed.collectives import means_in_group
from tape_torch.distributed.failures import waits_of
from tape_torch.distributed.meshes import Mesh
from tape_torch.divided_names import add_alike
from tape_torch.mismatches import compare_first, described_array, identity, names_of
from tape_torch.peers import naming_peers
from tape_torch.votes import COUNT, Ballot, compare_variables, note

BUCKET_BYTES = 25 * 1024 * 1024
"""How much is sent at once: as much as PyTorch's DistributedDataParallel sends."""


def average_gradients(
    gradients: PyTree, mesh: Mesh, axis: str | None = None, *, bucket_bytes: int = BUCKET_BYTES
) -> Any:
    """Return the means of gradients over all processes, which call this with gradients of the same shapes.

    They are sent in flat buckets of one dtype. Slices become dense. A derivative flows through. Gradients that may be
    None are for :func:`averaged_gradient`, which knows the shapes of the sources.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import average_gradients, mesh
    >>> average_gradients([tc.asarray([1.0, 2.0], backend="torch")], mesh({"data": -1}))[0].tolist()
    [1.0, 2.0]

    Args:
        gradients: Tensors and slices, nested in lists, tuples, dicts and the like.
        mesh: the processes.
        axis: only those along this axis of the mesh, beside this one; by default all.
        bucket_bytes: the size of a bucket.

    Raises:
        ValueError: the mesh has no such axis, or a gradient is None.
        MismatchError: the first time that they are averaged, the gradients of other processes have other shapes,
            dtypes or keys, or are in another order.
    """
    check_mesh(mesh, Mesh, DeviceMesh, "average_gradients")
    leaves, structure = pytree.flatten(gradients)
    if current() is not None or ACTIVE.get():
        return pytree.unflatten(structure, _by_ops(leaves, leaves, structure, mesh, axis, bucket_bytes))
    buckets = _Buckets(leaves, structure, mesh, axis, bucket_bytes)
    for k, leaf in reversed(list(enumerate(leaves))):
        if leaf is not None:
            buckets.add(k, leaf)
    return pytree.unflatten(structure, buckets.finish())


def averaged_gradient(
    tape: GradientTape,
    target: PyTree,
    sources: PyTree,
    mesh: Mesh,
    axis: str | None = None,
    *,
    bucket_bytes: int = BUCKET_BYTES,
) -> Any:
    """Return the mean over all processes of the gradient of each process's target; all processes call this.

    It is `average_gradients(tape.gradient(target, sources), mesh)`, but a bucket is sent as soon as its gradients are
    there, while the backward pass computes others. The buckets are those of the sources from the last to the first. A
    source that a process has not used counts as zeros there; the gradient of one that none has used is None.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import averaged_gradient, mesh
    >>> x = tc.Variable(tc.asarray(3.0, backend="torch"))
    >>> with tc.GradientTape() as tape:
    ...     y = x * x
    >>> float(averaged_gradient(tape, y, x, mesh({"data": -1})))
    6.0

    Args:
        tape: the tape.
        target, sources: as for `tape.gradient`.
        mesh, axis, bucket_bytes: as for :func:`average_gradients`.

    Raises:
        ValueError: the mesh has no such axis, and whatever `tape.gradient` raises.
        MismatchError: the first time that their gradients are averaged, other processes have other sources, or these
            in another order. Names tell Variables from others, and the order in which they were made.
    """
    check_mesh(mesh, Mesh, DeviceMesh, "averaged_gradient")
    leaves, structure = pytree.flatten(sources)
    if current() is not None or ACTIVE.get():
        found = tape.gradient(target, leaves)
        return pytree.unflatten(structure, _by_ops(found, leaves, structure, mesh, axis, bucket_bytes))
    buckets = _Buckets(leaves, structure, mesh, axis, bucket_bytes)
    with setting(READY, buckets.add):
        found = tape.gradient(target, leaves)
    for k, gradient in reversed(list(enumerate(found))):
        if gradient is not None:
            buckets.add(k, gradient)
    return pytree.unflatten(structure, buckets.finish())


class _Bucket:
    """Gradients that are sent together.

    Attributes:
        members: which ones they are, in order.
        places: where each of them begins in the flat array.
        size: of all of them; after them an element for each says whether it is there, and then come the `votes`.
        given: those that are in the array.
        flat, work: the array, once there is one of them, and the collective.
        ballot: what is sent by the votes.
    """

    def __init__(self) -> None:
        self.members: list[int] = []
        self.places: dict[int, int] = {}
        self.size = 0
        self.given: set[int] = set()
        self.flat: Any = None
        self.work: Any = None
        self.ballot: Any = None


class _Buckets:
    """Buckets of the gradients of some arrays: filled in any order, and sent in the same order by each process."""

    def __init__(self, like: Sequence[Any], structure: Any, mesh: Mesh, axis: str | None, bucket_bytes: int) -> None:
        self._like = like
        self._group = mesh.group(axis)
        self._buckets: list[_Bucket] = []
        self._bucket_of: dict[int, _Bucket] = {}
        self._sent = 0
        self._result: list[Any] = [None] * len(like)
        open_ones: dict[Any, _Bucket] = {}
        arrays: list[Any] = []
        for k, x in reversed(list(enumerate(like))):  # as the backward pass comes to them
            if x is None:
                raise ValueError(
                    f"average_gradients: gradient {k} is None in this process, and may not be so in others: "
                    f"averaged_gradient(tape, target, sources, mesh) takes the shape of the source, or give zeros"
                )
            array, shape = _array_of(x), x.shape
            size = _size(shape)
            arrays += [array.dtype, array.device, shape]
            bucket = open_ones.get((array.dtype, array.device))
            if bucket is None or array.element_size() * (bucket.size + size) > bucket_bytes:
                bucket = open_ones[array.dtype, array.device] = _Bucket()
                self._buckets.append(bucket)
            bucket.members.append(k)
            bucket.places[k] = bucket.size
            bucket.size += size
            self._bucket_of[k] = bucket
        if self._group.size() > 1:
            key = ("averaged gradients", self._group.group_name, structure, bucket_bytes, *arrays, *identity(like))
            told = lambda: self._described(structure, bucket_bytes)  # noqa: E731
            known = compare_first(key, told, self._group.group_name, waits_of, always=True)
            note(self._group.group_name, *known, 0)
            _stay_alike(like, self._group)

    def _described(self, structure: Any, bucket_bytes: int) -> list[str]:
        devices = ", ".join(sorted({_array_of(x).device.type for x in self._like}))
        how = f" in buckets of {bucket_bytes} bytes" if bucket_bytes != BUCKET_BYTES else ""
        each = map(described_array, [_array_of(x) for x in self._like], _labels(self._like, structure))
        return [f"averaged gradients of {counted(len(self._like), 'array')} on {devices}{how}", *each]

    def add(self, k: int, gradient: Tensor | IndexedSlices) -> Tensor | None:
        """Put a gradient into its bucket, and send each that is full and whose turn it is; a second time is ignored.

        What is returned is the gradient in the bucket, so that the one that is given need not be kept.
        """
        bucket = self._bucket_of[k]
        if k in bucket.given or bucket.work is not None:
            return None
        found = (dense(gradient) if isinstance(gradient, IndexedSlices) else gradient)._array
        # Divided first, as PyTorch's own do: the sum of many gradients in half precision may overflow. And now, while
        # the gradient is in the cache.
        place = self._place(bucket, k)
        torch.div(found, self._group.size(), out=place)
        bucket.given.add(k)
        while self._sent < len(self._buckets):
            bucket = self._buckets[self._sent]
            if len(bucket.given) < len(bucket.members):
                break
            self._send(bucket)
        return wrap(place, gradient.backend) if isinstance(gradient, Tensor) else None

    def finish(self) -> list[Any]:
        """Send the rest, wait for all, and return the means, None where no process has a gradient."""
        while self._sent < len(self._buckets):
            self._send(self._buckets[self._sent])
        for bucket in self._buckets:
            with naming_peers("averaged gradients"):
                bucket.work.wait()
            bucket.ballot.check(bucket.flat[-COUNT:])
            for k, there in zip(bucket.members, bucket.flat[bucket.size : -COUNT].tolist(), strict=True):
                if there > 0:
                    x = self._like[k]
                    backend = x.values.backend if isinstance(x, IndexedSlices) else x.backend
                    self._result[k] = wrap(self._place(bucket, k), backend)
        return self._result

    def _place(self, bucket: _Bucket, k: int) -> torch.Tensor:
        """Return the part of a bucket's array in which a gradient is."""
        x = self._like[k]
        if bucket.flat is None:
            like = _array_of(x)
            size = bucket.size + len(bucket.members) + COUNT
            bucket.flat = torch.empty(size, dtype=like.dtype, device=like.device)
        start = bucket.places[k]
        found: torch.Tensor = bucket.flat[start : start + _size(x.shape)].view(tuple(x.shape))
        return found

    def _send(self, bucket: _Bucket) -> None:
        for k in bucket.members:
            if k not in bucket.given:
                self._place(bucket, k).zero_()
        there = [float(k in bucket.given) for k in bucket.members]
        bucket.flat[bucket.size : -COUNT] = torch.tensor(there, dtype=bucket.flat.dtype)
        bucket.ballot = Ballot(self._group.group_name)
        bucket.flat[-COUNT:] = bucket.ballot.numbers(bucket.flat)
        with naming_peers("averaged gradients"):
            bucket.work = dist.all_reduce(bucket.flat, group=self._group, async_op=True)
        self._sent += 1


def _array_of(x: Any) -> torch.Tensor:
    found: torch.Tensor = x.values._array if isinstance(x, IndexedSlices) else x._array
    return found


def _size(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _labels(sources: Sequence[Any], structure: Any) -> list[str]:
    """Return what tells each source, or gradient, from others: its place in what is given, and its name."""
    paths = [pytree.path(structure, k) for k in range(len(sources))]
    return [" ".join(filter(None, both)) for both in zip(paths, names_of(sources), strict=True)]


def _stay_alike(sources: Sequence[Any], group: Any) -> None:
    """Have the optimizers of Variables compared whose gradients are the same in all processes."""
    if group.size() == dist.get_world_size() > 1:
        add_alike(sources)
        compare_variables()


def _by_ops(
    leaves: Sequence[Any], sources: Sequence[Any], structure: Any, mesh: Mesh, axis: str | None, bucket_bytes: int
) -> list[Any]:
    """Average by ops, which are recorded and traced; what is None is so in all processes, which run one program."""
    group = mesh.group(axis)
    _stay_alike(sources, group)
    labels = _labels(sources, structure)
    result: list[Any] = list(leaves)
    waiting: dict[Any, list[int]] = {}
    full: list[list[int]] = []
    size: dict[Any, int] = {}
    for k, leaf in reversed(list(enumerate(leaves))):
        if leaf is None:
            continue
        result[k] = x = dense(leaf) if isinstance(leaf, IndexedSlices) else leaf
        key = x.dtype
        size[key] = size.get(key, 0) + x.size * x.dtype.itemsize
        if size[key] > bucket_bytes and key in waiting:
            full.append(waiting.pop(key))
            size[key] = x.size * x.dtype.itemsize
        waiting.setdefault(key, []).append(k)
    for members in [*full, *waiting.values()]:
        told = tuple([labels[k] for k in members])
        flat = means_in_group([result[k] for k in members], group.group_name, group.size(), labels=told)
        start = 0
        for k in members:
            shape = result[k].shape
            stop = start + _size(shape)
            result[k] = reshape(flat[start:stop], shape)
            start = stop
    return result
