"""Branches and loops of flat lists of Tensors, and their derivatives.

Where nothing records they run as they are, or become an instruction of a compiled function. Where something does, a
loop over few elements is laid out: its steps are called one after the other, and what records sees each op. Any other
is one record. It keeps what the loop carried into each step; the derivative is a loop as well, over what was kept, that
runs each step again. Which of the two it is does not depend on whether the loop is compiled: so all derivatives are
made of the same functions, eager and compiled, and have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tape_core import random
from tape_core.base.ambient import OBSERVERS, UNROLLED_STEPS
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine.cuts import Cuts, cuts_of, on_tangents
from tape_core.engine.levels import placed
from tape_core.engine.recording import Recorder
from tape_core.engine.tensor import Tensor
from tape_core.modes.forward import ForwardAccumulator
from tape_core.modes.function_op import (
    Axes,
    axes_inside,
    below,
    lower_tangent,
    raise_derivative,
    record_as_one,
    with_all_axes,
)
from tape_core.modes.replay import is_replaying, recompute_in_traces
from tape_core.ops.creation import asarray, zeros, zeros_like
from tape_core.ops.data_types import stop_gradient
from tape_core.ops.manipulation import stack, unstack
from tape_core.staging import current
from tape_core.transforms.calls import standing_for, unrecorded
from tape_core.transforms.closures import Closure, closure_of, is_recorded, known_where_shared, taken_over
from tape_core.transforms.custom import apart, linear_transpose

Tensors = list[Any]
Step = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]  # what is carried and an element, to the same
Test = Callable[[Tensors], Any]
Branch = Callable[[Tensors], Tensors]

LAID_OUT = 128
"""How many steps, those of loops inside loops multiplied, are laid out where something records."""


# -- as they are


@recompute_in_traces
def _run_cond(predicate: Any, branches: Sequence[Branch], operands: Tensors) -> Tensors:
    if (stage := current()) is not None and isinstance(predicate, Tensor):
        found = stage.cond(predicate, branches, operands)
        if found is not None:
            return found
    return branches[0 if bool(predicate) else 1](operands)


@recompute_in_traces
def _run_while(test: Test, step: Step, carry: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
    if (stage := current()) is not None:
        found = stage.while_loop(test, step, carry, keep)
        if found is not None:
            return found
    first, saved = carry, []
    while bool(test(carry)):
        if keep:
            saved.append(carry)
        carry, _ = step(carry, [])
    return carry, [], _stacked(saved, first, reverse=False) if keep else []


@recompute_in_traces
def _run_scan(
    step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
) -> tuple[Tensors, Tensors, Tensors]:
    if (stage := current()) is not None:
        found = stage.scan(step, carry, xs, length, reverse, keep)
        if found is not None:
            return found
    return _run_steps(step, carry, xs, length, reverse, keep)


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
        # One on zeros says what the results would be.
        with unrecorded():
            like = step(list(map(stop_gradient, carry)), [_element(x) for x in xs])[1]
            return carry, _stacked([], like, reverse), _stacked([], first, reverse) if keep else []
    return carry, _stacked(results, results[0], reverse), _stacked(saved, first, reverse) if keep else []


def _element(x: Tensor) -> Tensor:
    """An element of zeros."""
    return zeros(x.shape[1:], dtype=x.dtype, backend=x.backend.root, device=x.device)


def _stacked(rows: list[Tensors], like: Tensors, reverse: bool) -> Tensors:
    """Columns of Tensors, in the order of the elements; without rows arrays of none."""
    if not rows:
        return [t[None][:0] for t in like]
    return [stack(list(column)[::-1] if reverse else list(column)) for column in zip(*rows, strict=True)]


# -- with derivatives


def cond(what: str, predicate: Any, branches: Sequence[Branch], operands: Tensors) -> Tensors:
    """What the first branch gives where the predicate, a scalar, holds, else the second."""
    if not is_recorded():
        return _run_cond(predicate, branches, operands)
    draws = _Draws()

    def drawing(branch: Branch) -> Branch:
        def run(operands: Tensors) -> Tensors:
            draws.note(zero)
            outs = branch(operands)
            taken_over(outs)
            return outs

        return run

    zero = _zero_beside(operands)
    values = list(map(stop_gradient, operands))
    with closure_of(what) as closure, draws.noted():
        outs = _run_cond(predicate, [drawing(branch) for branch in branches], values)
    again = _Again(closure, operands)
    flowing = _inexact(outs)

    def pull(gs: list[Any], watched: list[bool], known: list[Tensor]) -> list[Any]:
        inner = axes_inside()
        given = [k for k, g in zip(flowing, gs, strict=True) if g is not None]
        reached: set[int] = set()

        def results(branch: Branch, values: Tensors) -> Tensors:
            outs = branch(values)
            return [outs[k] for k in given]

        def back(branch: Branch) -> Branch:
            def run(values: Tensors) -> Tensors:
                with draws.replayed(zero):
                    found = again.transposed(
                        lambda values: results(branch, values),
                        values[: len(operands)],
                        values[len(operands) :],
                        watched,
                        inner,
                    )
                reached.update([k for k, d in enumerate(found) if d is not None])
                return again.filled(found, watched, values)

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

                with draws.replayed(zero):
                    found, outs = again.pushed(results, values, ts, inner)
                reached.update([k for k, t in enumerate(found) if t is not None])
                return _filled(found, outs)

            return run

        found = cond(what, predicate, [forward(branch) for branch in branches], operands)
        return [t if k in reached else None for k, t in enumerate(found)]

    return again.recorded(what, outs, flowing, pull, push)


def while_loop(what: str, test: Test, step: Branch, carry: Tensors) -> Tensors:
    """What is carried after as many steps as the test of it holds for."""

    def run(step: Step, carry: Tensors, xs: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
        return _run_while(lambda carry: test(carry[:n]), step, carry, keep)

    n = len(carry)
    return _loop(what, run, lambda carry, _: (step(carry), []), carry, [], reverse=False)[0]


def scan(what: str, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool) -> tuple[Tensors, Tensors]:
    """What is carried after a step for each element of `xs`, along axis 0, and the steps' results, stacked."""

    steps = UNROLLED_STEPS.get() * length
    # In a checkpoint that keeps results it is recorded in the second run: what it gives is to be the same in the first.
    if steps <= LAID_OUT and (is_recorded() or (is_replaying() and current() is not None)):
        with setting(UNROLLED_STEPS, max(steps, 1)):
            last, ys, _ = _run_steps(step, carry, xs, length, reverse, False)
        return last, ys
    return _scan(what, step, carry, xs, length, reverse)


def _scan(what: str, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool) -> tuple[Tensors, Tensors]:
    """The same as one record."""

    def run(step: Step, carry: Tensors, xs: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
        return _run_scan(step, carry, xs, length, reverse, keep)

    return _loop(what, run, step, carry, xs, reverse)


def _loop(
    what: str, run: Callable[..., Any], step: Step, carry: Tensors, xs: Tensors, reverse: bool
) -> tuple[Tensors, Tensors]:
    if not is_recorded():
        carry, ys, _ = run(step, carry, xs, False)
        return carry, ys
    draws = _Draws()

    def counted(carry: Tensors, xs: Tensors) -> tuple[Tensors, Tensors]:
        *carry, number = carry
        draws.note(number)
        carry, ys = step(carry, xs)
        taken_over([*carry, *ys])
        return [*carry, number + 1], ys

    start, elements = [*map(stop_gradient, carry), _zero_beside([*carry, *xs])], list(map(stop_gradient, xs))
    with closure_of(what) as closure, draws.noted():
        (*last, _), ys, (*saved, numbers) = run(counted, start, elements, True)
    length = numbers.shape[0]
    again = _Again(closure, [*carry, *xs])
    carried, given = _inexact(carry), _inexact(ys)
    n, m = len(carry), len(carried)
    outs = [*last, *ys, *saved]
    flowing = [*carried, *[n + k for k in given], *[n + len(ys) + k for k in carried]]

    def results(values: Tensors) -> Tensors:
        new, ys = step(values[:n], values[n:])
        return [*[new[k] for k in carried], *[ys[k] for k in given]]

    def kept(known: list[Tensor]) -> Tensors:
        """What each step was given, as far as the tapes around know it, and its number."""
        stacks = list(saved)
        for k, tensor in zip(carried, known[m + len(given) :], strict=True):
            stacks[k] = tensor
        return [*stacks, *xs, numbers]

    def pull(gs: list[Any], watched: list[bool], known: list[Tensor]) -> list[Any]:
        carrying = [g is not None or h is not None for g, h in zip(gs[:m], gs[m + len(given) :], strict=True)]
        while True:
            try:
                return pulled(gs, [*carrying, *watched[m:]], known)
            except _ReachedError as reached:
                carrying = [a or k in reached.places for k, a in enumerate(carrying)]

    def pulled(gs: list[Any], wanted: list[bool], known: list[Tensor]) -> list[Any]:
        """The cotangents, where something comes to those of the carry that are wanted, and to no others.

        Raises:
            _ReachedError: it does come to others.
        """
        inner = axes_inside()
        gys, gsaved = gs[m : m + len(given)], gs[m + len(given) :]
        by_step = [g for g in [*gys, *gsaved] if g is not None]
        carrying = [k for k in range(m) if wanted[k]]
        elements = [k for k in range(m, len(again.places)) if wanted[k]]
        around = [k for k in range(len(again.places), len(wanted)) if wanted[k]]
        reached: set[int] = set()

        def back(totals: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
            *values, number = row[: n + len(xs) + 1]
            each = iter(row[n + len(xs) + 1 :])
            own = dict(zip(carrying, totals, strict=False))
            cotangents = [*[own.get(k) for k in range(m)], *[None if g is None else next(each) for g in gys]]
            with draws.replayed(number):
                # A step must give on whatever comes to its carry.
                found = again.transposed(results, values, cotangents, [k < m or w for k, w in enumerate(wanted)], inner)
            reached.update([k for k, d in enumerate(found) if d is not None])
            if not reached.isdisjoint(k for k in range(m) if not wanted[k]):
                raise _ReachedError(reached)
            full = dict(zip([*carrying, *elements], again.filled(found, wanted, values), strict=False))
            new = [full[k] if gsaved[k] is None else full[k] + next(each) for k in carrying]
            so_far = zip(totals[len(carrying) :], around, strict=True)
            new += [t if found[k] is None else t + found[k] for t, k in so_far]
            return new, [full[k] for k in elements]

        start = [_zeros_like(carry[carried[k]]) if gs[k] is None else gs[k] for k in carrying]
        start += [_zeros_like(again.inputs[k]) for k in around]
        ends, stacks = _scan(what, back, start, [*kept(known), *by_step], length, not reverse)
        if not length:
            reached.update([k for k in carrying if gs[k] is not None])
        reached.update([k for k in carrying if gsaved[k] is not None])
        found = dict(zip([*carrying, *around, *elements], [*ends, *stacks], strict=True))
        return [found[k] if k in reached else None for k in range(len(wanted))]

    def push(ts: list[Any], known: list[Tensor]) -> list[Any]:
        carrying = {k for k in range(m) if ts[k] is not None}
        while True:
            try:
                return pushed(ts, sorted(carrying), known)
            except _ReachedError as reached:
                carrying |= reached.places

    def pushed(ts: list[Any], carrying: list[int], known: list[Tensor]) -> list[Any]:
        """The tangents, where these parts of the carry have some and no others.

        Raises:
            _ReachedError: others do.
        """
        inner = axes_inside()
        moving = [k for k in range(m, len(again.places)) if ts[k] is not None]
        reached: set[int] = set()

        def forward(tangents: Tensors, row: Tensors) -> tuple[Tensors, Tensors]:
            *values, number = row[: n + len(xs) + 1]
            own = [*[None] * m, *ts[m:]]
            for k, t in zip([*carrying, *moving], [*tangents, *row[n + len(xs) + 1 :]], strict=True):
                own[k] = t
            with draws.replayed(number):
                found, outs = again.pushed(results, values, own, inner)
            reached.update([k for k, t in enumerate(found) if t is not None])
            if not reached.isdisjoint(k for k in range(m) if k not in carrying):
                raise _ReachedError({k for k in reached if k < m})
            full = _filled(found, outs)
            return [full[k] for k in carrying], [*full[m:], *tangents]

        start = [_zeros_like(carry[carried[k]]) if ts[k] is None else ts[k] for k in carrying]
        rows = [*kept(known), *[ts[k] for k in moving]]
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

    outs = again.recorded(what, outs, flowing, pull, push)
    return outs[:n], outs[n : n + len(ys)]


class _ReachedError(Exception):
    """Something comes to parts of a carry that nothing was thought to come to."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()
        self.places = places


class _Again:
    """A function that is run again for derivatives: of some Tensors, and of what it reads around it.

    Attributes:
        places: which of its arguments have derivatives.
        inputs: those, then the Variables and the Tensors of its closure.
    """

    def __init__(self, closure: Closure, arguments: Tensors) -> None:
        self.places = _inexact(arguments)
        self.around = closure
        self.variables = closure.variables
        self.read = [v._read() for v in self.variables]
        self.inputs = [*[arguments[k] for k in self.places], *self.read, *self.around.tensors]

    def recorded(self, what: str, outs: Tensors, flowing: list[int], pull: Any, push: Any) -> Tensors:
        """The results, of which some flow, as those of the inputs."""
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
        with standing_for(self.variables, given[n:]):
            return f(arguments)

    def transposed(
        self, f: Branch, arguments: Tensors, gs: Sequence[Any], wanted: Sequence[bool], inner: Axes
    ) -> Tensors:
        """The cotangents of the inputs that are wanted, for cotangents of the results; None for what none comes to."""
        at = [*[with_all_axes(arguments[k], inner) for k in self.places], *self.read]
        return linear_transpose(lambda given: self._at(f, arguments, given), at, gs, wanted, self.around, inner)

    def filled(self, found: Tensors, wanted: Sequence[bool], arguments: Tensors) -> Tensors:
        """Those that are wanted, with zeros for those to which none comes."""
        at = [*[arguments[k] for k in self.places], *self.read, *self.around.tensors]
        return [_zeros_like(x) if d is None else d for d, w, x in zip(found, wanted, at, strict=True) if w]

    def pushed(self, f: Branch, arguments: Tensors, ts: Sequence[Any], inner: Axes) -> tuple[Tensors, Tensors]:
        """The tangents of the results, for tangents of the inputs or None, and the results; None for what has none."""
        at = [apart(placed(t)) for t in [*[arguments[k] for k in self.places], *self.read]]
        known = zip([*at, *map(placed, self.around.tensors)], ts, strict=True)
        pairs = [lower_tangent(x, t, inner) for x, t in known if t is not None]
        accumulator = ForwardAccumulator([x for x, _ in pairs], [t for _, t in pairs])
        accumulator._cuts = Cuts()
        with known_where_shared(self.around.shared, accumulator._key):
            with accumulator:
                outs = self._at(f, arguments, at)
            outs = list(map(placed, outs))
            found = accumulator.jvp([below(out, inner) for out in outs])
        for cuts in self.around.cuts:
            cuts.merge(accumulator._cuts)
        return [raise_derivative(t, out, inner) for t, out in zip(found, outs, strict=True)], outs


class _Draws(Recorder):
    """Where generators of random numbers were when each step began to draw, so that the step can be run again."""

    def __init__(self) -> None:
        self.states: dict[int, Any] = {}
        self._now: dict[Any, Any] = {}  # by generator, in the step that runs

    def note(self, number: Tensor) -> None:
        """A step begins."""
        if (stage := current()) is not None:
            stage.note_step_state(self.states, number)
        else:
            self._now = self.states[int(number)] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A context of steps."""
        with setting(OBSERVERS, (*OBSERVERS.get(), self)):
            yield

    def _on_draw(self, generator: random.Generator) -> None:
        """Note the state of a generator before its first draw in a step."""
        if generator not in self._now:
            self._now[generator] = generator.get_state()

    @contextmanager
    def replayed(self, number: Tensor) -> Iterator[None]:
        """A context in which the numbers of a step are drawn again."""
        if (stage := current()) is not None:
            with stage.replay_step_state(self.states, number):
                yield
            return
        states = self.states.get(int(number), {})
        now = [(generator, generator.get_state()) for generator in states]
        try:
            for generator, state in states.items():
                generator.set_state(state)
            yield
        finally:
            for generator, state in now:
                generator.set_state(state)


def _zero_beside(tensors: Tensors) -> Tensor:
    """The number 0 where the Tensors are."""
    if not tensors:
        return asarray(0)
    return asarray(0, backend=tensors[0].backend.root, device=tensors[0].device)


def _inexact(tensors: Tensors) -> list[int]:
    return [k for k, t in enumerate(tensors) if t.dtype.inexact]


def _filled(tangents: Tensors, outs: Tensors) -> Tensors:
    """Tangents of results, zeros for None."""
    return [zeros_like(stop_gradient(out)) if t is None else t for t, out in zip(tangents, outs, strict=True)]


def _zeros_like(x: Tensor) -> Tensor:
    """Zeros that change nothing they are added to: they are negative, since 0.0 + -0.0 is 0.0."""
    return -zeros_like(stop_gradient(x))
