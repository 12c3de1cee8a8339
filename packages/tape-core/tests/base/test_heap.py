"""What a process has in memory after large blocks, among which small ones lie, are freed."""

from __future__ import annotations

import platform

import pytest
from support import run_python

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc")

PROGRAM = """
import os
from tape_core.support import keep_freed_memory, map_large_blocks

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def freed():
    # Twice, since glibc keeps freed blocks of a size only after it has met one of that size.
    small, before = [], resident()
    for _ in range(2):
        large = []
        for _ in range(8):
            large.append(b"1" * (16 << 20))
            small.append(b"1" * (100 << 10))
        assert resident() - before > 100 << 20
        del large
    return resident() - before < 32 << 20

"""


def test_large_blocks_that_are_freed_are_the_systems_again() -> None:
    assert run_python("-c", PROGRAM + "print(map_large_blocks(), freed())").split() == ["True", "True"]


def test_without_that_they_stay_in_the_heap() -> None:
    assert run_python("-c", PROGRAM + "print(freed())").split() == ["False"]


def test_a_library_that_keeps_memory_does_not_undo_it() -> None:
    either = "print(map_large_blocks(), keep_freed_memory(), freed())"
    assert run_python("-c", PROGRAM + either).split() == ["True", "False", "True"]
    other = "print(keep_freed_memory(), map_large_blocks(), freed())"
    assert run_python("-c", PROGRAM + other).split() == ["True", "True", "True"]


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_MMAP_THRESHOLD_": "1073741824"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824"}],
    ids=["variable", "tunable"],
)
def test_a_threshold_of_the_users_own_counts(environment: dict[str, str]) -> None:
    found = run_python("-c", PROGRAM + "print(map_large_blocks(), freed())", environment=environment)
    assert found.split() == ["False", "False"]
