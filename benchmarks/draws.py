"""Random numbers against those of the libraries: arrays of them, dropout, and an epoch in random order."""

from __future__ import annotations

from typing import Any

import numpy as np
from comparison import Comparison, Comparisons
from workloads import SEED

N = 1_000_000
WANTED = 1.5  # times NumPy's own generator
WANTED_DROPOUT = 1.2  # times PyTorch's
WANTED_SHUFFLED = 1.1  # times an epoch in order


def _against_numpy(draw: Any, own: Any) -> Comparison:
    import tape_core as tc

    rng, numbers = tc.default_rng(SEED), np.random.default_rng(SEED)
    steps = {"Tape": lambda: draw(rng), "NumPy": lambda: own(numbers)}
    return Comparison(steps, {("Tape", "NumPy"): WANTED}, ())


def permutation(peers: list[str]) -> Comparison:
    """A permutation of a million numbers."""
    return _against_numpy(lambda rng: rng.permutation(N), lambda rng: rng.permutation(N))


def integers(peers: list[str]) -> Comparison:
    """A million integers below 10."""
    return _against_numpy(lambda rng: rng.integers(0, 10, N), lambda rng: rng.integers(0, 10, N))


def integers_of_a_million(peers: list[str]) -> Comparison:
    """A million integers below 10**6, against NumPy's from the same bits, those of Philox."""
    import tape_core as tc

    rng, numbers = tc.default_rng(SEED), np.random.Generator(np.random.Philox(SEED))
    steps = {"Tape": lambda: rng.integers(0, 10**6, N), "NumPy": lambda: numbers.integers(0, 10**6, N)}
    return Comparison(steps, {("Tape", "NumPy"): WANTED}, ())


def wide_integers(peers: list[str]) -> Comparison:
    """A million integers below 10**12, against NumPy's from the same bits, those of Philox."""
    import tape_core as tc

    rng, numbers = tc.default_rng(SEED), np.random.Generator(np.random.Philox(SEED))
    steps = {"Tape": lambda: rng.integers(0, 10**12, N), "NumPy": lambda: numbers.integers(0, 10**12, N)}
    return Comparison(steps, {("Tape", "NumPy"): WANTED}, ())


def normal(peers: list[str]) -> Comparison:
    """A million normal numbers, float32."""
    return _against_numpy(lambda rng: rng.normal(N), lambda rng: rng.standard_normal(N, dtype=np.float32))


def normal_double(peers: list[str]) -> Comparison:
    """A million normal numbers, float64."""
    return _against_numpy(lambda rng: rng.normal(N, dtype="float64"), lambda rng: rng.standard_normal(N))


def dropout(peers: list[str]) -> Comparison:
    """Dropout of a tenth of 512 x 1024 numbers and its gradient, on PyTorch."""
    try:
        import tape_torch  # noqa: F401
        import torch
    except ImportError:
        return Comparison({}, {}, ())
    import tape_core as tc

    own = torch.rand(512, 1024)
    x, leaf = tc.asarray(own, backend="torch"), own.clone().requires_grad_()

    def by_tape() -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.dropout(x, 0.1))
        return tape.gradient(y, x)

    def by_torch() -> Any:
        y = torch.sum(torch.nn.functional.dropout(leaf, 0.1))
        return torch.autograd.grad(y, leaf)[0]

    return Comparison({"Tape": by_tape, "PyTorch": by_torch}, {("Tape", "PyTorch"): WANTED_DROPOUT}, ())


def shuffled_epoch(peers: list[str]) -> Comparison:
    """An epoch of fit over 100,000 rows of 64 numbers, in batches of 1,000: two layers of 64."""
    import tape_core as tc
    import tape_nn as nn

    rng = tc.default_rng(SEED)
    x = rng.normal((100_000, 64))
    y = tc.sum(x, axis=1, keepdims=True)
    model = nn.Sequential([nn.Dense(64, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(1)])
    optimizer = nn.Adam()

    def epoch(shuffle: bool) -> Any:
        loss = nn.losses.mean_squared_error
        return nn.fit(
            model, (x, y), loss=loss, optimizer=optimizer, batch_size=1000, shuffle=shuffle, seed=1, progress=False
        )

    steps = {"shuffled": lambda: epoch(True), "in order": lambda: epoch(False)}
    return Comparison(steps, {("shuffled", "in order"): WANTED_SHUFFLED}, ())


COMPARISONS: Comparisons = {
    make.__name__: make
    for make in (
        permutation,
        integers,
        integers_of_a_million,
        wide_integers,
        normal,
        normal_double,
        dropout,
        shuffled_epoch,
    )
}
