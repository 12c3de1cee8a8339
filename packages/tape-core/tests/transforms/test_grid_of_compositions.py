"""Every derivative of every combinator around every derivative, against the program unrolled.

Each program computes elementwise what a polynomial does, whose derivatives NumPy knows: the transformation inside gives
3 z² of what it is given, and the combinator around it is unrolled on polynomials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from numpy.polynomial import Polynomial
from tape_core.transforms import loops

Function = Callable[[Any], Any]

POINT = np.array([0.3, 0.7])
ALONG = np.array([1.5, -0.5])
FEW = (0.5, 0.25)
MANY = (0.5, 0.25, 1.5)  # more than are laid out here


def tensor(values: Any) -> Any:
    return tc.asarray(list(values), dtype=tc.float64)


def cube(v: Any) -> Any:
    return v * v * v


def fourth(v: Any) -> Any:
    return tc.sum(v * v * v * v) * 0.25


def _by_tape(f: Function, z: Any) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(z)
        y = tc.sum(f(z))
    return tape.gradient(y, z)


def _by_accumulator(f: Function, z: Any, t: Any) -> Any:
    z = z * 1.0
    with tc.ForwardAccumulator(z, t) as accumulator:
        y = f(z)
    return accumulator.jvp(y)


def _ones() -> Any:
    return tc.ones(2, dtype=tc.float64)


def total(f: Function) -> Function:
    return lambda v: tc.sum(f(v))


# Each gives 3 z² and reads z by the transformation only.
INNER: dict[str, Function] = {
    "grad": lambda z: tc.grad(total(cube))(z),
    "value_and_grad": lambda z: tc.value_and_grad(total(cube))(z)[1],
    "jvp": lambda z: tc.jvp(cube, (z,), (_ones(),))[1],
    "vjp": lambda z: tc.vjp(cube, z)[1](_ones())[0],
    "linearize": lambda z: tc.linearize(cube, z)[1](_ones()),
    "jacfwd": lambda z: tc.jacfwd(total(cube))(z),
    "jacrev": lambda z: tc.jacrev(total(cube))(z),
    "hvp": lambda z: tc.hvp(fourth, (z,), (_ones(),))[0],
    "hessian": lambda z: tc.sum(tc.hessian(fourth)(z), axis=0),
    "tape": lambda z: _by_tape(cube, z),
    "accumulator": lambda z: _by_accumulator(cube, z, _ones()),
    "grad in a checkpoint": lambda z: tc.checkpoint(lambda: tc.grad(total(cube))(z))(),
}


def _loop(n: int, f: Function, start: Any) -> Any:
    return tc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, f(s[1])), (0, start))[1]


def _unrolled(f: Callable[[Any, float], Any], start: Any, rs: Any) -> Any:
    for r in rs:
        start = f(start, r)
    return start


# What a program is, given the transformation inside, and the same unrolled.
COMBINATORS: dict[str, tuple[Callable[[Function], Function], Callable[[Function], Function]]] = {
    "cond, from around": (
        lambda i: lambda z: tc.cond(tc.sum(z) > 0, lambda: i(z), lambda: z),
        lambda i: lambda z: i(z),
    ),
    "cond, by argument": (
        lambda i: lambda z: tc.cond(tc.sum(z) < 0, lambda u: u, lambda u: i(u) * u, z),
        lambda i: lambda z: i(z) * z,
    ),
    "while_loop, from around": (
        lambda i: lambda z: _loop(2, lambda c: c * 0.5 + i(z), z),
        lambda i: lambda z: _unrolled(lambda c, _: c * 0.5 + i(z), z, FEW),
    ),
    "while_loop, carried": (
        lambda i: lambda z: _loop(2, lambda c: i(c) * 0.3, z),
        lambda i: lambda z: _unrolled(lambda c, _: i(c) * 0.3, z, FEW),
    ),
    "scan, from around": (
        lambda i: lambda z: tc.scan(lambda c, r: (c * r + i(z), None), z, tensor(FEW))[0],
        lambda i: lambda z: _unrolled(lambda c, r: c * r + i(z), z, FEW),
    ),
    "long scan, from around": (
        lambda i: lambda z: tc.scan(lambda c, r: (c * r + i(z), None), z, tensor(MANY))[0],
        lambda i: lambda z: _unrolled(lambda c, r: c * r + i(z), z, MANY),
    ),
    "long scan, carried": (
        lambda i: lambda z: tc.scan(lambda c, r: (i(c) * 0.3, None), z, tensor(MANY))[0],
        lambda i: lambda z: _unrolled(lambda c, r: i(c) * 0.3, z, MANY),
    ),
    "long map, from around": (
        lambda i: lambda z: tc.sum(tc.map(lambda r: r * i(z), tensor(MANY)), axis=0),
        lambda i: lambda z: i(z) * sum(MANY),
    ),
    "checkpoint, from around": (
        lambda i: lambda z: tc.checkpoint(lambda u: u * i(z))(z),
        lambda i: lambda z: z * i(z),
    ),
    "checkpoint with a policy": (
        lambda i: lambda z: tc.checkpoint(lambda u: u * i(u), policy=["multiply"])(z),
        lambda i: lambda z: z * i(z),
    ),
    "function": (
        lambda i: lambda z: tc.function(lambda u: i(u) * u)(z),
        lambda i: lambda z: i(z) * z,
    ),
    "vmap, from around": (
        lambda i: lambda z: tc.sum(tc.vmap(lambda r: r * i(z))(tensor(FEW)), axis=0),
        lambda i: lambda z: i(z) * sum(FEW),
    ),
}

# Derivatives of a function at a point, and the same given the first and second derivatives of its elements.
OUTER: dict[str, tuple[Callable[[Function, Any], Any], Callable[[Any, Any], Any]]] = {
    "grad": (lambda f, x: tc.grad(total(f))(x), lambda d, dd: d),
    "tape": (lambda f, x: _by_tape(f, x), lambda d, dd: d),
    "jvp": (lambda f, x: tc.jvp(f, (x,), (tensor(ALONG),))[1], lambda d, dd: d * ALONG),
    "vjp": (lambda f, x: tc.vjp(f, x)[1](tensor(ALONG))[0], lambda d, dd: d * ALONG),
    "linearize": (lambda f, x: tc.linearize(f, x)[1](tensor(ALONG)), lambda d, dd: d * ALONG),
    "jacrev": (lambda f, x: tc.jacrev(f)(x), lambda d, dd: np.diag(d)),
    "jacfwd": (lambda f, x: tc.jacfwd(f)(x), lambda d, dd: np.diag(d)),
    "hvp": (lambda f, x: tc.hvp(total(f), (x,), (tensor(ALONG),))[0], lambda d, dd: dd * ALONG),
    "hessian": (lambda f, x: tc.hessian(total(f))(x), lambda d, dd: np.diag(dd)),
    "jacrev of grad": (lambda f, x: tc.jacrev(tc.grad(total(f)))(x), lambda d, dd: np.diag(dd)),
}


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("combinator", COMBINATORS)
def test_every_derivative_of_a_combinator_around_a_derivative_is_that_of_the_program_unrolled(
    combinator: str, inner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "UNROLL_MAX_STEPS", len(FEW))  # so that few steps make a long loop
    program, unrolled = COMBINATORS[combinator]
    f = program(INNER[inner])
    exact = unrolled(lambda z: 3 * z * z)(Polynomial([0, 1]))
    value, first, second = exact(POINT), exact.deriv()(POINT), exact.deriv(2)(POINT)
    x = tensor(POINT)
    np.testing.assert_allclose(f(x).numpy(), value, rtol=1e-12)
    wrong = []
    for name, (derivative, of) in OUTER.items():
        wanted, found = of(first, second), derivative(f, x).numpy()
        atol = 1e-12 * max(1.0, float(np.max(np.abs(wanted))))
        if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=0, atol=atol):
            wrong.append(f"{name}: {found.tolist()}, and not {wanted.tolist()}")
    assert not wrong, "\n".join(wrong)
