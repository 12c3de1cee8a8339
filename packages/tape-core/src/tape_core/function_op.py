"""A function as one op: what it gave is recorded with a rule of its own, which is a function as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tape_core.backends.batched import OPEN, Axis, Batched, BatchedArray, lifted
from tape_core.backends.protocol import Backend
from tape_core.batching import spread
from tape_core.indexed_slices import dense
from tape_core.op import Op, Plans, vjp
from tape_core.tensor import Tensor, wrap

Pull = Callable[[list[Any], list[bool]], Sequence[Any]]


class FunctionCall:
    """What a call gave, and the function that maps cotangents of it to those of its inputs."""

    __slots__ = ("backend", "outs", "pull")

    def __init__(self, outs: Sequence[Tensor], backend: Backend, pull: Pull) -> None:
        self.outs = tuple([o._array for o in outs])
        self.backend = backend
        self.pull = pull

    def cotangents(self, g: Any, watched: list[bool]) -> list[Any]:
        """Those of the inputs that are watched, raw where `g` is."""
        gs = list(g) if type(g) is tuple else [g]
        if any([isinstance(one, Tensor) for one in gs]):
            return [dense(d) if w else None for d, w in zip(self.pull(gs, watched), watched, strict=True)]
        found = self.pull([None if one is None else wrap(one, self.backend) for one in gs], watched)
        return [dense(d)._array if w and d is not None else None for d, w in zip(found, watched, strict=True)]


class _FunctionOp(Op):
    """An op that no registry has: what it computes is different in each call."""

    def bind(self, backend: Backend) -> tuple[Callable[..., Any], Plans]:
        """One kernel for all: the values are there."""
        kernel = _values_of_examples if isinstance(backend, Batched) else _values
        bound = self.bindings[backend] = kernel, Plans(self, self.compiled, None, backend)
        return bound


def _values_of_examples(arrays: Any, /, *, call: FunctionCall) -> Any:
    """Inside vmap: the tapes outside see all examples as one call."""
    backend = call.backend
    assert isinstance(backend, Batched)
    axis = next((a.axis for a in (*arrays, *call.outs) if a.axis is not None), None)

    def pull(gs: list[Any], watched: list[bool]) -> list[Any]:
        with _again(axis):
            lifted_gs = [
                None if g is None else wrap(BatchedArray(g, backend, out.axis), backend)
                for g, out in zip(gs, call.outs, strict=True)
            ]
            found = call.pull(lifted_gs, watched)
            return [None if d is None else _below(dense(d), a) for d, a in zip(found, arrays, strict=True)]

    def _below(d: Tensor, array: Any) -> Tensor:
        """A cotangent of what an input has below: summed over the examples that share it."""
        from tape_core.ops.statistical import sum as total

        own = lifted(d, backend)._array
        if array.axis is not None:
            return spread(own, array.axis.size)
        return own.value if own.axis is None else total(own.value, axis=0)

    found = recorded_as_one([a.value for a in arrays], [o.value for o in call.outs], pull)
    outs = tuple([BatchedArray(o, backend, out.axis) for o, out in zip(found, call.outs, strict=True)])
    return outs if len(outs) > 1 else outs[0]


@contextmanager
def _again(axis: Axis | None) -> Iterator[None]:
    """A context in which a hidden axis is there again, also when its vmap has ended: for what a function has kept."""
    if axis is None or axis in OPEN.get():
        yield
        return
    token, axis.open = OPEN.set((*OPEN.get(), axis)), True
    try:
        yield
    finally:
        axis.open = False
        OPEN.reset(token)


def _values(arrays: Any, /, *, call: FunctionCall) -> Any:
    return call.outs if len(call.outs) > 1 else call.outs[0]


def function_call(arrays: Any, /, *, call: FunctionCall) -> Any:
    """The results of a function."""


_op = _FunctionOp(
    function_call,
    {"arrays": vjp(lambda xp, g, arrays_watched, call: call.cotangents(g, arrays_watched))},
    form="op",
    sequence=True,
    materialize=False,
)


def recorded_as_one(inputs: Sequence[Tensor], outs: Sequence[Tensor], pull: Pull) -> list[Tensor]:
    """`outs` as new Tensors that depend on `inputs`, and on nothing else.

    Args:
        inputs: Tensors, at least one.
        outs: Tensors, at least one.
        pull: maps cotangents of `outs`, Tensors or None where nothing flows, and for each input whether its cotangent
            is wanted, to those cotangents, None where it is not. They are plain transposes: they do not conjugate.
    """
    backend = max([t.backend for t in (*inputs, *outs)], key=lambda backend: backend.level)
    given = [lifted(t, backend) for t in inputs]
    call = FunctionCall([lifted(o, backend) for o in outs], backend, pull)
    found = _op.function(given, call=call)
    return list(found) if isinstance(found, tuple | list) else [found]
