"""Compiled methods, of which each instance has its own, and how decorated functions are copied and pickled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_METHODS = "_compiled_methods"  # the attribute in which an instance has them


class Methods(dict[Any, Any]):
    """The compiled methods of one instance; copies and pickles of the instance make their own."""

    def __reduce__(self) -> Any:
        return Methods, ()

    @staticmethod
    def find(instance: Any, key: Any, make: Callable[[], Any], name: str = _METHODS) -> Any:
        """What an instance has under a key in the attribute `name`; `make` makes it at first.

        Raises:
            TypeError: it has slots alone.
        """
        kept = vars(instance).setdefault(name, Methods())
        # A shallow copy of an instance has the same dict.
        found = kept.get((key, id(instance)))
        # Of several threads that make one at once, all take the first.
        return kept.setdefault((key, id(instance)), make()) if found is None else found


def found_by_name(decorated: Any, python: Callable[..., Any]) -> str | None:
    """The name of a decorated function, if that leads to it."""
    name = getattr(python, "__qualname__", "")
    found: Any = sys.modules.get(getattr(python, "__module__", ""))
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is decorated else None
