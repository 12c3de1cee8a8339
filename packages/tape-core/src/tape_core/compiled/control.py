"""Decisions and loops that depend on values: eagerly as Python's own, in compiled functions as one instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tape_core import pytree
from tape_core.backends.batched import OPEN, BatchedArray
from tape_core.backends.traced import TRACE, TracedArray, TracingError
from tape_core.ops.creation import asarray, zeros_like
from tape_core.ops.elementwise import where
from tape_core.ops.logic import logical_and
from tape_core.ops.searching import any as any_of
from tape_core.recording import ACTIVE
from tape_core.tensor import SCALARS, Tensor, read, wrap
from tape_core.transforms.calls import Arguments, Results, guarded, standing_for
from tape_core.transforms.custom import linear_transpose
from tape_core.variable import Variable

if TYPE_CHECKING:
    from tape_core.compiled.source import Source
    from tape_core.compiled.trace import Trace

Function = Callable[..., Any]


def cond(pred: Any, true_fn: Function, false_fn: Function, *operands: Any) -> Any:
    """`true_fn(*operands)` where `pred` is true, else `false_fn(*operands)`.

    Outside of compiled functions and vmap it is Python's `if`. In a compiled function the decision is taken in each
    call, and one of the two runs. Inside :func:`vmap` both run, and each example has the results of one.

    >>> import tape_core as tc
    >>> @tc.function
    ... def absolute(x):
    ...     return tc.cond(x < 0, lambda x: -x, lambda x: x, x)
    >>> absolute(tc.asarray(-2.0)).item(), absolute(tc.asarray(3.0)).item()
    (2.0, 3.0)

    Args:
        pred: a bool, or a Tensor of one element.
        true_fn, false_fn: functions of the operands. In a compiled function both are traced, and must give the same
            structure of Tensors of the same shapes and dtypes. They may assign Variables, but not draw random numbers.
        operands: pytrees. What a tape watches in a compiled function, other than Variables, must be among them.

    Raises:
        TypeError: in a compiled function: the results differ, or a branch uses what is watched without being given it.
        ValueError: `pred` has more than one element.
    """
    pred = read(pred, "cond: pred")
    if type(pred) is Tensor and pred.size != 1:
        raise ValueError(f"cond: pred must be a bool or a Tensor of one element, got shape {pred.shape}")
    array = pred._array if type(pred) is Tensor else None
    if type(array) is BatchedArray:
        if array.axis is None:
            return cond(array.value, true_fn, false_fn, *operands)
        return _selected(pred, true_fn(*operands), false_fn(*operands), "cond")
    if type(array) is not TracedArray:
        return true_fn(*operands) if bool(pred) else false_fn(*operands)
    if OPEN.get():
        # What the branches compute with may have a hidden axis, which no instruction has.
        return _selected(pred, true_fn(*operands), false_fn(*operands), "cond")
    trace = array.trace
    if not ACTIVE.get():
        return _traced_cond(trace, array, true_fn, false_fn, operands)
    return _recorded_cond(trace, pred, array, true_fn, false_fn, operands)


def _selected(pred: Tensor, a: Any, b: Any, name: str) -> Any:
    """The one or the other result for each example."""
    leaves, structure = pytree.flatten(a)
    others, other = pytree.flatten(b)
    check_same(leaves, structure, others, other, name)
    return pytree.unflatten(
        structure, [x if x is None else where(pred, x, y) for x, y in zip(leaves, others, strict=True)]
    )


def check_same(leaves: list[Any], structure: Any, others: list[Any], other: Any, name: str) -> None:
    if len(leaves) != len(others) or not pytree.same(structure, other, len(leaves)):
        raise TypeError(
            f"{name}: the result must have the same structure in both cases: it has {len(leaves)} leaves and "
            f"{len(others)}"
        )
    for k, (x, y) in enumerate(zip(leaves, others, strict=True)):
        a, b = (None if v is None else (tuple(v.shape), v.dtype) for v in (as_leaf(x), as_leaf(y)))
        if a != b:
            raise TypeError(
                f"{name}: result{pytree.path(structure, k)} must be the same kind of Tensor in both cases: it is "
                f"{_spelled(a)} and {_spelled(b)}"
            )


def _spelled(kind: Any) -> str:
    return "None" if kind is None else f"{kind[1]}{list(kind[0])}"


def as_leaf(leaf: Any) -> Any:
    if leaf is None:
        return None
    value = read(leaf, "a result of a branch or a loop")
    return asarray(value) if type(value) in SCALARS else value


# -- traces inside traces


class _Part:
    """A branch, or one round of a loop: what it computes, and what it needs.

    Attributes:
        leaves, structure: of its result.
        trace: the trace.
    """

    def __init__(self, around: Trace, function: Function, given: Sequence[Any] = ()) -> None:
        self.trace = type(around)(around.name, parent=around)
        # What it is given, of which the values are others in each round.
        args = [wrap(self.trace.input(_value(t), t.backend.library.traced), t.backend.library.traced) for t in given]
        with _inside(self.trace):
            leaves, self.structure = pytree.flatten(function(*args))
            self.leaves = [as_leaf(leaf) for leaf in leaves]

    def source(self, name: str, arrays: Sequence[Any]) -> Source:
        """What computes these arrays."""
        from tape_core.compiled import passes
        from tape_core.compiled.program import Program
        from tape_core.compiled.source import Source

        program = self.trace.program([])
        outputs = [self.trace.ref(array).id for array in arrays]
        whole = Program(
            program.instructions, program.inputs, program.constants, outputs, program.specs, program.backend
        )
        return Source(passes.run(whole, {})[0], f"{self.trace.name}_{name}")

    def captured(self) -> tuple[TracedArray, ...]:
        """What it needs of what is around it."""
        return tuple(self.trace.captured.values())


def _value(tensor: Tensor) -> Any:
    array = tensor._array
    return array.value if type(array) is TracedArray else array


@contextmanager
def _inside(trace: Trace) -> Iterator[None]:
    token = TRACE.set(trace)
    try:
        yield
    finally:
        TRACE.reset(token)


# -- cond


class _Cond:
    """The instruction: one of two sources."""

    __name__ = "cond"

    def __init__(self, true: Source, false: Source, n: int) -> None:
        self.true = true
        self.false = false
        self.n = n

    def __call__(self, pred: Any, *arrays: Any) -> tuple[Any, ...]:
        """The results of the one that is chosen; `n` of the arrays are what the first one needs."""
        return self.true.run(list(arrays[: self.n])) if pred else self.false.run(list(arrays[self.n :]))


def _traced_cond(trace: Trace, pred: TracedArray, true_fn: Function, false_fn: Function, operands: Any) -> Any:
    true = _Part(trace, lambda: true_fn(*operands))
    false = _Part(trace, lambda: false_fn(*operands))
    check_same(true.leaves, true.structure, false.leaves, false.structure, "cond")
    variables: list[Variable] = []
    for part in (true, false):
        variables += [h.variable for h in part.trace.held.values() if h.written and h.variable not in _Same(variables)]
    backends = [None if leaf is None else leaf.backend.library for leaf in true.leaves]
    sources = []
    for part, name in ((true, "if"), (false, "else")):
        with _inside(part.trace):
            arrays = [leaf._array for leaf in part.leaves if leaf is not None] + [v._array for v in variables]
        sources.append(part.source(name, arrays))
    chosen = _Cond(sources[0], sources[1], len(true.captured()))
    given = (pred, *true.captured(), *false.captured())
    found = trace.call("cond", chosen, given, {}, _backend_of(backends, variables, pred))
    results = iter(found)
    made = [None if b is None else wrap(next(results), b.traced) for b in backends]
    for variable, array in zip(variables, results, strict=True):
        variable._array, variable._slots = array, {}
    return pytree.unflatten(true.structure, made)


class _Same:
    """Variables by identity: `==` of Variables is elementwise."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.names = {id(v) for v in variables}

    def __contains__(self, variable: Variable) -> bool:
        return id(variable) in self.names


def _backend_of(backends: Sequence[Any], variables: Sequence[Variable], pred: TracedArray) -> Any:
    """Where the results of an instruction are."""
    found = next((b for b in backends if b is not None), None)
    if found is not None:
        return found.traced
    return variables[0].backend if variables else pred.backend


def _recorded_cond(
    trace: Trace, pred: Tensor, array: TracedArray, true_fn: Function, false_fn: Function, operands: Any
) -> Any:
    """As one op of the tapes around it, whose derivative is a decision of the same kind."""
    arguments = Arguments(operands)
    with guarded("a function that cond is given") as readers:
        out = _traced_cond(trace, array, true_fn, false_fn, _unwatched(arguments))
    variables = [v for v in readers.found if v.dtype.inexact]
    results = Results(out, "cond")
    inputs = [*arguments.differentiable, *[v._read() for v in variables]]
    n = len(arguments.places)

    def again(function: Function) -> Function:
        def call(values: list[Tensor]) -> list[Tensor]:
            with standing_for(variables, values[n:]):
                found = function(*arguments.replaced(values[:n]))
            return results.matching(found, "the result of cond")

        return call

    def pull(gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
        flowing = [k for k, g in enumerate(gs) if g is not None]

        def slopes(function: Function) -> Function:
            def call(inputs: list[Tensor], given: list[Tensor]) -> list[Tensor]:
                all_gs: list[Any] = [None] * len(gs)
                for k, g in zip(flowing, given, strict=True):
                    all_gs[k] = g
                found = linear_transpose(again(function), inputs, all_gs, watched)
                return [zeros_like(x) if d is None else d for d, x, w in zip(found, inputs, watched, strict=True) if w]

            return call

        chosen = iter(cond(pred, slopes(true_fn), slopes(false_fn), inputs, [gs[k] for k in flowing]))
        return [next(chosen) if w else None for w in watched]

    return results.recorded("cond", inputs, pull)


def _unwatched(arguments: Arguments) -> Any:
    return arguments.replaced([wrap(t._array, t.backend) for t in arguments.differentiable])


# -- while_loop


def while_loop(cond_fn: Function, body_fn: Function, init: Any) -> Any:
    """`state = body_fn(state)` while `cond_fn(state)`, from `state = init`.

    Outside of compiled functions it is Python's `while`, and tapes record each round. In a compiled function the rounds
    are counted in each call. Inside :func:`vmap` it goes on while any example does, and the others stay as they are.

    >>> import tape_core as tc
    >>> @tc.function
    ... def root(x):
    ...     def step(y):
    ...         return (y + x / y) / 2
    ...     return tc.while_loop(lambda y: tc.abs(y * y - x) > 1e-5 * x, step, x)
    >>> round(root(tc.asarray(2.0)).item(), 4), round(root(tc.asarray(1e6)).item(), 2)
    (1.4142, 1000.0)

    Args:
        cond_fn: a function of the state that gives a bool or a Tensor of one element.
        body_fn: a function of the state that gives the next one: the same structure of Tensors of the same shapes and
            dtypes.
        init: the first state, a pytree of Tensors and numbers.

    Raises:
        TypeError: the state becomes another kind of Tensor. Or in a compiled function: a tape inside of it watches what
            the loop computes with. There use :func:`scan`, which has a fixed number of rounds, or put the loop and the
            tape into a function that is not compiled.
    """
    leaves, structure = pytree.flatten(init)
    state = [as_leaf(leaf) for leaf in leaves]

    def on_leaves(function: Function) -> Callable[[list[Any]], Any]:
        return lambda state: function(pytree.unflatten(structure, list(state)))

    def body(state: list[Any]) -> list[Any]:
        found, other = pytree.flatten(body_fn(pytree.unflatten(structure, list(state))))
        check_same(state, structure, found, other, "while_loop")
        return [as_leaf(leaf) for leaf in found]

    going = on_leaves(cond_fn)
    while True:
        pred = read(going(state), "while_loop: the result of cond_fn")
        array = pred._array if type(pred) is Tensor else None
        if type(array) is TracedArray:
            return pytree.unflatten(structure, _traced_while(array.trace, going, body, state))
        if type(array) is BatchedArray and array.axis is not None:
            return pytree.unflatten(structure, _while_any(pred, going, body, state))
        if not bool(pred):
            return pytree.unflatten(structure, state)
        state = body(state)


def _while_any(pred: Tensor, going: Function, body: Function, state: list[Any]) -> list[Any]:
    """Inside vmap: while any example goes on."""
    while _any_example(pred):
        new = body(state)
        state = [x if x is None else where(pred, y, x) for x, y in zip(state, new, strict=True)]
        pred = logical_and(pred, going(state))
    return state


def _any_example(pred: Tensor) -> bool:
    while type(pred._array) is BatchedArray:
        pred = pred._array.value
    return bool(any_of(pred))


class _While:
    """The instruction: two sources in turns."""

    __name__ = "while_loop"

    def __init__(self, going: Source, body: Source, state: int, n: int) -> None:
        self.going = going
        self.body = body
        self.state = state
        self.n = n

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The last state; after the first one come what the condition needs, `n` arrays, and what the body needs."""
        state, condition, rest = arrays[: self.state], arrays[self.state : self.state + self.n], None
        rest = arrays[self.state + self.n :]
        del arrays
        while self.going.run([*state, *condition])[0]:
            state = self.body.run([*state, *rest])
        return tuple(state)


def _traced_while(trace: Trace, going: Function, body: Function, state: list[Any]) -> list[Any]:
    carried = [leaf for leaf in state if leaf is not None]
    if OPEN.get():
        raise TracingError(
            f"{trace.name} is compiled, and vmap in it is around a while_loop: use tape_core.scan, which has a fixed "
            f"number of rounds, or put the vmap into the loop"
        )
    if any([tape._key in leaf._slots for tape in ACTIVE.get() for leaf in carried]):
        raise _undifferentiable(trace)

    def with_nones(leaves: Sequence[Any]) -> list[Any]:
        given = iter(leaves)
        return [None if leaf is None else next(given) for leaf in state]

    with guarded("a function that while_loop is given") as readers:
        condition = _Part(trace, lambda *s: going(with_nones(s)), carried)
        round_ = _Part(trace, lambda *s: body(with_nones(s)), carried)
    watching = [tape for tape in ACTIVE.get() if getattr(tape, "_watch_accessed", True)]
    if watching and any([v.trainable and v.dtype.inexact for v in readers.found]):
        raise _undifferentiable(trace)
    if any([h.written for part in (condition, round_) for h in part.trace.held.values()]):
        raise TracingError(
            f"{trace.name} is compiled, and assigns a Variable in a while_loop: make its value a part of the state, "
            f"and assign it after the loop"
        )
    going_source = condition.source("while", [leaf._array for leaf in condition.leaves])
    body_source = round_.source("do", [leaf._array for leaf in round_.leaves if leaf is not None])
    loop = _While(going_source, body_source, len(carried), len(condition.captured()))
    given = (*[leaf._array for leaf in carried], *condition.captured(), *round_.captured())
    backend = carried[0].backend.library.traced
    found = trace.call("while_loop", loop, given, {}, backend)
    return with_nones([wrap(a, leaf.backend.library.traced) for a, leaf in zip(found, carried, strict=True)])


def _undifferentiable(trace: Trace) -> TracingError:
    return TracingError(
        f"{trace.name} is compiled, and a tape in it watches what a while_loop computes with: of a loop whose rounds "
        f"are counted when it runs, a compiled function has no derivative. Use tape_core.scan, which has a fixed "
        f"number of rounds, or tape_core.fixed_point; or do not compile the function"
    )
