"""Arrays that are made divided: each device has its part, and none has the whole at any time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import numpy as np
import tape_core as tc
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from tape_core import Tensor
from tape_core.backends.random_kernels import HALF_WORD_MAX_SPAN, WORDS_PER_BLOCK, Key, Shape
from tape_core.staging import current
from tape_core.support import setting

from tape_jax import devices
from tape_jax.distributed.layouts import Layout, check_divides, sharding
from tape_jax.distributed.meshes import Mesh, check_mesh
from tape_jax.distributed.moving import distribute
from tape_jax.random import JaxRandom, on_host
from tape_jax.tasks import jax_backend
from tape_jax.thresholds import DRAWN_AT_ONCE

Between = Callable[[int, int], Any]
"""Returns the numbers of a draw from one place to another, in the order of the whole array, as NumPy's array."""


class Making(NamedTuple):
    """The array that is being made: its shape, and how it is divided."""

    shape: tuple[int, ...]
    to: NamedSharding
    mesh: Mesh

    def drawn(self, between: Between, dtype: str) -> jax.Array:
        """Return the array whose numbers `between` draws, in parts."""
        made: dict[tuple[tuple[int, int], ...], Any] = {}  # several devices may have one part

        def part(index: Any) -> Any:
            ranges = tuple([piece.indices(n)[:2] for piece, n in zip(index, self.shape, strict=True)])
            if ranges not in made:
                found = made[ranges] = np.empty([end - begin for begin, end in ranges], dtype)
                _fill(found, self.shape, [begin for begin, _ in ranges], 0, between)
            return made[ranges]

        return jax.make_array_from_callback(self.shape, self.to, part)


_making: ContextVar[Making | None] = ContextVar("making", default=None)


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
    check_mesh(mesh, "create")
    whole = tuple(shape)
    label = f"what {getattr(function, '__qualname__', 'the function')} makes"
    to = sharding(layout, mesh, whole, label)
    check_divides(whole, to, mesh, label, "create")
    backend = jax_backend()
    if not isinstance(backend.random, _DividedRandom):
        backend.random = _DividedRandom(backend)
    with tc.use_backend(f"jax:{devices.name_of_mesh(mesh.device_mesh)}"):
        if current() is None and function in (tc.zeros, tc.ones, tc.full, tc.empty):
            one = np.asarray(function((), *args, **kwargs).array)
            parts = jax.make_array_from_callback(whole, to, lambda index: np.broadcast_to(one, to.shard_shape(whole)))
            return tc.asarray(parts)
        with setting(
            _making, Making(whole, to, mesh) if current() is None else None
        ):  # in a compiled function: as a whole
            made = tc.asarray(function(whole, *args, **kwargs))
    if made.shape != whole:
        raise ValueError(f"create: {label} has the shape {made.shape}, and {whole} was asked for")
    return distribute(made, to, mesh=mesh)


def _fill(found: Any, shape: tuple[int, ...], offsets: Sequence[int], start: int, between: Between) -> None:
    """Fill a part of an array, drawing so many numbers at once that there is little memory in use.

    Args:
        shape: of the whole; its first number is the one at `start`.
    """
    if not shape:
        found[...] = between(start, start + 1)[0]
        return
    row = math.prod(shape[1:])
    start += offsets[0] * row
    if row > DRAWN_AT_ONCE:
        for k in range(len(found)):
            _fill(found[k], shape[1:], offsets[1:], start + k * row, between)
        return
    step = DRAWN_AT_ONCE // max(row, 1)
    inner = tuple([slice(begin, begin + n) for begin, n in zip(offsets[1:], found.shape[1:], strict=True)])
    for k in range(0, len(found), step):
        rows = found[k : k + step]
        drawn = between(start + k * row, start + (k + len(rows)) * row).reshape(len(rows), *shape[1:])
        rows[...] = drawn[(slice(None), *inner)]


class _DividedRandom(JaxRandom):
    """The numbers of :class:`JaxRandom`; of an array that is made divided, in parts, by NumPy on the host."""

    def uniform(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Any:
        """Return numbers in [0, 1)."""
        if (making := _wanted(key, counter, shape)) is None:
            return super().uniform(key, counter, shape, dtype, device)
        return making.drawn(lambda a, b: _between(key, counter, a, b, dtype), dtype)

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Any:
        """Return normally distributed numbers: the first half of all are cosines, the others the sines."""
        if (making := _wanted(key, counter, shape)) is None:
            return super().normal(key, counter, shape, dtype, device)
        pairs = -(-math.prod(shape) // 2)

        def between(a: int, b: int) -> Any:
            middle = min(max(a, pairs), b)
            found = []
            for first, last, sine in ((a, middle, False), (middle, b, True)):
                if first < last:
                    at = first - pairs if sine else first
                    radius = _between(key, counter, at, at + last - first, dtype)
                    angle = _between(key, counter, at + pairs, at + pairs + last - first, dtype)
                    found.append(_normal(radius, angle, sine))
            return found[0] if len(found) == 1 else np.concatenate(found)

        return making.drawn(between, dtype)

    def integers(self, key: Key, counter: int, shape: Shape, low: int, high: int, device: str | None = None) -> Any:
        """Return integers in [low, high)."""
        if (making := _wanted(key, counter, shape)) is None:
            return super().integers(key, counter, shape, low, high, device)
        each = WORDS_PER_BLOCK * (2 if high - low <= HALF_WORD_MAX_SPAN else 1)

        def between(a: int, b: int) -> Any:
            block = a // each
            return on_host().integers(key, counter + block, (b - block * each,), low, high)[a - block * each :]

        return making.drawn(between, "int64")


def _wanted(key: Key, counter: int, shape: Shape) -> Making | None:
    """Return the array that is being made, if a draw is for it; None: draw the whole.

    Raises:
        ValueError: the generators of several processes differ.
    """
    making = _making.get()
    if making is None or making.shape != tuple(shape):
        return None
    if not making.mesh.is_here:
        states = np.asarray(multihost_utils.process_allgather(np.asarray([*key, counter], np.uint64)))
        differ = [rank for rank, state in enumerate(states) if not np.array_equal(state, states[0])]
        if differ:
            raise ValueError(
                f"create: the random generator of rank {differ[0]} has another state than that of rank 0, and each "
                f"would draw its part from its own: begin by tape_core.set_seed(number), or default_rng(number), with "
                f"the same number in each"
            )
    return making


def _between(key: Key, counter: int, a: int, b: int, dtype: str) -> Any:
    each = WORDS_PER_BLOCK * (2 if dtype == "float32" else 1)
    block = a // each
    return on_host()._fractions(key, counter + block, b - block * each, dtype, None)[a - block * each :]


def _normal(radius: Any, angle: Any, sine: bool) -> Any:
    """Return what `RandomKernels.normal` makes of the same numbers."""
    radius = np.sqrt(-2.0 * np.log(1.0 - radius))
    t = np.tan((angle - 0.5) * math.pi)
    radius = radius / (1.0 + t * t)
    return radius * (2.0 * t) if sine else radius * (1.0 - t * t)
