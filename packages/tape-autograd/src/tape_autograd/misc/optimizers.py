"""Gradient descent for structures of arrays: `sgd`, `rmsprop`, `adam`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tape_core.typing import ArrayLike, PyTree

import tape_autograd.numpy as np
from tape_autograd.misc.flatten import flatten

Function = Callable[..., Any]
Report = Callable[[Any, int, Any], object]


def unflatten_optimizer(optimize: Function) -> Function:
    """Return an optimizer of structures of arrays, of one of vectors."""

    @wraps(optimize)
    def optimized(grad: Function, x0: PyTree, callback: Report | None = None, *args: Any, **kwargs: Any) -> Any:
        vector, unflatten = flatten(x0)

        def flat_grad(x: ArrayLike, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        def report(x: ArrayLike, i: int, g: ArrayLike) -> None:
            if callback is not None:
                callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(flat_grad, vector, report, *args, **kwargs))

    return optimized


@unflatten_optimizer
def sgd(
    grad: Function,
    x: ArrayLike,
    callback: Report,
    num_iters: int = 200,
    step_size: float = 0.1,
    mass: float = 0.9,
) -> Any:
    """Minimise by gradient descent with momentum.

    >>> print(np.round(sgd(lambda x, i: 2 * (x - 3.0), np.array([1.0])), 3))
    [3.]

    Args:
        grad: `grad(x, i)` returns the gradient in iteration i.
        x: where to begin: an array, or nested lists, tuples and dicts of arrays.
        callback: called as `callback(x, i, gradient)` in each iteration.
    """
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Function,
    x: ArrayLike,
    callback: Report,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Minimise by RMSprop: steps are divided by the root of a running mean of squared gradients; see :func:`sgd`."""
    mean_square = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        mean_square = mean_square * gamma + g**2 * (1 - gamma)
        x = x - step_size * g / (np.sqrt(mean_square) + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Function,
    x: ArrayLike,
    callback: Report,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Minimise by Adam (Kingma and Ba, 2014): RMSprop with momentum, corrected for their start; see :func:`sgd`."""
    m, v = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * g**2 + b2 * v
        x = x - step_size * (m / (1 - b1 ** (i + 1))) / (np.sqrt(v / (1 - b2 ** (i + 1))) + eps)
    return x
