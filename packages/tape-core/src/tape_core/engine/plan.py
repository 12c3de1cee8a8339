"""Plan: what the backward pass does with a record of one op, for one set of watched inputs.

Its fast pass is generated: the source reads as one would write it by hand for this op and these inputs, and runs
two to three times as fast as a loop over rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.base.ambient import ACTIVE
from tape_core.base.contexts import setting
from tape_core.base.generated import generated
from tape_core.engine import record
from tape_core.engine.cotangents import ALL, accumulate_each, cast, checked, mask_nans, mask_nans_of_all, project
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.record import SPECS, Lift, slot_at
from tape_core.engine.rules import CONSTANT, ONE, PARTIAL, UNWRITTEN, VJP, Rule, Spec, spec_of
from tape_core.engine.tensor import Tensor, wrap
from tape_core.typing import Cotangent, Namespace, Record

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
    from tape_core.engine.op import Op


class Plan:
    """The rules that run for a record, and what the record must keep for them.

    Attributes:
        backward: see `PlanLike`.
        make_record: make the record of a call by the general path.
        make_whole_record: the same for a recorder that computes with it at once: it has all inputs and the result.
    """

    __slots__ = (
        "_lifted",
        "_narrowed",
        "_recorded",
        "_reusing",
        "backend",
        "backward",
        "keep1",
        "keep2",
        "keep_out",
        "keeps",
        "make_record",
        "make_whole_record",
        "n",
        "op",
        "rules",
    )

    def __init__(self, op: Op, rules: Sequence[Rule], backend: Backend) -> None:
        self.op = op
        self.backend = backend
        self.rules = tuple(rules)
        self.n = 1 if op.sequence else len(op.inputs)
        self.keeps = frozenset[int]().union(*(rule.keeps for rule in rules))
        # As attributes: the call paths of one and of two inputs ask for them with each record.
        self.keep1 = 0 in self.keeps
        self.keep2 = 1 in self.keeps
        self.keep_out = any(rule.keeps_out for rule in rules)
        self.backward: Callable[..., None] = self._first_backward
        self.make_record: Callable[..., Record] = self._first_record
        self.make_whole_record: Callable[..., Record] = self._first_whole_record
        self._reusing: Callable[..., None] | None = None
        self._lifted: list[Callable[[Record, Lift], tuple[Any, ...]]] | None = None
        self._narrowed: dict[tuple[int, ...], Plan] = {}
        self._recorded: Plan | None = None

    # Compiling a generated function takes about 0.1 ms, so each is made when it is first called. Small arrays never
    # need `backward_reusing`, and ops of one or two inputs no `make_record`. `__getattr__` would be shorter, but makes
    # Python look up every attribute of a plan more slowly.

    def _first_backward(self, g: Cotangent, rec: Record, grads: list[Cotangent], xp: Namespace) -> None:
        self.backward = _generate(self, _backward_source(self.op, self.rules, reuse=False))
        self.backward(g, rec, grads, xp)

    def _first_record(self, *args: Any) -> Record:
        self.make_record = _generate(self, _record_source(self.op, self))
        made: Record = self.make_record(*args)
        return made

    def _first_whole_record(self, *args: Any) -> Record:
        self.make_whole_record = _generate(self, _record_source(self.op, self, everything=True))
        made: Record = self.make_whole_record(*args)
        return made

    @property
    def backward_reusing(self) -> Callable[..., None]:
        """See `PlanLike`. No function may stand before it, which would hold one more reference to a cotangent."""
        if self._reusing is None:
            self._reusing = _generate(self, _backward_source(self.op, self.rules, reuse=True))
        return self._reusing

    @property
    def lifted(self) -> list[Callable[[Record, Lift], tuple[Any, ...]]]:
        """A function for each rule: of a record and a `Lift`, it returns the rule's arguments."""
        if self._lifted is None:
            self._lifted = [_generate(self, _lifted_source(rule)) for rule in self.rules]
        return self._lifted

    @property
    def recorded(self) -> Plan:
        """The plan for the same records in a sweep that is recorded: with the op's own rules in place of fused ones."""
        if self._recorded is None:
            fused = any(rule.recorded for rule in self.rules)
            self._recorded = (
                Plan(self.op, [rule.recorded or rule for rule in self.rules], self.backend) if fused else self
            )
        return self._recorded

    def traced(self, backend: Backend) -> Plan:
        """Return the plan for the same records in a sweep that `backend` traces.

        It differs for fused rules, which call the library: those of the tracing backend add instructions instead. The
        records that a trace has not made itself are those of constants.
        """
        if self.backend is backend or not any(rule.recorded for rule in self.rules):
            return self
        # Plans are found by the set of watched inputs: bit k stands for input k.
        _, plans, _, _ = self.op.bindings.get(backend) or self.op.bind(backend)
        return plans[sum([1 << rule.k for rule in self.rules])] or self

    def toward(self, rec: Record, wanted: bytearray) -> Plan:
        """Return the plan without the rules for inputs into which no wanted slot flows."""
        # One rule gives the cotangents of all arrays at once, so there is none to leave out.
        if self.op.sequence:
            return self
        ks = tuple([rule.k for rule in self.rules if wanted[record.slot(rec, rule.k)]])
        if len(ks) == len(self.rules):
            return self
        if ks not in self._narrowed:
            self._narrowed[ks] = Plan(self.op, [rule for rule in self.rules if rule.k in ks], self.backend)
        return self._narrowed[ks]

    def wide_lift(self, rec: Record, xp: Namespace, lift: Lift, wide: Callable[[Any], Any]) -> Lift:
        """Return a `Lift` of the arrays of a record that converts them by `wide`, as to float32.

        The result is computed again if the record has all inputs. A rule may subtract it from what it computes of the
        inputs, or compare the two, and in float32 nothing is equal to a result that was rounded.
        """
        out, again = record.out(rec), None
        if self.keep_out and not self.op.sequence:
            inputs = [wide(lift(record.array(rec, k), record.slots(rec, k))) for k in range(self.n)]
            if not any([value is None for value in inputs]):
                recorded = any([type(value) is Tensor for value in inputs])
                again = (self.op.function if recorded else getattr(xp, self.op.name))(
                    *inputs, *record.params(rec), **record.kwargs(rec)
                )
                again = tuple(again) if type(out) in (tuple, list) else again

        return lambda array, slots: again if array is out and again is not None else wide(lift(array, slots))

    def backward_careful(
        self,
        g: Cotangent,
        rec: Record,
        grads: list[Cotangent],
        xp: Namespace,
        lift: Lift,
        masked: int,
        wide: Callable[[Any], Any] | None = None,
    ) -> None:
        """Run backward with more care: for masked and sparse cotangents, and on Tensors, so that it is recorded.

        `masked` says how far the masks of the tape reach. With `wide` rules compute with the arrays that it returns,
        and cotangents come back in the dtypes of inputs.
        """
        if isinstance(g, IndexedSlices) and self.op.elementwise and self.n == 1 and self.rules[0].kind == ONE:
            i = record.slot(rec, 0)  # the same value: slices stay slices
            grads[i] = g if grads[i] is None else g + grads[i]
            return
        if isinstance(g, Parts):
            g = g.complete(xp, self.op.materialize)
        elif not self.op.takes_slices:
            g = dense(g)
        specs = rec[SPECS]
        narrow: Any = None  # the dtype of inputs of which the record says none
        if wide is not None and self.op.widens:
            narrow = (g._array if type(g) is Tensor else g).dtype if self.op.elementwise else None
            g, lift = wide(g), self.wide_lift(rec, xp, lift, wide)
        else:
            wide = None
        commons: dict[Any, Any] = {}
        for rule, lifted in zip(self.rules, self.lifted, strict=True):
            if rule.kind == UNWRITTEN:
                raise unwritten(rule)
            if rule.kind == PARTIAL:
                named = lifted(rec, lift)
                partial = rule.fn(xp, *named)  # with a name: NumPy would make a temporary the first factor
                d = with_dependence(g * partial, named)
                # Zeros times a finite number are zeros, and where nothing sees the values a mask costs several calls.
                if masked and not (type(partial) in (int, float) and abs(partial) < _FINITE):
                    d = mask_nans(xp, g, d, partial)
            elif rule.kind == ONE:
                d = g
            elif rule.kind == CONSTANT:
                d = g * rule.fn
            elif rule.shared is not None:
                named = lifted(rec, lift)
                d = with_dependence(rule.shared.once(commons, xp, g, named), named)
            else:
                named = lifted(rec, lift)
                d = with_dependence(rule.fn(xp, g, *named), named)
            i = record.slot(rec, rule.k)
            if self.op.sequence:
                accumulate_each(xp, d, i, specs[0], grads, rule)
                continue
            if self.op.elementwise:
                if masked and rule.kind == VJP and not self.op.masks:  # `where` chooses from `g` and zeros
                    d = mask_nans(xp, g, d)
                if specs is not None and specs[rule.k] is not None:
                    d = project(xp, d, specs[rule.k])
                elif wide is not None:
                    d = cast(xp, d, narrow)
            elif isinstance(d, IndexedSlices):
                if wide is not None:
                    d = IndexedSlices(cast(xp, d.values, specs[rule.k][1]), d.indices, d.dense_shape)
            else:
                d = checked(xp, d, specs[rule.k], rule)
                # The elements of d are not those of g, so a NaN in d is surely one of 0 times infinity only where all
                # of g is 0. A rule without arrays moves and adds up elements of g: it makes no NaN of zeros.
                if masked == ALL and rule.names_arrays and type(g) is not tuple:
                    d = mask_nans_of_all(xp, g, d)
            h = grads[i]
            # Slices know how to be added to an array, not every library's array to slices.
            grads[i] = d if h is None else d + h if self.op.sparse else h + d


record_as_one: Any = None
"""Records a function with a rule of its own as one op. `tape_core.modes.function_op`, which needs plans, sets it."""


_FINITE = 2.0**15
"""A number below which numbers are finite in every dtype."""


def with_dependence(d: Cotangent, named: Sequence[Any]) -> Any:
    """Return a cotangent that depends on the values that its rule names, also if these only decide, as for relu.

    Its derivative with respect to them is 0 then, and not None: in a sweep that is recorded TensorFlow returns 0, too.
    """
    if type(d) is not Tensor:
        return d
    tapes: list[Any] = []
    used: list[Tensor] = []
    for tape in ACTIVE.get():
        if tape._forward or tape._key in d._slots:
            continue
        known = [x for x in named if type(x) is Tensor and tape._key in x._slots]
        if known:
            tapes.append(tape)
            used += [x for x in known if not any([x is y for y in used])]
    if not tapes:
        return d

    def pull(gs: list[Any], watched: list[bool], outs: list[Any]) -> list[Any]:
        zeros = [wrap(x.backend.xp.zeros_like(x._array), x.backend) for x in used]
        return [zero if w else None for zero, w in zip(zeros, watched, strict=True)]

    # For these tapes only: the others know the cotangent already, or none of the values.
    with setting(ACTIVE, tuple(tapes)):
        (found,) = record_as_one(used, [d], pull, name="decides")
    found._slots = {**d._slots, **found._slots}
    return found


def _record_source(op: Op, plan: Plan, *, everything: bool = False) -> str:
    """Return the source of a function that makes the record of a general op (see `tape_core.engine.record`)."""
    fields = ["plan"]
    if op.sequence:
        arrays = "tuple(arrays)" if plan.keeps or everything else "None"
        fields += ["(tuple(map(spec_of, arrays)),)", "tuple(at)", arrays, "tuple(slots_of)"]
    else:
        flowing = {rule.k for rule in plan.rules}
        # A sweep that is recorded runs the op's own rules in place of fused ones, on the same record.
        both = [rule for fast in plan.rules for rule in (fast, fast.recorded) if rule is not None]
        asked = " ".join(argument for rule in both for argument in rule.arguments)
        # Inputs through which something flows need a spec, by which their cotangent is checked; of the others, which
        # may be numbers, a spec is made only if a rule names it.
        specs = [
            f"(arrays[{k}].shape, arrays[{k}].dtype)"
            if k in flowing
            else f"spec_of(arrays[{k}])"
            if f"rec[{SPECS}][{k}]" in asked
            else "None"
            for k in range(plan.n)
        ]
        fields += [f"({', '.join(specs)},)"]
        for k in range(plan.n):
            fields += [
                f"at[{k}]",
                *([f"arrays[{k}]", f"slots_of[{k}]"] if k in plan.keeps or everything else ["None", "None"]),
            ]
    fields += ["out" if plan.keep_out or everything else "None", "slots"]
    if op.has_parameters:
        fields += ["params", "kwargs"]
    if any(rule.keeps_residuals for rule in plan.rules):
        fields += ["residuals"]
    header = "def record(plan, arrays, slots_of, at, out, slots, params, kwargs, residuals=()):"
    return f"{header}\n    return ({', '.join(fields)},)"


def _backward_source(op: Op, rules: Sequence[Rule], *, reuse: bool) -> str:
    """Return the source of `backward(g, rec, grads, xp)`: raw arrays, nothing masked, nothing sparse but at leaves.

    With `reuse` it is for large arrays, and overwrites memory that nobody else holds. `backend.is_exclusive(array, n)`
    says so, where n references are known: that of this frame, and that of the sweep or of the list.
    """
    lines = [f"def backward(g, rec, grads, xp{', backend' * reuse}):"]
    if op.elementwise:
        lines += [f"    specs = rec[{SPECS}]"]
    else:
        lines += ["    if type(g) is Parts:", f"        g = g.complete(xp, {op.materialize})"]
    for j, together in _sharing(rules).items():
        shared = together[0].shared
        assert shared is not None
        lines += [f"    common{j} = compute_common{j}(xp, g, {_list(together[0].arguments[: shared.n])})"]
    for j, rule in enumerate(rules):
        k, slot = rule.k, f"rec[{slot_at(rule.k)}]"
        if rule.kind == UNWRITTEN:
            lines += [f"    raise unwritten(rules[{j}])"]
            break
        body = _cotangent_source(j, rule, reuse, last=j == len(rules) - 1, common=_common_of(rule, rules))
        if op.sequence:
            lines += [*body, f"    accumulate_each(xp, d, {slot}, rec[{SPECS}][0], grads, rules[{j}])"]
            continue
        if op.elementwise:
            body += [
                f"    if specs is not None and specs[{k}] is not None:",
                f"        d = project(xp, d, specs[{k}])",
            ]
        else:
            body += [
                f"    shape, dtype = rec[{SPECS}][{k}]",
                "    if d.dtype is not dtype or d.shape != shape:",
                f"        d = checked(xp, d, rec[{SPECS}][{k}], rules[{j}])",
            ]
        # A factor of -1 is the sign with which the cotangent is added.
        sign = "-" if rule.kind == CONSTANT and rule.fn == -1 else "+"
        body += [f"    i = {slot}", "    h = grads[i]"]
        if reuse:
            body += ["    if type(h) is type(d) and backend.is_exclusive(h, 2):", f"        h {sign}= d", "    else:"]
        # Slices know how to be added to an array, not every library's array to slices.
        added = "d + h" if op.sparse else f"h {sign} d"
        body += ["    " * (1 + reuse) + f"grads[i] = {sign}d if h is None else {added}".replace("= +d", "= d")]
        # `h += g * partial` in one call, without an array for the product, where the sum so far is ours to overwrite.
        if reuse and rule.kind == PARTIAL:
            body = [
                f"    h = grads[{slot}]",
                f"    if (specs is None or specs[{k}] is None) and type(h) is type(g) and backend.is_exclusive(h, 2):",
                f"        backend.add_scaled(h, g, rule{j}, ({_arguments(rule)}))",
                "    else:",
                *("    " + line for line in body),
            ]
        lines += body
    return "\n".join(lines if rules else [*lines, "    pass"])


def _sharing(rules: Sequence[Rule]) -> dict[int, list[Rule]]:
    """Return the groups of rules that share a `common` function, by the number of the first rule."""
    groups: dict[Any, list[Rule]] = {}
    for rule in rules:
        if rule.shared is not None:
            groups.setdefault(rule.shared.common, []).append(rule)
    return {rules.index(group[0]): group for group in groups.values() if len(group) > 1}


def _common_of(rule: Rule, rules: Sequence[Rule]) -> str:
    """Return the name of the variable that holds what a rule shares with others, or an empty string."""
    return next((f"common{j}" for j, group in _sharing(rules).items() if rule in group), "")


def _cotangent_source(j: int, rule: Rule, reuse: bool, last: bool, common: str) -> list[str]:
    """Return the lines that compute `d`, the cotangent of one input."""
    if common and rule.shared is not None:
        arguments = list(rule.arguments[rule.shared.n :])
        arguments.insert(rule.shared.place, common)
        return [f"    d = shared{j}(xp, g, {_list(arguments)})"]
    if rule.kind == ONE or (rule.kind == CONSTANT and rule.fn == -1):
        return ["    d = g"]
    if rule.kind == VJP:
        return [f"    d = rule{j}(xp, g, {_arguments(rule)})"]
    if rule.kind == CONSTANT:
        return [f"    d = g * rule{j}"]
    if not reuse:
        return [f"    d = g * rule{j}(xp, {_arguments(rule)})"]
    # After the last rule g is of no use.
    exclusive = "backend.is_exclusive(g, 2)" if last else "False"
    return [f"    exclusive = {exclusive}", f"    d = backend.scale(g, rule{j}, ({_arguments(rule)}), exclusive)"]


def _arguments(rule: Rule) -> str:
    return _list(rule.arguments)


def _list(arguments: Iterable[str]) -> str:
    return "".join(f"{argument}, " for argument in arguments)


def _lifted_source(rule: Rule) -> str:
    """Return the source of a function that returns the arguments of a rule, with arrays lifted."""
    return f"def lifted(rec, lift):\n    return ({''.join(f'{a}, ' for a in rule.lifted)})"


def _generate(plan: Plan, source: str) -> Callable[..., Any]:
    """Return the function that generated source defines; tracebacks show its lines."""
    names: dict[str, Any] = {
        "__name__": __name__,  # it is ours: what looks for the user's lines passes over it
        "Parts": Parts,
        "Spec": Spec,
        "accumulate_each": accumulate_each,
        "checked": checked,
        "defaults": plan.op.parameters.defaults,
        "new_tuple": tuple.__new__,  # what a NamedTuple's own __new__ does, with less in front of it
        "project": project,
        "rules": plan.rules,
        "spec_of": spec_of,
        "unwritten": unwritten,
        **{f"rule{j}": rule.fn for j, rule in enumerate(plan.rules)},
        **{f"compute_common{j}": rule.shared.common for j, rule in enumerate(plan.rules) if rule.shared is not None},
        **{f"shared{j}": rule.shared.rule for j, rule in enumerate(plan.rules) if rule.shared is not None},
    }
    inputs = ", ".join(rule.input for rule in plan.rules)
    name = f"<tape_core: {source[4 : source.index(':')]} of {plan.op.name} for {inputs}>"
    return generated(source, source[4 : source.index("(")], name, names)


class Part:
    """The plan of the record of one of several results, which hands its cotangent to the op's record."""

    __slots__ = ("k", "specs")
    n = 1

    @property
    def recorded(self) -> Part:
        """The plan itself, which has no rules."""
        return self

    def __init__(self, k: int, specs: tuple[tuple[Any, Any], ...]) -> None:
        self.k = k
        self.specs = specs

    def backward(self, g: Cotangent, rec: Record, grads: list[Cotangent], *_: Any) -> None:
        """Collect the cotangent; the op's record comes later in the sweep."""
        base = record.slot(rec, 0)
        if grads[base] is None:
            grads[base] = Parts(self.specs)
        grads[base].cotangents[self.k] = dense(g)

    backward_reusing = backward_careful = backward

    def toward(self, rec: Record, wanted: bytearray) -> Part:
        """Return the plan itself: the op's record decides."""
        return self


class Parts:
    """The cotangents of the several results of an op that the sweep has come to so far."""

    __slots__ = ("cotangents", "specs")

    def __init__(self, specs: tuple[tuple[Any, Any], ...]) -> None:
        self.specs = specs
        self.cotangents: list[Any] = [None] * len(specs)

    def complete(self, xp: Namespace, materialize: bool) -> tuple[Any, ...]:
        """Return all cotangents; for results that nothing used zeros, or None without `materialize`."""
        if not materialize:
            return tuple(self.cotangents)
        # There is one, or the sweep would not have come to this record. It says on which device the zeros are needed.
        one = next(g for g in self.cotangents if g is not None)
        return tuple(
            xp.zeros_beside(one, shape, dtype=dtype) if g is None else g
            for g, (shape, dtype) in zip(self.cotangents, self.specs, strict=True)
        )


def unwritten(rule: Rule) -> NotImplementedError:
    """Return the error for an input that is declared TODO."""
    return NotImplementedError(
        f"{rule.where} is not written yet: a gradient exists, so it is not None. Give the op a rule with "
        f"tape_core.extend.registry.override, or cut the path with tape_core.stop_gradient"
    )
