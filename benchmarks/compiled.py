"""Compiled functions beside the workloads: a Jacobian against one by hand, and what tracing takes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from comparison import Comparison
from workloads import SEED, workload_data


def compiled_jacobian(peers: list[str]) -> Comparison:
    """x -> tanh(W2 tanh(W1 x)), 100 -> 100, float64: the Jacobian, compiled and by hand."""
    import tape_core as tc

    rng = np.random.default_rng(SEED)
    raw, raw1, raw2 = (rng.standard_normal(shape) / 10 for shape in ((100,), (100, 100), (100, 100)))
    x, w1, w2 = (tc.asarray(a) for a in (raw, raw1, raw2))

    @tc.function
    def by_tape(x: Any, w1: Any, w2: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.tanh(w2 @ tc.tanh(w1 @ x))
        return tape.jacobian(y, x)

    def by_hand() -> Any:
        h = np.tanh(raw1 @ raw)
        y = np.tanh(raw2 @ h)
        return ((1 - y * y)[:, None] * raw2 * (1 - h * h)) @ raw1

    steps = {"Tape, compiled": lambda: by_tape(x, w1, w2), "NumPy by hand": by_hand}
    return Comparison(steps, {("Tape, compiled", "NumPy by hand"): 1.5}, tuple(steps))


def tracing(peers: list[str]) -> Comparison:
    """scalar_chain, 3,250 calls with its gradient: the first call of a compiled function, against one as it is."""
    import tape_core as tc

    step = importlib.import_module("workloads.scalar_chain").with_tape(workload_data("scalar_chain"))
    steps = {"first call": lambda: tc.function(step)(), "as it is": step}
    return Comparison(steps, {("first call", "as it is"): 25}, ())


def training_step(peers: list[str]) -> Comparison:
    """The digits example, 64-128-128-10 with relu, batch 64, and a step of Adam: compiled, and as it is."""
    import tape_core as tc
    import tape_nn as nn

    rng = np.random.default_rng(SEED)
    x = tc.asarray(rng.standard_normal((64, 64), np.float32))
    labels = tc.asarray(rng.integers(0, 10, 64))

    def make() -> Any:
        tc.set_seed(SEED)
        model = nn.Sequential([nn.Dense(128, "relu"), nn.Dense(128, "relu"), nn.Dense(10)])
        model(x)
        optimizer = nn.Adam(1e-3)

        def step(x: Any, labels: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.mean(tc.cross_entropy(model(x), labels))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        return step

    plain, compiled = make(), tc.function(make())
    steps = {"compiled": lambda: compiled(x, labels), "as it is": lambda: plain(x, labels)}
    return Comparison(steps, {("compiled", "as it is"): 0.5}, ("compiled", "as it is"))


COMPARISONS = {make.__name__: make for make in (compiled_jacobian, tracing, training_step)}
