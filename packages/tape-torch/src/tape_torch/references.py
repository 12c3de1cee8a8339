"""Who else has a tensor: whether its memory may be written to, now or for a later value."""

from __future__ import annotations

import sys
from typing import Any, Final
from weakref import getweakrefcount

import torch
from tape_core.support import COUNTS_REFERENCES, give_back_memory_of_zeros

from tape_torch.divided import is_divided
from tape_torch.thresholds import ZEROS_GIVEN_BACK_MIN_BYTES

COUNTS: Final = COUNTS_REFERENCES and hasattr(torch.Tensor, "_use_count") and hasattr(torch._C, "_storage_Use_Count")
"""Whether reference counts tell if anybody else holds a tensor. PyTorch's own counts are private functions, which may
disappear."""


def is_exclusive(array: torch.Tensor, references: int) -> bool:
    """Compare three reference counts: Python's of the object, PyTorch's of the tensor, and that of the storage."""
    if (
        not COUNTS
        or type(array) is not torch.Tensor
        # The caller's, plus this frame's argument and getrefcount's.
        or sys.getrefcount(array) > references + 2
        or array._use_count() != 1  # type: ignore[attr-defined]
        or not array.is_contiguous()  # an expanded tensor has one place for several elements
    ):
        return False
    # Memory that NumPy owns is not resizable.
    return _storage_counts(array) == _ALONE and array.untyped_storage().resizable()


def _storage_counts(array: torch.Tensor) -> tuple[int, int]:
    """Return PyTorch's count of references to a storage, and Python's to the object that stands for it.

    Who has asked for that object has the same one, which PyTorch's count does not tell.
    """
    storage = array.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage)


_ALONE: Final = _storage_counts(torch.empty(1, device="cpu")) if COUNTS else (0, 0)
"""The counts of a storage that one tensor has; versions of PyTorch differ."""


def has_spares(example: Any) -> bool:
    """Return whether such an array is on the CPU: allocators of accelerators keep what is freed themselves."""
    part = example._local_tensor if is_divided(example) else example
    return type(part) is torch.Tensor and part.device.type == "cpu"


def give_back_zeros(array: Any) -> None:
    """Have a large tensor of zeros on the CPU take no memory until it is written to, if the system is Linux."""
    part = array._local_tensor if is_divided(array) else array
    nbytes = part.numel() * part.element_size()
    if nbytes >= ZEROS_GIVEN_BACK_MIN_BYTES and has_spares(part) and part.is_contiguous():
        storage = part.untyped_storage()
        if not storage.is_shared():
            give_back_memory_of_zeros(part.data_ptr(), nbytes)


def spare_memory(kept: list[Any], shape: tuple[int, ...], dtype: Any) -> torch.Tensor | None:
    """Take a tensor out of a list, and return its memory, or that of a DTensor's part; None if it cannot be used.

    It cannot if anybody may see it: by a reference of Python's or PyTorch's own, or a weak one, by a view, or from
    another process; nor if an accelerator may still be reading it.
    """
    try:
        array = kept.pop()
    except IndexError:  # another thread has it
        return None
    names = 1
    if is_divided(array):
        # This name, and the argument of the call.
        if sys.getrefcount(array) > 2 or array._use_count() != 1 or getweakrefcount(array):
            return None
        part, names = array._local_tensor, 2
    else:
        part = array
        del array
    if not is_exclusive(part, names) or getweakrefcount(part) or part.device.type != "cpu":
        return None
    if part.dtype is not dtype or tuple(part.shape) != shape or part.requires_grad or part.is_inference():
        return None
    storage = part.untyped_storage()
    if storage.nbytes() != part.numel() * part.element_size() or storage.is_shared():
        return None
    if torch.cuda.is_initialized() and part.is_pinned():  # type: ignore[no-untyped-call]
        return None
    return part  # type: ignore[no-any-return]
