"""The results of a traced function: errors for those that cannot be returned, copies of constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tape_core import Tensor
from tape_core.backends import Backend, backend_of_type
from tape_core.staging import TracingError
from tape_core.support import SCALARS, BatchedArray, pytree, warn_user
from tape_core.tracing import Moment

from tape_compile.frozen import frozen
from tape_compile.tracer.traced_array import TRACED, TracedArray

if TYPE_CHECKING:
    from tape_compile.tracer.trace import Trace


@contextmanager
def explain_leaked_arrays(trace: Trace) -> Iterator[None]:
    """Enter a context in which the TypeError of an array library that got a traced array becomes a TracingError.

    Raises:
        TracingError: with advice.
    """
    try:
        yield
    except TypeError as error:
        if isinstance(error, TracingError) or "TracedArray" not in str(error):
            raise
        raise TracingError(
            f"{trace.name} is compiled, and a function that is none of Tape's is given a traced array, whose values "
            f"differ between calls ({error}). Give the Tensor itself to the functions of tape_core, or of NumPy; what "
            f"only takes arrays runs outside, or in a function with tape_core.function(fallback=True)"
        ) from error


def warn_of_caught(trace: Trace) -> None:
    """Warn if the user's code has caught an error about a value that it needs: the trace has what it did instead."""
    for line, error in trace.caught.items():
        warn_user(
            f"{trace.name} is compiled, and {line}, has caught the error that follows: the compiled function always "
            f"does what comes after `except`, whatever the values are. {error}"
        )


def check_containers(name: str, structure: pytree.Structure, leaves: list[Any], given: object) -> None:
    """Refuse changes of lists and dicts among the arguments, for the function has copies of the caller's.

    Raises:
        TracingError: their structure or leaves have changed.
    """
    if structure is tuple:  # of leaves alone: there is nothing to change
        return
    now, now_structure = pytree.flatten_whole(given)
    # `flatten` gives a list of Tensors alone a shorter structure, so leaves are compared first, by identity.
    if len(now) != len(leaves) or any([a is not b for a, b in zip(now, leaves, strict=True)]):
        same = False
    else:
        same = pytree.same(now_structure, structure, len(now))
    if not same:
        raise TracingError(
            f"{name} is compiled, and changes a list or dict among its arguments, which would not change the caller's: "
            f"change a copy, as of list(x) or dict(x), and return what is new"
        )


def settled(moment: Moment, run: Callable[[], Any], refuse: Callable[[str], Exception], own: Sequence[Any] = ()) -> Any:
    """Return what a function returns, which may have changed nothing in place that others have: `Moment.settled`.

    Args:
        own: its arguments, which it may change.
    """
    with moment.undone_on_error():
        leaves, structure = pytree.flatten_whole(run())
        return pytree.unflatten(structure, moment.settled(leaves, refuse, [x for x in own if type(x) is Tensor]))


def check_result(name: str, result: object) -> None:
    """Refuse a result with Tensors, or their arrays, in places where later calls would not put new ones.

    Raises:
        TracingError: it returns the array of a Tensor, or an iterator.
        TypeError: it returns an object of a class that is no pytree, with a Tensor in it.
    """
    if result is None or type(result) is Tensor:
        return
    for leaf in pytree.flatten_whole(result)[0]:
        if type(leaf) in TRACED:
            raise TracingError(
                f"{name} is compiled, and returns a traced array, as of `x.array`: return "
                f"the Tensor, and take its array after the call"
            )
        if isinstance(leaf, Iterator):
            raise TracingError(
                f"{name} is compiled, and returns a {type(leaf).__qualname__}, which can be gone through once, and not "
                f"in each call: return a list"
            )
        if any(map(_is_traced, _attributes(leaf))):
            raise TypeError(
                f"{name} is compiled, and returns a {type(leaf).__qualname__}, a class that is no pytree, with a "
                f"Tensor in it, which is not found there: return a tuple, a dict, a named tuple or a dataclass; or "
                f"register the class with tape_core.register_pytree"
            )


class RawArray(NamedTuple):
    """A raw array among the results, which is a constant of the trace: each call returns a copy."""

    array: Any
    backend: Backend


def freeze_leaf(leaf: object) -> object:
    """Return a leaf of the result that is no Tensor in the form in which a trace keeps it."""
    backend = backend_of_type(type(leaf))
    if backend is None or (array := frozen(leaf)) is leaf:
        return leaf
    return RawArray(array, backend)


def restore_leaf(leaf: object) -> object:
    """Return a leaf that a trace has kept, for the caller: arrays are copies, which the caller may write to."""
    return leaf.backend.frozen(leaf.array) if isinstance(leaf, RawArray) else leaf


def _attributes(leaf: object) -> list[object]:
    """Return the attributes of an object that is no pytree, and the parts of lists and dicts among them.

    Functions, classes and Tape's own objects, such as tapes and modules, count as having none: they may refer to
    Tensors. Arrays have none either, and those of JAX raise where their slots are read.
    """
    kind = type(leaf)
    if kind in SCALARS or kind.__module__.startswith("tape_") or callable(leaf) or backend_of_type(kind) is not None:
        return []
    found = [getattr(leaf, name, None) for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    found += getattr(leaf, "__dict__", {}).values()
    return [part for value in found for part in _parts(value)]


def _parts(value: object) -> Iterable[object]:
    if type(value) in (list, tuple):
        return value  # type: ignore[return-value]
    return value.values() if type(value) is dict else (value,)


def _is_traced(value: object) -> bool:
    return type(value) is Tensor and type(value._array) in (TracedArray, BatchedArray)
