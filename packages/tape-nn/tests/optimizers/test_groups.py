"""Parameter groups: learning rates and weight decay of their own, frozen Variables; compared with PyTorch's groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

pytestmark = pytest.mark.each_backend


def a_model() -> Any:
    tc.set_seed(0)
    model = nn.Sequential([nn.Dense(5, activation="tanh"), nn.Dense(3)])
    model(tc.zeros((1, 4)))
    return model


def data() -> tuple[Any, Any]:
    return tc.default_rng(1).normal((8, 4)), tc.default_rng(2).integers(0, 3, (8,))


def a_step(model: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), y))
            scaled = optimizer.scale_loss(loss)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(scaled, variables), variables, strict=True))
        return loss

    return step


def grouped(model: Any, **options: Any) -> nn.AdamW:
    groups = [
        nn.ParameterGroup(model[0], learning_rate=0.02),
        nn.ParameterGroup(model, "*.bias", weight_decay=0.0, learning_rate_factor=3.0),
    ]
    return nn.AdamW(0.1, weight_decay=0.5, epsilon=1e-10, groups=groups, **options)


def test_groups_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    model = a_model()
    names = [name for name, _ in model.named_variables()]
    theirs = {
        name: torch.tensor(v.numpy().astype("float64"), requires_grad=True) for name, v in model.named_variables()
    }
    assert len(names) == 4
    (w0, b0), (w1, b1) = ([n for n in names if f".{k}." in f".{n}"] for k in (0, 1))
    groups: list[dict[str, Any]] = [
        {"params": [theirs[w0]], "lr": 0.02},
        {"params": [theirs[b0]], "lr": 0.02, "weight_decay": 0.0},  # the first group that gives a rate counts
        {"params": [theirs[w1]]},
        {"params": [theirs[b1]], "lr": 0.1 * 3, "weight_decay": 0.0},
    ]
    other = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5, eps=1e-10)
    x, y = (torch.tensor(a.numpy()) for a in data())
    step = a_step(model, grouped(model))
    for _ in range(4):
        step(*data())
        other.zero_grad()
        hidden = torch.tanh(x.double() @ theirs[w0] + theirs[b0])
        torch.nn.functional.cross_entropy(hidden @ theirs[w1] + theirs[b1], y).backward()
        other.step()
    for name, variable in model.named_variables():
        np.testing.assert_allclose(variable.numpy(), theirs[name].detach().numpy(), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_frozen_variables_stay_and_do_not_count_in_the_norm(compiled: bool) -> None:
    model, reference = a_model(), a_model()
    first = model[0].kernel.numpy()
    group = nn.ParameterGroup(model[0], frozen=True)
    optimizer = nn.SGD(0.5, momentum=0.9, global_clipnorm=0.01, groups=[group])
    step: Any = a_step(model, optimizer)
    step = tc.function(step) if compiled else step
    for v in reference[0].variables:
        v.trainable = False
    expected = nn.SGD(0.5, momentum=0.9, global_clipnorm=0.01)
    for _ in range(3):
        step(*data())
        a_step(reference, expected)(*data())
    np.testing.assert_array_equal(model[0].kernel.numpy(), first)
    np.testing.assert_allclose(model[1].kernel.numpy(), reference[1].kernel.numpy(), rtol=1e-5)
    assert not any(name.startswith(("0.", "layers.0.")) for name in optimizer.state_dict(model))
    group.frozen = False  # a compiled step notices
    step(*data())
    assert (model[0].kernel.numpy() != first).any()


def test_compiled_updates_are_those_of_eager_ones_whatever_is_set_between() -> None:
    def train(compiled: bool) -> Any:
        model = a_model()
        optimizer = grouped(model)
        step: Any = a_step(model, optimizer)
        run = tc.function(retrace="allow")(step) if compiled else step
        run(*data())
        optimizer.groups[0].learning_rate = 0.3
        run(*data())
        optimizer.groups[1].weight_decay = 0.2
        run(*data())
        optimizer.groups[0].learning_rate = nn.schedules.ExponentialDecay(0.1, 2, 0.5)
        run(*data())
        return [v.numpy() for v in model.variables], getattr(run, "traces", None)

    found, traces = train(True)
    expected, _ = train(False)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    assert traces == 3  # a number is read in each run


def test_the_state_has_the_rates_of_groups_and_continues() -> None:
    model = a_model()
    optimizer = grouped(model)
    step = a_step(model, optimizer)
    step(*data())
    optimizer.groups[0].learning_rate = 0.25
    weights, state = model.state_dict(), optimizer.state_dict(model)
    step(*data())
    other = a_model()
    again = grouped(other)
    other.load_state_dict(weights)
    again.load_state_dict(state, other)
    assert again.groups[0].learning_rate == 0.25
    a_step(other, again)(*data())
    for a, b in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_loss_scaler_and_lazy_rows_work_with_groups() -> None:
    model = a_model()
    scaled = a_step(model, nn.LossScaler(grouped(model)))
    reference = a_model()
    plain = a_step(reference, grouped(reference))
    for _ in range(2):
        scaled(*data())
        plain(*data())
    for a, b in zip(model.variables, reference.variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    table = tc.Variable(tc.ones((4, 2)))
    optimizer = nn.SGD(1.0, groups=[nn.ParameterGroup(table, learning_rate=0.5)])
    with tc.GradientTape() as tape:
        loss = tc.sum(tc.gather(table, tc.asarray([1])))
    optimizer.apply_gradients([(tape.gradient(loss, table), table)])
    assert table[:, 0].tolist() == [1.0, 0.5, 1.0, 1.0]


def test_variables_are_chosen_by_function_by_name_and_before_they_are_made() -> None:
    model = nn.Sequential([nn.Dense(3), nn.Dense(2)])
    groups = [
        nn.ParameterGroup(lambda v: v.ndim == 1, frozen=True),
        nn.ParameterGroup(model, lambda name: name.endswith("kernel"), learning_rate=0.0),
    ]
    optimizer = nn.SGD(1.0, groups=groups)
    model(tc.ones((1, 4)))
    before = [v.numpy() for v in model.variables]
    a_step(model, optimizer)(tc.ones((2, 4)), tc.asarray([0, 1]))
    for v, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(v.numpy(), value)


def test_the_text_and_the_mistakes() -> None:
    model = a_model()
    text = repr(grouped(model))
    assert text.startswith("AdamW(learning_rate=0.1")
    assert "groups=[ParameterGroup(Dense, learning_rate=0.02), ParameterGroup(Sequential: '*.bias'," in text
    with pytest.raises(ValueError, match=r"no Variable of Sequential fits '\*.biass'"):
        a_step(model, nn.SGD(0.1, groups=[nn.ParameterGroup(model, "*.biass", frozen=True)]))(*data())
    with pytest.raises(ValueError, match="all variables are frozen by groups"):
        a_step(model, nn.SGD(0.1, groups=[nn.ParameterGroup(model, frozen=True)]))(*data())
    with pytest.raises(TypeError, match="match chooses by the names in a Module"):
        nn.ParameterGroup(model.variables, "*.bias", frozen=True)
    with pytest.raises(ValueError, match="learning_rate or learning_rate_factor, not both"):
        nn.ParameterGroup(model, learning_rate=0.1, learning_rate_factor=2.0)
    with pytest.raises(TypeError, match="groups must be ParameterGroups; got an element of type 'dict'"):
        nn.SGD(0.1, groups=[{"params": model.variables}])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="weight_decay must be at least 0"):
        nn.ParameterGroup(model, weight_decay=-1.0)


def test_a_run_with_other_groups_is_not_resumed(tmp_path: Any) -> None:
    x, y = data()

    def program(rate: float) -> None:
        model = a_model()
        optimizer = nn.SGD(0.1, groups=[nn.ParameterGroup(model[0], learning_rate=rate)])
        loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)
        nn.fit(model, (x, y), loss=loss, optimizer=optimizer, checkpoint=tmp_path / "run", seed=0, progress=False)

    program(0.5)
    program(0.5)
    with pytest.raises(ValueError, match=r"optimizer.groups was .*0.5.* and is .*0.25"):
        program(0.25)
