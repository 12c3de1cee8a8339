"""Loops and linear systems of a library that traces functions itself, as JAX does inside `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tape_core.typing import Raw

Arrays = Sequence[Raw]
Mapped = Callable[[Arrays], Arrays]


class Flows(Protocol):
    """What :meth:`Backend.flows` returns; all arrays are raw."""

    UNREAD: tuple[type[Exception], ...]
    """What is raised where Python asks for the value of an array that is traced."""

    def cond(self, condition: Raw, branches: Sequence[Mapped], arrays: Arrays) -> list[Raw]:
        """Return the results of the first branch where the condition, a scalar, is true, else those of the second."""

    def scan(
        self,
        step: Callable[[Arrays, Arrays], tuple[Arrays, Arrays]],
        carry: Arrays,
        xs: Arrays,
        length: int,
        reverse: bool,
    ) -> tuple[list[Raw], list[Raw]]:
        """Return the carry after a step for each element of `xs`, along axis 0, and the results of the steps, stacked.

        Args:
            step: a function of the carry and the elements, which returns the next carry and results.
        """

    def while_loop(self, test: Callable[[Arrays], Raw], step: Mapped, carry: Arrays) -> list[Raw]:
        """Return the carry after steps while the test of it, a scalar, is true."""

    def linear_solve(self, affine: Mapped, like: Arrays, solve: Callable[[Mapped, Arrays], Arrays]) -> list[Raw]:
        """Return the x with `affine(x) = 0`, whose derivative the library takes from that equation.

        Args:
            affine: a function of arrays like `like`, which returns such arrays.
            like: zeros.
            solve: solves `product(x) = b`, for the linear part of `affine` and for its transpose.
        """

    def gmres(self, product: Mapped, b: Arrays, tol: float, restart: int, maxiter: int) -> list[Raw]:
        """Return the x with `product(x) = b`, by GMRES; NaN where it is not found to `tol`, relative to `b`."""

    def mapped(self, function: Mapped, dims: Sequence[int | None], arrays: Arrays) -> Arrays:
        """Return the results of a function for all examples, which are along these dimensions, in results along 0."""

    def explained(self, message: str) -> AbstractContextManager[Any]:
        """Raise TypeError with this message in the context where Python asks for a value that is traced."""
