"""The reverse sweep: one walk over a tape's records, from the targets back.

When nothing else records, rules see raw arrays and the backend's kernels; when another tape does, they see
Tensors and the public ops, so that the sweep is itself recorded. The rules are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tape_core.rules import FIRST_INPUT
from tape_core.tensor import SCALARS, Tensor, wrap

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.plan import Lift
    from tape_core.tape import GradientTape

REUSE_ABOVE = 1 << 16  # bytes; for smaller arrays a new one costs less than asking who holds the old one

Records = list[tuple[Any, ...] | None]


def sweep(
    tape: GradientTape,
    backend: Backend,
    seeds: dict[int, Tensor],
    sources: list[int],
    recorded: bool,
    release: bool,
) -> dict[int, Any]:
    """The cotangents of the slots in `sources`, for cotangents `seeds` of other slots.

    Args:
        tape: the tape; its records are read.
        backend: the backend of all its arrays.
        seeds: cotangents by slot.
        sources: the slots to differentiate with respect to.
        recorded: compute on Tensors, because another tape records.
        release: free each record as it is passed.

    Returns:
        By slot, raw arrays, or Tensors if `recorded`, or IndexedSlices of them; sources that nothing reached are
        missing.
    """
    records: Records = tape._records
    top = max(seeds) + 1
    wanted = None if tape._leaves == sources else _reached_from(tape, top, sources)
    grads: list[Any] = [None] * top
    for slot, cotangent in seeds.items():
        grads[slot] = cotangent if recorded else cotangent._array
    if release:
        del records[top:]
    kept = frozenset(sources if wanted is not None else ())  # otherwise every source is a leaf
    found: dict[int, Any] = {}
    careful = recorded or tape._masked or tape._sparse
    xp, lift = _lifting(backend) if recorded else (backend.xp, _as_is)
    masked, large = tape._masked, backend.array_class
    with backend.quiet():
        while grads:
            g = grads.pop()
            rec = records.pop() if release else records[len(grads)]
            if g is None:
                continue
            if rec is None:
                found[len(grads)] = g
                continue
            plan = rec[0]
            if wanted is not None:
                slot = len(grads)
                if slot in kept:
                    found[slot] = g
                if not wanted[slot]:
                    continue
                plan = plan.toward(rec, wanted)
            if careful:
                plan.backward_careful(g, rec, grads, xp, lift, masked)
            elif type(g) is large and g.nbytes > REUSE_ABOVE:
                plan.backward_reusing(g, rec, grads, xp, backend)
            else:
                plan.backward(g, rec, grads, xp)
    return found


def _lifting(backend: Backend) -> tuple[Any, Lift]:
    """The namespace of a sweep that is recorded, and what makes a Tensor of an array in a record."""
    from tape_core.ops.namespace import ops

    def lift(array: Any, slots: Any) -> Any:
        return array if type(array) in SCALARS or array is None else wrap(array, backend, slots)

    return ops, lift


def _as_is(array: Any, slots: Any) -> Any:
    return array


def _reached_from(tape: GradientTape, top: int, sources: list[int]) -> bytearray | None:
    """For each slot below `top`, whether a source flows into it; None where all leaves are sources.

    Without it a sweep would run to leaves nobody asked for, and past sources that are themselves results.
    """
    if set(tape._leaves) == set(sources):
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
