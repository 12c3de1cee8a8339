"""ForwardAccumulator: Jacobian-vector products, computed while the function runs.

It is a recorder, as tapes are: what a tape keeps as a record, it turns at once into the tangent of the result, and lets
go. No op declares a JVP. That of a linear op is the op itself, that of an elementwise op follows from its partial
derivatives, and any other is the transpose of its VJP: the VJP is linear in the cotangent, so its own gradient with
respect to the cotangent is the JVP (J. Townsend, "A new trick for calculating Jacobian vector products", 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE
from tape_core.base.lookup import ops
from tape_core.base.reprs import counted, lenient
from tape_core.base.user_code import warn_user
from tape_core.engine import layouts, pytree, record, recording
from tape_core.engine.arguments import check_tensors, check_unconnected
from tape_core.engine.backward import gradients, lifting
from tape_core.engine.cotangents import widening
from tape_core.engine.cuts import Cuts, on_derivative
from tape_core.engine.indexed_slices import dense
from tape_core.engine.plan import Part, Plan
from tape_core.engine.record import PLAN, SPECS
from tape_core.engine.recording import COMPLEX, LIVE, new_key
from tape_core.engine.rule_errors import place_of_rule
from tape_core.engine.rules import NONDIFF, ONE, PARTIAL, UNWRITTEN, VJP
from tape_core.engine.tape import WatchError
from tape_core.engine.tensor import Tensor, own_slots, read, wrap
from tape_core.engine.variable import Variable
from tape_core.modes.replay import pause as pause_replay
from tape_core.modes.replay import resume as resume_replay
from tape_core.typing import ArrayLike, Cotangent, Namespace, PyTree, Raw, Record, Slot, Slots, Tangent

if TYPE_CHECKING:
    pass


class ForwardAccumulator(recording.InBlock):
    """Carries tangents along while a function runs: forward-mode differentiation.

    >>> import tape_core as tc
    >>> x = tc.asarray([1.0, 2.0])
    >>> with tc.ForwardAccumulator(x, tc.asarray([1.0, 0.0])) as acc:
    ...     y = tc.sum(x * x) * x
    >>> acc.jvp(y)
    Tensor([7. 4.], shape=(2,), dtype=float32, backend=numpy)

    It nests with itself and with tapes, in either order. A gradient inside it, called before it ends, makes a
    Hessian-vector product:

    >>> with tc.ForwardAccumulator(x, tc.asarray([1.0, 0.0])) as acc:
    ...     with tc.GradientTape() as tape:
    ...         tape.watch(x)
    ...         y = tc.sum(x * x * x)
    ...     gradient = tape.gradient(y, x)
    >>> acc.jvp(gradient).tolist()
    [6.0, 0.0]

    Args:
        primals: a Tensor or Variable, or any pytree of them. The tangent of a Variable stays when it is assigned to.
        tangents: the same structure: for each primal a Tensor of its shape.

    Raises:
        TypeError: a primal is no Tensor.
        ValueError: the structures differ, a tangent has another shape than its primal, a primal is given twice.
    """

    __slots__ = (
        "__weakref__",
        "_cuts",
        "_given",
        "_key",
        "_pushed_parts",
        "_variables",
    )

    _forward = True
    _special = COMPLEX  # its records have specs

    def __init__(self, primals: PyTree, tangents: PyTree) -> None:
        leaves, structure = pytree.flatten(primals)
        given, tangent_structure = pytree.flatten(tangents)
        check_tensors("ForwardAccumulator", "primals", leaves, structure)
        if len(given) == len(leaves) and tangent_structure in (list, tuple) and structure in (list, tuple):
            tangent_structure = structure  # `trainable_variables` is a tuple, and tangents are often listed
        if len(given) != len(leaves) or not pytree.same(structure, tangent_structure, len(leaves)):
            raise ValueError(
                "ForwardAccumulator: tangents must have the structure of primals; "
                + pytree.difference("tangents", tangent_structure, len(given), "primals", structure, len(leaves))
            )
        if len({id(leaf) for leaf in leaves}) < len(leaves):
            raise ValueError("ForwardAccumulator: a primal is given twice; add up its tangents")
        self._key = new_key()
        self._open = False
        self._guard: Any = None
        self._cuts: Cuts | None = None
        self._variables: dict[int, tuple[Variable, Tensor]] = {}
        self._given: list[Tensor] = []
        # Of an op of several results: their tangents and slots, until the records of the parts follow.
        self._pushed_parts: tuple[Any, Any] = ((), ())
        checked = [
            _tangent(t, x, pytree.path(structure, k)) for k, (t, x) in enumerate(zip(given, leaves, strict=True))
        ]
        for primal, tangent in zip(leaves, checked, strict=True):
            if not primal.dtype.inexact:
                warn_user(
                    f"ForwardAccumulator: a primal of dtype {primal.dtype} has no derivative, nor has what is computed "
                    f"from it"
                )
                continue
            if isinstance(primal, Variable):
                self._variables[id(primal)] = (primal, tangent)
            self._given.append(primal)
            # Values carry their tangents in their slots, so that a tangent lives as long as its value.
            own_slots(primal)[self._key] = tangent

    _kind = "Accumulator"

    def __del__(self) -> None:
        key = getattr(self, "_key", None)
        if key is not None:
            LIVE.discard(key)
            for primal in getattr(self, "_given", ()):
                primal._slots.pop(key, None)

    @lenient
    def __repr__(self) -> str:
        state = "in its block" if self._open else "not in its block"
        return f"<ForwardAccumulator: {state}, {counted(len(self._given), 'tangent')}>"

    def __enter__(self) -> ForwardAccumulator:
        """Carry tangents along from here on, or go on.

        Raises:
            RuntimeError: it does so already. (A ValueError too, as TensorFlow raises.)
        """
        if recording.is_active(self):
            raise recording.RecordingError("Accumulator is already recording.")
        self._open = True
        recording.activate(self)
        return self

    def jvp(self, primals: PyTree, unconnected_gradients: str = "none") -> Any:
        """Return the tangents of `primals`: values that the accumulator was given, or computed from these inside it.

        Args:
            primals: a Tensor or Variable, or any pytree of them.
            unconnected_gradients: for what does not depend on the accumulator's primals: `"none"` (None), `"zero"`
                (zeros of its shape and dtype) or `"error"` (raise).

        Returns:
            The structure of `primals`; at each leaf a Tensor of its shape and dtype.
        """
        check_unconnected(unconnected_gradients)
        leaves, structure = pytree.flatten(primals)
        check_tensors("jvp", "primals", leaves, structure)
        found: list[Any] = []
        for k, leaf in enumerate(leaves):
            tangent = leaf._slots.get(self._key)
            if tangent is None and id(leaf) in self._variables:
                tangent = self._variables[id(leaf)][1]
            if tangent is None and unconnected_gradients == "error":
                raise ValueError(
                    f"jvp: primals{pytree.path(structure, k)} of shape {leaf.shape} does not depend on the primals "
                    f"of the accumulator, or was not computed inside its context"
                )
            found.append(tangent)
        if ACTIVE.get():
            on_derivative(leaves, found)
        if unconnected_gradients == "zero":
            found = [
                wrap(leaf.backend.xp.zeros_like(leaf._array), leaf.backend) if tangent is None else tangent
                for leaf, tangent in zip(leaves, found, strict=True)
            ]
        return pytree.unflatten(structure, found)

    # -- as a recorder

    def _watches(self, variable: Variable) -> bool:
        return id(variable) in self._variables

    def _on_read(self, variable: Variable) -> Slot:
        entry = self._variables.get(id(variable))
        if self._cuts is not None:
            self._cuts.read.add(id(variable))
        if entry is None:
            return None
        # An assignment has given the Variable new slots; its tangent stays.
        own_slots(variable)[self._key] = entry[1]
        return entry[1]

    def _on_op(self, rec: Record) -> None:
        """Push tangents through one op: a value's slot is its tangent."""
        plan = rec[PLAN]
        if type(plan) is Part:
            tangents, parts = self._pushed_parts
            _put(parts[plan.k], self._key, tangents[plan.k])
            return
        active = ACTIVE.get()
        replay = pause_replay()
        try:
            # Those around it record the tangents; the accumulator itself must not, or it would push tangents of
            # tangents.
            ACTIVE.set(recording.recorders_around(self))
            with plan.backend.quiet():
                tangent = push(plan, rec)
        finally:
            ACTIVE.set(active)
            resume_replay(replay)
        slots = record.out_slots(rec)
        if type(slots) is list:  # several results, whose parts follow
            self._pushed_parts = tangent, slots
        else:
            _put(slots, self._key, tangent)


def _put(slots: Slots, key: int, tangent: Tangent) -> None:
    # The call path has put a slot there already, as it does for tapes.
    if tangent is None:
        slots.pop(key, None)
    else:
        slots[key] = tangent


def _tangent(given: ArrayLike, primal: Tensor, path: str) -> Tensor:
    if isinstance(given, Tensor) or hasattr(given, "dtype"):
        tangent = read(given, f"ForwardAccumulator: tangents{path}", primal)
    else:
        try:
            tangent = ops.asarray(given, dtype=primal.dtype, backend=primal.backend.root)
        except TypeError as error:
            raise WatchError(f"ForwardAccumulator: tangents{path}: {error}") from None
    if tangent.shape != primal.shape:
        raise ValueError(
            f"ForwardAccumulator: tangents{path} has shape {tangent.shape}, its primal has shape {primal.shape}"
        )
    if tangent.backend.library is not primal.backend.library:
        raise TypeError(
            f"ForwardAccumulator: tangents{path} is on backend {tangent.backend.name!r}, its primal on "
            f"{primal.backend.name!r}"
        )
    if tangent.dtype is not primal.dtype and primal.dtype.inexact:
        if tangent.dtype.kind == "complex floating" and primal.dtype.kind != "complex floating":
            raise TypeError(
                f"ForwardAccumulator: tangents{path} has dtype {tangent.dtype}, its primal is real: {primal.dtype}; "
                f"make the primal complex, or give the real and the imaginary part one after the other"
            )
        tangent = ops.astype(tangent, primal.dtype)
    if layouts.in_use:
        tangent = ops.laid_out_like(tangent, primal)
    return tangent  # type: ignore[no-any-return]


# -- one op


def push(plan: Plan, rec: Record) -> Any:
    """Return the tangent of an op's result, or a tuple of them, for a record whose slots are tangents.

    It is None for a result that has no derivative.
    """
    try:
        return _pushed(plan, rec)
    except Exception as error:
        error.add_note(place_of_rule(error, rec, "in forward mode", plan.backend))
        raise


def _pushed(plan: Plan, rec: Record) -> Any:
    if plan.op.push is not None and (found := plan.op.push(plan, rec)) is not NotImplemented:
        return found
    # Tangents are Tensors, and fused rules take raw arrays only.
    plan = plan.recorded
    out = record.out(rec)
    if any([rule.kind == UNWRITTEN for rule in plan.rules]) or type(out) in (tuple, list):
        return _push_by_transpose(plan, rec, out)
    if not plan.backend.dtype(out.dtype).inexact:
        return None
    if plan.op.form == "linear":
        found = _push_linear(plan, rec)
    elif plan.op.multilinear:
        found = _push_multilinear(plan, rec)
    elif plan.op.elementwise and not _needs_transpose(plan, rec, out):
        found = _push_elementwise(plan, rec)
    else:
        return _push_by_transpose(plan, rec, out)
    return _push_by_transpose(plan, rec, out) if found is None else _like(found, out, plan)


def _like(tangent: Tensor, out: Raw, plan: Plan) -> Tensor:
    """Return a tangent in the result's shape and dtype."""
    dtype, shape = plan.backend.dtype(out.dtype), tuple(out.shape)
    if tangent.dtype is not dtype:
        tangent = ops.astype(tangent, dtype)
    return tangent if tangent.shape == shape else ops.broadcast_to(tangent, shape)


def _push_linear(plan: Plan, rec: Record) -> Any:
    """Return a linear op of the tangents; None if the record lacks an input that the op needs."""
    op = plan.op
    xp, lift = lifting(plan.backend)
    inputs: list[Any]
    if op.sequence:
        inputs = []
        specs, tangents = rec[SPECS][0], record.slot(rec, 0)
        one = next(t for t in tangents if t is not None)
        for (shape, dtype), tangent in zip(specs, tangents, strict=True):
            if dtype is None:
                return None
            inputs.append(xp.zeros_beside(one, tuple(shape), dtype=dtype) if tangent is None else tangent)
        inputs = [inputs]
    else:
        flowing = {rule.k for rule in plan.rules}
        inputs = []
        for k, name in enumerate(op.inputs):
            array = record.array(rec, k)
            if k in flowing:
                inputs.append(record.slot(rec, k))
            elif op.rules[name] is NONDIFF and array is not None:
                inputs.append(lift(array, record.slots(rec, k)))
            else:
                return None
    return _call_again(plan, rec, inputs)


def _call_again(plan: Plan, rec: Record, inputs: list[Any]) -> Any:
    """Call the op with other inputs, and the parameters of the record."""
    return plan.op.function(*inputs, *record.params(rec), **record.kwargs(rec))


def _push_multilinear(plan: Plan, rec: Record) -> Any:
    """Return the sum of a multilinear op's values, each with one tangent in place of its input; None as above."""
    _, lift = lifting(plan.backend)
    sequence = plan.op.sequence
    if sequence:
        tangents, arrays, slots = record.slot(rec, 0), record.array(rec, 0), record.slots(rec, 0)
    else:
        flowing = {rule.k for rule in plan.rules}
        tangents = [record.slot(rec, k) if k in flowing else None for k in range(plan.n)]
        arrays = [record.array(rec, k) for k in range(plan.n)]
        slots = [record.slots(rec, k) for k in range(plan.n)]
    # The product rule: the derivative of an op that is linear in each input.
    total: Any = None
    for k, tangent in enumerate(tangents):
        if tangent is None:
            continue
        if any([array is None for j, array in enumerate(arrays) if j != k]):
            return None
        inputs = [tangent if j == k else lift(array, slots[j]) for j, array in enumerate(arrays)]
        term = _call_again(plan, rec, [inputs] if sequence else inputs)
        total = term if total is None else total + term
    return total


def _needs_transpose(plan: Plan, rec: Record, out: Raw) -> bool:
    """Return whether a rule may differ from its transpose: `real`, say, is not linear over the complex numbers."""
    dtypes = [record.slot(rec, rule.k).dtype for rule in plan.rules]
    if not any([dtype.kind == "complex floating" for dtype in dtypes]):
        return False
    return any([rule.kind == VJP for rule in plan.rules]) or plan.backend.dtype(out.dtype).kind != "complex floating"


def _push_elementwise(plan: Plan, rec: Record) -> Any:
    xp, lift = lifting(plan.backend)
    out = record.out(rec)
    shape = tuple(out.shape)
    wide = _widening(plan, xp, out)
    if wide is not None:
        lift = plan.wide_lift(rec, xp, lift, wide)
    total: Any = None
    for rule, lifted in zip(plan.rules, plan.lifted, strict=True):
        t = record.slot(rec, rule.k)
        t = t if wide is None else wide(t)
        if rule.kind == VJP:
            # A diagonal map is its own transpose; it expects what has the result's shape.
            t = rule.fn(xp, t if t.shape == shape else ops.broadcast_to(t, shape), *lifted(rec, lift))
        elif rule.kind == PARTIAL:
            t = rule.fn(xp, *lifted(rec, lift)) * t
        elif rule.kind != ONE:
            t = t * rule.fn
        total = t if total is None else total + t
    return total


def _widening(plan: Plan, xp: Namespace, out: Raw) -> Any:
    """Return a function that converts narrow dtypes to float32 if the result has one, else None."""
    narrow = plan.backend.narrow
    return widening(plan.backend, xp) if narrow and plan.op.widens and plan.backend.dtype(out.dtype) in narrow else None


def _push_by_transpose(plan: Plan, rec: Record, out: Raw) -> Any:
    """Return the transpose of the VJP, of the tangents: a tape on the cotangent of the VJP finds it."""
    from tape_core.engine.cotangents import conj
    from tape_core.engine.tape import GradientTape

    xp, lift = lifting(plan.backend)
    several = type(out) in (tuple, list)
    outs = [lift(o, {}) for o in out] if several else [lift(out, {})]
    flowing = [o.dtype.inexact for o in outs]
    wide = _widening(plan, xp, out[0] if several else out)
    # The rule is linear in the cotangent, so any one will do; a library's own derivative of it may need one but 0.
    seeds = [(xp.ones_like if plan.op.foreign else xp.zeros_like)(o) for o in outs]
    watched = [seed for seed, flows in zip(seeds, flowing, strict=True) if flows]
    sequence = plan.op.sequence
    tangents = list(record.slot(rec, 0)) if sequence else [record.slot(rec, rule.k) for rule in plan.rules]
    # The slots of the record are tangents; with numbers in their place the plan adds the cotangents to a list.
    numbers = (
        {0: tuple([None if t is None else k for k, t in enumerate(tangents)])}
        if sequence
        else {rule.k: j for j, rule in enumerate(plan.rules)}
    )
    numbered = record.with_slots(rec, numbers)

    def pulled(seeds: list[Any]) -> list[Any]:
        grads: list[Any] = [None] * len(tangents)
        plan.backward_careful(tuple(seeds) if several else seeds[0], numbered, grads, xp, lift, False, wide)
        return [dense(g) for g in grads]

    tape = GradientTape(watch_accessed_variables=False)
    # The user's rule may take values out of Tensors, where a tape sees nothing; the cuts tell if it did.
    if plan.op.of_functions:
        tape._cuts = Cuts()
    with tape:
        tape.watch(watched)
        grads = pulled(seeds)
    if tape._cuts is not None and tape._cuts.taken_out:
        results = by_elements(pulled, seeds, flowing, tangents)
        return tuple(results) if several else results[0]
    pairs = [(g, t) for g, t in zip(grads, tangents, strict=True) if g is not None and t is not None]
    if not pairs:  # the rules lead to nothing that has a tangent
        return (None,) * len(outs) if several else None
    found: list[Any] = [None] * len(watched)
    if watched:
        # The tape conjugates what is complex, a tangent is carried along as it is.
        found = gradients(tape, [g for g, _ in pairs], watched, [conj(t) for _, t in pairs], release=True)
    each = iter([xp.zeros_like(seed) if t is None else conj(t) for t, seed in zip(found, watched, strict=True)])
    results = [next(each) if flows else None for flows in flowing]
    return tuple(results) if several else results[0]


def by_elements(
    pulled: Callable[[list[Any]], list[Cotangent]], seeds: list[Any], flowing: list[bool], tangents: list[Any]
) -> list[Any]:
    """Return the transpose of a function of cotangents that no tape can follow, as one that computes with NumPy.

    The function is linear over the real numbers. So the tangent of an element of the result is the product of the
    tangents with the function's value for a cotangent of 1 at that element, and of i for an imaginary part.
    """

    def paired(k: int, seed: Any) -> Any:
        found = pulled([seed if j == k else other for j, other in enumerate(seeds)])
        terms = [ops.sum(g * t) for g, t in zip(found, tangents, strict=True) if g is not None and t is not None]
        value = sum(terms[1:], terms[0]) if terms else ops.sum(seed) * 0
        return ops.real(value) if value.dtype.kind == "complex floating" else value

    results: list[Any] = []
    for k, (seed, flows) in enumerate(zip(seeds, flowing, strict=True)):
        if not flows:
            results.append(None)
            continue
        is_complex = seed.dtype.kind == "complex floating"
        elements = []
        for i in range(seed.size):
            place = ops.arange(seed.size, backend=seed.backend.root, device=seed.device) == i
            one = ops.astype(ops.reshape(place, seed.shape), seed.dtype)
            element = paired(k, one)
            elements.append(element - 1j * paired(k, one * 1j) if is_complex else element)
        results.append(ops.reshape(ops.astype(ops.stack(elements), seed.dtype), seed.shape) if elements else seed)
    return results
