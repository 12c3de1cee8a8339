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


def _recurrent(scan: bool) -> tuple[Any, Any, list[Any]]:
    """The network of the workload rnn: its last state, what that is of, and the Variables."""
    import tape_core as tc

    tc.set_backend("numpy")  # the peers on PyTorch have been in this process
    raw = workload_data("rnn")
    xs = tc.stack([tc.asarray(x) for x in raw["xs"]])
    w, u, b = variables = [tc.Variable(raw[name]) for name in ("w", "u", "b")]

    def step(h: Any, x: Any) -> Any:
        return tc.tanh(x @ w + h @ u + b), None

    def last(xs: Any) -> Any:
        h = tc.zeros((xs.shape[1], u.shape[0]))
        if scan:
            return tc.scan(step, h, xs)[0]
        for x in tc.unstack(xs):
            h, _ = step(h, x)
        return h

    return last, xs, variables


def _gradient(last: Any, xs: Any, variables: list[Any]) -> Any:
    import tape_core as tc

    def step() -> Any:
        with tc.GradientTape() as tape:
            loss = tc.sum(last(xs) ** 2)
        return [loss, *tape.gradient(loss, variables)]

    return step


def inside_a_tape(peers: list[str]) -> Comparison:
    """rnn, a compiled function in the block of a tape that is not: beside all compiled, and as it is."""
    import tape_core as tc

    last, xs, variables = _recurrent(scan=False)
    inside = _gradient(tc.function(last), xs, variables)
    inside()  # as it is; the next is traced
    steps = {
        "compiled inside": inside,
        "compiled": tc.function(_gradient(last, xs, variables)),
        "as it is": _gradient(last, xs, variables),
    }
    return Comparison(steps, {("compiled inside", "as it is"): 0.7, ("compiled inside", "compiled"): 1.4}, tuple(steps))


def loops(peers: list[str]) -> Comparison:
    """rnn, its gradient with tape_core.scan in place of Python's loop: compiled, and as it is."""
    import tape_core as tc

    steps = {}
    for name, scan in (("scan", True), ("loop", False)):
        step = _gradient(*_recurrent(scan))
        steps |= {f"{name}, compiled": tc.function(step), f"{name}, as it is": step}
    ratios = {("scan, compiled", "loop, compiled"): 1.3, ("scan, as it is", "loop, as it is"): 1.5}
    return Comparison(steps, ratios, tuple(steps))


COMPARISONS = {make.__name__: make for make in (tracing, training_step, inside_a_tape, loops)}
