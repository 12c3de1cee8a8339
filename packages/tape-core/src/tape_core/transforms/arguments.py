"""Arguments and results of the functions that derivatives are taken of: chosen, made fresh Tensors of, and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from tape_core.engine import pytree
from tape_core.engine.cuts import Cuts, check_zero
from tape_core.engine.tensor import Tensor, alias, read, wrap
from tape_core.engine.variable import Variable
from tape_core.ops.creation import asarray
from tape_core.typing import ArrayLike, PyTree

Argnums = int | Sequence[int]
Function = Callable[..., Any]


def check_argnums(name: str, argnums: Any) -> Argnums:
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
        check_different(name, found, found)
    return found


def check_different(name: str, chosen: Sequence[int], argnums: Argnums) -> None:
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{name}: argnums names an argument twice: {argnums!r}")


def choose_arguments(name: str, args: tuple[Any, ...], argnums: Argnums) -> tuple[list[int], tuple[Any, ...]]:
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
        check_different(name, chosen, argnums)
    return chosen, tuple([fresh_argument(name, arg, k, args) if k in chosen else arg for k, arg in enumerate(args)])


def note_lists(error: TypeError, args: tuple[Any, ...], chosen: Sequence[int]) -> None:
    """Add to an error of the user's function that a list of numbers, which users give for an array, is a list there."""
    for k in chosen:
        if isinstance(args[k], list | tuple) and args[k] and all([isinstance(x, int | float) for x in args[k]]):
            error.add_note(
                f"argument {k} is a {type(args[k]).__name__} of numbers, a structure, and not an array: the function "
                f"gets a {type(args[k]).__name__} of Tensors. For an array give tape_core.asarray([...])"
            )


def with_cuts(recorder: Any) -> tuple[Any, Cuts]:
    """Give a tape or an accumulator a `Cuts`, which collects where the path of a known value ends; return both."""
    recorder._cuts = cuts = Cuts()
    return recorder, cuts


def check_reached(
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


def zeros_of(like: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    xp, array = like.backend.xp, like._array
    zeros = xp.zeros_like(array) if shape is None else xp.zeros_beside(array, shape, dtype=array.dtype)
    return wrap(zeros, like.backend)


def materialize_zeros(parts: Sequence[Any], leaves: Sequence[Tensor]) -> list[Any]:
    return [zeros_of(leaf) if part is None else part for part, leaf in zip(parts, leaves, strict=True)]


def check_cotangents(value: PyTree, cotangents: PyTree) -> None:
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


def check_tuples(method: str, primals: object, tangents: object) -> None:
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            kind = type(given).__name__
            raise TypeError(f"{method}: {name} must be a tuple with an entry for each argument, got {kind}")


def fresh_argument(name: str, arg: PyTree, k: int, args: tuple[Any, ...]) -> Any:
    """Return an argument with fresh Tensors in it; NumPy's arrays go where the first Tensor among the arguments is."""
    leaves, structure = pytree.flatten(arg)
    beside = None if all([isinstance(leaf, Tensor) for leaf in leaves]) else _first_tensor(args)
    fresh = []
    for j, leaf in enumerate(leaves):
        where = f"argument {k}{pytree.path(structure, j)}"
        value = read(leaf, f"{name}: {where}", beside)
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


def handed(args: Sequence[Any], chosen: Sequence[int]) -> list[Any]:
    """Return arguments as a function is to get them, which may change them in place: the chosen ones are aliases."""
    return [aliases(arg) if k in chosen else arg for k, arg in enumerate(args)]


def aliases(tree: PyTree) -> Any:
    """Return a pytree of Tensors as one of aliases."""
    if type(tree) is Tensor:
        return alias(tree)
    leaves, structure = pytree.flatten(tree)
    return pytree.unflatten(structure, [alias(leaf) for leaf in leaves])


def _first_tensor(tree: PyTree) -> Tensor | None:
    return next((leaf for leaf in pytree.flatten(tree)[0] if isinstance(leaf, Tensor)), None)


def as_result(name: str, value: ArrayLike) -> Tensor:
    tensor = read(value, f"{name}: the result of the function")
    return tensor if type(tensor) is Tensor else asarray(tensor)


def check_real_results(name: str, results: Sequence[Tensor], sources: PyTree) -> None:
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


def split_aux(f: Function, out: object) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"with has_aux the function {getattr(f, '__name__', f)!r} must return a pair (value, aux)")
    return out
