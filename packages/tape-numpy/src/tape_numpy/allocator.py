"""Settings of glibc's allocator, so that freed memory is kept for the next array.

By default glibc returns a temporary of some megabytes to the system when it is freed, and the next one is faulted in
again, 4 kB at a time: array arithmetic then takes two to three times as long. Loading the NumPy backend therefore sets
glibc's thresholds, for the whole process. At most 1 GiB of freed memory is kept.

`TAPE_NUMPY_ALLOCATOR=system` leaves the allocator alone; `keep`, the default, does the above, unless the process is one
of several whose large arrays have pages of their own. Neither changes anything on systems other than Linux with glibc.
"""

from __future__ import annotations

import os

from tape_core.support import keep_freed_memory


def configure() -> bool:
    """Apply `TAPE_NUMPY_ALLOCATOR`; return whether glibc has accepted the settings.

    Raises:
        ValueError: the variable is neither `keep` nor `system`.
    """
    choice = os.environ.get("TAPE_NUMPY_ALLOCATOR") or "keep"
    if choice not in ("keep", "system"):
        raise ValueError(f"TAPE_NUMPY_ALLOCATOR must be 'keep' or 'system', got {choice!r}")
    return choice == "keep" and keep_freed_memory()
