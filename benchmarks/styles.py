"""The same derivative in several styles, on NumPy: the figures of docs/which-style.md, as rows of its table.

python benchmarks/styles.py

Styles take turns, and each has the minimum of its times; a figure is relative to the first style of its group.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import tape_core as tc

ROUNDS = 15


def loss(x: Any) -> Any:
    """A function of a vector with a full Hessian."""
    return tc.sum(tc.tanh(WEIGHTS @ x) ** 2)


RNG = np.random.default_rng(0)
WEIGHTS = tc.asarray(RNG.standard_normal((50, 50)) / 7.0)
X = tc.asarray(RNG.standard_normal(50))
V = tc.asarray(RNG.standard_normal(50))
EXAMPLES = tc.asarray(RNG.standard_normal((256, 50)))


def nested_hessian(x: Any) -> Any:
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = loss(x)
        gradient = inner.gradient(y, x)
    return outer.jacobian(gradient, x)


def nested_product(x: Any, v: Any) -> Any:
    with tc.GradientTape() as outer:
        outer.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = loss(x)
        gradient = inner.gradient(y, x)
    return outer.gradient(gradient, x, output_gradients=v)


def second_along(x: Any, v: Any) -> Any:
    """v' H v, as the jvp of a jvp."""
    return tc.jvp(lambda x: tc.jvp(loss, (x,), (v,))[1], (x,), (v,))[1]


BASIS = tc.eye(50, dtype="float64")
per_example = tc.vmap(tc.grad(loss))
laplacian = lambda x: tc.sum(tc.vmap(lambda v: second_along(x, v))(BASIS))  # noqa: E731
product = lambda x, v: tc.hvp(loss, (x,), (v,))[0]  # noqa: E731
COMPILED = [tc.function(f) for f in (tc.hessian(loss), product, laplacian, per_example)]

GROUPS: dict[str, dict[str, Callable[[], Any]]] = {
    "Hessian, 50 by 50": {
        "`tc.hessian(f)(x)`": lambda: tc.hessian(loss)(X),
        "a tape's `jacobian` of an inner gradient": lambda: nested_hessian(X),
        "`tc.jacrev(tc.grad(f))(x)`": lambda: tc.jacrev(tc.grad(loss))(X),
        "a Hessian-vector product for each column": lambda: [product(X, row) for row in tc.unstack(BASIS)],
        "`tc.function(tc.hessian(f))(x)`": lambda: COMPILED[0](X),
    },
    "Hessian-vector product": {
        "`tc.hvp(f, (x,), (v,))`": lambda: product(X, V),
        "two tapes, `output_gradients=v`": lambda: nested_product(X, V),
        "`tc.hessian(f)(x) @ v`": lambda: tc.hessian(loss)(X) @ V,
        "`tc.hvp` in a `tc.function`": lambda: COMPILED[1](X, V),
    },
    "Laplacian, the trace of the Hessian": {
        "`vmap` of a `jvp` of a `jvp`, over the basis": lambda: laplacian(X),
        "`tc.linalg.trace(tc.hessian(f)(x))`": lambda: tc.hessian(loss)(X).trace(),
        "a `jvp` of a `jvp` for each direction": lambda: sum(second_along(X, v) for v in tc.unstack(BASIS)),
        "the `vmap`, in a `tc.function`": lambda: COMPILED[2](X),
    },
    "Gradients of 256 examples": {
        "`tc.vmap(tc.grad(f))(xs)`": lambda: per_example(EXAMPLES),
        "a tape for each example": lambda: [tc.grad(loss)(x) for x in tc.unstack(EXAMPLES)],
        "the `vmap`, in a `tc.function`": lambda: COMPILED[3](EXAMPLES),
    },
}


def main() -> None:
    for need, styles in GROUPS.items():
        times = dict.fromkeys(styles, float("inf"))
        for step in styles.values():
            step()  # compiled functions are traced
        for _ in range(ROUNDS):
            for name, step in styles.items():
                start = perf_counter()
                step()
                times[name] = min(times[name], perf_counter() - start)
        first = next(iter(times.values()))
        for name, seconds in times.items():
            print(f"| {need} | {name} | {seconds / first:.2g} |")
            need = ""


if __name__ == "__main__":
    main()
