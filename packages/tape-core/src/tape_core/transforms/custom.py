"""custom_gradient: a function with a gradient of its own; checkpoint: one whose results are computed again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from tape_core import pytree, random, recording
from tape_core.function_op import recorded_as_one
from tape_core.indexed_slices import dense
from tape_core.ops.creation import asarray, zeros_like
from tape_core.recording import ACTIVE
from tape_core.tape import GradientTape, conj, new_key, retire
from tape_core.tensor import SCALARS, Tensor, read, wrap
from tape_core.variable import Variable

Function = Callable[..., Any]


def custom_gradient(f: Function) -> Function:
    """A function with the gradient that it says itself: `f(*args)` returns `(result, grad)`.

    >>> import tape_core as tc
    >>> @tc.custom_gradient
    ... def log1pexp(x):
    ...     e = tc.exp(x)
    ...     return tc.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))
    >>> x = tc.asarray(50.0)
    >>> with tc.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = log1pexp(x)
    >>> tape.gradient(y, x).item()
    1.0

    `grad(*upstream)` gets one cotangent for each Tensor of the result, zeros where nothing flows, and returns one
    gradient for each positional argument, in their structure: a Tensor or None. Where `f` reads trainable Variables
    that are not among its arguments, `grad` must take `variables=None` too, and return `(gradients, [one per
    variable])`.
    As in TensorFlow, gradients are those of :meth:`GradientTape.gradient`: of a holomorphic function conj(f'(z)) times
    the upstream gradient. What `grad` computes is differentiated for second derivatives, and it is what forward mode
    goes by.

    Args:
        f: a function of pytrees. Keyword arguments are passed on and not differentiated.

    Raises:
        TypeError: in the call: `f` reads Variables, and `grad` does not take `variables`; its result is no pair.
        ValueError: in the backward pass: `grad` returned another number of gradients, or one of another shape.
    """
    name = getattr(f, "__name__", "the function")

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.flatten(args)
        tensors = [_as_tensor(leaf) for leaf in leaves]
        given = [leaf if t is None else t for leaf, t in zip(leaves, tensors, strict=True)]
        with _reading() as readers:
            pair = f(*pytree.unflatten(structure, given), **kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"custom_gradient: {name} must return a pair (result, grad), of which grad is a function")
        result, grad = pair
        arguments = {id(leaf) for leaf in leaves}
        variables = [v for v in readers.found if v.trainable and id(v) not in arguments]
        if variables and not _takes_variables(grad):
            raise TypeError(
                f"custom_gradient: {name} reads the variables {[v.name or v.shape for v in variables]}, so its grad "
                f"must take the keyword argument 'variables' and return (gradients, [one per variable])"
            )
        outs, out_structure = pytree.flatten(result)
        outs = [o if o is None else _out(o, name) for o in outs]
        differentiable = {k: t for k, t in enumerate(tensors) if t is not None and t.dtype.inexact}
        places = list(differentiable)
        inputs = [*differentiable.values(), *[v._read() for v in variables]]
        flowing = [k for k, o in enumerate(outs) if o is not None and o.dtype.inexact]
        if not inputs or not flowing:
            return pytree.unflatten(out_structure, outs)

        def pull(gs: list[Any], watched: list[bool]) -> list[Any]:
            upstream = _upstream(outs, flowing, gs)
            if variables:
                answer = grad(*upstream, variables=variables)
                by_argument, by_variable = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, ())
                if len(by_variable) != len(variables):
                    raise ValueError("Must return gradient for each variable from @custom_gradient grad_fn.")
            else:
                by_argument, by_variable = grad(*upstream), ()
            found = pytree.flatten(by_argument)[0]
            if len(found) != len(leaves):
                raise ValueError(
                    f"custom_gradient function expected to return {len(leaves)} gradients, but returned {len(found)} "
                    f"instead."
                )
            chosen = [found[k] for k in places] + list(by_variable)
            labels = [f"argument {k}{pytree.path(structure, k)}" for k in places]
            labels += [f"variable {v.name or k}" for k, v in enumerate(variables)]
            return [
                _checked(d, t, f"custom_gradient: the grad of {name} for {label}")
                for d, t, label in zip(chosen, inputs, labels, strict=True)
            ]

        results = recorded_as_one(inputs, [outs[k] for k in flowing], pull)
        for k, tensor in zip(flowing, results, strict=True):
            outs[k] = tensor
        return pytree.unflatten(out_structure, outs)

    return wrapped


def checkpoint(f: Function) -> Function:
    """The same function, which keeps its arguments only: what it computes is computed again in the backward pass.

    >>> import tape_core as tc
    >>> layer = tc.checkpoint(lambda x, w: tc.tanh(tc.sin(x @ w)))
    >>> tc.grad(lambda w: tc.sum(layer(tc.ones((2, 3)), w)))(tc.zeros((3, 2))).tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]

    It takes less memory and at most as much time again as the function. Trainable Variables that it reads are watched
    as ever, and computing again uses the values that were read. So it does the random numbers of
    :func:`tape_core.set_seed`'s generator; a generator that `f` is given must not be drawn from.

    Args:
        f: a function of pytrees, which does the same whenever it is called. Keyword arguments are not differentiated.
    """

    @wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = pytree.flatten(args)
        if not ACTIVE.get():
            return f(*args, **kwargs)
        tensors = [_as_tensor(leaf) for leaf in leaves]
        bits = random.state()
        with _reading(alone=True) as readers:
            out = f(*args, **kwargs)
        variables = [v for v in readers.found if v.dtype.inexact]
        outs, out_structure = pytree.flatten(out)
        outs = [o if o is None else _out(o, "checkpoint") for o in outs]
        differentiable = {k: t for k, t in enumerate(tensors) if t is not None and t.dtype.inexact}
        places = list(differentiable)
        inputs = [*differentiable.values(), *[v._read() for v in variables]]
        flowing = [k for k, o in enumerate(outs) if o is not None and o.dtype.inexact]
        if not inputs or not flowing:
            return out

        def pull(gs: list[Any], watched: list[bool]) -> list[Any]:
            # Values of their own, which the tapes around know as they know the inputs.
            fresh = [t.__copy__() for t in inputs]
            given = list(leaves)
            for k, t in zip(places, fresh, strict=False):
                given[k] = t
            with (
                random.replayed(bits),
                _standing_for(variables, fresh[len(places) :]),
                GradientTape(watch_accessed_variables=False) as tape,
            ):
                tape.watch([t for t, w in zip(fresh, watched, strict=True) if w])
                again = [dense(o) for o in pytree.flatten(f(*pytree.unflatten(structure, given), **kwargs))[0]]
            used = [(again[k], g) for k, g in zip(flowing, gs, strict=True) if g is not None]
            wanted = [t for t, w in zip(fresh, watched, strict=True) if w]
            # The tape conjugates, a rule does not.
            found = tape.gradient([o for o, _ in used], wanted, output_gradients=[conj(g) for _, g in used])
            each = iter([None if d is None else conj(d) for d in found])
            return [next(each) if w else None for w in watched]

        results = recorded_as_one(inputs, [outs[k] for k in flowing], pull)
        for k, tensor in zip(flowing, results, strict=True):
            outs[k] = tensor
        return pytree.unflatten(out_structure, outs)

    return wrapped


# -- which variables a function reads


class _Readers:
    """Where tapes are: it notes the Variables that are read, and gives nothing a slot."""

    __slots__ = ("_key", "_masked", "_records", "_sparse", "found")

    _forward = False
    _complex = False

    def __init__(self) -> None:
        self._key = new_key()
        self._records: list[Any] = []
        self._masked = self._sparse = False
        self.found: list[Variable] = []

    def _on_read(self, variable: Variable) -> None:
        if not any([variable is other for other in self.found]):
            self.found.append(variable)

    def _meet(self, op: Any, backend: Any, out: Any) -> None:
        """It records nothing."""


@contextmanager
def _reading(*, alone: bool = False) -> Iterator[_Readers]:
    """A context that notes the Variables that are read; with `alone` nothing else records in it."""
    readers = _Readers()
    token = ACTIVE.set((readers,) if alone else ACTIVE.get())
    if not alone:
        recording.activate(readers)
    try:
        yield readers
    finally:
        ACTIVE.reset(token)
        retire(readers._key)


@contextmanager
def _standing_for(variables: Sequence[Variable], values: Sequence[Tensor]) -> Iterator[None]:
    """Variables have other values for a while."""
    before = [(v, v._array, v._slots) for v in variables]
    for variable, value in zip(variables, values, strict=True):
        variable._array, variable._slots = value._array, value._slots
    try:
        yield
    finally:
        for variable, array, slots in before:
            variable._array, variable._slots = array, slots


# -- arguments and results


def _as_tensor(leaf: Any) -> Tensor | None:
    """A leaf as a Tensor; None for what is no array."""
    if isinstance(leaf, Tensor):
        tensor: Tensor = read(leaf, "an argument")
        return tensor
    if hasattr(leaf, "dtype"):
        return asarray(leaf)
    return None


def _out(out: Any, name: str) -> Tensor:
    tensor = read(out, f"the result of {name}")
    return asarray(tensor) if type(tensor) in SCALARS else tensor


def _upstream(outs: Sequence[Any], flowing: Sequence[int], gs: Sequence[Any]) -> list[Any]:
    """A cotangent for each Tensor of the result, as gradients: conjugated."""
    by_place = dict(zip(flowing, gs, strict=True))
    found = []
    for k, out in enumerate(outs):
        if out is None:
            continue
        g = by_place.get(k)
        found.append(zeros_like(wrap(out._array, out.backend)) if g is None else conj(g))
    return found


def _takes_variables(grad: Function) -> bool:
    parameters = inspect.signature(grad).parameters.values()
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)


def _checked(d: Any, t: Tensor, where: str) -> Any:
    if d is None:
        return None
    d = read(d, where)
    d = asarray(d, dtype=t.dtype, backend=t.backend.root) if type(d) in SCALARS else d
    if d.shape != t.shape:
        raise ValueError(f"{where} has shape {d.shape}, the value has shape {t.shape}")
    return conj(d)
