"""Learn to read handwritten digits.

python docs/examples/digits.py                  # a few seconds
python docs/examples/digits.py --backend numpy --epochs 10 --seed 1
python docs/examples/digits.py --compile        # compiled, and beside it as it is
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import tape_core as tc
import tape_nn as nn
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from sklearn.datasets import load_digits
from tqdm import trange

parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--backend", help="the array library; by default the selected one")
parser.add_argument("--epochs", type=int, default=30, help="passes over the training images")
parser.add_argument("--seed", type=int, default=0, help="decides the split and all random numbers")
parser.add_argument("--compile", action="store_true", help="compile the training, and time it as it is, too")
parser.add_argument("--quick", action="store_true", help="only a few epochs")
parser.add_argument("--out", type=Path, default=Path("digits.png"), help="where the picture goes")
args = parser.parse_args()
if args.quick:
    args.epochs = 3
if args.backend:
    tc.set_backend(args.backend)

# 1,797 images of 8 x 8 pixels from 0 to 16. A fifth is held out: the network never learns from it.
digits = load_digits()
rng = tc.default_rng(args.seed)
order = rng.permutation(len(digits.target))
images = tc.asarray(digits.data / 8 - 1, dtype=tc.float32)[order]
labels = tc.asarray(digits.target)[order]
held_out = len(digits.target) // 5
test_x, train_x = images[:held_out], images[held_out:]
test_y, train_y = labels[:held_out], labels[held_out:]

noise = rng.normal((7 * len(train_y), 64), stddev=0.5)

batch = 64
beginning = rng.get_state()


def train(*, compiled: bool) -> tuple[nn.Module, list[tuple[dict[str, float], ...]], list[float]]:
    """A trained network, how well it did after each epoch, and the seconds of each step."""
    rng.set_state(beginning)
    model = nn.Sequential(
        [
            nn.Dense(128, activation="relu", rng=rng),
            nn.Dense(128, activation="relu", rng=rng),
            nn.Dense(10, rng=rng),
        ]
    )
    model(train_x[:1])  # makes the weights
    optimizer = nn.Adam()

    def step(rows: tc.Tensor, shift: tc.Tensor) -> None:
        """Record the loss, walk the tape backwards, move the weights."""
        x = train_x[rows] + noise[(rows + shift) % len(noise)]
        with tc.GradientTape() as tape:
            loss = tc.mean(tc.cross_entropy(model(x), train_y[rows]))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def evaluate(x: tc.Tensor, y: tc.Tensor) -> dict[str, float]:
        """Outside a tape nothing is recorded."""
        logits = model(x)
        right = tc.argmax(logits, axis=-1).numpy() == y.numpy()
        return {"loss": tc.mean(tc.cross_entropy(logits, y)).item(), "accuracy": right.mean()}

    if compiled:
        step = tc.function(step)
    history = []
    seconds = []
    with trange(args.epochs, unit="epoch") as epochs:
        for epoch in epochs:
            optimizer.learning_rate = 0.01 * (1 - epoch / args.epochs)  # ever smaller steps
            order = rng.permutation(len(train_y))
            shift = tc.asarray(997 * epoch)  # hardly ever the same image with the same noise
            for start in range(0, len(train_y), batch):
                started = time.perf_counter()
                step(order[start : start + batch], shift)
                seconds.append(time.perf_counter() - started)
            history.append((evaluate(train_x, train_y), evaluate(test_x, test_y)))
            epochs.set_postfix({name: f"{value:.3f}" for name, value in history[-1][1].items()})
    return model, history, seconds


model, history, seconds = train(compiled=args.compile)
accuracy = history[-1][1]["accuracy"]
summary = f"{accuracy:.1%} of {held_out} held-out digits read correctly"
print(f"{summary} after {sum(seconds):.2f} s of training on {tc.get_backend().name}")
if args.compile:
    _, same, as_it_is = train(compiled=False)
    ratio, rest = sum(as_it_is) / sum(seconds), sum(as_it_is[1:]) / sum(seconds[1:])
    print(f"As it is, not compiled, training takes {sum(as_it_is):.2f} s: {ratio:.1f} times as long")
    print(f"The first compiled step takes {seconds[0]:.2f} s; as it is, the others take {rest:.1f} times as long")
    print("Every loss is the same, to the last bit" if same == history else "The losses differ")

# The picture: how training went, which digit is taken for which, and the hardest images.
chances = tc.softmax(model(test_x)).numpy()
truth, read = test_y.numpy(), chances.argmax(axis=1)
hardest = chances[np.arange(held_out), truth].argsort()[:10]
counts = np.zeros((10, 10), dtype=int)
np.add.at(counts, (truth, read), 1)

figure = Figure(figsize=(12, 7), layout="constrained")
figure.suptitle(summary, fontsize=15, fontweight="bold")
top, bottom = figure.subfigures(2, height_ratios=[2, 1])
loss, accuracy, confusion = top.subplots(1, 3)
for axes, what in [(loss, "loss"), (accuracy, "accuracy")]:
    for column, label, color in [(0, "training", "silver"), (1, "held out", "tab:blue")]:
        values = [row[column][what] for row in history]
        axes.plot(range(1, len(values) + 1), values, ".-", color=color, label=label)
    axes.set(title=what.capitalize(), xlabel="epoch", box_aspect=1)
    axes.grid(alpha=0.3)
    axes.legend(loc="center right")
accuracy.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
confusion.imshow(counts**0.5, cmap="Blues")  # the root lets single mistakes show
for (row, column), count in np.ndenumerate(counts):
    color = "white" if row == column else "tab:red"
    confusion.text(column, row, count or "", color=color, ha="center", va="center")
confusion.set(title="Confusion", xlabel="read as", ylabel="written")
confusion.set(xticks=range(10), yticks=range(10))
bottom.suptitle("The hardest held-out images", fontsize=12)
for i, axes in zip(hardest, bottom.subplots(1, 10), strict=True):
    axes.imshow(test_x[int(i)].numpy().reshape(8, 8), cmap="gray_r")
    axes.set(xticks=[], yticks=[])
    caption = f"{truth[i]} read as {read[i]}\n{chances[i].max():.0%} sure"
    axes.set_title(caption, fontsize=9, color="black" if read[i] == truth[i] else "tab:red")
figure.savefig(args.out, dpi=150)
print(f"The picture is {args.out.resolve()}")
