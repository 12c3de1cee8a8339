"""The NumPy backend: NumPy's own namespace, which follows the standard, and kernels where there is a faster way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tape_core import DType
from tape_core.backends import Backend
from tape_core.support import COUNTS_REFERENCES, dtypes
from tape_core.typing import ArrayLike, Raw, RawDType

from tape_numpy import allocator, linalg
from tape_numpy.kernels import KERNELS, RULES
from tape_numpy.random import NumPyRandom
from tape_numpy.special import special_kernels
from tape_numpy.thresholds import COMPARE_BYTES_MAX_ELEMENTS, PARTIAL_BLOCK, STRIDED_COPY_MAX_RATIO, UPDATE_BLOCK

if TYPE_CHECKING:
    from tape_numpy.compiler_support.support import NumPySupport

# Every compiled call asks whether the user has called np.seterr or np.errstate. NumPy keeps the settings in an object
# of a context variable, which is the default one as long as nobody has; np.geterr makes a dictionary each time.
try:
    from numpy._core._ufunc_config import _extobj_contextvar  # type: ignore[attr-defined]

    _error_settings: Callable[[], object] = _extobj_contextvar.get
    _DEFAULT_ERROR_SETTINGS: object = _error_settings()
except (ImportError, AttributeError, LookupError):
    # A private name of NumPy, which may go: then `is_strict` always asks np.geterr.
    _error_settings, _DEFAULT_ERROR_SETTINGS = bool, None

Arguments: TypeAlias = tuple[Raw, ...]
"""The arguments of a partial derivative: raw arrays and Python numbers."""


class NumPyBackend(Backend):
    """NumPy on the CPU. Arrays of shape () are kept as NumPy scalars, which compute several times faster."""

    def __init__(self) -> None:
        super().__init__(
            "numpy",
            np,
            array_types=("numpy:ndarray", "numpy:generic"),
            kernels=KERNELS,
            rules=RULES,
            version=np.__version__,
        )
        self.random = NumPyRandom(self)
        self.kernels.update(special_kernels(self.xp))
        self.kernels.update(linalg.kernels(self.xp))
        self.scalar_types = frozenset(
            {np.float16, np.float32, np.float64, np.complex64, np.complex128, np.bool_, np.int32, np.int64}
        )
        self.narrow = frozenset({dtypes.bfloat16})
        self.checks = frozenset({"axes", "indices"})
        self._has_float16 = False
        self.tells_complex = False  # until a complex dtype is met: see `meet`
        self._unmet = "eFD"  # characters of dtypes that a program has not used so far, and that matter
        self.array_class = np.ndarray if COUNTS_REFERENCES else None
        allocator.configure()
        dtypes.DEFAULT_IS_SET.append(self._prepare)
        self._prepare()

    def _prepare(self) -> None:
        """Guard the kernels if bfloat16 is the default dtype: then creation kernels make arrays of it unasked."""
        with suppress(TypeError, ValueError):  # without ml_dtypes; the first computation raises, too
            if dtypes.get_default_dtype() is dtypes.bfloat16:
                self.raw_dtype(dtypes.bfloat16)

    def asarray(
        self, obj: ArrayLike, *, dtype: RawDType = None, device: str | None = None, copy: bool | None = None
    ) -> Raw:
        """Convert by `numpy.asarray`; return an array of shape () as a NumPy scalar."""
        array = np.asarray(obj, dtype=dtype, copy=copy) if copy is not None else np.asarray(obj, dtype=dtype)
        if array.dtype.kind == "V" and self.dtype(array.dtype) is dtypes.bfloat16:  # ml_dtypes' types are void to NumPy
            from tape_numpy.bfloat16 import as_bfloat16

            return as_bfloat16(array)
        if array.dtype.char in self._unmet:
            self.dtype(array.dtype)
        return array if array.shape else array[()]

    @property
    def usual_dtype(self) -> Any:
        """float32: NumPy makes it only where it should, of int16 with float16 apart, while it is the default dtype."""
        return None if self._has_float16 or dtypes.get_default_dtype() is not dtypes.float32 else FLOAT32

    def meet(self, dtype: DType) -> None:
        """Look at all results from now on if it is float16, see `usual_dtype`; if it is complex, at arguments."""
        if dtype is dtypes.float16 and not self._has_float16:
            self._has_float16 = True
            self._unmet = self._unmet.replace("e", "")
            self.look_again()
        if dtype.kind == "complex floating" and not self.tells_complex:
            self.tells_complex = True
            self._unmet = self._unmet.replace("FD", "")
            self.resolve_again()

    def foreign_dtype(self, dtype: DType) -> Any:
        """Return bfloat16 of ml_dtypes. From now on kernels are guarded, so that they compute with it in float32.

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

    def dtype(self, raw: RawDType) -> DType:
        """Return Tape's dtype for NumPy's, or for bfloat16 of ml_dtypes.

        Raises:
            TypeError: Tape has no such dtype.
        """
        try:
            return self._dtypes[raw]
        except (KeyError, TypeError):
            kind = raw if isinstance(raw, type) else getattr(raw, "type", None)
            if getattr(kind, "__module__", "") != "ml_dtypes":
                return super().dtype(raw)
            assert kind is not None
            if kind.__name__ != "bfloat16":
                raise TypeError(
                    f"{kind.__name__} is not a dtype of backend 'numpy': of those of ml_dtypes it has bfloat16 alone"
                ) from None
            self.raw_dtype(dtypes.bfloat16)
            self._dtypes[np.dtype(kind)] = dtypes.bfloat16
            return dtypes.bfloat16

    def public(self, array: Raw) -> Raw:
        """Return an `ndarray`, also for a scalar; bfloat16 as the subclass that computes in float32."""
        return np.asanyarray(array)

    def numpy(self, array: Raw) -> Raw:
        """Return the array itself."""
        return np.asarray(array)

    def format(self, array: Raw) -> str:
        """Format as NumPy does; bfloat16 as float32."""
        return str(array.astype(np.float32) if array.dtype.kind == "V" else array)

    @property
    def compiler_support(self) -> NumPySupport:
        """Lowered kernels, calls with `out=`, and blocks that stay in the cache, divided among threads."""
        from tape_numpy.compiler_support.support import SUPPORT

        return SUPPORT

    def devices(self) -> tuple[str, ...]:
        """Return NumPy's only device."""
        return ("cpu",)

    @property
    def default_device(self) -> str:
        """NumPy's only device."""
        return "cpu"

    def device(self, array: Raw) -> str:
        """Return NumPy's only device."""
        return "cpu"

    def quiet(self) -> AbstractContextManager[object]:
        """Return a context without floating-point warnings, for a backward pass."""
        return np.errstate(all="ignore")

    def repeating(self) -> AbstractContextManager[object]:
        """Return a context without warnings that do not depend on the dtype, as that of an overflow does."""
        return np.errstate(divide="ignore", invalid="ignore")

    @property
    def is_strict(self) -> bool:
        """True if `np.errstate` or `np.seterr` asks for an error or a call at a floating-point exception."""
        if _error_settings() is _DEFAULT_ERROR_SETTINGS:
            return False
        return not {"raise", "call"}.isdisjoint(np.geterr().values())

    def memory(self, array: Raw) -> tuple[int, int]:
        """Return the id and the size in bytes of the array that owns the memory."""
        while isinstance(getattr(array, "base", None), np.ndarray):
            array = array.base
        return id(array), array.nbytes

    def frozen(self, array: Raw) -> Raw:
        """Copy an array with its strides, unless the copy would take much more memory. Scalars are immutable already.

        The strides are kept since the bits of sums depend on the layout.
        """
        if isinstance(array, np.generic):  # not as an array of shape (): powers and shifts promote differently
            return array
        if array.flags.forc or not array.size or type(array) is not np.ndarray:
            return np.array(array, copy=True, order="K", subok=True)
        low, high = np.lib.array_utils.byte_bounds(array)
        if high - low > STRIDED_COPY_MAX_RATIO * array.nbytes:
            return array.copy(order="K")
        # Memory for all that lies between the first and the last element, and a view of it with the same strides.
        memory = np.empty(high - low, np.uint8)
        start = array.__array_interface__["data"][0] - low
        copy = np.ndarray(array.shape, array.dtype, memory, start, array.strides)
        copy[...] = array
        return copy

    def is_as(self, array: Raw, copy: Raw) -> bool:
        """Return whether an array equals a copy of it; compares the bytes of small ones."""
        if array.size <= COMPARE_BYTES_MAX_ELEMENTS:
            return bool(array.tobytes() == copy.tobytes())
        return super().is_as(array, copy)

    def is_exclusive(self, array: Raw, references: int) -> bool:
        """Return whether nobody but the caller, with this many references, holds the array or a view of its memory.

        It goes by CPython's reference count, as NumPy itself does to reuse a temporary.
        """
        # The caller's references, and two more: the argument of this function and that of getrefcount.
        return (
            COUNTS_REFERENCES
            and type(array) is np.ndarray
            and array.base is None
            and array.flags.writeable
            and sys.getrefcount(array) <= references + 2
        )

    def blocks(self, arrays: list[Raw]) -> Iterable[list[Raw]]:
        """Return the flat blocks of large arrays of one layout, as views; any other arrays as one block, in a list."""
        first, *others = arrays
        size = UPDATE_BLOCK
        if type(first) is not np.ndarray or first.size <= size or not _have_one_layout(first, tuple(others)):
            return [arrays]
        flat = [a.reshape(-1) for a in arrays]
        return ([a[start : start + size] for a in flat] for start in range(0, first.size, size))

    # The next two evaluate the partial derivatives of elementwise ops block by block, so that temporaries stay in the
    # cache.

    def scale(self, g: Raw, partial: Callable[..., Raw], arguments: Arguments, in_place: bool) -> Raw:
        """Return `g * partial(xp, *arguments)`, with `in_place` in the memory of `g`."""
        if not _have_one_layout(g, arguments):
            return super().scale(g, partial, arguments, in_place)
        out = g if in_place else np.empty_like(g)
        first = True
        for part_out, part_g, parts in _blocks(out, g, arguments):
            p = partial(self.xp, *parts)
            if first and any([p is part for part in parts]):
                # The partial is one of the arguments, as for x * y: nothing is computed that blocks would speed up.
                return np.multiply(g, partial(self.xp, *arguments), out=out)
            first = False
            np.multiply(part_g, p, out=part_out)
        return out

    def add_scaled(self, h: Raw, g: Raw, partial: Callable[..., Raw], arguments: Arguments) -> None:
        """Add `g * partial(xp, *arguments)` to `h`, in place."""
        if not h.flags.c_contiguous or not _have_one_layout(g, arguments):
            super().add_scaled(h, g, partial, arguments)
            return
        # The operator reuses the memory of the temporary on its right, and swaps the factors for that. The last bits of
        # complex products depend on the order of the factors; the function keeps it.
        is_complex = h.dtype.kind == "c"
        for part_h, part_g, parts in _blocks(h, g, arguments):
            if is_complex:
                part_h += np.multiply(part_g, partial(self.xp, *parts))
            else:
                part_h += part_g * partial(self.xp, *parts)


FLOAT32 = np.dtype(np.float32)
_NUMBERS = frozenset({bool, int, float})


def _have_one_layout(g: Raw, arguments: Arguments) -> bool:
    """Return whether all arguments are numbers, or contiguous arrays like `g`, of its shape and dtype."""
    if not g.flags.c_contiguous:
        return False
    for a in arguments:
        if type(a) not in _NUMBERS and not (
            type(a) is np.ndarray and a.shape == g.shape and a.dtype == g.dtype and a.flags.c_contiguous
        ):
            return False
    return True


def _blocks(out: Raw, g: Raw, arguments: Arguments) -> Iterator[tuple[Raw, Raw, list[Raw]]]:
    """Yield the same block of each array, as flat views; numbers unchanged."""
    # All are C-contiguous (`_have_one_layout`): of others reshape would copy, and what is written to a copy be lost.
    flat_out, flat_g = out.reshape(-1), g.reshape(-1)
    flat = [a if type(a) in _NUMBERS else a.reshape(-1) for a in arguments]
    for start in range(0, flat_g.size, PARTIAL_BLOCK):
        block = slice(start, start + PARTIAL_BLOCK)
        yield flat_out[block], flat_g[block], [a if type(a) in _NUMBERS else a[block] for a in flat]
