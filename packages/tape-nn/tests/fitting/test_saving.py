"""Runs of loops of one's own: save_run writes all that a resumed loop needs; and states of layers' generators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn


def make(seed: int = 1) -> tuple[nn.Sequential, nn.Adam, tc.Generator]:
    rng = tc.default_rng(seed)
    layers = [
        nn.Dense(4, rng=rng),
        nn.Dropout(0.5, rng=tc.default_rng(seed + 1)),
        nn.Dropout(0.2),
        nn.Dense(1, rng=rng),
    ]
    model = nn.Sequential(layers)
    model.build((None, 3))
    return model, nn.Adam(0.01), tc.default_rng(seed + 2)


def train(model: Any, optimizer: Any, rng: tc.Generator, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        x = rng.normal((8, 3))
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - tc.sum(x, axis=1, keepdims=True)) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        losses.append(loss.item())
    return losses


def test_a_resumed_loop_goes_on_exactly(tmp_path: Path) -> None:
    tc.set_seed(0)
    parts = make()
    train(*parts, 3)
    path = tmp_path / "run.safetensors"
    nn.save_run(path, *parts[:2], step=3, rng=parts[2], extra={"best": [1.5, None], "mask": tc.asarray([True])})
    expected = train(*parts, 4)
    tc.set_seed(99)
    other = make(50)
    step, extra = nn.load_run(path, *other[:2], rng=other[2])
    assert (step, extra["best"], extra["mask"].tolist()) == (3, [1.5, None], [True])
    assert train(*other, 4) == expected


def test_several_optimizers_and_generators_by_name(tmp_path: Path) -> None:
    model, adam, rng = make()
    path = tmp_path / "run.safetensors"
    nn.save_run(path, model, {"a": adam, "b": nn.SGD(0.1)}, rng={"data": rng})
    state = rng.get_state()
    rng.uniform((5,))
    nn.load_run(path, model, {"a": adam, "b": nn.SGD(0.1)}, rng={"data": rng})
    assert rng.get_state() == state


def test_a_file_of_another_program_changes_nothing(tmp_path: Path) -> None:
    model, optimizer, rng = make()
    train(model, optimizer, rng, 1)
    path = tmp_path / "run.safetensors"
    nn.save_run(path, model, optimizer, rng=rng)
    plain = nn.Sequential([nn.Dense(4)])
    plain.build((None, 3))
    for arguments, options, text in (
        ((model, optimizer), {}, r"generators in rng named \[''\], this program those named \[\]"),
        ((model, {"a": optimizer}), {"rng": rng}, "has optimizers named"),
        ((plain, optimizer), {"rng": rng}, "has generators of the model named"),
        ((model, nn.SGD(0.1, momentum=0.9)), {"rng": rng}, "is of Adam, and this program has SGD"),
        ((model, nn.LossScaler(optimizer)), {"rng": rng}, "does not fit: load_state_dict"),
    ):
        before = {name: value.tolist() for name, value in model.state_dict().items()}, tc.random.get_state()
        with pytest.raises(ValueError, match=text):
            nn.load_run(path, *arguments, **options)
        assert before == ({name: value.tolist() for name, value in model.state_dict().items()}, tc.random.get_state())
    model.save_weights(tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="was not written by save_run"):
        nn.load_run(tmp_path / "weights.safetensors", model, optimizer, rng=rng)
    with pytest.raises(FileNotFoundError):
        nn.load_run(tmp_path / "none", model)
    with pytest.raises(TypeError, match="is of type 'object'"):
        nn.save_run(tmp_path / "other", model, extra={"a": object()})


def test_the_state_of_another_kind_of_optimizer_is_taken_only_when_asked_for(tmp_path: Path) -> None:
    # Adam keeps what AdamW keeps, under the same names: nothing but the class tells that the program is another one.
    model, adam, rng = make()
    train(model, adam, rng, 2)
    path = tmp_path / "run.safetensors"
    nn.save_run(path, model, adam, rng=rng)
    again, _, other_rng = make(50)
    adamw = nn.AdamW(0.01, weight_decay=0.0)
    before = again.state_dict()["layers.0.kernel"].tolist()
    with pytest.raises(ValueError, match=r"is of Adam, and this program has AdamW.*other_optimizer=True"):
        nn.load_run(path, again, adamw, rng=other_rng)
    assert again.state_dict()["layers.0.kernel"].tolist() == before
    nn.load_run(path, again, adamw, rng=other_rng, other_optimizer=True)
    found = train(again, adamw, other_rng, 2)
    nn.load_run(path, model, adam, rng=rng)
    assert found == train(model, adam, rng, 2)
    # What is around an optimizer is another matter: with no gradients that wait, accumulation may begin at any time.
    accumulating = nn.GradientAccumulation(nn.Adam(0.01), steps=2)
    nn.load_run(path, again, accumulating, rng=other_rng)
    with pytest.raises(ValueError, match="optimizer 'b' is of Adam, and this program has Nadam"):
        nn.save_run(path, model, {"a": nn.SGD(0.1), "b": adam})
        nn.load_run(path, model, {"a": nn.SGD(0.1), "b": nn.Nadam()})
    # With slots of other names there is nothing to take.
    nn.save_run(path, model, adam)
    with pytest.raises(ValueError, match="does not fit: load_state_dict"):
        nn.load_run(path, model, nn.Adagrad(0.1), other_optimizer=True)


# -- the states of layers' generators in state_dict


def test_the_generator_that_a_layer_draws_from_is_part_of_its_state() -> None:
    model, _, _ = make()
    names = set(model.state_dict())
    # Those for the first values of kernels are not.
    assert names == {"layers.0.kernel", "layers.0.bias", "layers.1.rng", "layers.3.kernel", "layers.3.bias"}
    state = model.state_dict()
    x = tc.ones((4, 3))
    expected = model.layers[1](x).tolist()
    model.load_state_dict(state)
    assert model.layers[1](x).tolist() == expected
    assert state["layers.1.rng"].dtype == "int64"


def test_states_of_generators_may_be_missing_and_must_fit(tmp_path: Path) -> None:
    model, _, _ = make()
    state = model.state_dict()
    own = model.layers[1].rng
    assert own is not None
    without = {name: value for name, value in state.items() if name != "layers.1.rng"}
    own.uniform((3,))
    before = own.get_state()
    model.load_state_dict(without)
    assert own.get_state() == before
    with pytest.raises(ValueError, match=r"'layers.1.rng' has dtype float32 and shape \(3,\); the state of a random"):
        model.load_state_dict({**without, "layers.1.rng": tc.zeros(3)})
    with pytest.raises(ValueError, match=r"unexpected: 'layers.2.rng'"):
        model.load_state_dict({**state, "layers.2.rng": state["layers.1.rng"]})
    path = tmp_path / "weights.safetensors"
    model.save_weights(path)
    own.uniform((3,))
    model.load_weights(path)
    assert own.get_state() == before


def test_a_generator_that_layers_share_is_saved_once() -> None:
    rng = tc.default_rng(0)
    model = nn.Sequential([nn.Dense(2, rng=rng), nn.Dropout(0.5, rng=rng), nn.Dropout(0.1, rng=rng)])
    model.build((None, 2))
    assert [name for name in model.state_dict() if "rng" in name] == ["layers.0.rng"]
    attention = nn.MultiHeadAttention(2, 4, dropout=0.1, rng=tc.default_rng(3))
    attention.build((None, 5, 4))
    assert "rng" in attention.state_dict()
    assert np.prod(attention.state_dict()["rng"].shape) == 3
