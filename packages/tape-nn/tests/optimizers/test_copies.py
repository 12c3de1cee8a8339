"""Copies of optimizers with their models, and pickled ones, go on as the originals do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn


def _grouped(model: Any) -> Any:
    slow = nn.ParameterGroup([model.layers[0].kernel], learning_rate=0.01)
    optimizer = nn.AdamW(0.1, weight_decay=0.5, groups=[slow])
    optimizer.exclude_from_weight_decay([model.layers[1].kernel])
    return optimizer


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda model: nn.SGD(0.1, momentum=0.9),
    "Adam": lambda model: nn.Adam(0.1),
    "groups": _grouped,
    "accumulation": lambda model: nn.GradientAccumulation(nn.Adam(0.1), 2),
    "loss scaler": lambda model: nn.LossScaler(nn.Adam(0.1)),
    "transformation": lambda model: nn.TransformOptimizer(nn.transforms.adam(0.1), model),
}
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda both: pickle.loads(pickle.dumps(both))}


def _step(model: Any, optimizer: Any) -> None:
    x = tc.asarray(np.linspace(-1, 1, 12).reshape(4, 3), dtype=tc.float32)
    with tc.GradientTape() as tape:
        loss = optimizer.scale_loss(tc.mean((model(x) - 1) ** 2))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_copy_goes_on_as_the_original_does(name: str, way: str) -> None:
    if (name, way) == ("transformation", "pickle"):
        pytest.skip("its functions are local ones, which pickle refuses")
    model = nn.Sequential([nn.Dense(3, activation="tanh"), nn.Dense(2)])
    model.build((None, 3))
    optimizer = OPTIMIZERS[name](model)
    for _ in range(3):
        _step(model, optimizer)
    other, its_optimizer = COPIES[way]((model, optimizer))
    for _ in range(3):
        _step(model, optimizer)
        _step(other, its_optimizer)
    for own, copied in zip(model.trainable_variables, other.trainable_variables, strict=True):
        assert own is not copied
        np.testing.assert_array_equal(copied.numpy(), own.numpy())
    expected = optimizer.state_dict(model)
    found = its_optimizer.state_dict(other)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[key]), np.asarray(value), err_msg=key)


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_an_average_is_of_the_copied_variables(way: str) -> None:
    model = nn.Dense(2)
    model.build((None, 3))
    average = nn.ExponentialMovingAverage(model, 0.5)
    average.update()
    other, its_average = COPIES[way]((model, average))
    for one, mean in ((model, average), (other, its_average)):
        one.kernel.assign_add(tc.ones_like(one.kernel))
        mean.update()
    with average.averaged(), its_average.averaged():
        np.testing.assert_array_equal(other.kernel.numpy(), model.kernel.numpy())


def test_the_slots_of_a_copy_move_with_its_variables() -> None:
    pytest.importorskip("tape_torch")
    pytest.importorskip("tape_numpy")
    with tc.use_backend("numpy"):
        model, optimizer = nn.Dense(2), nn.GradientAccumulation(nn.Adam(0.1), 2)
        model.build((None, 3))
        for _ in range(3):
            _step(model, optimizer)
        average = nn.ExponentialMovingAverage(model)
        average.update()
        other, its_optimizer, its_average = copy.deepcopy((model, optimizer, average))
    other.to("torch")
    with tc.use_backend("torch"):
        _step(other, its_optimizer)
        its_average.update()
    assert {v.backend.name for v in tc.tree_leaves(its_optimizer.optimizer._holders()) if v.backend} == {"torch"}
