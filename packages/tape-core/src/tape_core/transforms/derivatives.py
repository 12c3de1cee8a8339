"""Derivatives of functions: gradients, products with Jacobians, and Jacobians, of pytrees to pytrees.

They are built from the public :class:`GradientTape` (reverse mode), :class:`ForwardAccumulator` (forward mode) and
:func:`vmap` (many rows or columns at once), so they compose in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from tape_core.base.mistakes import check_callable, explaining
from tape_core.engine import pytree
from tape_core.engine.arguments import cotangents_for
from tape_core.engine.cotangents import conj
from tape_core.engine.cuts import Cuts, check_zero
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.tape import GradientTape
from tape_core.engine.tensor import Tensor, read, wrap
from tape_core.engine.variable import Variable
from tape_core.modes.forward import ForwardAccumulator, by_elements
from tape_core.modes.vmap import name_of, titled, vmap
from tape_core.ops.creation import asarray, eye
from tape_core.ops.manipulation import reshape
from tape_core.typing import ArrayLike, PyTree

Argnums = int | Sequence[int]
Function = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X", bound=Any)
Y = TypeVar("Y", bound=Any)
T = TypeVar("T", bound=Tensor)
Aux = TypeVar("Aux")


# The gradient has the type of the argument, and is Any where a type checker cannot know which. A bound of Any is none,
# but lets lambdas compute with an argument of which nothing is known yet.
@overload
def grad(
    f: Callable[Concatenate[X, P], Any],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, P], X]: ...
@overload
def grad(
    f: Callable[Concatenate[X, Y, P], Any],
    argnums: Literal[1],
    *,
    has_aux: Literal[False] = False,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, Y, P], Y]: ...
@overload
def grad(
    f: Callable[Concatenate[X, Y, P], Any],
    argnums: tuple[Literal[0], Literal[1]],
    *,
    has_aux: Literal[False] = False,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, Y, P], tuple[X, Y]]: ...
@overload
def grad(
    f: Callable[P, Any], argnums: Argnums, *, has_aux: Literal[False] = False, allow_unconnected: bool = False
) -> Callable[P, Any]: ...
@overload
def grad(  # type: ignore[overload-overlap]  # the first that fits counts
    f: Callable[Concatenate[X, P], tuple[Any, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, P], tuple[X, Aux]]: ...
@overload
def grad(
    f: Callable[P, tuple[Any, Aux]], argnums: Argnums, *, has_aux: Literal[True], allow_unconnected: bool = False
) -> Callable[P, tuple[Any, Aux]]: ...
@explaining
def grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False, allow_unconnected: bool = False) -> Function:
    """Return a function that computes the gradient of `f`, whose result is one number.

    >>> import tape_core as tc
    >>> cube = lambda x: x * x * x
    >>> tc.grad(cube)(2.0).item(), tc.grad(tc.grad(cube))(2.0).item()
    (12.0, 12.0)

    Args:
        f: a function of pytrees of Tensors; Python floats and arrays count as Tensors.
        argnums: the positional arguments to differentiate by: an int for one gradient, a sequence for a tuple of them.
        has_aux: `f` returns a pair `(value, aux)`, of which `aux` is not differentiated; the result is
            `(gradient, aux)`.
        allow_unconnected: return zeros where the result depends on none of the arguments, as far as Tape sees; else
            this is an error.

    Returns:
        A function with the arguments of `f`. The gradient has the structure of the argument, with zeros for the parts
        that `f` does not depend on; where the argument was only gathered from, it is :class:`IndexedSlices`.

    Raises:
        ValueError: the result of `f` is not one number, or `f` has fewer arguments; or the result depends on none of
            those in `argnums`; the message says where the path ends, as at an assignment to a Variable.
        TypeError: an argument has a dtype without a derivative, or is real while the result is complex.
    """
    with_value = with_gradient("grad", f, argnums, has_aux, allow_unconnected)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = with_value(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


@overload
def value_and_grad(  # type: ignore[overload-overlap]  # the first that fits counts
    f: Callable[Concatenate[X, P], R],
    argnums: Literal[0] = 0,
    *,
    has_aux: bool = False,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, P], tuple[R, X]]: ...
@overload
def value_and_grad(  # type: ignore[overload-overlap]  # the first that fits counts
    f: Callable[Concatenate[X, Y, P], R], argnums: Literal[1], *, has_aux: bool = False, allow_unconnected: bool = False
) -> Callable[Concatenate[X, Y, P], tuple[R, Y]]: ...
@overload
def value_and_grad(  # type: ignore[overload-overlap]  # the first that fits counts
    f: Callable[Concatenate[X, Y, P], R],
    argnums: tuple[Literal[0], Literal[1]],
    *,
    has_aux: bool = False,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, Y, P], tuple[R, tuple[X, Y]]]: ...
@overload
def value_and_grad(
    f: Callable[P, R], argnums: Argnums, *, has_aux: bool = False, allow_unconnected: bool = False
) -> Callable[P, tuple[R, Any]]: ...
@explaining
def value_and_grad(
    f: Function, argnums: Argnums = 0, *, has_aux: bool = False, allow_unconnected: bool = False
) -> Function:
    """Return a function that computes the value of `f` and its gradient: `(value, gradient)`; see :func:`grad`.

    With `has_aux` it is `((value, aux), gradient)`.

    >>> import tape_core as tc
    >>> value, gradient = tc.value_and_grad(lambda w: tc.sum(w["a"] * w["b"]))({"a": tc.ones(2), "b": tc.zeros(2)})
    >>> value.item(), gradient["b"].tolist()
    (0.0, [1.0, 1.0])
    """
    return with_gradient("value_and_grad", f, argnums, has_aux, allow_unconnected)


def with_gradient(
    name: str, f: Function, argnums: Argnums = 0, has_aux: bool = False, allow_unconnected: bool = False
) -> Function:
    """Return :func:`value_and_grad` of `f`, with messages in the name of the public function that uses it."""
    check_callable(name, "f", f)
    argnums = _check_argnums(name, argnums)

    @wraps(f)
    def both(*args: Any, **kwargs: Any) -> Any:
        chosen, fresh = _choose_arguments(name, args, argnums)
        sources = [fresh[k] for k in chosen]
        # Variables are not watched: the function is differentiated by its arguments only.
        tape, cuts = _with_cuts(GradientTape(watch_accessed_variables=False))
        with tape:
            tape.watch(sources)
            try:
                out = f(*fresh, **kwargs)
            except TypeError as error:
                _note_lists(error, args, chosen)
                raise
            value, aux = _split_aux(f, out) if has_aux else (out, None)
            value = _as_result(name, value)
        if value.shape != ():
            raise ValueError(
                f"{name}: the function must return one number, its result has shape {value.shape}; use jacrev, or vjp"
            )
        _check_real(name, [value], sources)
        # More records than leaves: an op has computed with the arguments. It makes the better message if none is
        # reached.
        used = len(tape._records) > len(tape._leaves)
        found = tape.gradient(value, sources)
        if any([type(part) not in _ARRAYS for part in found]):  # None, or a structure
            leaves, structure = pytree.flatten(sources)
            parts = pytree.flatten(found)[0]
            if not allow_unconnected:
                _check_reached(name, parts, cuts, args, chosen, used)
            found = pytree.unflatten(structure, _materialize_zeros(parts, leaves))
        gradients = found[0] if isinstance(argnums, int) else tuple(found)
        return ((value, aux) if has_aux else value), gradients

    return both


@overload
def vjp(
    f: Callable[[X], R], primal: X, /, *, has_aux: Literal[False] = False
) -> tuple[R, Callable[[PyTree], tuple[X]]]: ...
@overload
def vjp(
    f: Callable[[X, Y], R], primal: X, other: Y, /, *, has_aux: Literal[False] = False
) -> tuple[R, Callable[[PyTree], tuple[X, Y]]]: ...
@overload
def vjp(
    f: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
) -> tuple[R, Callable[[PyTree], tuple[Any, ...]]]: ...
@overload
def vjp(
    f: Callable[..., tuple[R, Aux]], *primals: Any, has_aux: Literal[True]
) -> tuple[R, Callable[[PyTree], tuple[Any, ...]], Aux]: ...
def vjp(f: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Return the value of `f` at `primals`, and the function that maps its cotangent to those of `primals`.

    >>> import tape_core as tc
    >>> y, pull = tc.vjp(lambda x, w: x @ w, tc.asarray([1.0, 2.0]), tc.asarray([3.0, 4.0]))
    >>> [g.tolist() for g in pull(1.0)]
    [[3.0, 4.0], [1.0, 2.0]]

    Returns:
        `(value, pull)`, or with `has_aux` `(value, pull, aux)`. `pull` takes a pytree of the structure of the value,
        with None for parts that have no derivative, and returns a tuple: a cotangent of the structure of each primal.
        It may be called many times.

    Raises:
        ValueError: in `pull`: a cotangent differs from the value in structure or shape, or is None for an inexact part.
    """
    check_callable("vjp", "f", f)
    _, args = _choose_arguments("vjp", primals, range(len(primals)))
    # Persistent, since `pull` may be called many times.
    with GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(args))
        out = f(*args)
        value, aux = _split_aux(f, out) if has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        value = pytree.unflatten(structure, [_as_result("vjp", leaf) for leaf in leaves])

    def pull(cotangents: Any) -> tuple[Any, ...]:
        _check_cotangents(value, cotangents)
        return tuple(tape.gradient(value, list(args), output_gradients=cotangents, unconnected_gradients="zero"))

    return (value, pull, aux) if has_aux else (value, pull)


@overload
def jvp(
    f: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[..., tuple[R, Aux]], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: Literal[True]
) -> tuple[R, R, Aux]: ...
def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """Return the value of `f` at `primals` and its derivative along `tangents`, in one forward pass.

    >>> import tape_core as tc
    >>> y, t = tc.jvp(lambda x: tc.sin(x), (0.0,), (2.0,))
    >>> y.item(), t.item()
    (0.0, 2.0)

    Args:
        f: a function of pytrees.
        primals, tangents: tuples with an entry for each argument, of the same structure.

    Returns:
        `(value, tangent)`, or with `has_aux` `(value, tangent, aux)`; zeros for what does not depend on `primals`.
    """
    check_callable("jvp", "f", f)
    _check_tuples("jvp", primals, tangents)
    _, args = _choose_arguments("jvp", tuple(primals), range(len(primals)))
    with ForwardAccumulator(list(args), list(tangents)) as accumulator:
        out = f(*args)
        value, aux = _split_aux(f, out) if has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        value = pytree.unflatten(structure, [_as_result("jvp", leaf) for leaf in leaves])
    tangent = accumulator.jvp(value, unconnected_gradients="zero")
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(f: Callable[..., R], *primals: Any) -> tuple[R, Callable[..., R]]:
    """Return the value of `f` at `primals`, and its derivative there as a linear function of tangents.

    For many tangents it costs less than :func:`jvp`: `f` runs once.

    >>> import tape_core as tc
    >>> y, push = tc.linearize(lambda x: x * x, tc.asarray([1.0, 2.0]))
    >>> push(tc.asarray([1.0, 0.0])).tolist(), push(tc.asarray([0.0, 1.0])).tolist()
    ([2.0, 0.0], [0.0, 4.0])
    """
    check_callable("linearize", "f", f)
    value, pull = vjp(f, *primals)
    leaves, structure = pytree.flatten(value)
    # The cotangents of the primals are linear in that of the value: its derivative there is the transpose.
    seeds = [leaf * 0 for leaf in leaves]

    def transpose(seeds: list[Any]) -> list[Any]:
        # The tape conjugates, a transpose does not.
        found = pull(pytree.unflatten(structure, [conj(seed) for seed in seeds]))
        return [conj(dense(g)) for g in pytree.flatten(list(found))[0]]

    tape, cuts = _with_cuts(GradientTape(persistent=True, watch_accessed_variables=False))
    with tape:
        tape.watch(seeds)
        back, back_structure = pytree.flatten(list(pull(pytree.unflatten(structure, list(seeds)))))
        back = [dense(g) for g in back]

    def push(*tangents: Any) -> Any:
        given, given_structure = pytree.flatten(list(tangents))
        if not pytree.same(back_structure, given_structure, len(back)) or len(given) != len(back):
            shown = pytree.difference("tangents", given_structure, len(given), "primals", back_structure, len(back))
            raise ValueError(f"linearize: the tangents must have the structure of the primals; {shown}")
        # A rule on the way took values out, to compute with NumPy for instance: the tape has not followed it.
        if cuts.taken_out:
            given = cotangents_for(back, back_structure, given)
            found = by_elements(transpose, seeds, [seed.dtype.inexact for seed in seeds], given)
        else:
            found = tape.gradient(back, seeds, output_gradients=given, unconnected_gradients="zero")
        return pytree.unflatten(structure, found)

    return value, push


@overload
def jacrev(
    f: Callable[Concatenate[X, P], Tensor],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, P], X]: ...
@overload
def jacrev(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Callable[P, Any]: ...
@explaining
def jacrev(
    f: Function,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Function:
    """Return a function that computes the Jacobian of `f`, row by row: best where the result has fewer elements.

    >>> import tape_core as tc
    >>> tc.jacrev(lambda x: x[:1] * x)(tc.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [2.0, 1.0]]

    Args:
        f, argnums, has_aux, allow_unconnected: as for :func:`grad`; `f` may return any pytree.
        chunk_size: the most rows to compute at once.

    Returns:
        A function whose result has the structure of the value, and at each leaf that of the argument, with Tensors of
        shape `value.shape + argument.shape`.

    Raises:
        ValueError: as for :func:`grad`.
    """

    def rows(call: _Call) -> Any:
        tape, cuts = _with_cuts(GradientTape(watch_accessed_variables=False))
        with tape:
            tape.watch(call.sources)
            leaves, structure = call.results()
        _check_real("jacrev", leaves, call.sources)
        used = len(tape._records) > len(tape._leaves)
        found = tape.jacobian(leaves, call.sources, parallel_iterations=chunk_size)
        parts, parts_structure = pytree.flatten(found)
        if not allow_unconnected:
            _check_reached("jacrev", parts, cuts, call.args, call.chosen, used)
        if any([part is None for part in parts]):
            # By result and then by source, as `found` is nested.
            pairs = [(x, (*y.shape, *x.shape)) for y in leaves for x in pytree.flatten(call.sources)[0]]
            parts = [_zeros(*pair) if part is None else part for part, pair in zip(parts, pairs, strict=True)]
            found = pytree.unflatten(parts_structure, parts)
        return pytree.unflatten(structure, found)

    return _jacobian("jacrev", f, argnums, has_aux, rows)


@overload
def jacfwd(
    f: Callable[Concatenate[X, P], Tensor],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[X, P], X]: ...
@overload
def jacfwd(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Callable[P, Any]: ...
@explaining
def jacfwd(
    f: Function,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Function:
    """Return a function that computes the Jacobian column by column: best where the argument has fewer elements.

    Arguments and result are those of :func:`jacrev`.

    >>> import tape_core as tc
    >>> tc.jacfwd(lambda x: x[:1] * x)(tc.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [2.0, 1.0]]
    """
    return _by_columns("jacfwd", f, argnums, has_aux, chunk_size, allow_unconnected)


def _by_columns(
    name: str, f: Function, argnums: Argnums, has_aux: bool, chunk_size: int | None, allow_unconnected: bool
) -> Function:
    def columns(call: _Call) -> Any:
        leaves, structure = pytree.flatten(call.sources)
        # vmap returns arrays; the structure and the shapes of the results come out through this list.
        outer: list[Any] = []

        def column(*tangents: Any) -> list[Any]:
            accumulator, cuts = _with_cuts(ForwardAccumulator(leaves, list(tangents)))
            with accumulator:
                results, out_structure = call.results()
            outer[:] = [(out_structure, [leaf.shape for leaf in results])]
            found: list[Any] = accumulator.jvp(results)
            if not allow_unconnected:
                _check_reached(name, found, cuts, call.args, call.chosen)
            return _materialize_zeros(found, results)

        # A column for each element of the arguments, so these come last in the Jacobian.
        titled(column, f"{name} of {name_of(f)}", "columns")
        found = vmap(column, out_axes=-1, chunk_size=chunk_size, randomness="same")(*_unit_tangents(leaves))
        out_structure, shapes = outer[0]
        sizes = [math.prod(leaf.shape) for leaf in leaves]
        by_result = []
        for shape, whole in zip(shapes, found, strict=True):
            parts, start = [], 0
            for leaf, size in zip(leaves, sizes, strict=True):
                part = whole if len(leaves) == 1 else whole[..., start : start + size]
                parts.append(reshape(part, (*shape, *leaf.shape)))
                start += size
            by_result.append(pytree.unflatten(structure, parts))
        return pytree.unflatten(out_structure, by_result)

    return _jacobian(name, f, argnums, has_aux, columns)


class _Call:
    """One call of the function whose Jacobian is computed.

    Attributes:
        sources: the arguments to differentiate by, as Tensors that only this derivative watches.
        aux: the second part of the function's result, with `has_aux`.
    """

    def __init__(
        self, name: str, f: Function, argnums: Argnums, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.name, self.f, self.has_aux = name, f, has_aux
        self.args, self.kwargs = args, kwargs
        self.chosen, self.fresh = _choose_arguments(name, args, argnums)
        own = tuple([self.fresh[k] for k in self.chosen])
        self.sources = own[0] if isinstance(argnums, int) else own
        self.aux: Any = None

    def results(self) -> tuple[list[Any], Any]:
        """Run the function; return the leaves of its value and their structure."""
        out = self.f(*self.fresh, **self.kwargs)
        value, self.aux = _split_aux(self.f, out) if self.has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        return [_as_result(self.name, leaf) for leaf in leaves], structure


def _jacobian(name: str, f: Function, argnums: Argnums, has_aux: bool, compute: Callable[[_Call], Any]) -> Function:
    """Return a function with the arguments of `f` that computes a Jacobian, by `compute`."""
    check_callable(name, "f", f)
    argnums = _check_argnums(name, argnums)

    @wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call = _Call(name, f, argnums, has_aux, args, kwargs)
        result = compute(call)
        return (result, call.aux) if has_aux else result

    return jacobian


@overload
def hessian(
    f: Callable[Concatenate[T, P], Any],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Callable[Concatenate[T, P], T]: ...
@overload
def hessian(
    f: Callable[P, Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Callable[P, Any]: ...
@explaining
def hessian(
    f: Function,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    allow_unconnected: bool = False,
) -> Function:
    """Return a function that computes the Hessian of `f`, forward over reverse.

    >>> import tape_core as tc
    >>> tc.hessian(lambda x: x[0] * x[0] * x[1])(tc.asarray([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]

    Returns:
        A function whose result has the structure of the argument twice, with Tensors of shape `x.shape + x.shape`.
        It is 0 for a linear function.

    Raises:
        ValueError: as for :func:`grad`.
    """
    with_value = with_gradient("hessian", f, argnums, has_aux, allow_unconnected)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = with_value(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    # Columns of the gradient's Jacobian: one run of `gradient` inside vmap, with a tangent for each element.
    return _by_columns("hessian", gradient, argnums, has_aux, chunk_size, allow_unconnected)


def hvp(
    f: Function, primals: Sequence[Any], tangents: Sequence[Any], *, allow_unconnected: bool = False
) -> tuple[Any, ...]:
    """Return the product of the Hessian of `f` at `primals` with `tangents`, without the matrix.

    It is the gradient of the derivative along `tangents`: one pass forward, with values and tangents, and one back.

    >>> import tape_core as tc
    >>> (product,) = tc.hvp(lambda x: tc.sum(x * x * x), (tc.asarray([1.0, 2.0]),), (tc.asarray([1.0, 0.0]),))
    >>> product.tolist()
    [6.0, 0.0]

    Args:
        f: a function of `primals` that returns one number.
        primals, tangents: tuples with an entry for each argument, of the same structure.
        allow_unconnected: as for :func:`grad`.

    Returns:
        A tuple, with an entry of the structure of each argument.

    Raises:
        ValueError: as for :func:`grad`.
    """
    check_callable("hvp", "f", f)
    _check_tuples("hvp", primals, tangents)

    # The slope along v is a number, and its gradient is the product of the Hessian with v.
    def along(*args: Any) -> Any:
        value, slope = jvp(lambda *args: _as_result("hvp", f(*args)), args, tangents)
        if value.shape != ():
            raise ValueError(f"hvp: the function must return one number, its result is of shape {value.shape}")
        return slope

    _, found = with_gradient("hvp", along, range(len(primals)), False, allow_unconnected)(*primals)
    leaves, structure = pytree.flatten(found)
    products: tuple[Any, ...] = pytree.unflatten(structure, [dense(leaf) for leaf in leaves])
    return products


# -- arguments and results

_ARRAYS = frozenset({Tensor, IndexedSlices})


def _check_argnums(name: str, argnums: Any) -> Argnums:
    """Return `argnums` as an int or a tuple of ints; whether there are such arguments shows in the call."""
    if type(argnums) is int:
        return argnums
    several = isinstance(argnums, Sequence) and not isinstance(argnums, str | bytes)
    try:
        # To `index` True is 1, and nobody means an argument by it.
        if any([isinstance(k, bool) for k in (argnums if several else (argnums,))]):
            raise TypeError
        found: Argnums = tuple([index(k) for k in argnums]) if several else index(argnums)
    except TypeError:
        raise TypeError(
            f"{name}: argnums must be the number of a positional argument, or a tuple of them; got {argnums!r}"
        ) from None
    if isinstance(found, tuple):
        if not found:
            raise ValueError(f"{name}: argnums is empty; it must name the arguments to differentiate by")
        _check_different(name, found, found)
    return found


def _check_different(name: str, chosen: Sequence[int], argnums: Argnums) -> None:
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{name}: argnums names an argument twice: {argnums!r}")


def _choose_arguments(name: str, args: tuple[Any, ...], argnums: Argnums) -> tuple[list[int], tuple[Any, ...]]:
    """Return the numbers of the arguments to differentiate by, and all arguments: these as fresh Tensors."""
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    chosen = []
    for k in numbers:
        if not -len(args) <= k < len(args):
            raise ValueError(
                f"{name}: argnums asks for argument {k}, and the function is called with {len(args)} positional "
                f"argument{'' if len(args) == 1 else 's'}; those given by keyword have no number"
            )
        chosen.append(k % len(args))
    if len(chosen) > 1:
        _check_different(name, chosen, argnums)
    return chosen, tuple([_fresh_argument(name, arg, k) if k in chosen else arg for k, arg in enumerate(args)])


def _note_lists(error: TypeError, args: tuple[Any, ...], chosen: Sequence[int]) -> None:
    """Add to an error of the user's function that a list of numbers, which users give for an array, is a list there."""
    for k in chosen:
        if isinstance(args[k], list | tuple) and args[k] and all([isinstance(x, int | float) for x in args[k]]):
            error.add_note(
                f"argument {k} is a {type(args[k]).__name__} of numbers, a structure, and not an array: the function "
                f"gets a {type(args[k]).__name__} of Tensors. For an array give tape_core.asarray([...])"
            )


def _with_cuts(recorder: Any) -> tuple[Any, Cuts]:
    """Give a tape or an accumulator a `Cuts`, which collects where the path of a known value ends; return both."""
    recorder._cuts = cuts = Cuts()
    return recorder, cuts


def _check_reached(
    name: str, parts: Sequence[Any], cuts: Cuts, args: tuple[Any, ...], chosen: Sequence[int], used: bool = False
) -> None:
    """Check that the result depends on an argument, or that its derivative is indeed 0.

    Raises:
        ValueError: the result depends on none of the arguments.
    """
    if not parts or any([part is not None for part in parts]):
        return
    variables = [leaf for k in chosen for leaf in pytree.flatten(args[k])[0] if isinstance(leaf, Variable)]
    which = f"argument {chosen[0]}" if len(chosen) == 1 else f"any of the arguments {', '.join(map(str, chosen))}"
    check_zero(name, cuts, which, variables, used)


def _zeros(like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    xp, array = like.backend.xp, like._array
    zeros = xp.zeros_like(array) if shape is None else xp.zeros_beside(array, shape, dtype=array.dtype)
    return wrap(zeros, like.backend)


def _materialize_zeros(parts: Sequence[Any], leaves: Sequence[Tensor]) -> list[Any]:
    return [_zeros(leaf) if part is None else part for part, leaf in zip(parts, leaves, strict=True)]


def _check_cotangents(value: PyTree, cotangents: PyTree) -> None:
    """Raise for None where the value has a derivative: `tape.gradient` takes None for ones, JAX would mean zeros."""
    given = pytree.flatten(cotangents)[0]
    if not any([leaf is None for leaf in given]):
        return
    leaves, structure = pytree.flatten(value)
    if cotangents is None:
        given = [None] * len(leaves)
    if len(leaves) == len(given):
        for k, (leaf, cotangent) in enumerate(zip(leaves, given, strict=True)):
            if cotangent is None and leaf.dtype.inexact:
                raise ValueError(
                    f"vjp: the cotangent of the value{pytree.path(structure, k)} is None; give an array of shape "
                    f"{leaf.shape}, tape_core.zeros_like(value) where the value does not count"
                )


def _check_tuples(method: str, primals: object, tangents: object) -> None:
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            kind = type(given).__name__
            raise TypeError(f"{method}: {name} must be a tuple with an entry for each argument, got {kind}")


def _fresh_argument(name: str, arg: PyTree, k: int) -> Any:
    leaves, structure = pytree.flatten(arg)
    fresh = []
    for j, leaf in enumerate(leaves):
        where = f"argument {k}{pytree.path(structure, j)}"
        value = read(leaf, f"{name}: {where}")
        if type(value) is not Tensor:
            value = asarray(value)
        if not value.dtype.inexact:
            raise TypeError(
                f"{name}: {where} has dtype {value.dtype}, which has no derivative; use a floating one, or leave the "
                f"argument out of argnums"
            )
        # A copy: outer tapes know it as the argument, but this derivative tells it from a captured original.
        fresh.append(value.__copy__())
    return pytree.unflatten(structure, fresh)


def _as_result(name: str, value: ArrayLike) -> Tensor:
    tensor = read(value, f"{name}: the result of the function")
    return tensor if type(tensor) is Tensor else asarray(tensor)


def _check_real(name: str, results: Sequence[Tensor], sources: PyTree) -> None:
    """Raise for a complex result of real arguments: reverse mode would lose the imaginary part of the derivative."""
    for result in results:
        if result.dtype.kind == "complex floating":
            for leaf in pytree.flatten(sources)[0]:
                if leaf.dtype.kind == "real floating":
                    raise TypeError(
                        f"{name}: the result of the function is complex ({result.dtype}), an argument is real "
                        f"({leaf.dtype}): what is its derivative? Return tape_core.real, imag or abs of it, or use "
                        f"jacfwd or jvp, which give the complex derivative"
                    )


def _split_aux(f: Function, out: object) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"with has_aux the function {getattr(f, '__name__', f)!r} must return a pair (value, aux)")
    return out


def _unit_tangents(leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return the unit tangents as batches: row j moves the j-th element of all leaves, and no other."""
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    total, start, found = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        # The columns of the identity matrix that belong to this leaf: its first 1 is in row `start`.
        columns = eye(total, size, k=-start, dtype=leaf.dtype, device=leaf.device, backend=leaf.backend.root)
        found.append(reshape(columns, (total, *leaf.shape)))
        start += size
    return found
