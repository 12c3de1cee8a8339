"""What test_later_steps.py runs in each of several processes: steps that are not alike, of which each was before.

Both processes have taken all steps before they take other ones, with the same shapes: so nothing is new to either.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, averaged_gradient, full
from trials import Trial

warnings.filterwarnings("error", message=".*fault of Tape's own")
tc.set_backend("torch:cpu")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Net(nn.Module):
    """Two layers of one shape."""

    def __init__(self, width, bias):
        self.a, self.b = [nn.Dense(width, use_bias=bias, activation="tanh") for _ in range(2)]

    def along(self, x, is_first):
        """Call one before the other."""
        return self.b(self.a(x)) if is_first else self.a(self.b(x))


def steps(strategy, how, *, width=8, bias=False, optimizer=None, dtype="float32"):
    """Return a model, and a function that takes a step of it in one of two orders."""
    tc.set_seed(0)
    net = Net(width, bias)
    x = tc.asarray(np.random.default_rng(0).normal(size=(4 * n, width)), dtype=dtype)
    net.along(tc.astype(x, "float32"), True)
    prepared = getattr(nn.parallel, strategy)(m)
    prepared.prepare(net)
    x = prepared.divide(x)
    optimizer = nn.SGD(0.1) if optimizer is None else optimizer

    def step(x, is_first):
        with tc.GradientTape() as tape:
            loss = tc.mean(net.along(x, is_first) ** 2)
        variables = net.trainable_variables
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return loss

    run = tc.function(step) if how == "compiled" else step
    return net, lambda is_first: float(run(x, is_first))


def is_told(zero, one):
    differs = r"( differs|, which end too early|, without .*), at \S+:\d+"
    told = rf"rank 0 calls .*{zero}.*{differs}; rank 1 calls .*{one}.*{differs}.*the same program, in each step"
    return pytest.raises(MismatchError, match=told)


# -- orders of layers, eagerly and by traces of a compiled function, in its first runs and in later ones


for strategy, how, before, options in (
    ("Replicated", "eager", 2, {}),
    ("Replicated", "eager", 2, {"bias": True}),
    ("Replicated", "eager", 1, {"width": 1500}),  # whose gradients are sent by themselves
    ("Replicated", "compiled", 1, {}),
    ("Replicated", "compiled", 4, {}),
    ("Sharded", "eager", 2, {}),
    ("Sharded", "compiled", 1, {}),
    ("Sharded", "compiled", 4, {}),
):
    with Trial() as m:
        net, step = steps(strategy, how, **options)
        for _ in range(before):
            assert step(True) > 0.0
            assert step(False) > 0.0
        was = [full(v).tolist() for v in net.variables]
        with is_told("(kernel|bias)", "(kernel|bias)"):
            step(rank == 0)
        if strategy == "Replicated":  # of which as many arrays are sent in either
            assert how == "eager" or was == [full(v).tolist() for v in net.variables]
            assert step(True) > 0.0  # they still compute together

trial = Trial()
m = trial.__enter__()

# -- settings of optimizers


def change(optimizer, **settings):
    for name, value in settings.items():
        setattr(optimizer, name, value)


for how, make, name, value in (
    ("eager", lambda: nn.SGD(0.1), "learning_rate", nn.schedules.CosineDecay(0.1, 100)),
    ("eager", lambda: nn.Adam(0.1, weight_decay=0.1), "weight_decay", 0.2),
    ("compiled", lambda: nn.SGD(0.1), "learning_rate", 0.5),
):
    optimizer = make()
    net, step = steps("Replicated", how, optimizer=optimizer)
    for k in range(7):
        step(True)
        if k == 4:
            change(optimizer, **{name: value})  # on all ranks
    change(optimizer, **{name: 0.3} if rank == 1 else {})
    with is_told("", rf"{type(optimizer).__name__}\.{name} = 0\.3"):
        step(True)
for how in ("eager", "compiled"):
    group = nn.ParameterGroup(lambda v: True, learning_rate=0.1)
    net, step = steps("Replicated", how, optimizer=nn.SGD(0.2, groups=[group]))
    step(True)
    change(group, **{"learning_rate": 0.3} if rank == 1 else {})
    with is_told("", r"ParameterGroup\.learning_rate = 0\.3"):  # at the latest when it is computed by parts
        for _ in range(5):
            step(True)

# -- gradients of other Variables, of plain arrays of each process, in several dtypes

for dtype in ("float32", "float16", "bfloat16", "float64"):
    a, b = (tc.Variable(tc.ones(4, dtype=dtype) * k, name=name) for k, name in ((1, "a"), (2, "b")))

    def averages(is_first, a=a, b=b):
        with tc.GradientTape() as tape:
            loss = tc.sum(a**2 + b**2) * (1.0 + rank)
        return averaged_gradient(tape, loss, [a, b] if is_first else [b, a], m)

    for run in (averages, tc.function(averages)):
        mean = (n + 1) / 2
        for _ in range(3):
            for is_first in (True, False):
                found = [g.tolist() for g in run(is_first)]
                assert found == [[2.0 * mean * k] * 4 for k in ((1, 2) if is_first else (2, 1))]
        with is_told("'[ab]'", "'[ab]'"):
            run(rank == 0)
trial.__exit__(None, None, None)
print("done")  # noqa: T201
