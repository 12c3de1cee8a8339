"""Reading a Variable, as an op: its result is a Tensor of its own, and each read leaves a record on the tapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tape_core.backends.protocol import Backend
from tape_core.engine.op import Binding, Op, Plans
from tape_core.engine.variable import Variable
from tape_core.typing import Array

if TYPE_CHECKING:
    from tape_core.engine.tensor import Tensor


class _ReadOp(Op):
    """The op that reads a Variable. It is in no registry: it computes nothing, so backends bring no kernel for it."""

    def bind(self, backend: Backend) -> Binding:
        """Bind the identity as the kernel on every backend, so that batched and traced arrays pass unchanged too."""
        return self.bound(backend, _identity, Plans(self, self.compiled, None, backend))


def _identity(array: Array) -> Array:
    return array


def value(variable: Variable, /) -> Tensor:
    """The value of a Variable."""
    raise NotImplementedError  # an op is declared by its signature


# A rule of 1 hands the cotangent on as it is; only elementwise ops may have a number for a rule.
_read: Any = _ReadOp(value, {"variable": 1}, form="elementwise").function
Variable._read_op = staticmethod(_read)
