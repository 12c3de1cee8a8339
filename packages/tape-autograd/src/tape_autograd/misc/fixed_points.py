"""Fixed points of functions, with derivatives by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.typing import PyTree

from tape_autograd.primitives import defvjp, primitive
from tape_autograd.tracing import make_vjp
from tape_autograd.vspaces import vspace

Function = Callable[..., Any]


@primitive
def fixed_point(f: Function, a: PyTree, x0: PyTree, distance: Function, tol: float) -> Any:
    """Return the x with `f(a)(x) == x`, by iteration from `x0` until a step is no longer than `tol`.

    >>> from tape_autograd import grad
    >>> newton = lambda a: lambda x: 0.5 * (x + a / x)
    >>> root = lambda a: fixed_point(newton, a, 1.0, lambda x, y: abs(x - y), 1e-12)
    >>> print(f"{grad(root)(2.0):.6f}")
    0.353553

    Args:
        f: a function of the parameters that returns the function to iterate.
        a: the parameters, by which it can be differentiated.
        x0: where to begin.
        distance: of two points.
        tol: the length of a step at which to end.
    """
    step = f(a)
    x, before = step(x0), x0
    while distance(x, before) > tol:
        x, before = step(x), x
    return x


def _vjp(ans: PyTree, f: Function, a: PyTree, x0: PyTree, distance: Function, tol: float) -> Function:
    def adjoint(params: PyTree) -> Function:
        a, x_star, g = params
        pull, _ = make_vjp(f(a), x_star)
        space = vspace(x_star)
        return lambda v: space.add(pull(v), g)

    pull, _ = make_vjp(lambda params: f(params)(ans), a)
    return lambda g: pull(fixed_point(adjoint, (a, ans, g), vspace(ans).zeros(), distance, tol))


defvjp(fixed_point, None, _vjp, None)
