"""Derivatives of functions: gradients, and products with Jacobians and Hessians, of pytrees to pytrees.

They are built from the public :class:`GradientTape` (reverse mode) and :class:`ForwardAccumulator` (forward mode), so
they compose in any order. Whole Jacobians are in `tape_core.transforms.jacobians`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from tape_core.base.mistakes import check_callable, explaining
from tape_core.engine import pytree
from tape_core.engine.arguments import cotangents_for
from tape_core.engine.cotangents import conj
from tape_core.engine.indexed_slices import IndexedSlices, dense
from tape_core.engine.tape import GradientTape
from tape_core.engine.tensor import Tensor
from tape_core.modes.forward import ForwardAccumulator, by_elements
from tape_core.transforms.arguments import (
    Argnums,
    Function,
    as_result,
    check_argnums,
    check_cotangents,
    check_reached,
    check_real_results,
    check_tuples,
    choose_arguments,
    handed,
    materialize_zeros,
    note_lists,
    split_aux,
    with_cuts,
)
from tape_core.typing import PyTree

P = ParamSpec("P")
R = TypeVar("R")
X = TypeVar("X", bound=Any)
Y = TypeVar("Y", bound=Any)
Aux = TypeVar("Aux")

_ARRAYS = frozenset({Tensor, IndexedSlices})


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
    argnums = check_argnums(name, argnums)

    @wraps(f)
    def both(*args: Any, **kwargs: Any) -> Any:
        chosen, fresh = choose_arguments(name, args, argnums)
        sources = [fresh[k] for k in chosen]
        # Variables are not watched: the function is differentiated by its arguments only.
        tape, cuts = with_cuts(GradientTape(watch_accessed_variables=False))
        with tape:
            tape.watch(sources)
            try:
                out = f(*handed(fresh, chosen), **kwargs)
            except TypeError as error:
                note_lists(error, args, chosen)
                raise
            value, aux = split_aux(f, out) if has_aux else (out, None)
            value = as_result(name, value)
        if value.shape != ():
            raise ValueError(
                f"{name}: the function must return one number, its result has shape {value.shape}; use jacrev, or vjp"
            )
        check_real_results(name, [value], sources)
        # More records than leaves: an op has computed with the arguments. It makes the better message if none is
        # reached.
        used = len(tape._records) > len(tape._leaves)
        found = tape.gradient(value, sources)
        if any([type(part) not in _ARRAYS for part in found]):  # None, or a structure
            leaves, structure = pytree.flatten(sources)
            parts = pytree.flatten(found)[0]
            if not allow_unconnected:
                check_reached(name, parts, cuts, args, chosen, used)
            found = pytree.unflatten(structure, materialize_zeros(parts, leaves))
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
    _, args = choose_arguments("vjp", primals, range(len(primals)))
    # Persistent, since `pull` may be called many times.
    with GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(args))
        out = f(*handed(args, range(len(args))))
        value, aux = split_aux(f, out) if has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        value = pytree.unflatten(structure, [as_result("vjp", leaf) for leaf in leaves])

    def pull(cotangents: Any) -> tuple[Any, ...]:
        check_cotangents(value, cotangents)
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
    check_tuples("jvp", primals, tangents)
    _, args = choose_arguments("jvp", tuple(primals), range(len(primals)))
    with ForwardAccumulator(list(args), list(tangents)) as accumulator:
        out = f(*args)
        value, aux = split_aux(f, out) if has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        value = pytree.unflatten(structure, [as_result("jvp", leaf) for leaf in leaves])
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

    tape, cuts = with_cuts(GradientTape(persistent=True, watch_accessed_variables=False))
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
    check_tuples("hvp", primals, tangents)

    # The slope along v is a number, and its gradient is the product of the Hessian with v.
    def along(*args: Any) -> Any:
        value, slope = jvp(lambda *args: as_result("hvp", f(*args)), args, tangents)
        if value.shape != ():
            raise ValueError(f"hvp: the function must return one number, its result is of shape {value.shape}")
        return slope

    _, found = with_gradient("hvp", along, range(len(primals)), False, allow_unconnected)(*primals)
    leaves, structure = pytree.flatten(found)
    products: tuple[Any, ...] = pytree.unflatten(structure, [dense(leaf) for leaf in leaves])
    return products
