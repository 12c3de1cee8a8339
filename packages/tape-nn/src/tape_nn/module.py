"""Module: an object that knows the Variables it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core import Variable


class Module:
    """Base class of everything with parameters.

    Subclass it, keep Variables as attributes and define `__call__`. Variables are found in
    attributes, in Modules held as attributes, and in lists, tuples and dicts of them, nested to any
    depth, in the order of definition. One that is held twice counts once. Nothing is registered:
    there is no `super().__init__()` to forget, and an attribute may be replaced at any time.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> class Line(nn.Module):
    ...     def __init__(self):
    ...         self.slope = tc.Variable(2.0)
    ...         self.offset = tc.Variable(1.0)
    ...     def __call__(self, x):
    ...         return self.slope * x + self.offset
    >>> line = Line()
    >>> line(3.0)
    Tensor(7.0, shape=(), dtype=float32, backend=numpy)
    >>> [name for name, _ in line.named_variables()]
    ['slope', 'offset']
    """

    def named_variables(self) -> Iterator[tuple[str, Variable]]:
        """Each Variable after the first path that leads to it, such as `"layers.0.kernel"`."""
        return _walk(self, "", set())

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All Variables, each once."""
        return tuple(variable for _, variable in self.named_variables())

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """The Variables that training changes: those made with `trainable=True`, the default."""
        return tuple(variable for _, variable in self.named_variables() if variable.trainable)

    def __repr__(self) -> str:
        variables = self.variables
        parameters = sum(variable.size for variable in variables)
        return f"<{type(self).__name__}: {len(variables)} variables, {parameters:,} parameters>"


def _walk(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Variable]]:
    if isinstance(value, Variable):
        if id(value) not in seen:
            seen.add(id(value))
            yield path, value
        return
    children: Any
    if isinstance(value, Module):
        children = vars(value).items()
    elif isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list | tuple):
        children = enumerate(value)
    else:
        return
    if id(value) in seen:  # shared, or a child that holds its parent
        return
    seen.add(id(value))
    for key, child in children:
        yield from _walk(child, f"{path}.{key}" if path else str(key), seen)
