"""Updates of Variables that the first call of a function puts off until all else of it is done.

A trace computes with real values, so an optimizer's update in it would make new parameters and slots beside the old
ones, while the gradients are there, too. But nobody reads them, as a rule: then the update is only recorded, and
computed when the trace ends, over the old values where nobody else has these, as eager updates are. So the first step
needs no second state, and a call that fails has changed nothing. Who does ask for a new value before gets it, computed
beside the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tape_core import Variable
from tape_core.staging import value_of
from tape_core.support import Commit

from tape_compile.tracer.contexts import outside
from tape_compile.tracer.traced_array import TracedArray

if TYPE_CHECKING:
    from tape_core.backends import Backend
    from tape_core.typing import Raw

    from tape_compile.tracer.trace import Trace
    from tape_compile.tracer.variable_state import VariableState


class Compute(Protocol):
    """Computes an update with the values of the run that is traced, and adds the new ones of Variables to a commit."""

    def __call__(self, commit: Commit, /, *, overwrite: bool = True) -> None:
        """Compute it; only with `overwrite` the commit may write over old values."""


class LateUpdate(NamedTuple):
    """An update that is recorded, and not computed."""

    variables: Sequence[Variable]
    """Those that it gives new values."""

    results: Sequence[TracedArray]
    """The new values, in the same order."""

    compute: Compute
    """Computes them."""

    def settle(self) -> None:
        """Compute the new values beside the old ones."""
        commit = Commit()
        with outside():
            self.compute(commit, overwrite=False)
        for array, value in zip(self.results, commit.arrays, strict=True):
            array.value = value


class LateUpdates:
    """The updates that a trace has put off. The results of each have no `value` until it is computed."""

    def __init__(self) -> None:
        self._by_result: dict[int, LateUpdate] = {}

    def add(self, variables: Sequence[Variable], results: Sequence[TracedArray], compute: Compute) -> None:
        """Put an update off, whose results are recorded."""
        update = LateUpdate(variables, results, compute)
        for array in results:
            del array.value  # see `recorded_formulas`
            self._by_result[array.id] = update

    def settle(self, array: TracedArray) -> None:
        """Compute the update of which an array without a value is a result.

        Raises:
            AttributeError: it is of none.
        """
        update = self._by_result.get(array.id)
        if update is None:
            raise AttributeError("value")
        update.settle()
        for made in update.results:
            del self._by_result[made.id]

    def pending(self, states: Iterable[VariableState]) -> list[LateUpdate]:
        """Return the updates whose results are what Variables have at the end, all of them."""
        now = {id(held.variable): held.now for held in states}
        updates = {id(update): update for update in self._by_result.values()}
        return [
            update
            for update in updates.values()
            if all([now.get(id(v)) is array for v, array in zip(update.variables, update.results, strict=True)])
        ]


def recorded_formulas(trace: Trace, backend: Backend, example: Raw) -> Mapping[str, Callable[..., Raw]]:
    """Return a library's formulas such that each adds an instruction to the trace, and computes nothing.

    What it returns has the value of its first argument, which is of the same shape, dtype and layout.
    """

    def recorded(name: str, formula: Callable[..., Raw]) -> Callable[..., Raw]:
        return lambda *args: trace.record(name, formula, args, value_of(args[0]), backend)

    return {name: recorded(name, formula) for name, formula in backend.library.formulas(value_of(example)).items()}
