"""Keep freed memory for the next array, in place of handing it back to the system page by page.

With glibc's own settings a temporary of some megabytes is returned to the system when it is freed and faulted in
again, 4 kB at a time, when the next one is made: array arithmetic then takes two to three times as long. Loading the
NumPy backend therefore sets glibc's thresholds, for the whole process. What is kept is at most 1 GiB.

`TAPE_NUMPY_ALLOCATOR=system` leaves the allocator alone; `keep`, the default, does the above. Elsewhere than on
Linux with glibc neither changes anything.
"""

from __future__ import annotations

import os
import sys

# <malloc.h>
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def configure() -> bool:
    """Apply `TAPE_NUMPY_ALLOCATOR`; whether glibc accepted it.

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
    settings = ((_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, 1 << 30), (_M_TOP_PAD, 64 << 20))
    accepted = [libc.mallopt(option, value) == 1 for option, value in settings]
    return all(accepted)
