"""Values on a mesh: divided among its devices, made whole again, and the part that a process has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from tape_compile.extend import TracedArray
from tape_core import Tensor, Variable, asarray, stop_gradient
from tape_core.extend import batching, linear, transpose
from tape_core.meshes import about, check_mesh, check_parts_alike, divide_tree, map_leaves
from tape_core.staging import current
from tape_core.support import innermost, is_watched
from tape_core.typing import ArrayLike, BatchInput, Namespace, PyTree

from tape_jax import devices
from tape_jax.conversion import is_tracing, private_copy
from tape_jax.distributed.layouts import Layout, of_spec, sharding, sharding_dividing
from tape_jax.distributed.meshes import Mesh
from tape_jax.tasks import jax_backend

T = TypeVar("T", bound=PyTree)

Place: TypeAlias = Sharding | None
"""Where an array is, on the devices of a mesh or on one; None where that is left to JAX."""

Chosen = Layout | Callable[[str, Variable], Layout]

LABEL_BYTES = 256
"""The length to which processes fill what they tell each other of a part: they exchange arrays of one shape."""


# -- the op. Its shardings are JAX's, and are compared by value where calls are.


def _placed(xp: Namespace, x: jax.Array, to: Place, origin: Place) -> Any:
    if to is None:
        return x
    # While JAX traces, `device_put` leaves an array where it is, and a constraint is what divides it.
    if is_tracing():
        constrain: Any = jax.lax.with_sharding_constraint
        return constrain(x, to) if isinstance(to, NamedSharding) else x
    return jax.device_put(x, to)


def _each_placed(call: batching.Call, x: BatchInput) -> Any:
    params = call.params
    return call(x.value, to=_with_examples(params["to"]), origin=_with_examples(params["origin"]))


def _with_examples(place: Place) -> Any:
    """Return the sharding of examples along a first axis, which is not divided, of that of one."""
    if not isinstance(place, NamedSharding):
        return place
    make, spec = cast("Any", NamedSharding), cast("Any", PartitionSpec)
    return make(place.mesh, spec(None, *place.spec))


@linear(
    x=transpose(lambda xp, g, to, origin: xp.distributed_placed(g, origin, to)),
    kernel=_placed,
    batch=_each_placed,
    keeps_integers=True,
    axes_of=None,
)
def distributed_placed(x: ArrayLike, /, to: Place, origin: Place) -> Tensor:
    """Divide an array among the devices of a mesh; the cotangent is laid out as the array was."""
    raise NotImplementedError


# -- what users call


def distribute(tree: T, layout: Chosen, *, mesh: Mesh, local: bool = False) -> T:
    """Divide values among the devices of a mesh; return the tree. Where there are several processes, all call this.

    Variables, those of Modules included, are moved in place, from any backend, and what optimizers and averages have
    made for them moves along; if one cannot be moved, none is. A Variable keeps its layout: each new value is put into
    it. Arrays and Tensors give new Tensors, and a derivative goes through. Host arrays go to each device in parts: none
    has the whole, unless the layout says so.

    >>> import tape_core as tc
    >>> from tape_jax.distributed import distribute, mesh
    >>> m = mesh({"data": -1})
    >>> x = distribute(tc.ones((8, 2)), ("data",), mesh=m)
    >>> w = distribute(tc.Variable([[1.0], [2.0]]), (), mesh=m)
    >>> float(tc.sum(x @ w))
    24.0

    Args:
        tree: Variables, Modules, Tensors and arrays, nested in lists, tuples, dicts and the like.
        layout: see :data:`tape_jax.distributed.Layout`; or a function of the name and the Variable that returns one.
            The name is the path in a Module, such as `layers.0.kernel`.
        mesh: the devices.
        local: each process gives its own part, and the whole is all of them; the parts have one shape. One process
            alone gives the whole. With several no derivative goes through.

    Raises:
        TypeError: something is no value, the layout is none, or the mesh is one of another engine.
        ValueError: a value cannot be divided so, parts have different shapes, processes different values, or there are
            no Variables in a Module.
        RuntimeError: a Variable is moved inside a compiled function.
    """
    check_mesh(mesh, Mesh, jax.sharding.Mesh, "distribute")

    def divided(value: Any, to: Layout, label: str) -> Tensor:
        return _divided(value, to, mesh, local, label, "distribute")

    return divide_tree(tree, layout, jax_backend(), divided)


def divide(value: ArrayLike, layout: Layout, *, mesh: Mesh) -> Tensor:
    """Return a value that all processes have whole, divided among the devices; what is divided already stays so.

    >>> import tape_core as tc
    >>> from tape_jax.distributed import divide, mesh
    >>> divide(tc.ones((8, 2)), ("data",), mesh=mesh({"data": -1})).shape
    (8, 2)

    Args:
        value: a Tensor or array; no derivative flows through.
        layout, mesh: as for :func:`distribute`.

    Raises:
        ValueError: the processes have different values, or the value cannot be divided so.
    """
    check_mesh(mesh, Mesh, jax.sharding.Mesh, "divide")
    array = known_array(value)
    if isinstance(value, Tensor) and array is not None and not array.is_fully_replicated:
        return value
    return _divided(value, layout, mesh, False, "an array", "divide")


def own_rows(count: int, axis: str, *, mesh: Mesh) -> slice | None:
    """Return which of so many rows the devices of this process have of an array that is divided along an axis.

    None where they have rows that are not one after the other: then each process loads all.

    >>> from tape_jax.distributed import mesh, own_rows
    >>> own_rows(8, "data", mesh=mesh({"data": 1}, device="cpu"))  # where JAX has one device
    slice(0, 8, None)
    """
    places = mesh.places(axis)
    each = count // mesh.axes[axis]
    return slice(places.start * each, places.stop * each) if places is not None else None


def own_device(*, mesh: Mesh) -> str:
    """Return the device on which this process has rows that it loads, before they go to those of the mesh."""
    return devices.name_of(mesh.own_devices[0])


def joined(part: Tensor, layout: Layout, *, mesh: Mesh) -> Tensor:
    """Return one array of the rows that each process has loaded, of which it is known that they have one shape."""
    if mesh.is_here:
        return divide(part, layout, mesh=mesh)
    tensor = asarray(part, backend=jax_backend())
    axis: Any = cast("tuple[Any, ...]", layout)[0]
    places = mesh.places(axis)
    assert places is not None  # else `own_rows` has said that each loads all
    rows = tensor.shape[0] // len(places) * mesh.axes[axis]
    join: Any = jax.make_array_from_process_local_data
    to = sharding(layout, mesh, tensor.shape, "a part of a batch")
    return asarray(join(to, np.asarray(tensor.array), (rows, *tensor.shape[1:])))


def agree(number: int, *, mesh: Mesh) -> int:
    """Return the first process's number, from 0 to 2**64 - 1, in all processes, which all call this."""
    if mesh.is_here:
        return int(number)
    words = [number >> 16 * k & 0xFFFF for k in range(4)]  # JAX has no 64 bits unless its user wants them
    found = multihost_utils.broadcast_one_to_all(np.asarray(words, np.int32))
    return sum([int(word) << 16 * k for k, word in enumerate(found)])


def compare(told: Mapping[str, str], *, caller: str, what: str, cure: str = "", mesh: Mesh) -> None:
    """Check that all processes give the same text by name; all of them call this. One process has nothing to compare.

    Args:
        caller, what, cure: for the message.

    Raises:
        ValueError: they do not.
    """
    if mesh.is_here:
        return
    digest = hashlib.sha256(json.dumps(list(told.items())).encode()).digest()
    found = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8).astype(np.int32))
    differ = [rank for rank, row in enumerate(np.asarray(found)) if (row != found[0]).any()]
    if differ:
        raise ValueError(
            f"{caller}: the processes must give the same {what}, and process {differ[0]} gives others than process 0; "
            f"this one, {mesh.rank}, gives {dict(told)}. {cure}"
        )


def full(tree: T) -> T:
    """Return values whole on each device, as a copy; where there are several processes, all call this.

    What is not divided stays as it is. A derivative goes through.

    >>> import tape_core as tc
    >>> from tape_jax.distributed import distribute, full, mesh
    >>> x = distribute(tc.arange(8.0), ("data",), mesh=mesh({"data": -1}))
    >>> full(x).array.is_fully_replicated
    True

    Args:
        tree: Tensors, Variables and anything else, nested in lists, tuples, dicts and the like.
    """
    return map_leaves(_full, tree)


def local(tree: T) -> T:
    """Return the parts of divided values that this process has.

    One process has all of them, on its devices: its values stay as they are, as does what is not divided. With several
    processes the part is an array on one device, and no derivative goes through.

    >>> import tape_core as tc
    >>> from tape_jax.distributed import distribute, local, mesh
    >>> local(distribute(tc.arange(8.0), ("data",), mesh=mesh({"data": -1}))).shape
    (8,)

    Args:
        tree: Tensors, Variables and anything else, nested in lists, tuples, dicts and the like.

    Raises:
        ValueError: a derivative would go through, with several processes.
    """
    return map_leaves(_part, tree)


def known_array(leaf: object) -> Any:
    """Return the array of JAX of a Tensor, also where that is traced or an example of a vmap; None if it has none."""
    return _known(leaf)[0]


def _known(leaf: object) -> tuple[Any, int]:
    """Return also how many hidden axes of examples the array has."""
    if not isinstance(leaf, Tensor):
        return None, 0
    array, hidden = innermost(leaf._array)
    found = array.value if type(array) is TracedArray else array
    is_known = isinstance(found, jax.Array) and not isinstance(found, jax.core.Tracer)
    return (found if is_known else None), hidden


def _origin(value: Tensor, mesh: Mesh) -> Place:
    """Return where the cotangent of a value is to be: where the value is, or on each device of the mesh."""
    array, hidden = _known(value)
    if array is None or not array.committed:
        return of_spec(mesh)
    place: Place = array.sharding
    if isinstance(place, NamedSharding):
        make, spec = cast("Any", NamedSharding), cast("Any", PartitionSpec)
        return cast("NamedSharding", make(place.mesh, spec(*tuple(place.spec)[hidden:])))
    return place if isinstance(place, SingleDeviceSharding) else of_spec(mesh)


def _full(leaf: object) -> object:
    array = known_array(leaf)
    if not isinstance(leaf, Tensor) or array is None or array.is_fully_replicated:
        return leaf
    if not isinstance(array.sharding, NamedSharding):
        raise ValueError(
            f"full: a value of shape {leaf.shape} has the sharding {array.sharding!r}, which names no mesh; put it on "
            f"one by distribute(x, layout, mesh=mesh)"
        )
    mesh = Mesh(cast("jax.sharding.Mesh", array.sharding.mesh))
    return distributed_placed(leaf, of_spec(mesh), _origin(leaf, mesh))


def _part(leaf: object) -> object:
    array = known_array(leaf)
    if not isinstance(leaf, Tensor) or array is None or devices.is_here(array):
        return leaf
    if is_watched([leaf], outside=True) or current() is not None:
        raise ValueError(
            f"local: on JAX no derivative goes through the parts of several processes, and compiled functions have "
            f"none (a value of shape {leaf.shape}); compute with the divided value, or take stop_gradient(x) first"
        )
    shards = array.addressable_shards
    sides = [[part.indices(n)[:2] for part, n in zip(shard.index, array.shape, strict=True)] for shard in shards]
    begin, end = np.moveaxis(np.asarray(sides), -1, 0)  # of each shard, along each axis
    first = begin.min(axis=0)
    found: Any = np.empty(end.max(axis=0) - first, array.dtype)
    for shard, low, high in zip(shards, begin - first, end - first, strict=True):
        found[tuple(map(slice, low, high))] = np.asarray(shard.data)
    return asarray(found, backend=jax_backend())


def _divided(value: Any, layout: Layout, mesh: Mesh, local: bool, label: str, caller: str) -> Tensor:
    backend = jax_backend()
    if not isinstance(value, Tensor) and type(value) is not np.ndarray:
        value = asarray(value, backend=backend)
    shape = tuple(value.shape)
    if local and not mesh.is_here:
        return _joined(asarray(value, backend=backend), sharding(layout, mesh, shape, label), label)
    to = sharding_dividing(layout, mesh, shape, label, caller)
    # Memory of the host goes to each device in parts, and not by way of one.
    on_host = value._array if isinstance(value, Tensor) else value
    is_recorded = isinstance(value, Tensor) and is_watched([value])
    alone = private_copy(on_host) if type(on_host) is np.ndarray and not is_recorded and current() is None else None
    try:
        if alone is not None:
            return asarray(jax.device_put(alone, to), backend=backend)
        tensor = asarray(value, backend=backend)
        if caller == "divide":
            tensor = stop_gradient(tensor)
        return distributed_placed(tensor, to, _origin(tensor, mesh))
    except AssertionError as error:  # JAX compares what several processes give
        raise ValueError(
            f"{caller}: {label} of shape {shape} is to be the same in all processes, and the processes have different "
            f"ones: load the same data in each, draw random numbers after tape_core.set_seed(number), or make one "
            f"array of a part from each by distribute(part, layout, mesh=mesh, local=True)"
        ) from error


def _joined(tensor: Tensor, to: NamedSharding, label: str) -> Tensor:
    """Return one array of a part from each of several processes."""
    array = known_array(tensor)
    if array is None or current() is not None or is_watched([tensor], outside=True):
        raise ValueError(
            f"distribute: on JAX no derivative goes through the parts of several processes, and compiled functions "
            f"have none (the part of {label} has shape {tensor.shape}); join parts before the tape records"
        )
    told = np.frombuffer(about(tensor).encode().ljust(LABEL_BYTES), np.uint8)
    parts = np.asarray(multihost_utils.process_allgather(told))
    check_parts_alike(label, [bytes(row).decode().rstrip() for row in parts])
    join: Any = jax.make_array_from_process_local_data
    return asarray(join(to, np.asarray(array)))
