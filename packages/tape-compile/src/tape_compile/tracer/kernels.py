"""Kernels on traced arrays: each call runs the real kernel and appends an instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tape_core.backends import DEFAULT_KERNELS, Kernels

from tape_compile.tracer.traced_array import NO_KWARGS, PLAIN, TracedArray, current_trace, trace_of

if TYPE_CHECKING:
    from tape_compile.tracer.traced_backend import Traced

_SHAPED_BY_VALUES = frozenset({"nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"})
VALUE_FREE = frozenset({"arange_beside", "empty_like", "full_like", "ones_like", "zeros_beside", "zeros_like"})
"""Kernels that look only at the shape, dtype and device of their first argument."""
MAYBE_SHAPED_BY_VALUES = _SHAPED_BY_VALUES | {"getitem", "repeat"}
SPECIAL_CASED = MAYBE_SHAPED_BY_VALUES | VALUE_FREE
"""Kernels that must go through `Trace.call`, which treats them specially."""


class TracedKernels(Kernels):
    """The namespace for traced arrays: every op by name, and the library's functions that rules may use."""

    _backend: Traced

    def _resolve(self, name: str) -> Any:
        backend = self._backend
        whole = backend.kernel(name)
        if not callable(whole) or isinstance(whole, type):
            return whole

        if getattr(DEFAULT_KERNELS.get(name), "is_effect", False):
            return partial(_effect, name, whole, backend)

        # Axes are counted from the start once, here, and not in each run.
        normal_call = getattr(whole, "normal_call", None)
        if normal_call is not None:
            whole = whole.kernel
        chosen = getattr(whole, "chosen", None)
        # `getitem` is quick below for keys of plain values only, which cannot be masks.
        quick = name == "getitem" or name not in SPECIAL_CASED
        now = current_trace

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if normal_call is not None:
                args, kwargs = normal_call(args, kwargs)
            function = whole if chosen is None else chosen(args, kwargs)
            trace = now()
            x = args[0] if args else None
            if type(x) is not TracedArray or x.made_in is not trace:
                trace = trace_of(args) or (trace_of(kwargs.values()) if kwargs else None)
                if trace is None:
                    running = now()
                    if running is None or running.stand_ins is None:
                        return function(*args, **kwargs)
                    return running.stand_ins.evaluate(function, args, kwargs)
            elif quick and not kwargs and trace.stand_ins is None:
                # The common cases of `Trace.call` written out: traced arrays of this trace and plain values.
                a = x.ref
                if len(args) == 1:
                    return trace.record_result(name, function, (a,), NO_KWARGS, (a.id,), function(x.value), backend)
                if len(args) == 2:
                    y = args[1]
                    kind = type(y)
                    if kind in PLAIN or (kind is tuple and PLAIN.issuperset(map(type, y))):
                        return trace.record_result(
                            name, function, (a, y), NO_KWARGS, (a.id,), function(x.value, y), backend
                        )
                    if kind is TracedArray and y.made_in is trace and name != "getitem":
                        b, out = y.ref, function(x.value, y.value)
                        return trace.record_result(name, function, (a, b), NO_KWARGS, (a.id, b.id), out, backend)
            if kwargs.get("in_place"):  # never while tracing; the in-place pass decides for later runs
                kwargs["in_place"] = False
            return trace.call(name, function, args, kwargs, backend)

        kernel.__name__ = name
        return kernel


def _effect(name: str, kernel: Callable[..., Any], backend: Traced, *args: Any, **kwargs: Any) -> Any:
    """Call a kernel that other processes wait for, say: no pass may drop, merge or move it."""
    trace = trace_of(args)
    if trace is None:
        return kernel(*args, **kwargs)
    return trace.effect(name, partial(kernel, **kwargs) if kwargs else kernel, args, backend)


def shaped_by_values(name: str, args: Sequence[Any]) -> bool:
    """Return whether the shape of a kernel's result depends on values that differ between calls."""
    if name in _SHAPED_BY_VALUES:
        return any(map(_is_unknown, args))
    if name == "getitem":
        for part in args[1] if type(args[1]) is tuple else args[1:]:
            # A mask selects as many elements as are true; an array of integers as many as it has.
            if _is_unknown(part) and "bool" in str(part.dtype):
                return True
        return False
    return name == "repeat" and len(args) > 1 and _is_unknown(args[1])


def _is_unknown(value: object) -> bool:
    return type(value) is TracedArray and not value.is_known
