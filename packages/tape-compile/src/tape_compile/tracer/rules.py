"""Derivative rules on traced arrays: their operations are traced, or a whole call is one opaque instruction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from opcode import opname
from typing import TYPE_CHECKING, Any

from tape_core.extend import fused, vjp
from tape_core.staging import TracingError, value_of
from tape_core.typing import Namespace

from tape_compile.tracer.traced_array import current_trace, trace_of

if TYPE_CHECKING:
    from tape_compile.tracer.traced_backend import Traced


class Rules:
    """Derivative rules by op and input for traced arrays."""

    def __init__(self, backend: Traced) -> None:
        self.backend = backend

    def get(self, name: str, default: Any = None) -> dict[str, Any]:
        """Return the rules of an op by the name of the input, made traceable."""
        from tape_core.extend import registry

        found = {**registry[name].rules, **self.backend.rules_of(name)}
        return {k: self._traceable(rule, f"{name}_rule") for k, rule in found.items()}

    def _traceable(self, rule: object, name: str) -> Any:
        if isinstance(rule, fused):
            common = None if rule.common is None else _OpaqueRule(rule.common, f"{name}_common", self.backend)
            return fused(_OpaqueRule(rule.fn, name, self.backend), common=common)
        if isinstance(rule, vjp):
            return rule if _is_arithmetic(rule.fn) else type(rule)(_TracedRule(rule.fn, name, self.backend))
        return _TracedRule(rule, name, self.backend) if callable(rule) and not _is_arithmetic(rule) else rule


def _is_arithmetic(rule: object) -> bool:
    """Return whether a function only computes with its parameters by operators, so that no value can decide anything.

    Such a rule is called as it is; any other may need to be rolled back, see `_TracedRule`.
    """
    code = getattr(rule, "__code__", None)
    # Since CPython 3.6 an instruction has 2 bytes: the opcode, and its argument.
    return code is not None and _ARITHMETIC.issuperset(code.co_code[::2])


_NAMES = {
    "BINARY_OP", "CACHE", "LOAD_CONST", "LOAD_SMALL_INT", "RESUME", "RETURN_CONST", "RETURN_VALUE", "UNARY_NEGATIVE",
}  # fmt: skip
_ARITHMETIC = {number for number, name in enumerate(opname) if name in _NAMES or name.startswith("LOAD_FAST")}
"""The opcodes of CPython of which such functions consist."""


class _OpaqueRule:
    """A rule of which a call is one instruction, such as a fused one."""

    def __init__(self, fn: Callable[..., Any], name: str, backend: Traced) -> None:
        self.__wrapped__ = fn
        self.__code__ = getattr(fn, "__code__", None)
        self.__name__ = name
        self.on_base = partial(fn, backend.base.xp)
        self.backend = backend
        self.xp = backend.xp

    def __call__(self, xp: Namespace, *args: Any) -> Any:
        trace = trace_of(args)
        if trace is None:
            return self.on_base(*args)
        function = self.backend.between(self.on_base, *map(value_of, args))
        return trace.call(self.__name__, function, args, {}, self.backend)


class _TracedRule(_OpaqueRule):
    """A rule whose operations are traced; if it needs a value, they are dropped, and the call is one instruction."""

    def __call__(self, xp: Namespace, *args: Any) -> Any:
        trace = current_trace()
        if trace is None or xp is not self.xp:
            return self.__wrapped__(xp, *args)
        before = len(trace.instructions)
        trace.speculating += 1
        try:
            return self.__wrapped__(xp, *args)
        except TracingError:
            # Ids of values that are made no more stay taken; nothing refers to them.
            del trace.instructions[before:]
        finally:
            trace.speculating -= 1
        return super().__call__(xp, *args)
