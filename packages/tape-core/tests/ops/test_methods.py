"""Methods that libraries call on arrays, and what is said of names that are called otherwise here."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.backends import BackendError

X = np.random.default_rng(0).normal(size=(2, 1, 3)) + 0.1

CALLS = {
    "all": lambda x: (x > -9).all(axis=2),
    "any": lambda x: (x > 0).any(),
    "argmax": lambda x: x.argmax(axis=2),
    "argmin": lambda x: x.argmin(),
    "astype": lambda x: x.astype("float32"),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "conj": lambda x: x.conj(),
    "conjugate": lambda x: (x * 1j).conjugate(),
    "copy": lambda x: x.copy(),
    "cumsum": lambda x: x.cumsum(axis=2),
    "cumsum of all": lambda x: x.cumsum(),
    "flatten": lambda x: x.flatten(),
    "max": lambda x: x.max(axis=(0, 2)),
    "mean": lambda x: x.mean(0),
    "min": lambda x: x.min(axis=-1, keepdims=True),
    "prod": lambda x: x.prod(),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(3, 2),
    "reshape by a tuple": lambda x: x.reshape((-1, 2)),
    "round": lambda x: x.round(),
    "squeeze": lambda x: x.squeeze(),
    "squeeze an axis": lambda x: x.squeeze(axis=1),
    "std": lambda x: x.std(axis=(0, 2)),
    "sum": lambda x: x.sum(axis=1),
    "var": lambda x: x.var(),
    "var of a sample": lambda x: x.var(axis=2, ddof=1, keepdims=True),
    "transpose": lambda x: x.transpose(),
    "transpose in an order": lambda x: x.transpose(2, 0, 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_method_gives_what_numpy_gives_and_its_derivative(name: str) -> None:
    call: Any = CALLS[name]
    expected = call(X)
    for made in (tc.asarray(X), tc.Variable(X)):
        found = call(made)
        assert found.shape == expected.shape
        assert found.dtype.name == expected.dtype.name
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    compiled = tc.function(call)
    assert np.array_equal(compiled(tc.asarray(X)).numpy(), call(tc.asarray(X)).numpy())
    if expected.dtype == np.float64:
        tc.testing.check_grads(call, [tc.asarray(X)])
        assert np.array_equal(tc.vmap(lambda x: call(x).sum())(tc.asarray(np.stack([X, 2 * X]))).shape, (2,))


def test_a_copy_has_memory_of_its_own() -> None:
    array = np.ones(3)
    copy = tc.asarray(array).copy()
    array[:] = 7
    assert copy.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("concatenate", "it is tc.concat here (numpy.concatenate takes Tensors, too"),
        ("dot", "it is tc.matmul here"),
        ("cumsum", "it is tc.cumulative_sum here"),
        ("array", "it is tc.asarray here"),
        ("jit", "it is tc.function here"),
        ("norm", "it is tc.linalg.vector_norm here"),
        ("sigmod", "did you mean tc.sigmoid?"),
        ("median_of_nothing", "module 'tape_core' has no attribute 'median_of_nothing'"),
    ],
)
def test_a_name_that_is_not_there_says_what_is(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(said)) as caught:
        getattr(tc, name)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert not hasattr(tc, name)


def test_each_hint_names_what_is_there() -> None:
    from tape_core.engine.hints import _HERE

    for name, here in _HERE.items():
        assert not hasattr(tc, name), name
        found: Any = tc
        for part in here.split(".") if "(" not in here else ():
            found = getattr(found, part)


def test_to_device_moves_and_its_gradient_travels_back() -> None:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x.to_device(x.device) ** 2
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    with pytest.raises(BackendError, match="warp:42"):
        x.to_device("warp:42")
