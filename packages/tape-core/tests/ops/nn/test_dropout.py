"""Dropout: scale, seeds, infinite elements, whole channels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tape_core as tc
from support import STRICT


def test_dropout_scales_what_it_keeps_and_drops_the_same_of_the_gradient() -> None:
    x = tc.ones((100, 100))
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.dropout(x, 0.25, rng=tc.default_rng(0))
    found = tape.gradient(y, x)
    assert set(np.unique(y.numpy()).tolist()) == {0.0, np.float32(1 / 0.75).item()}
    assert np.mean(y.numpy() == 0) == pytest.approx(0.25, abs=0.02)
    assert np.array_equal(found.numpy(), y.numpy())
    assert str(y.dtype) == str(found.dtype) == "float32"


def test_dropout_is_the_same_on_every_backend_and_by_seed() -> None:
    drawn = [
        tc.dropout(tc.ones((3, 4), backend=backend), 0.5, rng=tc.default_rng(7)).tolist()
        for backend in ("numpy", STRICT, "numpy")
    ]
    assert drawn[0] == drawn[1] == drawn[2]
    tc.set_seed(3)
    first = tc.dropout(tc.ones(50), 0.5).tolist()
    tc.set_seed(3)
    assert tc.dropout(tc.ones(50), 0.5).tolist() == first


def test_what_is_dropped_is_0_also_where_it_is_infinite() -> None:
    x = tc.asarray([math.inf, math.nan])
    assert tc.dropout(x, 1.0).tolist() == [0.0, 0.0]


def test_dropout_of_whole_channels() -> None:
    y = tc.dropout(tc.ones((4, 5, 6)), 0.5, rng=tc.default_rng(0), noise_shape=(4, 1, 6)).numpy()
    assert (y == y[:, :1]).all()
    assert len(np.unique(y)) == 2
