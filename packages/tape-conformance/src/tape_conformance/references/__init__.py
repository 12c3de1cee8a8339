"""Reference functions on NumPy arrays, a module for each chapter of ops.

Each module has a table `REFERENCES` by the name of the op; a function takes the op's own arguments. They are written
from the definitions, as loops where that is plainest: they need not be fast, only obviously right.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""A NumPy array."""

Axis: TypeAlias = int | tuple[int, ...] | None
"""One axis, several, or None for all."""

IndexKey: TypeAlias = Any
"""A key of `x[key]`: integers, slices, None, Ellipsis, NumPy arrays, or a tuple of them."""

PerAxis: TypeAlias = int | tuple[int, ...]
"""A number for each spatial axis, or one for all."""

Padding: TypeAlias = str | int | tuple[int | tuple[int, int], ...]
"""How an array is padded: "valid", "same", a number of zeros, or numbers or (before, after) pairs for each axis."""

PadWidth: TypeAlias = int | tuple[int, int] | tuple[tuple[int, int], ...]
"""The number of elements added before and after each axis, as for `numpy.pad`."""

DType: TypeAlias = np.dtype[Any] | None
"""A NumPy dtype, or None for the default."""
