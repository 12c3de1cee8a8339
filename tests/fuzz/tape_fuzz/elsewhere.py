"""What programs of the grammar find in Tape's place where another framework runs them, for its own derivatives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any


def calls_only(text: str, table: Mapping[str, Any]) -> bool:
    """Whether all that statements call of Tape is in a table.

    They must not assign to elements or in place, either: elsewhere that is an error, or another name keeps the array.
    """
    return not re.search(r"\] = |[*+]= ", text) and all(
        name in table for name in re.findall(r"\btc\.((?:\w+\.)?\w+)", text)
    )


def namespace_of(table: Mapping[str, Any]) -> SimpleNamespace:
    """A table as what a program's script finds as `tc`."""
    found = SimpleNamespace(linalg=SimpleNamespace(), fft=SimpleNamespace())
    for name, function in table.items():
        module, _, last = name.rpartition(".")
        setattr(getattr(found, module) if module else found, last, function)
    return found


def conditional(condition: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """`tc.cond` as Python's own."""
    return true_fn() if bool(condition) else false_fn()


def while_holds(condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
    """`tc.while_loop` as Python's own."""
    while bool(condition(state)):
        state = body(state)
    return state


def scanned_by(stack: Callable[[Any], Any]) -> Callable[..., Any]:
    """`tc.scan` as a loop of Python's, with a framework's function that stacks arrays."""

    def scan(step: Callable[..., Any], init: Any, xs: Any, reverse: bool = False) -> Any:
        found: list[Any] = [None] * len(xs)
        for k in reversed(range(len(xs))) if reverse else range(len(xs)):
            init, found[k] = step(init, xs[k])
        return init, stack(found)

    return scan


def mapped_by(stack: Callable[[Any], Any]) -> Callable[..., Any]:
    """`tc.map` as a loop of Python's, with a framework's function that stacks arrays."""
    return lambda function, xs: stack([function(x) for x in xs])
