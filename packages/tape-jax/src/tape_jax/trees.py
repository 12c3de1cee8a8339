"""Tensors in JAX's own functions: `jax.jit`, `jax.grad` and `jax.vmap` take them apart, and return others.

To JAX a Tensor is a pytree of one array. No tape records what JAX computes of the array, so a Tensor that a tape knows
is refused. A Variable is a leaf, which JAX's functions of trees pass on: it is known by its identity.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.tree_util
from tape_compile.extend import TracedArray
from tape_core import Tensor, Variable
from tape_core.backends import Backend, backend_of_type
from tape_core.staging import foreign_tracers
from tape_core.support import BatchedArray, is_watched, wrap

from tape_jax.conversion import is_tracing


def register(backend: Backend) -> None:
    """Let JAX know Tensors, and Tape whether JAX is tracing. `backend` is that of JAX."""

    def made(aux: None, children: Sequence[object]) -> Any:
        (child,) = children
        if isinstance(child, Tensor):
            return child
        # JAX also puts other things in the place of arrays, such as None and the axes of vmap.
        own = None if isinstance(child, jax.Array) else backend_of_type(type(child))
        return wrap(child, own or backend)

    jax.tree_util.register_pytree_node(Tensor, lambda tensor: ((value_for_jax(tensor),), None), made)
    foreign_tracers.append(is_tracing)
    Tensor.__jax_array__ = property(_jax_array)  # type: ignore[attr-defined]


def value_for_jax(tensor: Tensor) -> Any:
    """Return the array of a Tensor for a function of JAX.

    Raises:
        TypeError: a tape or an accumulator knows the Tensor, or it has no values of its own, inside vmap or in a
            compiled function.
    """
    tensor = tensor._read() if isinstance(tensor, Variable) else tensor
    array = tensor._array
    if is_watched([tensor], outside=True):
        raise TypeError(
            f"a function of JAX is given a Tensor of shape {tensor.shape} that a tape or accumulator records, and the "
            f"gradient would end there: use {_CURE}; or its array, x.array, where no gradient is needed"
        )
    if type(array) in (BatchedArray, TracedArray):
        where = "inside tape_core.vmap" if type(array) is BatchedArray else "in a compiled function"
        raise TypeError(f"a function of JAX is given a Tensor {where}, where it has no values: use {_CURE}")
    return array


_CURE = "Tape's own function where there is one, such as tape_core.sin, or tape_jax.call(jnp.sin, x)"


def _jax_array(tensor: Tensor) -> Any:
    """Return what functions of `jax.numpy` call for the array of a Tensor: the attribute `__jax_array__`.

    Nothing else has it. An operator with an array of JAX on its left then leaves it to the Tensor, and tapes record it.
    """
    asking = sys._getframe(1).f_globals.get("__name__", "")
    if not asking.startswith("jax._src.numpy.") or asking == "jax._src.numpy.array_methods":
        raise AttributeError("__jax_array__")
    return lambda: value_for_jax(tensor)
