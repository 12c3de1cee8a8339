"""Hessian-vector products and batches of gradients against plain gradients; what an operation costs without a tape."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from comparison import Comparison, Step
from workloads import SEED


def _mlp(batch: int, sizes: tuple[int, ...]) -> tuple[Callable[..., Any], list[Any], Any, Any]:
    import tape_core as tc

    rng = np.random.default_rng(SEED)
    x = tc.asarray(rng.standard_normal((batch, sizes[0])), dtype="float32")
    labels = tc.asarray(rng.integers(0, sizes[-1], batch))
    layers = list(pairwise(sizes))
    weights = [tc.asarray(rng.standard_normal(shape) / shape[0] ** 0.5, dtype="float32") for shape in layers]

    def loss(weights: list[Any], x: Any, labels: Any) -> Any:
        for w in weights[:-1]:
            x = tc.relu(x @ w)
        return tc.mean(tc.cross_entropy(x @ weights[-1], labels))

    return loss, weights, x, labels


def hvp(peers: list[str]) -> Comparison:
    """The loss of mnist_mlp: batch 128, 784-512-512-10. A Hessian-vector product beside a gradient."""
    import tape_core as tc

    loss, weights, x, labels = _mlp(128, (784, 512, 512, 10))
    rng = np.random.default_rng(SEED)
    directions = [tc.asarray(rng.standard_normal(w.shape), dtype="float32") for w in weights]
    gradient = tc.grad(lambda w: loss(w, x, labels))
    steps: dict[str, Step] = {
        "product": lambda: tc.hvp(lambda w: loss(w, x, labels), (weights,), (directions,)),
        "gradient": lambda: gradient(weights),
    }
    return Comparison(steps, {("product", "gradient"): 2.5}, ())


def per_example(peers: list[str]) -> Comparison:
    """The gradients of small_mlp for each of 256 examples: 64-64-64-10."""
    import tape_core as tc

    loss, weights, x, labels = _mlp(256, (64, 64, 64, 10))
    gradient = tc.grad(lambda w, x, label: loss(w, x[None], label[None]))
    batched = tc.vmap(gradient, in_axes=(None, 0, 0))

    def loop() -> Any:
        each = [gradient(weights, x[k], labels[k]) for k in range(x.shape[0])]
        return [tc.stack(list(column)) for column in zip(*each, strict=True)]

    steps: dict[str, Step] = {"vmap": lambda: batched(weights, x, labels), "loop": loop}
    return Comparison(steps, {("vmap", "loop"): 1 / 20}, tuple(steps))


CALLS = 200


def without_tape(peers: list[str]) -> Comparison:
    """200 products of 4 numbers while no tape records, and how many µs one takes above NumPy's own."""
    import tape_core as tc

    a, b = np.random.default_rng(SEED).standard_normal((2, 4)).astype(np.float32)
    x, y = tc.asarray(a), tc.asarray(b)

    def by_tape() -> Any:
        for _ in range(CALLS):
            out = tc.multiply(x, y)
        return out

    def by_numpy() -> Any:
        for _ in range(CALLS):
            out = np.multiply(a, b)
        return out

    return Comparison({"Tape": by_tape, "NumPy": by_numpy}, {("Tape", "NumPy"): 0.5}, ("Tape", "NumPy"), CALLS)


COMPARISONS = {make.__name__: make for make in (hvp, per_example, without_tape)}
