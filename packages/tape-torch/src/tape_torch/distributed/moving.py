"""Values between processes: divided among those of a mesh, made whole again, and the part that a process has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from tape_compile.extend import TracedArray
from tape_core import Tensor, Variable, asarray
from tape_core.backends import Backend, backend_of_type
from tape_core.extend import linear, transpose
from tape_core.meshes import about, check_mesh, check_parts_alike, divide_tree, map_leaves
from tape_core.staging import current
from tape_core.support import give_back, innermost, pytree
from tape_core.typing import ArrayLike, PyTree
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

from tape_torch.distributed.agreement import agree_on
from tape_torch.distributed.layouts import Layout, placements, placements_dividing
from tape_torch.distributed.meshes import Mesh
from tape_torch.divided import describe, part_of
from tape_torch.divided_copies import DIVIDE, check_same, copy_on
from tape_torch.divided_names import add_names
from tape_torch.divided_origins import begin_first_step
from tape_torch.divided_weights import divided_together
from tape_torch.peers import naming_peers
from tape_torch.votes import forget

if TYPE_CHECKING:
    from tape_torch.backend import TorchBackend

T = TypeVar("T", bound=PyTree)

Chosen = Layout | Callable[[str, Variable], Layout]

# -- the ops. Their meshes and placements are PyTorch's, and are compared by value where calls are.

Places = tuple[Placement, ...]


def _divide(xp: Any, x: torch.Tensor, mesh: DeviceMesh, to: Places) -> torch.Tensor:
    return distribute_tensor(x, mesh, to)


def _part_of(xp: Any, x: torch.Tensor, mesh: DeviceMesh, to: Places) -> torch.Tensor:
    # A cotangent: what is computed of the whole beside divided arrays is divided, and what is not is a copy in each.
    whole = x if isinstance(x, DTensor) else copy_on(mesh, x, "what is made of full(x), or by create")
    # The cotangent of a summand is that of the sum.
    return cast("torch.Tensor", whole.redistribute(placements=_without_sums(to)))


def _whole(xp: Any, x: Any, mesh: DeviceMesh, origin: Places) -> torch.Tensor:
    return cast("torch.Tensor", x.full_tensor())


def _local(xp: Any, x: Any, mesh: DeviceMesh, origin: Places) -> torch.Tensor:
    origin = _without_sums(origin)  # the cotangent of a summand is that of the sum
    if tuple(x.placements) != origin:  # a cotangent, which may be laid out otherwise
        x = x.redistribute(placements=origin)
    return part_of(x)


def _joined(xp: Any, x: torch.Tensor, mesh: DeviceMesh, to: Places) -> torch.Tensor:
    if isinstance(x, DTensor):  # the cotangent of local(x) that was a copy in each process beside divided arrays
        if any(p.is_shard() for p in to):
            raise ValueError(
                f"local: the part of rank {dist.get_rank()} was taken for the same value in each process, beside "
                f"divided arrays; make one array of the parts, distribute(part, layout, mesh=mesh, local=True), or "
                f"take full(x)"
            )
        return x.redistribute(placements=[Replicate()] * mesh.ndim)
    return DTensor.from_local(x, mesh, to, run_check=False)


def _without_sums(placements: Sequence[Placement]) -> Places:
    return tuple([Replicate() if p.is_partial() else p for p in placements])


def _summands(placements: Places) -> Places:
    """Return the placements of the cotangent of a value of which each process takes its part, or its copy."""
    return tuple([Partial() if p.is_replicate() else p for p in placements])


def _relay(xp: Any, x: Any, mesh: DeviceMesh, origin: Any, to: tuple[Placement, ...]) -> torch.Tensor:
    # A cotangent may be the same in each process, and plain.
    divided = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return divided.redistribute(placements=to)


@linear(x=transpose(lambda xp, g, mesh, to: xp.distributed_full(g, mesh, to)), kernel=_divide, axes_of=None)
def distributed_divide(x: ArrayLike, /, mesh: Any, to: Any) -> Tensor:
    """Divide a whole value, that of the first process, among the processes of a mesh."""
    raise NotImplementedError


@linear(x=transpose(lambda xp, g, mesh, to: xp.distributed_full(g, mesh, to)), kernel=_part_of, axes_of=None)
def distributed_part_of(x: ArrayLike, /, mesh: Any, to: Any) -> Tensor:
    """Divide a value that all processes have; nothing is sent."""
    raise NotImplementedError


@linear(x=transpose(lambda xp, g, mesh, origin: xp.distributed_part_of(g, mesh, origin)), kernel=_whole, axes_of=None)
def distributed_full(x: ArrayLike, /, mesh: Any, origin: Any) -> Tensor:
    """Return the whole of a divided value in each process."""
    raise NotImplementedError


_LOCAL = transpose(lambda xp, g, mesh, origin: xp.distributed_joined(g, mesh, _summands(origin)))


@linear(x=_LOCAL, kernel=_local, axes_of=None)
def distributed_local(x: ArrayLike, /, mesh: Any, origin: Any) -> Tensor:
    """Return the part of a divided value that this process has."""
    raise NotImplementedError


@linear(x=transpose(lambda xp, g, mesh, to: xp.distributed_local(g, mesh, to)), kernel=_joined, axes_of=None)
def distributed_joined(x: ArrayLike, /, mesh: Any, to: Any) -> Tensor:
    """Make one divided value of a part from each process."""
    raise NotImplementedError


@linear(
    x=transpose(lambda xp, g, mesh, origin, to: xp.distributed_relay(g, mesh, to, origin)), kernel=_relay, axes_of=None
)
def distributed_relay(x: ArrayLike, /, mesh: Any, origin: Any, to: Any) -> Tensor:
    """Divide a divided value in another way, of which a process gets no more than it needs.

    The cotangent is laid out as the value was: where a copy in each process was made, summands are added up and
    scattered by one collective.
    """
    raise NotImplementedError


# -- what users call


def distribute(tree: T, layout: Chosen, *, mesh: Mesh, local: bool = False) -> T:
    """Divide values among the processes of a mesh, all of which call this; return the tree.

    Variables, those of Modules included, are moved in place, from any backend, and what optimizers and averages have
    made for them moves along; if one cannot be moved, none is. A Variable keeps its layout: each new value is put into
    it. Arrays and Tensors give new Tensors, and a derivative goes through.

    The whole value is that of the first process: what others hold is not looked at, only its shape and dtype.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import distribute, mesh
    >>> m = mesh({"data": -1})
    >>> x = distribute(tc.ones((4, 2)), ("data",), mesh=m)
    >>> w = distribute(tc.Variable([[1.0], [2.0]]), (), mesh=m)
    >>> float(tc.sum(x @ w))
    12.0

    Args:
        tree: Variables, Modules, Tensors and arrays, nested in lists, tuples, dicts and the like.
        layout: see :data:`tape_torch.distributed.Layout`; or a function of the name and the Variable that returns
            one. The name is the path in a Module, such as `layers.0.kernel`.
        mesh: the processes.
        local: each process gives its own part, and the whole is all of them; the parts have one shape.

    Raises:
        TypeError: something is no value, the layout is none, or the mesh is one of another engine.
        ValueError: a value cannot be divided so, the processes give other shapes, dtypes or layouts, or there are no
            Variables in a Module.
        RuntimeError: a Variable is moved inside a compiled function.
    """
    check_mesh(mesh, Mesh, DeviceMesh, "distribute")
    backend = torch_backend()

    def compared(told: dict[str, str]) -> None:
        if told and current() is None:  # a trace is the same on all, or its calls are not
            what, cure = "Variables and arrays", "Build the same model, and load data of the same shape, in each"
            if local:
                what, cure = "shapes of parts", "Pad the shorter ones, or leave out what some processes have more"
            compare(told, caller="distribute", what=what, cure=cure, mesh=mesh)

    found = divide_tree(
        tree, layout, backend, lambda x, to, label: _divided(x, to, mesh, backend, local, label), compared
    )
    if hasattr(tree, "named_variables"):
        named = list(cast("Any", tree).named_variables())
        variables = [variable for _, variable in named]
        divided_together(variables)
        if mesh.device_mesh.device_type == "cpu":  # the whole values have lived here
            give_back(sum([v.size * v.dtype.itemsize for v in variables]))
    else:
        leaves, structure = pytree.flatten(tree)
        named = [(x.name or pytree.path(structure, k), x) for k, x in enumerate(leaves) if isinstance(x, Variable)]
    if named:
        add_names(named)
        begin_first_step()
        forget()
    return found


def divide(value: ArrayLike, layout: Layout, *, mesh: Mesh) -> Tensor:
    """Return a value that all processes have whole, of which each keeps its part: nothing but a checksum is sent.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import divide, mesh
    >>> divide(tc.ones((4, 2)), ("data",), mesh=mesh({"data": -1})).shape
    (4, 2)

    Args:
        value: a Tensor or array; no derivative flows through.
        layout, mesh: as for :func:`distribute`.

    Raises:
        ValueError: the processes have different values, or the value cannot be divided so.
    """
    check_mesh(mesh, Mesh, DeviceMesh, "divide")
    backend = torch_backend()
    tensor = asarray(value, backend=backend, device=_device(mesh, backend))
    if isinstance(tensor.array, DTensor):
        return tensor
    to = placements_dividing(layout, mesh, tensor.shape, "an array", "divide")
    check_same(tensor.array, mesh.device_mesh, "divide", DIVIDE)
    part = tensor.array
    for axis, entry in zip(mesh.axes, to, strict=True):
        if isinstance(entry, Shard):
            part = part.chunk(mesh.axes[axis], entry.dim)[mesh.coordinates[axis]]
    return asarray(DTensor.from_local(part, mesh.device_mesh, to, run_check=False))


def own_rows(count: int, axis: str, *, mesh: Mesh) -> slice:
    """Return which of so many rows this process has of an array that is divided along an axis of the mesh.

    >>> from tape_torch.distributed import mesh
    >>> from tape_torch.distributed.moving import own_rows
    >>> own_rows(8, "data", mesh=mesh({"data": 1}))
    slice(0, 8, None)
    """
    each, place = count // mesh.axes[axis], mesh.coordinates[axis]
    return slice(place * each, (place + 1) * each)


def own_device(*, mesh: Mesh) -> str:
    """Return the device on which this process has rows that it loads."""
    return _device(mesh, torch_backend())


def joined(part: Tensor, layout: Layout, *, mesh: Mesh) -> Tensor:
    """Return one array of a part from each process, of which it is known that they have one shape and dtype."""
    backend = torch_backend()
    tensor = asarray(part, backend=backend, device=_device(mesh, backend))
    return distributed_joined(tensor, mesh.device_mesh, placements(layout, mesh, tensor.shape, "a part of a batch"))


def agree(number: int, *, mesh: Mesh) -> int:
    """Return the first process's number, from 0 to 2**64 - 1, in all processes, which all call this."""
    words = torch.tensor([number >> 32, number & 0xFFFFFFFF], device=mesh.device_mesh.device_type)
    with naming_peers("what process 0 tells all"):
        dist.broadcast(words, 0)
    high, low = words.tolist()
    return int(high << 32 | low)


def compare(told: Mapping[str, str], *, caller: str, what: str, cure: str = "", mesh: Mesh) -> None:
    """Check that all processes give the same text by name, in the same order; all of them call this.

    >>> from tape_torch.distributed import mesh
    >>> from tape_torch.distributed.moving import compare
    >>> compare({"epochs": "3"}, caller="fit", what="arguments", mesh=mesh({"data": -1}))

    Args:
        caller, what, cure: for the message.

    Raises:
        ValueError: they do not; the message says which processes give what.
    """
    agree_on(caller, mesh.group(), what, told, cure=cure, on=mesh.device_mesh.device_type)


def full(tree: T) -> T:
    """Return values whole in each process, as plain Tensors; all processes call this.

    What is not divided stays as it is. A derivative goes through: its cotangent is the same in each process.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import distribute, full, mesh
    >>> x = distribute(tc.arange(4.0), ("data",), mesh=mesh({"data": -1}))
    >>> full(x).tolist()
    [0.0, 1.0, 2.0, 3.0]

    Args:
        tree: Tensors, Variables and anything else, nested in lists, tuples, dicts and the like.
    """
    return map_leaves(_full, tree)


def local(tree: T) -> T:
    """Return the parts of divided values that this process has, as plain Tensors; nothing is sent.

    What is not divided stays as it is. A derivative goes through: that of a copy in each process is the sum of what the
    processes make of theirs. Where all compute the same, take :func:`full`.

    >>> import tape_core as tc
    >>> from tape_torch.distributed import distribute, local, mesh
    >>> local(distribute(tc.arange(4.0), ("data",), mesh=mesh({"data": -1}))).shape
    (4,)

    Args:
        tree: Tensors, Variables and anything else, nested in lists, tuples, dicts and the like.

    Raises:
        ValueError: a value is left as summands, of which none is a part.
    """
    return map_leaves(_part, tree)


def _part(leaf: Any) -> Any:
    array = _divided_array(leaf)
    if array is None:
        return leaf
    if any(p.is_partial() for p in array.placements):
        raise ValueError(
            f"local: a value of shape {leaf.shape} with {describe(array)} has not been added up yet, and the summand "
            f"of rank {dist.get_rank()} is no part of it; take full(x)"
        )
    return distributed_local(leaf, array.device_mesh, tuple(array.placements))


def torch_backend() -> TorchBackend:
    """Return PyTorch's backend, which is told that there are divided arrays."""
    backend = cast("TorchBackend", backend_of_type(torch.Tensor))  # this package's own
    backend.expect_divided()
    return backend


def _device(mesh: Mesh, backend: Backend) -> str:
    kind: str = mesh.device_mesh.device_type
    return kind if kind == "cpu" else backend.default_device


def _full(leaf: Any) -> Any:
    array = _divided_array(leaf)
    return leaf if array is None else distributed_full(leaf, array.device_mesh, tuple(array.placements))


def _divided_array(leaf: Any) -> DTensor | None:
    """Return the DTensor of a Tensor, also where that is traced or an example of a vmap."""
    if not isinstance(leaf, Tensor):
        return None
    array = innermost(leaf._array)[0]
    found = array.value if type(array) is TracedArray else array
    return found if isinstance(found, DTensor) else None


def _divided(value: Any, layout: Layout, mesh: Mesh, backend: Backend, local: bool, label: str) -> Tensor:
    divided = _divided_array(value)
    if divided is not None and divided.device_mesh == mesh.device_mesh and not local:
        to = placements_dividing(layout, mesh, value.shape, label, "distribute")
        return distributed_relay(value, mesh.device_mesh, _without_sums(divided.placements), to)
    if divided is not None:
        value = full(value)
    tensor = asarray(value, backend=backend, device=_device(mesh, backend))
    if local:
        to = placements(layout, mesh, tensor.shape, label)
        if current() is not None:  # else they were compared all at once
            _check_same(tensor, label)
        return distributed_joined(tensor, mesh.device_mesh, to)
    to = placements_dividing(layout, mesh, tensor.shape, label, "distribute")
    return distributed_divide(tensor, mesh.device_mesh, to)


def _check_same(tensor: Tensor, label: str) -> None:
    """Compare the shapes and dtypes of the processes' parts."""
    told: list[Any] = [None] * dist.get_world_size()
    with naming_peers("distribute, which compares what the processes give,"):
        dist.all_gather_object(told, about(tensor))
    check_parts_alike(label, told)
