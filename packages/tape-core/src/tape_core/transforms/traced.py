"""Branches and loops where a library traces functions itself, as JAX does inside `jax.jit`: they become its own.

It traces a branch or a step once for all runs. So a step that does what must happen in each one, such as to draw
random numbers, is none for a loop of the library, nor is one that asks for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.flows import Flows
from tape_core.base.ambient import OBSERVERS, REPLAY
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine.changes import Moment
from tape_core.engine.levels import innermost, move_to_level
from tape_core.engine.recording import Recorder
from tape_core.engine.tensor import Tensor
from tape_core.modes.layers import Layers, base_of, both_layers, hidden_axes, in_layers, layers_of, widened
from tape_core.staging import TracedValue
from tape_core.transforms.closures import note_uses

if TYPE_CHECKING:
    from tape_core.engine.variable import Variable
    from tape_core.random import Generator

Tensors = list[Any]
Step = Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]


class UntraceableError(Exception):
    """A step or branch is none for the library to trace once: it is to run as Python, or not at all."""


class _Once(Recorder):
    """An observer that refuses what must happen in each step."""

    def _on_draw(self, generator: Generator) -> None:
        raise UntraceableError("draws random numbers, which would be the same ones whenever it runs: draw them before")

    def _on_assign(self, variable: Variable) -> None:
        label = f"Variable {variable.name!r}" if variable.name else "a Variable"
        raise UntraceableError(f"assigns to {label}, whose value means nothing outside: return it, and assign it after")


def flows_of(tensors: Sequence[Any]) -> Flows | None:
    """Return the loops of the library that traces one of these Tensors; None where all values can be read."""
    for t in tensors:
        flows: Flows | None = t.backend.library.flows(innermost(t._array)[0])
        if flows is not None:
            return flows
    return None


def is_unread(tensors: Sequence[Any]) -> bool:
    """Return whether values cannot be read, since a function that computes with them is compiled or traced."""
    if flows_of(tensors) is not None:
        return True
    arrays = [innermost(t._array)[0] for t in tensors]
    return any([isinstance(array, TracedValue) and not array.is_known for array in arrays])


@contextmanager
def _tracing(flows: Flows) -> Iterator[Moment]:
    """Let the library trace in the context, and yield the moment.

    Raises:
        UntraceableError: what it traces asks for a value, or does what must happen once for each run.
    """
    moment = Moment()
    try:
        # A checkpoint with a policy keeps nothing of what has a value inside alone.
        with setting(OBSERVERS, (*OBSERVERS.get(), _Once())), setting(REPLAY, None), moment.undone_on_error():
            yield moment
    except flows.UNREAD as error:
        raise UntraceableError("asks for the value of an array, which has none there") from error


def _settled(moment: Moment, outs: Tensors) -> Tensors:
    return moment.settled(outs, lambda what: UntraceableError(f"{what}, whose value means nothing outside: return it"))


class _WiderError(Exception):
    """Results are batched by a vmap of Tape where they were assumed not to be."""

    def __init__(self, layers: list[Layers]) -> None:
        super().__init__()
        self.layers = layers


class _Like:
    """Arrays underneath Tensors, and how Tensors are made of such arrays.

    Raises:
        UntraceableError: an array is not of the library.
    """

    def __init__(self, tensors: Tensors, backend: Any) -> None:
        self.layers = [layers_of(t) for t in tensors]
        bases = [base_of(t) for t in map(move_to_level, tensors)]
        if any([t.backend is not backend for t in bases]):
            raise UntraceableError("has an array of another library")
        self.backend = backend
        self.arrays = [t._array for t in bases]

    def tensors(self, arrays: Sequence[Any]) -> Tensors:
        """Return such Tensors of other arrays."""
        return [in_layers(array, self.backend, layers) for array, layers in zip(arrays, self.layers, strict=True)]

    def moved(self, *, first: bool) -> list[Any]:
        """Return the arrays with their axis of elements first, before those of vmaps, or put it after these."""
        xp = self.backend.xp
        depths = [hidden_axes(layers) for layers in self.layers]
        return [
            (xp.moveaxis(array, d, 0) if first else xp.moveaxis(array, 0, d)) if d else array
            for array, d in zip(self.arrays, depths, strict=True)
        ]


def _as_wide(tensors: Tensors, wide: Sequence[Layers]) -> Tensors:
    """Return results that are to be batched by these layers.

    Raises:
        _WiderError: they are by more.
    """
    both = [both_layers(layers_of(t), layers) for t, layers in zip(tensors, wide, strict=True)]
    if both != list(wide):
        raise _WiderError(both)
    return [widened(t, layers) for t, layers in zip(tensors, wide, strict=True)]


def cond(flows: Flows, predicate: Tensor, branches: Sequence[Callable[[Tensors], Tensors]], given: Tensors) -> Tensors:
    """Return the results of a branch, of which the library runs one.

    Raises:
        NotImplementedError: a branch cannot be traced.
    """
    note_uses([predicate, *given])
    decides = base_of(predicate)
    results: dict[int, _Like] = {}
    wide: list[Layers] = []

    def traced(k: int, like: _Like) -> Callable[[Sequence[Any]], list[Any]]:
        def run(arrays: Sequence[Any]) -> list[Any]:
            outs = _settled(moment, branches[k](like.tensors(arrays)))
            note_uses(outs)
            found = results[k] = _Like(_as_wide(outs, wide or list(map(layers_of, outs))), decides.backend)
            if k and results[0].layers != found.layers:
                raise _WiderError([both_layers(a, b) for a, b in zip(results[0].layers, found.layers, strict=True)])
            return found.arrays

        return run

    def dtypes(k: int) -> list[Any]:
        return [array.dtype for array in results[k].arrays] if k in results else []

    numbers = True
    while True:
        try:
            with _tracing(flows) as moment:
                like = _Like(given, decides.backend)
                found = flows.cond(decides._array, [traced(0, like), traced(1, like)], like.arrays)
            return results[0].tensors(found)
        except _WiderError as error:
            wide = error.layers
        except TypeError:
            # A number in one branch takes the dtype of the other's result, which is known now.
            if not numbers or dtypes(0) == dtypes(1):
                raise
            numbers = False
        except UntraceableError as error:
            raise NotImplementedError(_SAID.format("cond", "a branch", error)) from error


def while_loop(flows: Flows, test: Callable[[Tensors], Any], step: Step, carry: Tensors) -> Tensors:
    """Return the carry of a loop that the library runs.

    Raises:
        NotImplementedError: the loop cannot be traced.
    """
    note_uses(carry)
    backend = base_of(carry[0]).backend
    while True:
        try:
            with _tracing(flows) as moment:
                like = _Like(carry, backend)

                def again(arrays: Sequence[Any], like: _Like = like) -> list[Any]:
                    new = _settled(moment, step(like.tensors(arrays), [])[0])
                    note_uses(new)
                    return _Like(_as_wide(new, like.layers), backend).arrays

                def going(arrays: Sequence[Any], like: _Like = like) -> Any:
                    found = test(like.tensors(arrays))
                    return base_of(found)._array if isinstance(found, Tensor) else found

                return like.tensors(flows.while_loop(going, again, like.arrays))
        except _WiderError as error:
            carry = [widened(t, layers) for t, layers in zip(carry, error.layers, strict=True)]
        except UntraceableError as error:
            raise NotImplementedError(_SAID.format("while_loop", "a step", error)) from error


_SAID = "{}: JAX traces it, once for all runs, and {} {}"


def scan(
    flows: Flows, step: Step, carry: Tensors, xs: Tensors, length: int, reverse: bool, keep: bool
) -> tuple[Tensors, Tensors, Tensors]:
    """Return the last carry, the results and, if they are to be kept, the carries of a loop that the library runs.

    Raises:
        UntraceableError: a step cannot be traced: it has to run as Python.
    """
    note_uses([*carry, *xs])
    backend = base_of([*carry, *xs][0]).backend
    results: list[_Like] = []
    n = len(carry)

    def flat(carry: Tensors, row: Tensors) -> Tensors:
        carry, ys = step(carry, row)
        return [*carry, *ys]

    while True:
        try:
            with _tracing(flows) as moment:
                like, rows = _Like(carry, backend), _Like(xs, backend)

                def again(arrays: Sequence[Any], row: Sequence[Any], like: _Like = like, rows: _Like = rows) -> Any:
                    outs = _settled(moment, flat(like.tensors(arrays), rows.tensors(row)))
                    note_uses(outs)
                    new, ys = outs[:n], outs[n:]
                    results[:] = [_Like(ys, backend)]
                    saved = arrays if keep else ()
                    return _Like(_as_wide(new, like.layers), backend).arrays, [*saved, *results[0].arrays]

                last, stacks = flows.scan(again, like.arrays, rows.moved(first=True), length, reverse)
            saved, ys = (like if keep else _Like([], backend)), results[0]
            saved.arrays, ys.arrays = stacks[: len(saved.layers)], stacks[len(saved.layers) :]
            return (
                like.tensors(last),
                ys.tensors(ys.moved(first=False)),
                saved.tensors(saved.moved(first=False)),
            )
        except _WiderError as error:
            carry = [widened(t, layers) for t, layers in zip(carry, error.layers, strict=True)]
