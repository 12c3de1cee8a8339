"""The heap of the C library: what is freed is kept there for the next array, or given back to the system.

On Linux, glibc keeps a freed block of some megabytes in the heap once it has met one of that size. There it is found in
no time, while memory from the system is faulted in page by page. But arrays begin at multiples of 64 bytes, for which
glibc asks its heap for some bytes more than an array has: where an array was, another one of the same size does not fit
in, and small objects come to lie between. A process whose large arrays come and go then grows to twice what it needs.

`keep_freed_memory` has one thing, for a process of arrays alone; `map_large_blocks` the other, for one that shares a
machine's memory with others. Both are for the whole process. Elsewhere than on Linux with glibc nothing changes.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tape_core.base.thresholds import GIVE_BACK_MIN_BYTES

# The options of mallopt, from glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3

KEPT_BYTES: Final = 1 << 30  # bytes: freed memory at the top of the heap that is not returned to the system
MMAP_FROM_BYTES: Final = 1 << 30  # bytes: larger blocks have pages of their own, which are returned when they are freed
TOP_PAD_BYTES: Final = 64 << 20  # bytes asked of the system beyond what is needed

MAPPED_FROM_BYTES: Final = 8 << 20  # bytes: blocks that have pages of their own, where large ones are mapped
TOP_KEPT_BYTES: Final = 32 << 20  # bytes: freed memory at the top of the heap that is kept, where large ones are mapped
USUAL_PAD_BYTES: Final = 128 << 10  # glibc's own

_mapped: list[bool] = []  # whether large blocks are mapped, once that was asked for


def keep_freed_memory() -> bool:
    """Have up to 1 GiB of freed memory kept for the next array; return whether glibc has accepted the settings.

    It has not where large blocks are mapped: they stay so.
    """
    if any(_mapped):
        return False
    # Both thresholds: setting one alone freezes the other at 128 kB, which is worse than neither. The pad keeps
    # the heaps of worker threads from being unmapped.
    return _set({_M_MMAP_THRESHOLD: MMAP_FROM_BYTES, _M_TRIM_THRESHOLD: KEPT_BYTES, _M_TOP_PAD: TOP_PAD_BYTES})


def map_large_blocks() -> bool:
    """Have blocks of 8 MB and more in pages of their own, which the system gets when they are freed.

    Return whether glibc has accepted that; where the environment sets glibc's own threshold, it is left as it is.
    """
    if not _mapped:
        is_set = "MALLOC_MMAP_THRESHOLD_" in os.environ
        is_set |= "glibc.malloc.mmap_threshold" in os.environ.get("GLIBC_TUNABLES", "")
        wanted = {
            _M_MMAP_THRESHOLD: MAPPED_FROM_BYTES,
            _M_TRIM_THRESHOLD: TOP_KEPT_BYTES,
            _M_TOP_PAD: USUAL_PAD_BYTES,
        }
        _mapped.append(not is_set and _set(wanted))
    return _mapped[0]


def _set(options: dict[int, int]) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes

        libc = ctypes.CDLL(None)
    except (ImportError, OSError):
        return False
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return all([libc.mallopt(option, value) == 1 for option, value in options.items()])


def give_back(nbytes: int, least: int = GIVE_BACK_MIN_BYTES) -> None:
    """Give memory that is free back to the system, if it may be so many bytes, and the C library can."""
    if nbytes >= least and (trim := _malloc_trim()):
        trim(0)


def give_back_memory_of_zeros(address: int, nbytes: int) -> None:
    """Give the memory of zeros back to a system that has each page there again, as zeros, once it is looked at.

    Args:
        address: of memory that the C library has allocated, and that has zeros.
        nbytes: how long it is.
    """
    if (advise := _madvise()) is None:
        return
    page = mmap.PAGESIZE
    first, last = -(-address // page) * page, (address + nbytes) // page * page
    if last > first:
        advise(first, last - first, mmap.MADV_DONTNEED)


@cache
def _madvise() -> Callable[[int, int, int], Any] | None:
    """Return the system's function; only of Linux the memory is zeros afterwards."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Any = ctypes.CDLL(None).madvise
        found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except (ImportError, OSError, AttributeError):
        return None
    return found  # type: ignore[no-any-return]


@cache
def _malloc_trim() -> Callable[[int], Any] | None:
    """Return the function of glibc that gives freed memory back to the system; None with another C library."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return None
    return found
