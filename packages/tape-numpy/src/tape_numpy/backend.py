"""The NumPy backend: NumPy's own namespace, which follows the standard, plus kernels where it has a faster way."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from tape_core.backends import Backend

from tape_numpy import allocator
from tape_numpy.kernels import KERNELS, RULES

# From 3.14 on, and without the GIL, a reference may exist that the count does not show.
_COUNTS_REFERENCES = (
    sys.implementation.name == "cpython"
    and sys.version_info < (3, 14)
    and getattr(sys, "_is_gil_enabled", lambda: True)()
)


class NumPyBackend(Backend):
    """NumPy on the CPU. 0-d values are kept as NumPy scalars, which compute several times faster."""

    def __init__(self) -> None:
        super().__init__(
            "numpy",
            np,
            array_types=("numpy:ndarray", "numpy:generic"),
            kernels=KERNELS,
            rules=RULES,
            version=np.__version__,
        )
        self.scalar_types = frozenset(
            {np.float16, np.float32, np.float64, np.complex64, np.complex128, np.bool_, np.int32, np.int64}
        )
        self.array_class = np.ndarray if _COUNTS_REFERENCES else None
        allocator.configure()

    def asarray(self, obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Any:
        """As `numpy.asarray`; a 0-d array comes as a scalar."""
        array = np.asarray(obj, dtype=dtype, copy=copy) if copy is not None else np.asarray(obj, dtype=dtype)
        return array if array.shape else array[()]

    def public(self, array: Any) -> Any:
        """An `ndarray`, also of a scalar."""
        return np.asarray(array)

    def numpy(self, array: Any) -> Any:
        """The array itself."""
        return np.asarray(array)

    def devices(self) -> tuple[str, ...]:
        """NumPy has one."""
        return ("cpu",)

    @property
    def default_device(self) -> str:
        """The only one."""
        return "cpu"

    def device(self, array: Any) -> str:
        """The only one."""
        return "cpu"

    def quiet(self) -> AbstractContextManager[Any]:
        """No floating-point warnings from a backward pass."""
        return np.errstate(all="ignore")

    def is_exclusive(self, array: Any, references: int) -> bool:
        """By CPython's reference count, as NumPy itself decides whether to reuse a temporary."""
        # The caller's, plus this frame's argument and getrefcount's.
        return (
            _COUNTS_REFERENCES
            and type(array) is np.ndarray
            and array.base is None
            and array.flags.writeable
            and sys.getrefcount(array) <= references + 2
        )
