"""Tape's derivatives of ops for JAX, where JAX's own are NaN at points at which Tape's are not."""

from __future__ import annotations

from collections.abc import Callable
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
        out = kernel(*arrays, **kwargs)
        traced = any([isinstance(x, jax.core.Tracer) for x in arrays])
        if not traced or not suits(**kwargs) or not all([jnp.issubdtype(x.dtype, jnp.floating) for x in arrays]):
            return out
        n = len(arrays)

        def cotangents(*values: Any) -> list[Any]:
            """Map the arrays, the result and its cotangent to cotangents; it runs only where JAX asks for one."""
            with setting(ACTIVE, ()), setting(STAGE, None):
                inputs = [tc.asarray(x, backend="jax") for x in values[:n]]
                with tc.GradientTape() as tape:
                    tape.watch(inputs)
                    result = op(*inputs, **kwargs)
                gradients = tape.gradient(result, inputs, output_gradients=tc.asarray(values[-1], backend="jax"))
            return [g.array.astype(x.dtype) for g, x in zip(gradients, values, strict=False)]

        directions = Directions(cotangents, n, 1, (True,) * n, pushes=False)
        return bind_given(arrays, arrays, [jax.lax.stop_gradient(out)], directions)[0]

    return found


def is_finite_order(*, ord: float = 2, **parameters: Any) -> bool:
    """Return whether a norm is no maximum or minimum."""
    return abs(ord) != float("inf")
