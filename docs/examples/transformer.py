"""A transformer that learns to write like Python's manual, letter by letter.

python docs/examples/transformer.py                       # minutes
TAPE_BACKEND=torch python docs/examples/transformer.py    # the same on PyTorch
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import tape_core as tc
import tape_nn as nn
from matplotlib.figure import Figure
from tqdm import trange

parser = argparse.ArgumentParser(description="A transformer that learns to write like Python's manual.")
parser.add_argument("--steps", type=int, default=1500, help="updates of the weights")
parser.add_argument("--seed", type=int, default=0, help="decides all random numbers")
parser.add_argument("--quick", action="store_true", help="a small network, and a few steps")
parser.add_argument("--out", type=Path, default=Path("transformer.png"), help="where the picture goes")
args = parser.parse_args()
steps, blocks, width = (30, 1, 32) if args.quick else (args.steps, 3, 96)
heads, context, batch = 4, 64, 16

# What `help("lambda")` and the like show: it ships with Python. Each character is a number; the last tenth is held out.
text = "".join(topics.values())
characters = sorted(set(text))
number_of = {character: number for number, character in enumerate(characters)}
rng = tc.default_rng(args.seed)
data = tc.asarray([number_of[character] for character in text])
train, held_out = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]


class Block(nn.Module):
    """Each position looks at those before it, then thinks about what it saw. Both are added to what is there."""

    def __init__(self) -> None:
        self.norms = [nn.LayerNorm(), nn.LayerNorm()]
        self.attention = nn.MultiHeadAttention(heads, width // heads, rng=rng)
        self.thinking = nn.Sequential([nn.Dense(4 * width, activation="relu", rng=rng), nn.Dense(width, rng=rng)])

    def __call__(self, x: tc.Tensor) -> tc.Tensor:
        seen = self.norms[0](x)
        x = x + self.attention(seen, seen, use_causal_mask=True)
        return x + self.thinking(self.norms[1](x))


class Transformer(nn.Module):
    """Numbers of characters, (examples, positions), to logits of the character that follows each."""

    def __init__(self) -> None:
        self.what = nn.Embedding(len(characters), width, rng=rng)
        self.where = nn.Embedding(context, width, rng=rng)
        self.blocks = [Block() for _ in range(blocks)]
        self.norm = nn.LayerNorm()
        self.logits = nn.Dense(len(characters), rng=rng)

    def __call__(self, x: tc.Tensor) -> tc.Tensor:
        x = self.what(x) + self.where(tc.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def excerpts(source: tc.Tensor, n: int) -> tuple[tc.Tensor, tc.Tensor]:
    """Pieces of text from anywhere, and the same one character further: what is to be predicted."""
    starts = rng.integers(0, len(source) - context, (n, 1))
    pieces = source[starts + tc.arange(context + 1)]
    return pieces[:, :-1], pieces[:, 1:]


model = Transformer()
schedule = nn.schedules.WarmUp(nn.schedules.CosineDecay(0.003, steps), steps=steps // 20)
optimizer = nn.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0)
check = excerpts(held_out, 128)
losses, checks = [], []
started = time.perf_counter()
with trange(steps, unit="step") as progress:
    for step in progress:
        x, y = excerpts(train, batch)
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        losses.append(loss.item() / np.log(2))
        if step % max(1, steps // 40) == 0 or step == steps - 1:
            checks.append((step, tc.mean(tc.cross_entropy(model(check[0]), check[1])).item() / np.log(2)))
            progress.set_postfix(bits=f"{checks[-1][1]:.2f}")
seconds = time.perf_counter() - started
size = sum(v.size for v in model.trainable_variables)
summary = f"{checks[-1][1]:.2f} bits per held-out character"
print(f"{summary} with {size:,} parameters after {seconds:.0f} s of training on {tc.get_backend().name}")


def write(start: str, n: int, temperature: float = 0.7) -> str:
    """Predict a character, draw one by its probability, go on from there."""
    written = [number_of[character] for character in start]
    for _ in range(n):
        logits = model(tc.asarray([written[-context:]]))[0, -1]
        chances = tc.cumulative_sum(tc.softmax(logits / temperature)).numpy()
        written.append(min(int(np.searchsorted(chances, rng.uniform().item())), len(characters) - 1))
    return "".join(characters[number] for number in written)


sample = write("The statement ", 40 if args.quick else 700)
print(sample)

# The picture: the loss, what was written, and where each head of the last block looks.
counts = np.zeros((len(characters), len(characters)))
np.add.at(counts, (train[:-1].numpy(), train[1:].numpy()), 1)
chance = (counts + 0.1) / (counts + 0.1).sum(axis=1, keepdims=True)  # of each character after another
of_pairs = -np.log2(chance[held_out[:-1].numpy(), held_out[1:].numpy()]).mean()

figure = Figure(figsize=(12, 8), layout="constrained")
figure.suptitle(f"A transformer on Python's manual: {summary}", fontsize=15, fontweight="bold")
top, bottom = figure.subfigures(2, height_ratios=[1.1, 1])
left, right = top.subplots(1, 2)
left.plot(losses, color="silver", linewidth=0.7, label="training batches")
left.plot(*zip(*checks, strict=True), color="tab:blue", label="held out")
left.axhline(of_pairs, color="tab:red", linestyle=":", label="knowing only the character before")
left.set(title="Bits per character", xlabel="step", ylim=(1, 7))
left.grid(alpha=0.3)
left.legend()
right.text(0, 1, sample, family="monospace", fontsize=8, va="top", transform=right.transAxes)
right.set(title="What it writes")
right.axis("off")

bottom.suptitle(
    "Where the four heads of the last block look: each row is a character, and so is each column", fontsize=12
)
shown = "def f(x): return x"
x = model.what(tc.asarray([[number_of[c] for c in shown]])) + model.where(tc.arange(len(shown)))
for block in model.blocks[:-1]:
    x = block(x)
seen = model.blocks[-1].norms[0](x)
_, weights = model.blocks[-1].attention(seen, seen, use_causal_mask=True, return_attention_scores=True)
for head, axes in enumerate(bottom.subplots(1, heads)):
    axes.imshow(weights[0, head].numpy(), cmap="Blues", vmin=0)
    axes.set(xticks=range(len(shown)), yticks=range(len(shown)), xticklabels=shown, yticklabels=shown)
    axes.tick_params(length=0)
figure.savefig(args.out, dpi=100)
print(f"The picture is {args.out.resolve()}")
