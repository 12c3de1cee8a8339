"""What a library that differentiates by itself, as JAX does, is told of a derivative that a user gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Rule(Protocol):
    """The derivative of one call of a function, as :meth:`Backend.ruled` is given it; all arrays are raw.

    Attributes:
        name: the function in messages, such as `custom_gradient(clipped)`.
        pushes: whether there are tangents; without them forward mode takes the transpose of the cotangents.
    """

    @property
    def name(self) -> str: ...

    @property
    def pushes(self) -> bool: ...

    def cotangents(self, g: Any, out: Any, watched: list[bool], /) -> list[Any]:
        """Return the cotangents of the inputs that are watched, None for the others; they are plain transposes.

        Args:
            g: the cotangent of the result, None where nothing flows; of several results a list.
            out: the result, as the library knows it with its rule; of several a list.
            watched: for each input, whether its cotangent is wanted.
        """

    def tangents(self, ts: Sequence[Any], out: Any, /) -> list[Any]:
        """Return the tangents of the results for those of all inputs; `out` as above."""
