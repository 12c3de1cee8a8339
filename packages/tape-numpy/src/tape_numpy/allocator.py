"""Settings of glibc's allocator, so that freed memory is kept for the next array.

By default glibc returns a temporary of some megabytes to the system when it is freed, and the next one is faulted in
again, 4 kB at a time: array arithmetic then takes two to three times as long. Loading the NumPy backend therefore sets
glibc's thresholds, for the whole process. At most 1 GiB of freed memory is kept.

`TAPE_NUMPY_ALLOCATOR=system` leaves the allocator alone; `keep`, the default, does the above. Neither changes anything
on systems other than Linux with glibc.
"""

from __future__ import annotations

import os
import sys
from typing import Final

# The options of mallopt, from glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3

KEPT_BYTES: Final = 1 << 30  # bytes: freed memory at the top of the heap that is not returned to the system
MMAP_FROM_BYTES: Final = 1 << 30  # bytes: larger blocks have pages of their own, which are returned when they are freed
TOP_PAD_BYTES: Final = 64 << 20  # bytes asked of the system beyond what is needed


def configure() -> bool:
    """Apply `TAPE_NUMPY_ALLOCATOR`; return whether glibc has accepted the settings.

    Raises:
        ValueError: the variable is neither `keep` nor `system`.
    """
    choice = os.environ.get("TAPE_NUMPY_ALLOCATOR") or "keep"
    if choice not in ("keep", "system"):
        raise ValueError(f"TAPE_NUMPY_ALLOCATOR must be 'keep' or 'system', got {choice!r}")
    if choice == "system" or not sys.platform.startswith("linux"):
        return False
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    # Both thresholds: setting one alone freezes the other at 128 kB, which is worse than neither. The pad keeps
    # the heaps of worker threads from being unmapped.
    settings = (
        (_M_MMAP_THRESHOLD, MMAP_FROM_BYTES),
        (_M_TRIM_THRESHOLD, KEPT_BYTES),
        (_M_TOP_PAD, TOP_PAD_BYTES),
    )
    accepted = [libc.mallopt(option, value) == 1 for option, value in settings]
    return all(accepted)
