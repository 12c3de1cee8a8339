"""Names of PyTorch, Keras, optax and flax: the error says what it is here, and what it says exists."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import tape_core as tc
import tape_nn as nn
from tape_nn.hints import SPACES


@pytest.mark.parametrize(
    ("get", "text"),
    [
        (lambda: nn.CrossEntropyLoss, r"here it is nn.losses.SparseCategoricalCrossentropy\(from_logits=True\)"),
        (lambda: nn.MSELoss, r"module 'tape_nn' has no attribute 'MSELoss'; here it is nn.losses.MeanSquaredError\(\)"),
        (lambda: nn.Linear, r"here it is nn.Dense\(units\)"),
        (lambda: nn.ReLU, "here it is tc.relu; any function"),
        (lambda: nn.Parameter, r"here it is tc.Variable\(value\)"),
        (lambda: nn.optim, "here it is nn.SGD, nn.Adam"),
        (lambda: nn.init, "here it is nn.initializers"),
        (lambda: nn.Denze, "did you mean 'Dense'"),
        (lambda: nn.functional.cross_entropy, r"here it is tc.mean\(tc.cross_entropy"),
        (lambda: nn.functional.relu, "here it is tc.relu"),
        (lambda: nn.initializers.xavier_uniform_, "here it is 'glorot_uniform'"),
        (lambda: nn.losses.MSELoss, "here it is nn.losses.MeanSquaredError"),
        (
            lambda: nn.Dense(2).parameters,
            "'Dense' object has no attribute 'parameters'; here it is trainable_variables",
        ),
        (lambda: nn.Dense(2).forward, "here it is __call__"),
        (lambda: nn.Adam().zero_grad, "here it is not needed"),
        (lambda: nn.Adam().step, r"here it is apply_gradients\(zip"),
        (lambda: nn.Dense.parameters, "type object 'Dense' has no attribute 'parameters'; here it is trainable_var"),
    ],
)
def test_the_error_says_what_it_is_here(get: Any, text: str) -> None:
    with pytest.raises(AttributeError, match=text):
        get()


def test_all_that_is_named_exists() -> None:
    for names in SPACES.values():
        for text in names.values():
            for package, path in re.findall(r"\b(tc|nn)\.([A-Za-z_0-9.]*[A-Za-z_0-9])", text):
                found: Any = {"tc": tc, "nn": nn}[package]
                for part in path.split("."):
                    found = getattr(found, part)
    for space, owner in {
        "Module": nn.Module,
        "Optimizer": nn.Optimizer,
        "tape_nn": nn,
        "tape_nn.losses": nn.losses,
    }.items():
        for name in SPACES[space]:
            assert not hasattr(owner, name), name


def test_a_property_says_what_it_misses_itself() -> None:
    class Own(nn.Module):
        @property
        def size(self) -> Any:
            return self.widht

    with pytest.raises(AttributeError, match="'Own' object has no attribute 'widht'"):
        _ = Own().size


def test_hints_are_in_nobodys_way() -> None:
    model = nn.Sequential([nn.Dense(2)])
    model(tc.ones((1, 3)))
    assert not hasattr(model, "parameters")
    assert "parameters" not in dir(model)
    assert "zero_grad" not in dir(nn.Adam())
    assert "variables" in dir(model)

    class Own(nn.Module):
        def __init__(self) -> None:
            self.fit = 3

        def parameters(self) -> int:
            return 4

    assert (Own().fit, Own().parameters()) == (3, 4)
    assert {"fit", "parameters"} <= set(dir(Own()))
    # A `__getattr__` would make every access to an attribute of theirs slower.
    assert not hasattr(nn.Module, "__getattr__")
    assert not hasattr(nn.Optimizer, "__getattr__")
    optimizer = copy.deepcopy(nn.Adam(0.5))
    assert optimizer.learning_rate == 0.5
    assert pickle.loads(pickle.dumps(nn.SGD(0.25))).learning_rate == 0.25
    copied = copy.deepcopy(model)
    assert copied(tc.ones((1, 3))).shape == (1, 2)
