"""First values for Variables.

An initializer is called as `initializer(shape, rng=..., dtype=..., backend=..., device=...)` and
returns a Tensor. Layers take one of these, its name, or any callable of this form. The random ones
draw from `rng`, a :class:`tape_core.Generator`, and give the same numbers on every backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import tape_core as tc

Initializer: TypeAlias = Callable[..., tc.Tensor]


def glorot_uniform(shape: tuple[int, ...], *, rng: tc.Generator, **where: Any) -> tc.Tensor:
    """Uniform in ±sqrt(6 / (inputs + outputs)): keeps the spread of values from layer to layer.

    >>> import tape_core as tc
    >>> from tape_nn.initializers import glorot_uniform
    >>> w = glorot_uniform((100, 50), rng=tc.default_rng(0))
    >>> w.shape, bool(tc.max(tc.abs(w)) <= 0.2)  # sqrt(6 / 150)
    ((100, 50), True)
    """
    limit = math.sqrt(6 / (shape[0] + shape[-1]))
    kernel: tc.Tensor = rng.uniform(shape, low=-limit, high=limit, **where)
    return kernel


def zeros(shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
    """All zeros."""
    return tc.zeros(shape, **where)


def ones(shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
    """All ones."""
    return tc.ones(shape, **where)


def constant(value: float) -> Initializer:
    """An initializer that fills with `value`."""

    def fill(shape: tuple[int, ...], *, rng: tc.Generator | None = None, **where: Any) -> tc.Tensor:
        return tc.full(shape, value, **where)

    return fill


_BY_NAME: dict[str, Initializer] = {
    "glorot_uniform": glorot_uniform,
    "zeros": zeros,
    "ones": ones,
}


def get(initializer: Initializer | str) -> Initializer:
    """The initializer of this name; a callable is passed through."""
    if callable(initializer):
        return initializer
    try:
        return _BY_NAME[initializer]
    except (KeyError, TypeError):
        raise ValueError(
            f"unknown initializer {initializer!r}; pass a callable or one of {', '.join(_BY_NAME)}"
        ) from None
