"""Tape's derivatives of ops for JAX, where JAX has none of its own, or has NaN at points at which Tape has not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import tape_core as tc
from tape_core.support import ACTIVE, setting
from tape_core.tracing import STAGE

from tape_jax.given_rules import Directions, bind_given


def by_tape(
    op: Callable[..., Any], kernel: Callable[..., Any], suits: Callable[..., bool] = lambda **parameters: True
) -> Callable[..., Any]:
    """Return a kernel of real arrays whose derivative, to JAX, is that of the op of Tape that it is the kernel of.

    `suits` says of which parameters. A rule that multiplies by NaN in a branch that is not taken does not suit: JAX
    transposes it for forward mode.
    """

    @wraps(kernel)
    def found(*arrays: Any, **kwargs: Any) -> Any:
        if not suits(**kwargs) or not all([jnp.issubdtype(x.dtype, jnp.floating) for x in arrays]):
            return kernel(*arrays, **kwargs)
        return with_rules_of(op, kernel, arrays, kwargs)

    return found


def with_rules_of(
    op: Callable[..., Any], kernel: Callable[..., Any], values: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Return the result of an op's kernel, whose derivatives by the real arrays that JAX traces are those of the op."""
    traced = [k for k, x in enumerate(values) if isinstance(x, jax.core.Tracer)]
    if not traced:
        return kernel(*values, **kwargs)
    residuals = [values[k] for k in traced]
    real = [k for k in traced if jnp.issubdtype(values[k].dtype, jnp.floating)]
    dtypes = [values[k].dtype for k in real]
    known = [None if k in traced else value for k, value in enumerate(values)]
    # Under `jax.grad` alone what is stopped is a value, of NumPy's where such a one was given.
    stopped = [jnp.asarray(jax.lax.stop_gradient(x)) if k in real else x for k, x in enumerate(values)]
    out = kernel(*stopped, **kwargs)
    if not real or not jnp.issubdtype(out.dtype, jnp.floating):
        return kernel(*values, **kwargs)  # JAX's own derivative, or its error where it has none

    def cotangents(*given: Any) -> list[Any]:
        """Map the traced arrays, the result and its cotangent to cotangents; it runs only where JAX asks for one."""
        with setting(ACTIVE, ()), setting(STAGE, None):
            inputs = list(known)
            for k, array in zip(traced, given, strict=False):
                inputs[k] = tc.asarray(array, backend="jax")
            watched = [inputs[k] for k in real]
            with tc.GradientTape() as tape:
                tape.watch(watched)
                result = op(*inputs, **kwargs)
            upstream = tc.asarray(given[-1], backend="jax")
            gradients: Any = tape.gradient(result, watched, output_gradients=upstream, unconnected_gradients="zero")
        return [g.array.astype(dtype) for g, dtype in zip(gradients, dtypes, strict=True)]

    directions = Directions(cotangents, len(real), 1, (True,) * len(real), pushes=False)
    return bind_given(residuals, [values[k] for k in real], [jax.lax.stop_gradient(out)], directions)[0]


def is_finite_order(*, ord: float = 2, **parameters: Any) -> bool:
    """Return whether a norm is no maximum or minimum."""
    return abs(ord) != float("inf")


def vector_norm(x: Any, **parameters: Any) -> Any:
    """Return JAX's norm; for a maximum or minimum with a derivative of 0 at elements that are 0, where JAX has 1."""
    if not is_finite_order(**parameters) and isinstance(x, jax.core.Tracer):
        x = jnp.where(x == 0, jax.lax.stop_gradient(x), x)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(tc.get_default_dtype().name)  # JAX's norm of integers is an integer for some orders
    return jnp.linalg.vector_norm(x, **parameters)
