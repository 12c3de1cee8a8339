"""Constants of a trace on JAX's arrays are computed without a program of XLA for each, and with every check."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.constants import evaluated


@pytest.fixture(autouse=True)
def _on_jax():
    with tc.use_backend("jax"):
        yield


def test_masks_and_matrices_of_a_trace_compile_nothing(programs):
    def f(x):
        n = x.shape[0]
        mask = tc.tril(tc.ones((n, n), dtype=tc.float64)) - tc.eye(n, dtype=tc.float64)
        other = tc.stack([tc.zeros(n), tc.full((n,), 2.5)])[:, ::-1].T
        row = tc.where(tc.arange(n) < 2, 1.0, -0.0)
        return (mask.T * 3 + row) @ x, other[0] * x[:2], -tc.zeros_like(x)

    x = tc.asarray(np.sin(np.arange(37.0)))
    compiled = tc.function(f, compile="xla")
    before = len(programs)
    found = compiled(x)
    assert len(programs) - before == 1
    for a, b in zip(found, f(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)
        assert a.dtype is b.dtype
    assert np.signbit(found[2].numpy()).all()


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (jax.numpy.eye, (3, 4), {"k": 1, "dtype": "float32"}),
    (lambda x: x.T[None, 1:, ::2].astype("float32"), (np.arange(12.0).reshape(3, 4),), {}),
    (lambda x: -x * 3 + (x > 4) - x.reshape(2, 6).sum(), (np.arange(12),), {}),
    (lambda x, y: jax.numpy.where(x > 0, x, y), (np.array([1, -2.0, 0.0]), np.array([np.nan, -0.0, 3])), {}),
    (jax.numpy.unstack, (np.arange(6.0).reshape(2, 3),), {"axis": 1}),
    (lambda x: (jax.numpy.exp(x), x.dtype == "float64"), (np.arange(3.0),), {}),
    (lambda x: x * 1j, (np.arange(3.0),), {}),
    (lambda x: jax.numpy.flip(jax.numpy.concatenate([x, x], axis=1)), (np.ones((2, 2), np.int8),), {}),
    (lambda x: x.astype("int8"), (np.array([300.0, -2.5]),), {}),
    (lambda: jax.numpy.asarray(2), (), {}),
    (lambda x: (x / 3, x / np.float32(0), x[:1] / 7), (np.array([1, -2.5, 0, np.inf, np.nan], np.float32),), {}),
    (lambda x: (x[0] / 3, x[1] / 7, x[0] / jax.numpy.asarray(0), x[2] / 0.0), (np.array([1, -2.5, 0]),), {}),
    (lambda x: x / x[::-1], (np.array([1, 5, -7]),), {}),
    (lambda x: x / x[::-1], (np.array([1 + 2j, 5, 1j]),), {}),
    # XLA takes subnormal numbers for zeros.
    (lambda x: (x / 3, x * 3, x + 1, x - x[::-1], x > 0), (np.array([4e-39, 1.2e-38, 3], np.float32),), {}),
    (lambda x: x * 0.4 == 0, (np.array([3e-308, 1.0]),), {}),
    (lambda x: jax.lax.pad(x, 2.5, ((1, 2, 0), (0, 1, 2))), (np.arange(6.0).reshape(2, 3),), {}),
    (lambda x: jax.lax.pad(x, np.float32(-0.0), ((-1, 3, 1), (4, -2, 0))), (np.ones((4, 3), np.float32),), {}),
    (lambda x: jax.lax.pad(x, 7, ((-2, -3, 1), (1, 0, 0))), (np.arange(8).reshape(4, 2),), {}),
    (lambda x: jax.lax.pad(x, 1.0, ((1, 1, 2),)), (np.ones(0),), {}),
]


@pytest.mark.parametrize("k", range(len(CALLS)))
def test_values_dtypes_and_bits_are_those_of_jax(k):
    function, args, kwargs = CALLS[k]
    args = tuple([jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in args])
    found, expected = (
        jax.tree.leaves(value) for value in (evaluated(function, args, kwargs), function(*args, **kwargs))
    )
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array):
            assert (a.dtype, a.shape, a.weak_type, a.committed) == (b.dtype, b.shape, b.weak_type, b.committed)
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_cotangents_that_are_constants_compile_nothing(programs):
    def f(x):
        with tc.GradientTape() as outer:
            outer.watch(x)
            with tc.GradientTape() as inner:
                inner.watch(x)
                y = tc.sum(x[:, 1:] * 3 + 1) / 7 + tc.mean(x[2]) + tc.sum(x[1::2, 0])
            g = inner.gradient(y, x)
            loss = tc.mean(g * x**2)
        return outer.gradient(loss, x)

    x = tc.asarray(np.cos(np.arange(55.0)).reshape(11, 5))
    compiled = tc.function(f, compile="xla")
    before = len(programs)
    found = compiled(x)
    assert len(programs) - before == 1
    g = np.zeros((11, 5))
    g[:, 1:] = 3 / 7
    g[2] += 1 / 5
    g[1::2, 0] += 1
    np.testing.assert_allclose(found.numpy(), 2 * g * x.numpy() / 55, rtol=1e-12)


def test_constants_are_checked_as_in_eager_code():
    @tc.function(compile="xla")
    def f(x):
        return x + tc.linalg.solve_triangular(tc.zeros((2, 2)), tc.ones((2, 1)))

    with pytest.raises(ValueError, match="singular"):
        f(tc.zeros(2))


def test_python_may_decide_by_constants_of_a_trace():
    @tc.function(compile="xla")
    def f(x):
        signs = tc.ones(3) - 2 * tc.eye(3)[1]
        return x * 2 if float(signs[1]) < 0 and not bool(tc.any(signs > 1)) else x

    assert f(tc.ones(2)).tolist() == [2.0, 2.0]


def test_slots_of_any_shape_are_filled_without_compiling(programs):
    array = jax.device_put(np.ones((11, 13), np.float32))
    before = len(programs)
    xp = tc.get_backend().xp
    found = [xp.full_like(array, 0.5), xp.full_like(array, 3, dtype=np.dtype("int32"))]
    assert len(programs) == before
    assert [x.dtype.name for x in found] == ["float32", "int32"]
    np.testing.assert_array_equal(found[0], np.full((11, 13), 0.5, np.float32))
    np.testing.assert_array_equal(found[1], np.full((11, 13), 3, np.int32))
