"""Functions by name, for the classes below the modules that define them.

The module `conversion` imports the class Variable, and a Variable converts what is assigned. So `conversion` provides
its functions here, and `variable` looks them up when it uses them.

Not called `lookup`: a module of this package is an attribute of `tf`, and tf.lookup is one of TensorFlow's names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}


def provide(function: F) -> F:
    """Decorator: let a function be looked up by its name."""
    _functions[function.__name__] = function
    return function


class _Provided:
    """The functions that were provided, as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name not in _functions:
            raise AttributeError(f"tape_tf provides no function {name!r}")
        found = _functions[name]
        setattr(self, name, found)  # from now on __getattr__ is not asked
        return found


provided = _Provided()
