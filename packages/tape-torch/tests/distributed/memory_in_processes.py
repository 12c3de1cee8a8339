"""What test_memory.py runs in two processes: steps that have two states in memory, and next to nothing else."""

from __future__ import annotations

import tape_core as tc
import tape_nn as nn
import torch
from live_memory import adam_steps, at_most, at_most_in_each
from tape_core.support import COUNTS_REFERENCES
from tape_torch import divided, divided_calls, divided_parts, divided_together, overwriting
from tape_torch.distributed import averaged_gradient, distribute, mesh
from torch.multiprocessing.reductions import StorageWeakRef

tc.set_backend("torch:cpu")
m = mesh(device="cpu")


def prepared(kind):
    def prepare(model, x):
        strategy = kind(m)
        strategy.prepare(model)
        return strategy.divide(x)

    return prepare


# In units of the parameters: Adam's state is 3, and by parts there are two of them until a step is done. Eager steps
# write over the old one, and have the gradients, of which one or two are on their way where the machine is busy. With
# `Sharded` half of all that is here, and some weights are there as a whole, for as long as PyTorch sends them.
allowed = {
    (nn.parallel.Replicated, True): 6.1,
    (nn.parallel.Sharded, True): 4.5,
    (nn.parallel.Replicated, False): 4.6,
    (nn.parallel.Sharded, False): 3.0,
}
# Compiled steps begin as eager ones: the first, which is traced, has new parameters beside those of the user. The next
# ones run op by op, are noted, and run by parts for the first time.
in_first_steps = {nn.parallel.Replicated: (5.6, 4.8), nn.parallel.Sharded: (3.5, 3.2)}
counted = [(module, module.is_watched) for module in (divided_calls, divided_parts, divided_together, overwriting)]
for module, _ in counted:
    module.is_watched = lambda: False  # the calls are to be those that nobody counts the memory of
for kind, (first, later) in in_first_steps.items() if COUNTS_REFERENCES else ():
    step, size = adam_steps(1536, True, prepared(kind))
    found = [nbytes / size for nbytes in at_most_in_each(step, 4)]
    assert found[0] < first, f"{kind.__name__}, first steps: {found} times the parameters"
    assert max(found[1:]) < later, f"{kind.__name__}, first steps: {found} times the parameters"
for module, is_watched in counted:
    module.is_watched = is_watched

for (kind, compiled), most in allowed.items():
    if not compiled:
        for module in (divided_calls, divided_parts, divided_together, overwriting):
            module.is_watched = lambda: False  # the calls are to be those that nobody counts the memory of
    # Gradients that are added up each by itself, as large ones are.
    step, size = adam_steps(1536, compiled, prepared(kind))
    found = at_most(step) / size
    assert found < most, f"{kind.__name__}, compiled={compiled}: {found} times the parameters"

# A gradient that was waited for is nobody's when its holder lets it go.
w = distribute(tc.Variable(tc.ones((1536, 1536))), (), mesh=m)
x = distribute(tc.ones((2, 1536)), ("data",), mesh=m)
with tc.GradientTape() as tape:
    loss = tc.sum(x @ w)
gradient = tape.gradient(loss, w)
part = divided.own_part(gradient.array)
assert torch.equal(part, torch.full((1536, 1536), 2.0))
memory = StorageWeakRef(part.untyped_storage())
del gradient, part
assert memory.expired(), "a gradient is kept that nobody has"

# Gradients that are averaged are there once: in what they are sent in.
variables = [tc.Variable(tc.ones((1536, 1536))) for _ in range(4)]
x = torch.ones((2, 1536))


def averaged():
    with tc.GradientTape() as tape:
        y = tc.asarray(x)
        for v in variables:
            y = y @ v
        loss = tc.sum(y)
    return averaged_gradient(tape, loss, variables, m)


found = at_most(averaged) / (4 * 4 * 1536**2)
assert found < 2.6, f"{found} times the parameters: they, their gradients, and one more"
