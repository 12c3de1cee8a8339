"""Optimizers of a model that is divided among processes: all of them have the same settings."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from tape_core import Variable
from tape_core.staging import current, outside
from tape_core.support import layouts

from tape_nn.naming import describe, is_own

_CURE = (
    "All processes are to make the same update: give each optimizer the same settings. Look for what depends "
    "on the rank, or on a configuration that only one process has. Attributes whose names have the word seed, rank or "
    "device may differ"
)


def compare_settings(optimizer: Any, variables: Iterable[Variable]) -> None:
    """Compare the settings of an optimizer between the processes, if Variables that it meets are divided among them.

    Raises:
        RuntimeError: they differ, or another process does something else.
    """
    if not layouts.are_compared:
        return

    def told() -> tuple[list[str], str]:
        settings = describe("optimizer", optimizer)
        if getattr(optimizer, "_schedule", None) is not None:
            settings["optimizer.learning_rate now"] = float(optimizer.learning_rate)
        if updates := getattr(optimizer, "iterations", 0):
            settings["optimizer.updates before"] = updates
        kind = settings.pop("optimizer")
        shown = [f"{name.partition('.')[2]}={value!r}" for name, value in settings.items() if not is_own(name)]
        return [f"the first update of {kind}", *sorted(shown)], _CURE

    with outside():  # in a trace numbers have no values to compare
        if layouts.compare(variables, told):
            for one in (optimizer, *getattr(optimizer, "groups", ())):
                _compared[id(one)] = weakref.ref(one, partial(_forget, id(one)))


_compared: Final[dict[int, weakref.ref[Any]]] = {}
"""The optimizers, and groups of theirs, whose settings were compared, by their ids."""


def _forget(key: int, _: object) -> None:
    _compared.pop(key, None)


class Compared:
    """Has settings that were compared, and are set anew later, compared with the next gradients.

    It is the base class of what has them.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if layouts.are_compared and id(self) in _compared and not name.startswith("_"):
            self._tell(name, value)
        super().__setattr__(name, value)

    def _tell(self, name: str, value: Any) -> None:
        if current() is not None or is_own(name) or not (_is_plain(value) or callable(value)):
            return
        before = getattr(self, name, None)
        if not (before == value if _is_plain(before) and _is_plain(value) else before is value):
            shown = repr(value) if _is_plain(value) or dataclasses.is_dataclass(value) else type(value).__name__
            layouts.note(f"{type(self).__name__}.{name} = {shown}")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)
