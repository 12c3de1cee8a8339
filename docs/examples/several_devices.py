"""One program for one device and for several, on PyTorch and on JAX: a transformer learns to add.

python docs/examples/several_devices.py                                              # alone, on any backend
TAPE_BACKEND=torch torchrun --nproc-per-node 4 docs/examples/several_devices.py --layout sharded
NPROC=32 XLA_FLAGS=--xla_force_host_platform_device_count=4 TAPE_BACKEND=jax python docs/examples/several_devices.py \
    --layout sharded --compile xla

Nothing below is of one of the two engines: `nn.parallel.mesh` takes that of the backend that is selected.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import tape_core as tc
import tape_nn as nn
from matplotlib.figure import Figure

LAYOUTS = ("alone", "replicated", "sharded", "tensor", "both")
parser = argparse.ArgumentParser(description="A transformer that learns to add, on one device or several.")
parser.add_argument("--layout", choices=LAYOUTS, default="alone", help="how model and batches are divided")
parser.add_argument("--compile", metavar="NAME", nargs="?", const=True, default=False, help="compile the step")
parser.add_argument("--epochs", type=int, default=8, help="passes over the data")
parser.add_argument("--seed", type=int, default=0, help="decides all random numbers")
parser.add_argument("--dtype", default="float32", help="in 'float64' layouts have the same losses to many digits")
parser.add_argument("--quick", action="store_true", help="little data, and few passes")
parser.add_argument("--out", type=Path, default=Path("several_devices.png"), help="where the picture goes")
parser.add_argument("--report", type=Path, help="where losses, seconds and bytes go, for `several_processes.py`")
args = parser.parse_args()
examples, epochs, blocks, width, heads = (64, 2, 1, 16, 4) if args.quick else (4096, args.epochs, 2, 64, 4)

# What differs between one device and several: the strategy. Batches go by rows along the axis "data" of the mesh, and
# the layers are divided along "model".
strategy: nn.parallel.Strategy | None = None
if args.layout == "replicated":
    strategy = nn.parallel.Replicated(nn.parallel.mesh({"data": -1}))
elif args.layout == "sharded":
    strategy = nn.parallel.Sharded(nn.parallel.mesh({"data": -1}))
elif args.layout == "tensor":
    strategy = nn.parallel.TensorParallel(nn.parallel.mesh({"model": -1}))
elif args.layout == "both":
    strategy = nn.parallel.TensorParallel(nn.parallel.mesh({"data": -1, "model": 2}), sharded=True)
is_first = strategy is None or strategy.mesh.rank == 0  # of several processes one prints and draws
tc.set_default_dtype(args.dtype)
tc.set_seed(args.seed)

# "345+678=1023": two numbers and their sum, which begins after seven characters. The sum is written from its end, since
# that is where a carry comes from.
digits = 3
rng = np.random.default_rng(args.seed)
numbers = rng.integers(0, 10**digits, (examples + examples // 8, 2))
texts = [f"{a:03d}+{b:03d}=" + f"{a + b:04d}"[::-1] for a, b in numbers.tolist()]
characters = "0123456789+="
codes = np.asarray([[characters.index(c) for c in text] for text in texts])
x, y = codes[:, :-1], codes[:, 1:]
known = np.zeros(x.shape, args.dtype)
known[:, 2 * digits + 1 :] = 1.0  # what is to be predicted: the sum


class Block(nn.Module):
    """Each position looks at those before it, then thinks about what it saw. Both are added to what is there."""

    def __init__(self) -> None:
        self.norms = [nn.LayerNorm(), nn.LayerNorm()]
        self.attention = nn.MultiHeadAttention(heads, width // heads)
        self.thinking = nn.Sequential([nn.Dense(4 * width, activation="relu"), nn.Dense(width)])

    def __call__(self, x: tc.Tensor) -> tc.Tensor:
        seen = self.norms[0](x)
        x = x + self.attention(seen, seen, use_causal_mask=True)
        return x + self.thinking(self.norms[1](x))


class Adder(nn.Module):
    """Numbers of characters, (examples, positions), to logits of the character that follows each."""

    def __init__(self) -> None:
        self.what = nn.Embedding(len(characters), width)
        self.where = nn.Embedding(x.shape[1], width)
        self.blocks = [Block() for _ in range(blocks)]
        self.logits = nn.Dense(len(characters))

    def __call__(self, tokens: tc.Tensor) -> tc.Tensor:
        found = self.what(tokens) + self.where(tc.arange(tokens.shape[1]))
        for block in self.blocks:
            found = block(found)
        return self.logits(found)


class Lines(nn.Callback):
    """Prints a line for each epoch, and keeps the time."""

    def on_epoch_end(self, run: nn.fitting.Run) -> None:
        ends.append(time.perf_counter())
        if is_first:
            print(f"epoch {run.epoch + 1}: loss {run.logs['loss']:.6f}, held out {run.logs['val_loss']:.6f}")


model, optimizer = Adder(), nn.AdamW(0.003, global_clipnorm=1.0)
started = time.perf_counter()
ends = [started]
history = nn.fit(
    model,
    (x[:examples], y[:examples], known[:examples]),
    loss=nn.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=optimizer,
    validation=(x[examples:], y[examples:], known[examples:]),
    batch_size=32,
    epochs=epochs,
    callbacks=[Lines()],
    compile=args.compile,
    parallel=strategy,
    progress=False,
)
seconds = time.perf_counter() - started

# A part of the model is what a device has of it: a copy, or less.
mesh = None if strategy is None else strategy.mesh
where = "one device" if mesh is None else " × ".join(f"{n} along {name}" for name, n in mesh.axes.items())
if is_first and args.report is not None:
    kept = [*model.variables, *optimizer.state_dict(model).values()]
    parts = kept if mesh is None else mesh.engine.local(kept)
    step = min(b - a for a, b in pairwise(ends)) / (examples // 32)
    found = {"loss": history["loss"], "step": step, "bytes": sum(part.nbytes for part in parts)}
    args.report.write_text(json.dumps(found), encoding="utf-8")
if is_first:
    print(f"{args.layout}, {where}, {seconds:.0f} s on {tc.get_backend().name}")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = range(1, epochs + 1)
    axes.semilogy(steps, history["loss"], marker=".", label="training")
    axes.semilogy(steps, history["val_loss"], marker=".", label="held out")
    axes.set(title=f"A transformer learns to add: {args.layout}, {where}", xlabel="epoch", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(args.out, dpi=110)
    print(f"The picture is {args.out.resolve()}")
