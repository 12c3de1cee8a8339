"""Maxima of windows: ties, padding, infinite cotangents, integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import STRICT


@pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]),
        ([-math.inf, -math.inf, 1.0, -math.inf], [1.0, 0.0, 1.0, 0.0]),
        ([1.0, math.nan, math.nan, math.nan], [0.0, 1.0, 1.0, 0.0]),
    ],
    ids=["ties", "-inf", "nan"],
)
def test_the_first_of_the_greatest_elements_gets_the_gradient(backend: Any, x: Any, expected: Any) -> None:
    t = tc.asarray(x, dtype="float64", backend=backend)
    with tc.GradientTape() as tape:
        tape.watch(t)
        y = tc.max_pool(tc.reshape(t, (1, 4, 1)), 2)
    np.testing.assert_equal(y.numpy()[0, :, 0], [np.max(x[:2]), np.max(x[2:])])
    assert tape.gradient(y, t).tolist() == expected


@pytest.mark.parametrize("backend", ["numpy", STRICT], ids=["numpy", "strict"])
def test_padding_never_gets_the_gradient_of_a_maximum(backend: Any) -> None:
    t = tc.asarray([[[-math.inf], [-math.inf]]], dtype="float64", backend=backend)
    with tc.GradientTape() as tape:
        tape.watch(t)
        y = tc.max_pool(t, 2, stride=1, padding=1)
    assert y.tolist() == [[[-math.inf]] * 3]
    assert tape.gradient(y, t).tolist() == [[[2.0], [1.0]]]


def test_an_infinite_cotangent_of_a_maximum_makes_no_nan() -> None:
    x = tc.asarray([[[1.0], [2.0]]])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.max_pool(x, 2)
    assert tape.gradient(y, x, output_gradients=tc.asarray([[[math.inf]]])).tolist() == [[[0.0], [math.inf]]]


def test_a_maximum_of_integers_is_padded_with_their_least() -> None:
    x = tc.asarray([[[-5], [-7]]], dtype="int8")
    assert tc.max_pool(x, 2, stride=1, padding=1).tolist() == [[[-5], [-5], [-7]]]
