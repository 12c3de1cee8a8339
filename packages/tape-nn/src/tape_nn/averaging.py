"""Averages of weights over the course of training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tape_core as tc
from tape_core import Tensor, Variable
from tape_core.base.commit import Commit, assign_together
from tape_core.base.contexts import contextmanager
from tape_core.base.mistakes import real
from tape_core.engine.tensor import wrap
from tape_core.staging import TracingError, current, guard, stateful

from tape_nn.module import Module
from tape_nn.naming import like, named, unknown_names


class ExponentialMovingAverage:
    """The exponential moving average of Variables: `average = decay * average + (1 - decay) * value` at each update.

    The average starts as the Variable's value at the first update that sees it. What a model computes with the
    averages is often better than with the last values; training goes on from those.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable(0.0)
    >>> average = nn.ExponentialMovingAverage({"w": w}, decay=0.5)
    >>> for value in (1.0, 2.0, 3.0):
    ...     average.update() if w.assign(value) else None
    >>> with average.averaged():
    ...     w.item()
    2.25
    >>> w.item()
    3.0

    Args:
        variables: a Module, whose trainable Variables are averaged, or a mapping from names to Variables.
        decay: between 0 and 1; by 0.99 the last hundred updates or so count.
    """

    def __init__(self, variables: Any, decay: float = 0.99) -> None:
        decay = real("ExponentialMovingAverage", "decay", decay)
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be between 0 and 1; got {decay}")
        self.variables = variables
        self.decay = decay
        self._averages: dict[int, tuple[Variable, Variable]] = {}  # by the Variable's id
        self._named()

    def update(self) -> None:
        """Take in the values that the Variables have now."""
        guard(self._number)
        self._take_in([variable for _, variable in self._named()])

    def _number(self) -> int:
        return len(self._averages)

    def _holders(self) -> list[Variable]:
        return [average for _, average in self._averages.values()]

    @stateful(_holders)
    def _take_in(self, variables: list[Variable]) -> None:
        commit = Commit()
        for variable in variables:
            known = self._averages.get(id(variable))
            if known is None:
                if current() is not None:
                    raise TracingError("an average is made once, and not in each call")
                self._averages[id(variable)] = (variable, _average(variable, variable._array))
                continue
            whole = [known[1]._array, variable._array]
            blocks = variable.backend.blocks(whole)
            if type(blocks) is list:
                mean, value = whole
                new = mean + (value - mean) * (1 - self.decay)
            else:
                new = variable.backend.xp.empty_like(whole[0])
                for (mean, value), (target,) in zip(blocks, variable.backend.blocks([new]), strict=True):
                    target[...] = mean + (value - mean) * (1 - self.decay)
            commit.value(known[1], new)
        commit.make()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the Variables have their averages for values, and after which they have their own."""
        if not self._averages:
            raise RuntimeError("averaged: there are no averages before the first update()")
        variables = [variable for variable, _ in self._averages.values()]
        kept = [wrap(variable._array, variable.backend) for variable in variables]
        try:
            assign_together(variables, [average.value for _, average in self._averages.values()])
            yield
        finally:
            assign_together(variables, kept)

    def on_batch_end(self, run: Any) -> None:
        """As a callback of :func:`tape_nn.fit`."""
        self.update()

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by the Variables' names; copies."""
        found = {}
        for name, variable in self._named():
            if id(variable) in self._averages:
                found[name] = tc.asarray(self._averages[id(variable)][1], copy=True)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that :meth:`state_dict` gave.

        Raises:
            ValueError: a name or a shape is not that of the Variables.
        """
        by_name = dict(self._named())
        if unknown := [name for name in state if name not in by_name]:
            raise ValueError(unknown_names("load_state_dict", unknown, by_name))
        averages = {}
        commit = Commit()
        for name, value in state.items():
            v = by_name[name]
            tensor = like(value, v)
            if tensor.shape != v.shape:
                raise ValueError(f"load_state_dict: {name!r} has shape {tensor.shape}; the variable has {v.shape}")
            known = self._averages.get(id(v))
            if known is None:
                averages[id(v)] = (v, _average(v, tensor._array))
            else:  # which compiled functions know
                commit.value(known[1], tensor._array)
                averages[id(v)] = known
        commit.attribute(self, "_averages", averages)
        commit.make()

    def _named(self) -> Iterable[tuple[str, Variable]]:
        found = named(self.variables)
        return [(name, v) for name, v in found if v.trainable] if isinstance(self.variables, Module) else found


def _average(variable: Variable, array: Any) -> Variable:
    return Variable(wrap(array, variable.backend), trainable=False, name=f"{variable.name or 'variable'}_average")
