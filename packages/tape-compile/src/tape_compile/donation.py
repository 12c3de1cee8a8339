"""Donated arguments, which a compiled function may overwrite: afterwards any use of them is an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from tape_core.tracing import NO_SLOTS


class Donated:
    """The array and the backend of a Tensor that was donated: any use of them raises a RuntimeError."""

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def _refuse(self, *args: object) -> NoReturn:
        raise RuntimeError(self._message)

    __getattr__ = __array__ = __float__ = __int__ = __index__ = __complex__ = __bool__ = __len__ = _refuse


def invalidate_donated(name: str, leaves: list[Any], donated: Iterable[int]) -> None:
    """Take the arrays out of donated Tensors, so that the compiled code may hold the only reference."""
    for tensor in [leaves[k] for k in donated]:
        gone: Any = Donated(f"this Tensor, of shape {tensor.shape}, was donated to {name}: use what that returned")
        tensor._array, tensor._slots, tensor.backend = gone, NO_SLOTS, gone
