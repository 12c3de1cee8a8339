"""The reverse sweep: one walk over a tape's records, from the targets back.

When nothing else records, rules see raw arrays and the backend's kernels; when another tape does, they see
Tensors and the public ops, so that the sweep is itself recorded. The rules are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tape_core.indexed_slices import IndexedSlices
from tape_core.rules import FIRST_INPUT
from tape_core.tensor import SCALARS, Tensor, wrap

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.tape import GradientTape

REUSE_ABOVE = 1 << 16  # bytes; for smaller arrays a new one costs less than asking who holds the old one

Records = list[tuple[Any, ...] | None]


def sweep(
    tape: GradientTape,
    backend: Backend,
    seeds: list[tuple[int, Tensor]],
    sources: list[int],
    recorded: bool,
    release: bool,
) -> dict[int, Any]:
    """The cotangents of the slots in `sources`, for cotangents `seeds` of other slots.

    Args:
        tape: the tape; its records are read.
        backend: the backend of all its arrays.
        seeds: slots and their cotangents; those of a slot add up.
        sources: the slots to differentiate with respect to.
        recorded: compute on Tensors, because another tape records.
        release: free each record as it is passed.

    Returns:
        By slot, Tensors or IndexedSlices; slots that nothing reached are missing.
    """
    records: Records = tape._records
    top = max(slot for slot, _ in seeds) + 1
    wanted = _reached_from(tape, top, sources)
    grads: list[Any] = [None] * top
    for slot, cotangent in seeds:
        value = cotangent if recorded else cotangent._array
        grads[slot] = value if grads[slot] is None else grads[slot] + value
    if release:
        del records[top:]
    keep = frozenset(sources)
    careful = recorded or tape._masked or tape._sparse
    large, owns = backend.array_class, backend.is_exclusive
    if recorded:
        from tape_core.ops.namespace import ops

        xp: Any = ops

        def lift(array: Any, slots: Any) -> Any:
            return array if type(array) in SCALARS or array is None else wrap(array, backend, slots)
    else:
        xp = backend.xp
        lift = None  # type: ignore[assignment]
    masked = tape._masked
    with backend.quiet():
        for slot in range(top - 1, -1, -1):
            rec = records.pop() if release else records[slot]
            g = grads[slot]
            if g is None or rec is None or (wanted is not None and not wanted[slot]):
                continue
            if slot not in keep:
                grads[slot] = None
            if careful:
                rec[0].backward_careful(g, rec, grads, xp, lift, masked)
            elif type(g) is large and g.nbytes > REUSE_ABOVE:
                rec[0].backward(g, rec, grads, xp, owns)
            else:
                rec[0].backward(g, rec, grads, xp, None)
    found = {slot: grads[slot] for slot in keep if slot < top and grads[slot] is not None}
    if recorded:
        return found
    return {slot: _public(value, backend) for slot, value in found.items()}


def _public(value: Any, backend: Backend) -> Any:
    if isinstance(value, IndexedSlices):
        return IndexedSlices(wrap(value.values, backend), wrap(value.indices, backend), value.dense_shape)
    return wrap(value, backend)


def _reached_from(tape: GradientTape, top: int, sources: list[int]) -> bytearray | None:
    """For each slot below `top`, whether a source flows into it; None where that saves nothing.

    Without it a sweep would run to leaves nobody asked for, and past sources that are themselves results.
    """
    if tape._leaves == sources or set(tape._leaves) == set(sources):
        return None
    records = tape._records
    reached = bytearray(top)
    for slot in sources:
        if slot < top:
            reached[slot] = 1
    for slot in range(top):
        rec = records[slot]
        if rec is None or reached[slot]:
            continue
        for i in rec[FIRST_INPUT : FIRST_INPUT + 3 * rec[0].n : 3]:
            if any(reached[j] for j in (i if type(i) is tuple else (i,)) if j is not None):
                reached[slot] = 1
                break
    return reached


def ones_beside(tensor: Tensor) -> Tensor:
    """A cotangent of ones for a target."""
    backend = tensor.backend
    return wrap(backend.xp.ones_like(tensor._array), backend)
