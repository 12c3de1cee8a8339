"""Views of views: a chain of transpositions and axes of length 1, there and back again, is one view, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

from tape_compile.passes.registry import pass_
from tape_compile.program import Argument, Program, Ref
from tape_compile.rewrite import Rewriter, Rules

Shape = tuple[int, ...]
Axes = tuple[int | None, ...]
"""For each axis of a view that of the array which it is a view of; None for a new one, of length 1."""

RULES = Rules()


@pass_(stage="exact", after=["simplify"])
def simplify_views(program: Program) -> Program:
    """Make views of views views of the array itself, where that is one call.

    Only axes are exchanged, or those of length 1 come and go: the elements lie as they did.
    """
    if not any([spec.shape for spec in program.distinct_specs]):
        return program  # of numbers alone
    return _Views(program).run(RULES)


class _Views(Rewriter):
    """A rewriter that knows, by the number of a view, which array it is a view of, and how."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.known: dict[int, tuple[int, Axes]] = {}


@RULES.rewrite("matrix_transpose", "mT", "T", "permute_dims", "reshape", "getitem")
def view_of_view(r: _Views, x: Argument, *how: Argument) -> bool:
    axes_of, arity = _AXES[r.instruction.name]
    if type(x) is not Ref or len(how) != arity:
        return False
    given, out = r.spec(x), r.out
    if given.size != out.size:  # most slices
        return False
    if given.kind is not out.kind or given.dtype != out.dtype or -1 in given.shape or -1 in out.shape:
        return False
    step = axes_of(given.shape, out.shape, *how)
    if step is None or tuple([1 if axis is None else given.shape[axis] for axis in step]) != out.shape:
        return False
    root, before = r.known.get(x.id, (x.id, tuple(range(len(given.shape)))))
    axes = tuple([None if axis is None else before[axis] for axis in step])
    # Noted even if this call stays: a view of it may be one view of the root.
    r.known[r.instruction.out] = root, axes
    if axes == tuple(range(len(r.specs[root].shape))) and r.replace_by(Ref(root)):
        return True
    return root != x.id and _as_one_call(r, root, axes)


def _as_one_call(r: Rewriter, root: int, axes: Axes) -> bool:
    """Replace the call by one that gives such a view of an array; False where that takes two."""
    if r.backend is None:
        return False
    n, xp = len(r.specs[root].shape), r.backend.xp
    real = [axis for axis in axes if axis is not None]
    # No axis has passed another: what came or went has length 1, which is a reshape.
    if real == sorted(real):
        return r.become("reshape", xp.reshape, Ref(root), r.out.shape)
    if len(axes) != n or len(real) != n:
        return False
    if real == [*range(n - 2), n - 1, n - 2]:
        return r.become("matrix_transpose", xp.matrix_transpose, Ref(root))
    return r.become("permute_dims", xp.permute_dims, Ref(root), axes)


# -- where the axes of a view come from; None for what is no such view


def _transposed(shape: Shape, to: Shape) -> Axes:
    n = len(shape)
    return (*range(n - 2), n - 1, n - 2)


def _reversed(shape: Shape, to: Shape) -> Axes | None:
    return (1, 0) if len(shape) == 2 else None


def _permuted(shape: Shape, to: Shape, order: Argument) -> Axes | None:
    if not isinstance(order, tuple):
        return None
    return tuple([axis % len(shape) for axis in order if type(axis) is int])


def _reshaped(shape: Shape, to: Shape, given: Argument) -> Axes | None:
    """Return the axes of a reshape in which only some of length 1 come or go; the shape that is given may have a -1."""
    long = [axis for axis, length in enumerate(shape) if length != 1]
    if [shape[axis] for axis in long] != [length for length in to if length != 1]:
        return None
    if len(shape) == len(to):
        return tuple(range(len(shape))) if shape == to else None
    rest = iter(long)
    return tuple([None if length == 1 else next(rest) for length in to])


def _indexed(shape: Shape, to: Shape, key: Argument) -> Axes | None:
    """Return the axes of `x[key]` if the key takes all elements."""
    parts: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    if any([part is not None and type(part) not in (int, slice, EllipsisType) for part in parts]):
        return None
    taken = sum([part is not None and part is not ... for part in parts])
    axes: list[int | None] = []
    axis = 0
    for part in parts:
        if part is None:
            axes.append(None)
        elif part is ...:
            more = len(shape) - taken
            axes += range(axis, axis + more)
            axis += more
        elif type(part) is slice and _takes_all(part, shape[axis]):
            axes.append(axis)
            axis += 1
        elif type(part) is int and shape[axis] == 1:
            axis += 1
        else:
            return None
    return (*axes, *range(axis, len(shape)))


def _takes_all(part: slice, length: int) -> bool:
    plain = all([v is None or type(v) is int for v in (part.start, part.stop, part.step)])
    return plain and part.indices(length) == (0, length, 1)


_AXES: dict[str, tuple[Callable[..., Axes | None], int]] = {
    "matrix_transpose": (_transposed, 0),
    "mT": (_transposed, 0),
    "T": (_reversed, 0),
    "permute_dims": (_permuted, 1),
    "reshape": (_reshaped, 1),
    "getitem": (_indexed, 1),
}
"""For each name of a view the function that gives its axes, and how many arguments it takes besides two shapes."""
