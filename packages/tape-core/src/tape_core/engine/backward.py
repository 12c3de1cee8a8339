"""The reverse sweep: one walk over a tape's records, from the targets back.

When nothing else records, rules see raw arrays and the backend's kernels; when another tape does, they see
Tensors and the public ops, so that the sweep is itself recorded. The rules are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE, MASKED, READY
from tape_core.base.contexts import setting
from tape_core.base.lookup import OPS, ops
from tape_core.base.thresholds import REUSE_ABOVE
from tape_core.engine import binding, layouts, record
from tape_core.engine.cotangents import conj, widening
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.levels import BatchedArray
from tape_core.engine.plan import Part, Plan
from tape_core.engine.record import PLAN, Lift
from tape_core.engine.recording import COMPLEX, NARROW
from tape_core.engine.rule_errors import missing_attribute, place_of_rule, record_in
from tape_core.engine.tensor import SCALARS, Tensor, wrap
from tape_core.engine.variable import Variable
from tape_core.typing import Record, Records

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.layouts import Together
    from tape_core.engine.tape import GradientTape

_NOT_READ = (None, ())  # in place of a variable and its slots


def gradients(
    tape: GradientTape, targets: list[Any], sources: list[Any], cotangents: list[Any] | None, *, release: bool
) -> list[Any]:
    """Return for each of `sources` the gradient of the sum of `targets`, None if no path leads to it.

    What `READY` has is called with each gradient that is one cotangent, as soon as that is final; what it returns, if
    anything, takes the place of the gradient.

    Args:
        cotangents: of each target, None for ones.
        release: free the records.
    """
    key, variables = tape._key, tape._variables
    recorded, is_complex = bool(ACTIVE.get()), tape._special & COMPLEX
    slots_of: list[tuple[int, ...]] = []
    for source in sources:
        if isinstance(source, Variable):
            # It has a slot for each value that was read: their gradients add up.
            read = variables.get(id(source), _NOT_READ)[1]
            # In a binding the value may have been watched itself: then the tape was told of no read.
            if not read and binding.in_use and (slot := source._slots.get(key)) is not None:
                read = (slot,)
            slots_of.append(read)
        else:
            slot = source._slots.get(key)
            slots_of.append(() if slot is None else (slot,))
    wanted = [slot for slots in slots_of for slot in slots]
    # One sweep for each backend: a tape may record several, which have no path to each other.
    seeds: dict[Backend, dict[int, Tensor]] = {}
    direct: dict[int, Any] = {}  # a target that this tape does not know may still be a source
    for k, target in enumerate(targets):
        given = None if cotangents is None else cotangents[k]
        g = ones_beside(target) if given is None else given
        if given is not None:
            g = _laid_out(g, target)
        slot = target._slots.get(key)
        recorded = recorded or g.backend.level > 0  # on Tensors, which are lifted where they must be
        if slot is not None:
            own = seeds.setdefault(
                g.backend if g.backend is target.backend else _sweep_backend(target.backend, g.backend), {}
            )
            # Rules are plain transposes, so the gradient of TensorFlow is conjugated here and at the end; see `rules`.
            g = conj(g) if is_complex else g
            # A target that is given twice counts twice.
            own[slot] = g if slot not in own else own[slot] + g
        elif any([source is target for source in sources]) and target.dtype.inexact:
            g = _laid_out(g, target)
            direct[id(target)] = g if id(target) not in direct else direct[id(target)] + g
    totals: list[Any] = [direct.get(id(source)) for source in sources] if direct else [None] * len(sources)
    ready = READY.get()
    tells = ready is not None and len(seeds) == 1 and not direct and not is_complex
    for n, (backend, own) in enumerate(seeds.items(), start=1):
        last = release and n == len(seeds)
        noted = None
        if layouts.in_use or tells:
            together = None if recorded or tells else backend.together()
            noted = _Noted(sources, slots_of, ready if tells else None, together)
        if ready is None:
            found = sweep(tape, backend, own, wanted, recorded, release=last, found=noted)
        else:
            with setting(READY, None):  # the sweep may compute other gradients on its way
                found = sweep(tape, backend, own, wanted, recorded, release=last, found=noted)
        if noted is not None:
            noted.finish(backend)
        for k, slots in enumerate(slots_of):
            for slot in slots:
                part = found.get(slot)
                if part is None:
                    continue
                if is_complex:
                    part = conj(part)
                total = totals[k]
                totals[k] = part if total is None else _laid_out(total + part, sources[k])
    return totals


class _Noted(dict[int, Any]):
    """The cotangents that a sweep has found, by slot; those of sources are laid out as these when they are final.

    So a library may send them while the sweep goes on. A function is called with each that is a gradient of a source,
    and what it returns takes its place: so a gradient is let go of that has been copied to where it is sent from.
    With `together` those that it takes are laid out by it, and are there after `finish`.
    """

    def __init__(
        self,
        sources: list[Any],
        slots_of: list[tuple[int, ...]],
        ready: Callable[[int, Any], Any] | None,
        together: Together | None,
    ) -> None:
        super().__init__()
        self._together = together
        self._taken: set[int] = set()
        self._sources = sources
        self._ready = ready
        self._source_of = {slot: k for k, slots in enumerate(slots_of) for slot in slots}
        times = Counter([slot for slots in slots_of for slot in slots])
        self._alone = {slots[0] for slots in slots_of if len(slots) == 1 and times[slots[0]] == 1}

    def __setitem__(self, slot: int, cotangent: Any) -> None:
        k = self._source_of.get(slot)
        if k is not None:
            source, again = self._sources[k], slot in self
            self._taken.discard(slot)
            if self._together is not None and isinstance(cotangent, Tensor) and not again:
                is_taken = self._together.add(slot, cotangent._array, source)
            else:
                is_taken = False
            if is_taken:
                self._taken.add(slot)
            else:
                cotangent = _laid_out(cotangent, source)
        super().__setitem__(slot, cotangent)
        if self._ready is not None and k is not None and slot in self._alone:
            instead = self._ready(k, cotangent)
            if instead is not None:
                super().__setitem__(slot, instead)

    def finish(self, backend: Backend) -> None:
        """Wait for the cotangents that are laid out together."""
        if self._together is not None:
            for slot, array in self._together.finish().items():
                if slot in self._taken:
                    super().__setitem__(slot, wrap(array, backend))


def _laid_out(gradient: Any, source: Any) -> Any:
    """Return the gradient of a source in its layout, where a backend has layouts."""
    return ops.laid_out_like(gradient, source) if layouts.in_use and isinstance(gradient, Tensor) else gradient


def _sweep_backend(backend: Backend, cotangent: Backend) -> Backend:
    """Return the backend of a sweep: that of the trace if a target is a constant in it, and its cotangent is traced."""
    if cotangent.level or backend.level or cotangent.height < backend.height:
        return backend
    return cotangent


def sweep(
    tape: GradientTape,
    backend: Backend,
    seeds: dict[int, Any],
    sources: list[int],
    recorded: bool,
    release: bool,
    found: dict[int, Any] | None = None,
) -> dict[int, Any]:
    """Return the cotangents of the slots in `sources`, for cotangents `seeds` of other slots.

    Args:
        tape: the tape; its records are read.
        backend: the backend of all its arrays.
        seeds: cotangents by slot: Tensors, or slices as the sweep computes with them.
        sources: the slots to differentiate with respect to.
        recorded: compute on Tensors, because another tape records.
        release: free each record as it is passed.
        found: where they are put as soon as they are final; by default a new dictionary.

    Returns:
        By slot, a Tensor or IndexedSlices; sources that nothing reached are missing.
    """
    records: Records = tape._records
    # What was recorded after the last target does not lead to any.
    top = max(seeds) + 1
    calls: dict[int, dict[int, int]] = {}
    # The common case is found without a pass over the records: the sources are all leaves, in the order of the watches.
    if tape._leaves == sources:
        wanted = None
    else:
        calls = _calls_with_results(records, top, sources)
        # The results of a call stand after it, and those that are sources may stand after the last target, too.
        for slots in calls.values():
            top = max(top, *[slot + 1 for slot in slots.values()])
        wanted = _reached_from(tape, top, [*sources, *calls] if calls else sources)
    grads: list[Any] = [None] * top
    for slot, cotangent in seeds.items():
        grads[slot] = cotangent if recorded or isinstance(cotangent, IndexedSlices) else cotangent._array
    # The tape's own list shrinks during the walk, so that each record is freed as it is passed; a copy would keep all.
    if release:
        del records[top:]
    else:
        records = records[:top]
    if backend.library is not backend.root and not recorded:
        for k, rec in enumerate(records):
            if rec is not None and isinstance(own := rec[PLAN], Plan) and (plan := own.traced(backend)) is not own:
                records[k] = record.with_plan(rec, plan)
    found = {} if found is None else found
    try:
        with backend.sweeping():
            if recorded or tape._masked or tape._sparse or tape._special & NARROW or wanted is not None:
                _walk_careful(records, grads, found, backend, frozenset(sources), wanted, recorded, tape, calls)
            else:
                _walk(records, grads, found, backend)
    except Exception as error:
        known = backend.user_error(error)
        if (missing := missing_attribute(error, backend)) is not None:
            known = TypeError, missing
        rec = record_in(error, _WALKS)
        place = place_of_rule(error, rec, "in the backward pass", backend)
        if known is None or isinstance(error, known[0]):
            error.add_note(place)
            raise
        raise known[0](f"{place}: {known[1]}") from error  # an error of the library's own kind
    return found


def _walk(records: Records, grads: list[Any], found: dict[int, Any], backend: Backend) -> None:
    """Walk back the records in the most common case: every leaf is a source, and nothing records the sweep."""
    xp, large, divided = backend.xp, backend.array_class, backend.divided_class
    # Slots are places in both lists, so the last cotangent belongs to the last record. Popping lets each array go as
    # soon as it is used.
    while grads:
        g = grads.pop()
        rec = records.pop()
        if g is None:
            pass
        elif rec is None:
            found[len(grads)] = wrap(g, backend) if type(g) is not IndexedSlices else _wrap_cotangent(g, backend)
        elif (type(g) is large and g.nbytes > REUSE_ABOVE) or type(g) is divided:
            rec[PLAN].backward_reusing(g, rec, grads, xp, backend)
        else:
            rec[PLAN].backward(g, rec, grads, xp)


def _walk_careful(
    records: Records,
    grads: list[Any],
    found: dict[int, Any],
    backend: Backend,
    sources: frozenset[int],
    wanted: bytearray | None,
    recorded: bool,
    tape: GradientTape,
    calls: dict[int, dict[int, int]],
) -> None:
    """Walk back the records in every other case."""
    xp, lift = lifting(backend) if recorded else (backend.xp, _as_is)
    masked, large, divided = tape._masked, backend.array_class, backend.divided_class
    wide = widening(backend, xp) if tape._special & NARROW else None
    # `wanted` alone needs no care: plans with fewer rules have generated passes, too.
    careful = recorded or tape._sparse or wide is not None
    # By slot how far the masks reach that it flows into: their zeros flow only to what their inputs are computed from.
    reach = bytearray([tape._starts_masked]) * len(grads)
    while grads:
        g = grads.pop()
        rec = records.pop()
        slot = len(grads)
        if g is None:
            continue
        if slot in sources:  # a source may be an intermediate result: the sweep goes on through it
            found[slot] = g if recorded else _wrap_cotangent(g, backend)
        if rec is None or (wanted is not None and not wanted[slot]):
            continue
        plan = rec[PLAN] if wanted is None else rec[PLAN].toward(rec, wanted)
        if slot in calls:
            within = plan.within(g, rec, list(calls[slot]), masked, recorded)
            for at, d in zip(calls[slot].values(), within, strict=True):
                if d is not None:
                    found[at] = d if recorded else _wrap_cotangent(d, backend)
        through, own = 0, rec[PLAN]
        if masked:
            if type(own) is Plan and OPS.get(own.op.name) is own.op:
                through = onward = reach[slot]
                if own.op.reach_of_mask > onward:
                    onward = own.op.reach_of_mask
            else:
                # A function that is one record may mask inside, and knows itself what its cotangent came through.
                through = onward = reach[slot] if type(own) is Part else masked
            if onward:
                for at in record.input_slots(rec):
                    if type(at) is not tuple:
                        if at is not None and reach[at] < onward:
                            reach[at] = onward
                        continue
                    for i in at:  # of a sequence
                        if i is not None and reach[i] < onward:
                            reach[i] = onward
        if careful or through:
            if recorded:
                plan = plan.recorded
            if through and type(own) is Plan and own.op.of_functions:
                with setting(MASKED, reach[slot]):
                    plan.backward_careful(g, rec, grads, xp, lift, through, wide)
            else:
                plan.backward_careful(g, rec, grads, xp, lift, through, wide)
        elif (type(g) is large and g.nbytes > REUSE_ABOVE) or type(g) is divided:
            plan.backward_reusing(g, rec, grads, xp, backend)
        else:
            plan.backward(g, rec, grads, xp)


_WALKS = (_walk.__code__, _walk_careful.__code__)


def _wrap_cotangent(g: Any, backend: Backend) -> Any:
    """Return a raw cotangent as a Tensor, raw slices as slices of Tensors."""
    if isinstance(g, IndexedSlices):
        return IndexedSlices(wrap(g.values, backend), wrap(g.indices, backend), g.dense_shape)
    return wrap(g, backend)


def lifting(backend: Backend) -> tuple[Any, Lift]:
    """Return the namespace of a sweep that is recorded, and the `Lift` that makes a Tensor of an array in a record."""

    root = backend.root

    def lift(array: Any, slots: Any) -> Any:
        if type(array) is tuple:  # an op's several results
            return tuple(map(lift, array, slots))
        if type(array) in SCALARS or array is None:
            return array
        return wrap(array, array.backend if type(array) is BatchedArray else root, slots)

    return ops, lift


def _as_is(array: Any, slots: Any) -> Any:
    return array


def _calls_with_results(records: Records, top: int, sources: list[int]) -> dict[int, dict[int, int]]:
    """Return the calls of functions that have sources among their results on which other results of the call depend.

    A call is one record, so the sweep does not see that dependence: to the cotangent of such a source from outside, the
    call adds the one from its other results.

    Returns:
        By the slot of the call, the slots of such sources by the number of the result.
    """
    found: dict[int, dict[int, int]] = {}
    for source in sources:
        rec = records[source] if source < len(records) else None
        if rec is not None and type(part := rec[PLAN]) is Part and (base := record.slot(rec, 0)) < top:
            whole = records[base]
            if whole is not None and part.k in getattr(whole[PLAN], "leading", _none)(whole):
                found.setdefault(base, {})[part.k] = source
    return found


def _none(rec: Record) -> tuple[int, ...]:
    return ()


def _reached_from(tape: GradientTape, top: int, sources: list[int]) -> bytearray | None:
    """Return for each slot below `top` whether a source flows into it; None if all leaves are sources.

    Without this a sweep would run to leaves nobody asked for, and past sources that are themselves results.
    """
    # `sweep` has compared the lists; the sources may also come in another order, or twice.
    if set(tape._leaves) == set(sources):
        return None
    records = tape._records
    reached = bytearray(top)
    for slot in sources:
        if slot < top:
            reached[slot] = 1
    # The slots of inputs are below that of the result, so one pass in this order is enough.
    for slot in range(top):
        rec = records[slot]
        if rec is not None and not reached[slot] and any([reached[i] for i in record.each_slot(rec)]):
            reached[slot] = 1
    return reached


def flows_into(tape: GradientTape, source: int, targets: list[int]) -> bool:
    """Return whether the value of the slot `source` flows into one of the slots `targets`, other than itself."""
    reached = _reached_from(tape, max(targets) + 1, [source])
    return reached is None or any([reached[slot] for slot in targets if slot != source])


def ones_beside(tensor: Tensor) -> Tensor:
    """Return a cotangent of ones for a target."""
    backend = tensor.backend
    return wrap(backend.xp.ones_like(tensor._array), backend)
