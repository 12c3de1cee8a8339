"""Values of Variables are packed only where that is noticed: XLA takes long to compile the code of each in a pack."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from tape_compile.extend import Instruction, Ref, Spec
from tape_jax import devices
from tape_jax.xla.work import least_seconds


@pytest.mark.skipif(devices.several(), reason="values are kept on a single device")
@pytest.mark.parametrize(("n", "packed"), [(4, True), (500, False)])
@pytest.mark.parametrize("donate_variables", [False, True])
def test_small_variables_beside_long_arithmetic(backend, n, packed, donate_variables):
    x = np.cos(np.arange(n * n, dtype=np.float32)).reshape(n, n) / n
    variables = [tc.Variable(tc.zeros((k + 2, 3))) for k in range(4)]

    @tc.function(compile="xla", donate_variables=donate_variables)
    def step(x):
        loss = tc.sum(x @ x)
        for k, v in enumerate(variables):
            v.assign(v * 0.5 + loss + k)
        return loss

    expected = np.zeros(4)
    given = tc.asarray(x)
    total = (x.astype(np.float64) @ x).sum()
    for count in range(4):
        if count == 2:
            variables[1].assign(variables[1] + 8.0)
            expected[1] += 8
        np.testing.assert_allclose(float(step(given)), total, rtol=1e-3, atol=1e-5)
        expected = expected * 0.5 + total + np.arange(4)
        if count != 1:  # read at some times only
            for v, value in zip(variables, expected, strict=True):
                np.testing.assert_allclose(v.numpy(), np.full(v.shape, value), rtol=1e-3, atol=1e-5)
    (compiled,) = step._compiled.all
    # Elsewhere, JAX's arrays are never packed.
    assert bool(compiled.run.deferred) is (packed and (backend != "jax" or devices.default().platform == "cpu"))


def test_the_least_time_is_that_of_elements_and_products():
    dtype = np.dtype("float32")
    specs = dict(enumerate([
        Spec(np.ndarray, (100, 30), dtype), Spec(np.ndarray, (30, 50), dtype), Spec(np.ndarray, (100, 50), dtype),
        Spec(np.ndarray, (-1, 50), dtype), Spec(int, (), None),
    ]))  # fmt: skip

    def call(name, args, out):
        return Instruction(name, np.add, tuple(map(Ref, args)), {}, out, None)

    added = least_seconds([call("add", [2, 2], 2)], specs)
    product = least_seconds([call("matmul", [0, 1], 2)], specs)
    assert 0 < added < product < 1e-5
    assert least_seconds([call("matmul", [0, 1], 2), call("add", [2, 2], 2)], specs) == pytest.approx(product + added)
    # Nothing is known of what has no length, and numbers are free.
    assert least_seconds([call("add", [3, 3], 3), call("count", [4], 4)], specs) == 0
