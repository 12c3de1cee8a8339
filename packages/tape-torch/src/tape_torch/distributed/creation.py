"""Arrays that are made divided: each process makes its own part, and none has the whole at any time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import tape_core as tc
import torch
import torch.distributed as dist
from tape_core import Tensor
from tape_core.backends import backend_of_type
from tape_core.backends.random_kernels import HALF_WORD_MAX_SPAN, WORDS_PER_BLOCK, Key, Shape, signed
from tape_core.staging import current
from tape_core.support import setting
from tape_core.typing import Raw
from torch.distributed.tensor import DTensor, Placement, Shard

from tape_torch.backend import TorchBackend
from tape_torch.distributed.layouts import Layout, placements
from tape_torch.distributed.meshes import Mesh
from tape_torch.distributed.moving import check_divides, distributed_joined, distributed_part_of
from tape_torch.divided_kernels import copy_on
from tape_torch.random import TorchRandom
from tape_torch.thresholds import DRAWN_AT_ONCE

Between = Callable[[int, int], torch.Tensor]
"""Returns the numbers of a draw from one place to another, in the order of the whole array."""


class Part(NamedTuple):
    """The part of an array that this process makes.

    Attributes:
        shape: of the whole array.
        offsets, sizes: where the part begins, and its shape.
    """

    mesh: Mesh
    shape: tuple[int, ...]
    to: tuple[Placement, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def drawn(self, between: Between, dtype: torch.dtype, device: torch.device) -> DTensor:
        """Return the array whose numbers `between` draws."""
        found = torch.empty(self.sizes, dtype=dtype, device=device)
        _fill(found, self.shape, self.offsets, 0, between)
        return DTensor.from_local(found, self.mesh.device_mesh, self.to, run_check=False)


_making: ContextVar[Part | None] = ContextVar("making", default=None)


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
        ValueError: an axis cannot be divided so, the result has another shape, or a Generator has other states in
            other processes.
    """
    whole = tuple(shape)
    label = f"what {getattr(function, '__qualname__', 'the function')} makes"
    to = placements(layout, mesh, whole, label)
    check_divides(whole, to, mesh, label, "create")
    part = _part(whole, to, mesh)
    backend = backend_of_type(torch.Tensor)
    assert isinstance(backend, TorchBackend)  # this package's own
    backend.expect_divided()
    if not isinstance(backend.random, _DividedRandom):
        backend.random = _DividedRandom(backend)
    kind = mesh.device_mesh.device_type
    with tc.use_backend(f"torch:{kind if kind == 'cpu' else backend.default_device}"):
        if function in (tc.zeros, tc.ones, tc.full, tc.empty):
            return distributed_joined(function(part.sizes, *args, **kwargs), mesh.device_mesh, to)
        with setting(_making, part if current() is None else None):  # in each run of a compiled function: as a whole
            made = tc.asarray(function(whole, *args, **kwargs))
    if made.shape != whole:
        raise ValueError(f"create: {label} has the shape {made.shape}, and {whole} was asked for")
    array = made._array
    if isinstance(array, DTensor):
        return made if tuple(array.placements) == to else tc.asarray(array.redistribute(placements=to))
    if current() is None:
        copy_on(mesh.device_mesh, array, f"create: {label}")
    return distributed_part_of(made, mesh.device_mesh, to)


def _part(shape: tuple[int, ...], to: tuple[Placement, ...], mesh: Mesh) -> Part:
    """Return the part of this process; of several axes along one dimension the first one divides it first."""
    sizes, offsets = list(shape), [0] * len(shape)
    for place, (name, count) in zip(to, mesh.axes.items(), strict=True):
        if isinstance(place, Shard):
            sizes[place.dim] //= count
            offsets[place.dim] += mesh.coordinates[name] * sizes[place.dim]
    return Part(mesh, shape, to, tuple(offsets), tuple(sizes))


def _fill(found: torch.Tensor, shape: tuple[int, ...], offsets: Sequence[int], start: int, between: Between) -> None:
    """Fill a part of an array, drawing so many numbers at once that there is little memory in use.

    Args:
        shape: of the whole; its first number is the one at `start`.
    """
    if not shape:
        found.copy_(between(start, start + 1).reshape(()))
        return
    row = math.prod(shape[1:])
    start += offsets[0] * row
    if row > DRAWN_AT_ONCE:
        for k in range(len(found)):
            _fill(found[k], shape[1:], offsets[1:], start + k * row, between)
        return
    step = DRAWN_AT_ONCE // max(row, 1)
    for k in range(0, len(found), step):
        rows = found[k : k + step]
        drawn = between(start + k * row, start + (k + len(rows)) * row).reshape(len(rows), *shape[1:])
        for dim in range(1, rows.ndim):
            drawn = drawn.narrow(dim, offsets[dim], rows.shape[dim])
        rows.copy_(drawn)


class _DividedRandom(TorchRandom):
    """The numbers of :class:`TorchRandom`; of an array that is made divided, those of this process's part."""

    def uniform(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return numbers in [0, 1)."""
        part = self._part(key, counter, shape)
        if part is None:
            return super().uniform(key, counter, shape, dtype, device)
        return part.drawn(lambda a, b: self._between(key, counter, a, b, dtype, device), *self._kind(dtype, device))

    def normal(self, key: Key, counter: int, shape: Shape, dtype: str, device: str | None = None) -> Raw:
        """Return normally distributed numbers: the first half of all are cosines, the others the sines."""
        part = self._part(key, counter, shape)
        if part is None:
            return super().normal(key, counter, shape, dtype, device)
        pairs = -(-math.prod(shape) // 2)

        def between(a: int, b: int) -> torch.Tensor:
            middle = min(max(a, pairs), b)
            found = []
            for first, last, sine in ((a, middle, False), (middle, b, True)):
                if first < last:
                    at = first - pairs if sine else first
                    radius = self._between(key, counter, at, at + last - first, dtype, device)
                    angle = self._between(key, counter, at + pairs, at + pairs + last - first, dtype, device)
                    found.append(_normal(radius, angle, sine))
            return found[0] if len(found) == 1 else torch.cat(found)

        return part.drawn(between, *self._kind(dtype, device))

    def integers(self, key: Key, counter: int, shape: Shape, low: int, high: int, device: str | None = None) -> Raw:
        """Return integers in [low, high)."""
        part = self._part(key, counter, shape)
        if part is None:
            return super().integers(key, counter, shape, low, high, device)
        each = WORDS_PER_BLOCK * (2 if high - low <= HALF_WORD_MAX_SPAN else 1)

        def between(a: int, b: int) -> torch.Tensor:
            block = a // each
            count = b - block * each
            found: torch.Tensor = super(_DividedRandom, self).integers(
                key, counter + block, (count,), low, high, device
            )
            return found[a - block * each :]

        return part.drawn(between, *self._kind("int64", device))

    def _between(self, key: Key, counter: int, a: int, b: int, dtype: str, device: str | None) -> torch.Tensor:
        each = WORDS_PER_BLOCK * (2 if dtype == "float32" else 1)
        block = a // each
        found: torch.Tensor = self._fractions(key, counter + block, b - block * each, dtype, device)
        return found[a - block * each :]

    def _kind(self, dtype: str, device: str | None) -> tuple[torch.dtype, torch.device]:
        return self.backend.raw_dtype(dtype), self.backend.raw_device(device)

    def _part(self, key: Key, counter: int, shape: Shape) -> Part | None:
        """Return the part to draw, after comparing the states of the processes; None: draw the whole."""
        part = _making.get()
        if part is None or part.shape != tuple(shape):
            return None
        state = torch.tensor([signed(number) for number in (*key, counter)], device=part.mesh.device_mesh.device_type)
        most, least = state.clone(), state.clone()
        dist.all_reduce(most, dist.ReduceOp.MAX)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        if not torch.equal(most, least):
            raise ValueError(
                f"create: the random generator of rank {dist.get_rank()} has another state than those of other "
                f"processes, and each would draw its part from its own: begin by tape_core.set_seed(number), or "
                f"default_rng(number), with the same number in each"
            )
        return part


def _normal(radius: torch.Tensor, angle: torch.Tensor, sine: bool) -> torch.Tensor:
    """Return what `TorchRandom.normal` makes of the same numbers."""
    radius = (1.0 - radius).log_().mul_(-2.0).sqrt_()
    t = (angle - 0.5).mul_(math.pi).tan_()
    square = t * t
    radius = radius.div_(square + 1.0)
    return t.mul_(radius).mul_(2.0) if sine else radius.mul_(square.neg_().add_(1.0))
