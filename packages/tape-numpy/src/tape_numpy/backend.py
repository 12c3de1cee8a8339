"""The NumPy backend: NumPy's own namespace, which follows the standard, plus kernels where it has a faster way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
from tape_core.backends import Backend
from tape_core.base import dtypes
from tape_core.base.dtypes import DType

from tape_numpy import allocator, linalg
from tape_numpy.kernels import KERNELS, RULES
from tape_numpy.special import special_kernels

# From 3.14 on, and without the GIL, a reference may exist that the count does not show.
_COUNTS_REFERENCES = (
    sys.implementation.name == "cpython"
    and sys.version_info < (3, 14)
    and getattr(sys, "_is_gil_enabled", lambda: True)()
)

try:  # asked in each compiled call: NumPy's function for it makes a dictionary
    from numpy._core._ufunc_config import _extobj_contextvar  # type: ignore[attr-defined]

    _state: Any = _extobj_contextvar.get
    _UNTOUCHED: Any = _state()
except (ImportError, AttributeError, LookupError):
    _state, _UNTOUCHED = bool, None


_STRETCHED = 4  # times the memory of an array that a copy of its layout may take
_SMALL = 1 << 12  # elements: bytes are compared in less time than it takes to call two functions


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
        self.kernels.update(special_kernels(self.xp))
        self.kernels.update(linalg.kernels(self.xp))
        self.scalar_types = frozenset(
            {np.float16, np.float32, np.float64, np.complex64, np.complex128, np.bool_, np.int32, np.int64}
        )
        self.narrow = frozenset({dtypes.bfloat16})
        self.array_class = np.ndarray if _COUNTS_REFERENCES else None
        allocator.configure()
        dtypes.DEFAULT_IS_SET.append(self._prepare)
        self._prepare()

    def _prepare(self) -> None:
        """Have bfloat16 ready where it is the default dtype: then kernels make arrays of it unasked."""
        with suppress(TypeError, ValueError):  # who computes is told
            if dtypes.get_default_dtype() is dtypes.bfloat16:
                self.raw_dtype(dtypes.bfloat16)

    def asarray(self, obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Any:
        """As `numpy.asarray`; a 0-d array comes as a scalar."""
        array = np.asarray(obj, dtype=dtype, copy=copy) if copy is not None else np.asarray(obj, dtype=dtype)
        if array.dtype.kind == "V" and self.dtype(array.dtype) is dtypes.bfloat16:
            from tape_numpy.bfloat16 import as_bfloat16

            return as_bfloat16(array)
        return array if array.shape else array[()]

    def foreign_dtype(self, dtype: DType) -> Any:
        """bfloat16, of ml_dtypes: from now on kernels are guarded, so that they compute with it in float32.

        Raises:
            TypeError: ml_dtypes is not installed.
        """
        if dtype is not dtypes.bfloat16:
            return super().foreign_dtype(dtype)
        try:
            from tape_numpy import bfloat16
        except ImportError as error:
            raise TypeError(
                "backend 'numpy' has no dtype bfloat16 without the package ml_dtypes: pip install ml_dtypes"
            ) from error
        if self.guard is None:
            self.guarded(bfloat16.guard)
        return bfloat16.DTYPE

    def dtype(self, raw: Any) -> DType:
        """As it is told; of the dtypes of ml_dtypes it is bfloat16 alone."""
        try:
            return self._dtypes[raw]
        except (KeyError, TypeError):
            kind: Any = raw if isinstance(raw, type) else getattr(raw, "type", None)
            if getattr(kind, "__module__", "") != "ml_dtypes":
                return super().dtype(raw)
            if kind.__name__ != "bfloat16":
                raise TypeError(
                    f"{kind.__name__} is not a dtype of backend 'numpy': of those of ml_dtypes it has bfloat16 alone"
                ) from None
            self.raw_dtype(dtypes.bfloat16)
            self._dtypes[np.dtype(kind)] = dtypes.bfloat16
            return dtypes.bfloat16

    def public(self, array: Any) -> Any:
        """An `ndarray`, also of a scalar; of bfloat16 one that computes in float32."""
        return np.asanyarray(array)

    def numpy(self, array: Any) -> Any:
        """The array itself."""
        return np.asarray(array)

    def format(self, array: Any) -> str:
        """As NumPy prints it; bfloat16 as float32."""
        return str(array.astype(np.float32) if array.dtype.kind == "V" else array)

    @property
    def compiler(self) -> Any:
        """Blocks that stay in the cache, divided among threads."""
        from tape_numpy.compiler import blocks

        return blocks

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

    @property
    def is_strict(self) -> bool:
        """As `np.errstate` says."""
        return _state() is not _UNTOUCHED and not {"raise", "call"}.isdisjoint(np.geterr().values())

    def memory(self, array: Any) -> tuple[Any, int]:
        """A view keeps what it is of."""
        while isinstance(getattr(array, "base", None), np.ndarray):
            array = array.base
        return id(array), array.nbytes

    def frozen(self, array: Any) -> Any:
        """Of the same strides, unless that takes much more memory; scalars, which nobody can change, as they are."""
        if isinstance(array, np.generic):  # as arrays of shape () their powers and shifts would be other ones
            return array
        if array.flags.forc or not array.size or type(array) is not np.ndarray:
            return np.array(array, copy=True, order="K", subok=True)
        low, high = np.lib.array_utils.byte_bounds(array)
        if high - low > _STRETCHED * array.nbytes:
            return array.copy(order="K")
        memory = np.empty(high - low, np.uint8)
        start = array.__array_interface__["data"][0] - low
        copy = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
        copy[...] = array
        return copy

    def is_as(self, array: Any, copy: Any) -> bool:
        """By the bytes of small ones."""
        if array.size <= _SMALL:
            return bool(array.tobytes() == copy.tobytes())
        return super().is_as(array, copy)

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

    def blocks(self, arrays: list[Any]) -> Iterable[list[Any]]:
        """Large arrays of one layout block by block."""
        first, *others = arrays
        if type(first) is not np.ndarray or first.size <= _UPDATE_BLOCK or not _alike(first, tuple(others)):
            return [arrays]
        flat = [a.reshape(-1) for a in arrays]
        return ([a[start : start + _UPDATE_BLOCK] for a in flat] for start in range(0, first.size, _UPDATE_BLOCK))

    # Large partials are evaluated in blocks, whose temporaries stay in the cache.

    def scale(self, g: Any, partial: Callable[..., Any], arguments: tuple[Any, ...], in_place: bool) -> Any:
        """As it is told; in blocks, where all arrays have the layout of `g`."""
        if not _alike(g, arguments):
            return super().scale(g, partial, arguments, in_place)
        out = g if in_place else np.empty_like(g)
        first = True
        for part_out, part_g, parts in _blocks(out, g, arguments):
            p = partial(self.xp, *parts)
            if first and any([p is part for part in parts]):
                return np.multiply(g, partial(self.xp, *arguments), out=out)  # nothing is computed: no need of blocks
            first = False
            np.multiply(part_g, p, out=part_out)
        return out

    def add_scaled(self, h: Any, g: Any, partial: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """As it is told; in blocks, where all arrays have the layout of `g`."""
        if not h.flags.c_contiguous or not _alike(g, arguments):
            super().add_scaled(h, g, partial, arguments)
            return
        # The operator computes in the memory of the temporary, and may swap the factors for that: the last bits of
        # complex products depend on their order.
        is_complex = h.dtype.kind == "c"
        for part_h, part_g, parts in _blocks(h, g, arguments):
            if is_complex:
                part_h += np.multiply(part_g, partial(self.xp, *parts))
            else:
                part_h += part_g * partial(self.xp, *parts)


_BLOCK = 1 << 15  # elements
_UPDATE_BLOCK = 1 << 17  # elements: an update calls a dozen functions for each block
_NUMBERS = frozenset({bool, int, float})


def _alike(g: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether all arguments are numbers or arrays of the layout and dtype of `g`."""
    if not g.flags.c_contiguous:
        return False
    for a in arguments:
        if type(a) not in _NUMBERS and not (
            type(a) is np.ndarray and a.shape == g.shape and a.dtype == g.dtype and a.flags.c_contiguous
        ):
            return False
    return True


def _blocks(out: Any, g: Any, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, Any, list[Any]]]:
    """The same block of each, as flat views; numbers as they are."""
    flat_out, flat_g = out.reshape(-1), g.reshape(-1)
    flat = [a if type(a) in _NUMBERS else a.reshape(-1) for a in arguments]
    for start in range(0, flat_g.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        yield flat_out[block], flat_g[block], [a if type(a) in _NUMBERS else a[block] for a in flat]
