"""Lines for Python's `logging`, which a program that does not use it does not pay for."""

from __future__ import annotations

import sys
from collections.abc import Callable


def log(logger: str, level: int, line: Callable[[], str]) -> None:
    """Write a line to a logger, if it is to be seen there.

    Where nobody has imported `logging`, nobody can have asked for the line; importing it would take some milliseconds.

    Args:
        logger: its name, that of a package: `"tape_compile"`, say.
        level: 10 for what happens always, 20 for what is worth knowing; `logging.DEBUG` and `logging.INFO`.
        line: returns the text, which is not made for nobody.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return
    found = logging.getLogger(logger)
    if found.isEnabledFor(level):
        found.log(level, "%s", line())
