"""What a function that is traced does with Tensors that nothing else can take: errors in the user's terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tape_core import Tensor
from tape_core.backends import Backend, backend_of_type
from tape_core.staging import TracingError
from tape_core.support import SCALARS, BatchedArray, pytree

from tape_compile.frozen import frozen
from tape_compile.tracer.traced_array import TRACED, TracedArray

if TYPE_CHECKING:
    from tape_compile.tracer.trace import Trace


@contextmanager
def in_users_terms(trace: Trace) -> Iterator[None]:
    """A context in which an array library that is given a traced array raises a TracingError.

    Raises:
        TracingError: naming what to do.
    """
    try:
        yield
    except TypeError as error:
        if isinstance(error, TracingError) or "TracedArray" not in str(error):
            raise
        raise TracingError(
            f"{trace.name} is compiled, and a function that is none of Tape's is given an array that is another one in "
            f"each call ({error}). Give the Tensor itself to the functions of tape_core, or of NumPy; what only takes "
            f"arrays runs outside, or in a function with tape_core.function(fallback=True)"
        ) from error


def check_containers(name: str, structure: pytree.Structure, leaves: list[Any], given: Any) -> None:
    """Refuse a change of a list or dict among the arguments: what the function was given is a copy of the caller's.

    Raises:
        TracingError: they are not what they were.
    """
    now, now_structure = pytree.flatten(given)
    # Of lists of Tensors alone there is a shorter structure.
    if len(now) != len(leaves) or any([a is not b for a, b in zip(now, leaves, strict=True)]):
        same = False
    else:
        same = pytree.same(now_structure, structure, len(now))
    if not same:
        raise TracingError(
            f"{name} is compiled, and changes a list or dict among its arguments, which would not change the caller's: "
            f"change a copy, as of list(x) or dict(x), and return what is new"
        )


def check_result(name: str, result: Any) -> None:
    """Refuse what a function returns, if Tensors are in it where they are not found.

    Raises:
        TracingError: it returns the array of a Tensor, or an iterator.
        TypeError: it returns an object of a class that is no pytree, with a Tensor in it.
    """
    if result is None or type(result) is Tensor:
        return
    for leaf in pytree.flatten(result)[0]:
        if type(leaf) in TRACED:
            raise TracingError(
                f"{name} is compiled, and returns an array that is another one in each call, as of `x.array`: return "
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
                f"Tensor in it, which is not found there: return a tuple, a dict or a named tuple; or register the "
                f"class with optree.register_pytree_node(..., namespace='tape')"
            )


class RawArray(NamedTuple):
    """A raw array among the results, which was computed, or found, while the function was traced."""

    array: Any
    backend: Backend


def noted(leaf: Any) -> Any:
    """What a trace keeps of a result that is no Tensor."""
    backend = backend_of_type(type(leaf))
    if backend is None or (array := frozen(leaf)) is leaf:
        return leaf
    return RawArray(array, backend)


def given_back(leaf: Any) -> Any:
    """What a call returns of a result that is no Tensor: arrays that are the caller's own, to write to."""
    return leaf.backend.frozen(leaf.array) if type(leaf) is RawArray else leaf


def _attributes(leaf: Any) -> list[Any]:
    """What an object that is no pytree has in its attributes, one level of lists and dictionaries in them looked into.

    Not what Tape's own objects have, as tapes and modules do, nor functions and classes.
    """
    kind = type(leaf)
    if kind in SCALARS or kind.__module__.startswith("tape_") or callable(leaf):
        return []
    found = [getattr(leaf, name, None) for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    found += getattr(leaf, "__dict__", {}).values()
    return [part for value in found for part in _parts(value)]


def _parts(value: Any) -> Iterable[Any]:
    if type(value) in (list, tuple):
        return value  # type: ignore[no-any-return]
    return value.values() if type(value) is dict else (value,)


def _is_traced(value: Any) -> bool:
    return type(value) is Tensor and type(value._array) in (TracedArray, BatchedArray)
