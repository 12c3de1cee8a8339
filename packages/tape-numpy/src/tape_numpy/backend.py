"""The NumPy backend: NumPy's own namespace, which follows the standard, plus kernels where it has a faster way."""

from __future__ import annotations

import sys
from collections.abc import Callable
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

    def scale(self, g: Any, partial: Callable[..., Any], arguments: tuple[Any, ...], in_place: bool) -> Any:
        """In blocks, whose temporaries stay in the cache, where all arrays have the layout of `g`."""
        if not g.flags.c_contiguous or not all([type(a) in _NUMBERS or _is_like(a, g) for a in arguments]):
            return super().scale(g, partial, arguments, in_place)
        xp = self.xp
        flat_arguments = [a if type(a) in _NUMBERS else a.reshape(-1) for a in arguments]
        out = g if in_place else np.empty_like(g)
        flat, flat_out = g.reshape(-1), out.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            parts = [a if type(a) in _NUMBERS else a[block] for a in flat_arguments]
            p = partial(xp, *parts)
            if not start and any([p is part for part in parts]):
                return np.multiply(g, partial(xp, *arguments), out=out)  # nothing is computed: no need of blocks
            np.multiply(flat[block], p, out=flat_out[block])
        return out


_BLOCK = 1 << 15  # elements
_NUMBERS = frozenset({bool, int, float})


def _is_like(array: Any, g: Any) -> bool:
    return type(array) is np.ndarray and array.shape == g.shape and array.dtype == g.dtype and array.flags.c_contiguous
