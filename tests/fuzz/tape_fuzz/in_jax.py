"""Programs of the grammar run with JAX in Tape's place: so their derivatives are those of `jax.grad`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from tape_fuzz.elsewhere import calls_only, conditional, mapped_by, namespace_of, scanned_by, while_holds

_OF_NUMPY = (
    "sin cos tanh square atan asinh expm1 negative sinh cosh log sqrt log1p log2 reciprocal exp real imag conj abs "
    "stack add subtract multiply divide hypot logaddexp where tile broadcast_to reshape tril matmul outer einsum atan2 "
    "clip sum mean var std prod cumulative_sum cumulative_prod vecdot flip roll expand_dims matrix_transpose concat "
    "unstack tensordot astype asarray pad repeat split take diff zeros_like ones_like eye"
)
_OF_NETWORKS = "sigmoid softplus silu mish softmax log_softmax logsumexp"
_SPECIAL = "erf digamma gammaln"
_LINALG = "inv cholesky det pinv solve slogdet matrix_power vector_norm"

TABLE: dict[str, Any] = {
    **{name: getattr(jnp, name) for name in _OF_NUMPY.split()},
    **{name: getattr(jax.nn, name) for name in _OF_NETWORKS.split()},
    **{name: getattr(jax.scipy.special, name) for name in _SPECIAL.split()},
    "gelu": partial(jax.nn.gelu, approximate=False),
    "cond": conditional,
    "scan": scanned_by(jnp.stack),
    "while_loop": while_holds,
    "map": mapped_by(jnp.stack),
    "checkpoint": jax.checkpoint,
    "stop_gradient": jax.lax.stop_gradient,
    **{name: getattr(jax, name) for name in ("grad", "jvp", "vjp", "vmap")},
    **{f"linalg.{name}": getattr(jnp.linalg, name) for name in _LINALG.split()},
    **{f"fft.{name}": getattr(jnp.fft, name) for name in ("fft", "ifft", "rfft", "irfft")},
}
"""What JAX has in the place of which name of Tape's."""


def has(text: str) -> bool:
    """Whether statements can be run with JAX: all that they call is in the table, and they assign nothing in place."""
    return calls_only(text, TABLE)


def namespace() -> SimpleNamespace:
    """What a program's script finds as `tc`."""
    return namespace_of(TABLE)


def asarray(x: Any) -> Any:
    """An array of NumPy's as JAX's."""
    return jnp.asarray(x)


def derived(program: Callable[..., Any], given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """A program's results and the gradient of the mean of the sines of the real ones, as JAX has it.

    Args:
        program: a function whose global name `tc` is `namespace()`.
        given: NumPy arrays; the gradient is taken with respect to the real ones.
    """
    inputs = [asarray(x) for x in given]
    real = [k for k, x in enumerate(inputs) if jnp.issubdtype(x.dtype, jnp.floating)]

    def loss(sources: list[Any]) -> tuple[Any, list[Any]]:
        moved = dict(zip(real, sources, strict=True))
        results = program(*[moved.get(k, x) for k, x in enumerate(inputs)])
        parts = [jnp.mean(jnp.sin(x)) for x in results if jnp.issubdtype(x.dtype, jnp.floating) and x.size]
        return sum(parts, jnp.zeros(())), results

    slopes, results = jax.grad(loss, has_aux=True)([inputs[k] for k in real])
    return results, slopes
