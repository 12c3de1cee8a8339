"""Moving averages of weights over the course of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tape_core as tc
from tape_core import Tensor, Variable
from tape_core.staging import TracingError, current, guard, stateful
from tape_core.support import Commit, assign_together, contextmanager, lenient, placement, real, wrap
from tape_core.typing import ArrayLike, Raw

from tape_nn.module import Module
from tape_nn.naming import copy_like, named_variables, unknown_names

if TYPE_CHECKING:
    from tape_nn.fitting.run import Run


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
        decay: between 0 and 1. The average is over about the last `1 / (1 - decay)` updates, by default a hundred.
    """

    def __init__(self, variables: Module | Mapping[str, Variable], decay: float = 0.99) -> None:
        decay = real("ExponentialMovingAverage", "decay", decay)
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must be between 0 and 1; got {decay}")
        self.variables = variables
        self.decay = decay
        # (Variable, its average) by the id of the Variable. The entry keeps the Variable alive, and so its id unique.
        self._averages: dict[int, tuple[Variable, Variable]] = {}
        self._named_variables()  # raises here, and not at the first update, if `variables` is something else

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy, or of what was pickled: its Variables have other ids."""
        vars(self).update(state)
        self._averages = {id(pair[0]): pair for pair in self._averages.values()}
        for variable, average in self._averages.values():
            placement.follow(variable, average)

    @lenient
    def __repr__(self) -> str:
        return f"ExponentialMovingAverage(decay={self.decay!r}, variables={len(list(self._named_variables()))})"

    def update(self) -> None:
        """Move the averages towards the values that the Variables have now."""
        guard(self._count)  # a compiled function that was traced with fewer averages is traced again
        # Variables among the arguments of an opaque call count as assigned: who reads them afterwards reads new values,
        # whose gradients are summed in another order. So it gets the Variables in a function, where none is found.
        variables = [variable for _, variable in self._named_variables()]
        self._update_averages(lambda: variables, [wrap(v._array, v.backend) for v in variables])

    def _count(self) -> int:
        return len(self._averages)

    def _holders(self) -> list[Variable]:
        """The Variables that an update changes; see `stateful`."""
        return [average for _, average in self._averages.values()]

    @stateful(_holders)
    def _update_averages(self, variables: Callable[[], list[Variable]], values: list[Tensor]) -> None:
        commit = Commit()
        for variable, now in zip(variables(), values, strict=True):
            known = self._averages.get(id(variable))
            if known is None:
                if current() is not None:  # `stateful` catches this, and makes the update one opaque instruction
                    raise TracingError("an average is made once, and not in each call")
                self._averages[id(variable)] = (variable, _average(variable, now._array))
                continue
            whole = [known[1]._array, now._array]
            blocks = variable.backend.blocks(whole)
            if type(blocks) is list:  # small arrays come back whole; large ones in blocks that fit the cache
                mean, value = whole
                # In this form of the formula, a mean that equals the value stays what it is, to the bit.
                new = mean + (value - mean) * (1 - self.decay)
            else:
                new = variable.backend.xp.empty_like(whole[0])
                for (mean, value), (target,) in zip(blocks, variable.backend.blocks([new]), strict=True):
                    target[...] = mean + (value - mean) * (1 - self.decay)
            commit.value(known[1], new)
        commit.make()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Return a context in which the Variables have their averages for values; afterwards they have their own.

        Raises:
            RuntimeError: there was no `update()` before.
        """
        if not self._averages:
            raise RuntimeError("averaged: there are no averages before the first update()")
        variables = [variable for variable, _ in self._averages.values()]
        # No copies: an assignment replaces the array of a Variable, and never writes to it.
        own = [wrap(variable._array, variable.backend) for variable in variables]
        try:
            assign_together(variables, [average.value for _, average in self._averages.values()])
            yield
        finally:
            assign_together(variables, own)

    def on_batch_end(self, run: Run) -> None:
        """Update the averages after each update of the weights: the object is a callback of :func:`tape_nn.fit`."""
        if not run.is_accumulating:
            self.update()

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the averages by the Variables' names."""
        found = {}
        for name, variable in self._named_variables():
            if id(variable) in self._averages:
                found[name] = tc.asarray(self._averages[id(variable)][1], copy=True)
        return found

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Continue from a state that :meth:`state_dict` gave.

        Raises:
            ValueError: a name or a shape is not that of the Variables. Nothing is changed.
        """
        by_name = dict(self._named_variables())
        if unknown := [name for name in state if name not in by_name]:
            raise ValueError(unknown_names("load_state_dict", unknown, by_name))
        # As with an optimizer: everything is checked and converted before the commit, so that an error changes nothing.
        averages = {}
        commit = Commit()
        for name, value in state.items():
            v = by_name[name]
            tensor = copy_like(value, v)
            if tensor.shape != v.shape:
                raise ValueError(f"load_state_dict: {name!r} has shape {tensor.shape}; the variable has {v.shape}")
            known = self._averages.get(id(v))
            if known is None:
                averages[id(v)] = (v, _average(v, tensor._array))
            else:  # the same Variable with a new value: compiled functions hold it
                commit.value(known[1], tensor._array)
                averages[id(v)] = known
        commit.attribute(self, "_averages", averages)
        commit.make()

    def _named_variables(self) -> Iterable[tuple[str, Variable]]:
        found = named_variables(self.variables)
        # Counters and moving statistics of a Module are left as they are; in a mapping the user has chosen.
        return [(name, v) for name, v in found if v.trainable] if isinstance(self.variables, Module) else found


def _average(variable: Variable, array: Raw) -> Variable:
    average = Variable(wrap(array, variable.backend), trainable=False, name=f"{variable.name or 'variable'}_average")
    placement.follow(variable, average)
    return average
