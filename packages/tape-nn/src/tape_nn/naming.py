"""Variables by name, and names that are not known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from tape_core import Tensor, Variable, asarray

from tape_nn.module import Module


def named(variables: Any) -> list[tuple[str, Variable]]:
    """The Variables of a Module, or of a mapping from names."""
    if isinstance(variables, Module):
        return list(variables.named_variables())
    if isinstance(variables, Mapping):
        return list(variables.items())
    raise TypeError(
        f"variables must be a Module or a mapping from names to Variables; got {type(variables).__name__!r}"
    )


def like(value: Any, variable: Variable) -> Tensor:
    """A copy of a value as the Variable has its own: dtype, backend and device."""
    tensor: Tensor = asarray(value, dtype=variable.dtype, backend=variable.backend, device=variable.device, copy=True)
    return tensor


def unknown_names(who: str, unknown: Collection[str], known: Collection[str]) -> str:
    """A message about names that nothing has, with those that may have been meant."""
    parts = []
    for name in unknown:
        close = get_close_matches(name, known, n=1)
        parts.append(repr(name) + (f" (did you mean {close[0]!r}?)" if close else ""))
    return f"{who}: unknown names: {', '.join(parts)}. There are {', '.join(map(repr, known)) or 'none'}"
