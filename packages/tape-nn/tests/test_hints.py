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


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda v: nn.Adam(lr=1e-3), "Adam has no argument 'lr'; here it is learning_rate"),
        (lambda v: nn.Adam([v], lr=1e-3), "Adam has no argument 'lr'; here it is learning_rate"),
        (lambda v: nn.AdamW(1e-3, betas=(0.9, 0.99)), "AdamW has no argument 'betas'; here it is beta_1 and beta_2"),
        (lambda v: nn.Adam(1e-3, eps=1e-8), "Adam has no argument 'eps'; here it is epsilon"),
        (lambda v: nn.SGD([v], 0.1), "SGD takes the learning rate first, got 'list': an optimizer is not told its Var"),
        (lambda v: nn.Adam(iter(x for x in [v])), "Adam takes the learning rate first, got 'generator'"),
        (lambda v: nn.Adam(nn.Dense(2)), "Adam takes the learning rate first, got 'Dense'"),
        (lambda v: nn.Adam(v), "Adam takes the learning rate first, got 'Variable'"),
    ],
    ids=["lr", "lr after a list", "betas", "eps", "list", "generator", "module", "variable"],
)
def test_arguments_of_optimizers_of_other_libraries(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        make(tc.Variable([1.0]))


def test_optimizers_still_take_what_they_take() -> None:
    for rate in (0.1, tc.asarray(0.1), nn.schedules.CosineDecay(0.1, decay_steps=10), lambda step: 0.1):
        optimizer = copy.deepcopy(nn.Adam(rate, epsilon=1e-8))
        optimizer.apply_gradients([(tc.asarray(1.0), tc.Variable(1.0))])
    assert pickle.loads(pickle.dumps(nn.SGD(0.5))).learning_rate == 0.5


def test_an_optimizer_of_ones_own_may_have_any_arguments() -> None:
    class Descent(nn.SGD):
        def __init__(self, lr: float = 0.1, **others: Any) -> None:
            super().__init__(lr, **others)

    class Watching(nn.SGD):
        def __init__(self, model: nn.Module, rate: float) -> None:
            super().__init__(rate)
            self.model = model

    class Renamed(nn.Adam):
        pass

    assert Descent(lr=0.25, momentum=0.5).learning_rate == 0.25
    assert Watching(nn.Dense(2), 0.5).learning_rate == Watching(model=nn.Dense(2), rate=0.5).learning_rate == 0.5
    with pytest.raises(TypeError, match="Renamed has no argument 'lr'; here it is learning_rate"):
        Renamed(lr=0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["forward", "call"])
def test_a_module_that_is_written_as_one_of_another_library_says_what_to_rename(name: str) -> None:
    written = type("Net", (nn.Module,), {name: lambda self, x: x})
    text = f"Net cannot be called, since it has a method '{name}' and no '__call__': .*rename Net.{name}"
    with pytest.raises(TypeError, match=text):
        written()(1.0)
    with pytest.raises(TypeError, match=text):
        nn.Sequential([written()])(tc.ones(2))

    class Called(written):  # type: ignore[misc, valid-type]
        def __call__(self, x: float) -> float:
            return 2.0 * float(getattr(self, name)(x))

    class Mixin:
        def __call__(self, x: float) -> float:
            return 3.0 * float(getattr(self, name)(x))

    class Mixed(written, Mixin):  # type: ignore[misc, valid-type]
        pass

    assert Called()(1.0) == 2.0
    assert Mixed()(1.0) == 3.0
