"""Dense, Sequential and what is drawn first."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_nn import initializers


def test_dense_computes() -> None:
    layer = nn.Dense(2, kernel_initializer=initializers.constant(0.5), bias_initializer="ones")
    assert layer(tc.asarray([[1.0, 2.0, 3.0], [0.0, 0.0, -4.0]])).tolist() == [[4, 4], [-1, -1]]
    layer = nn.Dense(2, activation="relu", use_bias=False, kernel_initializer="ones")
    assert layer(tc.asarray([[1.0, 2.0], [-3.0, 1.0]])).tolist() == [[3, 3], [0, 0]]
    assert [name for name, _ in layer.named_variables()] == ["kernel"]


def test_dense_is_built_from_its_first_input() -> None:
    layer = nn.Dense(4)
    assert layer.variables == ()
    layer(np.ones((2, 5, 3), dtype=np.float64))
    assert layer.kernel is not None
    assert layer.bias is not None
    assert (layer.kernel.shape, layer.bias.shape) == ((3, 4), (4,))
    assert layer.kernel.dtype is layer.bias.dtype is tc.float64
    assert (layer.kernel.name, layer.bias.name) == ("kernel", "bias")
    kernel = layer.kernel
    layer(np.ones(3))
    assert layer.kernel is kernel


@pytest.mark.parametrize("x", [[[1, 2]], np.asarray([[1, 2]], dtype=np.uint8)])
def test_dense_takes_integers(x: Any) -> None:
    layer = nn.Dense(1, kernel_initializer="ones")
    out = layer(x)
    assert out.dtype is tc.float32
    assert out.tolist() == [[3.0]]


def test_dense_takes_gradients_from_its_first_call_on() -> None:
    layer = nn.Dense(1, kernel_initializer="ones")
    with tc.GradientTape() as tape:
        loss = tc.sum(layer(tc.asarray([[1.0, 2.0]])))
    kernel, bias = tape.gradient(loss, layer.trainable_variables)
    assert kernel.tolist() == [[1], [2]]
    assert bias.tolist() == [1]


def test_variables_watched_before_the_first_call_are_none() -> None:
    # As in TensorFlow's documentation of watch_accessed_variables.
    a, b = nn.Dense(2), nn.Dense(2)
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(a.variables)  # not built: there is nothing to watch
        result = b(a(tc.ones((1, 2))))
    assert tape.gradient(result, a.variables) == (None, None)


def test_dense_messages() -> None:
    layer = nn.Dense(2)
    layer(tc.ones((1, 3)))
    message = "Dense was built for inputs with 3 numbers on the last axis; got shape (1, 4)"
    with pytest.raises(ValueError, match=re.escape(message)):
        layer(tc.ones((1, 4)))
    with pytest.raises(ValueError, match=r"Dense takes inputs of shape \(\.\.\., features\); got shape \(\)"):
        nn.Dense(2)(1.0)
    with pytest.raises(ValueError, match=r"unknown activation 'rleu'; .* relu, gelu"):
        nn.Dense(2, activation="rleu")
    with pytest.raises(ValueError, match=r"activation is 2, a number: .* nn\.Dense\(2\)"):
        nn.Dense(4, 2)  # type: ignore[arg-type] # only the outputs are given
    with pytest.raises(ValueError, match=r"unknown initializer 'glorot'; .* glorot_uniform"):
        nn.Dense(2, kernel_initializer="glorot")
    with pytest.raises(ValueError, match="units must be at least 1; got 0"):
        nn.Dense(0)
    with pytest.raises(TypeError, match="integer"):
        nn.Dense(2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", nn.layers.ACTIVATIONS)
def test_activations_by_name(name: str) -> None:
    x = tc.asarray([[-1.0, 2.0]])
    layer = nn.Dense(2, activation=name)
    assert layer.activation is getattr(tc, name)
    layer(x)
    assert layer.kernel is not None
    np.testing.assert_array_equal(layer(x).numpy(), getattr(tc, name)(tc.matmul(x, layer.kernel)).numpy())


def test_sequential() -> None:
    def double(x: tc.Tensor) -> tc.Tensor:
        return 2 * x

    first = nn.Dense(1, kernel_initializer="ones")
    model = nn.Sequential([first, double, nn.Sequential([nn.Dense(3)])])
    x = tc.asarray([[1.0, 2.0]])
    assert model(x).shape == (1, 3)
    assert model[:2](x).tolist() == [[6]]
    assert model[0] is first
    assert list(model) == [model[0], model[1], model[2]]
    assert len(model) == 3
    assert [name for name, _ in model.named_variables()] == [
        "layers.0.kernel",
        "layers.0.bias",
        "layers.2.layers.0.kernel",
        "layers.2.layers.0.bias",
    ]
    model.layers.append(double)
    assert len(model) == 4
    with pytest.raises(TypeError, match="layer 1 of type 'int' is not callable"):
        nn.Sequential([double, 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"one list: nn\.Sequential\(\[first, second"):
        nn.Sequential(nn.Dense(2), double)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one list"):
        nn.Sequential(nn.Dense(2))  # type: ignore[arg-type]


def test_glorot_uniform() -> None:
    kernel = initializers.glorot_uniform((300, 200), rng=tc.default_rng(0)).numpy()
    limit = math.sqrt(6 / 500)
    assert kernel.dtype == np.float32
    assert np.abs(kernel).max() <= limit
    assert abs(kernel.mean()) < limit / 100
    assert kernel.std() == pytest.approx(limit / math.sqrt(3), rel=0.01)


def test_seeds() -> None:
    def kernel(rng: tc.Generator | None = None) -> list[list[float]]:
        layer = nn.Dense(3, rng=rng)
        layer(tc.ones((1, 2)))
        assert layer.kernel is not None
        values: list[list[float]] = layer.kernel.tolist()
        return values

    assert kernel(tc.default_rng(1)) == kernel(tc.default_rng(1)) != kernel(tc.default_rng(2))
    tc.set_seed(7)
    first, second = kernel(), kernel()
    assert first != second
    tc.set_seed(7)
    assert kernel() == first


def test_dropout_of_whole_examples_takes_their_number_from_the_input() -> None:
    layer = nn.Dropout(0.5, noise_shape=(None, 1), rng=tc.default_rng(0))
    for count in (40, 7):
        found = layer(tc.ones((count, 3)), training=True).numpy()
        assert set(found[:, 0]) == {0.0, 2.0}
        assert (found == found[:, :1]).all()
    with pytest.raises(ValueError, match="noise_shape"):
        nn.Dropout(0.5, noise_shape=(None, 1, 3))(tc.ones((2, 3)), training=True)
