"""Runs of elementwise calls in compiled functions: evaluated block by block, so that temporaries stay in the cache.

The blocks of an array are those of NumPy's pairwise summation, so that a sum of all elements, of the blocks' sums in
the order of that, has the same bits as `np.add.reduce` of the whole. Which thread takes which block changes nothing.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import count, pairwise
from typing import Any

import numpy as np
from tape_core.compiled.program import Ref
from tape_core.generated import generated

from tape_numpy.expansion import DOT, expansion
from tape_numpy.kernels import KERNELS, diagonal_matmul

__all__ = ["expansion", "fused", "gives_new", "gives_rows", "into", "is_sum", "takes"]

_UFUNCS: dict[Any, Any] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.divide,
    operator.neg: np.negative, operator.abs: np.abs, operator.lt: np.less, operator.le: np.less_equal,
    operator.gt: np.greater, operator.ge: np.greater_equal, operator.eq: np.equal, operator.ne: np.not_equal,
    operator.and_: np.bitwise_and, operator.or_: np.bitwise_or, operator.xor: np.bitwise_xor,
    operator.invert: np.invert,
}  # fmt: skip
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_DTYPES = frozenset({*_FLOATS, np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.int32)})
_RELU, _ASTYPE, _BROADCAST, _SUM = (KERNELS[name] for name in ("relu", "astype", "broadcast_to", "sum"))
_LONGEST = 1 << 16  # elements of a block
_PAIRWISE = 128  # NumPy sums no more than that in one go

_files = count()


# -- what it knows


def takes(instruction: Any, specs: Any) -> bool:
    """Whether an instruction is elementwise, of dtypes and a spelling that are known here."""
    spec = specs[instruction.out]
    if spec.kind is not np.ndarray or spec.dtype not in _DTYPES:
        return False
    arrays = [specs[k] for k in instruction.inputs]
    if any([a.dtype not in _DTYPES for a in arrays]):
        return False
    if instruction.fn is _BROADCAST:
        return len(arrays) == 1 and arrays[0].shape == () and not instruction.kwargs
    fits = all([a.shape == () or a.shape == spec.shape for a in arrays])
    return fits and _step(instruction) is not None


def is_sum(instruction: Any) -> bool:
    """Whether it is the sum of all elements."""
    kwargs = instruction.kwargs
    return instruction.fn is _SUM and len(instruction.args) == 1 and (not kwargs or kwargs == {"axis": None})


def gives_new(instruction: Any, specs: Any) -> bool:
    """Whether the result is an array with memory of its own, and none of the arguments is kept."""
    if type(instruction.out) is not int or specs[instruction.out].kind is not np.ndarray or instruction.effect:
        return False
    if instruction.fn in (operator.matmul, diagonal_matmul, _SUM, DOT):
        return True
    step = _step(instruction)
    return step is not None and step[0] == "ufunc"


def gives_rows(instruction: Any, specs: Any) -> bool:
    """Whether the result lies row by row, however the arguments do: a stack of matrices need not."""
    return instruction.fn in (operator.matmul, diagonal_matmul) and len(specs[instruction.out].shape) <= 2


def into(instruction: Any) -> tuple[Any, list[Any]] | None:
    """A function that takes `out=`, and its arguments, to do what an elementwise instruction does."""
    step = _step(instruction)
    return None if step is None or step[0] != "ufunc" else (step[1], step[2])


def _step(instruction: Any) -> tuple[str, Any, list[Any]] | None:
    """The call of NumPy that does what an instruction does, into an array it is given; None where none does."""
    fn, args = instruction.fn, list(instruction.args)
    if any([type(arg) in (tuple, list, slice) for arg in args]):
        return None
    if fn is _ASTYPE:
        return ("copy", None, args[:1]) if len(args) == 2 and _only_copies(instruction.kwargs) else None
    if instruction.kwargs:
        return None
    if fn is _RELU:
        return "ufunc", np.maximum, [args[0], 0]
    if fn is operator.pow and type(args[1]) in (int, float) and args[1] == 2:
        return "ufunc", np.square, args[:1]  # as arrays do
    try:
        fn = _UFUNCS.get(fn, fn)
    except TypeError:
        return None
    if isinstance(fn, np.ufunc) and fn.nout == 1 and fn.nin == len(args) and fn.signature is None:
        return "ufunc", fn, args
    return None


def _only_copies(kwargs: Any) -> bool:
    return not kwargs or set(kwargs) == {"copy"}


# -- a group as a function


def fused(group: Any) -> Callable[..., Any] | None:
    """A function of the group's inputs that gives its outputs; None where it would be no faster."""
    specs, size = group.specs, math.prod(group.shape)
    if group.sums and not _sums_are_pairwise():
        return None
    return _Blocks(group, [specs[k] for k in group.inputs], size)


class _Blocks:
    """The instructions of a group on one block, as source; and the blocks."""

    def __init__(self, group: Any, inputs: list[Any], size: int) -> None:
        self.__name__ = "fused"
        self.shape = group.shape
        self.size = size
        self.inputs = inputs
        self.instructions = group.instructions
        self.numbers = group.inputs
        self.out_numbers = group.outputs
        specs = group.specs
        self.outs = [(specs[k].dtype, k in group.sums) for k in group.outputs]
        self.buffers: list[Any] = []  # the dtypes of temporaries
        self.names: dict[str, Any] = {"__name__": __name__, "add_reduce": np.add.reduce, "copyto": np.copyto}
        self.text = self._source(group)
        file = f"<tape_numpy: fused, {next(_files)}>"
        self.on_block = generated(self.text, "block", file, self.names)
        dtypes = [s.dtype for s in inputs if s.shape] + [dtype for dtype, _ in self.outs] + self.buffers
        self.bounds = _bounds(size, _block_length(sum([dtype.itemsize for dtype in dtypes])))

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        flat = []
        for array, spec in zip(arrays, self.inputs, strict=True):
            if spec.shape == ():
                flat.append(array)
            elif array.flags.c_contiguous:
                flat.append(array.reshape(-1))
            elif array.size and not any(array.strides):
                flat.append(array[(0,) * array.ndim])  # one number everywhere
            else:
                return self._one_by_one(arrays)  # its sums go along memory
        cuts, tree = self.bounds
        whole = [np.empty(len(cuts) if is_sum else self.shape, dtype) for dtype, is_sum in self.outs]
        results = [array.reshape(-1) for array in whole]
        shares = min(_threads(), max(1, len(cuts) // 4))
        if shares == 1:
            self._run(flat, results, 0, len(cuts))
        else:
            edges = [len(cuts) * k // shares for k in range(shares + 1)]
            jobs = [
                _pool(_threads()).submit(self._run, flat, results, first, last) for first, last in pairwise(edges[1:])
            ]
            self._run(flat, results, 0, edges[1])
            for job in jobs:
                job.result()
        return tuple(
            [_total(tree, array) if is_sum else array for array, (_, is_sum) in zip(whole, self.outs, strict=True)]
        )

    def _one_by_one(self, arrays: Any) -> tuple[Any, ...]:
        """The instructions as they are."""
        values = dict(zip(self.numbers, arrays, strict=True))

        def value(arg: Any) -> Any:
            return values[arg.id] if type(arg) is Ref else arg

        for instruction in self.instructions:
            kwargs = {name: value(arg) for name, arg in instruction.kwargs.items()}
            values[instruction.out] = instruction.fn(*[value(arg) for arg in instruction.args], **kwargs)
        return tuple([values[k] for k in self.out_numbers])

    def _run(self, flat: list[Any], results: list[Any], first: int, last: int) -> None:
        """Some of the blocks, on one thread."""
        cuts = self.bounds[0]
        longest = max([j - i for i, j in cuts[first:last]])
        buffers = [np.empty(longest, dtype) for dtype in self.buffers]
        on_block = self.on_block
        with np.errstate(all="ignore"):
            for k in range(first, last):
                i, j = cuts[k]
                on_block(i, j, k, flat, results, buffers)

    def _source(self, group: Any) -> str:
        """`block(i, j, k, inputs, outputs, buffers)`: the elements from i to j, which are block k."""
        specs, sums = group.specs, group.sums
        lines = ["def block(i, j, k, inputs, outputs, buffers):"]
        place: dict[int, str] = {}
        for n, number in enumerate(group.inputs):
            place[number] = f"x{number}"
            # An array of one number everywhere comes as that number.
            cut = (
                f"inputs[{n}]"
                if specs[number].shape == ()
                else f"inputs[{n}][i:j] if inputs[{n}].shape else inputs[{n}]"
            )
            lines.append(f"    x{number} = {cut}")
        outs = {number: n for n, number in enumerate(group.outputs)}
        for number, n in outs.items():
            if number not in sums:
                lines.append(f"    o{number} = outputs[{n}][i:j]")
        last: dict[int, int] = {}
        for at, instruction in enumerate(group.instructions):
            for k in instruction.inputs:
                last[k] = at
        # The block of a result serves temporaries until the result is there.
        until = {f"o{i.out}": at for at, i in enumerate(group.instructions) if i.out in outs and i.out not in sums}
        free: dict[Any, list[str]] = {}
        for number in outs:
            if number not in sums:
                free.setdefault(specs[number].dtype, []).append(f"o{number}")
        body: list[str] = []

        def spelled(arg: Any) -> str:
            if type(arg) is Ref:
                return place[arg.id]
            if type(arg) in (bool, int) or (type(arg) is float and math.isfinite(arg)):
                return repr(arg)
            name = f"k{len(self.names)}"
            self.names[name] = arg
            return name

        for at, instruction in enumerate(group.instructions):
            number = instruction.out
            for k in {k for k in instruction.inputs if last[k] == at and k in group.made and k not in outs}:
                if place[k][0] in "bo":  # it may be written to in the same call
                    free.setdefault(specs[k].dtype, []).append(place[k])
            if number in sums:
                body.append(f"    outputs[{outs[number]}][k] = add_reduce({spelled(instruction.args[0])})")
            elif instruction.fn is _BROADCAST:
                place[number] = spelled(instruction.args[0])
                if number in outs:
                    body.append(f"    o{number}[...] = {place[number]}")
            else:
                step = _step(instruction)
                assert step is not None
                kind, function, args = step
                given = [spelled(arg) for arg in args]
                slots = free.setdefault(specs[number].dtype, [])
                if number in outs:
                    target = f"o{number}"
                else:
                    lasts = last.get(number, at)
                    target = next((s for s in reversed(slots) if until.get(s, lasts) >= lasts), "")
                    if not target:
                        target = f"b{len(self.buffers)}"
                        self.buffers.append(specs[number].dtype)
                if target in slots:
                    slots.remove(target)
                place[number] = target
                if kind == "copy":
                    body.append(f'    copyto({target}, {given[0]}, casting="unsafe")')
                else:
                    self.names[function.__name__] = function
                    body.append(f"    {function.__name__}({', '.join(given)}, out={target})")
        lines += [f"    b{n} = buffers[{n}][: j - i]" for n in range(len(self.buffers))]
        return "\n".join([*lines, *body]) + "\n"


# -- blocks


def _block_length(nbytes: int) -> int:
    """Elements of a block, for arrays of so many bytes an element together.

    Of three times the second-level cache, by measurement: what a call needs of it at a time are two or three of them.
    """
    return max(1 << 12, min(_LONGEST, 3 * _l2_size() // max(1, nbytes) // 1024 * 1024))


Tree = Any
"""The number of a block, or the two trees that it is the sum of."""


@lru_cache(maxsize=256)
def _bounds(size: int, longest: int) -> tuple[list[tuple[int, int]], Tree]:
    """The blocks of an array, and in which order NumPy adds up their sums."""
    cuts: list[tuple[int, int]] = []

    def tree(start: int, n: int) -> Tree:
        if n <= longest:
            cuts.append((start, start + n))
            return len(cuts) - 1
        half = n // 2
        half -= half % 8
        return tree(start, half), tree(start + half, n - half)

    whole = tree(0, size)
    return cuts, whole


def _total(tree: Tree, parts: Any) -> Any:
    return parts[tree] if type(tree) is int else _total(tree[0], parts) + _total(tree[1], parts)


@cache
def _sums_are_pairwise() -> bool:
    """Whether this NumPy sums as is said above."""
    x = np.random.default_rng(0).normal(size=70001)
    for dtype in _FLOATS:
        values = (x * 3).astype(dtype)
        cuts, tree = _bounds(len(values), 5000)
        if _total(tree, np.array([np.add.reduce(values[i:j]) for i, j in cuts])) != np.add.reduce(values):
            return False
        if np.add.reduce(values[:-1].reshape(100, -1), axis=None) != np.add.reduce(values[:-1]):
            return False
    return True


@cache
def _l2_size() -> int:
    """Bytes of the second-level cache of one core."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size", encoding="ascii") as file:
            text = file.read().strip()
        return int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        return 1 << 20


# -- threads


@cache
def _threads() -> int:
    """`TAPE_NUM_THREADS`, by default the cores that are available."""
    given = os.environ.get("TAPE_NUM_THREADS", "").strip()
    if given:
        if not given.isdigit() or int(given) < 1:
            raise ValueError(f"TAPE_NUM_THREADS must be a positive number, got {given!r}")
        return int(given)
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="tape")
