"""Tape inside `jax.shard_map`, where the type of an array says along which axes of the mesh it differs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from jax.sharding import AxisType, PartitionSpec
from numpy.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("on_jax")

X = np.array([[0.3, -0.5, 0.2], [0.1, 0.7, -0.4]])
ROWS, WHOLE = PartitionSpec("rows"), PartitionSpec()


def zeros(*shape):
    return tc.zeros(shape, dtype="float64")


def cell(h, r):
    return tc.tanh(h + r), h


PROGRAMS = {
    "a scan from zeros": lambda x: tc.scan(cell, zeros(3), x)[1],
    "its gradient": lambda x: tc.grad(lambda x: tc.sum(tc.scan(cell, zeros(3), x)[0] * x[1]))(x),
    "a nested scan": lambda x: tc.scan(lambda h, r: (tc.scan(cell, zeros(), r)[0] + h, h), zeros(), x)[1],
    "a while_loop from zeros": lambda x: tc.while_loop(
        lambda c: c[1] < 3, lambda c: (c[0] + tc.sin(x), c[1] + 1), (zeros(2, 3), tc.asarray(0))
    )[0],
    "a cond with a constant": lambda x: tc.cond(x[0, 0] > 0, lambda x: x * x, lambda x: zeros(2, 3), x),
    "the gradient of one": lambda x: tc.grad(lambda x: tc.cond(x[0, 0] > 0, lambda: tc.sum(x**2), zeros))(x),
    "the gradient of a row": lambda x: tc.grad(lambda x: tc.sum(x[0] ** 3))(x),
    "a Jacobian": lambda x: tc.jacrev(lambda x: tc.sin(x[0]))(x),
    "a Hessian": lambda x: tc.hessian(lambda x: tc.sum(tc.sin(x[0]) * x[1]))(x),
    "a product's gradient": lambda x: tc.grad(lambda x: tc.sum(tc.cumulative_prod(x, axis=1)))(x),
    "a convolution's gradients": lambda x: tc.grad(
        lambda w, x: tc.sum(tc.conv(x[None], w) ** 2), (0, 1)
    )(tc.ones((2, 3, 1), dtype="float64"), x)[1],
}  # fmt: skip


def on_a_mesh(f, arguments, results):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Auto,))
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=arguments, out_specs=results))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_make_arrays_of_their_own(name):
    f = PROGRAMS[name]
    found = on_a_mesh(lambda x: f(tc.asarray(x)).array, ROWS, ROWS)(X)
    assert_allclose(found, f(tc.asarray(X)).array, rtol=1e-12, atol=1e-14)


def test_jax_differentiates_such_programs():
    f = PROGRAMS["a scan from zeros"]
    found = on_a_mesh(jax.grad(lambda x: jnp.sum(f(tc.asarray(x)).array)), ROWS, ROWS)(X)
    assert_allclose(found, tc.grad(lambda x: tc.sum(f(x)))(tc.asarray(X)).array, rtol=1e-12)


def test_a_scan_of_what_all_devices_have_alike_stays_so():
    def trained(w, rows, mean):
        def step(w, r):
            return w - 0.1 * mean(tc.grad(lambda w: (tc.sum(w * r) - 1.0) ** 2)(w)), None

        return tc.scan(step, w, rows)[0]

    def on_one_device(w, rows):
        mean = lambda g: tc.asarray(jax.lax.pmean(g.array, "rows"))  # noqa: E731
        return trained(tc.asarray(w), tc.asarray(rows), mean).array

    found = on_a_mesh(on_one_device, (WHOLE, ROWS), WHOLE)(jnp.ones(3), X)
    assert_allclose(found, trained(tc.ones(3, dtype="float64"), tc.asarray(X), lambda g: g).array, rtol=1e-12)


def test_the_derivatives_of_a_fixed_point():
    f = lambda x: tc.sum(tc.fixed_point(lambda z, x: tc.cos(z) * x, tc.zeros_like(x), x) ** 2)  # noqa: E731
    found = on_a_mesh(lambda x: tc.grad(f)(tc.asarray(x)).array, ROWS, ROWS)(X)
    assert_allclose(found, tc.grad(f)(tc.asarray(X)).array, rtol=1e-4, atol=1e-6)


def newton(x):
    return tc.scan(lambda z, _: (z - (z**3 + z - x) / (3 * z**2 + 1), None), tc.zeros_like(x), None, length=20)[0]


def test_the_derivatives_of_a_root():
    def gradient(x, linear="dense"):
        root = tc.custom_root(lambda z, x: z**3 + z - x, newton, linear_solver=linear)
        return tc.grad(lambda x: tc.sum(root(x) ** 2))(tc.asarray(x)).array

    assert_allclose(on_a_mesh(gradient, ROWS, ROWS)(X), gradient(X), rtol=1e-6)
    with pytest.raises(NotImplementedError, match=r"does not run inside jax\.shard_map"):
        on_a_mesh(lambda x: gradient(x, "gmres"), ROWS, ROWS)(X)
