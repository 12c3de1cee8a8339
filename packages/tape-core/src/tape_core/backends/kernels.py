"""The kernel namespace: every op by name, on raw arrays.

It is the `xp` that a derivative rule receives when nothing else records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tape_core.backends.axes import Normalising
from tape_core.base.dtypes import DTYPES
from tape_core.base.lookup import OPS
from tape_core.base.mistakes import meant

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

DEFAULT_KERNELS: dict[str, Callable[..., Any]] = {}
"""For each op outside the standard, how to compute it with the ops of the standard: `kernel(xp, ...)`."""

COMPLEX_KERNELS: dict[str, Callable[..., Any]] = {}
"""For each op that treats complex numbers in another way than real ones, how to compute it: `kernel(xp, ...)`."""


def REFUSED(xp: Any, *args: Any, **kwargs: Any) -> Any:
    """The complex kernel of ops of real numbers alone: an order of complex ones, say, is not defined."""
    raise TypeError("it takes real numbers, not complex ones")


WHOLE: set[Callable[..., Any]] = set()
"""Default kernels of thousands of calls: compiled code has them in one piece, or compiling would take seconds."""

EXTENSIONS: dict[str, str] = {}
"""For each op of an extension of the standard, which one: the library has `fftn` as `fft.fftn`."""


# Python's operators of arrays, and the functions of the standard that they are.
OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
SIGNS = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}


_OWN = frozenset(
    {"_backend", "raw_device", "put", "is_known", "extremes", "halves", "branch"}
)  # attributes that are not resolved by name


class Kernels:
    """A namespace that resolves each name once.

    A kernel is the backend's own, else the op's default kernel, else the array library's function.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.raw_device = backend.raw_device
        self.put = backend.put
        self.is_known = backend.is_known
        self.extremes = backend.extremes
        self.halves = backend.halves
        self.branch = backend.branch

    # Python calls this for attributes that are not there: a name that was resolved once is an ordinary attribute.
    def __getattr__(self, name: str) -> Any:
        era = self._backend.library.era
        found = self._resolve(name)
        # Another thread may have set a guard, and called `forget`, meanwhile: what was found without it must not stay.
        if self._backend.library.era == era:
            setattr(self, name, found)
        return found

    def forget(self) -> None:
        """Resolve all names again, as when the guard around kernels changes."""
        for name in self.__dict__.keys() - _OWN:
            self.__dict__.pop(name, None)

    def _resolve(self, name: str) -> Any:
        backend = self._backend
        found: Any
        if name in backend.kernels:
            found = backend.kernels[name]
        elif name in DEFAULT_KERNELS:
            # Before the library: torch.softmax is not the op softmax.
            found = partial(DEFAULT_KERNELS[name], self)
        elif name in EXTENSIONS:
            # Before the main namespace: the op `fft` is `fft.fft`, where `fft` is the extension.
            found = _library_function(backend.namespace, f"{EXTENSIONS[name]}.{name}")
        else:
            found = _library_function(backend.namespace, name)
        if found is None and name in DTYPES:
            found = backend.raw_dtype(name)
        if found is None and name != "newaxis":
            raise MissingKernelError(name, backend)
        # Default kernels are made of other kernels, which see to their own axes.
        given = name in backend.kernels or name not in DEFAULT_KERNELS
        if given and "axes" not in backend.library.checks and name in OPS and (axis := OPS[name].axis) is not None:
            found = Normalising(found, axis)
        if backend.guard is not None:
            found = backend.guard(name, found)
        if backend.tells_complex and (own := COMPLEX_KERNELS.get(name.removesuffix(_RESIDUALS))) is not None:
            return _telling(name, found, partial(own, self), backend)
        return found


_RESIDUALS = "_with_residuals"


def _telling(name: str, kernel: Callable[..., Any], own: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """Return a kernel that calls `own` in place of `kernel` where an argument is complex; see `Backend.guarded`."""
    inner = getattr(kernel, "chosen", None)
    of_complex = partial(_without_residuals, own) if name.endswith(_RESIDUALS) else own

    def is_complex(value: Any) -> bool:
        if type(value) in (tuple, list):
            return any([is_complex(part) for part in value])
        dtype = getattr(value, "dtype", None)
        if dtype is None or type(value) is type:
            return type(value) is complex
        return backend.dtype(dtype).kind == "complex floating"

    def called(*args: Any, **kwargs: Any) -> Any:
        for value in args:
            if is_complex(value):
                return of_complex(*args, **kwargs)
        return kernel(*args, **kwargs)

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        if any([is_complex(value) for value in args]):
            return of_complex
        return kernel if inner is None else inner(args, kwargs)

    called.__name__ = name
    called.__wrapped__ = kernel  # type: ignore[attr-defined]
    called.unguarded = getattr(kernel, "unguarded", kernel)  # type: ignore[attr-defined]
    called.chosen = chosen  # type: ignore[attr-defined]
    return called


def _without_residuals(own: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
    return own(*args, **kwargs), ()


class MissingKernelError(AttributeError):
    """A backend has no kernel of this name."""

    # An AttributeError is often caught, by `hasattr`: similar names are searched for only when the message is shown.
    def __init__(self, name: str, backend: Backend) -> None:
        super().__init__(name)
        self._kernel, self._backend = name, backend

    def __str__(self) -> str:

        name, backend = self._kernel, self._backend
        return (
            f"backend {backend.name!r} has no kernel {name!r}: neither its own kernels, nor the op's default, "
            f"nor {getattr(backend.namespace, '__name__', backend.namespace)!s} has one"
            + meant(name, {*OPS, *backend.kernels})
        )

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


def _library_function(namespace: Any, path: str) -> Any:
    try:
        return attrgetter(path)(namespace)
    except AttributeError:
        return None
