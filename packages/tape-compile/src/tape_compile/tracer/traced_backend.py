"""The tracing backend: it wraps another backend, and its arrays record what is computed with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from tape_core import Tensor
from tape_core.backends import DEFAULT_KERNELS, Backend
from tape_core.staging import TracingError, value_of
from tape_core.support import contextmanager
from tape_core.typing import ArrayLike, DTypeLike, Raw, RawDType

from tape_compile.tracer.kernels import TracedKernels
from tape_compile.tracer.rules import Rules
from tape_compile.tracer.traced_array import TracedArray, TracedNumber, current_trace, is_array, trace_of

if TYPE_CHECKING:
    from tape_compile.tracer.trace import Trace

RESIDUALS = "_with_residuals"
"""The end of the name of a kernel that also returns what rules need."""


class Traced(Backend):
    """A backend of traced arrays over those of `base`; :func:`tracing_backend` makes one for each backend."""

    base: Backend

    def __init__(self, base: Backend) -> None:
        super().__init__(base.name, base.namespace, kernels={}, version=base.version)
        self.base = base
        self.kernels = base.kernels
        self.library = base.library
        self.narrow = base.narrow
        self.height = base.height + 1
        self.keeps = base.keeps
        self.xp = TracedKernels(self)

    def __repr__(self) -> str:
        return f"<traces of {self.base!r}>"

    @property
    def rules(self) -> Any:
        """The rules of the ops and of `base`, made traceable."""
        return Rules(self)

    @rules.setter
    def rules(self, rules: Any) -> None:
        """Ignore the assignment of `Backend.__init__`: `base` has the rules."""

    def rules_of(self, name: str) -> Mapping[str, Any]:
        """Return the rules of an op that the backend brings, by the name of the input."""
        return self.base.rules.get(name, {})

    def kernel(self, name: str) -> Any:
        """Return a kernel, or a function of the library, on raw arrays."""
        return getattr(self.base.xp, name)

    def promotes(self, name: str) -> bool:
        """Ask the array library."""
        return self.base.promotes(name)

    @property
    def usual_dtype(self) -> Any:
        """Ask the array library."""
        return self.base.usual_dtype

    def raw_dtype(self, dtype: DTypeLike) -> Any:
        """Ask the array library."""
        return self.base.raw_dtype(dtype)

    def dtype(self, raw: RawDType) -> Any:
        """Ask the array library."""
        return self.base.dtype(raw)

    def devices(self) -> tuple[str, ...]:
        """Ask the array library."""
        return self.base.devices()

    @property
    def default_device(self) -> str:
        """Ask the array library."""
        return self.base.default_device

    def find_device(self, device: str) -> str:
        """Ask the array library."""
        return self.base.find_device(device)

    def raw_device(self, device: str | None) -> Any:
        """Ask the array library."""
        return self.base.raw_device(device)

    def device(self, array: Raw) -> str:
        """Return the device of the value."""
        return self.base.device(value_of(array))

    def asarray(
        self, obj: ArrayLike, *, dtype: RawDType = None, device: str | None = None, copy: bool | None = None
    ) -> Any:
        """Return a traced array: of a traced one or number an instruction makes it, anything else is a constant."""
        if type(obj) is TracedNumber:
            options = {"dtype": dtype, "device": device}
            return obj.trace.call("asarray", self.base.asarray, (obj,), options, self)
        if type(obj) is not TracedArray:
            raw = self.base.asarray(obj, dtype=dtype, device=device, copy=copy)
            return self._constant(raw) if is_array(raw) else raw  # libraries leave some objects as they are
        if (dtype is None or dtype == obj.dtype) and device is None:
            # Programs never write into values (SSA), so a copy needs no instruction, but an object of its own. Others
            # may write into arguments, after the call.
            if copy and obj.made_in.base_of(obj) is not None:
                return obj.trace.copied(obj)
            return TracedArray(obj.value, obj.ref, obj.made_in, self) if copy else obj
        return obj.trace.call("asarray", self.base.asarray, (obj,), {"dtype": dtype, "device": device}, self)

    @staticmethod
    def is_known(array: Raw) -> bool:
        """Return it for the value."""
        known: bool = array.backend.base.is_known(array.value) if type(array) is TracedArray else True
        return known

    def halves(self, array: Raw) -> bool:  # type: ignore[override]
        """Ask the array library."""
        return self.base.halves(value_of(array))

    def public(self, array: Raw) -> Any:
        """Return the array that users see; a traced one is returned itself."""
        return array if type(array) is TracedArray else self.base.public(array)

    def numpy(self, array: Raw) -> Any:
        """Convert a constant to NumPy; a traced array raises a TracingError."""
        if type(array) is TracedArray:
            return array._concrete("the value of a traced Tensor here (numpy(), item())", self.base.numpy)
        return self.base.numpy(array)

    def format(self, array: Raw) -> str:
        """Return the text of an array for debuggers and messages, which show no value of a traced one."""
        if type(array) is TracedArray and not array.is_known:
            trace = array.made_in
            if trace.failed is not None:
                return self.base.format(array.value)
            return "<another in each call>" if trace.open else "<of a call that is over>"
        return self.base.format(value_of(array))

    def tell(self, array: Raw) -> None:
        """Raise a TracingError for a traced array, whose text would have values of this run alone."""
        if type(array) is TracedArray:
            array._concrete("the value of a traced Tensor here (its text)", lambda value: None)

    def user_error(self, error: Exception) -> tuple[type[Exception], str] | None:
        """Translate an error of the array library; a TracingError is in the user's terms already."""
        return None if isinstance(error, TracingError) else self.base.user_error(error)

    def quiet(self) -> AbstractContextManager[Any]:
        """Enter a context without the library's warnings of numbers."""
        return self.base.quiet()

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Enter a context for a backward sweep: quiet, and instructions belong to the line that asks for it."""
        trace = current_trace()
        with self.quiet(), nullcontext() if trace is None else trace.attributed_to_caller():
            yield

    def between(self, function: Callable[..., Any], *arrays: Raw) -> Callable[..., Any]:
        """Return what the library calls."""
        return self.base.between(function, *arrays)

    def formulas(self, example: Raw) -> Mapping[str, Callable[..., Raw]]:
        """Return the library's, of which each call is one instruction."""
        found = self.base.formulas(value_of(example))
        return {name: partial(_formula, self, name, formula) for name, formula in found.items()}

    def nbytes(self, array: Raw) -> int:
        """Return the bytes of the value."""
        return self.base.nbytes(value_of(array))

    def memory(self, array: Raw) -> tuple[Any, int]:
        """Return the memory of the value, and its size."""
        return self.base.memory(value_of(array))

    def shared(self, value: Tensor) -> Any:
        """Return the array of an outer Tensor as a constant."""
        if (trace := current_trace()) is not None:
            trace.on_outer_tensor(value)
        return self._constant(value._array)

    def _constant(self, value: Raw) -> Any:
        trace = current_trace()
        return value if trace is None else trace.constant(value, self)


def _formula(backend: Traced, name: str, formula: Callable[..., Any], *args: Any) -> Any:
    trace = trace_of(args)
    return formula(*args) if trace is None else trace.call(name, formula, args, {}, backend)


class TracedByName(Traced):
    """A tracing backend for compilers that know calls by their names: those of another library can do the same."""

    def __init__(self, base: Backend) -> None:
        super().__init__(base)
        self.kernels = {name: kernel for name, kernel in base.kernels.items() if not name.endswith(RESIDUALS)}

    def rules_of(self, name: str) -> Mapping[str, Any]:
        """Return no rule of the backend's own, which calls functions of its library."""
        return {}

    def formulas(self, example: Raw) -> Mapping[str, Callable[..., Raw]]:
        """Return none: they are no ops."""
        return {}

    def halves(self, array: Raw) -> bool:  # type: ignore[override]
        """Return False: such compilers take longer for more calls than these save."""
        return False

    def kernel(self, name: str) -> Any:
        """Return a kernel; one with residuals is the op's own, for only its rules know what is in them."""
        if name.endswith(RESIDUALS) and name in DEFAULT_KERNELS:
            return partial(DEFAULT_KERNELS[name], self.base.xp)
        return super().kernel(name)


def tracing_backend(backend: Backend, trace: Trace | None = None) -> Traced:
    """Return the backend whose arrays are those of `backend`, traced; there is one for each, and kind of trace.

    Args:
        backend: the backend, which may be a tracing one of the other kind.
        trace: the trace; by default the one that is running.
    """
    trace = current_trace() if trace is None else trace
    return backend.wrapped(Traced if trace is None or not trace.by_name else TracedByName)
