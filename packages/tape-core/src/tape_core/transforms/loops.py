"""Branches and loops of flat lists of Tensors, and their derivatives.

Where no tape or accumulator records, they run as Python loops, or become one instruction of a compiled function. Where
one does, a scan of few steps is unrolled: its steps are called one after the other, and each op is recorded. Any other
loop is one record. Its residuals are the carries that went into each step; its derivative is a loop too, which goes
over the residuals and runs each step again. Compiled or not, the same rule decides which of the two it is, so eager and
compiled derivatives are made of the same functions and have the same bits. Only for compilers with loops of their own,
whose bits may be others, is each scan a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tape_core.base.ambient import MASKED, UNROLLED_STEPS
from tape_core.base.contexts import setting
from tape_core.engine.cuts import on_tangents
from tape_core.engine.tensor import Tensor
from tape_core.modes.function_op import (
    axes_inside,
)
from tape_core.modes.replay import is_replaying, recompute_in_traces
from tape_core.ops.creation import zeros
from tape_core.ops.data_types import off_tapes
from tape_core.ops.manipulation import stack, unstack
from tape_core.staging import current
from tape_core.transforms import traced
from tape_core.transforms.calls import unrecorded
from tape_core.transforms.closures import capture_closure, is_recorded, note_uses
from tape_core.transforms.reruns import (
    DrawStates,
    ReachedError,
    Rerun,
    inexact,
    materialize_zeros,
    neutral_like,
    zero_beside,
)
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
                raise _UnknownStepsError
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


class _UnknownStepsError(Exception):
    """The carry of each step cannot be kept, since a library traces the loop."""


_UNKNOWN_STEPS = (
    "while_loop: a gradient flows back through it where JAX traces it, inside jax.jit or jax.vmap: that needs the "
    "carry of each step, of which the number is not known there, as for jax.lax.while_loop. Forward mode does not: "
    "tape_core.jvp and jacfwd, jax.jvp and jax.jacfwd; or use tape_core.scan, whose number of steps is known"
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
    draws = DrawStates()

    # A branch counts as step 0 of a loop, so that its random numbers can be drawn again.
    def drawing(branch: Branch) -> Branch:
        def run(operands: Tensors) -> Tensors:
            draws.on_step(zero)
            outs = closure.settled(branch(operands))
            note_uses(outs)
            return outs

        return run

    zero = zero_beside(operands)
    # Detached: the call is one record, and its ops leave none.
    values = list(map(off_tapes, operands))
    with capture_closure(what) as closure, draws.observe():
        outs = _run_cond(predicate, [drawing(branch) for branch in branches], values)
    rerun = Rerun(closure, operands)
    flowing = inexact(outs)

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
                return materialize_zeros(found, outs)

            return run

        found = cond(what, predicate, [forward(branch) for branch in branches], operands)
        return [t if k in reached else None for k, t in enumerate(found)]

    return rerun.record(what, outs, flowing, pull, push)


def while_loop(what: str, test: Test, step: Branch, carry: Tensors) -> Tensors:
    """Step while the test of the carry is true, and return the last carry."""

    def run(step: Step, carry: Tensors, xs: Tensors, keep: bool) -> tuple[Tensors, Tensors, Tensors]:
        return _run_while(lambda carry: test(carry[:n]), step, carry, keep)

    n = len(carry)
    try:
        return _loop(what, run, lambda carry, _: (step(carry), []), carry, [], reverse=False)[0]
    except _UnknownStepsError:
        return _traced_while(what, test, step, carry)


def _traced_while(what: str, test: Test, step: Branch, carry: Tensors) -> Tensors:
    """Step while the test is true in a loop of the library's, whose tangents are carried along in another such loop.

    Its number of steps is unknown, so that it has no derivative in reverse mode.
    """
    with capture_closure(what) as closure:
        outs, _, _ = _run_while(
            test, lambda carry, _: (closure.settled(step(carry)), []), list(map(off_tapes, carry)), False
        )
    rerun = Rerun(closure, carry)
    carried, n = inexact(carry), len(carry)
    m = len(carried)

    def pull(gs: list[Any], watched: list[bool], known: list[Tensor]) -> list[Any]:
        raise NotImplementedError(_UNKNOWN_STEPS)

    def push(ts: list[Any], known: list[Tensor]) -> list[Any]:
        # Begin with the parts that move from outside, and add those that a step reaches.
        carrying = {k for k in range(m) if ts[k] is not None}
        while True:
            try:
                return push_with(ts, sorted(carrying))
            except ReachedError as reached:
                carrying |= reached.places

    def push_with(ts: list[Any], carrying: list[int]) -> list[Any]:
        """Return the tangents of the results, if of the carry exactly these parts have one.

        Raises:
            ReachedError: other parts of the carry have one, too.
        """
        inner = axes_inside()

        def forward(values: Tensors) -> Tensors:
            own = [*[None] * m, *ts[m:]]
            for k, t in zip(carrying, values[n:], strict=True):
                own[k] = t
            found, new = rerun.push_forward(step, values[:n], own, inner)
            found = [found[k] for k in carried]
            if more := {k for k, t in enumerate(found) if t is not None and k not in carrying}:
                raise ReachedError(more)
            full = materialize_zeros(found, [new[k] for k in carried])
            return [*new, *[full[k] for k in carrying]]

        start = [neutral_like(carry[carried[k]]) if ts[k] is None else ts[k] for k in carrying]
        last = while_loop(what, lambda values: test(values[:n]), forward, [*carry, *start])
        ends = dict(zip(carrying, last[n:], strict=True))
        return [ends.get(k) for k in range(m)]

    return rerun.record(what, outs, carried, pull, push)


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
    draws, size = DrawStates(), len(carry)

    def flat_step(carry: Tensors, xs: Tensors) -> Tensors:
        carry, ys = step(carry, xs)
        return [*carry, *ys]

    def counting_step(carry: Tensors, xs: Tensors) -> tuple[Tensors, Tensors]:
        *carry, number = carry
        draws.on_step(number)
        outs = closure.settled(flat_step(carry, xs))
        note_uses(outs)
        return [*outs[:size], number + 1], outs[size:]

    # The last part of the carry is the number of the step, by which `draws` finds the states of generators.
    start, elements = [*map(off_tapes, carry), zero_beside([*carry, *xs])], list(map(off_tapes, xs))
    with capture_closure(what) as closure, draws.observe():
        (*last, _), ys, (*saved, numbers) = run(counting_step, start, elements, True)
    # A while loop shows only now how many steps it takes.
    length = numbers.shape[0]
    rerun = Rerun(closure, [*carry, *xs])
    carried, given = inexact(carry), inexact(ys)
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
            except ReachedError as reached:
                carrying = [a or k in reached.places for k, a in enumerate(carrying)]

    def pull_with(gs: list[Any], wanted: list[bool], known: list[Tensor]) -> list[Any]:
        """Return the cotangents of the inputs, if of the carry exactly the wanted parts get one.

        Raises:
            ReachedError: other parts of the carry get one, too.
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
                raise ReachedError(reached)
            full = dict(zip([*carrying, *elements], rerun.materialize_zeros(found, wanted, values), strict=False))
            new = [full[k] if gsaved[k] is None else full[k] + next(each) for k in carrying]
            # Each step has its share of the cotangents of the closure; the carry adds them up.
            so_far = zip(totals[len(carrying) :], around, strict=True)
            new += [t if found[k] is None else t + found[k] for t, k in so_far]
            return new, [full[k] for k in elements]

        start = [neutral_like(carry[carried[k]]) if gs[k] is None else gs[k] for k in carrying]
        start += [neutral_like(rerun.inputs[k]) for k in around]
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
            except ReachedError as reached:
                carrying |= reached.places

    def push_with(ts: list[Any], carrying: list[int], known: list[Tensor]) -> list[Any]:
        """Return the tangents of the results, if of the carry exactly these parts have one.

        Raises:
            ReachedError: other parts of the carry have one, too.
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
                raise ReachedError({k for k in reached if k < m})
            full = materialize_zeros(found, outs)
            return [full[k] for k in carrying], [*full[m:], *tangents]

        start = [neutral_like(carry[carried[k]]) if ts[k] is None else ts[k] for k in carrying]
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
