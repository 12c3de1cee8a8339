"""Arguments that a compiled function may overwrite: nothing can be done with them afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from tape_core.tracing import NO_SLOTS


class Donated:
    """What a Tensor that was donated has in place of an array and a backend: any use of it is an error."""

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def _refuse(self, *args: Any) -> NoReturn:
        raise RuntimeError(self._message)

    __getattr__ = __array__ = __float__ = __int__ = __index__ = __complex__ = __bool__ = __len__ = _refuse


def give_away(name: str, leaves: list[Any], donated: Iterable[int]) -> None:
    """Have Tensors among the arguments of a function hold nothing any more."""
    for tensor in [leaves[k] for k in donated]:
        gone: Any = Donated(f"this Tensor, of shape {tensor.shape}, was donated to {name}: use what that returned")
        tensor._array, tensor._slots, tensor.backend = gone, NO_SLOTS, gone
