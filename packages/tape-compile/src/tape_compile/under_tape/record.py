"""Calls of a joint trace as records of a tape; see `entry.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tape_core import GradientTape, IndexedSlices, random
from tape_core.support import dense, pytree, set_all, wrap
from tape_core.tracing import (
    FUNCTION_CALL,
    NO_SLOTS,
    Part,
    Parts,
    kwargs,
    own_slots,
    slot,
    substitute,
    sweep,
    twin_slots,
    with_own_slots,
)
from tape_core.typing import Cotangent, Record

from tape_compile.cache_key import STATIC, TENSOR
from tape_compile.failures import fail
from tape_compile.results import restore_leaf
from tape_compile.under_tape.trace import DIFFERENTIABLE, INPUT, Joint, Pattern

if TYPE_CHECKING:
    from tape_core.backends import Backend


def recorded_call(joint: Joint, tape: GradientTape, leaves: list[Any]) -> Any:
    """Run the code of a joint trace for the leaves of arguments, and append one record to the tape.

    Returns:
        The result; NotImplemented where an argument is the value of a Variable that the function also reads, since then
        one slot is two inputs.
    """
    key, records, n = tape._key, tape._records, len(joint.watched_places)
    joint.read(tape)
    slots_of = [
        *[leaves[k]._slots for k in joint.watched_places],
        *[joint.variables[k]._slots for k in joint.differentiable_variables],
    ]
    at = tuple([slots[key] for slots in slots_of])
    if n < len(at) and not {*at[:n]}.isdisjoint(at[n:]):
        return NotImplemented
    call = Call(joint, leaves)
    arrays = [*[leaves[k]._array for k in joint.input_places], *[array for array, _ in call.values]]
    try:
        with joint.quiet():
            found = joint.run(arrays)
    except Exception as error:  # noqa: BLE001 - it is raised again
        fail(error)
    call.residuals = found[joint.size :]
    if joint.masked > tape._masked:
        tape._masked = joint.masked
    tape._special |= joint.special
    if joint.sparse and any([records[i] is not None for i in at]):
        tape._sparse = (
            True  # IndexedSlices stay sparse only if they end at a leaf; on their way the sweep makes them dense
        )
    base, several = len(records), len(joint.specs) > 1
    # One result is the record itself; of several each is a `Part`, so that its cotangents meet in its own slot.
    whole = {key: base}
    inputs = (joint.input_specs,), at, None, tuple(slots_of)
    records.append((_plan_for(joint.backend), *inputs, None, whole, (), {"call": call}, call.residuals))
    parts = [{key: base + 1 + k} for k in range(len(joint.specs))] if several else [whole]
    if several:
        records += [(Part(k, joint.specs), None, base) for k in range(len(joint.specs))]
    if joint.assigned:
        set_all(joint.assigned, found[joint.size - len(joint.assigned) : joint.size])
    made, k = [], 0
    for kind, what, number in joint.outs:
        if kind == STATIC:
            made.append(restore_leaf(what))
            continue
        slots = NO_SLOTS if kind == TENSOR else parts[number] if kind == DIFFERENTIABLE else slots_of[number]
        # A returned value of a Variable keeps the slot of this tape alone, as `Variable.value` does.
        made.append(wrap(found[k], what, {key: slots[key]} if kind == INPUT and number >= n else slots))
        k += 1
    return pytree.unflatten(joint.structure, made)


class Call:
    """The part of a record that the derivative needs, compiled or not.

    Attributes:
        joint: the trace.
        residuals: arrays from the forward program.
        leaves: the leaves of the arguments.
        values: the arrays and slots that Variables had at the call.
        bits: the state of the random generator at the call.
    """

    __slots__ = ("bits", "joint", "leaves", "residuals", "values")
    residuals: tuple[Any, ...]

    def __init__(self, joint: Joint, leaves: list[Any]) -> None:
        self.joint = joint
        # Copies of the Tensors, since a later x += y assigns to the caller's. They share slots, so that a tape which
        # watches the caller's Tensor later on watches these.
        self.leaves = list(leaves)
        for k in joint.tensors:
            self.leaves[k] = wrap(leaves[k]._array, leaves[k].backend, own_slots(leaves[k]))
        self.values = [(v._array, v._slots) for v in joint.variables]
        self.bits = random.get_state() if joint.draws else None

    @property
    def name(self) -> str:
        """The name for debugging tapes."""
        return self.joint.name

    def vjp(self, gs: list[Any], hs: list[Any], masked: int, recorded: bool) -> list[Any]:
        """Return the cotangent of each input, or None, after the derivative of this call has been added.

        Args:
            gs: the cotangents of the results, or None.
            hs: the cotangents that the inputs have so far, or None.
            masked: how far masks reach, as a tape says it.
            recorded: whether the sweep is itself recorded; then cotangents are Tensors, else raw arrays.
        """
        joint = self.joint
        if recorded:
            # A tape that records the sweep must get ops, of which compiled code has none.
            return self.rerun(gs, hs, masked, recorded)
        pattern = Pattern(masked, tuple([g is not None for g in gs]), tuple([h is not None for h in hs]))
        derivative = joint.derivatives.get(pattern)
        if derivative is None:
            if (owner := joint.owner()) is not None:  # else the function is gone, and there is no next call
                owner.on_missing_derivative(joint, pattern)
            return self.rerun(gs, hs, masked, recorded)
        joint.used.add(pattern)
        arrays = [self.residuals[k] for k in derivative.residuals]
        for array, (shape, dtype) in zip([*gs, *hs], joint.cotangent_specs, strict=True):
            if array is not None:
                # The code is for the dtypes and shapes of the trace; a sparse cotangent, say, needs the ops.
                if type(array) is IndexedSlices or array.shape != shape or array.dtype != dtype:
                    return self.rerun(gs, hs, masked, recorded)
                arrays.append(array)
        try:
            found = derivative.run(arrays)
        except Exception as error:  # noqa: BLE001 - it is raised again
            fail(error)
        if derivative.all_dense:
            return list(found)
        # IndexedSlices come as two arrays, and an input without a gradient as none.
        each = iter(found)
        xp = joint.backend.xp
        return [
            h if shape is None else next(each) if shape == () else IndexedSlices(next(each), next(each), shape, _xp=xp)
            for h, shape in zip(hs, derivative.slice_shapes, strict=True)
        ]

    def rerun(
        self, gs: list[Any], hs: list[Any], masked: int, recorded: bool, results: Sequence[int] | None = None
    ) -> list[Any]:
        """Compute the same as :meth:`vjp` by running the function again, under a tape.

        With `results`, return the cotangents of these results in place of the inputs.
        """
        joint, backend = self.joint, self.joint.backend
        if not all(get() == value for get, value in joint.guards):
            raise RuntimeError(
                f"the derivative of {self.name}, a compiled function, is computed by running it again, and a mode that "
                f"it depends on, such as that of training, is another by now: compute gradients before changing modes"
            )
        # It watches the inputs of the record alone: a Variable is one by its value then, not by the read.
        tape = GradientTape(watch_accessed_variables=False)
        tape._special = joint.special
        leaves = list(self.leaves)
        fresh = [with_own_slots(leaves[k]) for k in joint.watched_places]
        for k, number in enumerate(joint.watched_ids):
            if number is not None:
                leaves[k] = fresh[number]
        values = [
            wrap(array, v.backend, twin_slots(wrap(array, v.backend, slots)))
            for v, (array, slots) in zip(joint.variables, self.values, strict=True)
        ]
        inputs = [*fresh, *[values[k] for k in joint.differentiable_variables]]
        tape.watch(inputs)
        replayed = nullcontext() if self.bits is None else random.replayed(self.bits)
        with replayed, substitute(joint.variables, values), tape:
            result = pytree.flatten_whole(joint.python(leaves))[0]
        tape._masked = tape._starts_masked = masked
        # Several leaves may be one result.
        outs = {
            number: leaf for leaf, (kind, _, number) in zip(result, joint.outs, strict=True) if kind == DIFFERENTIABLE
        }
        seeds = {}
        for tensor, g in zip([*[outs[k] for k in range(len(gs))], *inputs], [*gs, *hs], strict=True):
            if g is not None:
                seeds[tensor._slots[tape._key]] = g if recorded or isinstance(g, IndexedSlices) else wrap(g, backend)
        ends = inputs if results is None else [outs[k] for k in results]
        slots = [t._slots[tape._key] for t in ends]
        found = sweep(tape, backend, seeds, slots, recorded, release=True)
        cotangents = [found.get(slot) for slot in slots]
        return cotangents if recorded else [_raw(d) for d in cotangents]


def _raw(d: Cotangent) -> Any:
    if isinstance(d, IndexedSlices):
        backend = d.values.backend
        return IndexedSlices(d.values._array, d.indices._array, d.dense_shape, _xp=backend.xp)
    return None if d is None else d._array


class _CallPlan:
    """The plan in the record of a call: the part of `tape_core.engine.plan.Plan` that sweeps use."""

    n = 1
    op = FUNCTION_CALL
    rules = ()

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @property
    def recorded(self) -> _CallPlan:
        """The plan for a recorded sweep, which is the same one: `Call.vjp` tells them apart."""
        return self

    def toward(self, rec: Record, wanted: bytearray) -> _CallPlan:
        """The plan toward some inputs, which is the same one: the derivative is for all inputs."""
        return self

    def leading(self, rec: Record) -> Sequence[int]:
        """Return the numbers of the results that others depend on."""
        joint: Joint = kwargs(rec)["call"].joint
        return joint.leading

    def within(self, g: Cotangent, rec: Record, results: list[int], masked: int, recorded: bool) -> list[Any]:
        """Return the cotangents of some results, including those from other results that depend on them."""
        call: Call = kwargs(rec)["call"]
        return call.rerun(g.cotangents, [None] * len(slot(rec, 0)), masked, recorded, results)

    def backward(self, g: Cotangent, rec: Record, grads: list[Any], *_: Any) -> None:
        """Add the derivative of this call to the cotangents of its inputs."""
        self._pull(g, rec, grads, masked=0, recorded=False)

    backward_reusing = backward

    def backward_careful(
        self, g: Cotangent, rec: Record, grads: list[Any], xp: Any, lift: Any, masked: int, *_: Any
    ) -> None:
        """Do the same for cotangents that may be Tensors, or may mask."""
        self._pull(g, rec, grads, masked, recorded=xp is not self.backend.xp)

    def _pull(self, g: Cotangent, rec: Record, grads: list[Any], masked: int, recorded: bool) -> None:
        at = slot(rec, 0)
        call: Call = kwargs(rec)["call"]
        gs = g.cotangents if type(g) is Parts else [dense(g)]
        for i, d in zip(at, call.vjp(gs, [grads[i] for i in at], masked, recorded), strict=True):
            # Not added: `vjp` was given the cotangents so far, and has added to them in the order of the eager
            # records.
            grads[i] = d


_plan_for = lru_cache(maxsize=None)(_CallPlan)
