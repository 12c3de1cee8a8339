"""Runs of `fit` on a mesh and alone, and their comparison: what the tests of PyTorch's and JAX's meshes share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tape_core as tc
import tape_nn as nn


class Run(NamedTuple):
    """What a run came to: its history, the weights as whole arrays of NumPy, and the model."""

    history: Any
    weights: list[Any]
    model: Any


def run(model: nn.Module, data: Any, strategy: nn.parallel.Strategy | None, **options: Any) -> Run:
    """Train a model in two epochs."""
    defaults = {"seed": 1, "epochs": 2, "batch_size": 8, "progress": False}
    history = nn.fit(model, data, parallel=strategy, **{**defaults, **options})
    whole = model.variables if strategy is None else strategy.engine.full(model.variables)
    return Run(history, [v.numpy() for v in whole], model)


def classify(model: nn.Module, data: Any, strategy: nn.parallel.Strategy | None, **options: Any) -> Run:
    """Train a model to tell two classes apart; `averaged=True` keeps an average of its weights."""
    average = nn.ExponentialMovingAverage(model, 0.9) if options.pop("averaged", False) else None
    loss, optimizer = nn.losses.BinaryCrossentropy(from_logits=True), nn.Adam(0.01, global_clipnorm=1.0)
    return run(model, data, strategy, **{"loss": loss, "optimizer": optimizer, "average": average, **options})


class Attending(nn.Module):
    """Attention between tokens, beside what goes past it, from a vocabulary to itself."""

    def __init__(self, heads: int, dropout: float) -> None:
        self.embedding = nn.Embedding(10, 8)
        self.attention = nn.MultiHeadAttention(heads, 4, dropout=dropout)
        self.out = nn.Dense(10)

    def __call__(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        return self.out(x + self.attention(x, x, use_causal_mask=True))


def attend(strategy: nn.parallel.Strategy | None, heads: int = 2, dropout: float = 0.0, **options: Any) -> Run:
    """Train attention to repeat its tokens."""
    tc.set_seed(0)
    tokens = np.random.default_rng(0).integers(0, 10, size=(8, 5))
    loss = nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    return run(Attending(heads, dropout), (tokens, tokens), strategy, loss=loss, **options)


def assert_same_run(found: Run, expected: Run, atol: float) -> None:
    """Fail unless two runs came to the same, up to rounding, of which Adam makes steps, too."""
    assert list(found.history) == list(expected.history)
    for name in expected.history:
        np.testing.assert_allclose(found.history[name], expected.history[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for one, other in zip(found.weights, expected.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=atol)
