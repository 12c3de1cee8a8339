"""Functions that run again for their derivatives, as branches and the steps of loops do, with the same random draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tape_core import random
from tape_core.base.ambient import OBSERVERS
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine.cuts import Cuts, cuts_of
from tape_core.engine.levels import move_to_level
from tape_core.engine.recording import Recorder
from tape_core.engine.tensor import Tensor
from tape_core.modes.forward import ForwardAccumulator
from tape_core.modes.function_op import (
    Axes,
    Pull,
    Push,
    below,
    lower_tangent,
    raise_derivative,
    record_as_one,
    with_all_axes,
)
from tape_core.ops.creation import asarray, zeros_like
from tape_core.ops.data_types import off_tapes
from tape_core.staging import current
from tape_core.transforms.calls import substitute
from tape_core.transforms.closures import Closure, share_slots
from tape_core.transforms.custom import linear_transpose, with_own_slots

Tensors = list[Any]
Branch = Callable[[Tensors], Tensors]


class ReachedError(Exception):
    """Parts of a carry got a derivative that were assumed to have none: the loop starts again with them."""

    def __init__(self, places: set[int]) -> None:
        super().__init__()
        self.places = places


class Rerun:
    """A function that runs again for its derivatives, by its arguments and by its closure.

    Attributes:
        places: the indices of the arguments that have derivatives.
        inputs: these arguments, then the Variables and the Tensors of the closure.
    """

    def __init__(self, closure: Closure, arguments: Tensors) -> None:
        self.places = inexact(arguments)
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
        with substitute(self.variables, given[n:]), self.around.moment.restored():
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
        return [neutral_like(x) if d is None else d for d, w, x in zip(found, wanted, at, strict=True) if w]

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


class DrawStates(Recorder):
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


def zero_beside(tensors: Tensors) -> Tensor:
    """Return the number 0 on the backend and device of the Tensors."""
    if not tensors:
        return asarray(0)
    return asarray(0, backend=tensors[0].backend.root, device=tensors[0].device)


def inexact(tensors: Tensors) -> list[int]:
    """Return the indices of the Tensors of floating or complex dtype."""
    return [k for k, t in enumerate(tensors) if t.dtype.inexact]


def materialize_zeros(tangents: Tensors, outs: Tensors) -> Tensors:
    """Return the tangents of results, with zeros in place of None."""
    return [zeros_like(off_tapes(out)) if t is None else t for t, out in zip(tangents, outs, strict=True)]


def neutral_like(x: Tensor) -> Tensor:
    """Return the neutral element of addition, -0.0: adding 0.0 would turn a -0.0 into 0.0."""
    return -zeros_like(off_tapes(x))
