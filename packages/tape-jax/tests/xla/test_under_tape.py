"""Functions compiled by XLA that are called inside a tape's block, against the same calls of plain Python."""

import os

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.backends import installed
from tape_core.staging import value_check
from tape_jax.xla.segment import Segment

BACKENDS = [name for name in ("numpy", "torch", "jax") if name in installed()]


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request):
    if request.param == "torch":
        pytest.importorskip("torch")
    with tc.use_backend(request.param):
        yield request.param


@pytest.fixture
def runs(monkeypatch):
    """The number of runs of XLA's programs, in a list that each run is added to."""
    found = []
    run = Segment.__call__
    monkeypatch.setattr(Segment, "__call__", lambda self, *given: found.append(self) or run(self, *given))
    # Each is run by its own call, also where nothing is left to do but to call JAX's function.
    for direct in ("plain", "whole"):
        monkeypatch.setattr(Segment, direct, property(lambda self: None, lambda self, value: None), raising=False)
    return found


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    assert found.dtype == expected.dtype
    assert type(found.array) is type(expected.array)


def test_a_call_runs_one_program_forward_and_one_backward(runs):
    kernels = []

    def f(x, w):
        kernels.append(None)
        return tc.tanh(x @ w), tc.sum(x * x)

    def slopes(f, x, w):
        with tc.GradientTape() as tape:
            tape.watch([x, w])
            y, z = f(x, w)
            total = tc.sum(y**2) + z
        return [y, z, *tape.gradient(total, [x, w])]

    compiled = tc.function(f, compile="xla")
    x, w = tc.reshape(tc.linspace(-1, 1, 12), (4, 3)), tc.ones((3, 2)) * 0.5
    expected = slopes(f, x, w)
    for _ in range(4):
        kernels.clear()
        runs.clear()
        for a, b in zip(slopes(compiled, x, w), expected, strict=True):
            close(a, b)
    assert not kernels
    assert len(runs) == 2
    assert runs[0] is not runs[1]
    assert compiled.traces == 1


def test_large_cotangents_that_pass_through_other_ops():
    f = tc.function(lambda x: tc.sin(x) * x, compile="xla")
    x = tc.reshape(tc.linspace(-1, 1, 90_000), (300, 300))

    def slope(f):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = x * 2
            z = f(f(y) + y) * 3 + y
            total = tc.sum(z * y)
        return tape.gradient(total, x)

    expected = slope(f.python)
    for _ in range(4):
        close(slope(f), expected, 1e-4)


def test_training_with_dropout_and_state():
    def losses(compile):
        tc.set_seed(0)
        model = nn.Sequential([nn.Dense(8), nn.BatchNorm(), nn.Dropout(0.2), nn.Dense(3)])
        model.train()
        optimizer = nn.SGD(0.1)
        x, y = tc.reshape(tc.linspace(-1, 1, 36), (12, 3)), tc.asarray([0, 1, 2] * 4)
        model(x)
        forward = model if compile is None else tc.function(model, compile=compile)
        found = []
        for _ in range(6):
            with tc.GradientTape() as tape:
                loss = tc.mean(tc.cross_entropy(forward(x), y))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            found.append(loss.item())
        return found, tc.random.get_state(), [v.numpy() for v in model.variables]

    found, state, values = losses("xla")
    expected, expected_state, expected_values = losses(None)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert state == expected_state
    for a, b in zip(values, expected_values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_variables_assigned_in_the_call(runs):
    v = tc.Variable(tc.ones(3) * 0.5)
    count = tc.Variable(tc.asarray(0.0), trainable=False)

    @tc.function(compile="xla")
    def f(x):
        count.assign_add(tc.sum(x))
        return tc.sum(x * v * v) * count

    for k in range(1, 5):
        runs.clear()
        with tc.GradientTape() as tape:
            y = f(tc.ones(3))
        assert count.item() == 3 * k
        close(y, tc.asarray(0.75 * 3 * k))
        close(tape.gradient(y, v), tc.ones(3) * 3 * k)
    assert len(runs) == 2


def test_persistent_tapes_and_second_order():
    f = tc.function(lambda x: tc.sum(tc.exp(x) * x), compile="xla")
    x = tc.linspace(0.1, 1, 4)

    def slopes(f):
        with tc.GradientTape() as outer:
            outer.watch(x)
            with tc.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = f(x)
                z = y * y
            first, again, squared = tape.gradient(y, x), tape.gradient(y, x), tape.gradient(z, x)
            total = tc.sum(first * squared)
        with tc.GradientTape(persistent=True) as alone:
            alone.watch(x)
            y = f(x)
            z = y * y
        return [first, again, squared, outer.gradient(total, x), alone.gradient(y, x), alone.gradient(z, x)]

    expected = slopes(f.python)
    for _ in range(4):
        for a, b in zip(slopes(f), expected, strict=True):
            close(a, b, 1e-4)

    def second(f):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
            return tape.gradient(y, x)

    for _ in range(4):
        close(second(f), second(f.python), 1e-4)


def test_loops_branches_and_patterns_of_cotangents():
    def f(x, xs):
        carry, ys = tc.scan(lambda c, e: (tc.sin(c) + e * c, c * e), x, xs)
        return tc.cond(tc.sum(carry) > 0, lambda c: c * 2, lambda c: c - 1, carry), ys

    compiled = tc.function(f, compile="xla")
    x, xs = tc.ones((3,)) * 0.5, tc.linspace(0.1, 1, 8)

    def slopes(f, k):
        with tc.GradientTape() as tape:
            tape.watch([x, xs])
            y = tc.sum(f(x, xs)[k] ** 2)
        return tape.gradient(y, [x, xs], unconnected_gradients="zero")

    for _ in range(4):
        for k in (0, 1):
            for a, b in zip(slopes(compiled, k), slopes(f, k), strict=True):
                close(a, b, 1e-4)


def test_expm_is_part_of_the_programs(runs):
    f = tc.function(lambda x: tc.sum(tc.linalg.expm(x) ** 2), compile="xla")
    x = tc.reshape(tc.linspace(-0.5, 0.5, 9), (3, 3))
    expected = tc.grad(f.python)(x)
    for _ in range(3):
        runs.clear()
        close(f(x), f.python(x))
        close(tc.grad(f)(x), expected)
    assert len(runs) == 3


def test_while_loops_of_unknown_length():
    f = tc.function(lambda x: tc.while_loop(lambda v: tc.sum(v) < 50, lambda v: v * v + 1, x), compile="xla")
    for k in (0.5, 0.5, 1.0, 3.0):
        x = tc.ones((3,)) * k
        close(tc.grad(lambda x: tc.sum(f(x)))(x), tc.grad(lambda x: tc.sum(f.python(x)))(x), 1e-4)


@pytest.mark.parametrize("watched", [True, False])
def test_what_xla_cannot_take_is_recorded_eagerly(watched):
    f = tc.function(lambda x: tc.sum(x[x > 0] ** 2), compile="xla")
    x = tc.asarray([1.0, -2.0, 3.0])
    for _ in range(4):
        with tc.GradientTape() as tape:
            if watched:
                tape.watch(x)
            y = f(x)
        close(y, tc.asarray(10.0))
        if watched:
            close(tape.gradient(y, x), tc.asarray([2.0, 0.0, 6.0]))


def test_errors_are_those_of_the_user():
    @value_check
    def is_small(x):
        if x.item() > 5:
            raise ValueError("the sum is large")

    @tc.function(compile="xla")
    def f(x):
        is_small(tc.sum(x))
        return tc.sum(x * x)

    for value in (1.0, 1.0, 1.0, 7.0):
        x = tc.asarray(value)
        with tc.GradientTape() as tape:
            tape.watch(x)
            if value > 5:
                with pytest.raises(ValueError, match="the sum is large"):
                    f(x)
            else:
                close(f(x), tc.asarray(value**2))


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_computes_scans_and_their_derivatives_in_python(backend):
    if backend == "jax":
        pytest.skip("JAX's own arrays need XLA's threads")

    def f(x, rows):
        def step(c, row):
            ordered = tc.sort(c * row)
            return ordered + tc.exp(c - tc.logsumexp(c)), tc.sum(ordered * tc.argsort(tc.argsort(c)))

        last, sums = tc.scan(step, x, rows)
        return tc.sum(last) + tc.sum(sums)

    x, rows = tc.asarray([0.5, -1.0, 2.0]), tc.asarray([[1.0, 2.0, -1.0], [0.5, 3.0, 1.0]])
    compiled = tc.function(f, compile="xla")

    def slope(f):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x, rows)
        return tape.gradient(y, x).numpy()

    expected = slope(f)
    for _ in range(2):
        np.testing.assert_allclose(slope(compiled), expected, rtol=1e-5)
    if (child := os.fork()) == 0:
        os._exit(0 if np.allclose(slope(compiled), expected, rtol=1e-5) else 1)
    assert os.waitpid(child, 0)[1] == 0
