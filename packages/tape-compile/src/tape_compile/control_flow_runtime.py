"""How branches and loops run, given functions for their parts; exported files have these too."""

from __future__ import annotations

from typing import Any


def cond(parts: Any, sizes: Any, predicate: Any, *args: Any) -> Any:
    """A branch."""
    n = len(args) - sum(sizes)
    given, captured = args[:n], args[n:]
    if predicate:
        return parts[0]([*given, *captured[: sizes[0]]])
    return parts[1]([*given, *captured[sizes[0] :]])


def while_loop(
    parts: Any, sizes: Any, depths: Any, keep: Any, assigned: Any, stack: Any, zeros: Any, *args: Any
) -> Any:
    """A loop that ends when its first part says so; the second is a step."""
    test, step = parts
    n = len(args) - sum(sizes)
    carry = like = list(args[:n])
    of_test, of_step = list(args[n : n + sizes[0]]), list(args[n + sizes[0] :])
    rows = []
    while test([*carry, *of_test])[0]:
        if keep:
            rows.append(carry)
        outs = step([*carry, *of_step])
        carry = list(outs[:n])
        for (k, j), array in zip(assigned, outs[n:], strict=True):
            of_step[k] = array
            if j is not None:
                of_test[j] = array
    specs = [(tuple(a.shape), a.dtype) for a in like]
    saved = stacked(rows, specs, depths, stack, zeros) if keep else []
    return (*carry, *saved, *[of_step[k] for k, _ in assigned])


def scan(
    parts: Any, sizes: Any, n: Any, axes: Any, specs: Any, depths: Any, length: Any, reverse: Any, keep: Any,
    assigned: Any, unstack: Any, stack: Any, zeros: Any, *args: Any,
) -> Any:  # fmt: skip
    """A loop over elements."""
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
        for place, array in zip(assigned, outs[m:], strict=True):
            captured[place] = array
    if reverse:
        results.reverse()
        saved.reverse()
    ys = stacked(results, specs, depths[n:], stack, zeros)
    kept = stacked(saved, starts, depths[:n], stack, zeros) if keep else []
    return (*carry, *ys, *kept, *[captured[place] for place in assigned])


def stacked(rows: Any, specs: Any, depths: Any, stack: Any, zeros: Any) -> Any:
    """Columns of arrays, each along a new axis at a depth; without rows arrays without elements."""
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        return [stack(column, axis=depth) for column, depth in zip(columns, depths, strict=True)]
    return [
        zeros((*shape[:depth], 0, *shape[depth:]), dtype=dtype)
        for (shape, dtype), depth in zip(specs, depths, strict=True)
    ]
