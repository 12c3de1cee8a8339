"""The op `torch_call`: a function of torch tensors as one op, with its VJP, and its forms inside vmap and in traces.

A :class:`Task` is a function of a flat list of tensors. :func:`bind` runs one on Tensors, level by level: inside vmap
it runs `torch.func.vmap` of the function on the level below, in a trace it adds an instruction, and elsewhere it runs
the function on leaves of torch.autograd. On each level the tapes find one record. Its rule has two forms:

- On plain tensors, and in traces, the graph of torch.autograd that the function has left is walked backward
  (`PullTask`). If the sweep itself is recorded, the walk builds the graph of the graph, which is another record.
- Inside vmap, where an example's gradient may be asked for of what all examples share, the rule is a task again:
  `torch.func.vjp` of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tape_compile.extend import TracedArray
from tape_core import Tensor
from tape_core.backends import Backend
from tape_core.extend import Op, vjp
from tape_core.staging import TracingError, current
from tape_core.support import ACTIVE, BatchedArray, Binding, Plans, is_watched, setting, wrap
from tape_core.tracing import is_captured, lift, move_to_level
from tape_core.typing import Array, Cotangent, Namespace

from tape_torch.torch_graphs import Graph, carrier, torch_backend
from tape_torch.torch_tasks import PullTask, Task, random_state, refuse_repetition

Outs = list[Tensor | None]
"""The results of a task, None where it returns None."""


def bind(task: Task, tensors: Sequence[Tensor]) -> Outs:
    """Run a task on Tensors, and record it."""
    return _bind(task, [move_to_level(t) for t in tensors], records=False)[0]


def _bind(task: Task, tensors: Sequence[Tensor], *, records: bool) -> tuple[Outs, Graph | None, Any]:
    """Return also the graph, and what carries it for a rule: itself, or in a trace an array; None inside vmap.

    Args:
        task: the function.
        tensors: its arguments, on their levels.
        records: True if a level above needs the graph.
    """
    top = max([t.backend for t in tensors], key=lambda backend: backend.height, default=torch_backend())
    if top.level:
        return _bind_in_vmap(task, tensors, top, records=records)
    records = records or is_watched(tensors)
    if current() is not None:
        return _bind_in_trace(task, tensors, records=records)
    return _bind_here(task, tensors, records=records)


def bind_here(task: Task, tensors: Sequence[Tensor]) -> Outs:
    """Do as :func:`bind` on Tensors that are neither inside vmap nor traced."""
    return _bind_here(task, tensors, records=is_watched(tensors))[0]


def _bind_here(task: Task, tensors: Sequence[Tensor], *, records: bool) -> tuple[Outs, Graph | None, Any]:
    backend = tensors[0].backend if tensors else torch_backend()
    arrays = [t._array for t in tensors]
    repeats = not task.is_pure and is_captured()
    before = random_state(arrays) if repeats else None
    found, graph = task.compute(arrays, records)
    if repeats and random_state(arrays) != before:
        refuse_repetition(task.label)
    task.on_result(found, graph)
    outs = [None if o is None else wrap(o.detach(), backend) for o in found]
    return (outs if graph is None else _record(task, tensors, outs, graph, graph)), graph, graph


def _bind_in_vmap(
    task: Task, tensors: Sequence[Tensor], top: Backend, *, records: bool
) -> tuple[Outs, Graph | None, Any]:
    lifted = [lift(t, top) for t in tensors]
    arrays = [t._array for t in lifted]
    watched = is_watched(lifted)
    axis = next((a.axis for a in arrays if a.axis is not None), None)
    graph = carried = None
    if axis is None:  # one run is that of all examples, and its graph is of use here, too
        found, graph, carried = _bind(task, [a.value for a in arrays], records=records or watched)
    else:
        axes = [None if a.axis is None else 0 for a in arrays]
        # Without a word of the user's for it, random numbers inside vmap are an error, as Tape's own.
        inner = task.batched(axes, axis.size, getattr(axis, "randomness", "error"))
        found = _bind(inner, [a.value for a in arrays], records=False)[0]
    below: Any = top.base
    outs = [None if o is None else wrap(BatchedArray(lift(o, below), top, axis), top) for o in found]
    return (_record(task, lifted, outs, graph, carried) if watched else outs), graph, carried


class TorchCall:
    """The function of an instruction: it runs a task on the tensors of a run.

    Attributes:
        records: True if the graph is a further result, carried by :func:`carrier`.
        refuses: True if DCE must not drop a call, which may have an effect.
    """

    def __init__(self, task: Task, records: bool) -> None:
        self.__name__ = "torch_call"
        self.task = task
        self.records = records
        self.refuses = not task.is_pure
        self.graph: Graph | None = None  # of the first run, while that is traced
        self._specs: list[Any] | None = None

    def __repr__(self) -> str:
        return f"{self.task.label} of PyTorch"

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the results, and the graph."""
        given = list(arrays)
        task = self.task
        if isinstance(task, PullTask):
            made = given.pop(0)
            task = PullTask(task.functional, made.graph, task.given, task.watched, task.layers)
        outs, graph = task.compute(given, self.records)
        self.task.on_result(outs, graph)
        flows = [False] * len(outs) if graph is None else [o is not None for o in graph.outs]
        specs = [None if o is None else (tuple(o.shape), o.dtype, f) for o, f in zip(outs, flows, strict=True)]
        if self._specs is None:
            self._specs, self.graph = specs, graph
        elif specs != self._specs:
            raise TypeError(
                f"{task.label}: it returns other shapes or dtypes than in the run that was compiled, "
                f"{_listed_specs(specs)} and not {_listed_specs(self._specs)}; call it outside of the compiled function"
            )
        results = [None if o is None else o.detach() for o in outs]
        return (*results, carrier(graph)) if graph is not None else tuple(results)


def _listed_specs(specs: Sequence[Any]) -> str:
    return ", ".join([f"{spec[1]}{list(spec[0])}" for spec in specs if spec is not None]) or "nothing"


def _bind_in_trace(task: Task, tensors: Sequence[Tensor], *, records: bool) -> tuple[Outs, Graph | None, Any]:
    stage: Any = current()
    function = TorchCall(task, records)
    arrays = [t._array for t in tensors]
    if isinstance(task, PullTask):
        arrays = [task.graph, *arrays]
    library = torch_backend()
    before = None if task.is_pure else torch.random.get_rng_state()
    found = list(stage.foreign(function, arrays, library, is_pure=task.is_pure))
    if before is not None and not torch.equal(before, torch.random.get_rng_state()):
        try:
            stage.on_foreign_draw(task.label)
        except TracingError:  # this run is none of the user's
            torch.random.set_rng_state(before)
            raise
    backend = stage.tracing(library)
    carried = found.pop() if function.graph is not None else None
    outs = [None if o is None else wrap(o, backend) for o in found]
    graph, function.graph = function.graph, None
    if graph is not None and is_watched(tensors):
        outs = _record(task, [lift(t, backend) for t in tensors], outs, graph, carried)
    return outs, graph, carried


def _record(
    task: Task, tensors: Sequence[Tensor], outs: Sequence[Tensor | None], graph: Graph | None, carried: Any
) -> Outs:
    """Return the results as Tensors that are recorded as a function of `tensors`.

    Args:
        task: the function.
        tensors: its arguments.
        outs: its results, which no recorder knows on this level.
        graph: its graph; None inside vmap.
        carried: the graph for the rule: itself, or the traced array that carries it.
    """
    # Results without a gradient, such as integers, stay beside the record.
    if graph is None:
        flows = [o is not None and o.dtype.inexact for o in outs]
    else:
        flows = [o is not None for o in graph.outs]
        if not any(graph.reached):
            flows = []
    if not any(flows):
        return list(outs)
    values = tuple([o._array for o, f in zip(outs, flows, strict=True) if f])  # type: ignore[union-attr]
    found = _op.function(list(tensors), values=values, task=task, flows=tuple(flows), graph=carried)
    each = iter(found if type(found) is tuple else (found,))
    return [next(each) if f else o for o, f in zip(outs, flows, strict=True)]


class _CallOp(Op):
    """An op that is in no registry, since each call computes another function."""

    foreign = True
    promotes = False

    def bind(self, backend: Backend) -> Binding:
        """Bind the one kernel there is, on every backend: it returns values that are computed already."""
        return self.bound(backend, _computed_values, Plans(self, self.compiled, None, backend))


def _computed_values(arrays: object, /, *, values: tuple[Any, ...], task: Task, flows: object, graph: object) -> Any:
    return values if len(values) > 1 else values[0]


def torch_call(
    arrays: object, /, *, values: tuple[Any, ...], task: Task, flows: tuple[bool, ...], graph: object
) -> Any:
    """Return the results of a function of PyTorch."""


def _pull(
    xp: Namespace,
    g: Cotangent,
    arrays: Sequence[Array],
    arrays_watched: Sequence[bool],
    task: Task,
    flows: tuple[bool, ...],
    graph: Any,
) -> list[Any]:
    each = iter(g if type(g) is tuple else (g,))
    gs = [next(each) if f else None for f in flows]
    is_plain = all([a is None or isinstance(a, torch.Tensor) for a in (*gs, *arrays)])
    if is_plain and type(graph) is Graph and current() is None:
        # As the task below would: on plain arrays its setting up takes longer than a small sweep.
        with torch.inference_mode(False), torch.no_grad():
            return graph.cotangents(gs, arrays_watched, create_graph=False, batched=False)
    given = [d is not None for d in gs]
    functional = task.pullback(given, arrays_watched)
    pull = functional if graph is None else PullTask(functional, graph, given, arrays_watched)
    values = [*[d for d in gs if d is not None], *arrays]
    if isinstance(values[0], Tensor):
        return list(bind(pull, values))
    with setting(ACTIVE, ()):  # a sweep on raw arrays: nothing records it
        found = bind(pull, [wrap(a, _backend_of(a)) for a in values])
    return [None if d is None else d._array for d in found]


def _backend_of(array: Any) -> Backend:
    return array.backend if type(array) in (BatchedArray, TracedArray) else torch_backend()


_op = _CallOp(torch_call, {"arrays": vjp(_pull)}, form="op", sequence=True, materialize=False)
