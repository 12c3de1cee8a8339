"""`scipy.integrate.odeint`, with derivatives by the adjoint equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import scipy.integrate as _raw
from tape_core.typing import ArrayLike

import tape_autograd.numpy as np
from tape_autograd.misc.flatten import flatten
from tape_autograd.primitives import defvjp_argnums, primitive
from tape_autograd.tracing import make_vjp

Function = Callable[..., Any]

odeint = primitive(_raw.odeint)
"""Solve y' = func(y, t, *args): SciPy's, with derivatives with respect to `y0`, `t` and `args`.

The backward pass solves the adjoint equation from each time to the one before it (Froehlich, Loos and Hasenauer, 2017).
"""


def _adjoint(
    ans: ArrayLike, func: Function, y0: ArrayLike, t: ArrayLike, args: Any, options: dict[str, Any]
) -> Function:
    steps, size = np.shape(ans)
    flat_args, unflatten = flatten(args)

    def flat_func(yta: Any) -> Any:
        y, t, flat = yta
        return func(y, t, *unflatten(flat))

    def backwards(state: ArrayLike, t: ArrayLike, flat_args: ArrayLike) -> Any:
        # The state, and the derivatives of the result with respect to it, to the time, and to the arguments.
        y, adjoint = state[:size], state[size : 2 * size]
        pull, dy = make_vjp(flat_func, (y, t, flat_args))
        by_y, by_t, by_args = pull(-adjoint)
        return np.concatenate([dy, by_y, np.reshape(by_t, (1,)), by_args])

    def pull(g: ArrayLike) -> Any:
        by_y, by_start, by_args = g[-1], 0.0, np.zeros(np.size(flat_args))
        by_times = []
        for k in range(steps - 1, 0, -1):
            # How moving the time of this observation changes the result.
            by_time = np.dot(func(ans[k], t[k], *args), g[k])
            by_times.append(by_time)
            by_start = by_start - by_time
            start = np.concatenate([ans[k], by_y, np.reshape(by_start, (1,)), by_args])
            end = odeint(backwards, start, np.array([t[k], t[k - 1]]), (flat_args,), **options)[1]
            by_y, by_start, by_args = end[size : 2 * size] + g[k - 1], end[2 * size], end[2 * size + 1 :]
        by_times.append(by_start)
        return None, by_y, np.array(by_times[::-1]), unflatten(by_args)

    return pull


def _rule(argnums: Sequence[int], ans: ArrayLike, given: tuple[Any, ...], options: dict[str, Any]) -> Function:
    func, y0, t, *rest = given
    pull = _adjoint(ans, func, y0, t, rest[0] if rest else options.get("args", ()), options)

    def chosen(g: ArrayLike) -> list[Any]:
        found = pull(g)
        return [found[n] for n in argnums]

    return chosen


defvjp_argnums(odeint, _rule)


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
