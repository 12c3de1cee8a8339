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
