"""What the default plan of tensor-parallel training divides, and what it says of layers that it does not."""

from __future__ import annotations

import warnings

import pytest
import tape_core as tc
import tape_nn as nn
from tape_nn.parallel import default_plan


def model(vocabulary: int, width: int) -> nn.Sequential:
    found = nn.Sequential([nn.Embedding(vocabulary, 8), nn.Dense(width, activation="relu"), nn.Dense(8)])
    found(tc.asarray([[1, 2]]))
    return found


def test_layers_that_the_mesh_divides_are_divided_without_a_word() -> None:
    divided = model(12, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = default_plan(divided, "model", 4)
    layouts = {name: found.get(id(variable)) for name, variable in divided.named_variables()}
    assert layouts == {
        "layers.0.embeddings": ("model",),
        "layers.1.kernel": (None, "model"),
        "layers.1.bias": ("model",),
        "layers.2.kernel": ("model",),
        "layers.2.bias": (),
    }


def test_layers_that_are_left_whole_are_named_in_one_warning() -> None:
    with pytest.warns(UserWarning, match="TensorParallel") as told:
        found = default_plan(model(10, 6), "model", 4)
    assert [layout for layout in found.values() if layout] == []
    (one,) = told
    text = str(one.message)
    assert "the axis 'model' of the mesh has 4 parts" in text
    assert "layers.0.embeddings of shape (10, 8), along its axis 0" in text
    assert "layers.1.kernel of shape (8, 6), along its axis 1" in text
    assert "layers.2.kernel of shape (6, 8), along its axis 0" in text
    assert "take widths that are multiples of 4, or give a plan" in text
    assert one.filename == __file__
