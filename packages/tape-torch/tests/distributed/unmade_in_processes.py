"""What test_compiled_parts.py runs in several processes, of which one cannot make code of its parts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch import divided_programs
from tape_torch.distributed import full, mesh

tc.set_backend("torch:cpu")
tc.set_default_dtype(tc.float64)
m = mesh({"data": -1}, device="cpu", timeout=60.0)
LAST = m.size - 1
x = tc.asarray(np.random.default_rng(0).normal(size=(8, 4)))


def train(strategy, steps=6):
    """Return the losses and weights of compiled steps, or, without a strategy, of those of one process."""
    tc.set_seed(0)
    model, optimizer = nn.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(4)]), nn.Adam(0.1)
    model.build((None, 4))
    rows = x if strategy is None else strategy.prepare(model) and strategy.divide(x)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - x) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return loss

    run = step if strategy is None else tc.function(step)
    losses = [float(run(rows)) for _ in range(steps)]
    return [np.asarray(losses), *[full(v).numpy() for v in model.variables]]


def fails(*args, **kwargs):
    raise ZeroDivisionError("on purpose")


expected = train(None)
# In which process what fails: before what is sent is known, after that, and where one instruction stays as it is.
for strategy in (nn.parallel.Replicated(m), nn.parallel.Sharded(m)):
    for name, said in (
        ("Schedule", f"ZeroDivisionError: on purpose (rank {LAST})"),
        ("Source", f"ZeroDivisionError: on purpose (rank {LAST})"),
        ("_recorded", "the processes would send in different orders"),
    ):
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if m.rank == LAST:
                patch.setattr(divided_programs, name, fails)
            found = train(strategy)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10, err_msg=f"{strategy}, {name}")
        faults = [str(one.message) for one in told if "fault of Tape's own" in str(one.message)]
        assert len(faults) == 1, (name, faults)
        assert said in faults[0], faults
