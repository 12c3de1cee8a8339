"""What `variable.value` is for those who record: an op, whose result is a Tensor of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.backends.protocol import Backend
from tape_core.engine.op import Op, Plans
from tape_core.typing import Array


class _ReadOp(Op):
    """An op that no registry has: it computes nothing, so no backend has a kernel of its own for it."""

    def bind(self, backend: Backend) -> tuple[Callable[..., Any], Plans]:
        """One kernel for all: the array stays what it is, in a vmap and in a trace as well."""
        return self.bound(backend, _itself, Plans(self, self.compiled, None, backend))


def _itself(array: Array) -> Any:
    return array


def value(variable: Any, /) -> Any:
    """The value of a Variable."""


read_value = _ReadOp(value, {"variable": 1}, form="elementwise").function
