"""The names of types that annotations in Tape use.

A backend may wrap any array library, so no class stands for "an array" here and a type checker cannot look into one.
The aliases of `Any` below say which kind of value is meant: an array as the library knows it, one that a rule
computes with, a cotangent, and so on. Everything that has a class or a protocol of its own is annotated with that.

When it runs, this module imports nothing of Tape, so that every other module can import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend
__all__ = [
    "Array",
    "ArrayLike",
    "Axis",
    "BackendLike",
    "BatchInput",
    "Cotangent",
    "DTypeKind",
    "DTypeLike",
    "Fallback",
    "HostArray",
    "IndexKey",
    "Kernel",
    "Namespace",
    "PyTree",
    "Raw",
    "RawDType",
    "RawDevice",
    "Record",
    "Records",
    "Residuals",
    "Retrace",
    "Scalar",
    "Shape",
    "ShapeLike",
    "Slot",
    "Slots",
    "SparseMatrix",
    "Tangent",
]

# -- arrays

Raw: TypeAlias = Any
"""An array of the wrapped library, such as a `numpy.ndarray` or a `torch.Tensor`."""

Array: TypeAlias = Any
"""What rules and kernels compute with: a raw array, a Tensor where the sweep itself is recorded, or a Python scalar.

Which one follows from the namespace that the function was given: its functions take the one and return the same.
"""

ArrayLike: TypeAlias = Any
"""What a public function takes: a Tensor, a Variable, a raw array of an installed backend, or a Python scalar."""

HostArray: TypeAlias = Any
"""A `numpy.ndarray`, in the memory of the host; NumPy need not be installed with Tape."""

SparseMatrix: TypeAlias = Any
"""A sparse matrix of SciPy, mostly a `scipy.sparse.csr_array`; SciPy need not be installed with Tape."""

Scalar: TypeAlias = bool | int | float | complex
"""A Python number. It stays one until the kernel, so that it takes the dtype of the arrays beside it."""

Cotangent: TypeAlias = Any
"""The gradient that flows back to a value: an array (raw or a Tensor), `IndexedSlices`, or None for none."""

Tangent: TypeAlias = Any
"""The derivative of a value along a direction, in forward mode: an array of the value's shape, or None for zero."""

Residuals: TypeAlias = Any
"""What the kernel of an op with `residual_kernel=` left for its rules: raw arrays, alone or in a tuple."""

BatchInput: TypeAlias = Any
"""An input of a batch rule: a `BatchedArray`, a Python scalar, or None for an optional one that was left out."""


class Namespace(Protocol):
    """The functions that a rule or a kernel computes with: the `xp` of the Array API standard.

    Any function of the standard, and any op by its name. It is the backend's kernels (on raw arrays) or Tape's own
    ops (on Tensors); the function that is given it need not know which.
    """

    def __getattr__(self, name: str, /) -> Any: ...


Kernel: TypeAlias = Callable[..., Any]
"""A function of raw arrays that does the work of an op."""

BackendLike: TypeAlias = "str | Backend | None"
"""A backend's name or object; None for the selected one."""

# -- shapes, dtypes, devices, indices

Shape: TypeAlias = tuple[int, ...]
"""The sizes of the dimensions of an array."""

ShapeLike: TypeAlias = int | tuple[int, ...]
"""A shape as users write it; an integer is one dimension."""

Axis: TypeAlias = int | tuple[int, ...] | None
"""One axis, several, or None for all of them; negative ones count from the end."""

DTypeLike: TypeAlias = Any
"""A `DType`, its name, the library's own object for it, a Python type, or None for the default."""

DTypeKind: TypeAlias = Any
"""What `isdtype` compares with: a kind of the standard such as `"real floating"`, a dtype, or a tuple of these."""

RawDType: TypeAlias = Any
"""The library's own object for a dtype, such as `numpy.dtype("float32")` or `torch.float32`."""

RawDevice: TypeAlias = Any
"""The library's own object for a device, such as a `torch.device`; None for the default."""

IndexKey: TypeAlias = Any
"""What may stand in `x[key]`: integers, slices, None, `...`, arrays of integers or booleans, or a tuple of these."""

# -- the tape

Slot: TypeAlias = Any
"""Where one recorder keeps a value: for a tape an integer, its place in the list of records; for an accumulator of
forward mode the tangent, a Tensor; for the detector of sparsity an `IndexSets`. Only the recorder looks into it."""

Slots: TypeAlias = dict[int, Slot]
"""Where the recorders that know a value keep it: the key of the recorder to the slot."""

Record: TypeAlias = tuple[Any, ...]
"""One call of an op, as a tape notes it; `tape_core.engine.record` has the layout and the accessors."""

Records: TypeAlias = list[Record | None]
"""The calls that a tape has noted, in order; None where a sweep has freed one."""

# -- structures

PyTree: TypeAlias = Any
"""A nested structure of tuples, lists, dicts and registered classes, whose leaves are arrays or other values."""

# -- options of `tape_core.function`

Retrace: TypeAlias = Literal["warn", "allow", "error"]
"""What a compiled function does about many traces."""

Fallback: TypeAlias = bool | Literal["silent"]
"""Whether a function that cannot be compiled runs as Python code, with a warning or without."""
