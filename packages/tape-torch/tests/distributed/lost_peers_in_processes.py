"""What test_later_steps.py runs in each of two processes, outside of `watched`: one of them does not come, or dies.

A group of processes in which one has waited in vain is of no more use: each trial has one of its own.
"""

from __future__ import annotations

import os
import time

import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch import peers
from tape_torch.distributed import (
    MismatchError,
    PeerError,
    all_reduce,
    averaged_gradient,
    distribute,
    full,
    save,
)  # fmt: skip
from tape_torch.notes import board
from trials import Trial, limit_waits

tc.set_backend("torch:cpu")
peers.PATIENCE = 60.0  # the other process comes late where the machine is busy
rank = int(os.environ["RANK"])


def steps(m, how):
    """Return a function that takes a step."""
    model = nn.Dense(2)
    model.build((None, 4))
    strategy = nn.parallel.Replicated(m)
    strategy.prepare(model)
    x, optimizer = strategy.divide(tc.ones((4, 4))), nn.SGD(0.1)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean(model(x) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(list(zip(tape.gradient(loss, variables), variables, strict=True)))
        return loss

    run = tc.function(step) if how == "compiled" else step
    for _ in range(5):
        float(run(x))
    return run, x


def is_told(text):
    return pytest.raises(PeerError, match=rf" at \S+:\d+ has failed on rank {rank} of 2: rank {1 - rank} {text}")


# -- one traces anew, or calls something new: both say what the other one does

for is_late in (False, True):
    with Trial() as m:
        run, x = steps(m, "compiled")
        limit_waits(m, 1.0 if rank == 0 else 30.0)
        while rank and is_late and 0 not in board().notes("stopped"):
            time.sleep(0.02)
        if rank == 0:
            with is_told(r"calls .* of float64 .* in a compiled function at \S+:\d+.*traced anew"):
                float(run(x))
        else:
            told = (
                r"rank 0 has waited in a compiled function at \S+:\d+ until its time was over; rank 1 calls .*float64"
            )
            with pytest.raises(MismatchError, match=told):
                float(run(tc.astype(x, "float64")))

# -- one has a step less, and ends, or does something else

for how in ("eager", "compiled", "averaged"):
    with Trial() as m:
        if how == "averaged":
            v = tc.Variable(tc.ones(4))

            def run(x, v=v, m=m):
                with tc.GradientTape() as tape:
                    loss = tc.sum(v * v)
                return averaged_gradient(tape, loss, [v], m)[0][0]

            x = run(None)
        else:
            run, x = steps(m, how)
        limit_waits(m, 1.0 if rank == 0 else 30.0)
        if rank == 0:
            with is_told(r"has come to the end of its program.*as many steps.*drop_last") as told:
                float(run(x))
            assert told.value.ranks == (1,)
        else:
            board().end()
with Trial() as m:
    run, x = steps(m, "eager")
    limit_waits(m, 1.0 if rank == 0 else 30.0)
    with is_told(rf"(has waited in|came to) {'full' if rank == 0 else 'the sum of gradients'} at .*TAPE_CHECK_RANKS=1"):
        float(run(x)) if rank == 0 else full(x)

# -- one saves alone

with Trial() as m:
    limit_waits(m, 1.0 if rank == 0 else 30.0)
    if rank == 0:
        text = r"save or load, for which all processes meet once, at .*rank 1 has come to the end of its program.*`if`"
        with pytest.raises(PeerError, match=text):
            save("nowhere", {"w": tc.ones(2)})
    else:
        board().end()

# -- one is late

with Trial() as m:
    all_reduce(tc.ones(4), m)
    limit_waits(m, 1.0 if rank == 0 else 30.0)
    if rank == 1:
        time.sleep(2.0)
    with is_told(r"(came to|has waited in) all_reduce at .*mesh\(timeout=\)"):
        all_reduce(tc.ones(4), m)

# -- one dies

with Trial() as m:
    w = distribute(tc.ones((4, 2)), ("data",), mesh=m)
    full(w)
    if rank == 1:
        os.kill(os.getpid(), 9)
    with is_told("has died.*last checkpoint"):
        float(tc.sum(w))
    print("done", flush=True)  # noqa: T201
    os._exit(0)
