"""Lazy optimizers: a sparse gradient moves the rows that it names, in the Variable and in its slots, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn

FIRST = np.arange(20, dtype=np.float64).reshape(10, 2) / 7
KEYS = [[1, 4, 1], [4, 9, 0], [1, 1, 2]]
OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "adam": lambda: nn.Adam(0.1, epsilon=1e-8, lazy=True),
    "amsgrad": lambda: nn.Adam(0.1, amsgrad=True, lazy=True),
    "adamw": lambda: nn.AdamW(0.1, lazy=True),
    "clipped": lambda: nn.Adam(0.1, global_clipnorm=0.5, lazy=True),
    "momentum": lambda: nn.SGD(0.1, 0.9, lazy=True),
    "nesterov": lambda: nn.SGD(0.1, 0.9, nesterov=True, lazy=True),
}


def train(optimizer: Any, *, compiled: bool = False, keys: Any = KEYS) -> tuple[list[Any], dict[str, Any]]:
    table = tc.Variable(tc.asarray(FIRST, dtype=tc.float64, backend=tc.get_backend()))

    def step(k: Any) -> None:
        with tc.GradientTape() as tape:
            loss = tc.sum(tc.gather(table, k) ** 3)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    run: Any = tc.function(step) if compiled else step
    values = []
    for k in keys:
        run(tc.asarray(k, backend=tc.get_backend()))
        values.append(table.numpy())
    return values, {name: value.numpy() for name, value in optimizer.state_dict({"table": table}).items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_other_rows_and_their_slots_stay_and_compiled_steps_are_the_same(name: str) -> None:
    values, state = train(OPTIMIZERS[name]())
    untouched = sorted(set(range(10)) - {row for rows in KEYS for row in rows})
    np.testing.assert_array_equal(values[-1][untouched], FIRST[untouched])
    np.testing.assert_array_equal(values[-1][9], values[1][9])  # the last update does not name it
    assert not any(state[key][untouched].any() for key in state if key.startswith("table/") and state[key].ndim)
    compiled, same = train(OPTIMIZERS[name](), compiled=True)
    for found, expected in zip([*compiled, *same.values()], [*values, *state.values()], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_where_all_rows_are_named_it_is_the_dense_update(name: str) -> None:
    dense = OPTIMIZERS[name]()
    dense.lazy = False
    keys = [[*range(10), 3], [*range(9, -1, -1), 0]]
    found, expected = train(OPTIMIZERS[name](), keys=keys)[0], train(dense, keys=keys)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_adam_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    table = torch.tensor(FIRST, requires_grad=True)
    optimizer = torch.optim.SparseAdam([table], lr=0.1, eps=1e-8)
    found = train(OPTIMIZERS["adam"]())[0]
    for k, value in zip(KEYS, found, strict=True):
        optimizer.zero_grad()
        loss = (torch.nn.functional.embedding(torch.tensor(k), table, sparse=True) ** 3).sum()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(value, table.detach().numpy(), rtol=1e-7)
