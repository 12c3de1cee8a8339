"""Training steps of a large embedding of which each step reads few rows: Adam that moves these rows only."""

from __future__ import annotations

import numpy as np

from programs import Data, Step, Wrap

TOLERANCE = 1e-3  # float32, after several steps
RATE, EPSILON = 1e-2, 1e-10


def data(rng: np.random.Generator, small: bool) -> Data:
    rows, width, ids = (50, 4, 8) if small else (1_000_000, 32, 512)
    return {
        "table": rng.standard_normal((rows, width)).astype(np.float32),
        "ids": rng.integers(0, rows, (16, ids)),
        "targets": rng.standard_normal((16, ids, width)).astype(np.float32),
    }


def with_tape(data: Data, wrap: Wrap) -> Step:
    import tape_core as tc
    import tape_nn as nn

    model = nn.Embedding(*data["table"].shape)
    model.build()
    model.load_state_dict({"embeddings": data["table"]})
    optimizer = nn.Adam(RATE, epsilon=EPSILON, lazy=True)
    steps = 0

    @wrap
    def train(ids, targets):
        with tc.GradientTape() as tape:
            loss = tc.mean((model(ids) - targets) ** 2)
        optimizer.apply_gradients(tape.gradient(loss, model), model)
        return loss

    def step():
        nonlocal steps
        k = steps % len(data["ids"])
        steps += 1
        return [train(data["ids"][k], data["targets"][k])]

    return step


STYLES = {"lazy Adam": with_tape}


def with_torch(data: Data) -> Step:
    import torch

    model = torch.nn.Embedding.from_pretrained(torch.tensor(data["table"]), freeze=False, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=RATE, eps=EPSILON)
    ids, targets = torch.tensor(data["ids"]), torch.tensor(data["targets"])
    steps = 0

    def step():
        nonlocal steps
        k = steps % len(ids)
        steps += 1
        optimizer.zero_grad()
        loss = ((model(ids[k]) - targets[k]) ** 2).mean()
        loss.backward()
        optimizer.step()
        return [loss.detach()]

    return step
