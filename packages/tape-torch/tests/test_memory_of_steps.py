"""A step of training has one state and the gradients in memory, or two states, and next to nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
import torch
from live_memory import adam_steps, at_most, at_most_in_each
from support import ignore_threads
from tape_core.support import COUNTS_REFERENCES

# In units of the parameters: Adam's state is 3, and in compiled steps there are two of them until a step is done. Eager
# ones write over the old one, and the caller has the gradients. What is above that are activations, and temporaries of
# blocks.
ALLOWED = {True: 6.15, False: 4.2}


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_has_its_states_and_gradients(compiled: bool, divided: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the process does with arrays that are divided has no part in steps of others.
    monkeypatch.setattr("tape_core.engine.layouts.in_use", divided)
    ignore_threads(monkeypatch)
    monkeypatch.setattr("tape_torch.overwriting.is_watched", lambda: False)  # by what counts the memory
    with tc.use_backend("torch:cpu"):
        step, size = adam_steps(1536, compiled)
        assert at_most(step) / size < ALLOWED[compiled]


@pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
@pytest.mark.parametrize("compiled", [True, False])
def test_first_steps_have_no_second_state(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first one has new parameters beside those of the user, whose memory stays as it is.
    ignore_threads(monkeypatch)
    monkeypatch.setattr("tape_torch.overwriting.is_watched", lambda: False)
    with tc.use_backend("torch:cpu"):
        step, size = adam_steps(1536, compiled)
        first, *others = [found / size for found in at_most_in_each(step, 3)]
        assert first < 5.2
        assert max(others) < 4.6


@pytest.mark.parametrize("narrow", [False, True])
def test_a_product_that_something_else_needs_is_not_overwritten(narrow: bool) -> None:
    # Whose transpose is a view of its memory, that is a result itself, or that is read once more.
    def run(a: tc.Tensor, b: tc.Tensor) -> tuple[tc.Tensor, ...]:
        h, k, m = a @ b, b.T @ a.T, a @ (b + 1.0)
        return h.T, (h * 2.0 + 1.0) / 3.0, k, (k - 1.0) * 2.0, (m * 2.0 - 1.0) * m, m * m + 4.0

    a = torch.linspace(-1.0, 1.0, 160 * 160, dtype=torch.float32).reshape(160, 160)
    b = a.flip(0)[:, :8] if narrow else a.flip(0)
    with tc.use_backend("torch:cpu"):
        a, b = tc.asarray(a), tc.asarray(b)
        compiled = tc.function(run)
        for _ in range(3):
            for one, other in zip(compiled(a, b), run(a, b), strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_what_is_computed_of_a_product_takes_its_memory() -> None:
    def run(a: tc.Tensor, b: tc.Tensor) -> tc.Tensor:
        return tc.sqrt(tc.abs((a @ b) * 2.0 + 1.0))

    with tc.use_backend("torch:cpu"):
        a = tc.asarray(torch.ones((1024, 1024)))
        compiled = tc.function(run)
        # The arguments, and one array for the product and the result.
        assert at_most(lambda: compiled(a, a)) < 2.5 * 4 * 1024 * 1024
