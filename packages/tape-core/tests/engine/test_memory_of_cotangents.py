"""The sweep reuses memory of large cotangents; never what anybody else can see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

N = 40_000  # large enough for buffers to be reused

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x y": lambda x, y: x * y,
    "x sin(x) + x y": lambda x, y: x * tc.sin(x) + x * y + tc.exp(x * 0.1) * x,
    "x y x": lambda x, y: x * y * x,
    "(x + y) (x - y)": lambda x, y: (x + y) * (x - y),
    "sin(x + y) + x": lambda x, y: tc.sin(x + y) + x,
    "tanh(exp(x y))": lambda x, y: tc.tanh(tc.exp(x * y * 0.1)) + x + y,
    "reshape": lambda x, y: tc.reshape(x + y, (2, -1)) * tc.reshape(x, (2, -1)),
    "views": lambda x, y: x[::2] * y[1::2] + tc.flip(x)[::2],
    "concat": lambda x, y: tc.concat([x, y, x]) * tc.concat([y, x, y]),
    "stack": lambda x, y: tc.tanh(tc.stack([x, y, x + y])),
    "broadcast": lambda x, y: tc.broadcast_to(x, (3, N)) * y + x,
    "sum": lambda x, y: tc.sum(x * y) * x + y,
    "mean": lambda x, y: tc.mean(x) * y + tc.mean(y) * x,
    "unstack": lambda x, y: tc.unstack(tc.stack([x, y]))[0] * y,
    "same twice": lambda x, y: (x + x) * (y + y),
    "identity": lambda x, y: (+x) + (+y) + tc.astype(x, "float64") * 1.0,
    "where": lambda x, y: tc.where(x > y, x * y, tc.sin(x)) + x,
    "relu": lambda x, y: tc.relu(x) * tc.relu(y) + tc.relu(x + y),
    "maximum": lambda x, y: tc.maximum(x, y) + tc.minimum(x, y) * x,
    "softmax": lambda x, y: tc.softmax(x) * y * 100.0 + tc.logsumexp(y) * x,
    "take": lambda x, y: tc.take(x, tc.arange(N)) * y + x,
    "permute": lambda x, y: tc.permute_dims(tc.reshape(x, (4, -1)), (1, 0)) * tc.reshape(y, (-1, 4)),
    "negative": lambda x, y: tc.negative(-x) + (-y) - x * 3.0,
    "matmul": lambda x, y: tc.reshape(x, (200, 200)) @ tc.reshape(y, (200, 200)) + tc.sum(x),
}


def arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(N), rng.standard_normal(N)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_that_others_can_see_is_overwritten(name: str) -> None:
    f, raw = FUNCTIONS[name], arrays()
    kept = [a.copy() for a in raw]
    x, y = (tc.asarray(a) for a in raw)

    def body(x: Any, y: Any) -> tuple[Any, Any]:
        a, b = x * 1.0, y + 0.0
        return a, f(a, b)

    with tc.GradientTape(persistent=True) as tape:
        tape.watch([x, y])
        a, z = body(x, y)
    value = z.numpy()
    seed = np.random.default_rng(1).standard_normal(z.shape)
    seed_kept = seed.copy()
    first = tape.gradient(z, [x, y, a], output_gradients=seed, unconnected_gradients="zero")
    found = [g.numpy() for g in first]
    assert np.array_equal(seed, seed_kept)
    again = tape.gradient([z, z], [x, y, a], output_gradients=[seed, seed], unconnected_gradients="zero")
    for g, g2, before in zip(first, again, found, strict=True):
        assert np.array_equal(g.numpy(), before), "a second sweep leaves the first one's results alone"
        np.testing.assert_allclose(g2.numpy(), 2 * before, rtol=1e-12, atol=1e-12)
    with tc.GradientTape() as once:
        once.watch([x, y])
        a, z = body(x, y)
    for g, before in zip(once.gradient(z, [x, y, a], seed, unconnected_gradients="zero"), found, strict=True):
        assert np.array_equal(g.numpy(), before), "nor does it depend on what is kept"
    assert np.array_equal(z.numpy(), value)
    assert all(np.array_equal(array, copy) for array, copy in zip(raw, kept, strict=True))
    with tape:
        z = body(x, y)[1]
    with tc.GradientTape():  # the sweep on Tensors reuses nothing
        slow = tape.gradient(z, [x, y], seed, unconnected_gradients="zero")
    for g, before in zip(slow, found, strict=False):
        np.testing.assert_allclose(g.numpy(), before, rtol=1e-10, atol=1e-10)


def test_an_update_with_a_gradient_leaves_the_gradient_alone() -> None:
    v, w = tc.Variable(arrays()[0]), tc.Variable(arrays()[1])
    with tc.GradientTape() as tape:
        y = tc.sum(v + w)
    dv, dw = tape.gradient(y, [v, w])
    v.assign_sub(dv)
    v.assign_add(dw)
    assert np.all(dv.numpy() == 1.0)
    assert np.all(dw.numpy() == 1.0)
    assert np.array_equal(v.numpy(), arrays()[0] - 1.0 + 1.0)


def test_a_custom_cotangent_that_is_the_seed_itself_survives() -> None:
    x = tc.asarray(arrays()[0])
    seed = tc.asarray(arrays()[1])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = (x + 0.0) * 2.0 * x
    before = seed.numpy()
    tape.gradient(y, x, output_gradients=seed)
    assert np.array_equal(seed.numpy(), before)
