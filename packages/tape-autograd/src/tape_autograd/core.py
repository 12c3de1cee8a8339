"""Names of `autograd.core`: `make_vjp` and `make_jvp` of functions of one argument, rules of primitives, `vspace`."""

from tape_autograd.deprecated import primitive
from tape_autograd.primitives import (
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive_jvps,
    primitive_vjps,
)
from tape_autograd.tracing import make_jvp, make_vjp
from tape_autograd.vspaces import VSpace, vspace

__all__ = [
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "make_jvp",
    "make_vjp",
    "primitive",
    "primitive_jvps",
    "primitive_vjps",
    "vspace",
]
