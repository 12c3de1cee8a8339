"""Constants of a compiled function: those of one number are no memory that XLA reads in each call."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from tape_jax.xla.lowering import is_uniform


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_values_of_uniform_constants_are_kept_to_the_bit(backend: str) -> None:
    zeros = np.zeros(200)
    mixed = np.where(np.arange(200) % 2 == 0, -0.0, 0.0)
    given = {"zeros": zeros, "minus": -zeros, "mixed": mixed, "nan": zeros + np.nan, "many": np.full((3, 70), 7)}
    constants = {name: tc.asarray(value, backend=backend) for name, value in given.items()}

    @tc.function(compile="xla")
    def f(x: tc.Tensor) -> dict[str, tc.Tensor]:
        return {name: constant * x for name, constant in constants.items()}

    x = tc.asarray(1, dtype="int64", backend=backend)
    for _ in range(2):
        for name, found in f(x).items():
            assert found.numpy().tobytes() == given[name].tobytes(), name


def test_which_constants_are_uniform() -> None:
    assert is_uniform(np.ones((2, 3), np.float32))
    assert is_uniform(np.zeros(2, bool))
    assert is_uniform(np.full(3, -0.0))
    assert not is_uniform(np.array([0.0, -0.0]))
    assert not is_uniform(np.array([np.nan, np.nan]))
    assert not is_uniform(np.arange(2))
    assert not is_uniform(np.ones(1))
    assert not is_uniform(np.ones(3, complex))
