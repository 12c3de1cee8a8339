"""Functions by name, for the classes below the modules that define them.

A Variable converts what it is assigned, and the conversion knows Variables: so it provides its functions here, in place
of being imported by what it imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}


def provide(function: F) -> F:
    """Let a function be looked up by its name; a decorator."""
    _functions[function.__name__] = function
    return function


class _Provided:
    """A namespace of the functions that were provided."""

    def __getattr__(self, name: str) -> Any:
        if name not in _functions:
            raise AttributeError(f"tape_tf provides no function {name!r}")
        found = _functions[name]
        setattr(self, name, found)
        return found


provided = _Provided()
