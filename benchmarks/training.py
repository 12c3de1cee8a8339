"""Steps of training with tape_nn: against NumPy by hand, and against PyTorch with torch.optim."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from comparison import Comparison, Step
from numpy.lib.stride_tricks import sliding_window_view
from workloads import SEED

BATCH, SIZE, CHANNELS, CLASSES = 64, 8, (1, 16, 32, 64), 10
RATE = 1e-6  # the weights hardly move: each step has the same work to do
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # with the epsilon of Keras PyTorch differs: it adds it elsewhere
TRAINED = 10  # steps of a large rate, after which the peers must have found the same

Make = Callable[[float], Step]  # a learning rate to a step that gives the loss


# -- the network of docs/examples/digits_convnet.py: three convolutions 3 x 3, the second with pooling, one dense layer


def _data() -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images with the channels last, labels, and the weights as tape_nn has them."""
    rng = np.random.default_rng(SEED)
    shapes = [(3, 3, a, b) for a, b in itertools.pairwise(CHANNELS)]
    shapes.append(((SIZE // 2) ** 2 * CHANNELS[-1], CLASSES))
    weights = []
    for shape in shapes:
        scale = np.float32((2 / np.prod(shape[:-1])) ** 0.5)
        weights += [rng.standard_normal(shape, np.float32) * scale, np.zeros(shape[-1], np.float32)]
    return rng.random((BATCH, SIZE, SIZE, 1), np.float32), rng.integers(0, CLASSES, BATCH), weights


def _adam_by_hand(weights: list[np.ndarray], rate: float) -> Callable[[list[np.ndarray]], None]:
    """In place, with memory for what lies between: nothing is allocated."""
    states = [(w, np.zeros_like(w), np.zeros_like(w), np.empty_like(w)) for w in weights]
    count = 0

    def update(gradients: list[np.ndarray]) -> None:
        nonlocal count
        count += 1
        size = rate * (1 - BETA_2**count) ** 0.5 / (1 - BETA_1**count)
        for (w, m, v, scratch), g in zip(states, gradients, strict=True):
            m *= BETA_1
            np.multiply(g, 1 - BETA_1, out=scratch)
            m += scratch
            v *= BETA_2
            np.multiply(g, g, out=scratch)
            scratch *= 1 - BETA_2
            v += scratch
            np.sqrt(v, out=scratch)
            scratch += EPSILON
            np.divide(m, scratch, out=scratch)
            scratch *= size
            w -= scratch

    return update


def _convnet_by_hand(rate: float) -> Step:
    x, labels, weights = _data()
    k1, a1, k2, a2, k3, a3, w, b = weights
    update = _adam_by_hand(weights, rate)
    rows = np.arange(BATCH)

    def windows_of(x: Any) -> Any:
        """Of 3 x 3, with zeros around `x`, as rows of a matrix."""
        n, height, width, channels = x.shape
        padded = np.zeros((n, height + 2, width + 2, channels), x.dtype)
        padded[:, 1:-1, 1:-1] = x
        windows = sliding_window_view(padded, (3, 3), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
        return windows.reshape(n * height * width, -1)

    def conv(x: Any, k: Any, a: Any) -> tuple[Any, Any]:
        """The convolution and relu, and the windows."""
        windows = windows_of(x)
        out = windows @ k.reshape(-1, k.shape[-1])
        out += a
        np.maximum(out, 0, out=out)
        return out.reshape(*x.shape[:-1], -1), windows

    def conv_gradients(d: Any, windows: Any, k: Any) -> tuple[Any, Any]:
        d = d.reshape(-1, k.shape[-1])
        return (windows.T @ d).reshape(k.shape), np.ones(len(d), d.dtype) @ d

    def conv_input_gradient(d: Any, k: Any) -> Any:
        n, height, width, _ = d.shape
        mirrored = k[::-1, ::-1].transpose(0, 1, 3, 2).reshape(-1, k.shape[2])
        return (windows_of(d) @ mirrored).reshape(n, height, width, -1)

    def step() -> Any:
        c1, windows1 = conv(x, k1, a1)
        c2, windows2 = conv(c1, k2, a2)
        wide = np.maximum(c2[:, :, ::2], c2[:, :, 1::2])
        pooled = np.maximum(wide[:, ::2], wide[:, 1::2])
        c3, windows3 = conv(pooled, k3, a3)
        flat = c3.reshape(BATCH, -1)
        logits = flat @ w + b
        logits -= logits.max(axis=1, keepdims=True)
        exp = np.exp(logits)
        total = exp.sum(axis=1, keepdims=True)
        loss = np.mean(np.log(total[:, 0]) - logits[rows, labels])

        d = exp / total
        d[rows, labels] -= 1
        d /= BATCH
        dense = [flat.T @ d, d.sum(0)]
        d3 = (d @ w.T).reshape(c3.shape)
        d3 *= c3 > 0
        dp = conv_input_gradient(d3, k3)
        # Equal ones are zeros, which relu lets nothing through to.
        fields = c2.reshape(BATCH, SIZE // 2, 2, SIZE // 2, 2, -1)
        d2 = (fields == pooled[:, :, None, :, None]) * dp[:, :, None, :, None]
        d2 = d2.reshape(c2.shape)
        d2 *= c2 > 0
        d1 = conv_input_gradient(d2, k2)
        d1 *= c1 > 0
        update(
            [
                *conv_gradients(d1, windows1, k1),
                *conv_gradients(d2, windows2, k2),
                *conv_gradients(d3, windows3, k3),
                *dense,
            ]
        )
        return loss

    return step


def _convnet_by_tape(backend: str) -> Make:
    import tape_core as tc
    import tape_nn as nn

    def make(rate: float) -> Step:
        selected = tc.use_backend(backend)
        images, numbers, weights = _data()
        with selected:
            x, labels = (tc.asarray(a, backend=backend, copy=True) for a in (images, numbers))
            model = nn.Sequential(
                [
                    nn.Conv2D(CHANNELS[1], 3, padding="same", activation="relu"),
                    nn.Conv2D(CHANNELS[2], 3, padding="same", activation="relu"),
                    nn.MaxPool2D(2),
                    nn.Conv2D(CHANNELS[3], 3, padding="same", activation="relu"),
                    nn.Flatten(),
                    nn.Dense(CLASSES),
                ]
            )
            model(x)
            for variable, value in zip(model.trainable_variables, weights, strict=True):
                variable.assign(tc.asarray(value, backend=backend))
        optimizer = nn.Adam(rate, BETA_1, BETA_2, EPSILON)

        def step() -> Any:
            with selected:
                variables = model.trainable_variables
                with tc.GradientTape() as tape:
                    loss = tc.mean(tc.cross_entropy(model(x), labels))
                gradients = tape.gradient(loss, variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))
                return loss

        return step

    return make


def _convnet_by_torch(rate: float) -> Step:
    import torch
    from torch import nn

    images, numbers, weights = _data()
    x, labels = torch.tensor(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(numbers)
    model = nn.Sequential(
        nn.Conv2d(CHANNELS[0], CHANNELS[1], 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(CHANNELS[1], CHANNELS[2], 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(CHANNELS[2], CHANNELS[3], 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear((SIZE // 2) ** 2 * CHANNELS[3], CLASSES),
    )
    dense = weights[6].reshape(SIZE // 2, SIZE // 2, CHANNELS[3], CLASSES).transpose(2, 0, 1, 3).reshape(-1, CLASSES).T
    values = [w.transpose(3, 2, 0, 1) if w.ndim == 4 else w for w in weights[:6]] + [dense, weights[7]]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(value.copy()))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(BETA_1, BETA_2), eps=EPSILON)

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _trained(make: Make) -> Step:
    def outcome() -> Any:
        step = make(1e-3)
        return [step() for _ in range(TRAINED)]

    return outcome


def _of(columns: dict[str, Make], target: float) -> Comparison:
    """The second column is what the first is measured against."""
    first, second = columns
    steps = {name: make(RATE) for name, make in columns.items()}
    outcomes = {name: _trained(make) for name, make in columns.items()}
    return Comparison(steps, {(first, second): target}, tuple(steps), outcomes=outcomes)


NOTHING = Comparison({}, {}, ())


def convnet(peers: list[str]) -> Comparison:
    """A step of the digits convnet, batch 64, with Adam, on NumPy."""
    if "tape" not in peers:
        return NOTHING
    return _of({"Tape": _convnet_by_tape("numpy"), "by hand": _convnet_by_hand}, 1.5)


def convnet_torch(peers: list[str]) -> Comparison:
    """The same on PyTorch, against modules of torch.nn and torch.optim."""
    if not {"tape_torch", "torch"} <= set(peers):
        return NOTHING
    return _of({"Tape on PyTorch": _convnet_by_tape("torch:cpu"), "PyTorch": _convnet_by_torch}, 1.1)


# -- Adam alone

PARTS, EACH = 10, (1000, 1000)


def _arrays() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights, and gradients that are far above the epsilon."""
    rng = np.random.default_rng(SEED)
    weights = [rng.standard_normal(EACH, np.float32) for _ in range(PARTS)]
    return weights, [rng.random(EACH, np.float32) + np.float32(0.1) for _ in range(PARTS)]


def _adam_alone_by_hand(rate: float) -> Step:
    weights, gradients = _arrays()
    update = _adam_by_hand(weights, rate)

    def step() -> Any:
        update(gradients)
        return weights[-1]

    return step


def _adam_alone_by_tape(backend: str) -> Make:
    import tape_core as tc
    import tape_nn as nn

    def make(rate: float) -> Step:
        weights, gradients = _arrays()
        variables = [tc.Variable(w, backend=backend) for w in weights]
        pairs = [(tc.asarray(g, backend=backend, copy=True), v) for g, v in zip(gradients, variables, strict=True)]
        optimizer = nn.Adam(rate, BETA_1, BETA_2, EPSILON)

        def step() -> Any:
            optimizer.apply_gradients(pairs)
            return variables[-1]

        return step

    return make


def _adam_alone_by_torch(rate: float) -> Step:
    import torch

    weights, gradients = _arrays()
    parameters = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    optimizer = torch.optim.Adam(parameters, lr=rate, betas=(BETA_1, BETA_2), eps=EPSILON, foreach=True)

    def step() -> Any:
        optimizer.step()
        return parameters[-1].detach()

    return step


def adam(peers: list[str]) -> Comparison:
    """Adam on 10 arrays of 1,000,000 parameters, on NumPy, against the same in place by hand."""
    if "tape" not in peers:
        return NOTHING
    return _of({"Tape": _adam_alone_by_tape("numpy"), "by hand": _adam_alone_by_hand}, 1.2)


def adam_torch(peers: list[str]) -> Comparison:
    """The same on PyTorch, against torch.optim.Adam(foreach=True)."""
    if not {"tape_torch", "torch"} <= set(peers):
        return NOTHING
    return _of({"Tape on PyTorch": _adam_alone_by_tape("torch:cpu"), "PyTorch": _adam_alone_by_torch}, 1.3)


COMPARISONS = {make.__name__: make for make in (convnet, convnet_torch, adam, adam_torch)}
