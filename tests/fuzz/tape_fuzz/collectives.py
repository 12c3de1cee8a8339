"""Random programs of collectives inside transformations, against differences of the sum of all processes' targets.

`python -m tape_fuzz.collectives --number 100 --seed 0` is run in each of several processes. All draw the same programs;
each has arrays of its own. A derivative is that of the sum of all processes' targets, so one along random directions is
compared with a quotient of differences, and with what the sweep gives; a failure is the program as code.
"""

# ruff: noqa: E501 - an op is one line
from __future__ import annotations

import argparse
import math
import os
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.backends.errors import BatchError
from tape_core.staging import TracingError
from tape_torch import distributed as engine

KEEPING = [
    "all_reduce(A, m) * 0.5", "all_reduce(A, m, reduction='mean')", "all_reduce(A, m, reduction='max')", "all_reduce(A, m, reduction='min')",
    "broadcast(A, m, source=K)", "all_to_all(A, m, split=X, concat=X)", "all_gather(reduce_scatter(A, m, along=X), m, along=X)", "tc.sin(A)", "tc.tanh(A * 1.5)", "A * A * 0.5",
]  # fmt: skip
CHANGING = ["all_gather(A, m, along=X)", "reduce_scatter(A, m, along=X)", "all_to_all(A, m, split=X, concat=Y)", "tc.flip(A)", "A[..., ::2]", "tc.concat([A, A], axis=0)"]  # fmt: skip
AROUND = [
    "tc.function(F)(A)", "tc.checkpoint(F)(A)", "tc.jvp(F, (A,), (tc.cos(A),))[1]", "tc.grad(lambda b: tc.sum(F(b) ** 2))(A)", "twice(F)(A)", "swept(F)(A)",
    "tc.sum(tc.jacrev(F)(A), axis=tuple(range(tc.asarray(F(A)).ndim)))", "tc.function(tc.grad(lambda b: tc.sum(tc.sin(F(b)))))(A)",
    "tc.function(lambda b: tc.jvp(F, (b,), (b * 0.5,))[1])(A)", "tc.grad(lambda b: tc.sum(tc.checkpoint(F)(b)))(A)",
]  # fmt: skip
BY_ROWS = [
    "tc.vmap(F)(A)",
    "tc.vmap(tc.grad(lambda r: tc.sum(F(r) ** 2)))(A)",
    "tc.function(tc.vmap(F))(A)",
    "tc.map(F, A)",
]
LOOPS = [
    "tc.scan(lambda h, x: (tc.tanh(F(h) + x), h * x), A * 0.5, tc.stack([A, tc.sin(A)]))[0]", "tc.scan(lambda h, x: (h * 0.5 + x, F(x)), A, tc.stack([A, A]))[1][0]",
    "tc.cond(tc.sum(all_reduce(A, m)) > 0.1, lambda: F(A), lambda: A * 2.0)", "tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, tc.sin(F(c[1]))), (tc.asarray(0), A))[1]",
]  # fmt: skip
_MOST = 128  # elements
_STEP = 1e-6
_REFUSED = "in a branch or a loop of it"
"""Of an error: a collective is an effect, which a compiled function does not have in branches and loops."""


def twice(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the gradient of the squared gradient, by two tapes."""

    def called(a: Any) -> Any:
        with tc.GradientTape() as outer:
            outer.watch(a)
            with tc.GradientTape() as inner:
                inner.watch(a)
                y = tc.sum(tc.sin(f(a)))
            g = inner.gradient(y, a)
            z = tc.sum(g * g)
        return outer.gradient(z, a)

    return called


def swept(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the pullback of a function, of a cotangent that depends on the argument."""

    def called(a: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(a)
            y = f(a)
        return tape.gradient(y, a, output_gradients=tc.cos(y))

    return called


def drawn_expression(chance: random.Random, axes: Mapping[str, int], depth: int, keeping: bool) -> str:
    """Return an expression of `A`; one that keeps the shape where that is asked for.

    Args:
        axes: of the mesh, along some of which collectives are: the number of processes by name.
    """
    kind = chance.random()
    if depth and kind < 0.55:
        loops = chance.random() < 0.4
        inner = drawn_expression(chance, axes, depth - 1, keeping or loops)
        function = f"(lambda a{depth}: {inner.replace('A', f'a{depth}')})"
        around = LOOPS if loops else BY_ROWS if not keeping and chance.random() < 0.3 else AROUND
        return chance.choice(around).replace("F", function)
    text = chance.choice(KEEPING if keeping or kind < 0.85 else CHANGING)
    size = math.prod(axes.values())
    if chance.random() < 0.4:
        axis, size = chance.choice(list(axes.items()))
        text = text.replace(", m", f", m, {axis!r}")
    for hole, found in (("K", chance.randrange(size)), ("X", chance.choice([0, -1])), ("Y", chance.choice([0, -1]))):
        text = text.replace(hole, str(found))
    return text if chance.random() < 0.6 else text.replace("A", f"({chance.choice(KEEPING[-3:])})")


def check(chance: random.Random, m: engine.Mesh) -> str | None:
    """Draw a program and check it; return its text, or None where it says nothing.

    Raises:
        AssertionError: two ways to compute something differ.
    """
    size = m.size
    names = {"tc": tc, "m": m, "twice": twice, "swept": swept}
    names |= {
        name: getattr(engine, name)
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
    }
    own = np.random.default_rng(chance.randrange(1 << 30) + m.rank)
    x, v = [tc.asarray(own.normal(size=(2 * size, 2 * size))) for _ in range(2)]
    lines: list[str] = []
    value = x
    for _ in range(chance.randint(1, 3)):
        text = drawn_expression(chance, m.axes, chance.randint(0, 2), False)
        try:
            found = eval(text, {**names, "A": value})
        except (ValueError, IndexError, TypeError):  # shapes do not go together, in all processes
            continue
        except TracingError as error:
            if _REFUSED not in str(error):
                raise
            continue
        if not isinstance(found, tc.Tensor) or not 0 < found.size <= _MOST or found.ndim == 0:
            continue
        value = found
        lines.append(f"    A = {text}")
    if not lines:
        return None
    text = "\n".join(["def program(A):", *lines, "    return A"])
    exec(text, names)
    program: Any = names["program"]
    try:
        _check(program, x, v, m)
    except Exception as error:
        error.add_note(f"rank {m.rank} of {size}, in\n{text}")
        raise
    return text


def _check(program: Callable[[Any], Any], x: tc.Tensor, v: tc.Tensor, m: engine.Mesh) -> None:
    def target(a: tc.Tensor) -> tc.Tensor:
        return tc.sum(tc.sin(program(a)))

    def total(number: tc.Tensor) -> float:
        return float(engine.all_reduce(tc.reshape(number, (1,)), m)[0])

    value = program(x).numpy()
    compiled = tc.function(program)
    is_compiled = True
    try:
        for _ in range(2):
            np.testing.assert_allclose(compiled(x).numpy(), value, rtol=1e-9, atol=1e-9, err_msg="compiled")
    except TracingError as error:
        if _REFUSED not in str(error):
            raise
        is_compiled = False
    slope = total(target(x + _STEP * v) - target(x - _STEP * v)) / (2 * _STEP)
    if not abs(slope) < 1e4:
        return
    forward = total(tc.jvp(target, (x,), (v,))[1])
    gradients = {"eager": tc.grad(target)(x)}
    if is_compiled:
        gradients["compiled"] = tc.function(tc.grad(target))(x)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(forward, slope, err_msg="the derivative in forward mode", **close)  # type: ignore[arg-type]
    for how, gradient in gradients.items():
        np.testing.assert_allclose(total(tc.sum(gradient * v)), forward, rtol=1e-7, atol=1e-7, err_msg=f"{how} sweep")
    try:
        rows = tc.vmap(program)(tc.stack([x, x * 0.5])).numpy()
    except BatchError:  # ops that vmap refuses, such as a loop whose length differs
        return
    one_by_one = np.stack([value, program(x * 0.5).numpy()])
    np.testing.assert_allclose(rows, one_by_one, rtol=1e-9, atol=1e-9, err_msg="vmap")


def main() -> None:
    """Draw programs and check each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    is_even = int(os.environ.get("WORLD_SIZE", "1")) % 2 == 0
    m = engine.mesh({"data": 2, "model": -1} if is_even else None, device="cpu")
    said = 0
    with warnings.catch_warnings(), tc.use_backend("torch:cpu"):
        warnings.simplefilter("ignore")
        for k in range(options.number):
            said += check(random.Random(options.seed + k), m) is not None
    assert said * 3 >= options.number, f"only {said} of {options.number} programs say anything"


if __name__ == "__main__":
    main()
