"""Functions of JAX as one op of Tape: each derivative is a function of JAX again, which JAX makes.

A :class:`Task` is a function of a flat list of JAX arrays. :func:`evaluate` runs one on Tensors, level by level: inside
vmap it runs `jax.vmap` of the function on the level below, in a trace it adds an instruction, and elsewhere it calls
the function. :func:`bind` records it besides. Its derivatives are tasks as well, so they are differentiated, mapped and
traced in the same way:

- `forward`: the results, and the residuals that `jax.vjp` keeps, as arrays.
- `pull`: from residuals and cotangents to the cotangents of the arguments.
- `pullback`: the same from the arguments, for where a derivative of it is to flow to them.
- `pushforward`: `jax.jvp`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
from tape_core import Tensor, astype, zeros_like
from tape_core.backends import Backend, backend_of_type
from tape_core.staging import current
from tape_core.support import ACTIVE, BatchedArray, dense, is_watched, record_as_one, setting, wrap
from tape_core.tracing import STAGE, lift, move_to_level
from tape_core.typing import Array, Cotangent

Run = Callable[..., Any]
Structure: TypeAlias = Any
"""A `jax.tree_util.PyTreeDef`, which its module does not declare to type checkers."""

Batching: TypeAlias = Any
"""The backend of arrays inside vmap, which has the one below as `base`."""

Flags = tuple[bool, ...]

NEEDS_VALUES = (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError)
"""What JAX raises where Python asks for the value of an array that it traces."""


def jax_backend() -> Backend:
    """Return the backend of this package."""
    backend = backend_of_type(jax.Array)
    assert backend is not None  # this package provides it
    return backend


@jax.tree_util.register_pytree_node_class
class Fixed:
    """What a function returns beside arrays: a part of the structure of its result."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value: Any = value

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        """Return no arrays, and the value as a part of the structure."""
        return (), self.value

    @classmethod
    def tree_unflatten(cls, value: object, arrays: object) -> Fixed:
        """Return it again."""
        return cls(value)


def is_inexact(array: Array) -> bool:
    """Return whether a JAX array, or a Tensor of one, has derivatives."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def is_leaf(value: object) -> bool:
    """Return whether JAX's functions of trees, which know Tensors as nodes, are to leave a value whole."""
    return isinstance(value, Tensor)


_FORWARD = (
    "JAX has reverse mode alone of it, as of functions of jax.custom_vjp and of `call` of jax.export's programs: write "
    "tape_core.jacrev in place of jacfwd, tape_core.jacrev(tape_core.grad(f)) in place of hessian(f), and "
    "tape_core.grad(lambda x: tape_core.sum(tape_core.grad(f)(x) * v)) in place of hvp; jax.custom_jvp gives both modes"
)
_CALLBACK = (
    "JAX has no derivative of a callback, such as jax.pure_callback: give it one inside the function, by "
    "jax.custom_jvp, or around `call`, by tape_core.custom_jvp; tape_core.custom_gradient gives reverse mode alone, so "
    "tape_core.jacrev(tape_core.grad(f)) in place of hessian(f)"
)
_MISSING: Final = {
    "Pure callbacks do not support JVP": _CALLBACK,
    "IO callbacks do not support JVP": _CALLBACK,
    "can't apply forward-mode autodiff (jvp) to a custom_vjp function": _FORWARD,
    "Differentiation rule for 'custom_lin' not implemented": _FORWARD,
    "Batching rule for 'call_exported' not implemented": "JAX's own `call` of an exported program has no vmap, and "
    "Jacobians are such: tape_jax.load_exported(path) returns a function that has",
}
"""What JAX says of transformations that it does not have, and what Tape says."""


class Task:
    """A function of a flat list of JAX arrays, that returns arrays in any structure.

    Attributes:
        run: the function.
        label: its name in messages.
        is_jitted: whether JAX compiles it, with its derivatives, once for all calls with such arrays. Otherwise Python
            runs in each call.
    """

    __slots__ = ("_compiled", "_derived", "is_jitted", "label", "run")

    def __init__(self, run: Run, label: str, *, is_jitted: bool) -> None:
        self.run = run
        self.label = label
        self.is_jitted = is_jitted
        self._compiled: Run = jax.jit(run) if is_jitted else run
        self._derived: dict[Hashable, Task] = {}

    def __call__(self, *arrays: Any) -> Any:
        """Return the result on raw arrays, those of JAX's transformations included."""
        try:
            return self._compiled(*arrays)
        except (TypeError, ValueError, NotImplementedError) as error:
            said = next((said for text, said in _MISSING.items() if text in str(error)), None)
            if said is None:
                raise
            raise NotImplementedError(f"{self.label}: {said}") from error

    def _derive(self, key: Hashable, make: Callable[[], Run]) -> Task:
        if not self.is_jitted:
            return Task(make(), self.label, is_jitted=False)
        found = self._derived.get(key)
        if found is None:
            found = self._derived.setdefault(key, Task(make(), self.label, is_jitted=True))
        return found

    def _wanted(self, watched: Flags, arrays: Sequence[Array]) -> tuple[Run, list[Array]]:
        """Return a function of the watched arrays, and these.

        The function returns the results with derivatives, and the others in a pair with the structure.
        """

        def wanted(*xs: Any) -> Any:
            each = iter(xs)
            out = self.run(*[next(each) if w else a for a, w in zip(arrays, watched, strict=True)])
            leaves, structure = jax.tree_util.tree_flatten(out)
            flows = tuple(map(is_inexact, leaves))
            flowing = tuple([o for o, f in zip(leaves, flows, strict=True) if f])
            others = tuple([o for o, f in zip(leaves, flows, strict=True) if not f])
            return flowing, (others, Fixed((flows, structure)))

        return wanted, [a for a, w in zip(arrays, watched, strict=True) if w]

    def forward(self, watched: Flags) -> Task:
        """Return the task that returns results, residuals, and how :meth:`pull` reads those."""

        def make() -> Run:
            def forward(*arrays: Any) -> Any:
                wanted, xs = self._wanted(watched, arrays)
                flowing, pull, (others, fixed) = jax.vjp(wanted, *xs, has_aux=True)
                residuals, structure = jax.tree_util.tree_flatten(pull)
                return flowing, others, residuals, Fixed((*fixed.value, structure))

            return forward

        return self._derive(("forward", watched), make)

    def pull(self, structure: Structure) -> Task:
        """Return the task that maps residuals, and then cotangents, to the cotangents of the watched arguments."""

        def make() -> Run:
            n = structure.num_leaves

            def pull(*values: Any) -> Any:
                pulled = jax.tree_util.tree_unflatten(structure, values[:n])
                return list(pulled(tuple(values[n:])))

            return pull

        return self._derive(("pull", structure), make)

    def pullback(self, watched: Flags) -> Task:
        """Return the task that maps the arguments, and then cotangents, to the cotangents of the watched arguments."""

        def make() -> Run:
            n = len(watched)

            def pullback(*values: Any) -> Any:
                wanted, xs = self._wanted(watched, values[:n])
                return list(jax.vjp(wanted, *xs, has_aux=True)[1](tuple(values[n:])))

            return pullback

        return self._derive(("pullback", watched), make)

    def pushforward(self, given: Flags) -> Task:
        """Return the task that maps the arguments, and then tangents of the `given` ones, to tangents of results."""

        def make() -> Run:
            n = len(given)

            def pushforward(*values: Any) -> Any:
                wanted, xs = self._wanted(given, values[:n])
                return list(jax.jvp(wanted, tuple(xs), tuple(values[n:]), has_aux=True)[1])

            return pushforward

        return self._derive(("pushforward", given), make)

    def batched(self, differs: Flags, size: int) -> Task:
        """Return the task of all examples of a vmap, which are along dimension 0 where `differs`."""

        def make() -> Run:
            return jax.vmap(self.run, tuple([0 if d else None for d in differs]), axis_size=size)

        return self._derive(("batched", differs, size), make)


class JaxCall:
    """The function of an instruction of a compiled program: it runs a task on the arrays of a run.

    It takes JAX's tracers, too, so a compiler that makes a program of JAX of all instructions may call it while it
    traces.

    Attributes:
        task: the task.
        structure: the structure of the result, of which the instruction returns the leaves.
    """

    def __init__(self, task: Task) -> None:
        self.__name__ = "jax_call"
        self.task = task
        self.structure: Any = None

    def __repr__(self) -> str:
        return f"{self.task.label} of JAX"

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Return the leaves of the result."""
        # What JAX calls back on the host, while Tape traces the function around, computes with values.
        with nullcontext() if current() is None else setting(STAGE, None):
            leaves, structure = jax.tree_util.tree_flatten(self.task(*arrays))
        if self.structure is None:
            self.structure = structure
        return tuple(leaves)


# -- on Tensors


def evaluate(task: Task, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Structure]:
    """Run a task on Tensors on their levels; return the leaves of its result, unrecorded, and the structure."""
    top: Any = max([t.backend for t in tensors], key=lambda backend: backend.height, default=jax_backend())
    if top.level:
        return _evaluate_in_vmap(task, tensors, top)
    stage = current()
    arrays = [t._array for t in tensors]
    if stage is None:
        leaves, structure = jax.tree_util.tree_flatten(task(*arrays))
        return [wrap(o, top) for o in leaves], structure
    call, library = JaxCall(task), jax_backend()
    try:
        found = stage.foreign(call, arrays, library, is_pure=True)
    except NEEDS_VALUES:
        stage.require_value(f"the value of an array in {task.label}")
        # The rest of this run is plain Python, since the user has allowed that.
        call = JaxCall(Task(task.run, task.label, is_jitted=False))
        found = stage.foreign(call, arrays, library, is_pure=True)
    backend = stage.tracing(library)
    return [wrap(o, backend) for o in found], call.structure


def _evaluate_in_vmap(task: Task, tensors: Sequence[Tensor], top: Batching) -> tuple[list[Tensor], Structure]:
    arrays = [lift(t, top)._array for t in tensors]
    values = [a.value for a in arrays]
    axis = next((a.axis for a in arrays if a.axis is not None), None)
    if axis is not None:
        task = task.batched(tuple([a.axis is not None for a in arrays]), axis.size)
    found, structure = evaluate(task, values)
    return [wrap(BatchedArray(lift(o, top.base), top, axis), top) for o in found], structure


def bind(task: Task, tensors: Sequence[Tensor]) -> Any:
    """Run a task on Tensors, and record it; return the result with Tensors as leaves."""
    tensors = [move_to_level(t) for t in tensors]
    watched = tuple([is_inexact(t._array) and is_watched([t], outside=True) for t in tensors]) if ACTIVE.get() else ()
    if not any(watched):
        leaves, structure = evaluate(task, tensors)
        return jax.tree_util.tree_unflatten(structure, leaves)
    forward = None
    with suppress(Exception):  # JAX has no derivative of it, say: that is an error where one is asked for
        forward = evaluate(task.forward(watched), tensors)
    if forward is None:
        leaves, structure = evaluate(task, tensors)
        flows: Flags = tuple([is_inexact(leaf._array) for leaf in leaves])
        flowing, others = ([o for o, f in zip(leaves, flows, strict=True) if f is kind] for kind in (True, False))
        call = _Recorded(task, tensors, watched)
    else:
        leaves, shape = forward
        flowing, others, residuals, fixed = jax.tree_util.tree_unflatten(shape, leaves)
        flows, structure, pull_structure = fixed.value
        call = _Recorded(task, tensors, watched, residuals, pull_structure)
    if flowing:
        flowing = record_as_one(call.inputs, flowing, call.pull, call.push, task.label)
    each = {True: iter(flowing), False: iter(others)}
    return jax.tree_util.tree_unflatten(structure, [next(each[f]) for f in flows])


class _Recorded:
    """A call that is recorded: what its derivatives need.

    Without residuals they are made of the arguments.
    """

    def __init__(
        self,
        task: Task,
        tensors: Sequence[Tensor],
        watched: Flags,
        residuals: Sequence[Tensor] | None = None,
        structure: Structure = None,
    ) -> None:
        self.task = task
        self.tensors = tensors
        self.places = [k for k, w in enumerate(watched) if w]
        self.inputs = [tensors[k] for k in self.places]
        self.residuals = residuals
        self.structure = structure

    def _flags(self, wanted: Sequence[bool]) -> Flags:
        """Return for each argument whether it is an input that is wanted."""
        flags = [False] * len(self.tensors)
        for k, w in zip(self.places, wanted, strict=True):
            flags[k] = w
        return tuple(flags)

    def pull(self, gs: list[Any], watched: list[bool], outs: list[Tensor]) -> list[Any]:
        """Return the cotangents of the inputs that are watched."""
        gs = [_like(g, out) for g, out in zip(gs, outs, strict=True)]
        # A derivative of the sweep flows to the arguments, too.
        if self.residuals is None or is_watched(self.tensors, outside=True):
            each = iter(bind(self.task.pullback(self._flags(watched)), [*self.tensors, *gs]))
            return [next(each) if w else None for w in watched]
        found = bind(self.task.pull(self.structure), [*self.residuals, *gs])
        return [d if w else None for d, w in zip(found, watched, strict=True)]

    def push(self, ts: list[Any], outs: list[Tensor]) -> list[Any]:
        """Return the tangents of the results."""
        given = [t is not None for t in ts]
        if not any(given):
            return [None] * len(outs)
        tangents = [_like(t, x) for t, x in zip(ts, self.inputs, strict=True) if t is not None]
        found: list[Any] = bind(self.task.pushforward(self._flags(given)), [*self.tensors, *tangents])
        return found


def _like(derivative: Cotangent, value: Tensor) -> Tensor:
    """Return a cotangent or tangent in the dtype of its value, which JAX insists on; zeros for None."""
    if derivative is None:
        found: Tensor = zeros_like(wrap(value._array, value.backend))
        return found
    derivative = dense(derivative)
    if derivative.dtype is not value.dtype:
        if derivative.dtype.kind == "complex floating" and value.dtype.kind != "complex floating":
            derivative = derivative.real
        derivative = astype(derivative, value.dtype)
    return derivative  # type: ignore[no-any-return]
