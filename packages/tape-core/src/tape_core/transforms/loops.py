"""Branches and loops of flat lists of Tensors, and their derivatives.

Where no tape or accumulator records, they run as Python loops, or become one instruction of a compiled function. Where
one does, a scan of few steps is unrolled: its steps are called one after the other, and each op is recorded. Any other
loop is one record. Its residuals are the carries that went into each step; its derivative is a loop too, which goes
over the residuals and runs each step again. Compiled or not, the same rule decides which of the two it is, so eager and
compiled derivatives are made of the same functions and have the same bits. Only for compilers with loops of their own,
whose bits may be others, is each scan a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tape_core import random
from tape_core.base.ambient import MASKED, OBSERVERS, UNROLLED_STEPS
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine.cuts import Cuts, cuts_of, on_tangents
from tape_core.engine.levels import move_to_level
from tape_core.engine.recording import Recorder
from tape_core.engine.tensor import Tensor
from tape_core.modes.forward import ForwardAccumulator
from tape_core.modes.function_op import (
    Axes,
    Pull,
    Push,
    axes_inside,
    below,
    lower_tangent,
    raise_derivative,
    record_as_one,
    with_all_axes,
)
from tape_core.modes.replay import is_replaying, recompute_in_traces
from tape_core.ops.creation import asarray, zeros, zeros_like
from tape_core.ops.data_types import off_tapes
from tape_core.ops.manipulation import stack, unstack
from tape_core.staging import current
from tape_core.transforms import traced
from tape_core.transforms.calls import substitute, unrecorded
from tape_core.transforms.closures import Closure, capture_closure, is_recorded, note_uses, share_slots
from tape_core.transforms.custom import linear_transpose, with_own_slots
from tape_core.typing import Scalar

Tensors = list[Any]
Step = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]  # (carry, elements) -> (carry, results)
Test = Callable[[Tensors], Any]  # carry -> bool
Branch = Callable[[Tensors], Tensors]

UNROLL_MAX_STEPS = 128
"""Steps: a recorded scan of at most so many is unrolled; the steps of nested scans are multiplied."""


# -- without derivatives


@recompute_in_traces
def _run_cond(predicate: Tensor | Scalar, branches: Sequence[Branch], operands: Tensors) -> Tensors:
    if (stage := current()) is not None and isinstance(predicate, Tensor):
        found = stage.cond(predicate, branches, operands)
        if found is not None:
            return found
    if isinstance(predicate, Tensor) and (flows := traced.flows_of([predicate])) is not None:
        return traced.cond(flows, predicate, branches, operands)
    return branches[0 if bool(predicate) else 1](operands)


@recompute_in_traces
def _run_while(test: Test, step: Step, carry: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
    if (stage := current()) is not None:
        found = stage.while_loop(test, step, carry, keep)
        if found is not None:
            return found
    first, saved = carry, []
    while True:
        going = test(carry)
        if isinstance(going, Tensor) and (flows := traced.flows_of([going])) is not None:
            if keep:
                raise NotImplementedError(_UNKNOWN_STEPS)
            return traced.while_loop(flows, test, step, carry), [], []
        if not bool(going):
            break
        if keep:
            saved.append(carry)
        carry, _ = step(carry, [])
    return carry, [], _stack_columns(saved, first, reverse=False) if keep else []


@recompute_in_traces
def _run_scan(
    step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
) -> tuple[Tensors, Tensors, Tensors]:
    if (stage := current()) is not None:
        found = stage.scan(step, carry, xs, length, reverse, keep)
        if found is not None:
            return found
    if length > 1 and (flows := traced.flows_of([*carry, *xs])) is not None:
        try:
            return traced.scan(flows, step, carry, xs, length, reverse, keep)
        except traced.UntraceableError as error:
            if keep:  # its steps draw by their number
                raise NotImplementedError(_LONG.format(steps=length, error=error)) from error
    return _run_steps(step, carry, xs, length, reverse, keep)


_UNKNOWN_STEPS = (
    "while_loop: a tape or accumulator records it where JAX traces it, inside jax.jit or jax.vmap: its derivative "
    "needs the carry of each step, of which the number is not known there. Let JAX differentiate it forward, as "
    "jax.jvp and jax.jacfwd do, or use tape_core.scan, whose number of steps is known"
)

_LONG = (
    "scan: a tape or accumulator records its {steps} steps as one loop, which JAX traces once for all, and a step "
    "{error}; let JAX differentiate, as jax.grad does"
)


@recompute_in_traces
def _run_steps(
    step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
) -> tuple[Tensors, Tensors, Tensors]:
    first, saved, results = carry, [], []
    columns = [unstack(x) for x in xs] if length else []
    for k in range(length - 1, -1, -1) if reverse else range(length):
        if keep:
            saved.append(carry)
        carry, ys = step(carry, [column[k] for column in columns])
        results.append(ys)
    if not results:
        # Without elements there is no result to take shapes and dtypes from: a step on zeros gives them.
        with unrecorded():
            like = step(list(map(off_tapes, carry)), [_zeros_of_element(x) for x in xs])[1]
            return carry, _stack_columns([], like, reverse), _stack_columns([], first, reverse) if keep else []
    return carry, _stack_columns(results, results[0], reverse), _stack_columns(saved, first, reverse) if keep else []


def _zeros_of_element(x: Tensor) -> Tensor:
    """Return zeros of the shape of one element of `x`."""
    return zeros(x.shape[1:], dtype=x.dtype, backend=x.backend.root, device=x.device)


def _stack_columns(rows: list[Tensors], like: Tensors, reverse: bool) -> Tensors:
    """Stack rows of Tensors by column, in the order of the elements; without rows return arrays of length 0."""
    if not rows:
        return [t[None][:0] for t in like]
    return [stack(list(column)[::-1] if reverse else list(column)) for column in zip(*rows, strict=True)]


# -- with derivatives


def cond(what: str, predicate: Tensor | Scalar, branches: Sequence[Branch], operands: Tensors) -> Tensors:
    """Return the results of the first branch if the predicate, a scalar, is true, else those of the second."""
    if not is_recorded():
        return _run_cond(predicate, branches, operands)
    draws = _DrawStates()

    # A branch counts as step 0 of a loop, so that its random numbers can be drawn again.
    def drawing(branch: Branch) -> Branch:
        def run(operands: Tensors) -> Tensors:
            draws.on_step(zero)
            outs = branch(operands)
            note_uses(outs)
            return outs

        return run

    zero = _zero_beside(operands)
    # Detached: the call is one record, and its ops leave none.
    values = list(map(off_tapes, operands))
    with capture_closure(what) as closure, draws.observe():
        outs = _run_cond(predicate, [drawing(branch) for branch in branches], values)
    rerun = _Rerun(closure, operands)
    flowing = _inexact(outs)

    def pull(gs: list[Any], watched: list[bool], known: list[Tensor]) -> list[Any]:
        inner, masked = axes_inside(), MASKED.get()
        given = [k for k, g in zip(flowing, gs, strict=True) if g is not None]
        # Filled while the branches run: only they show which inputs get a cotangent.
        reached: set[int] = set()

        def results(branch: Branch, values: Tensors) -> Tensors:
            outs = branch(values)
            return [outs[k] for k in given]

        def back(branch: Branch) -> Branch:
            def run(values: Tensors) -> Tensors:
                with draws.replay(zero):
                    found = rerun.transpose(
                        lambda values: results(branch, values),
                        values[: len(operands)],
                        values[len(operands) :],
                        watched,
                        inner,
                        masked,
                    )
                reached.update([k for k, d in enumerate(found) if d is not None])
                return rerun.materialize_zeros(found, watched, values)

            return run

        values = [*operands, *[g for g in gs if g is not None]]
        found = iter(cond(what, predicate, [back(branch) for branch in branches], values))
        ends = [next(found) if w else None for w in watched]
        return [d if k in reached else None for k, d in enumerate(ends)]

    def push(ts: list[Any], known: list[Tensor]) -> list[Any]:
        inner = axes_inside()
        reached: set[int] = set()

        def forward(branch: Branch) -> Branch:
            def run(values: Tensors) -> Tensors:
                def results(values: Tensors) -> Tensors:
                    return [t for t in branch(values) if t.dtype.inexact]

                with draws.replay(zero):
                    found, outs = rerun.push_forward(results, values, ts, inner)
                reached.update([k for k, t in enumerate(found) if t is not None])
                return _materialize_zeros(found, outs)

            return run

        found = cond(what, predicate, [forward(branch) for branch in branches], operands)
        return [t if k in reached else None for k, t in enumerate(found)]

    return rerun.record(what, outs, flowing, pull, push)


def while_loop(what: str, test: Test, step: Branch, carry: Tensors) -> Tensors:
    """Step while the test of the carry is true, and return the last carry."""

    def run(step: Step, carry: Tensors, xs: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
        return _run_while(lambda carry: test(carry[:n]), step, carry, keep)

    n = len(carry)
    return _loop(what, run, lambda carry, _: (step(carry), []), carry, [], reverse=False)[0]


def scan(what: str, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool) -> tuple[Tensors, Tensors]:
    """Step through the elements of `xs` along axis 0; return the last carry and the results of the steps, stacked."""
    steps, stage = UNROLLED_STEPS.get() * length, current()
    # A checkpoint with a policy records only in its second run, but must find the same ops in both: unroll in the
    # first, too.
    if steps <= UNROLL_MAX_STEPS and (is_recorded() or (is_replaying() and stage is not None)):
        if stage is not None and stage.fixed_shapes and not is_replaying():
            # The compiler has loops of its own, which keep what derivatives need of each step. It cannot take a step
            # that does what must happen once.
            found = stage.attempt(lambda: _scan(what, step, carry, xs, length, reverse))
            if found is not None:
                return found
        if stage is None and length > 1 and (flows := traced.flows_of([*carry, *xs])) is not None:
            try:
                return _loop(what, partial(_traced_steps, flows, length, reverse), step, carry, xs, reverse)
            except traced.UntraceableError:
                pass
        with setting(UNROLLED_STEPS, max(steps, 1)):
            last, ys, _ = _run_steps(step, carry, xs, length, reverse, False)
        return last, ys
    return _scan(what, step, carry, xs, length, reverse)


def _traced_steps(
    flows: Any, length: int, reverse: bool, step: Step, carry: Tensors, xs: Tensors, keep: bool
) -> tuple[Tensors, Tensors, Tensors]:
    return traced.scan(flows, step, carry, xs, length, reverse, keep)


def _scan(what: str, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool) -> tuple[Tensors, Tensors]:
    """Run a scan that is one record, whatever its length."""

    def run(step: Step, carry: Tensors, xs: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
        return _run_scan(step, carry, xs, length, reverse, keep)

    return _loop(what, run, step, carry, xs, reverse)


def _loop(
    what: str, run: Callable[..., Any], step: Step, carry: Tensors, xs: Tensors, reverse: bool
) -> tuple[Tensors, Tensors]:
    """Run a loop and record it as one op; return the last carry and the results of the steps.

    The op's inputs are the inexact parts of the carry and of `xs`, then the closure. Its results are, in this order,
    the inexact parts of the last carry, of `ys`, and of the residuals (the carry that went into each step). The
    residuals are results, since the next order of derivatives flows through them, too. Short names count these parts:
    `n` of the carry, of which `m` are inexact, those at `carried`; `given` are the inexact ones of `ys`.
    """
    if not is_recorded():
        carry, ys, _ = run(step, carry, xs, False)
        return carry, ys
    draws = _DrawStates()

    def counting_step(carry: Tensors, xs: Tensors) -> tuple[Tensors, Tensors]:
        *carry, number = carry
        draws.on_step(number)
        carry, ys = step(carry, xs)
        note_uses([*carry, *ys])
        return [*carry, number + 1], ys

    # The last part of the carry is the number of the step, by which `draws` finds the states of generators.
    start, elements = [*map(off_tapes, carry), _zero_beside([*carry, *xs])], list(map(off_tapes, xs))
    with capture_closure(what) as closure, draws.observe():
        (*last, _), ys, (*saved, numbers) = run(counting_step, start, elements, True)
    # A while loop shows only now how many steps it takes.
    length = numbers.shape[0]
    rerun = _Rerun(closure, [*carry, *xs])
    carried, given = _inexact(carry), _inexact(ys)
    n, m = len(carry), len(carried)
    outs = [*last, *ys, *saved]
    flowing = [*carried, *[n + k for k in given], *[n + len(ys) + k for k in carried]]

    def results(values: Tensors) -> Tensors:
        new, ys = step(values[:n], values[n:])
        return [*[new[k] for k in carried], *[ys[k] for k in given]]

    def residuals(known: list[Tensor]) -> Tensors:
        """Return the stacked operands of all steps, as Tensors that tapes around know, and the numbers of the steps."""
        stacks = list(saved)
        for k, tensor in zip(carried, known[m + len(given) :], strict=True):
            stacks[k] = tensor
        return [*stacks, *xs, numbers]

    def pull(gs: list[Any], watched: list[bool], known: list[Tensor]) -> list[Any]:
        # Start with the parts of the carry that get a cotangent from outside; where a step passes one on to another
        # part, add that part and begin again. Each round adds a part, so there are at most m.
        carrying = [g is not None or h is not None for g, h in zip(gs[:m], gs[m + len(given) :], strict=True)]
        while True:
            try:
                return pull_with(gs, [*carrying, *watched[m:]], known)
            except _ReachedError as reached:
                carrying = [a or k in reached.places for k, a in enumerate(carrying)]

    def pull_with(gs: list[Any], wanted: list[bool], known: list[Tensor]) -> list[Any]:
        """Return the cotangents of the inputs, if of the carry exactly the wanted parts get one.

        Raises:
            _ReachedError: other parts of the carry get one, too.
        """
        inner, masked = axes_inside(), MASKED.get()
        gys, gsaved = gs[m : m + len(given)], gs[m + len(given) :]
        by_step = [g for g in [*gys, *gsaved] if g is not None]
        carrying = [k for k in range(m) if wanted[k]]
        elements = [k for k in range(m, len(rerun.places)) if wanted[k]]
        around = [k for k in range(len(rerun.places), len(wanted)) if wanted[k]]
        reached: set[int] = set()

        def back(totals: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
            *values, number = row[: n + len(xs) + 1]
            each = iter(row[n + len(xs) + 1 :])
            own = dict(zip(carrying, totals, strict=False))
            cotangents = [*[own.get(k) for k in range(m)], *[None if g is None else next(each) for g in gys]]
            with draws.replay(number):
                # All parts of the carry are asked for: a cotangent that one of them gets belongs to the step before.
                all_wanted = [k < m or w for k, w in enumerate(wanted)]
                found = rerun.transpose(results, values, cotangents, all_wanted, inner, masked)
            reached.update([k for k, d in enumerate(found) if d is not None])
            if not reached.isdisjoint(k for k in range(m) if not wanted[k]):
                raise _ReachedError(reached)
            full = dict(zip([*carrying, *elements], rerun.materialize_zeros(found, wanted, values), strict=False))
            new = [full[k] if gsaved[k] is None else full[k] + next(each) for k in carrying]
            # Each step has its share of the cotangents of the closure; the carry adds them up.
            so_far = zip(totals[len(carrying) :], around, strict=True)
            new += [t if found[k] is None else t + found[k] for t, k in so_far]
            return new, [full[k] for k in elements]

        start = [_zeros_like(carry[carried[k]]) if gs[k] is None else gs[k] for k in carrying]
        start += [_zeros_like(rerun.inputs[k]) for k in around]
        ends, stacks = _scan(what, back, start, [*residuals(known), *by_step], length, not reverse)
        # No step has run to fill it: the cotangents of the carry pass through.
        if not length:
            reached.update([k for k in carrying if gs[k] is not None])
        reached.update([k for k in carrying if gsaved[k] is not None])
        found = dict(zip([*carrying, *around, *elements], [*ends, *stacks], strict=True))
        return [found[k] if k in reached else None for k in range(len(wanted))]

    def push(ts: list[Any], known: list[Tensor]) -> list[Any]:
        # As in `pull`: begin with the parts that move from outside, and add those that a step reaches.
        carrying = {k for k in range(m) if ts[k] is not None}
        while True:
            try:
                return push_with(ts, sorted(carrying), known)
            except _ReachedError as reached:
                carrying |= reached.places

    def push_with(ts: list[Any], carrying: list[int], known: list[Tensor]) -> list[Any]:
        """Return the tangents of the results, if of the carry exactly these parts have one.

        Raises:
            _ReachedError: other parts of the carry have one, too.
        """
        inner = axes_inside()
        moving = [k for k in range(m, len(rerun.places)) if ts[k] is not None]
        reached: set[int] = set()

        def forward(tangents: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
            *values, number = row[: n + len(xs) + 1]
            own = [*[None] * m, *ts[m:]]
            for k, t in zip([*carrying, *moving], [*tangents, *row[n + len(xs) + 1 :]], strict=True):
                own[k] = t
            with draws.replay(number):
                found, outs = rerun.push_forward(results, values, own, inner)
            reached.update([k for k, t in enumerate(found) if t is not None])
            if not reached.isdisjoint(k for k in range(m) if k not in carrying):
                raise _ReachedError({k for k in reached if k < m})
            full = _materialize_zeros(found, outs)
            return [full[k] for k in carrying], [*full[m:], *tangents]

        start = [_zeros_like(carry[carried[k]]) if ts[k] is None else ts[k] for k in carrying]
        rows = [*residuals(known), *[ts[k] for k in moving]]
        last, others = _scan(what, forward, start, rows, length, reverse)
        if reached:
            on_tangents(known)
        by_step = len(given)
        ends, befores = dict(zip(carrying, last, strict=True)), dict(zip(carrying, others[by_step:], strict=True))
        if length:
            ends = {k: t for k, t in ends.items() if k in reached}
        return [
            *[ends.get(k) for k in range(m)],
            *[t if m + k in reached else None for k, t in enumerate(others[:by_step])],
            *[befores.get(k) for k in range(m)],
        ]

    outs = rerun.record(what, outs, flowing, pull, push)
    return outs[:n], outs[n : n + len(ys)]


class _ReachedError(Exception):
    """Parts of a carry got a derivative that were assumed to have none: the loop starts again with them."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()
        self.places = places


class _Rerun:
    """A function that runs again for its derivatives, by its arguments and by its closure.

    Attributes:
        places: the indices of the arguments that have derivatives.
        inputs: these arguments, then the Variables and the Tensors of the closure.
    """

    def __init__(self, closure: Closure, arguments: Tensors) -> None:
        self.places = _inexact(arguments)
        self.around = closure
        self.variables = closure.variables
        self.read = [v._read() for v in self.variables]
        self.inputs = [*[arguments[k] for k in self.places], *self.read, *self.around.tensors]

    def record(self, what: str, outs: Tensors, flowing: list[int], pull: Pull, push: Push) -> Tensors:
        """Record the results at the places `flowing` as one op of the inputs, and return all results."""
        if self.inputs and flowing:
            self.around.cuts = cuts_of(self.inputs)
            outs = list(outs)
            found = record_as_one(self.inputs, [outs[k] for k in flowing], pull, push, what)
            for k, tensor in zip(flowing, found, strict=True):
                outs[k] = tensor
        return outs

    def _at(self, f: Branch, arguments: Tensors, given: Tensors) -> Tensors:
        arguments, n = list(arguments), len(self.places)
        for k, value in zip(self.places, given[:n], strict=True):
            arguments[k] = value
        with substitute(self.variables, given[n:]):
            return f(arguments)

    def transpose(
        self, f: Branch, arguments: Tensors, gs: Sequence[Any], wanted: Sequence[bool], inner: Axes, masked: int
    ) -> Tensors:
        """Return the cotangents of the inputs for those of the results; None where not wanted or not reached."""
        at = [*[with_all_axes(arguments[k], inner) for k in self.places], *self.read]
        return linear_transpose(lambda given: self._at(f, arguments, given), at, gs, wanted, self.around, inner, masked)

    def materialize_zeros(self, found: Tensors, wanted: Sequence[bool], arguments: Tensors) -> Tensors:
        """Return the wanted cotangents, with zeros for the inputs that got none."""
        at = [*[arguments[k] for k in self.places], *self.read, *self.around.tensors]
        return [_zeros_like(x) if d is None else d for d, w, x in zip(found, wanted, at, strict=True) if w]

    def push_forward(self, f: Branch, arguments: Tensors, ts: Sequence[Any], inner: Axes) -> tuple[Tensors, Tensors]:
        """Return the tangents of the results for those of the inputs, None for zero, and the results."""
        given = [*[arguments[k] for k in self.places], *self.read]
        at = [with_own_slots(move_to_level(t)) for t in given]
        known = zip([*at, *map(move_to_level, self.around.tensors)], ts, strict=True)
        pairs = [lower_tangent(x, t, inner) for x, t in known if t is not None]
        accumulator = ForwardAccumulator([x for x, _ in pairs], [t for _, t in pairs])
        accumulator._cuts = Cuts()
        with share_slots(self.around.shared_with(given, at), accumulator._key):
            with accumulator:
                outs = self._at(f, arguments, at)
            outs = list(map(move_to_level, outs))
            found = accumulator.jvp([below(out, inner) for out in outs])
        for cuts in self.around.cuts:
            cuts.merge(accumulator._cuts)
        return [raise_derivative(t, out, inner) for t, out in zip(found, outs, strict=True)], outs


class _DrawStates(Recorder):
    """An observer that keeps the states of random generators by step, so that a step draws the same numbers again."""

    def __init__(self) -> None:
        self.states: dict[int, Any] = {}
        self._step: Tensor | None = None
        self._now: dict[Any, Any] | None = None  # by generator, in the step that runs; None before the first draw

    def on_step(self, number: Tensor) -> None:
        """Begin a step."""
        if (stage := current()) is not None:
            stage.note_step_state(self.states, number)
        else:
            self._step, self._now = number, None

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Observe the draws of the steps in the context."""
        with setting(OBSERVERS, (*OBSERVERS.get(), self)):
            yield

    def _on_draw(self, generator: random.Generator) -> None:
        """Note the state of a generator before its first draw in a step."""
        if self._now is None:
            # Only now, since the number has no value where a library traces the step, as JAX does.
            self._now = {} if self._step is None else self.states.setdefault(int(self._step), {})
        if generator not in self._now:
            self._now[generator] = generator.get_state()

    @contextmanager
    def replay(self, number: Tensor) -> Iterator[None]:
        """Draw the random numbers of a step again in the context; the generators go on from where they were."""
        if (stage := current()) is not None:
            with stage.replay_step_state(self.states, number):
                yield
            return
        states = self.states.get(int(number), {}) if self.states else {}
        now = [(generator, generator.get_state()) for generator in states]
        try:
            for generator, state in states.items():
                generator.set_state(state)
            yield
        finally:
            for generator, state in now:
                generator.set_state(state)


def _zero_beside(tensors: Tensors) -> Tensor:
    """Return the number 0 on the backend and device of the Tensors."""
    if not tensors:
        return asarray(0)
    return asarray(0, backend=tensors[0].backend.root, device=tensors[0].device)


def _inexact(tensors: Tensors) -> list[int]:
    """Return the indices of the Tensors of floating or complex dtype."""
    return [k for k, t in enumerate(tensors) if t.dtype.inexact]


def _materialize_zeros(tangents: Tensors, outs: Tensors) -> Tensors:
    """Return the tangents of results, with zeros in place of None."""
    return [zeros_like(off_tapes(out)) if t is None else t for t, out in zip(tangents, outs, strict=True)]


def _zeros_like(x: Tensor) -> Tensor:
    """Return the neutral element of addition, -0.0: adding 0.0 would turn a -0.0 into 0.0."""
    return -zeros_like(off_tapes(x))
