"""Arrays that are made divided: each device has its part, and none has the whole at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import tape_core as tc
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from tape_core import Tensor
from tape_core.meshes import FILLED, Between, PartwiseRandom, check_mesh, fill, label_of, make
from tape_core.staging import current

from tape_jax import devices
from tape_jax.distributed.layouts import Layout, of_spec, sharding_dividing
from tape_jax.distributed.meshes import Mesh
from tape_jax.distributed.moving import distribute
from tape_jax.random import JaxRandom, on_host
from tape_jax.tasks import jax_backend
from tape_jax.thresholds import DRAWN_AT_ONCE


class Parts(NamedTuple):
    """The array that is being made: its shape, and how it is divided."""

    shape: tuple[int, ...]
    to: NamedSharding
    mesh: Mesh

    def drawn(self, between: Between, dtype: str, device: str | None) -> jax.Array:
        """Return the array whose numbers `between` draws, in parts."""
        made: dict[tuple[tuple[int, int], ...], Any] = {}  # several devices may have one part

        def part(index: Any) -> Any:
            ranges = tuple([piece.indices(n)[:2] for piece, n in zip(index, self.shape, strict=True)])
            if ranges not in made:
                found = made[ranges] = np.empty([end - begin for begin, end in ranges], dtype)
                fill(found, self.shape, [begin for begin, _ in ranges], between, DRAWN_AT_ONCE)
            return made[ranges]

        return jax.make_array_from_callback(self.shape, self.to, part)

    def of_all(self, numbers: list[int]) -> list[list[int]]:
        """Return what each process gives, by rank."""
        if self.mesh.is_here:
            return [numbers]
        found: list[list[int]] = np.asarray(multihost_utils.process_allgather(np.asarray(numbers, np.int64))).tolist()
        return found


def create(
    function: Callable[..., Tensor], shape: Sequence[int], layout: Layout, *args: Any, mesh: Mesh, **kwargs: Any
) -> Tensor:
    """Return `function(shape, *args, **kwargs)` divided among the devices of a mesh, each of which gets its part only.

    That is so for `tc.zeros`, `tc.ones`, `tc.full` and `tc.empty`, and for functions that draw uniform or normal
    numbers or integers of this shape from a Generator and compute with them, as initialisers do: the numbers are those
    that one device draws, up to rounding. What other functions return is whole on each device for a moment.

    >>> import tape_core as tc
    >>> from tape_jax.distributed import create, mesh
    >>> m = mesh({"data": -1})
    >>> create(tc.full, (8, 2), ("data",), 0.5, mesh=m).shape
    (8, 2)
    >>> x = create(tc.default_rng(0).normal, (8, 2), ("data",), mesh=m)
    >>> float(tc.max(tc.abs(x - tc.default_rng(0).normal((8, 2), backend="jax")))) < 1e-5
    True

    Args:
        function: of a shape and the other arguments, that returns a Tensor of that shape. Where there are several
            processes, all give the same function, and a Generator in the same state.
        shape: of the whole.
        layout: see :data:`tape_jax.distributed.Layout`.
        mesh: the devices.

    Raises:
        ValueError: an axis cannot be divided so, the result has another shape, or a Generator has other states in
            other processes.
    """
    check_mesh(mesh, Mesh, jax.sharding.Mesh, "create")
    whole = tuple(shape)
    to = sharding_dividing(layout, mesh, whole, label_of(function), "create")
    _draw_in_parts()
    with tc.use_backend(f"jax:{devices.name_of_mesh(mesh.device_mesh)}"):
        if current() is None and function in FILLED:
            one = np.asarray(function((), *args, **kwargs).array)
            parts = jax.make_array_from_callback(whole, to, lambda index: np.broadcast_to(one, to.shard_shape(whole)))
            return tc.asarray(parts)
        made = make(function, args, kwargs, Parts(whole, to, mesh))
    return distribute(made, to, mesh=mesh)


def parts_like(array: jax.Array, shape: tuple[int, ...]) -> Parts | None:
    """Return how an array that broadcasts to a divided one is made in parts; None where it is made whole."""
    place = array.sharding
    # Numbers of accelerators are made there. Processes compare their generators, all of them.
    if not isinstance(place, NamedSharding) or place.mesh.size != jax.device_count():
        return None
    mesh = Mesh(cast("jax.sharding.Mesh", place.mesh))
    if mesh.device_mesh.devices.flat[0].platform != "cpu":
        return None
    missing = array.ndim - len(shape)
    entries = [*place.spec, *[None] * (array.ndim - len(place.spec))][missing:]
    kept = [entry if n == m else None for entry, n, m in zip(entries, shape, array.shape[missing:], strict=True)]
    _draw_in_parts()
    return Parts(tuple(shape), of_spec(mesh, *kept), mesh)


def _draw_in_parts() -> None:
    """See to it that the backend draws what is made in parts by parts."""
    backend = jax_backend()
    if not isinstance(backend.random, _DividedRandom):
        backend.random = _DividedRandom(backend, on_host())


class _DividedRandom(PartwiseRandom, JaxRandom):
    """The numbers of :class:`JaxRandom`; of an array that is made divided, in parts, by NumPy on the host."""
