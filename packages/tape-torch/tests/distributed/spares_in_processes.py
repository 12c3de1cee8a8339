"""What test_memory.py runs in two processes: steps that write new values over old ones, or former ones."""

from __future__ import annotations

import os
from contextlib import nullcontext

import numpy as np
import tape_core as tc
import tape_nn as nn
import torch
from tape_compile import thresholds
from tape_compile.codegen import overwriting
from tape_core.support import COUNTS_REFERENCES
from tape_nn.optimizers import updates
from tape_torch import divided_schedule, divided_together, divided_weights
from tape_torch.distributed import mesh, watched

os.environ["OMP_NUM_THREADS"] = "1"
tc.set_backend("torch:cpu")
thresholds.SPARE_MIN_ELEMENTS, thresholds.SPARE_MAX_GROWTH = 1, 100.0
m = mesh(device="cpu")
WIDTH = 1024
for module in (divided_schedule, divided_together, divided_weights):  # gradients are added up each by itself
    module.SUMMED_ALONE_BYTES = WIDTH * WIDTH * 4


class Training:
    def __init__(self, kind, **options):
        tc.set_seed(0)
        self.model = nn.Sequential([nn.Dense(WIDTH, activation="tanh") for _ in range(2)])
        self.model.build((None, WIDTH))
        strategy = kind(m)
        strategy.prepare(self.model)
        self.x = strategy.divide(torch.linspace(-1.0, 1.0, 8 * WIDTH).reshape(8, WIDTH))
        self.optimizer = nn.Adam(1e-2)
        self.step = tc.function(self.update, **options)

    def update(self, x):
        variables = self.model.trainable_variables
        with tc.GradientTape() as tape:
            loss = tc.mean((self.model(x) - x) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def run(self, steps):
        for _ in range(steps):
            self.step(self.x)

    @property
    def parts(self):
        slots = [slot for state in self.optimizer._states.values() for slot in state.slots.values()]
        return [v.array._local_tensor for v in (*self.model.trainable_variables, *slots) if v.ndim == 2]


WAYS = (
    lambda v: v.array,
    lambda v: v.array.to_local(),
    lambda v: v.array.to_local()[1:].numpy(),
    lambda v: v.array.detach(),
    lambda v: v.array[1:],
)
# Eager steps write over old values that nobody else has, also where Tape itself has a thread that tells of this
# process.
for kind, around in (
    (nn.parallel.Replicated, nullcontext),
    (nn.parallel.Sharded, nullcontext),
    (nn.parallel.Replicated, lambda: watched(timeout=60.0)),
):
    training, without = Training(kind), Training(kind)
    training.step, without.step = training.update, without.update
    training.run(4)
    overwritten = []
    with around():
        for _ in range(6):  # what PyTorch still sends, or the first calls have noted, has old values now and then
            places = [part.data_ptr() for part in training.parts]
            training.run(1)
            overwritten.append([part.data_ptr() for part in training.parts] == places)
    assert any(overwritten) or not COUNTS_REFERENCES, "old values are not overwritten"
    for ways in WAYS:
        held = [ways(v) for v in training.model.trainable_variables]
        expected = [x.clone() if isinstance(x, torch.Tensor) else x.copy() for x in held]
        training.run(2)
        for one, other in zip(held, expected, strict=True):
            one, other = (getattr(x, "_local_tensor", x) for x in (one, other))
            assert np.array_equal(one, other)
        del held, one
    updates.may_overwrite, given = lambda: False, updates.may_overwrite
    without.run(10 + 2 * len(WAYS))
    updates.may_overwrite = given
    for one, other in zip(training.parts, without.parts, strict=True):
        assert torch.equal(one, other), kind

# First steps are traced, run op by op, noted, and run by parts for the first time: all write over old values, and none
# over one that somebody has.
for kind in (nn.parallel.Replicated, nn.parallel.Sharded):
    without = Training(kind, passes={"in_place": False})
    without.run(6)
    for before in range(5):
        training = Training(kind)
        training.optimizer.build(training.model.trainable_variables)
        training.run(before)
        slots = [slot for state in training.optimizer._states.values() for slot in state.slots.values()]
        held = [ways(v) for v, ways in zip([*training.model.trainable_variables, *slots], WAYS * 3, strict=False)]
        expected = [x.clone() if isinstance(x, torch.Tensor) else x.copy() for x in held]
        training.run(1)
        for one, other in zip(held, expected, strict=True):
            one, other = (getattr(x, "_local_tensor", x) for x in (one, other))
            assert np.array_equal(one, other), (kind, before)
        del held, one
        training.run(5 - before)
        for one, other in zip(training.parts, without.parts, strict=True):
            assert torch.equal(one, other), (kind, before)

# Compiled ones write over old values, too; where they may not, into the memory of former ones.
for kind in (nn.parallel.Replicated, nn.parallel.Sharded):
    training, without = Training(kind), Training(kind, passes={"in_place": False})
    training.run(7)
    without.run(7)
    for ways in WAYS:
        held = [ways(v) for v in training.model.trainable_variables]
        expected = [x.clone() if isinstance(x, torch.Tensor) else x.copy() for x in held]
        training.run(3)
        without.run(3)
        for one, other in zip(held, expected, strict=True):
            one, other = (getattr(x, "_local_tensor", x) for x in (one, other))
            assert np.array_equal(one, other)
        del held, one
    for one, other in zip(training.parts, without.parts, strict=True):
        assert torch.equal(one, other), kind
    del one, other
    if COUNTS_REFERENCES:
        training.run(3)
        first = [part.data_ptr() for part in training.parts]
        training.run(1)
        assert [part.data_ptr() for part in training.parts] == first, "old values are not overwritten"
        training.run(1)
        without.run(5)
        overwriting.may_overwrite, given = lambda: False, overwriting.may_overwrite
        training.run(4)
        without.run(4)
        first = {part.data_ptr() for part in training.parts}
        training.run(1)
        second = {part.data_ptr() for part in training.parts}
        training.run(1)
        without.run(2)
        overwriting.may_overwrite = given
        if kind is nn.parallel.Replicated:
            assert {part.data_ptr() for part in training.parts} == first, "memory of former values is not used"
            assert not first & second
        for one, other in zip(training.parts, without.parts, strict=True):
            assert torch.equal(one, other), kind
        del one, other
