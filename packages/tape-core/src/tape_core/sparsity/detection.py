"""Detection of sparsity: which elements of a result depend on which of `x`, by index sets carried along with values.

A `Detector` is a recorder, as tapes are, and has the sets of each result from those of its inputs. What an op does with
them follows from its declaration:

- Elementwise ops unite the sets of their inputs.
- A linear op that moves elements, or adds up where its transpose moves them, shows so when it is given the places of
  the elements for their values.
- Ops along an axis, and on stacks of matrices, unite along it: the rule by which vmap batches them says which axis.
- An op that is made of others does with the sets what they do.
- Of any other, the derivative rule is a function of the cotangent, and linear: the sets of that are the transpose.

An op may also say what it does, with `sparsity=`. In the worst case each element of a result depends on all of the
inputs. The sets say what may be: they depend on no value but those that are indices, and those that decide which ops
run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tape_core.backends.kernels import DEFAULT_KERNELS
from tape_core.base.ambient import ACTIVE
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine import record, recording
from tape_core.engine.backward import lifting
from tape_core.engine.indexed_slices import dense
from tape_core.engine.op import registry
from tape_core.engine.plan import Part, Plan
from tape_core.engine.record import PLAN, SPECS
from tape_core.engine.recording import COMPLEX, new_key, retire
from tape_core.engine.rules import NONDIFF, UNWRITTEN, Rule
from tape_core.engine.tensor import Tensor, own_slots
from tape_core.modes import batching
from tape_core.sparsity.index_sets import IndexSets, composed, empty, full, identity, joined, merged, union
from tape_core.typing import Raw, Record, Slots

if TYPE_CHECKING:
    from tape_core.engine.op import BatchRule

TRIANGLE = 1 << 22
"""Pairs of an element of a running sum and one before it; above, each is taken to depend on the whole line."""

NESTED = 4
"""Depth to which functions with gradients of their own are looked into, inside those of others."""


def detect(f: Callable[..., Any], x: Tensor) -> tuple[Any, IndexSets]:
    """Return the result of `f`, a Tensor, and its index sets in `x`."""
    with Detector(math.prod(x.shape)) as detector:
        detector.know(x, identity(tuple(x.shape)))
        out = f(x)
    return out, detector.sets_of(out)


class Detector(recording.Recorder):
    """Carries index sets along while a function runs; a value's slot is its `IndexSets`."""

    __slots__ = ("_busy", "_kernels", "_key", "_parts", "members")

    _forward = True
    _special = COMPLEX  # its records have specs

    def __init__(self, members: int, busy: tuple[str, ...] = ()) -> None:
        self._key = new_key()
        self._parts: tuple[Any, Any] = ((), ())
        self._busy = busy  # ops whose rules are being looked into
        self._kernels: list[str] = []  # ops whose default kernels are running
        self.members = members

    def __enter__(self) -> Detector:
        recording.activate(self)
        return self

    def __exit__(self, *_: object) -> None:
        recording.deactivate(self)
        retire(self._key)

    def know(self, tensor: Tensor, sets: IndexSets) -> None:
        """Give a value its sets."""
        sets.array = tensor._array
        own_slots(tensor)[self._key] = sets

    def sets_of(self, tensor: Tensor) -> IndexSets:
        """Return the sets of a result."""
        found: Any = tensor._slots.get(self._key)
        return empty(tuple(tensor.shape), self.members) if found is None else found

    def _on_op(self, rec: Record) -> None:
        """Give the result of one op its sets."""
        plan = rec[PLAN]
        if type(plan) is Part:
            outs, parts = self._parts
            _put(parts[plan.k], self._key, outs[plan.k])
            return
        out, slots = record.out(rec), record.out_slots(rec)
        several = type(out) in (tuple, list)
        found: Sequence[Any] = [None] * len(out) if several else [None]
        if not plan.backend.level:  # what is inside vmap is seen where it is computed for all examples
            # What is computed for the sets is nothing for any recorder.
            with _only(()), plan.backend.quiet():
                found = _Call(self, plan, rec).outs()
        if several:
            self._parts = found, slots
        else:
            _put(slots, self._key, found[0])


def _put(slots: Slots, key: int, sets: IndexSets | None) -> None:
    # A value whose sets are all empty is a constant, and needs no slot.
    if sets is None or not sets.numbers.any():
        slots.pop(key, None)
    else:
        slots[key] = sets


@contextmanager
def _only(recorders: tuple[Any, ...]) -> Iterator[None]:
    """Enter a context in which only these record."""
    with setting(ACTIVE, recorders):
        yield


class _Call:
    """One call of an op, whose inputs have sets."""

    def __init__(self, detector: Detector, plan: Plan, rec: Record) -> None:
        self.detector = detector
        self.plan = plan.recorded
        self.rec = rec
        self.op = op = plan.op
        results = record.out(rec)
        self.results = list(results) if type(results) in (tuple, list) else [results]
        self.params = record.params(rec)
        self.kwargs = record.kwargs(rec)
        self.call = batching.Call(op, self.params, self.kwargs)
        flowing = {rule.k for rule in plan.rules}
        if op.sequence:
            slots: list[Any] = list(record.slot(rec, 0))
            specs = list(rec[SPECS][0])
            arrays = list(record.array(rec, 0) or [None] * len(slots))
        else:
            slots = [record.slot(rec, k) if k in flowing else None for k in range(plan.n)]
            specs = list(rec[SPECS] or [None] * plan.n)
            arrays = [record.array(rec, k) for k in range(plan.n)]
        # An array that the record lacks is with the sets of the value.
        self.arrays = [s.array if a is None and s is not None else a for a, s in zip(arrays, slots, strict=True)]
        self.sets: list[IndexSets | None] = slots
        self.shapes = [
            tuple(a.shape) if hasattr(a, "shape") else None if spec is None or spec[1] is None else tuple(spec[0])
            for a, spec in zip(self.arrays, specs, strict=True)
        ]

    # -- the ways, the cheapest first

    def outs(self) -> list[IndexSets | None]:
        """Return for each result its sets; None for one that has no derivative."""
        op, backend = self.op, self.plan.backend
        inexact = [backend.dtype(result.dtype).inexact for result in self.results]
        rule = batching.batch_rule(op)
        found: Any = None
        if op.sparsity is not None:
            found = op.sparsity(*self._given()).broadcast_to(tuple(self.results[0].shape))
        elif op.elementwise or rule is batching.elementwise:
            found = self._united([s for s in self.sets if s is not None], tuple(self.results[0].shape))
        else:
            for way in self._ways(rule):
                found = way()
                if found is not None:
                    break
        each = found if isinstance(found, list) else [found]
        return [
            IndexSets(sets.numbers, sets.table, result) if sets is not None and flows else None
            for sets, result, flows in zip(each, self.results, inexact, strict=True)
        ]

    def _ways(self, rule: BatchRule) -> list[Callable[[], Any]]:
        # The first two are exact, and see for themselves if they do not apply; those after them may find too many
        # entries.
        ways: list[Callable[[], Any]] = []
        if self.op.form == "linear":
            ways += [self._moved, self._moved_back]
        if rule in (batching.along, batching.along_one):
            ways += [self._along]
        elif rule is batching.running:
            ways += [self._running, self._along]
        elif hasattr(rule, "cores") and self.op.name not in DEFAULT_KERNELS:
            ways += [lambda: self._on_stacks(rule.cores)]
        made_of_others = [self._composed] if self.op.name in DEFAULT_KERNELS else []
        if self.op.form == "linear":
            ways += [self._by_rule, *made_of_others]
        else:
            ways += [*made_of_others, self._by_rule]
        return [*ways, self._full]

    def _live(self) -> list[IndexSets]:
        return [s for s in self.sets if s is not None]

    def _given(self) -> list[IndexSets]:
        """Return the sets of each input that is an array; those of constants are empty."""
        found = []
        for sets, shape in zip(self.sets, self.shapes, strict=True):
            if sets is not None:
                found.append(sets)
            elif shape is not None:
                found.append(empty(shape, self.detector.members))
        return found

    def _united(self, parts: Sequence[IndexSets], shape: tuple[int, ...]) -> IndexSets:
        return union(parts, shape, self.detector.members)

    def _full(self) -> list[IndexSets]:
        return [full(self._live(), tuple(result.shape)) for result in self.results]

    # -- by places

    def _moved(self) -> Any:
        """Return the sets of a linear op that moves elements, or puts 0: it moves their places in the same way."""
        op, backend = self.op, self.plan.backend
        kernel = op.bindings[backend][0]
        sizes = [0 if s is None else s.numbers.size for s in self.sets]

        def run(places: np.ndarray[Any, Any]) -> list[Any] | None:
            inputs, start = [], 1
            for k, (s, size) in enumerate(zip(self.sets, sizes, strict=True)):
                if s is not None:
                    inputs.append(self._raw(places[start : start + size].reshape(s.shape)))
                    start += size
                elif op.sequence or op.rules[op.inputs[k]] is not NONDIFF:
                    shape = self.shapes[k]
                    inputs.append(self._raw(np.zeros(self.results[0].shape if shape is None else shape, np.int64)))
                elif self.arrays[k] is not None:
                    inputs.append(self.arrays[k])
                else:
                    return None
            given = [inputs] if op.sequence else inputs
            out = kernel(*given, *self.params, **self.kwargs)
            return list(out) if type(out) in (tuple, list) else [out]

        places = self._selection(run, sum(sizes), [tuple(result.shape) for result in self.results])
        if places is None:
            return None
        numbers, table = joined(self._live())
        # Place 0 is an element that is 0, and has the empty set.
        flat = np.concatenate([np.zeros(1, np.int64), *[n.reshape(-1) for n in numbers]])
        return [IndexSets(flat[each], table) for each in places]

    def _moved_back(self) -> Any:
        """Return the sets of a linear op that adds up: its transpose takes each element of an input from one place."""
        if len(self.results) > 1:
            return None
        (result,), xp = self.results, self.plan.backend.xp
        size, shape = math.prod(result.shape), tuple(result.shape)
        parts = []
        for rule, lifted in zip(self.plan.rules, self.plan.lifted, strict=True):
            if rule.kind == UNWRITTEN:
                return None
            ks = [k for k, s in enumerate(self.sets) if s is not None] if self.op.sequence else [rule.k]

            def run(
                places: np.ndarray[Any, Any], rule: Rule = rule, lifted: Callable[..., Any] = lifted, ks: list[int] = ks
            ) -> list[Any]:
                found = rule.fn(xp, self._raw(places[1:].reshape(shape)), *lifted(self.rec, _as_is))
                return [found[k] for k in ks] if self.op.sequence else [dense(found)]

            places = self._selection(run, size, [self.sets[k].shape for k in ks])  # type: ignore[union-attr]
            if places is None:
                return None
            for k, each in zip(ks, places, strict=True):
                sets = self.sets[k]
                assert sets is not None
                # For each element of the input, the place in the result to which it is added; 0 for none.
                owners = each.reshape(-1)
                used = owners > 0
                parts.append(merged(sets, owners[used] - 1, sets.numbers.reshape(-1)[used], shape))
        return self._united(parts, shape)

    def _selection(self, run: Callable[[Any], Any], size: int, shapes: Sequence[Any]) -> list[Any] | None:
        """Return the place, from 1 on, from which each result of a linear function comes, and 0 for one that is 0.

        It is None if a result is anything else. The function is called with places and then with random numbers: other
        linear functions give the same picks of both only with a probability of 2**-40.
        """
        places = np.arange(size + 1)
        numbers = np.random.default_rng(size).integers(1, 1 << 40, size + 1)
        # In both calls 0 stands for an element that is 0.
        numbers[0] = 0
        try:
            found, again = [
                None if out is None else [self.plan.backend.numpy(dense(o)) for o in out]
                for out in (run(places), run(numbers))
            ]
        except Exception:  # noqa: BLE001 - as of a kernel that takes no integers; then it is found in another way
            return None
        if found is None or again is None:
            return None
        for one, other, shape in zip(found, again, shapes, strict=True):
            if one.shape != shape or one.dtype.kind not in "iuf" or not np.all((one >= 0) & (one <= size)):
                return None
            if not np.array_equal(numbers[one.astype(np.int64)], other):
                return None
        return [one.astype(np.int64, copy=False) for one in found]

    def _raw(self, array: Raw) -> Any:
        backend = self.plan.backend
        return backend.asarray(np.asarray(array, order="C"), device=backend.device(self.results[0]))

    # -- along axes

    def _axes(self, ndim: int) -> tuple[int, ...]:
        params = self.call.params
        axis = params["axes" if "axes" in params else "axis"]
        if axis is None and params.get("s") is not None:
            axis = tuple(range(-len(params["s"]), 0))
        axes = batching.from_end(axis, ndim)
        return (axes,) if isinstance(axes, int) else axes

    def _along(self) -> Any:
        """Return the sets if each line along the axes depends on itself alone."""
        given = self._given()
        ndim = max([s.ndim for s in given])
        axes = self._axes(ndim)
        lined = [s.reshape(*(1,) * (ndim - s.ndim), *s.shape) for s in given]
        shape = np.broadcast_shapes(*[s.shape for s in lined])
        shape = tuple([1 if a - ndim in axes else n for a, n in enumerate(shape)])
        whole = self._united([s.united(axes) for s in lined if s.numbers.any()], shape)
        kept = tuple([n for a, n in enumerate(shape) if a - ndim not in axes])
        found = []
        for result in self.results:
            of_result = tuple(result.shape)
            # The result may lack the axes, as a sum does, or have them, with length 1 or in full, as softmax does.
            if len(of_result) == len(kept):
                whole_of = whole.reshape(*kept)
            elif len(of_result) == ndim:
                whole_of = whole
            else:
                return None
            try:
                found.append(whole_of.broadcast_to(of_result))
            except ValueError:
                return None
        return found

    def _running(self) -> Any:
        """Return the sets if each element depends on itself and on those before it."""
        (sets,) = self._live()
        axis = self.call.params["axis"]
        axis = 0 if axis is None else axis % sets.ndim
        lines = np.moveaxis(sets.numbers, axis, -1)
        shape, n = lines.shape, lines.shape[-1]
        lines = lines.reshape(math.prod(shape[:-1]), n)
        first, second = np.tril_indices(n) if n * n * len(lines) <= 2 * TRIANGLE else (None, None)
        if first is None:
            return None
        owners = (np.arange(len(lines))[:, None] * n + first).reshape(-1)
        found = merged(sets, owners, lines[:, second].reshape(-1), shape)
        numbers = np.moveaxis(found.numbers, -1, axis)
        (result,) = self.results
        if tuple(result.shape) != numbers.shape:  # it begins with that of nothing
            before = [(result.shape[a] - n if a == axis else 0, 0) for a, n in enumerate(numbers.shape)]
            numbers = np.pad(numbers, before)
        return found.with_numbers(numbers)

    def _on_stacks(self, cores: Sequence[int]) -> Any:
        """Return the sets if each matrix of a stack depends on itself alone."""
        given = self._given()
        pairs = list(zip(given, tuple(cores) * len(given) if self.op.sequence else cores, strict=False))
        parts = [
            s.united(tuple(range(-core, 0))).reshape(*s.shape[: s.ndim - core]) if core else s for s, core in pairs
        ]
        leading = np.broadcast_shapes(*[part.shape for part in parts])
        whole = self._united(parts, leading)
        found = []
        for result in self.results:
            shape = tuple(result.shape)
            if shape[: len(leading)] != leading:
                return None
            each = whole.reshape(*leading, *(1,) * (len(shape) - len(leading)))
            found.append(each.with_numbers(np.broadcast_to(each.numbers, shape)))
        return found

    # -- by other ops

    def _composed(self) -> Any:
        """Return the sets that come out of the default kernel, which is made of other ops."""
        op, backend, key = self.op, self.plan.backend, self.detector._key
        # The kernel calls its own op: its parts would never be reached.
        if op.name in self.detector._kernels:
            return None
        xp, lift = lifting(backend)
        inputs: list[Any] = []
        for array, sets in zip(self.arrays, self.sets, strict=True):
            if array is None and not (op.optional or sets is not None):
                return None
            value = lift(array, {} if sets is None else {key: sets})
            inputs.append(value)
        params = {k: v for k, v in self.call.params.items() if v is not inspect.Parameter.empty}
        positional = [params.pop(name) for name in op.parameters.positional_only]
        given = [inputs] if op.sequence else inputs
        self.detector._kernels.append(op.name)
        try:
            with _only((self.detector,)):
                out = DEFAULT_KERNELS[op.name](xp, *given, *positional, **params)
        finally:
            self.detector._kernels.pop()
        outs = list(out) if isinstance(out, tuple | list) else [out]
        if any([not isinstance(o, Tensor) for o in outs]):
            return None
        return [self.detector.sets_of(o) for o in outs]

    def _by_rule(self) -> Any:
        """Return the transpose of the sets of an input's cotangent in that of the result, by the derivative rule."""
        op, plan = self.op, self.plan
        # An op whose rule calls the op would go on for ever. Functions with gradients of their own all have one name,
        # and may call each other: hence the depth.
        deep = self.detector._busy.count(op.name) > (0 if op.name in registry else NESTED)
        if deep or any([rule.kind == UNWRITTEN for rule in plan.rules]):
            return None
        xp, lift = lifting(plan.backend)
        results = [lift(result, {}) for result in self.results]
        flowing = [result.dtype.inexact for result in results]
        seeds = [xp.zeros_like(result) for result in results]
        total = sum([math.prod(s.shape) for s, flows in zip(seeds, flowing, strict=True) if flows])
        # A detector of its own: here the members are elements of the cotangent, not of `x`.
        inner = Detector(total, (*self.detector._busy, op.name))
        places, start = identity((total,)), 0
        for seed, flows in zip(seeds, flowing, strict=True):
            size = math.prod(seed.shape)
            if flows:
                inner.know(seed, places.with_numbers(places.numbers[start : start + size].reshape(seed.shape)))
                start += size
        ks = [k for k, s in enumerate(self.sets) if s is not None]
        numbers = (
            {0: tuple([None if s is None else k for k, s in enumerate(self.sets)])}
            if op.sequence
            else {rule.k: rule.k for rule in plan.rules}
        )
        numbered = record.with_slots(self.rec, numbers)
        grads: list[Any] = [None] * len(self.sets)
        g = tuple(seeds) if len(seeds) > 1 or type(record.out(self.rec)) in (tuple, list) else seeds[0]
        with _only((inner,)):
            plan.backward_careful(g, numbered, grads, xp, lift, False)
            grads = [dense(d) for d in grads]
        retire(inner._key)
        parts = []
        for k in ks:
            sets = self.sets[k]
            if grads[k] is not None and sets is not None:
                parts.append(composed(inner.sets_of(grads[k]).matrix(), sets))
        whole = self._united([part for part in parts if part.numbers.size], (total,))
        found, start = [], 0
        for seed, flows in zip(seeds, flowing, strict=True):
            size = math.prod(seed.shape)
            found.append(whole.with_numbers(whole.numbers[start : start + size].reshape(seed.shape)) if flows else None)
            start += size if flows else 0
        return found


def _as_is(array: Raw, slots: Slots) -> Any:
    return array
