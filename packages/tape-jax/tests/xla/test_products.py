"""Products whose first factor is transposed: XLA transposes it before, where its library of products is faster then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tape_jax.xla import products

RNG = np.random.default_rng(3)


def transposed_before(f: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float64") -> int:
    """Return how many arrays XLA is told to have in memory, after a check of what it computes."""
    args = [tc.asarray(RNG.standard_normal(shape), dtype=dtype) for shape in shapes]
    compiled = tc.function(f, compile="xla")
    compiled(*args)
    tolerance = 1e-3 if dtype == "float32" else 1e-11
    for found, expected in zip(tc.tree_leaves(compiled(*args)), tc.tree_leaves(f(*args)), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    segment = compiled._compiled.all[0].run.segment
    examples = [jax.ShapeDtypeStruct(x.shape, x.dtype.name) for x in args]
    return str(jax.make_jaxpr(segment._traced)([], segment.large, *examples)).count("optimization_barrier")


def loss(w: tc.Tensor, x: tc.Tensor) -> tc.Tensor:
    return tc.sum(tc.tanh(x @ w) ** 2)


@pytest.mark.skipif(not products._HAS_LIBRARY, reason="this XLA has no library of products")
@pytest.mark.usefixtures("backend")
def test_gradients_of_weights_and_other_transposed_factors_are_laid_out() -> None:
    assert transposed_before(tc.grad(loss), (32, 64), (128, 32)) == 1
    assert transposed_before(lambda x, y: x.T @ y, (64, 64), (64, 64)) == 1
    assert transposed_before(lambda x, y: tc.matrix_transpose(x) @ y, (2, 64, 64), (2, 64, 64)) == 1
    # Not where XLA is as fast without: few columns, small products, other dtypes, the second factor.
    assert transposed_before(tc.grad(loss), (64, 10), (256, 64)) == 0
    assert transposed_before(tc.grad(loss), (4, 64), (8, 4)) == 0
    assert transposed_before(tc.grad(loss), (32, 64), (128, 32), dtype="float32") == 0
    assert transposed_before(lambda x, y: y @ x.T, (64, 64), (64, 64)) == 0
    assert transposed_before(lambda x, y: x.T @ y, (64, 64), (64,)) == 0


@pytest.mark.skipif(not products._HAS_LIBRARY, reason="this XLA has no library of products")
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_those_of_a_batch_are_laid_out_if_they_are_small(dtype: str) -> None:
    def gradients(w: tc.Tensor, x: tc.Tensor) -> Any:
        return tc.vmap(tc.grad(loss))(w, x)

    def of_gradients(w: tc.Tensor, x: tc.Tensor) -> Any:
        return tc.grad(lambda w: tc.sum(gradients(w, x) ** 2))(w)

    def product(x: tc.Tensor, y: tc.Tensor) -> Any:
        return tc.matrix_transpose(x) @ y

    assert transposed_before(gradients, (3, 6, 7), (3, 5, 6), dtype=dtype) == 1
    assert transposed_before(of_gradients, (3, 6, 7), (3, 5, 6), dtype=dtype) >= 2
    assert transposed_before(product, (2, 40, 8), (2, 40, 8), dtype=dtype) == (dtype == "float64")
    assert transposed_before(product, (2, 3, 8), (2, 3, 8), dtype=dtype) == 0  # few rows
    assert transposed_before(product, (2, 8, 8), (2, 8, 1), dtype=dtype) == 0  # few columns
    assert transposed_before(product, (8, 8), (2, 8, 8), dtype=dtype) == 0  # one factor for all


@pytest.mark.usefixtures("backend")
def test_derivatives_are_those_of_jax_and_of_differences() -> None:
    w, x, v = (RNG.standard_normal(shape) / 8 for shape in ((64, 64), (64, 64), (64, 64)))

    def by_jax(w: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    def both(w: tc.Tensor, x: tc.Tensor, v: tc.Tensor) -> Any:
        def f(w: tc.Tensor) -> tc.Tensor:
            return loss(w, x)

        return tc.grad(f)(w), tc.hvp(f, (w,), (v,))[0]

    compiled = tc.function(both, compile="xla")
    given = [tc.asarray(a) for a in (w, x, v)]
    gradient, along = (found.numpy() for found in compiled(*given))
    np.testing.assert_allclose(gradient, jax.grad(by_jax)(w), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(along, jax.jvp(jax.grad(by_jax), (w,), (v,))[1], rtol=1e-10, atol=1e-12)
    step = 1e-5
    ahead, behind = (compiled(tc.asarray(w + d * v), *given[1:]) for d in (step, -step))
    np.testing.assert_allclose((ahead[0].numpy() - behind[0].numpy()) / (2 * step), along, atol=1e-7)
    value = (by_jax(w + step * v) - by_jax(w - step * v)) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * v), value, rtol=1e-7)


def test_products_on_a_mesh_in_loops_and_in_exported_files(tmp_path: Any) -> None:
    with tc.use_backend("jax"):
        x = tc.asarray(RNG.standard_normal((64, 64)) / 8)

        @tc.function(compile="xla")
        def looped(x: tc.Tensor) -> tc.Tensor:
            return tc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1].T @ x), (tc.asarray(0), x))[1]

        expected = x.numpy()
        for _ in range(3):
            expected = expected.T @ x.numpy()
        np.testing.assert_allclose(looped(x).numpy(), expected, rtol=1e-10, atol=1e-12)
        mesh = Mesh(np.asarray(jax.devices()[:1]), ("data",))
        divided = jax.device_put(x.array, NamedSharding(mesh, PartitionSpec("data")))
        f = tc.function(lambda x: x.T @ x @ (x.T @ x), compile="xla")
        np.testing.assert_allclose(
            f(tc.asarray(divided)).numpy(), x.numpy().T @ x.numpy() @ x.numpy().T @ x.numpy(), rtol=1e-9, atol=1e-11
        )
        path = tmp_path / "f.bin"
        f.export(path, x, format="stablehlo", derivatives=1)
        from jax import export

        called = export.deserialize(bytearray(path.read_bytes())).call
        np.testing.assert_allclose(called(x.array)[0], f(x).numpy(), rtol=1e-10, atol=1e-12)
        found = jax.grad(lambda x: called(x)[0].sum())(x.array)
        wanted = jax.grad(lambda x: (x.T @ x @ (x.T @ x)).sum())(x.array)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
