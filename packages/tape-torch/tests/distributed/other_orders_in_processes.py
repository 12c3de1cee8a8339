"""What test_mismatches.py runs in each of two processes: steps of a divided model that are not alike.

All collectives have the same shapes, or nearly so: only what they are of tells that the programs differ.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, full, mesh

tc.set_backend("torch:cpu")
strategy_name, how, width = sys.argv[1], sys.argv[2], int(sys.argv[3])
is_2d = strategy_name == "TensorParallel"
m = mesh({"data": 1, "model": 2} if is_2d else {"data": -1}, device="cpu", timeout=20.0)
rank = m.rank


class Net(nn.Module):
    """Two layers, or pairs of layers, of the same shapes."""

    def __init__(self):
        def layer():
            return nn.Dense(width, use_bias=False, activation="tanh")

        self.a, self.b = [nn.Sequential([layer(), layer()]) if is_2d else layer() for _ in range(2)]


def steps(forward, *, change=lambda net: None, argument=None):
    """Take four steps, in process 1 as it says; return the sums of all Variables."""
    tc.set_seed(0)
    net = Net()
    x = tc.asarray(np.random.default_rng(0).normal(size=(4, width)).astype("float32"))
    for layer in (net.a, net.b) if rank else (net.b, net.a):  # the order of their making says nothing
        layer(x)
    strategy = getattr(nn.parallel, strategy_name)(m)
    strategy.prepare(net)
    x = strategy.divide(x)
    change(net)
    optimizer = nn.SGD(0.1)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean(forward(net, x) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True)
        )
        return loss

    run = tc.function(step) if how == "compiled" else step
    for _ in range(4):
        run(x if argument is None else argument(x))
    return [float(tc.sum(full(v))) for v in net.variables]


def other_order(net, x):
    return net.b(net.a(x)) if rank else net.a(net.b(x))


def one_more(net, x):
    return net.a(net.b(net.b(x))) if rank else net.a(net.b(x))


def alike(net, x):
    return net.a(net.b(x))


def freeze(net):
    if rank:
        next(iter(net.b.variables)).trainable = False


told = r"rank 0 calls .* differs.*'(a|b)\..*; rank 1 calls .*|rank 0 calls .*'[ab]\..*; rank 1 calls .*'[ab]\."
with pytest.raises(MismatchError, match=rf"different programs: ({told}).*another order"):
    steps(other_order)
if strategy_name != "Replicated" or how == "compiled":  # else the gradients are of the same Variables
    with pytest.raises(MismatchError, match=r"rank 0 calls .*; rank 1 calls"):
        steps(one_more)
with pytest.raises(MismatchError, match=r"rank 0 calls .*; rank 1 calls"):
    steps(alike, change=freeze)
with pytest.raises(MismatchError, match=r"float32.*rank 1 calls .*float64"):
    steps(alike, argument=lambda x: tc.astype(x, "float64") if rank else x)
# They still compute together, and what nothing is sent of may differ.
expected = steps(alike)


def with_a_look(net, x):
    found = net.a(net.b(x))
    if rank and strategy_name == "Replicated":
        tc.stop_gradient(tc.sum(net.a.kernel * 2.0))
    return found


assert steps(with_a_look) == expected
print("done")  # noqa: T201
