"""Optimizers of a model that is divided among processes: all of them have the same settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tape_core import Variable
from tape_core.staging import outside
from tape_core.support import layouts

from tape_nn.naming import describe

_CURE = (
    "All processes are to make the same update: give each optimizer the same settings. Look for what depends "
    "on the rank, or on a configuration that only one process has. Attributes whose names have the word seed or rank "
    "may differ"
)
_OWN = re.compile(r"(^|[._])(seed|rank)s?($|_)")


def compare_settings(optimizer: Any, variables: Iterable[Variable]) -> None:
    """Compare the settings of an optimizer between the processes, if Variables that it meets are divided among them.

    Raises:
        RuntimeError: they differ, or another process does something else.
    """
    if not layouts.in_use:
        return
    array = next((x for x in [variable._array for variable in variables] if layouts.is_divided(x)), None)
    if array is None:
        return
    with outside():  # in a trace numbers have no values to compare
        settings = describe("optimizer", optimizer)
        if getattr(optimizer, "_schedule", None) is not None:
            settings["optimizer.learning_rate now"] = float(optimizer.learning_rate)
        kind = settings.pop("optimizer")
        shown = [f"{name.partition('.')[2]}={value!r}" for name, value in settings.items() if not _OWN.search(name)]
        layouts.compare(array, [f"the first update of {kind}", *sorted(shown)], _CURE)
