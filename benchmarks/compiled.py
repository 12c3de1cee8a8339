"""Compiled functions beside the workloads: what tracing takes, and a training step."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from comparison import Comparison
from workloads import SEED, workload_data


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


COMPARISONS = {make.__name__: make for make in (tracing, training_step)}
