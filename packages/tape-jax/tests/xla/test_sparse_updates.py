"""Updates by gradients of embeddings, which XLA computes: they are those of eager code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.backends import installed
from tape_jax.xla.compiler import XLA

BACKENDS = [name for name in ("numpy", "torch", "jax") if name in installed()]
OPTIMIZERS: dict[str, Callable[[], nn.Optimizer]] = {
    "adam": lambda: nn.Adam(0.1, epsilon=1e-8, global_clipnorm=0.5),
    "adamw": lambda: nn.AdamW(0.1, clipnorm=0.5),
    "rmsprop": lambda: nn.RMSprop(0.1, clipvalue=0.3),
    "momentum": lambda: nn.SGD(0.1, 0.9),
    "lazy": lambda: nn.Adam(0.1, lazy=True),
    "lazy, decay": lambda: nn.AdamW(0.1, lazy=True, amsgrad=True, global_clipnorm=0.5),
    "lazy momentum": lambda: nn.SGD(0.1, 0.9, nesterov=True, lazy=True),
    "descent": lambda: nn.SGD(0.1, clipnorm=0.5),
    "adagrad": lambda: nn.Adagrad(0.1),
}


class Counted(XLA):
    """XLA, which keeps the names of the calls that it is given."""

    names: tuple[str, ...] = ()

    def compile(self, program, run, examples):
        self.names = tuple([instruction.name for instruction in program.instructions])
        return super().compile(program, run, examples)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_that_are_named_twice_move_once_by_their_sum(backend, name):
    xla = Counted()

    def train(compiler):
        with tc.use_backend(backend):
            table = tc.Variable(tc.asarray(np.arange(20.0).reshape(10, 2) / 7))
            optimizer = OPTIMIZERS[name]()

            def step(keys):
                with tc.GradientTape() as tape:
                    loss = tc.sum(tc.gather(table, keys) ** 3)
                optimizer.apply_gradients([(tape.gradient(loss, table), table)])

            run = step if compiler is None else tc.function(step, compile=compiler)
            values = []
            for keys in ([1, 4, 1], [4, -1, 0], [1, 1, 2]):
                run(tc.asarray(keys))
                values.append(table.numpy())
            return values

    for found, expected in zip(train(xla), train(None), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert xla.names
    if backend == "jax" or name in ("adam", "adamw", "rmsprop", "momentum"):  # else the host has the rows in place
        assert "apply_gradients" not in xla.names
