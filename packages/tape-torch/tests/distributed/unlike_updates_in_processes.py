"""What test_later_steps.py runs in each of two processes: what no gradients go along with, and updates that differ.

What goes by itself is compared a little later: it is an error after some steps, at the latest where all is over.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, averaged_gradient, mesh, watched
from trials import Trial, limit_waits

tc.set_backend("torch:cpu")
rank = int(os.environ["RANK"])


def is_told(zero, one):
    return pytest.raises(MismatchError, match=rf"rank 0 calls .*{zero}.*; rank 1 calls .*{one}")


# -- layers that are divided along the only axis of the mesh, whose gradients stay where they are


class Block(nn.Module):
    def __init__(self):
        self.up, self.down = nn.Dense(16, use_bias=False, activation="tanh"), nn.Dense(8, use_bias=False)

    def __call__(self, x):
        return x + self.down(self.up(x))


class Net(nn.Module):
    def __init__(self):
        self.a, self.b = Block(), Block()

    def along(self, x, is_first):
        return self.b(self.a(x)) if is_first else self.a(self.b(x))


def divided(m, how):
    """Return functions that predict, and that take a step, in one of two orders."""
    tc.set_seed(0)
    net = Net()
    x = tc.asarray(np.random.default_rng(0).normal(size=(8, 8)), dtype="float32")
    net.along(x, True)
    strategy = nn.parallel.TensorParallel(m, {"*.up.kernel": (None, "model"), "*.down.kernel": ("model",)})
    strategy.prepare(net)
    x, optimizer, variables = strategy.divide(x), nn.SGD(0.1), net.trainable_variables

    def step(x, is_first):
        with tc.GradientTape() as tape:
            loss = tc.mean(net.along(x, is_first) ** 2)
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return loss

    predict, step = (tc.function(f) if how == "compiled" else f for f in (net.along, step))
    return lambda is_first: predict(x, is_first), lambda is_first: float(step(x, is_first))


for how in ("eager", "compiled"):
    for k in range(2):
        with Trial():
            limit_waits(model := mesh({"model": -1}, device="cpu"), 30.0)
            run = divided(model, how)[k]
            for _ in range(5):
                run(True)
                run(False)
            with is_told(*[r"'[ab]\.down\.kernel'.* differs"] * 2):
                for _ in range(100):
                    run(rank == 0)

# -- updates with gradients of plain arrays that all processes average


def rate_later(k, optimizer):
    if k == 2 and rank == 1:
        optimizer.learning_rate = 0.5


def averages(m, how, optimizer, change=None, steps=5):
    """Take steps, before each of which something may change."""
    v = tc.Variable(tc.ones(4))

    def gradient():
        with tc.GradientTape() as tape:
            loss = tc.sum(v**2) * (1.0 + rank)
        return averaged_gradient(tape, loss, [v], m)[0]

    def apply(g):
        optimizer.apply_gradients([(g, v)])

    update = tc.function(apply) if how == "compiled update" else apply
    step = tc.function(lambda: apply(gradient())) if how == "compiled" else lambda: update(gradient())
    for k in range(steps):
        if change is not None:
            change(k, optimizer)
        step()
    return v.tolist()


told = []
for how in ("eager", "compiled", "compiled update"):
    for make, zero, one in (
        (lambda: nn.SGD(0.1 + 0.1 * rank), "learning_rate=0.1 differs", "learning_rate=0.2 differs"),
        (lambda: nn.SGD(0.1, global_clipnorm=rank or None), r"without global_clipnorm=1\.0", "global_clipnorm=1"),
        (lambda: nn.GradientAccumulation(nn.SGD(0.1), 2 + rank), "steps=2 differs", "steps=3 differs"),
    ):
        with Trial() as m, is_told(f"the first update of .*{zero}", f"the first update of .*{one}"):
            averages(m, how, make())
    with Trial() as m:
        same = averages(m, how, nn.SGD(0.1))
        assert same == averages(m, how, nn.SGD(0.1))
    with Trial() as m, is_told(r"", r"SGD\.learning_rate = 0\.5"):
        averages(m, how, nn.SGD(0.1), rate_later)
    # In the update after the last gradients.
    optimizer = nn.SGD(0.1)
    with Trial() as m:
        try:
            with watched(timeout=30.0):
                averages(m, how, optimizer, steps=3)
                optimizer.learning_rate = 0.1 + 0.1 * rank
        except MismatchError as error:
            assert "rank 0 calls the end of all" in str(error)  # noqa: PT017 - only who comes last has one
            told.append(how)
print(len(told))  # noqa: T201
