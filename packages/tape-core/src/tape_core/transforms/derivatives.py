"""Derivatives of functions: gradients, products with Jacobians, and Jacobians, of pytrees to pytrees.

Each function here calls what the user calls as well: :class:`GradientTape` backward, :class:`ForwardAccumulator`
forward, :func:`vmap` for many rows or columns at once. So all of them compose, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tape_core import pytree
from tape_core.forward import ForwardAccumulator
from tape_core.indexed_slices import dense
from tape_core.ops.creation import asarray, eye
from tape_core.ops.manipulation import reshape
from tape_core.tape import GradientTape
from tape_core.tensor import Tensor, read
from tape_core.transforms.vmap import vmap

Argnums = int | Sequence[int]
Function = Callable[..., Any]


def grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """The function that gives the gradient of `f`, whose result is one number.

    >>> import tape_core as tc
    >>> cube = lambda x: x * x * x
    >>> tc.grad(cube)(2.0).item(), tc.grad(tc.grad(cube))(2.0).item()
    (12.0, 12.0)

    Args:
        f: a function of pytrees of Tensors; Python floats and arrays count as Tensors.
        argnums: with respect to which positional arguments: for an int the gradient of that argument, for several a
            tuple.
        has_aux: whether `f` returns a pair, of which the second part is not differentiated; the result is one, too.

    Returns:
        A function of what `f` takes. The gradient has the structure of the argument, with zeros for what `f` does
        not depend on; where the argument was only gathered from, :class:`IndexedSlices`.

    Raises:
        ValueError: the result of `f` is not one number, or `f` has fewer arguments.
        TypeError: an argument has a dtype that has no derivative.
    """
    with_value = value_and_grad(f, argnums, has_aux=has_aux)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = with_value(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def value_and_grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """As :func:`grad`, for a function that returns the value as well: `(value, gradient)`.

    With `has_aux` it is `((value, aux), gradient)`.

    >>> import tape_core as tc
    >>> value, gradient = tc.value_and_grad(lambda w: tc.sum(w["a"] * w["b"]))({"a": tc.ones(2), "b": tc.zeros(2)})
    >>> value.item(), gradient["b"].tolist()
    (0.0, [1.0, 1.0])
    """

    @wraps(f)
    def both(*args: Any, **kwargs: Any) -> Any:
        chosen, args = _chosen("grad", args, argnums)
        with GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([args[k] for k in chosen])
            out = f(*args, **kwargs)
            value, aux = _split(f, out) if has_aux else (out, None)
            value = _result("grad", value)
        if value.shape != ():
            raise ValueError(
                f"grad: the function must return one number, its result has shape {value.shape}; use jacrev, or vjp"
            )
        found = tape.gradient(value, [args[k] for k in chosen], unconnected_gradients="zero")
        gradients = found[0] if isinstance(argnums, int) else tuple(found)
        return ((value, aux) if has_aux else value), gradients

    return both


def vjp(f: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The value of `f` at `primals`, and the function that maps a cotangent of it to those of `primals`.

    >>> import tape_core as tc
    >>> y, pull = tc.vjp(lambda x, w: x @ w, tc.asarray([1.0, 2.0]), tc.asarray([3.0, 4.0]))
    >>> [g.tolist() for g in pull(1.0)]
    [[3.0, 4.0], [1.0, 2.0]]

    Returns:
        `(value, pull)`, or with `has_aux` `(value, pull, aux)`. `pull` takes the structure of the value, and gives a
        tuple with a cotangent of the structure of each primal. It may be called many times.
    """
    _, args = _chosen("vjp", primals, range(len(primals)))
    with GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(args))
        out = f(*args)
        value, aux = _split(f, out) if has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        value = pytree.unflatten(structure, [_result("vjp", leaf) for leaf in leaves])

    def pull(cotangents: Any) -> tuple[Any, ...]:
        return tuple(tape.gradient(value, list(args), output_gradients=cotangents, unconnected_gradients="zero"))

    return (value, pull, aux) if has_aux else (value, pull)


def jvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """The value of `f` at `primals` and its derivative along `tangents`, in one pass forward.

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
    _check_tuples("jvp", primals, tangents)
    _, args = _chosen("jvp", tuple(primals), range(len(primals)))
    with ForwardAccumulator(list(args), list(tangents)) as accumulator:
        out = f(*args)
        value, aux = _split(f, out) if has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        value = pytree.unflatten(structure, [_result("jvp", leaf) for leaf in leaves])
    tangent = accumulator.jvp(value, unconnected_gradients="zero")
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(f: Function, *primals: Any) -> tuple[Any, Function]:
    """The value of `f` at `primals`, and its derivative there as a linear function of tangents.

    For many tangents it costs less than :func:`jvp`: `f` runs once.

    >>> import tape_core as tc
    >>> y, push = tc.linearize(lambda x: x * x, tc.asarray([1.0, 2.0]))
    >>> push(tc.asarray([1.0, 0.0])).tolist(), push(tc.asarray([0.0, 1.0])).tolist()
    ([2.0, 0.0], [0.0, 4.0])
    """
    value, pull = vjp(f, *primals)
    leaves, structure = pytree.flatten(value)
    # The cotangents of the primals are linear in that of the value: its derivative there is the transpose.
    seeds = [leaf * 0 for leaf in leaves]
    with GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(seeds)
        back, back_structure = pytree.flatten(list(pull(pytree.unflatten(structure, list(seeds)))))
        back = [dense(g) for g in back]

    def push(*tangents: Any) -> Any:
        given, given_structure = pytree.flatten(list(tangents))
        if not pytree.same(back_structure, given_structure, len(back)) or len(given) != len(back):
            raise ValueError("linearize: the tangents must have the structure of the primals")
        found = tape.gradient(back, seeds, output_gradients=given, unconnected_gradients="zero")
        return pytree.unflatten(structure, found)

    return value, push


def jacrev(f: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """The function that gives the Jacobian of `f`, row by row: best where the result has fewer elements.

    >>> import tape_core as tc
    >>> tc.jacrev(lambda x: x[:1] * x)(tc.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [2.0, 1.0]]

    Args:
        f, argnums, has_aux: as for :func:`grad`; `f` may return any pytree.
        chunk_size: at most so many rows at once.

    Returns:
        A function whose result has the structure of the value, and at each leaf that of the argument, with Tensors of
        shape `value.shape + argument.shape`.
    """

    @wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, args = _chosen("jacrev", args, argnums)
        with GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([args[k] for k in chosen])
            out = f(*args, **kwargs)
            value, aux = _split(f, out) if has_aux else (out, None)
            leaves, structure = pytree.flatten(value)
            leaves = [_result("jacrev", leaf) for leaf in leaves]
        sources = args[chosen[0]] if isinstance(argnums, int) else tuple([args[k] for k in chosen])
        found = tape.jacobian(leaves, sources, unconnected_gradients="zero", parallel_iterations=chunk_size)
        result = pytree.unflatten(structure, found)
        return (result, aux) if has_aux else result

    return jacobian


def jacfwd(f: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """As :func:`jacrev`, column by column: best where the argument has fewer elements.

    >>> import tape_core as tc
    >>> tc.jacfwd(lambda x: x[:1] * x)(tc.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [2.0, 1.0]]
    """

    @wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, args = _chosen("jacfwd", args, argnums)
        sources = args[chosen[0]] if isinstance(argnums, int) else tuple([args[k] for k in chosen])
        leaves, structure = pytree.flatten(sources)
        auxiliary: list[Any] = []
        outer: list[Any] = []

        def column(*tangents: Any) -> list[Any]:
            with ForwardAccumulator(leaves, list(tangents)) as accumulator:
                out = f(*args, **kwargs)
                value, aux = _split(f, out) if has_aux else (out, None)
                results, out_structure = pytree.flatten(value)
                results = [_result("jacfwd", leaf) for leaf in results]
            auxiliary[:], outer[:] = [aux], [(out_structure, [leaf.shape for leaf in results])]
            found: list[Any] = accumulator.jvp(results, unconnected_gradients="zero")
            return found

        columns = vmap(column, out_axes=-1, chunk_size=chunk_size)(*_identities(leaves))
        out_structure, shapes = outer[0]
        sizes = [math.prod(leaf.shape) for leaf in leaves]
        by_result = []
        for shape, whole in zip(shapes, columns, strict=True):
            parts, start = [], 0
            for leaf, size in zip(leaves, sizes, strict=True):
                part = whole if len(leaves) == 1 else whole[..., start : start + size]
                parts.append(reshape(part, (*shape, *leaf.shape)))
                start += size
            by_result.append(pytree.unflatten(structure, parts))
        result = pytree.unflatten(out_structure, by_result)
        return (result, auxiliary[0]) if has_aux else result

    return jacobian


def hessian(f: Function, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Function:
    """The function that gives the second derivatives of `f`, forward over reverse.

    >>> import tape_core as tc
    >>> tc.hessian(lambda x: x[0] * x[0] * x[1])(tc.asarray([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]

    Returns:
        A function whose result has the structure of the argument twice, with Tensors of shape `x.shape + x.shape`.
    """
    return jacfwd(grad(f, argnums, has_aux=has_aux), argnums, has_aux=has_aux, chunk_size=chunk_size)


def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The product of the Hessian of `f` at `primals` with `tangents`, without the matrix.

    It is the gradient of the derivative along `tangents`: one pass forward, with values and tangents, and one back.

    >>> import tape_core as tc
    >>> (product,) = tc.hvp(lambda x: tc.sum(x * x * x), (tc.asarray([1.0, 2.0]),), (tc.asarray([1.0, 0.0]),))
    >>> product.tolist()
    [6.0, 0.0]

    Args:
        f: a function of `primals` that returns one number.
        primals, tangents: tuples with an entry for each argument, of the same structure.

    Returns:
        A tuple, with an entry of the structure of each argument.
    """
    _check_tuples("hvp", primals, tangents)

    def along(*args: Any) -> Any:
        value, slope = jvp(lambda *args: _result("hvp", f(*args)), args, tangents)
        if value.shape != ():
            raise ValueError(f"hvp: the function must return one number, its result is of shape {value.shape}")
        return slope

    leaves, structure = pytree.flatten(grad(along, range(len(primals)))(*primals))
    products: tuple[Any, ...] = pytree.unflatten(structure, [dense(leaf) for leaf in leaves])
    return products


# -- arguments and results


def _chosen(name: str, args: tuple[Any, ...], argnums: Argnums) -> tuple[list[int], tuple[Any, ...]]:
    """Which arguments are differentiated, and all of them: those as values of their own, that no tape knows yet."""
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    chosen = []
    for k in numbers:
        if not -len(args) <= k < len(args):
            raise ValueError(f"{name}: argument {k} was asked for, the function is called with {len(args)}")
        chosen.append(k % len(args))
    return chosen, tuple([_fresh(name, arg, k) if k in chosen else arg for k, arg in enumerate(args)])


def _check_tuples(method: str, primals: Any, tangents: Any) -> None:
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            kind = type(given).__name__
            raise TypeError(f"{method}: {name} must be a tuple with an entry for each argument, got {kind}")


def _fresh(name: str, arg: Any, k: int) -> Any:
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
        # The same value, known to the tapes that know it, but for this derivative a variable of its own.
        fresh.append(value.__copy__())
    return pytree.unflatten(structure, fresh)


def _result(name: str, value: Any) -> Tensor:
    tensor = read(value, f"{name}: the result of the function")
    return tensor if type(tensor) is Tensor else asarray(tensor)


def _split(f: Function, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"with has_aux the function {getattr(f, '__name__', f)!r} must return a pair (value, aux)")
    return out


def _identities(leaves: Sequence[Tensor]) -> list[Tensor]:
    """For each leaf the tangents that move one element of one leaf: as many rows as all have elements."""
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    total, start, found = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        columns = eye(total, size, k=-start, dtype=leaf.dtype, device=leaf.device, backend=leaf.backend.root)
        found.append(reshape(columns, (total, *leaf.shape)))
        start += size
    return found
