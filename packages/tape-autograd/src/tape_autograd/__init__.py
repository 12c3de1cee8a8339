"""HIPS autograd's names on Tape: `import tape_autograd.numpy as np; from tape_autograd import grad`.

Code that is written for autograd runs with its imports changed, on Tape's operations and rules. Data are arrays of
NumPy; inside a function that is differentiated they are boxes, see `tape_autograd.boxes`.
"""

from tape_core import __version__ as __version__
from tape_core.backends import require_core as _require_core

_require_core("tape-autograd", "tape-core>=0.1,<0.2")

from tape_autograd.builtins import dict, isinstance, list, tuple, type
from tape_autograd.deprecated import primitive
from tape_autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)

__all__ = [
    "checkpoint",
    "deriv",
    "dict",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "isinstance",
    "jacobian",
    "list",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_jvp_reversemode",
    "make_vjp",
    "multigrad_dict",
    "primitive",
    "tensor_jacobian_product",
    "tuple",
    "type",
    "value_and_grad",
    "vector_jacobian_product",
]
