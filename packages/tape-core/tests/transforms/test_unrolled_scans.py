"""Scans of few steps under derivatives, which are recorded op by op; and what loops say of Tensors they do not use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from support import assert_same, values
from tape_core.transforms import loops


def recurrent(w: Any, xs: Any) -> Any:
    h, ys = tc.scan(lambda h, x: (tc.tanh(h @ w + x), h), tc.zeros(3), xs)
    return tc.sum(h * h) + tc.sum(ys * w[0])


def recurrent_python(w: Any, xs: Any) -> Any:
    h, ys = tc.zeros(3), []
    for x in tc.unstack(xs):
        ys.append(h)
        h = tc.tanh(h @ w + x)
    return tc.sum(h * h) + tc.sum(tc.stack(ys) * w[0])


@pytest.mark.parametrize("steps", [5, 128])
def test_every_derivative_has_the_bits_of_a_python_loop(steps: int) -> None:
    w, xs, t = values(3, 3), values(steps, 3, seed=1) * 0.5, values(3, 3, seed=2)
    derivatives: list[Callable[..., Any]] = [lambda f: tc.grad(f, argnums=(0, 1))]
    if steps < 100:
        derivatives += [
            tc.hessian,
            lambda f: lambda w, xs: tc.jvp(lambda w: f(w, xs), (w,), (t,)),
            lambda f: lambda w, xs: tc.jvp(lambda w: tc.grad(f)(w, xs), (w,), (t,)),
        ]
    for of in derivatives:
        expected = of(recurrent_python)(w, xs)
        assert_same(expected, of(recurrent)(w, xs))
        compiled = tc.function(of(recurrent))
        assert_same(expected, compiled(w, xs))
        assert_same(of(recurrent_python)(w * 0.5, xs), compiled(w * 0.5, xs))


def test_longer_scans_are_one_record_and_loops_in_loops_count_together() -> None:
    def ops(length: int, f: Callable[..., Any]) -> set[str]:
        x = values(length)
        with tc.GradientTape() as tape:
            tape.watch(x)
            tc.scan(f, 1.0, x)
        return {row.op for row in tape.summary().rows}

    def flat(c: Any, e: Any) -> Any:
        return tc.sin(c * e), None

    def nested(c: Any, e: Any) -> Any:
        return tc.scan(lambda c, _: (tc.sin(c * e), None), c, length=16)[0], None

    assert "sin" in ops(loops.UNROLL_MAX_STEPS, flat)
    assert "scan(flat)" in ops(loops.UNROLL_MAX_STEPS + 1, flat)
    assert "sin" in ops(8, nested)
    assert "sin" not in ops(9, nested)


def test_steps_that_are_laid_out_may_assign_variables() -> None:
    def run(scan: Callable[..., Any], compile: Callable[..., Any]) -> Any:
        v = tc.Variable(2.0)

        def f(xs: Any) -> Any:
            def step(c: Any, x: Any) -> Any:
                v.assign(v * 0.5 + 1.0)
                return c * x * v, None

            return scan(step, 1.0, xs)[0]

        step = compile(tc.grad(f))
        return [step(values(3, seed=k)) for k in range(3)], v.value

    def python(step: Any, c: Any, xs: Any) -> Any:
        for x in tc.unstack(xs):
            c, _ = step(c, x)
        return c, None

    expected = run(python, lambda f: f)
    for compile in (lambda f: f, tc.function):
        assert_same(expected, run(tc.scan, compile))


def loop(c: Any, a: Any) -> Any:
    return tc.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * a, s[2] * 2.0), (0, c, c * 3.0))


@pytest.mark.parametrize("compile", [lambda f: f, tc.function], ids=["eager", "compiled"])
def test_what_a_loop_does_not_depend_on_has_no_gradient(compile: Callable[..., Any]) -> None:
    def gradients(a: Any, b: Any, c: Any, xs: Any) -> Any:
        found = []
        for k in (1, 2):
            with tc.GradientTape() as tape:
                tape.watch([a, b, c, xs])
                y = loop(c, a)[k]
            found.append(tape.gradient(y, [a, b, c, xs]))
        for k in (0, 2):
            with tc.GradientTape() as tape:
                tape.watch([a, b, c, xs])
                tripled = b * 3.0

                def step(s: Any, x: Any, tripled: Any = tripled) -> Any:
                    return (tc.sin(s[0] * a), s[1] + tripled * x), s[0] * 2.0

                ends, ys = tc.scan(step, (c, c), xs)
            found.append(tape.gradient([*ends, ys][k], [a, b, c, xs]))
        with tc.GradientTape() as tape:
            tape.watch([a, b, c, xs])
            y = tc.cond(c > 0, lambda a, b: a * 2.0, lambda a, b: a * 3.0, a, b)
        found.append(tape.gradient(y, [a, b, c, xs]))
        return found

    a, b, c = (tc.asarray(x) for x in (2.0, 3.0, 0.5))
    found = compile(gradients)(a, b, c, values(200) * 0.01 + 1.0)
    connected = [[g is not None for g in row] for row in found]
    assert connected == [
        [True, False, True, False],
        [False, False, True, False],
        [True, False, True, False],
        [True, False, True, False],
        [True, False, False, False],
    ]
    assert [found[0][0].item(), found[0][2].item(), found[1][2].item(), found[4][0].item()] == [6.0, 8.0, 24.0, 2.0]


def test_where_no_cotangent_comes_to_the_end_of_a_loop() -> None:
    def f(w: Any, xs: Any) -> Any:
        return tc.sum(tc.scan(lambda h, x: (tc.tanh(h * w + x), h * x), tc.asarray(0.5), xs)[1])

    def python(w: Any, xs: Any) -> Any:
        h, total = tc.asarray(0.5), []
        for x in tc.unstack(xs):
            total.append(h * x)
            h = tc.tanh(h * w + x)
        return tc.sum(tc.stack(total))

    w, xs = tc.asarray(0.7), values(150)
    expected = tc.grad(python, argnums=(0, 1))(w, xs)
    found = tc.grad(f, argnums=(0, 1))(w, xs)
    for e, g in zip(expected, found, strict=True):
        assert bool(tc.all(tc.abs(e - g) <= 1e-4 * (1 + tc.abs(e))))
    assert_same(found, tc.function(tc.grad(f, argnums=(0, 1)))(w, xs))
