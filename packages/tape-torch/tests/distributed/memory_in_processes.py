"""What test_memory.py runs in two processes: steps that have two states in memory, and next to nothing else."""

from __future__ import annotations

import tape_core as tc
import tape_nn as nn
from live_memory import adam_steps, at_most
from tape_torch import divided_calls, divided_parts, divided_together
from tape_torch.distributed import mesh

tc.set_backend("torch:cpu")
m = mesh(device="cpu")


def prepared(kind):
    def prepare(model, x):
        strategy = kind(m)
        strategy.prepare(model)
        return strategy.divide(x)

    return prepare


# In units of the parameters: Adam's state is 3, and there are two of them until a step is done. In eager steps the
# caller has the gradients, too. With `Sharded` half of all that is here, and some weights are there as a whole, for as
# long as PyTorch sends them.
allowed = {
    (nn.parallel.Replicated, True): 6.1,
    (nn.parallel.Sharded, True): 4.5,
    (nn.parallel.Replicated, False): 7.1,
    (nn.parallel.Sharded, False): 3.9,
}
for (kind, compiled), most in allowed.items():
    if not compiled:
        for module in (divided_calls, divided_parts, divided_together):
            module.is_watched = lambda: False  # the calls are to be those that nobody counts the memory of
    # Gradients that are added up each by itself, as large ones are.
    step, size = adam_steps(1536, compiled, prepared(kind))
    found = at_most(step) / size
    assert found < most, f"{kind.__name__}, compiled={compiled}: {found} times the parameters"
