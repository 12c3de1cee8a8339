"""A function as one op: what it gave is recorded with a rule of its own, which is a function as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tape_core.backends.batched import OPEN, Axis, Batched, BatchedArray, lifted
from tape_core.backends.errors import BatchError
from tape_core.backends.protocol import Backend
from tape_core.backward import lifting
from tape_core.batching import spread
from tape_core.indexed_slices import dense
from tape_core.op import Op, Plans, vjp
from tape_core.plan import Plan
from tape_core.rules import slot_at
from tape_core.tensor import Tensor, wrap

Pull = Callable[[list[Any], list[bool], list[Tensor]], Sequence[Any]]
Push = Callable[[list[Any], list[Tensor]], Sequence[Any]]


_level: ContextVar[int] = ContextVar("tape_core.level_of_derivative", default=0)


@contextmanager
def asked_on(backend: Backend) -> Iterator[None]:
    """A context of a derivative that what records on a backend asks for."""
    token = _level.set(backend.level)
    try:
        yield
    finally:
        _level.reset(token)


def asked_level() -> int:
    """The level of the backend on which something asks for the derivative that is being computed."""
    return _level.get()


def below(tensor: Tensor, level: int | None) -> Tensor:
    """A Tensor as it is on a level: there it is of all examples of the vmaps above."""
    while level is not None and tensor.backend.level > level:
        tensor = tensor._array.value
    return tensor


def lowered(out: Tensor, g: Tensor, level: int | None) -> tuple[Tensor, Tensor]:
    """A result and its cotangent, as they are on a level."""
    while level is not None and out.backend.level > level:
        array = out._array
        out, g = array.value, _below(g, array, getattr(g._array, "axis", None))
    return out, g if level is None else lower(g, out.backend)


def lowered_tangent(x: Tensor, t: Tensor, level: int) -> tuple[Tensor, Tensor]:
    """A value and its tangent, as they are on a level."""
    while x.backend.level > level:
        array = x._array
        own = lifted(lower(t, array.backend), array.backend)._array
        x, t = array.value, own.value if array.axis is None else spread(own, array.axis.size)
    return x, lower(t, x.backend)


def raised(derivative: Any, x: Tensor, level: int | None) -> Any:
    """A derivative that is as :func:`below` gives a value, as one of the value."""
    if derivative is None or level is None or x.backend.level <= level:
        return derivative
    array = x._array
    value = raised(derivative, array.value, level)
    return wrap(BatchedArray(value, array.backend, array.axis), x.backend)


class FunctionCall:
    """What a call gave, and the functions that map cotangents of it to those of its inputs, and tangents forward."""

    __slots__ = ("backend", "name", "outs", "pull", "push")

    def __init__(self, outs: Sequence[Tensor], backend: Backend, pull: Pull, push: Push | None, name: str) -> None:
        self.name = name
        self.outs = tuple([o._array for o in outs])
        self.backend = backend
        self.pull = pull
        self.push = push

    def cotangents(self, g: Any, out: Any, watched: list[bool]) -> list[Any]:
        """Those of the inputs that are watched, raw where `g` is."""
        gs, outs = _listed(g), _listed(out)
        with asked_on(self.backend):
            if any([isinstance(one, Tensor) for one in gs]):
                return [dense(d) if w else None for d, w in zip(self.pull(gs, watched, outs), watched, strict=True)]
            outs = [wrap(one, self.backend) for one in outs]
            found = self.pull([None if one is None else wrap(one, self.backend) for one in gs], watched, outs)
        return [dense(d)._array if w and d is not None else None for d, w in zip(found, watched, strict=True)]


def _listed(values: Any) -> list[Any]:
    return list(values) if type(values) in (tuple, list) else [values]


class _FunctionOp(Op):
    """An op that no registry has: what it computes is different in each call."""

    def bind(self, backend: Backend) -> tuple[Callable[..., Any], Plans]:
        """One kernel for all: the values are there."""
        kernel = _values_of_examples if isinstance(backend, Batched) else _values
        return self.bound(backend, kernel, Plans(self, self.compiled, None, backend))

    def push(self, plan: Plan, rec: tuple[Any, ...]) -> Any:
        """By the call's own function, where it has one."""
        at = slot_at(plan.n)
        call: FunctionCall = rec[at + 3]["call"]
        if call.push is None:
            return NotImplemented
        _, lift = lifting(plan.backend)
        outs = _listed(lift(rec[at], tuple(rec[at + 1]) if type(rec[at + 1]) is list else rec[at + 1]))
        with asked_on(plan.backend):
            found = tuple(call.push(list(rec[slot_at(0)]), outs))
        return found if len(outs) > 1 else found[0]


def _values_of_examples(arrays: Any, /, *, call: FunctionCall) -> Any:
    """Inside vmap: the tapes outside see all examples as one call."""
    backend = call.backend
    assert isinstance(backend, Batched)
    axis = next((a.axis for a in (*arrays, *call.outs) if a.axis is not None), None)

    def above(values: Sequence[Any], like: Sequence[BatchedArray]) -> list[Any]:
        """Values of the backend below, one with the hidden axis where the array has it."""
        return [
            None if v is None else wrap(BatchedArray(v, backend, a.axis), backend)
            for v, a in zip(values, like, strict=True)
        ]

    def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
        with _again(axis):
            found = call.pull(above(gs, call.outs), watched, above(outs, call.outs))
            return [None if d is None else _below(d, a, axis) for d, a in zip(found, arrays, strict=True)]

    def push(ts: list[Any], outs: list[Tensor]) -> list[Any]:
        assert call.push is not None
        with _again(axis):
            found = [
                lifted(lower(t, backend), backend)._array for t in call.push(above(ts, arrays), above(outs, call.outs))
            ]
            for t, out in zip(found, call.outs, strict=True):
                if t.axis is not None and out.axis is None:
                    raise BatchError("the tangent of a result is not the same for all examples, but the result is")
            return [
                t.value if out.axis is None else spread(t, out.axis.size)
                for t, out in zip(found, call.outs, strict=True)
            ]

    forward = push if call.push else None
    found = recorded_as_one([a.value for a in arrays], [o.value for o in call.outs], pull, forward, call.name)
    outs = tuple([BatchedArray(o, backend, out.axis) for o, out in zip(found, call.outs, strict=True)])
    return outs if len(outs) > 1 else outs[0]


def _below(d: Any, array: BatchedArray, axis: Axis | None) -> Tensor:
    """A cotangent of what an array has below: summed over the examples of the axis that share it."""
    from tape_core.ops.statistical import sum as total

    own = lifted(lower(dense(d), array.backend), array.backend)._array
    if array.axis is not None:
        return spread(own, array.axis.size)
    if own.axis is None:
        return own.value  # type: ignore[no-any-return]
    # With the axis of another vmap it is what is below, and all examples of that.
    return total(own.value, axis=0) if own.axis is axis else d


def lower(tensor: Tensor, backend: Backend) -> Tensor:
    """A Tensor on a backend above, where all examples share it, as one of `backend`."""
    while tensor.backend.level > backend.level and tensor._array.axis is None:
        tensor = tensor._array.value
    return tensor


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


FUNCTION_CALL = _FunctionOp(
    function_call,
    {"arrays": vjp(lambda xp, g, out, arrays_watched, call: call.cotangents(g, out, arrays_watched))},
    form="op",
    sequence=True,
    materialize=False,
)


def recorded_as_one(
    inputs: Sequence[Tensor],
    outs: Sequence[Tensor],
    pull: Pull,
    push: Push | None = None,
    name: str = "function_call",
) -> list[Tensor]:
    """`outs` as new Tensors that depend on `inputs`, and on nothing else.

    Args:
        inputs: Tensors, at least one.
        outs: Tensors, at least one.
        pull: maps cotangents of `outs`, Tensors or None where nothing flows, for each input whether its cotangent is
            wanted, and the results as the tapes around know them, to those cotangents, None where it is not. They are
            plain transposes: they do not conjugate.
        push: maps tangents of `inputs`, None where there is none, and the results to tangents of those. Without it
            forward mode goes by the transpose of `pull`.
        name: what debugging tapes call it.
    """
    backend = max([t.backend for t in (*inputs, *outs)], key=lambda backend: backend.height)
    given = [lifted(t, backend) for t in inputs]
    call = FunctionCall([lifted(o, backend) for o in outs], backend, pull, push, name)
    found = FUNCTION_CALL.function(given, call=call)
    return list(found) if isinstance(found, tuple | list) else [found]
