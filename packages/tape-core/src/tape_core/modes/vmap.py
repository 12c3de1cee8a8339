"""vmap: a function of one example becomes one of many, without a loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from types import FunctionType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, get_args

from tape_core.backends.axes import normal_axis
from tape_core.backends.errors import BatchError
from tape_core.base.ambient import OPEN_AXES
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.lookup import ops
from tape_core.base.mistakes import check_callable, explaining
from tape_core.base.progress import progress_of
from tape_core.engine import pytree
from tape_core.engine.changes import Moment
from tape_core.engine.levels import Axis, BatchedArray, has_axis, lift
from tape_core.engine.recording import DrawnStates
from tape_core.engine.tensor import Tensor, alias, read, wrap
from tape_core.modes.batched import Batched, backend_in
from tape_core.staging import current

Axes = Any
Randomness: TypeAlias = Literal["error", "different", "same"]
"""How random numbers are meant that a function of one example draws."""

P = ParamSpec("P")
R = TypeVar("R")
_TITLE = "__tape_title__"


@explaining
def vmap(
    f: Callable[P, R],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    *,
    chunk_size: int | None = None,
    randomness: Randomness = "error",
) -> Callable[P, R]:
    """Return a function that calls `f` on all examples at once: in its body a Tensor is one example.

    >>> import tape_core as tc
    >>> w = tc.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> tc.vmap(lambda row: tc.max(row) * row)(w).tolist()
    [[2.0, 4.0], [12.0, 16.0], [30.0, 36.0]]

    It nests, and composes with tapes inside the function and outside: a gradient in the body is one for each example.

    >>> def loss(w, x):
    ...     with tc.GradientTape() as tape:
    ...         tape.watch(w)
    ...         y = tc.sum(tc.tanh(w * x))
    ...     return tape.gradient(y, w)
    >>> tc.vmap(loss, in_axes=(None, 0))(tc.ones(2), w).shape
    (3, 2)

    Args:
        f: a function of pytrees of Tensors that returns one.
        in_axes: for each positional argument the axis of its examples, or None where all of them share it; an int for
            all arguments, or a tuple or list with an entry for each: an int, None or a pytree of them as far down as
            they differ. Keyword arguments have their examples along axis 0.
        out_axes: likewise, where the results have their examples; None for a result that is the same for all.
        chunk_size: at most so many examples at once, to use less memory; all of them by default.
        randomness: how random numbers are meant that `f` draws, as in dropout: `"different"` draws each example its
            own, `"same"` draws once for all of them, and `"error"` refuses to. In nested vmaps each says it for its own
            examples.

    Raises:
        ValueError: the arguments have different numbers of examples, or none has any, or an axis is not there.
        TypeError: a leaf with examples is no array; inside `f`, a decision depends on a value, random numbers are
            drawn though `randomness` is `"error"`, or a value is taken out of a Tensor; or `f` changes a Tensor from
            around it in place, to a value that differs between the examples.
    """
    check_callable("vmap", "f", f)
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ValueError(f"vmap: chunk_size must be a positive int or None, got {chunk_size!r}")
    if randomness not in get_args(Randomness):
        raise ValueError(f'vmap: randomness must be "error", "different" or "same", got {randomness!r}')
    # Arguments are a tuple, of which a list is no prefix.
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)

    @wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                f"vmap: in_axes has {len(in_axes)} entries, the function is called with {len(args)} positional "
                f"arguments"
            )
        # Without keywords the arguments alone: a tuple of Tensors is flattened without optree, whose import takes time.
        tree, prefix = ((args, kwargs), (in_axes, 0)) if kwargs else (args, in_axes)
        leaves, structure = pytree.flatten(tree)
        axes = pytree.prefix(prefix, tree, "vmap: in_axes", "arguments")
        named = partial(_argument, structure, bool(kwargs))
        beside = next((leaf for leaf in leaves if isinstance(leaf, Tensor)), None)
        moved = [
            leaf if axis is None else _examples_first(leaf, axis, partial(named, k), beside)
            for k, (leaf, axis) in enumerate(zip(leaves, axes, strict=True))
        ]
        size = _common_size(moved, axes, named)

        def run(start: int, stop: int) -> Any:
            whole = stop - start == size
            part = [leaf if whole or axis is None else leaf[start:stop] for leaf, axis in zip(moved, axes, strict=True)]
            moment = Moment()
            with new_axis(stop - start, randomness) as axis:
                given = [_shared(x) if a is None else batch(x, axis) for x, a in zip(part, axes, strict=True)]
                found = pytree.unflatten(structure, given)
                one, named_ones = found if kwargs else (found, {})
                out = _all_examples(f(*one, **named_ones), out_axes, axis)
            del given, found, one, named_ones  # what is an example's alone has ended
            moment.check(_refusal, partial(has_axis, axis))
            return out

        # A trace has no state of generators to go back to for the next chunk: it gets all examples at once.
        if chunk_size is None or size <= chunk_size or (randomness == "same" and current() is not None):
            return run(0, size)
        chunks = [(k, min(k + chunk_size, size)) for k in range(0, size, chunk_size)]
        own = vars(f).get(_TITLE) if isinstance(f, FunctionType) else None
        title, unit = own or (f"vmap of {name_of(f)}", "examples")
        drawn = DrawnStates() if randomness == "same" else None
        parts = []
        with progress_of(title, size, unit) as task:
            for start, stop in chunks:
                if drawn is None:
                    parts.append(run(start, stop))
                elif start == 0:
                    with drawn.observe():
                        parts.append(run(start, stop))
                else:
                    drawn.rewind()
                    parts.append(run(start, stop))
                task.advance(stop - start)
        return _concatenated(parts, out_axes)

    return mapped


def titled(f: Callable[P, R], title: str, unit: str) -> Callable[P, R]:
    """Have progress call the vmap of a function by another name, and its examples, too; return the function."""
    setattr(f, _TITLE, (title, unit))
    return f


def name_of(f: Callable[..., Any]) -> str:
    """Return how progress calls a function."""
    return str(getattr(f, "__name__", "a function"))


def _refusal(what: str) -> BatchError:
    return BatchError(
        f"vmap: the function {what}, to a value that is another one for each example: return it, and change the Tensor "
        f"afterwards"
    )


def _all_examples(out: Any, out_axes: Axes, axis: Axis) -> Any:
    """Return what a function has returned for one example, with all of them along the axes that the caller wants."""
    results, structure = pytree.flatten(out)
    places = pytree.prefix(out_axes, out, "vmap: out_axes", "results")
    found = [
        unbatch(result, axis, place, lambda k=k: f"result {_path(structure, k)}")  # type: ignore[misc]
        for k, (result, place) in enumerate(zip(results, places, strict=True))
    ]
    return pytree.unflatten(structure, found)


# -- the hidden axis


@contextmanager
def new_axis(size: int, randomness: Randomness = "same") -> Iterator[Axis]:
    """Enter a context in which Tensors may have one more hidden axis.

    Random numbers are the same along it by default: a function that a derivative runs again draws what it drew before.
    """
    axis = Axis(size, randomness)
    with setting(OPEN_AXES, (*OPEN_AXES.get(), axis)):
        try:
            yield axis
        finally:
            # Tensors that still have the axis are refused from now on, by `levels.is_on_level`.
            axis.open = False


def batch(tensor: Tensor, axis: Axis) -> Tensor:
    """Return a Tensor of all examples, along dimension 0, as one example."""
    backend = backend_in(axis, tensor)
    assert isinstance(backend, Batched)
    return wrap(BatchedArray(lift(tensor, backend.base), backend, axis), backend)


def unbatch(result: Any, axis: Axis, place: int | None, where: Callable[[], str]) -> Any:
    """Return all examples of a result, along dimension `place`."""
    from tape_core.modes.batching import spread

    if result is None:
        return None
    tensor = read(result, where)
    if type(tensor) is not Tensor:
        tensor = ops.asarray(tensor)
    # A result that depends on no example is lifted to the level of the others.
    backend = backend_in(axis, tensor)
    array = lift(tensor, backend)._array
    if place is None:
        if array.axis is not None:
            raise ValueError(f"vmap: {where()} has out_axes None, but is not the same for all examples")
        return array.value
    whole = spread(array, axis.size)
    try:
        place = normal_axis(place, len(whole.shape))
    except ValueError as error:
        raise ValueError(f"vmap: {where()} with its examples has shape {whole.shape}: {error}") from None
    return whole if place == 0 else ops.moveaxis(whole, 0, place)


# -- arguments


def _argument(structure: pytree.Structure, with_kwargs: bool, k: int) -> str:
    """Return the name of a leaf of `(args, kwargs)`, or of `args`, for messages."""
    way = r"\[[01]\]" if with_kwargs else ""
    name, rest = re.fullmatch(way + r"\[(.*?)\](.*)", pytree.path(structure, k)).groups()  # type: ignore[union-attr]
    return f"argument {name}{rest}"


def _path(structure: pytree.Structure, k: int) -> str:
    return pytree.path(structure, k) or "of the function"


def _examples_first(leaf: object, axis: object, where: Callable[[], str], beside: Tensor | None) -> Tensor:

    tensor = read(leaf, lambda: f"vmap: {where()}", beside)
    if type(tensor) is not Tensor:
        raise BatchError(f"vmap: {where()} is {leaf!r}: it has no axis of examples; give it in_axes=None")
    if type(axis) is not int:
        raise ValueError(f"vmap: in_axes must be integers and None, got {axis!r} for {where()}")
    try:
        axis = normal_axis(axis, tensor.ndim)
    except ValueError as error:
        raise ValueError(f"vmap: {where()} of shape {tensor.shape}: {error}") from None
    return tensor if axis == 0 else ops.moveaxis(tensor, axis, 0)


def _shared(leaf: Any) -> Any:
    """Return an argument of all examples as the function is to get it, which may change it in place."""
    return alias(leaf) if type(leaf) is Tensor else leaf


def _common_size(moved: Sequence[Any], axes: Sequence[Any], named: Callable[[int], str]) -> int:
    sizes = {k: leaf.shape[0] for k, (leaf, axis) in enumerate(zip(moved, axes, strict=True)) if axis is not None}
    if not sizes:
        raise ValueError("vmap: no argument has examples: in_axes is None for all of them")
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{named(k)}: {n}" for k, n in sizes.items())
        raise ValueError(f"vmap: the arguments have different numbers of examples ({found})")
    return int(next(iter(sizes.values())))


def _concatenated(parts: Sequence[Any], out_axes: Axes) -> Any:
    structure = pytree.flatten(parts[0])[1]
    places = pytree.prefix(out_axes, parts[0], "vmap: out_axes", "results")
    columns = zip(*[pytree.flatten(part)[0] for part in parts], strict=True)
    joined = [
        column[0] if place is None or column[0] is None else ops.concat(list(column), axis=place)
        for column, place in zip(columns, places, strict=True)
    ]
    return pytree.unflatten(structure, joined)
