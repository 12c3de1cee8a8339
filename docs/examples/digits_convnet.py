"""Read handwritten digits with a convolutional network: at least 98.5 % of those it has never seen.

python docs/examples/digits_convnet.py                       # a quarter of a minute
TAPE_BACKEND=torch python docs/examples/digits_convnet.py    # the same on PyTorch
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import tape_core as tc
import tape_nn as nn
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from tqdm import trange

parser = argparse.ArgumentParser(description="Read handwritten digits with a convolutional network.")
parser.add_argument("--epochs", type=int, default=60, help="passes over the training images")
parser.add_argument("--seed", type=int, default=0, help="decides the split and all random numbers")
parser.add_argument("--quick", action="store_true", help="only a few epochs")
parser.add_argument("--out", type=Path, default=Path("digits_convnet.png"), help="where the picture goes")
args = parser.parse_args()
epochs = 3 if args.quick else args.epochs

# 1,797 images of 8 x 8 pixels from 0 to 16, with the channels last: (examples, height, width, channels). A fifth, which
# the seed chooses, is held out: the network never learns from it.
digits = load_digits()
rng = tc.default_rng(args.seed)
order = rng.permutation(len(digits.target))
images = tc.asarray(digits.images[..., None] / 16, dtype=tc.float32)[order]
labels = tc.asarray(digits.target)[order]
held_out = len(digits.target) // 5
test_x, train_x = images[:held_out], images[held_out:]
test_y, train_y = labels[:held_out], labels[held_out:]

# Two convolutions see fields of 5 x 5 pixels, pooling halves the resolution, a third one sees almost the whole image.
model = nn.Sequential(
    [
        nn.Conv2D(16, 3, padding="same", activation="relu", rng=rng),
        nn.Conv2D(32, 3, padding="same", activation="relu", rng=rng),
        nn.MaxPool2D(2),
        nn.Conv2D(64, 3, padding="same", activation="relu", rng=rng),
        nn.Flatten(),
        nn.Dense(10, rng=rng),
    ]
)
batch = 64
steps = epochs * -(-len(train_y) // batch)
optimizer = nn.AdamW(nn.schedules.CosineDecay(0.002, steps), weight_decay=0.01)


def moved(x: tc.Tensor) -> tc.Tensor:
    """Half of the images as they are, the others moved by up to a pixel each way: it is the same digit there."""
    n = len(x)
    padded = tc.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shift = tc.where(rng.uniform((n,)) < 0.5, 1, rng.integers(0, 3, (2, n)))[..., None, None]
    pixels = tc.arange(8)
    return padded[tc.arange(n)[:, None, None], shift[0] + pixels[:, None], shift[1] + pixels]


def train_step(x: tc.Tensor, y: tc.Tensor) -> float:
    """Record the loss, walk the tape backwards, move the weights."""
    with tc.GradientTape() as tape:
        loss = tc.mean(tc.cross_entropy(model(x), y))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss.item()


def accuracy(x: tc.Tensor, y: tc.Tensor) -> float:
    """Outside a tape nothing is recorded."""
    return tc.mean(tc.astype(tc.argmax(model(x), axis=-1) == y, tc.float32)).item()


history = []
started = time.perf_counter()
with trange(epochs, unit="epoch") as progress:
    for _ in progress:
        order = rng.permutation(len(train_y))
        rows = [order[start : start + batch] for start in range(0, len(order), batch)]
        losses = [train_step(moved(train_x[r]), train_y[r]) for r in rows]
        history.append((np.mean(losses), accuracy(train_x, train_y), accuracy(test_x, test_y)))
        progress.set_postfix(loss=f"{history[-1][0]:.4f}", held_out=f"{history[-1][2]:.4f}")
seconds = time.perf_counter() - started
summary = f"{history[-1][2]:.1%} of {held_out} held-out digits read correctly"
print(f"{summary} after {seconds:.0f} s of training on {tc.get_backend().name}")

# The picture: how training went, what the first layer looks for, what comes out of each layer, and the hardest images.
chances = tc.softmax(model(test_x)).numpy()
truth, read = test_y.numpy(), chances.argmax(axis=1)
hardest = chances[np.arange(held_out), truth].argsort()[:10]

figure = Figure(figsize=(12, 7.5), layout="constrained")
figure.suptitle(summary, fontsize=15, fontweight="bold")
top, bottom = figure.subfigures(2, height_ratios=[2.6, 1])
left, middle, right = top.subfigures(1, 3, width_ratios=[1.15, 1, 1.15])

axes = left.subplots()
for column, label, color in [(1, "training images", "silver"), (2, "held out", "tab:blue")]:
    errors = [100 * (1 - row[column]) for row in history]
    axes.plot(range(1, epochs + 1), errors, color=color, label=label)
axes.axhline(1.5, color="tab:red", linewidth=1, linestyle=":", label="aim: 1.5 %")
axes.set(title="Images read wrongly, %", xlabel="epoch", ylim=(0, 10))
axes.grid(alpha=0.3)
axes.legend()

middle.suptitle("The 16 kernels of the first layer", fontsize=12)
kernels = model.trainable_variables[0].numpy()[:, :, 0]
for k, axes in enumerate(middle.subplots(4, 4).flat):
    axes.imshow(kernels[..., k], cmap="RdBu", vmin=-abs(kernels).max(), vmax=abs(kernels).max())
    axes.set(xticks=[], yticks=[])

right.suptitle("One digit, and channels of the three layers", fontsize=12)
x = test_x[int(chances[np.arange(held_out), truth].argmax())][None]
grid = right.subplots(4, 4)
for row, layer in enumerate([None, 0, 1, 3]):  # the third of them is pooling
    y = x
    for step in [] if layer is None else model.layers[: layer + 1]:
        y = step(y)
    seen = y.numpy()[0]
    strongest = np.argsort(-seen.sum(axis=(0, 1)))[:4]
    for column, axes in enumerate(grid[row]):
        if column < seen.shape[-1]:
            axes.imshow(seen[..., strongest[column]], cmap="gray_r" if layer is None else "viridis")
        axes.set(xticks=[], yticks=[], frame_on=column < seen.shape[-1])
    grid[row][0].set_ylabel(["image", "first", "second", "third"][row])

bottom.suptitle("The hardest held-out images", fontsize=12)
for i, axes in zip(hardest, bottom.subplots(1, 10), strict=True):
    axes.imshow(test_x[int(i)].numpy()[..., 0], cmap="gray_r")
    axes.set(xticks=[], yticks=[])
    caption = f"{truth[i]} read as {read[i]}\n{chances[i].max():.0%} sure"
    axes.set_title(caption, fontsize=9, color="black" if read[i] == truth[i] else "tab:red")
figure.savefig(args.out, dpi=100)
print(f"The picture is {args.out.resolve()}")
