"""Groups of elementwise calls in compiled functions, evaluated block by block, so that temporaries stay in the cache.

Smaller arrays may be broadcast in them, and sums and maxima along the last axis, with what is computed with these, are
part of a group. The results have the bits of the calls one by one: `tiles.py` says why for sums. Which thread takes
which block changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from itertools import count, pairwise
from typing import TYPE_CHECKING

import numpy as np
from tape_compile.extend import Instruction, Program, Raw, Ref, Role, Source, Specs
from tape_core.support import forget_in_children, generated

from tape_numpy.compiler_support.block_code import BlockCode
from tape_numpy.compiler_support.calls import gives_new, step_of
from tape_numpy.compiler_support.tiles import Tiling, bounds, total
from tape_numpy.kernels import KERNELS, has_line_sums, line_sums_are_reproducible

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from tape_compile.extend import Group

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_DTYPES = frozenset({*_FLOATS, np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.int32)})
_NUMBERS = (float, int)
_BROADCAST, _SUM, _MAX, _MIN = (KERNELS[name] for name in ("broadcast_to", "sum", "max", "min"))

_files = count()


# -- which calls join a group


def role(instruction: Instruction, specs: Specs, group: Group | None) -> Role | None:
    """The part that a call would have in a group, or in a new one; None for a call that is not known here."""
    spec = specs[instruction.out]
    if spec.kind is not np.ndarray and spec.shape != ():
        return None
    if instruction.fn is _SUM or instruction.fn is _MAX or instruction.fn is _MIN:
        return _reduction(instruction, specs, group)
    if group is not None and spec.shape != group.shape and not group.lines.isdisjoint(instruction.inputs):
        return _short(instruction, specs, group)
    if spec.dtype not in _DTYPES or (group is not None and spec.shape != group.shape):
        return None
    arrays = [specs[k] for k in instruction.inputs]
    if any([a.dtype not in _DTYPES and a.kind not in _NUMBERS for a in arrays]):
        return None
    small = [k for k in instruction.inputs if specs[k].shape not in ((), spec.shape)]
    if group is not None and any([not group.sees(k, specs[k].shape) for k in small]):
        return None
    if instruction.fn is _BROADCAST:
        if instruction.kwargs or len(arrays) != 1 or arrays[0].shape == spec.shape:
            return None
        return "spread" if small else "number"
    if step_of(instruction) is None:
        return None
    if not small:
        return "each" if group is None or not _only_spread(instruction.inputs, group) else None
    whole = [k for k in instruction.inputs if specs[k].shape == spec.shape]
    return "mixed" if whole and (group is None or not _only_spread(whole, group)) else None


def _only_spread(numbers: Sequence[int], group: Group) -> bool:
    """Return whether all arrays are broadcast ones, so that the result lies in memory as those do, not row by row."""
    return bool(numbers) and all([group.roles.get(k) == "spread" for k in numbers])


def _reduction(instruction: Instruction, specs: Specs, group: Group | None) -> Role | None:
    if len(instruction.args) != 1 or type(instruction.args[0]) is not Ref:
        return None
    x, kwargs = instruction.args[0].id, instruction.kwargs
    shape = specs[x].shape
    if specs[x].dtype not in _FLOATS or kwargs.keys() - {"axis", "keepdims"}:
        return None
    if group is not None and (shape != group.shape or x in group.lines or x in group.spread):
        return None
    # All elements: the order of NumPy's summation must be known, to add up blocks. A maximum of all is none of the
    # roles.
    axis, keepdims = kwargs.get("axis"), kwargs.get("keepdims", False)
    if axis is None:
        made = group is not None and x in group.made
        return "sum" if made and instruction.fn is _SUM and not keepdims and _sums_are_pairwise() else None
    n = len(shape)
    if axis not in (-1, n - 1, (-1,), (n - 1,)) or n < 2 or shape[-1] == 1 or specs[x].kind is not np.ndarray:
        return None
    # The kernel sums short lines by BLAS (`kernels.line_sums`), whose bits may depend on where a block begins.
    return "line" if instruction.fn is not _SUM or not has_line_sums(shape) or line_sums_are_reproducible() else None


def _short(instruction: Instruction, specs: Specs, group: Group) -> Role | None:
    """The role of a call on results that have one element for each line, with or without a last axis of length 1."""
    spec = specs[instruction.out]
    if spec.shape not in (group.shape[:-1], (*group.shape[:-1], 1)) or spec.dtype not in _DTYPES:
        return None
    tail = (1,) * (len(group.shape) - len(spec.shape))
    if instruction.name in ("reshape", "getitem") and len(set(instruction.inputs)) == 1:
        (k,) = set(instruction.inputs)
        return "view" if k in group.lines and specs[k].size == spec.size and specs[k].dtype == spec.dtype else None
    for k in instruction.inputs:
        own = specs[k]
        if k in group.lines:
            if own.shape != spec.shape:
                return None
        elif k in group.made or own.dtype not in _DTYPES or (own.shape and not group.sees(k, own.shape + tail)):
            return None
    return "short" if step_of(instruction) is not None else None


# -- a group as a function


class Blocks:
    """A function that does what a group of calls does, block by block: a `tape_compile.library.FusedFunction`.

    Args:
        group: the calls.
        dead, spare: the numbers of inputs that may be overwritten; those that are dead only as `out=` says.

    Attributes:
        own: the numbers of results that have memory of their own.
        targets: by the number of a result the input over which it may be written.
    """

    def __init__(self, group: Group, dead: Sequence[int] = (), spare: Sequence[int] = ()) -> None:
        self.__name__ = "fused"
        self.group = group
        specs = group.specs
        self.inputs = [specs[k] for k in group.inputs]
        self.tiling = Tiling(group.shape, list(group.seen.values()), in_lines=bool(group.lines))
        code = BlockCode(group, self.tiling, dead, spare)
        self.targets = code.over
        self.own = [i.out for i in group.instructions if i.out in group.outputs and gives_new(i, specs)]
        self.buffers = code.buffers
        given = [s.dtype for s in self.inputs if s.shape == group.shape]
        made = [specs[k].dtype for k in group.outputs if specs[k].shape == group.shape]
        self.tiling.cut(sum([dtype.itemsize for dtype in given + made + self.buffers]))
        self.reduced = [k in group.reduced for k in group.inputs]
        self.seen = [
            None if s.shape in ((), group.shape) else self.tiling.joined_shape(group.seen[k])
            for k, s in zip(group.inputs, self.inputs, strict=True)
        ]
        self.outs = [(specs[k], k in group.sums) for k in group.outputs]
        self.repeated = [group.inputs.index(k) for k in code.repeated]
        self.text = code.text()
        self.on_block = generated(self.text, "block", f"<tape_numpy: fused, {next(_files)}>", code.names)

    def over(self, dead: Sequence[int], spare: Sequence[int]) -> Blocks:
        """The function with results in the memory of inputs."""
        return Blocks(self.group, dead, spare)

    def __call__(self, *arrays: Raw, out: Sequence[Raw | None] | None = None) -> tuple[Raw, ...]:
        tiling = self.tiling
        lengths = tiling.lengths
        given = []
        for array, spec, seen, reduced in zip(arrays, self.inputs, self.seen, self.reduced, strict=True):
            if spec.shape == ():
                given.append(array)
            elif seen is not None:
                given.append(array.reshape(seen))
            elif array.flags.c_contiguous:
                given.append(array.reshape(lengths))
            elif not reduced and not any(array.strides):
                given.append(array[(0,) * array.ndim])  # one number everywhere: no block of it is read
            else:
                return self._one_by_one(list(arrays))  # sums go along memory, so blocks of it would have other bits
        given += [tiling.repeat_line(given[n]) for n in self.repeated]
        cuts, shape = tiling.cuts, self.group.shape
        whole = [
            np.empty(len(cuts) if is_sum else spec.shape, spec.dtype) if target is None else target
            for (spec, is_sum), target in zip(self.outs, out or [None] * len(self.outs), strict=True)
        ]
        results = [
            array if is_sum else array.reshape(lengths if spec.shape == shape else (*lengths[:-1], 1))
            for array, (spec, is_sum) in zip(whole, self.outs, strict=True)
        ]
        # NumPy lets go of the GIL inside a ufunc, so threads do run at once. Each gets two blocks at least, and the
        # calling thread takes the first share, hence the pool has one thread less.
        shares = min(_threads(), max(1, len(cuts) // 2))
        if shares == 1:
            self._run(given, results, 0, len(cuts))
        else:
            edges = [len(cuts) * k // shares for k in range(shares + 1)]
            jobs = [
                _pool(_threads()).submit(self._run_quietly, given, results, first, last)
                for first, last in pairwise(edges[1:])
            ]
            self._run(given, results, 0, edges[1])
            for job in jobs:
                job.result()
        return tuple(
            [
                total(tiling.tree, array) if is_sum else array
                for array, (_, is_sum) in zip(whole, self.outs, strict=True)
            ]
        )

    @cached_property
    def _one_by_one(self) -> Callable[[list[Raw]], tuple[Raw, ...]]:
        """The calls one by one, as a function that empties the list of its arguments."""
        group = self.group
        return Source(Program(group.instructions, group.inputs, {}, group.outputs, group.specs), "one_by_one").run

    def _run(self, given: list[Raw], results: list[Raw], first: int, last: int) -> None:
        """Compute some of the blocks, on one thread."""
        cuts, on_block = self.tiling.cuts, self.on_block
        buffers = [np.empty(self.tiling.longest, dtype) for dtype in self.buffers]
        for k in range(first, last):
            places, i, j = cuts[k]
            on_block(places, i, j, k, given, results, buffers)

    def _run_quietly(self, given: list[Raw], results: list[Raw], first: int, last: int) -> None:
        """Compute some of the blocks on another thread, which does not inherit NumPy's error state."""
        with np.errstate(all="ignore"):
            self._run(given, results, first, last)


@cache
def _sums_are_pairwise() -> bool:
    """Return whether this NumPy sums in the order that `tiles.py` relies on, which no documentation promises."""
    # Of no round length, so that the halves differ; and without its last element in 100 rows, summed as a whole.
    x = np.random.default_rng(0).normal(size=70001)
    for dtype in _FLOATS:
        values = (x * 3).astype(dtype)
        cuts, tree = bounds(len(values), 5000)
        if total(tree, np.array([np.add.reduce(values[i:j]) for i, j in cuts])) != np.add.reduce(values):
            return False
        if np.add.reduce(values[:-1].reshape(100, -1), axis=None) != np.add.reduce(values[:-1]):
            return False
    return True


# -- threads


@cache
def _threads() -> int:
    """The number of threads: `TAPE_NUM_THREADS`, by default the cores that are available."""
    given = os.environ.get("TAPE_NUM_THREADS", "").strip()
    if given:
        if not given.isdigit() or int(given) < 1:
            raise ValueError(f"TAPE_NUM_THREADS must be a positive number, got {given!r}")
        return int(given)
    # What taskset or a container's cpuset leaves to this process; os.cpu_count() is all that the machine has.
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # it takes a while, and one thread needs none

    return ThreadPoolExecutor(threads - 1, thread_name_prefix="tape")


# A forked child has the pool, but not its threads: work given to it would never be done.
forget_in_children(_pool.cache_clear)
