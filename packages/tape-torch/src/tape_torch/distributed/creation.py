"""Arrays that are made divided: each process makes its own part, and none has the whole at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tape_core as tc
import torch
import torch.distributed as dist
from tape_compile.extend import TracedArray
from tape_core import Tensor
from tape_core.meshes import FILLED, Between, PartwiseRandom, check_mesh, fill, label_of, make
from tape_core.staging import current
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from tape_torch.distributed.layouts import Layout, placements_dividing
from tape_torch.distributed.meshes import Mesh
from tape_torch.distributed.moving import distributed_joined, distributed_part_of, torch_backend
from tape_torch.divided_copies import copy_on
from tape_torch.peers import naming_peers
from tape_torch.random import TorchRandom
from tape_torch.thresholds import DRAWN_AT_ONCE

if TYPE_CHECKING:
    from tape_torch.backend import TorchBackend


class Part(NamedTuple):
    """The part of an array that this process makes.

    Attributes:
        shape: of the whole array.
        offsets, sizes: where the part begins, and its shape.
    """

    backend: TorchBackend
    mesh: DeviceMesh
    shape: tuple[int, ...]
    to: tuple[Placement, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def drawn(self, between: Between, dtype: str, device: str | None) -> DTensor:
        """Return the array whose numbers `between` draws."""
        kind = self.backend.raw_device(device)
        found = torch.empty(self.sizes, dtype=self.backend.raw_dtype(dtype), device=kind)
        fill(found, self.shape, self.offsets, between, DRAWN_AT_ONCE)
        stride = torch.empty(self.shape, device="meta").stride()
        return DTensor.from_local(
            found, self.mesh, self.to, run_check=False, shape=torch.Size(self.shape), stride=stride
        )

    def of_all(self, numbers: list[int]) -> list[list[int]]:
        """Return what each process gives, by rank."""
        mine = torch.tensor(numbers, device=self.mesh.device_type)
        found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        with naming_peers("create, which compares what the processes give,"):
            dist.all_gather(found, mine)
        return [each.tolist() for each in found]


def create(
    function: Callable[..., Tensor], shape: Sequence[int], layout: Layout, *args: Any, mesh: Mesh, **kwargs: Any
) -> Tensor:
    """Return `function(shape, *args, **kwargs)` divided among the processes of a mesh, which make their parts only.

    That is so for `tc.zeros`, `tc.ones`, `tc.full` and `tc.empty`, and for functions that draw uniform or normal
    numbers or integers of this shape from a Generator and compute with them, as initialisers do: the numbers are those
    that one process draws, up to rounding. What other functions return is whole in each process for a moment.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import create, full, mesh
    >>> m = mesh({"data": -1})
    >>> create(tc.full, (4, 2), ("data",), 0.5, mesh=m).shape
    (4, 2)
    >>> x = create(tc.default_rng(0).normal, (4, 2), ("data",), mesh=m)
    >>> bool(tc.all(full(x) == tc.default_rng(0).normal((4, 2), backend="torch:cpu")))
    True

    Args:
        function: of a shape and the other arguments, that returns a Tensor of that shape. All processes give the same
            function, and a Generator in the same state.
        shape: of the whole.
        layout: see :data:`tape_torch.distributed.Layout`.
        mesh: the processes.

    Raises:
        TypeError: the mesh is one of another engine, or the layout is none.
        ValueError: an axis cannot be divided so, the result has another shape, or a Generator has other states in
            other processes.
    """
    check_mesh(mesh, Mesh, DeviceMesh, "create")
    whole = tuple(shape)
    label = label_of(function)
    to = placements_dividing(layout, mesh, whole, label, "create")
    backend = torch_backend()
    part = _part(whole, to, mesh.device_mesh, backend)
    kind = mesh.device_mesh.device_type
    with tc.use_backend(f"torch:{kind if kind == 'cpu' else backend.default_device}"):
        if function in FILLED:
            return distributed_joined(function(part.sizes, *args, **kwargs), mesh.device_mesh, to)
        made = make(function, args, kwargs, part)
    array = made._array
    if isinstance(array, DTensor):
        return made if tuple(array.placements) == to else tc.asarray(array.redistribute(placements=to))
    if current() is None:
        copy_on(mesh.device_mesh, array, f"create: {label}")
    return distributed_part_of(made, mesh.device_mesh, to)


def part_like(backend: TorchBackend, tensor: Tensor, shape: tuple[int, ...]) -> Part | None:
    """Return the part that this process makes of an array that broadcasts to a divided one, and is divided as it is.

    Where it is not known which part that is, the array is made whole: None.
    """
    array = tensor._array
    array = array.value if type(array) is TracedArray else array
    # The processes compare their generators, all of them.
    if not isinstance(array, DTensor) or array.device_mesh.size() != dist.get_world_size():
        return None
    missing = array.ndim - len(shape)
    to: list[Placement] = []
    for place in array.placements:
        if type(place) is Shard:
            axis = place.dim - missing
            is_divided = axis >= 0 and shape[axis] == array.shape[place.dim]
            to.append(Shard(axis) if is_divided else Replicate())
        elif place.is_replicate() or place.is_partial():
            to.append(Replicate())
        else:  # parts that are not in order, of which only PyTorch knows the places
            return None
    return _part(shape, tuple(to), array.device_mesh, backend)


def _part(shape: tuple[int, ...], to: tuple[Placement, ...], mesh: DeviceMesh, backend: TorchBackend) -> Part:
    """Return the part of this process; of several axes along one dimension the first one divides it first."""
    if not isinstance(backend.random, _DividedRandom):
        backend.random = _DividedRandom(backend, TorchRandom(backend))
    sizes, offsets = list(shape), [0] * len(shape)
    place_of_process = mesh.get_coordinate()
    assert place_of_process is not None  # a mesh has all processes
    for place, count, k in zip(to, mesh.shape, place_of_process, strict=True):
        if isinstance(place, Shard):
            length = sizes[place.dim]
            largest = -(-length // count)  # parts are rounded up, and the last ones are shorter
            begin = min(k * largest, length)
            sizes[place.dim] = min(largest, length - begin)
            offsets[place.dim] += begin
    return Part(backend, mesh, shape, to, tuple(offsets), tuple(sizes))


class _DividedRandom(PartwiseRandom, TorchRandom):
    """The numbers of :class:`TorchRandom`; of an array that is made divided, those of this process's part."""
