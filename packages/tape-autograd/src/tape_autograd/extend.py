"""What is needed to give derivatives to functions of one's own: `primitive`, `defvjp`, `defjvp` and relatives.

Nodes of a graph (`VJPNode`, `JVPNode`, `SparseObject`) are Tape's own here and have no counterpart.
"""

from tape_autograd.boxes import Box
from tape_autograd.deprecated import primitive
from tape_autograd.primitives import (
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
)
from tape_autograd.vspaces import VSpace, vspace

__all__ = [
    "Box",
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "notrace_primitive",
    "primitive",
    "vspace",
]
