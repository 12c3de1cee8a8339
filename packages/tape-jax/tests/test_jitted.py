"""Kernels under `jax.jit`: one program, another one for other options, none where values are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
from tape_jax import jitted
from tape_jax.jitted import Jitted


@pytest.fixture(autouse=True)
def _in_64_bits() -> Iterator[None]:
    """Have the backend loaded, which switches JAX's 64 bits on, for tests that are run alone, too."""
    with tc.use_backend("jax"):
        yield


def test_arrays_are_arguments_and_options_are_not() -> None:
    traced: list[Any] = []

    @Jitted
    def kernel(x: Any, parts: Any, *, axis: Any = None) -> Any:
        traced.append(axis)
        return sum([part * x for part in parts[0]]), x.sum(axis)

    x = jnp.ones((2, 3))
    for _ in range(3):
        total, summed = kernel(x, ([x, 2.0 * x],), axis=0)
        assert total.tolist() == (3.0 * x).tolist()
        assert summed.shape == (3,)
    assert traced == [0]
    assert kernel(x, ([x],), axis=1)[1].shape == (2,)
    assert kernel(x, ([x, 2],), axis=1)[0].dtype == x.dtype
    assert traced == [0, 1, 1]
    # These are equal, and not the same.
    assert [kernel(jnp.ones(2, int), ([v],))[0].dtype.name for v in (1, 1.0, True)] == ["int64", "float64", "int64"]


def test_numbers_that_are_equal_and_not_the_same() -> None:
    @Jitted
    def kernel(x: Any, value: Any) -> Any:
        return jnp.where(x > 0, x, value)

    x = jnp.asarray([-1.0])
    for _ in range(3):
        assert [bool(jnp.signbit(kernel(x, v))[0]) for v in (0.0, -0.0, complex(0.0, 0.0).real)] == [False, True, False]
        assert [kernel(x, complex(0.0, v)).imag.tolist() for v in (1.0, 2.0)] == [[1.0], [2.0]]
        assert bool(jnp.isnan(kernel(x, float("nan")))[0])
    assert len(kernel._variants) == 5


def test_a_kernel_that_reads_values_is_called_as_it_is() -> None:
    @Jitted
    def kernel(x: Any) -> Any:
        return x if bool(x[0] > 0) else -x

    assert kernel(jnp.asarray([-1.0])).tolist() == [1.0]
    assert kernel(jnp.asarray([2.0])).tolist() == [2.0]
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(kernel)(jnp.ones(2))


def test_a_number_that_always_changes_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitted, "JITTED_MAX_VARIANTS", 5)
    kernel = Jitted(lambda x, scale: x * scale)
    found = [float(kernel(jnp.ones(()), 0.5 * k)) for k in range(20)]
    assert found == [0.5 * k for k in range(20)]
    assert len(kernel._variants) == 5


def test_errors_of_a_kernel_are_its_own() -> None:
    x = tc.ones((2, 3), backend="jax")
    with pytest.raises(ValueError, match=r"axis 5"):
        tc.softmax(x, axis=5)


def test_small_networks_give_the_gradients_of_numpy() -> None:
    def gradients(backend: str) -> Any:
        rng = np.random.default_rng(0)
        x, w = (tc.asarray(rng.normal(size=shape), backend=backend) for shape in ((2, 9, 9, 3), (3, 3, 3, 4)))

        def loss(w: Any) -> Any:
            y = tc.conv(x, w, stride=2, padding="same")
            return tc.sum(y * y)

        return tc.grad(loss)(w).numpy()

    np.testing.assert_allclose(gradients("jax"), gradients("numpy"), rtol=1e-12)
