"""What test_later_steps.py runs in each of two processes: new values of Variables that one process has alone.

An update that one process leaves out, or makes twice, sends nothing. The next gradients tell of it.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, averaged_gradient, broadcast, mesh
from trials import Trial, limit_waits

tc.set_backend("torch:cpu")
rank = int(os.environ["RANK"])


def is_told(zero, one):
    return pytest.raises(
        MismatchError, match=rf"rank 0 calls .*{zero}.* differs.*; rank 1 calls .*{one}.* differs.*update or an assign"
    )


class Loop:
    """Steps of training whose gradients and updates can be called by themselves."""

    def __init__(self, kind, how, m, optimizer=None):
        tc.set_seed(0)
        self.net = nn.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(2)])
        self.optimizer = nn.Adam(0.1) if optimizer is None else optimizer
        self.mesh = m
        x = tc.asarray(np.random.default_rng(0).normal(size=(4, 2)), dtype="float32")
        self.net(x)
        self.variables = self.net.trainable_variables
        self.strategy = None if kind == "averaged" else getattr(nn.parallel, kind)(m)
        if self.strategy is not None:
            self.strategy.prepare(self.net)
            x = self.strategy.divide(x)
        self.x = x
        gradients, update = self._gradients, self._update
        self.gradients, self.update = (tc.function(f) if how == "compiled" else f for f in (gradients, update))
        step = lambda x: self._update(self._gradients(x))  # noqa: E731
        self.whole = tc.function(step) if how == "compiled" else step

    def _gradients(self, x):
        with tc.GradientTape() as tape:
            loss = tc.mean(self.net(x) ** 2)
        if self.strategy is None:
            return averaged_gradient(tape, loss, self.variables, self.mesh)
        return tape.gradient(loss, self.variables)

    def _update(self, gradients):
        self.optimizer.apply_gradients(list(zip(gradients, self.variables, strict=True)))

    def step(self, updates=1):
        gradients = self.gradients(self.x)
        for _ in range(updates):
            self.update(gradients)

    def again(self, kind):
        """Take steps until what differs is told: where gradients stay where they are, that takes some."""
        for _ in range(40 if kind == "TensorParallel" else 1):
            self.step()


KINDS = (
    ("averaged", "eager", 0), ("averaged", "compiled", 2), ("Replicated", "eager", 2), ("Replicated", "compiled", 0),
    ("Sharded", "eager", 0), ("Sharded", "compiled", 2), ("TensorParallel", "eager", 0),
)  # fmt: skip
NAME = r"'(layers\.\d\.)?(kernel|bias)'( \(number \d+ of this name\))?"

for kind, how, updates in KINDS:
    with Trial() as m:
        grid = mesh({"model": -1}, device="cpu") if kind == "TensorParallel" else m
        limit_waits(grid, 20.0)
        loop = Loop(kind, how, grid)
        for _ in range(5):
            loop.step()
        # What one process does alone, and takes back, is nothing that differs.
        if rank == 1:
            own = [v.value for v in loop.variables]
            for v in loop.variables:
                v.assign(v * 0.5)
            for v, value in zip(loop.variables, own, strict=True):
                v.assign(value)
        loop.step(updates if rank else 1)
        with is_told(rf"{NAME} \(\d+ updates?", rf"{NAME} \(\d+ updates?"):
            loop.again(kind)

# -- assignments

averages = None
for kind, how in (("averaged", "eager"), ("Replicated", "eager"), ("averaged", "compiled")):
    with Trial() as m:
        limit_waits(m, 20.0)
        loop = Loop(kind, how, m)
        loop.step()
        averages = nn.ExponentialMovingAverage(loop.net, 0.5)
        averages.update()
        loop.step()
        if rank == 0:
            with averages.averaged():  # as to evaluate
                pass
        if kind == "averaged":
            v = loop.variables[0]
            if rank == 1:
                v.assign(np.ones(v.shape, "float32"))
            v.assign(broadcast(v, m, source=1))
        loop.step()
        if rank == 1:
            loop.variables[1].assign_add(loop.variables[1])
        with is_told(rf"{NAME} \(\d+ updates?", rf"{NAME} \(\d+ updates?, 1 assignment"):
            loop.step()
with Trial() as m:
    loop = Loop("averaged", "eager", m)
    loop.step()
    loop.variables[1].assign(np.full(4, rank, "float32"))
    with is_told(rf"{NAME} \(1 update, 1 assignment, of values", rf"{NAME} \(1 update, 1 assignment, of values"):
        loop.step()

# -- values to begin with

with Trial() as m:
    loop = Loop("averaged", "eager", m)
    if rank == 1:
        loop.variables[1].assign_add(loop.variables[1] + 1.0)
    with pytest.raises(MismatchError, match=rf"the first update of Adam, of which the value of {NAME}, .*broadcast"):
        loop.step()
print("done")  # noqa: T201
