"""What test_mismatches.py runs in each of two processes: trained copies of a model that compute otherwise in each."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import MismatchError, mesh

tc.set_backend("torch:cpu")
m = mesh({"data": -1}, device="cpu", timeout=10.0, checked=sys.argv[1] == "checked")
rank = m.rank
strategy = (nn.parallel.Replicated if sys.argv[2] == "Replicated" else nn.parallel.Sharded)(m)


def trained(change, names):
    """Return the gradients of one sweep."""
    tc.set_seed(0)
    layers = {name: nn.Dense(4, use_bias=False) for name in ("a", "b", "c")}
    for layer in layers.values():
        layer.build((None, 4))
        strategy.prepare(layer)
    change(layers)
    x = strategy.divide(tc.asarray(np.arange(16.0, dtype="float32").reshape(4, 4)))
    with tc.GradientTape() as tape:
        loss = sum(tc.mean(layers[name](x) ** 2) * (k + 1.0) for k, name in enumerate(names))
    variables = [v for layer in layers.values() for v in layer.trainable_variables]
    return tape.gradient(loss, variables)


def freeze(layers):
    if rank:
        layers["b"].kernel.trainable = False


def is_told(zero, one):
    return pytest.raises(MismatchError, match=f"rank 0 calls .*{zero}.*; rank 1 calls .*{one}.*the same order")


with is_told(r"'kernel'", r"'kernel'"):
    trained(lambda layers: None, ("a", "c", "b") if rank else ("a", "b", "c"))
with is_told("3 gradients", "2 gradients"):
    trained(freeze, ("a", "b", "c"))
# They still compute together, and the order of the sources does not matter.
for _ in range(3):
    assert len(trained(lambda layers: None, ("a", "b", "c"))) == 3
print("done")  # noqa: T201
