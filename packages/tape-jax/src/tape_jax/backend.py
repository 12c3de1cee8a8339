"""The JAX backend: the functions of `jax.numpy`, on JAX's immutable arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tape_core.backends import ArrayAPIBackend

# JAX makes float32 of each float64 without this, also of NumPy's arrays; it must be set before the first array.
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


class JaxBackend(ArrayAPIBackend):
    """JAX on the CPU, and on the GPUs and TPUs that it finds."""

    def __init__(self) -> None:
        super().__init__("jax", jnp, array_types=("jax:Array",), version=jax.__version__)

    @staticmethod
    def put(array: jax.Array, key: object, values: object) -> jax.Array:
        """Return a copy of an array with other elements at a key; under `jax.jit` XLA writes in place."""
        updated: jax.Array = array.at[key].set(values)
        return updated
