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

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from tape_compile.extend import TracedArray
from tape_core import Tensor
from tape_core.backends import Backend, backend_of_type
from tape_core.backends.errors import BatchError
from tape_core.extend import Op, registry, vjp
from tape_core.staging import TracingError, current
from tape_core.support import ACTIVE, BatchedArray, Binding, Plans, contextmanager, is_watched, setting, wrap
from tape_core.tracing import is_captured, lift, move_to_level
from tape_core.typing import Array, Cotangent, Namespace

from tape_torch.inside import inside

Arrays = list[Any]
"""Torch tensors; as results of a pullback also None, where nothing flows."""

Run = Callable[[Arrays], Arrays]


def torch_backend() -> Backend:
    """Return the backend of this package."""
    backend = backend_of_type(torch.Tensor)
    assert backend is not None  # this package provides it
    return backend


# -- graphs of torch.autograd


class Graph:
    """A graph of torch.autograd: its outputs, its leaves, and the nodes whose backward function is replaced.

    Attributes:
        leaves: a tensor for each input.
        outs: the results with a derivative.
        reached: for each leaf, True if a result depends on it.
        unknown: other tensors that require grad, and on which a result depends.
    """

    __slots__ = ("leaves", "outs", "reached", "replaced_nodes", "unknown")

    def __init__(self, leaves: Sequence[torch.Tensor], outs: Sequence[torch.Tensor | None]) -> None:
        self.leaves = tuple(leaves)
        self.outs = tuple([o if o is not None and o.requires_grad else None for o in outs])
        self.replaced_nodes: list[Any] = []
        found = _reachable_leaves([o for o in self.outs if o is not None], self.replaced_nodes)
        self.reached = tuple([found.pop(id(leaf), None) is not None for leaf in self.leaves])
        self.unknown = list(found.values())

    def cotangents(
        self, gs: Sequence[torch.Tensor | None], watched: Sequence[bool], *, create_graph: bool, batched: bool
    ) -> Arrays:
        """Return the cotangents of the watched leaves; None for others, and where nothing flows.

        They are plain transposes, as all of Tape's rules, so the complex ones of torch.autograd are conjugated.

        Args:
            gs: the cotangents of the results; None where nothing flows.
            watched: for each leaf, True if its cotangent is wanted.
            create_graph: True if the cotangents are differentiated.
            batched: True if the cotangents have one more dimension in front, that of several sweeps at once.
        """
        used = [
            (o, _conj(_cast_like(g, o))) for o, g in zip(self.outs, gs, strict=True) if g is not None and o is not None
        ]
        wanted = [w and r for w, r in zip(watched, self.reached, strict=True)]
        if not used or not any(wanted):
            return [None] * len(wanted)
        hooks = [node.register_hook(_logcumsumexp_backward(node)) for node in self.replaced_nodes]
        try:
            found = torch.autograd.grad(
                [o for o, _ in used],
                [leaf for leaf, w in zip(self.leaves, wanted, strict=True) if w],
                [g for _, g in used],
                retain_graph=True,  # a persistent tape may ask again; the graph is freed with the tape's record
                create_graph=create_graph,
                allow_unused=True,
                is_grads_batched=batched,
            )
        finally:
            for hook in hooks:  # one left behind would make a reference cycle
                hook.remove()
        each = iter(found)
        return [_conj(next(each)) if w else None for w in wanted]


def carrier(graph: Graph) -> torch.Tensor:
    """Return a tensor without elements that carries a graph, as `.graph`, from one instruction to another."""
    # An attribute and no subclass: PyTorch's tracers replace new tensors by their own kind, which takes attributes.
    made: Any = torch.empty(0)
    made.graph = graph
    return made  # type: ignore[no-any-return]


def _reachable_leaves(outs: Sequence[torch.Tensor], replaced_nodes: list[Any] | None = None) -> dict[int, torch.Tensor]:
    """Return the leaves that a graph leads back to, by id; append nodes with a faulty rule to `replaced_nodes`."""
    # A walk over the nodes, without recursion. AccumulateGrad is the node that ends in a leaf.
    leaves = {id(o): o for o in outs if o.requires_grad and o.grad_fn is None}
    todo: list[Any] = [o.grad_fn for o in outs if o.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        name = type(node).__name__
        if name == "AccumulateGrad":
            leaves[id(node.variable)] = node.variable
        elif name == "LogcumsumexpBackward0" and replaced_nodes is not None:
            replaced_nodes.append(node)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return leaves


def _logcumsumexp_rule(g: torch.Tensor, x: torch.Tensor, out: torch.Tensor, dim: int) -> Any:
    rule: Any = registry["logcumsumexp"].rules["x"]
    return rule.fn(torch_backend().xp, g, x, out, dim, False)


def _has_faulty_rule(x: torch.Tensor) -> bool:
    return x.ndim > 0 and x.dtype in (torch.float32, torch.float64)


def _logcumsumexp_backward(node: Any) -> Any:
    """Return a hook that replaces PyTorch's rule of logcumsumexp by Tape's.

    PyTorch's rule takes logarithms of the cotangents. Its numbers are right, but its derivative with respect to a
    cotangent of 0 is 0, and NaN after it, so second derivatives are wrong.
    """

    def backward(found: tuple[torch.Tensor, ...], gs: tuple[torch.Tensor, ...]) -> Any:
        x, dim = node._saved_self, node._saved_dim
        if not _has_faulty_rule(x):
            return found
        dim -= (dim >= 1 << 63) << 64  # PyTorch shows a negative one as an unsigned integer
        return (_logcumsumexp_rule(gs[0], x, node._saved_result, dim),)

    return backward


class _LogCumSumExp(torch.autograd.Function):
    """`torch.logcumsumexp` with Tape's rule, for torch.func, which shows no nodes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.logcumsumexp(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.dim = inputs[1]
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, out = ctx.saved_tensors
        return _logcumsumexp_rule(g, x, out, ctx.dim), None


class _WithOwnRules(torch.overrides.TorchFunctionMode):
    """A mode in which functions of PyTorch with a faulty rule are replaced; see `_logcumsumexp_backward`."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.logcumsumexp, torch.Tensor.logcumsumexp):
            given = dict(zip(("input", "dim"), args, strict=False)) | (kwargs or {})
            x, dim = given.pop("input", given.pop("self", None)), given.pop("dim", None)
            if type(dim) is int and not given and _has_faulty_rule(x):
                return _LogCumSumExp.apply(x, dim)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def _as_leaf(array: torch.Tensor) -> torch.Tensor:
    """Return a leaf of torch.autograd with the values, and the memory, of an array."""
    if array.is_inference():  # torch.autograd records nothing of inference tensors
        with torch.inference_mode(False):
            array = array.clone()
    else:
        array = array.detach()
    return array.requires_grad_() if array.is_floating_point() or array.is_complex() else array


def _conj(g: torch.Tensor | None) -> Any:
    """Conjugate a complex cotangent: Tape's rules are plain transposes, PyTorch's are conjugated."""
    return torch.conj_physical(g) if g is not None and g.is_complex() else g


def _cast_like(g: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    if g.dtype is out.dtype:
        return g
    return (g.real if g.is_complex() and not out.is_complex() else g).to(out.dtype)


# -- tasks


class Task:
    """A function of a flat list of torch tensors, that returns another.

    Attributes:
        run: the function. It runs on plain tensors, and under torch.func's transformations.
        label: its name in messages.
        written: the number of its first arguments, into which it must not write.
        is_pure: True if it draws no random numbers and has no effect, as a function of PyTorch's own.
        constants: the number of its last arguments that have no derivative.
    """

    __slots__ = ("constants", "is_pure", "label", "run", "written")

    def __init__(self, run: Run, label: str, *, written: int = 0, is_pure: bool = False, constants: int = 0) -> None:
        self.run = run
        self.label = label
        self.written = written
        self.is_pure = is_pure
        self.constants = constants

    def compute(self, arrays: Arrays, records: bool) -> tuple[Arrays, Graph | None]:
        """Return the results on plain tensors, and their graph if `records`."""
        n = len(arrays) - self.constants
        leaves = [*map(_as_leaf, arrays[:n]), *arrays[n:]] if records else arrays
        given = arrays[: self.written]
        versions = list(map(_version, given))  # PyTorch counts writes in place
        with running(records, self.label):
            outs = self.run(list(leaves))
        for k, (array, version) in enumerate(zip(given, versions, strict=True)):
            if _version(array) != version:
                raise RuntimeError(
                    f"{self.label} writes into its argument {self.name_of_argument(k)}, whose value others hold; "
                    f"{IN_PLACE_HINT}"
                )
        if not records:
            return outs, None
        return outs, Graph(leaves, outs)

    def name_of_argument(self, k: int) -> str:
        """Return the name of an argument for messages."""
        return str(k)

    def on_result(self, outs: Arrays, graph: Graph | None) -> None:
        """Check a result; called after each computation."""

    def batched(self, axes: Sequence[int | None], size: int, randomness: str) -> Task:
        """Return the task of all examples of a vmap, which are along dimension 0 where `axes` is 0."""
        return BatchedTask(self, axes, size, randomness)

    def pullback(self, given: Sequence[bool], watched: Sequence[bool]) -> Task:
        """Return the task that maps cotangents, and then the arguments, to cotangents of the watched arguments."""
        return Task(_vjp(self.run, given, watched), self.label, is_pure=self.is_pure, constants=self.constants)


def _vjp(run: Run, given: Sequence[bool], watched: Sequence[bool]) -> Run:
    n = sum(given)

    def pulled(values: Arrays) -> Arrays:
        gs, arrays = values[:n], values[n:]
        point = [a for a, w in zip(arrays, watched, strict=True) if w]

        def wanted(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            each = iter(xs)
            outs = run([next(each) if w else a for a, w in zip(arrays, watched, strict=True)])
            return tuple([o for o, flows in zip(outs, given, strict=True) if flows])

        with _WithOwnRules():
            try:
                outs, pull = torch.func.vjp(wanted, *point)[:2]
                found = pull(tuple([_conj(_cast_like(g, o)) for g, o in zip(gs, outs, strict=True)]))
            except RuntimeError:
                if _is_transforming():
                    raise
                # Of no use to torch.func, such as an autograd.Function of the old kind; alone, torch.autograd may do.
                found = _vjp_by_autograd(wanted, point, gs)
        each = iter(found)
        return [_conj(next(each)) if w else None for w in watched]

    return pulled


def _is_transforming() -> bool:
    """Return whether a transformation of torch.func runs, under which torch.autograd sees nothing."""
    level: Any = torch._C._functorch.maybe_current_level()
    return level is not None


def _vjp_by_autograd(
    function: Callable[..., tuple[torch.Tensor, ...]], point: Arrays, gs: Sequence[torch.Tensor]
) -> Sequence[Any]:
    recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        xs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in point]
        outs = function(*xs)
        flowing = [(o, _conj(_cast_like(g, o))) for o, g in zip(outs, gs, strict=True) if o.requires_grad]
        found: Sequence[Any] = [None] * len(xs)
        if flowing:
            found = torch.autograd.grad(
                [o for o, _ in flowing], xs, [g for _, g in flowing], create_graph=recorded, allow_unused=True
            )
    return [torch.zeros_like(x) if d is None else d for d, x in zip(found, xs, strict=True)]


class BatchedTask(Task):
    """A task on all examples of a vmap: by torch.func.vmap, or if the function does not allow that, one by one."""

    __slots__ = ("axes", "draws_nothing", "one", "randomness", "seed", "size")

    def __init__(self, one: Task, axes: Sequence[int | None], size: int, randomness: str) -> None:
        super().__init__(self._run_all, one.label, written=one.written, is_pure=one.is_pure, constants=one.constants)
        self.one = one
        self.axes = tuple(axes)
        self.size = size
        self.randomness = randomness
        # The function runs again for its derivative, and must draw the same numbers then.
        self.seed: int | None = None
        # A trace would keep one seed for all its runs: there the function must draw nothing.
        self.draws_nothing = False
        if randomness != "error" and not self.is_pure:
            if current() is not None:
                self.draws_nothing = True
            else:
                self.seed = getattr(one, "seed", None) or int(torch.randint(2**62, ()))

    def name_of_argument(self, k: int) -> str:
        """Return the name of an argument for messages."""
        return self.one.name_of_argument(k)

    def on_result(self, outs: Arrays, graph: Graph | None) -> None:
        """Have the task for one example check it."""
        self.one.on_result(outs, graph)

    def _run_all(self, arrays: Arrays) -> Arrays:
        if not self.draws_nothing or _is_transforming():  # the outermost of several tasks looks
            return self._run_examples(arrays)
        before, states = torch.random.get_rng_state(), random_state(arrays)
        found = self._run_examples(arrays)
        if random_state(arrays) != states:
            torch.random.set_rng_state(before)
            raise TracingError(
                f"{self.label}: it draws random numbers of PyTorch, which inside vmap in a compiled function would be "
                f"the same in each call; call it outside of one of the two"
            )
        return found

    def _run_examples(self, arrays: Arrays) -> Arrays:
        with nullcontext() if self.seed is None else _seeded(self.seed, arrays):
            absent: list[bool] = []

            def example(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
                outs = self.one.run(list(xs))
                absent[:] = [o is None for o in outs]
                return tuple([o for o in outs if o is not None])

            try:
                found: Sequence[Any] = torch.func.vmap(example, self.axes, randomness=self.randomness)(*arrays)
            except BatchError:
                raise
            except Exception as error:
                if "randomness" in str(error):
                    raise self._drawing() from error
                if self.size == 0:
                    raise
                before = random_state(arrays)
                rows = []
                for k in range(self.size):
                    if self.randomness == "same" and self.seed is not None:
                        torch.manual_seed(self.seed)
                    one = [a if axis is None else a[k] for a, axis in zip(arrays, self.axes, strict=True)]
                    rows.append(example(*one))
                if self.randomness == "error" and random_state(arrays) != before:
                    raise self._drawing() from error
                found = [self._stacked(column) for column in zip(*rows, strict=True)]
            each = iter(found)
            return [None if a else next(each) for a in absent]

    def _drawing(self) -> BatchError:
        return BatchError(
            f"{self.label} draws random numbers inside vmap; draw them outside, and give each example its own"
        )

    def _stacked(self, column: Sequence[torch.Tensor]) -> torch.Tensor:
        if len({tuple(row.shape) for row in column}) > 1:
            raise BatchError(
                f"{self.label} inside vmap: the shape of its result depends on values, and examples differ"
            )
        return torch.stack(list(column))


@contextmanager
def _seeded(seed: int, arrays: Sequence[torch.Tensor]) -> Iterator[None]:
    devices = sorted({a.device.index or 0 for a in arrays if a.device.type == "cuda"})
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


class PullTask(Task):
    """The pullback of a task whose graph is there: its arguments are the cotangents, then those of the task.

    Attributes:
        functional: the same as a function of all its arguments, for derivatives inside vmap.
        graph: the graph; in a trace the traced array that carries it.
        given, watched: which results have cotangents, and which arguments are to have them.
        layers: of each vmap around the sweep, the outermost first, the size, and for each cotangent whether it differs
            by example.
    """

    __slots__ = ("functional", "given", "graph", "layers", "watched")

    def __init__(
        self,
        functional: Task,
        graph: Any,
        given: Sequence[bool],
        watched: Sequence[bool],
        layers: tuple[tuple[int, tuple[bool, ...]], ...] = (),
    ) -> None:
        super().__init__(
            self._run_functional, functional.label, is_pure=functional.is_pure, constants=functional.constants
        )
        self.functional = functional
        self.graph = graph
        self.given = tuple(given)
        self.watched = tuple(watched)
        self.layers = layers

    def _run_functional(self, values: Arrays) -> Arrays:
        # The function has run, for the graph, and runs again.
        before = None if self.is_pure else random_state(values)
        found = self.functional.run(values)
        if before is not None and random_state(values) != before:
            refuse_repetition(self.label)
        return found

    def compute(self, arrays: Arrays, records: bool) -> tuple[Arrays, Graph | None]:
        """Return the cotangents, by a walk through the graph."""
        n, depth, graph = sum(self.given), len(self.layers), self.graph
        sizes = [size for size, _ in self.layers]
        seeds = [_as_leaf(a) for a in arrays[:n]] if records else arrays[:n]

        def swept(rows: Sequence[torch.Tensor], *, batched: bool = False) -> Arrays:
            each = iter(rows)
            gs = [next(each) if flows else None for flows in self.given]
            return graph.cotangents(gs, self.watched, create_graph=records, batched=batched)  # type: ignore[no-any-return]

        def swept_one_by_one(rows: Sequence[torch.Tensor]) -> Arrays:
            found = [swept(each) for each in zip(*rows, strict=True)]
            return [None if column[0] is None else torch.stack(column) for column in zip(*found, strict=True)]

        with torch.inference_mode(False), torch.set_grad_enabled(records):
            if not depth:
                found = swept(seeds)
            else:
                flat = [self._spread(k, s).flatten(0, depth - 1) for k, s in enumerate(seeds)]
                if graph.replaced_nodes and flat[0].shape[0]:  # PyTorch calls no hooks on batched gradients
                    found = swept_one_by_one(flat)
                else:
                    try:
                        found = swept(flat, batched=True)
                    except Exception:
                        if not flat[0].shape[0]:
                            raise
                        found = swept_one_by_one(flat)  # a backward function without a batch rule
                found = [None if d is None else d.unflatten(0, sizes) for d in found]
        return found, Graph([*seeds, *graph.leaves], found) if records else None

    def _spread(self, k: int, seed: torch.Tensor) -> torch.Tensor:
        """Return a cotangent with a dimension for each vmap in front, also of those whose examples share it."""
        own = [flags[k] for _, flags in self.layers]
        key = tuple([slice(None) if differs else None for differs in own])
        rest = seed.shape[sum(own) :]
        return seed[key].expand(*[size for size, _ in self.layers], *rest)

    def batched(self, axes: Sequence[int | None], size: int, randomness: str) -> Task:
        """Return the task of all examples of a vmap around the sweep."""
        n = sum(self.given)
        functional = BatchedTask(self, axes, size, randomness)
        if any([axis is not None for axis in axes[n:]]):
            return functional
        layer = size, tuple([axis is not None for axis in axes[:n]])
        return PullTask(functional, self.graph, self.given, self.watched, (layer, *self.layers))


# -- random numbers


def random_state(arrays: Sequence[torch.Tensor]) -> list[Any]:
    """Return the states of PyTorch's generators on the devices of some tensors."""
    devices = {a.device for a in arrays if a.device.type == "cuda"}
    return [_bytes(torch.random.get_rng_state()), *[_bytes(torch.cuda.get_rng_state(d)) for d in devices]]


def _bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()


def refuse_repetition(label: str) -> None:
    """Raise the error for random numbers in a function that runs again for its derivative.

    Raises:
        TypeError: always.
    """
    raise TypeError(
        f"{label} draws random numbers of PyTorch, and runs again for the derivative, where it would draw others: "
        f"draw them outside, and give them as an argument, or use tape_core.dropout"
    )


# -- running and recording


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


# -- while a function runs


@contextmanager
def running(records: bool, label: str) -> Iterator[None]:
    """Context while a function runs: with or without torch.autograd, and refusing tensors of the wrong library."""
    # Without ExitStack, and inference mode left only where it is on: they took a tenth of a small call.
    try:
        if not records:
            with torch.set_grad_enabled(False), inside("call"):
                yield
        elif torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.enable_grad(), inside("call"):
                yield
        else:
            with torch.enable_grad(), inside("call"):
                yield
    except RuntimeError as error:
        if "leaf Variable" in str(error) and "in-place" in str(error):
            raise RuntimeError(f"{label} writes into an argument, whose value others hold; {IN_PLACE_HINT}") from error
        raise


IN_PLACE_HINT = "use the function that is not in place, or write into a clone() of it"


def _version(array: torch.Tensor) -> int:
    return 0 if array.is_inference() else array._version
