"""Conversion to torch tensors: of other tensors, NumPy's and other arrays, buffers and nested lists."""

from __future__ import annotations

import sys
from functools import cache
from struct import calcsize
from types import ModuleType
from typing import Any

import torch
import torch.utils.dlpack
from tape_core.support import warn_user

from tape_torch.inside import refuse_inside
from tape_torch.thresholds import PIN_MIN_ELEMENTS

_DTYPE_OF_FORMAT = {  # format characters of the buffer protocol, see the module struct
    "?": torch.bool,
    "b": torch.int8,
    "h": torch.int16,
    "i": torch.int32,
    # C's long has 32 bits on Windows.
    "l": torch.int64 if calcsize("l") == 8 else torch.int32,
    "q": torch.int64,
    "B": torch.uint8,
    "H": torch.uint16,
    "I": torch.uint32,
    "Q": torch.uint64,
    "e": torch.float16,
    "f": torch.float32,
    "d": torch.float64,
    "Zf": torch.complex64,
    "Zd": torch.complex128,
}


def as_torch_tensor(
    obj: object, dtype: torch.dtype | None, device: torch.device | None, default_device: torch.device, copy: bool | None
) -> torch.Tensor:
    """Convert `obj` to a tensor.

    Args:
        obj: a tensor, an array, anything with DLPack or a buffer, or nested lists of numbers.
        dtype: a `torch.dtype`; None keeps that of arrays, and is float64 for Python floats.
        device: a `torch.device`; None leaves tensors where they are, and puts the rest on `default_device`.
        copy: True always copies, False raises an error where a copy is needed, None copies if needed.

    Raises:
        ValueError: `copy` is False, and a copy is needed.
        TypeError: `obj` does not convert to a tensor.
    """
    tensor, shared = _tensor_of(obj, dtype)
    own = isinstance(obj, torch.Tensor)
    place = device if device is not None else tensor.device if own else default_device
    if place.type == "cuda" and tensor.device.type == "cpu":
        # The copy to the GPU goes on beside computations if it comes from pinned memory. Only arrays of our own are
        # pinned: another tensor's owner might write to it while it is being copied.
        if not own and tensor.numel() >= PIN_MIN_ELEMENTS:
            tensor = tensor.pin_memory()
        wanted = dtype or tensor.dtype
        found = _upload(tensor, place, wanted) if tensor.is_pinned() else tensor.to(place, wanted)
    else:
        found = tensor.to(place, dtype or tensor.dtype)
    if found is tensor and copy and shared:
        return tensor.clone(memory_format=torch.contiguous_format)
    if copy is False and (found is not tensor or not shared):
        raise ValueError("copy=False, but a copy is needed for another dtype or device, or of what is no array")
    return found


def _upload(tensor: torch.Tensor, place: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Copy a tensor in pinned memory to a CUDA device, while the device computes what it was given before."""
    # A graph that is captured must have the copy in its own stream.
    if torch.cuda.is_current_stream_capturing():
        return tensor.to(place, dtype, non_blocking=True)
    current = torch.cuda.current_stream(place)
    uploads = _uploads(current.device.index)
    with torch.cuda.stream(uploads):
        found = tensor.to(place, dtype, non_blocking=True)
    # What is computed from now on waits for the copy. The memory belongs to the stream of uploads, which must not have
    # it back before the other one is done with it.
    current.wait_stream(uploads)
    found.record_stream(current)
    return found


@cache
def _uploads(device: int) -> torch.cuda.Stream:
    """Return the stream in which arrays are copied to a device: in that of the computation they would wait for it."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _tensor_of(obj: Any, dtype: torch.dtype | None) -> tuple[torch.Tensor, bool]:
    """Return a tensor of the values, and whether it shares their memory."""
    if isinstance(obj, torch.Tensor):
        return detached(obj), True
    # Not imported: PyTorch does without NumPy, and who has one of its arrays has imported it.
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, numpy.ndarray | numpy.generic):
        return _from_numpy(numpy, obj)
    if isinstance(obj, bool | int | float | complex | list | tuple):
        return _from_nested(numpy, obj, dtype), False
    if hasattr(obj, "__dlpack__"):
        return torch.utils.dlpack.from_dlpack(obj), True
    # array.array shows no `__buffer__` to Python before 3.12, but has a typecode.
    if isinstance(obj, memoryview | bytes | bytearray) or hasattr(obj, "__buffer__") or hasattr(obj, "typecode"):
        return _from_buffer(memoryview(obj))
    try:
        return torch.asarray(obj), True
    except RuntimeError as error:
        raise TypeError(str(error)) from error


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same memory that torch.autograd does not record; warn if that cuts its graph."""
    if not tensor.requires_grad:
        return tensor
    what = f"a torch tensor of shape {tuple(tensor.shape)} that requires grad becomes a Tensor"
    refuse_inside(what)
    if not tensor.is_leaf:
        warn_user(
            f"{what}: it was computed under torch.autograd, which gets no gradient back from what Tape makes of it; "
            f"let tape_torch.as_torch(function) compute it there, or give its detach() where a constant is meant"
        )
    return tensor.detach()


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor's elements, in order."""
    line = tensor.detach().to("cpu").contiguous().view(-1)
    # A single element has the stride of the array that it was cut from, and PyTorch views it as no other dtype.
    data: memoryview = line.as_strided(line.shape, (1,)).view(torch.uint8).numpy().data
    return data


def _from_numpy(numpy: ModuleType, obj: Any) -> tuple[torch.Tensor, bool]:
    array = numpy.asarray(obj)
    # PyTorch has neither negative strides nor swapped bytes, would write to read-only arrays, and crashes on unaligned
    # elements. Such arrays are copied.
    flags = array.flags
    usable = flags.writeable and flags.aligned and array.dtype.isnative and all(s >= 0 for s in array.strides)
    if not usable:
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    # PyTorch knows NumPy's own dtypes only; 16-bit integers carry the bits over.
    if array.dtype.name == "bfloat16":  # of ml_dtypes
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16), usable and array is obj
    return torch.from_numpy(array), usable and array is obj


def _from_buffer(view: memoryview) -> tuple[torch.Tensor, bool]:
    dtype = _DTYPE_OF_FORMAT.get(str(view.format).lstrip("@="))
    if dtype is None:
        raise TypeError(f"a buffer of format {view.format!r} is of no dtype that PyTorch has")
    shape = tuple(view.shape or ())
    # torch.frombuffer refuses a buffer of no bytes.
    if 0 in shape:
        return torch.empty(shape, dtype=dtype), False
    shared = not view.readonly and view.c_contiguous
    # Of read-only memory PyTorch makes a tensor with a warning, and that could be written to: it gets a copy.
    flat = torch.frombuffer(view if shared else bytearray(view.tobytes()), dtype=dtype)
    return flat.reshape(shape), shared


_WRAPPED = (torch.uint8, torch.uint16, torch.uint32)


def _from_nested(numpy: ModuleType | None, obj: Any, dtype: torch.dtype | None) -> torch.Tensor:
    leaf = obj
    while isinstance(leaf, list | tuple) and leaf:
        leaf = leaf[0]
    if isinstance(leaf, torch.Tensor):
        return torch.stack([detached(x) if isinstance(x, torch.Tensor) else _from_nested(numpy, x, None) for x in obj])
    if numpy is not None and hasattr(leaf, "dtype"):
        return _from_numpy(numpy, numpy.asarray(obj))[0]
    try:
        tensor = torch.tensor(obj, dtype=dtype)
    except (RuntimeError, ValueError) as error:
        if dtype is None or dtype.is_floating_point or dtype.is_complex or "verflow" not in str(error):
            raise
        raise OverflowError(str(error)) from error
    # PyTorch wraps negative numbers alone.
    if dtype in _WRAPPED and tensor.numel() and torch.tensor(obj, dtype=torch.int64).min() < 0:
        raise OverflowError(f"{dtype} has no negative numbers")
    if dtype is None and (tensor.is_floating_point() or tensor.is_complex()):
        # Exact first, since PyTorch's default dtype need not be Tape's: the numbers would be rounded twice.
        return torch.tensor(obj, dtype=torch.complex128 if tensor.is_complex() else torch.float64)
    return tensor
