"""Jacobians and Hessians of functions of pytrees, by rows in reverse mode and by columns in forward mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from tape_core.base.mistakes import check_callable, explaining
from tape_core.engine import pytree
from tape_core.engine.tape import GradientTape
from tape_core.engine.tensor import Tensor
from tape_core.modes.forward import ForwardAccumulator
from tape_core.modes.vmap import name_of, titled, vmap
from tape_core.ops.creation import eye
from tape_core.ops.manipulation import reshape
from tape_core.transforms.arguments import (
    Argnums,
    Function,
    as_result,
    check_argnums,
    check_reached,
    check_real_results,
    choose_arguments,
    handed,
    materialize_zeros,
    split_aux,
    with_cuts,
    zeros_of,
)
from tape_core.transforms.derivatives import with_gradient

P = ParamSpec("P")
X = TypeVar("X", bound=Any)
T = TypeVar("T", bound=Tensor)


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
        tape, cuts = with_cuts(GradientTape(watch_accessed_variables=False))
        with tape:
            tape.watch(call.sources)
            leaves, structure = call.results()
        check_real_results("jacrev", leaves, call.sources)
        used = len(tape._records) > len(tape._leaves)
        found = tape.jacobian(leaves, call.sources, parallel_iterations=chunk_size)
        parts, parts_structure = pytree.flatten(found)
        if not allow_unconnected:
            check_reached("jacrev", parts, cuts, call.args, call.chosen, used)
        if any([part is None for part in parts]):
            # By result and then by source, as `found` is nested.
            pairs = [(x, (*y.shape, *x.shape)) for y in leaves for x in pytree.flatten(call.sources)[0]]
            parts = [zeros_of(*pair) if part is None else part for part, pair in zip(parts, pairs, strict=True)]
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
            accumulator, cuts = with_cuts(ForwardAccumulator(leaves, list(tangents)))
            with accumulator:
                results, out_structure = call.results()
            outer[:] = [(out_structure, [leaf.shape for leaf in results])]
            found: list[Any] = accumulator.jvp(results)
            if not allow_unconnected:
                check_reached(name, found, cuts, call.args, call.chosen)
            return materialize_zeros(found, results)

        # A column for each element of the arguments, so these come last in the Jacobian.
        titled(column, f"{name} of {name_of(f)}", "columns")
        found = vmap(column, out_axes=-1, chunk_size=chunk_size, randomness="same")(*unit_tangents(leaves))
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
        self.chosen, self.fresh = choose_arguments(name, args, argnums)
        own = tuple([self.fresh[k] for k in self.chosen])
        self.sources = own[0] if isinstance(argnums, int) else own
        self.aux: Any = None

    def results(self) -> tuple[list[Any], Any]:
        """Run the function; return the leaves of its value and their structure."""
        out = self.f(*handed(self.fresh, self.chosen), **self.kwargs)
        value, self.aux = split_aux(self.f, out) if self.has_aux else (out, None)
        leaves, structure = pytree.flatten(value)
        return [as_result(self.name, leaf) for leaf in leaves], structure


def _jacobian(name: str, f: Function, argnums: Argnums, has_aux: bool, compute: Callable[[_Call], Any]) -> Function:
    """Return a function with the arguments of `f` that computes a Jacobian, by `compute`."""
    check_callable(name, "f", f)
    argnums = check_argnums(name, argnums)

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


def unit_tangents(leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return the unit tangents as batches: row j moves the j-th element of all leaves, and no other."""
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    total, start, found = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        # The columns of the identity matrix that belong to this leaf: its first 1 is in row `start`.
        columns = eye(total, size, k=-start, dtype=leaf.dtype, device=leaf.device, backend=leaf.backend.root)
        found.append(reshape(columns, (total, *leaf.shape)))
        start += size
    return found
