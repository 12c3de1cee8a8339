"""What a function that is traced does with Tensors that nothing else can take: errors in the user's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from tape_core import pytree
from tape_core.backends.batched import BatchedArray
from tape_core.backends.traced import TRACED, TracedArray, TracingError
from tape_core.tensor import Tensor

if TYPE_CHECKING:
    from tape_core.compiled.trace import Trace


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


def check_result(name: str, result: Any) -> None:
    """Refuse what a function returns, if Tensors are in it where they are not found.

    Raises:
        TracingError: it returns the array of a Tensor.
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
        if is_dataclass(leaf) and any([_is_traced(getattr(leaf, field.name, None)) for field in fields(leaf)]):
            raise TypeError(
                f"{name} is compiled, and returns a {type(leaf).__qualname__}, a class that is no pytree, with a "
                f"Tensor in it, which is not found there: return a tuple, a dict or a named tuple; or register the "
                f"class with optree.register_pytree_node(..., namespace='tape')"
            )


def _is_traced(value: Any) -> bool:
    return type(value) is Tensor and type(value._array) in (TracedArray, BatchedArray)
