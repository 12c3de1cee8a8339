"""The tracing backend: another backend whose arrays record what is computed with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tape_core import Tensor
from tape_core.backends import Backend
from tape_core.staging import TracingError, value_of
from tape_core.support import contextmanager

from tape_compile.tracer.kernels import TracedKernels
from tape_compile.tracer.rules import Rules
from tape_compile.tracer.traced_array import TracedArray, TracedNumber, current_trace, is_array


class Traced(Backend):
    """A backend whose arrays are those of `base` and note what is done with them; there is one on each (`traced`)."""

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
        """Those of the ops and of `base`, so that they may be traced."""
        return Rules(self)

    @rules.setter
    def rules(self, rules: Any) -> None:
        """`base` has them."""

    def raw_dtype(self, dtype: Any) -> Any:
        """As in the array library."""
        return self.base.raw_dtype(dtype)

    def dtype(self, raw: Any) -> Any:
        """As in the array library."""
        return self.base.dtype(raw)

    def devices(self) -> tuple[str, ...]:
        """As in the array library."""
        return self.base.devices()

    @property
    def default_device(self) -> str:
        """As in the array library."""
        return self.base.default_device

    def raw_device(self, device: str | None) -> Any:
        """As in the array library."""
        return self.base.raw_device(device)

    def device(self, array: Any) -> str:
        """Where the value is."""
        return self.base.device(value_of(array))

    def asarray(self, obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Any:
        """A traced array stays one; anything else is a constant."""
        if type(obj) is TracedNumber:
            options = {"dtype": dtype, "device": device}
            return obj.trace.call("asarray", self.base.asarray, (obj,), options, self)
        if type(obj) is not TracedArray:
            raw = self.base.asarray(obj, dtype=dtype, device=device, copy=copy)
            return self._constant(raw) if is_array(raw) else raw  # libraries leave some things that are no number
        if (dtype is None or dtype == obj.dtype) and device is None:
            # What is computed never writes into an array, so a copy is the same value by a name of its own.
            return TracedArray(obj.value, obj.ref, obj.made_in, self) if copy else obj
        return obj.trace.call("asarray", self.base.asarray, (obj,), {"dtype": dtype, "device": device}, self)

    def public(self, array: Any) -> Any:
        """A constant as an array; what is traced as it is."""
        return array if type(array) is TracedArray else self.base.public(array)

    def numpy(self, array: Any) -> Any:
        """Of a constant; of what is traced it is an error."""
        if type(array) is TracedArray:
            return array._concrete("the value of a traced Tensor here (numpy(), item())", self.base.numpy)
        return self.base.numpy(array)

    def format(self, array: Any) -> str:
        """Of what is another one in each call that it is so: for debuggers and messages."""
        if type(array) is TracedArray and not array.is_known:
            trace = array.made_in
            return self.base.format(array.value) if trace.failed is not None else "<another in each call>"
        return self.base.format(value_of(array))

    def tell(self, array: Any) -> None:
        """Of a constant; of what is traced it is an error."""
        if type(array) is TracedArray:
            array._concrete("the value of a traced Tensor here (its text)", lambda value: None)

    def user_error(self, error: Exception) -> tuple[type[Exception], str] | None:
        """As the array library; that a value decides is an error of its own."""
        return None if isinstance(error, TracingError) else self.base.user_error(error)

    def quiet(self) -> AbstractContextManager[Any]:
        """As the array library."""
        return self.base.quiet()

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """`quiet`, and what is noted comes from the line that asks for the derivative."""
        trace = current_trace()
        with self.quiet(), nullcontext() if trace is None else trace.attributed_to_caller():
            yield

    def nbytes(self, array: Any) -> int:
        """Of the value."""
        return self.base.nbytes(value_of(array))

    def memory(self, array: Any) -> tuple[Any, int]:
        """Of the value."""
        return self.base.memory(value_of(array))

    def shared(self, value: Tensor) -> Any:
        """A value of `base` as a constant."""
        if (trace := current_trace()) is not None:
            trace.on_outer_tensor(value)
        return self._constant(value._array)

    def _constant(self, value: Any) -> Any:
        trace = current_trace()
        return value if trace is None else trace.constant(value, self)


def tracing_backend(backend: Backend) -> Traced:
    """Return the backend whose arrays are those of `backend`, traced; there is one for each."""
    return backend.wrapped(Traced)
