"""Functions that move elements, applied to tensors of strings: the strings are numbered, and the numbers are moved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal

import numpy as np

from tape_tf.conversion import convert_to_tensor
from tape_tf.errors import InvalidArgumentError, StringsGivenError
from tape_tf.string_tensor import StringTensor, as_strings, is_text, wrap_strings
from tape_tf.tensor import Tensor

Results = Literal["all", "first", "none"]
"""The results of a function that are elements of its inputs: all, the first of several, or none, as of `equal`."""


def call_with_numbers(
    function: Callable[..., Any],
    signature: inspect.Signature,
    names: Sequence[str],
    results: Results,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function with the strings among its arguments replaced by numbers, and replace numbers in its results.

    The numbers follow the order of the strings, so that comparisons and sorts are right, too.

    Args:
        names: the parameters that take elements; those not in the call, and others, are left alone.
    """
    bound = signature.bind(*args, **kwargs)
    found: list[StringTensor] = []

    def collect(value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(part, StringTensor) for part in value):
            return [collect(part) for part in value]  # tensors in a list may differ in their shapes, as for concat
        if value is None:
            return None
        if not is_text(value) and not (isinstance(value, list | tuple) and not value):
            raise InvalidArgumentError(
                None,
                None,
                f"{getattr(function, '__name__', 'this function')}: a tensor of strings beside one of numbers: "
                f"{value!r}; tf.strings.as_string makes strings, tf.strings.to_number numbers",
            )
        found.append(as_strings(value))
        return found[-1]

    given = {name: collect(value) for name, value in bound.arguments.items() if name in names}
    flat = [part._strings.ravel() for part in found]
    table, numbers = np.unique(np.concatenate(flat), return_inverse=True)
    ends = np.cumsum([len(part) for part in flat])
    coded = {
        id(part): convert_to_tensor(code.reshape(part.shape).astype(np.int64))
        for part, code in zip(found, np.split(numbers, ends[:-1]), strict=True)
    }

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(part) for part in value]
        return coded.get(id(value), value)

    bound.arguments.update({name: number(value) for name, value in given.items()})
    moved = function(*bound.args, **bound.kwargs)
    if results == "none":
        return moved
    if isinstance(moved, Tensor):
        return _of_strings(table, moved)
    parts = [_of_strings(table, part) if results == "all" or not k else part for k, part in enumerate(moved)]
    return type(moved)(*parts) if hasattr(moved, "_fields") else type(moved)(parts)


def _of_strings(table: Any, numbers: Tensor) -> StringTensor:
    """Return the strings with these numbers in a table."""
    out = np.empty(tuple(numbers.shape), object)
    out[...] = table[numbers.numpy()] if out.size else out
    return wrap_strings(out)


def moves_strings(names: str, results: Results = "all") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: let a function, which moves the elements of the parameters `names`, take tensors of strings."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Numbers, by far the most, pay one frame for it, and nothing else.
            try:
                return function(*args, **kwargs)
            except StringsGivenError:
                return call_with_numbers(function, signature, names.split(), results, args, kwargs)

        return call

    return decorate
