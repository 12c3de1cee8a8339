"""What test_mismatches.py runs in each of two processes: optimizers of a divided model with other settings."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, mesh

tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu", timeout=20.0)
rank = m.rank
how = sys.argv[1]


class Seeded(nn.SGD):
    """Has a number that may be another one in each process, and one that may not."""

    def __init__(self, seed, strength):
        super().__init__(0.1)
        self.seed, self.strength = seed, strength


def updates(optimizer, *, step_of=None):
    """Take three steps, as each process says."""
    tc.set_seed(0)
    model = nn.Dense(3)
    model.build((None, 4))
    strategy = nn.parallel.Replicated(m)
    strategy.prepare(model)
    x = strategy.divide(tc.asarray(np.ones((4, 4), "float32")))

    def step(x):
        with tc.GradientTape() as tape:
            loss = optimizer.scale_loss(tc.mean(model(x) ** 2))
        variables = model.trainable_variables
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))

    run = step_of(step) if step_of is not None else tc.function(step) if how == "compiled" else step
    for _ in range(3):
        run(x)


def is_told(zero, one):
    first = "calls the first update of"
    return pytest.raises(MismatchError, match=rf"rank 0 {first} {zero}.* at \S+; rank 1 {first} {one}.*same settings")


with is_told("Adam, of which learning_rate=0.1 differs", "Adam, of which learning_rate=0.2 differs"):
    updates(nn.Adam(0.2 if rank else 0.1))
with is_told("Adam, of which beta_2=0.999 differs", "Adam, of which beta_2=0.99 differs"):
    updates(nn.Adam(beta_2=0.99 if rank else 0.999))
with is_told("AdamW, of which weight_decay=0.1 differs", "AdamW, of which weight_decay=0.0 differs"):
    updates(nn.AdamW(weight_decay=0.0 if rank else 0.1))
with is_told(".*CosineDecay.*100.* differs", ".*CosineDecay.*200.* differs"):
    updates(nn.SGD(nn.schedules.CosineDecay(0.1, 200 if rank else 100)))
with is_told(".*learning_rate now=0.1 differs", ".*learning_rate now=0.2 differs"):
    updates(nn.SGD(lambda k: 0.2 if rank else 0.1))
with is_told("LossScaler, of which growth_interval=5 differs", "LossScaler, of which growth_interval=9 differs"):
    updates(nn.LossScaler(nn.SGD(0.1), 2.0, 9 if rank else 5))
with is_told("GradientAccumulation, of which steps=2 differs", "GradientAccumulation, of which steps=3 differs"):
    updates(nn.GradientAccumulation(nn.SGD(0.1), 3 if rank else 2))
with is_told("SGD", "Adam"):
    updates(nn.Adam(0.1) if rank else nn.SGD(0.1))
with is_told("Seeded, of which strength=0 differs", "Seeded, of which strength=1 differs"):
    updates(Seeded(rank, rank))
updates(Seeded(rank, 1))
# Steps that are compiled in one process alone, or otherwise.
with pytest.raises(MismatchError, match=r"rank 0 calls .* in a compiled function at .*; rank 1 calls"):
    updates(nn.SGD(0.1), step_of=lambda step: step if rank else tc.function(step))
with pytest.raises(MismatchError, match=r"rank 0 calls .* in a compiled function at .*; rank 1 calls .*cse=False"):
    updates(nn.SGD(0.1), step_of=lambda step: tc.function(step, passes={"cse": False} if rank else None))
updates(nn.Adam(0.1))
print("done")  # noqa: T201
