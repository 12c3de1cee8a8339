"""Layouts: a new value of a Variable is divided among devices as the former one, as far as a backend sees to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tape_core.typing import Raw

Settle = Callable[[Raw, Raw], Raw]

in_use = False
"""Whether there is such a backend: nothing is asked before."""

_settles: list[Settle] = []


def keep_layouts(settle: Settle) -> None:
    """Have a function called wherever Variables get new values.

    Args:
        settle: called with a new raw value of a Variable, of any backend, or of a host number, and the former one;
            returns the new one in the layout of the former, or itself.
    """
    global in_use
    if settle not in _settles:
        _settles.append(settle)
    in_use = True


def settled(arrays: Iterable[Raw], former: Iterable[Raw]) -> list[Raw]:
    """Return new values in the layouts of the former ones."""
    found = list(arrays)
    for settle in _settles:
        found = list(map(settle, found, former))
    return found
