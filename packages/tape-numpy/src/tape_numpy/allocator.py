"""Whether glibc keeps freed memory for the next array (`TAPE_NUMPY_ALLOCATOR=keep`) or hands it back (`system`)."""

from __future__ import annotations


def configure() -> None:
    """Apply TAPE_NUMPY_ALLOCATOR."""
