"""Whether Python's counts of references tell who else has an object."""

from __future__ import annotations

import sys
from typing import Final

COUNTS_REFERENCES: Final = (
    sys.implementation.name == "cpython"
    and sys.version_info < (3, 14)
    and getattr(sys, "_is_gil_enabled", lambda: True)()
)
"""From Python 3.14 on, and without the GIL, references exist that the count does not show: a local variable may lend
its value to the stack without counting. Then no object is ever taken to be nobody else's."""
