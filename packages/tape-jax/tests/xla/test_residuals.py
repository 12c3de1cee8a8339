"""Scans under XLA: short ones are loops, and derivatives take from the scan what it has computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.compiler import for_xla
from tape_jax.xla.flows import program_of

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(11)
STEPS = 6


def array(*shape: int) -> Any:
    return tc.asarray(RNG.standard_normal(shape))


def steps_of(f: Callable[..., Any], *args: Any) -> list[Counter[str]]:
    """Return by scan how often a step makes each call, after a check of what the function computes."""
    compiled = tc.function(f, compile="xla")
    compiled(*args)
    for found, expected in zip(tc.tree_leaves(compiled(*args)), tc.tree_leaves(f(*args)), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)
    program = for_xla(compiled._compiled.all[0].program)
    scans = [call.fn for call in program.instructions if call.name == "scan"]
    return [Counter(call.name for call in program_of(scan.parts[0]).instructions) for scan in scans]


def recurrent(w: Any, xs: Any, wrap: Callable[[Any], Any] = lambda step: step) -> Any:
    def step(h: Any, x: Any) -> Any:
        new = tc.tanh(w @ h + x)
        return new, tc.exp(new) * x

    last, ys = tc.scan(wrap(step), xs[0] * 0, xs)
    return tc.sum(last * last) + tc.sum(ys)


@pytest.mark.parametrize("steps", [2, STEPS, 150])
def test_a_gradient_computes_nothing_of_the_steps_again(steps: int) -> None:
    forward, backward = steps_of(tc.grad(recurrent, (0, 1)), array(3, 3) * 0.3, array(steps, 3))
    assert forward["tanh"] == forward["exp"] == 1
    assert backward["tanh"] == backward["exp"] == 0


def test_a_scan_is_a_loop_however_short() -> None:
    compiled = tc.function(tc.value_and_grad(recurrent), compile="xla")
    compiled(array(3, 3), array(STEPS, 3))
    (kept,) = compiled._compiled.all
    assert Counter(call.name for call in kept.program.instructions)["scan"] == 2


@pytest.mark.long_on_jax
def test_second_derivatives_and_forward_mode() -> None:
    w, xs, t = array(3, 3) * 0.3, array(STEPS, 3), array(3, 3)
    steps = steps_of(lambda w, xs: tc.jvp(lambda w: tc.grad(recurrent)(w, xs), (w,), (t,)), w, xs)
    assert sum([step["tanh"] for step in steps]) == sum([step["exp"] for step in steps]) == 1
    steps_of(tc.hessian(recurrent), w, xs)
    steps_of(tc.hessian(recurrent, 1), w, xs)
    steps_of(lambda w, xs: tc.jvp(recurrent, (w, xs), (t, xs)), w, xs)
    steps_of(tc.jacrev(tc.grad(recurrent)), w, xs)
    steps_of(tc.jacfwd(tc.jacfwd(recurrent)), w, xs)


def test_inside_and_around_vmap() -> None:
    w, xs = array(3, 3) * 0.3, array(4, STEPS, 3)
    steps_of(tc.vmap(tc.grad(recurrent), in_axes=(None, 0)), w, xs)
    steps_of(tc.grad(lambda w, xs: tc.sum(tc.vmap(recurrent, in_axes=(None, 0))(w, xs))), w, xs)
    steps_of(tc.grad(lambda w, xs: tc.sum(tc.vmap(recurrent, in_axes=(None, 1))(w, xs) ** 2)), w, array(STEPS, 4, 3))


def test_reversed_and_nested_scans_and_branches() -> None:
    def f(w: Any, xs: Any) -> Any:
        def outer(h: Any, x: Any) -> Any:
            inner, _ = tc.scan(lambda c, y: (tc.sin(c * y + w[0]), None), h, xs[:3], reverse=True)
            h = tc.cond(tc.sum(h) > 0, lambda h: tc.tanh(h) * inner, lambda h: tc.exp(-h * h) + inner, h)
            return h, tc.log(1.0 + x * x) * h

        last, ys = tc.scan(outer, xs[0], xs, reverse=True)
        return tc.sum(last) + tc.sum(ys * tc.cos(ys))

    w, xs = array(3, 3), array(STEPS, 3)
    steps_of(tc.grad(f, (0, 1)), w, xs)
    steps_of(tc.hessian(f), w, xs)


def test_two_scans_over_the_same_elements_are_told_apart() -> None:
    def f(w: Any, xs: Any) -> Any:
        def total(a: Any, n: int, reverse: bool) -> Any:
            return tc.sum(tc.scan(lambda c, x: (tc.tanh(a @ c + x), tc.exp(x) * c), xs[0], xs[:n], reverse=reverse)[1])

        return total(w, STEPS, False) + total(w, STEPS, True) * total(2.0 * w, STEPS, False) + total(w, 3, False)

    steps_of(tc.grad(f, (0, 1)), array(3, 3) * 0.3, array(STEPS, 3))


def test_what_a_checkpoint_computes_again_is_not_kept() -> None:
    w, xs = array(3, 3) * 0.3, array(STEPS, 3)
    forward, backward = steps_of(tc.grad(lambda w, xs: recurrent(w, xs, tc.checkpoint)), w, xs)
    assert forward["tanh"] == backward["tanh"] == 1


def test_calls_inside_a_tape_keep_what_derivatives_need() -> None:
    w, xs = tc.Variable(array(3, 3) * 0.3), array(STEPS, 3)

    def slopes(f: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(xs)
            y = f(w, xs)
        return tape.gradient(y, [w, xs])

    compiled = tc.function(recurrent, compile="xla")
    for _ in range(3):
        for found, expected in zip(slopes(compiled), slopes(recurrent), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-10, atol=1e-12)


def test_random_numbers_are_those_of_the_step() -> None:
    def f(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            return tc.tanh(w @ h + tc.exp(tc.dropout(x, 0.5))), None

        return tc.sum(tc.scan(step, xs[0], xs)[0])

    w, xs = array(3, 3) * 0.3, array(STEPS, 3)
    compiled = tc.function(tc.grad(f, (0, 1)), compile="xla")
    for seed in range(3):
        tc.set_seed(seed)
        found = compiled(w, xs)
        tc.set_seed(seed)
        for a, b in zip(found, tc.grad(f, (0, 1))(w, xs), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)


def test_a_step_that_must_run_once_is_taken_step_by_step() -> None:
    count = tc.Variable(0.0, dtype=tc.float64)

    def f(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            count.assign_add(1.0)
            return tc.sin(c * count), None

        return tc.scan(step, x, length=3)[0]

    x = tc.asarray(0.7, dtype=tc.float64)
    expected = tc.grad(f)(x)
    count.assign(0.0)
    compiled = tc.function(tc.grad(f), compile="xla")
    for _ in range(2):
        count.assign(0.0)
        np.testing.assert_allclose(compiled(x).numpy(), expected.numpy(), rtol=1e-12)
        assert count.numpy() == 3.0


def test_what_a_step_decides_by_a_value_is_the_users_error() -> None:
    def f(x: Any) -> Any:
        return tc.scan(lambda c, _: (c * 2.0 if c > 0 else c, None), x, length=3)[0]

    with pytest.raises(TypeError, match="Python needs the value of a traced Tensor"):
        tc.function(tc.grad(f), compile="xla")(tc.asarray(1.0))
    with pytest.warns(UserWarning, match="plain Python"):
        assert tc.function(tc.grad(f), compile="xla", fallback=True)(tc.asarray(1.0)).item() == 8.0
