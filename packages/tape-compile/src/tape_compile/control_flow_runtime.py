"""The functions that run branches and loops, given the code of their parts. Exported files contain them, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# Nothing of Tape is imported here: exported files have these functions as they stand.
Arrays = list[Any]
Run = Callable[[Arrays], Sequence[Any]]
"""The code of a part: of a list of arrays, which it may empty."""


def cond(parts: Sequence[Run], sizes: Sequence[int], predicate: Any, *args: Any) -> Sequence[Any]:
    """Run one of two parts; `sizes` says how many of the last arguments each has captured."""
    n = len(args) - sum(sizes)
    given, captured = args[:n], args[n:]
    # A part empties the list that it is given, so that inputs end early: it gets a list of its own.
    if predicate:
        return parts[0]([*given, *captured[: sizes[0]]])
    return parts[1]([*given, *captured[sizes[0] :]])


def while_loop(
    parts: Sequence[Run],
    sizes: Sequence[int],
    depths: Sequence[int],
    keep: bool,
    assigned: Sequence[tuple[int, int | None]],
    stack: Callable[..., Any],
    zeros: Callable[..., Any],
    *args: Any,
) -> Sequence[Any]:
    """Run a step, the second part, while a test, the first one, holds.

    Args:
        parts, sizes: the test and the step, and how many of the last arguments each has captured.
        depths: for each result of a step the axis along which those of all steps are stacked.
        keep: whether the carries that the steps were given are results, too.
        assigned: of each Variable to which the step assigns its place among what the step has captured, and the test.
        stack, zeros: functions of the array library.
        *args: the carry, and what is captured.
    """
    test, step = parts
    n = len(args) - sum(sizes)
    # `like` has the shapes of the saved carries, also where no step runs.
    carry = like = list(args[:n])
    of_test, of_step = list(args[n : n + sizes[0]]), list(args[n + sizes[0] :])
    rows = []
    while test([*carry, *of_test])[0]:
        if keep:
            # The carry before the step: a backward sweep differentiates each step at the values that it was given.
            rows.append(carry)
        outs = step([*carry, *of_step])
        carry = list(outs[:n])
        # The next step, and the next test, find the Variable's new value in the place of the captured one.
        for (k, j), array in zip(assigned, outs[n:], strict=True):
            of_step[k] = array
            if j is not None:
                of_test[j] = array
    specs = [(tuple(a.shape), a.dtype) for a in like]
    saved = stacked(rows, specs, depths, stack, zeros) if keep else []
    return (*carry, *saved, *[of_step[k] for k, _ in assigned])


def scan(
    parts: Sequence[Run],
    sizes: Sequence[int],
    n: int,
    axes: Sequence[int],
    specs: Sequence[tuple[Any, Any]],
    depths: Sequence[int],
    length: int,
    reverse: bool,
    keep: bool,
    assigned: Sequence[int],
    unstack: Callable[..., Any],
    stack: Callable[..., Any],
    zeros: Callable[..., Any],
    *args: Any,
) -> Sequence[Any]:
    """Run a step for each element of arrays.

    Args:
        parts, sizes: the step, and how many of the last arguments it has captured.
        n: the length of the carry.
        axes: for each array the axis of its elements.
        specs: shape and dtype of a step's results after the carry.
        depths: for each result of a step the axis along which those of all steps are stacked.
        length: the number of steps where there are no arrays.
        reverse: whether the last element comes first.
        keep: whether the carries that the steps were given are results, too.
        assigned: of each Variable to which the step assigns its place among what is captured.
        unstack, stack, zeros: functions of the array library.
        *args: the carry, the arrays, and what is captured.
    """
    at = len(args) - sizes[0]
    carry, captured = list(args[:n]), list(args[at:])
    starts = [(tuple(a.shape), a.dtype) for a in carry]
    columns = [unstack(x, axis=axis) for x, axis in zip(args[n:at], axes, strict=True)]
    if columns:
        length = len(columns[0])
    m = n + len(specs)
    saved, results = [], []
    for k in range(length - 1, -1, -1) if reverse else range(length):
        if keep:
            saved.append(carry)
        outs = parts[0]([*carry, *[column[k] for column in columns], *captured])
        carry = list(outs[:n])
        results.append(outs[n:m])
        # The next step finds the Variable's new value in the place of the captured one.
        for place, array in zip(assigned, outs[m:], strict=True):
            captured[place] = array
    # A result belongs to the place of its element, as with `jax.lax.scan`, whatever the order of the steps.
    if reverse:
        results.reverse()
        saved.reverse()
    ys = stacked(results, specs, depths[n:], stack, zeros)
    kept = stacked(saved, starts, depths[:n], stack, zeros) if keep else []
    return (*carry, *ys, *kept, *[captured[place] for place in assigned])


def stacked(
    rows: Sequence[Sequence[Any]],
    specs: Sequence[tuple[Any, Any]],
    depths: Sequence[int],
    stack: Callable[..., Any],
    zeros: Callable[..., Any],
) -> Arrays:
    """Return each column of arrays stacked along a new axis; without rows, empty arrays made by their specs."""
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        return [stack(column, axis=depth) for column, depth in zip(columns, depths, strict=True)]
    return [
        zeros((*shape[:depth], 0, *shape[depth:]), dtype=dtype)
        for (shape, dtype), depth in zip(specs, depths, strict=True)
    ]
