"""The library that differentiates the function that runs: torch.autograd inside of `call`, a tape inside of `as_torch`.

A value that one library computes from the other's in there would lose its gradient silently, so that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

from tape_core.support import ACTIVE, contextmanager, setting

Side = Literal["call", "as_torch"]

SIDE: ContextVar[Side | None] = ContextVar("tape_torch.side", default=None)

_WHY = {
    "call": (
        "a function that tape_torch.call runs computes with torch tensors: give it every Tensor as an argument, and "
        "wrap what Tape computes inside it in tape_torch.as_torch"
    ),
    "as_torch": (
        "a function that tape_torch.as_torch wraps gets every tensor that requires grad as an argument; of others no "
        "gradient comes back: give it as an argument, or use its detach() where it is meant as a constant"
    ),
}


@contextmanager
def inside(side: Side | None) -> Iterator[None]:
    """Context while `fn` of `call` or `as_torch` runs; the tapes around it record it as one op, or not at all."""
    with setting(SIDE, side), setting(ACTIVE, ()):
        yield


def refuse_inside(what: str) -> None:
    """Raise an error if code inside of `call` or `as_torch` would lose a gradient.

    Raises:
        TypeError: a function of `call` or `as_torch` runs.
    """
    side = SIDE.get()
    if side is not None:
        raise TypeError(f"{what}: {_WHY[side]}")
