"""Jacobians of a tape: its backward pass on a batch of cotangents, one for each element of the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE
from tape_core.base.lookup import ops
from tape_core.base.progress import progress_of
from tape_core.engine import pytree
from tape_core.engine.arguments import check_tensors, check_unconnected
from tape_core.engine.backward import gradients
from tape_core.engine.cuts import on_derivative
from tape_core.engine.indexed_slices import dense
from tape_core.engine.tensor import Tensor
from tape_core.modes.vmap import batch, new_axis, unbatch
from tape_core.typing import PyTree

if TYPE_CHECKING:
    from tape_core.engine.tape import GradientTape


def jacobian(
    tape: GradientTape, target: PyTree, sources: PyTree, unconnected_gradients: str, chunk: int | None, *, loop: bool
) -> Any:
    """Compute :meth:`GradientTape.jacobian`."""
    check_unconnected(unconnected_gradients)
    _check_chunk(chunk)
    targets, target_structure = pytree.flatten(target)
    leaves, structure = pytree.flatten(sources)
    check_tensors("jacobian", "target", targets, target_structure)
    check_tensors("jacobian", "sources", leaves, structure)
    tape._begin_use("jacobian")
    try:
        results = []
        for n, one in enumerate(targets, start=1):
            last = n == len(targets) and unconnected_gradients != "error"  # what is to be explained must still be there
            rows = _rows(tape, one, leaves, math.prod(one.shape), _basis(one), chunk, loop, last)
            for k, leaf in enumerate(leaves):
                if rows[k] is None:
                    path, whole = pytree.path(structure, k), (*one.shape, *leaf.shape)
                    rows[k] = tape._unconnected("jacobian", one, leaf, path, unconnected_gradients, whole)
                else:
                    rows[k] = ops.reshape(rows[k], (*one.shape, *leaf.shape))
            if ACTIVE.get():
                on_derivative([one], rows)
            results.append(pytree.unflatten(structure, rows))
    finally:
        tape._end_use()
    return pytree.unflatten(target_structure, results)


def batch_jacobian(
    tape: GradientTape, target: PyTree, source: PyTree, unconnected_gradients: str, chunk: int | None, *, loop: bool
) -> Any:
    """Compute :meth:`GradientTape.batch_jacobian`."""
    check_unconnected(unconnected_gradients)
    _check_chunk(chunk)
    for name, value in (("target", target), ("source", source)):
        if not isinstance(value, Tensor):
            raise TypeError(f"batch_jacobian: {name} must be a Tensor or Variable, got {type(value).__name__!r}")
        if value.ndim < 2:
            raise ValueError(f"batch_jacobian: {name}: Shape {value.shape} must have rank at least 2")
    if target.shape[0] != source.shape[0]:
        raise ValueError(
            f"batch_jacobian: Need first dimension of target shape ({target.shape}) and source shape ({source.shape}) "
            f"to match."
        )
    examples, shape = target.shape[0], target.shape[1:]
    whole = (examples, *shape, *source.shape[1:])
    tape._begin_use("batch_jacobian")
    try:
        n = math.prod(shape)
        last = unconnected_gradients != "error"
        (rows,) = _rows(tape, target, [source], n, _basis_of_examples(target), chunk, loop, last)
        if ACTIVE.get():
            on_derivative([target], [rows])
        if rows is None:
            return tape._unconnected("batch_jacobian", target, source, "", unconnected_gradients, whole)
    finally:
        tape._end_use()
    # An example's row: the gradient of the sum over examples, of which only its own depends on it.
    return ops.reshape(ops.moveaxis(rows, 0, 1), whole)


def _check_chunk(chunk: int | None) -> None:
    if chunk is not None and (type(chunk) is not int or chunk < 1):
        raise ValueError(f"jacobian: parallel_iterations must be a positive int or None, got {chunk!r}")


def _identity(target: Tensor, n: int) -> Tensor:
    return ops.eye(n, dtype=target.dtype, device=target.device, backend=target.backend.root)


def _basis(target: Tensor) -> Callable[[int, int], Tensor]:
    """Return a function of `start` and `stop` that returns cotangents which pick these elements."""
    n = math.prod(target.shape)
    identity = _identity(target, n)
    return lambda start, stop: ops.reshape(identity[start:stop], (stop - start, *target.shape))


def _basis_of_examples(target: Tensor) -> Callable[[int, int], Tensor]:
    """Return a function of `start` and `stop` that returns cotangents which pick these elements of each example."""
    shape = target.shape[1:]
    identity = _identity(target, math.prod(shape))

    def basis(start: int, stop: int) -> Tensor:
        picked = ops.reshape(identity[start:stop], (stop - start, *shape))
        # The same cotangent for each example: none depends on another, so one product serves all of them.
        return ops.broadcast_to(ops.expand_dims(picked, axis=1), (stop - start, *target.shape))

    return basis


def _rows(
    tape: GradientTape,
    target: Tensor,
    sources: list[Any],
    n: int,
    basis: Callable[[int, int], Tensor],
    chunk: int | None,
    loop: bool,
    last: bool,
) -> list[Any]:
    """Return for each source its gradients for `n` cotangents, along dimension 0; None if no path leads to it."""
    parts: list[list[Any]] = []
    step = max(n if chunk is None else chunk, 1)
    # A target without elements makes one chunk without rows, from which the result has its shape.
    if n <= step:
        return _chunk(tape, target, sources, basis(0, n), loop and n > 0, last and not tape._persistent)
    with progress_of("Jacobian", n, "rows") as task:
        for start in range(0, n, step):
            stop = min(start + step, n)
            # Every chunk needs the records; only the last may free them.
            release = last and stop == n and not tape._persistent
            parts.append(_chunk(tape, target, sources, basis(start, stop), loop, release))
            task.advance(stop - start)
    return [None if column[0] is None else ops.concat(list(column)) for column in zip(*parts, strict=True)]


def _chunk(
    tape: GradientTape, target: Tensor, sources: list[Any], seeds: Tensor, loop: bool, release: bool
) -> list[Any]:
    if loop:
        found = gradients(tape, [target], sources, [seeds[0]], release=release)
        return [None if g is None else ops.expand_dims(dense(g), axis=0) for g in found]
    with new_axis(seeds.shape[0]) as axis:
        found = gradients(tape, [target], sources, [batch(seeds, axis)], release=release)
        return [None if g is None else unbatch(g, axis, 0, lambda: "jacobian") for g in found]
