"""Tasks: functions of flat lists of torch tensors, also for all examples of a vmap, and backward sweeps as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from tape_core.backends.errors import BatchError
from tape_core.staging import TracingError, current
from tape_core.support import contextmanager

from tape_torch.inside import inside
from tape_torch.torch_graphs import Arrays, Graph, WithOwnRules, as_leaf, cast_like, conj

Run = Callable[[Arrays], Arrays]


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
        leaves = [*map(as_leaf, arrays[:n]), *arrays[n:]] if records else arrays
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

        with WithOwnRules():
            try:
                outs, pull = torch.func.vjp(wanted, *point)[:2]
                found = pull(tuple([conj(cast_like(g, o)) for g, o in zip(gs, outs, strict=True)]))
            except RuntimeError:
                if _is_transforming():
                    raise
                # Of no use to torch.func, such as an autograd.Function of the old kind; alone, torch.autograd may do.
                found = _vjp_by_autograd(wanted, point, gs)
        each = iter(found)
        return [conj(next(each)) if w else None for w in watched]

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
        flowing = [(o, conj(cast_like(g, o))) for o, g in zip(outs, gs, strict=True) if o.requires_grad]
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
        seeds = [as_leaf(a) for a in arrays[:n]] if records else arrays[:n]

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
