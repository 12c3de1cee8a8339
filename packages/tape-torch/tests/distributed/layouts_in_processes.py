"""What test_divided_arrays.py runs in four processes: a block of a transformer in each layout of training."""

from __future__ import annotations

import numpy as np
import tape_core as tc
import tape_nn as nn
from tape_torch.distributed import distribute, full, mesh

tc.set_backend("torch:cpu")
m = mesh({"data": 2, "model": 2}, device="cpu")
data = np.random.default_rng(0).normal(size=(4, 6, 8)).astype("float32")


class Block(nn.Module):
    """Attention and two layers, each beside what goes past it."""

    def __init__(self) -> None:
        self.attention = nn.MultiHeadAttention(2, 4)
        self.norm = nn.LayerNorm()
        self.up = nn.Dense(16, activation="gelu")
        self.down = nn.Dense(8)

    def __call__(self, x):
        x = x + self.attention(x, x)
        return x + self.down(self.up(self.norm(x)))


def by_heads_and_columns(name, variable):
    if name.startswith("attention.output"):
        return ("model",) if name.endswith("kernel") else ()
    if name.startswith("attention"):  # kernels are (features, heads, size)
        return (None, "model") if name.endswith("kernel") else ("model",)
    return {"up.kernel": (None, "model"), "up.bias": ("model",), "down.kernel": ("model",)}.get(name, ())


def by_rows(name, variable):
    return ("data",) if variable.shape[0] % 2 == 0 else ()


def train(layout, batch, compiled):
    tc.set_seed(0)
    model = Block()
    inputs = tc.asarray(data)
    model(inputs)
    if layout is not None:
        distribute(model, layout, mesh=m)
        inputs = distribute(data, batch, mesh=m)
    before = [getattr(v.array, "placements", None) for v in model.variables]
    optimizer = nn.Adam(0.01)

    def step(x):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - 1.0) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.variables), model.variables, strict=True))
        return loss

    step = tc.function(step) if compiled else step
    losses = [float(step(inputs)) for _ in range(2)]
    assert [getattr(v.array, "placements", None) for v in model.variables] == before
    # The softmax does not depend on the bias of keys: its gradient is rounding, of which Adam makes steps.
    return losses, {name: full(v).numpy() for name, v in model.state_dict().items() if "key_bias" not in name}


alone, state = train(None, None, False)
layouts = {
    "tensor": (by_heads_and_columns, ()),
    "both": (by_heads_and_columns, ("data",)),
    "sharded": (by_rows, (("data", "model"),)),
}
for label, (layout, batch) in layouts.items():
    losses, found = train(layout, batch, compiled=label == "both")  # PyTorch takes long for each layout's first step
    np.testing.assert_allclose(losses, alone, rtol=1e-5, err_msg=label)
    for name, value in state.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=f"{label} {name}")
