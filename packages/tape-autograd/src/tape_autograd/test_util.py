"""Checks of derivatives against differences: `check_grads`, `check_vjp`, `check_jvp`, `combo_check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from tape_core.typing import PyTree

from tape_autograd.tracing import make_jvp, make_vjp
from tape_autograd.vspaces import vspace
from tape_autograd.wrap_util import get_name, unary_to_nary

Function = Callable[..., Any]

TOL = 1e-6
RTOL = 1e-6
EPS = 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Return whether two numbers are equal but for rounding."""
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


def make_numerical_jvp(f: Function, x: PyTree) -> Function:
    """Return the derivative of `f` at `x` along a vector, by central differences."""
    y = f(x)
    x_vs, y_vs = vspace(x), vspace(y)

    def jvp(v: PyTree) -> Any:
        after = f(x_vs.add(x, x_vs.scalar_mul(v, EPS / 2)))
        before = f(x_vs.add(x, x_vs.scalar_mul(v, -EPS / 2)))
        return y_vs.scalar_mul(y_vs.add(after, y_vs.scalar_mul(before, -1.0)), 1.0 / EPS)

    return jvp


def check_vjp(f: Function, x: PyTree) -> None:
    """Check the reverse mode of a function at a point along random vectors.

    Raises:
        AssertionError: it differs from differences.
    """
    vjp, y = make_vjp(f, x)
    jvp = make_numerical_jvp(f, x)
    x_vs, y_vs = vspace(x), vspace(y)
    x_v, y_v = x_vs.randn(), y_vs.randn()
    vjp_y = x_vs.covector(vjp(y_vs.covector(y_v)))
    assert vspace(vjp_y) == x_vs, f"the gradient is in {vspace(vjp_y)}, the argument in {x_vs}"
    exact = x_vs.inner_prod(x_v, vjp_y)
    numeric = y_vs.inner_prod(y_v, jvp(x_v))
    assert scalar_close(numeric, exact), (
        f"Derivative (VJP) check of {get_name(f)} failed with arg {x}:\nanalytic: {exact}\nnumeric:  {numeric}"
    )


def check_jvp(f: Function, x: PyTree) -> None:
    """Check the forward mode of a function at a point along a random vector.

    Raises:
        AssertionError: it differs from differences.
    """
    x_v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(x_v)[1], make_numerical_jvp(f, x)(x_v))


def check_equivalent(x: PyTree, y: PyTree) -> None:
    """Check that two values are of the same shapes and dtypes and equal but for rounding.

    Raises:
        AssertionError: they are not.
    """
    x_vs, y_vs = vspace(x), vspace(y)
    assert x_vs == y_vs, f"VSpace mismatch:\nx: {x_vs}\ny: {y_vs}"
    v = x_vs.randn()
    assert scalar_close(x_vs.inner_prod(x, v), x_vs.inner_prod(y, v)), f"Value mismatch:\nx: {x}\ny: {y}"


@unary_to_nary
def check_grads(f: Function, x: PyTree, modes: Sequence[str] = ("fwd", "rev"), order: int = 2) -> None:
    """Check the derivatives of a function up to an order, along random vectors.

    >>> import tape_autograd.numpy as np
    >>> check_grads(lambda x: x * np.sin(x), order=3)(0.5)

    Args:
        f, x: as for the other operators `check_grads(f, argnum, modes, order)` returns a function of the arguments.
        modes: `"fwd"`, `"rev"` or both.
        order: the highest order of derivatives.

    Raises:
        AssertionError: a derivative differs from differences.
    """
    if not all([m in ("fwd", "rev") for m in modes]):
        raise ValueError(f"check_grads: modes are 'fwd' and 'rev', got {modes!r}")
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:

            def tangent(x: PyTree, v: PyTree) -> Any:
                return make_jvp(f, x)(v)[1]

            tangent.__name__ = f"jvp_{get_name(f)}"
            check_grads(tangent, (0, 1), modes, order=order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:

            def cotangent(x: PyTree, v: PyTree) -> Any:
                return make_vjp(f, x)[0](v)

            cotangent.__name__ = f"vjp_{get_name(f)}"
            check_grads(cotangent, (0, 1), modes, order=order - 1)(x, vspace(f(x)).randn())


def combo_check(fun: Function, *args: Any, **kwargs: Any) -> Function:
    """Return a function that checks `fun` for all combinations of its arguments: each is a list of choices."""

    def checked(*choices: Any, **named: Any) -> None:
        pairs = [[(name, value) for value in values] for name, values in named.items()]
        for chosen in product(*choices):
            for options in product(*pairs):
                check_grads(fun, *args, **kwargs)(*chosen, **dict(options))

    return checked
