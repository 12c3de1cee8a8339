"""Mistakes, one in each line that ends with `# mistake`: a type checker finds these and no others."""

from __future__ import annotations

import tape_core as tc
import tape_nn as nn
import tape_tf as tf
from tape_core import Tensor


@tc.function
def step(x: Tensor, times: int) -> Tensor:
    return x * times


class Trainer:
    @tc.function(retrace="allow")
    def step(self, x: Tensor) -> Tensor:
        return x * 2


def energy(x: Tensor) -> Tensor:
    return tc.sum(x * x)


def model_loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    return tc.sum(weights["w"] * x)


def body(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    return total + row, row


def mistakes(x: Tensor, model: nn.Dense) -> None:
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(model(x))
    step("a", 3)  # mistake
    step(x, times=3, foo=1)  # mistake
    Trainer().step(x, x)  # mistake
    tc.grad(energy)(x, 2)  # mistake
    tc.vmap(energy)("x")  # mistake
    tc.sum(x, axs=0)  # mistake
    tc.sinn(x)  # mistake
    energy(tape.gradient(y, [x]))  # mistake
    energy(tape.gradient(y, x, unconnected_gradients="none"))  # mistake
    tc.value_and_grad(energy)(x)[0].assign(0.0)  # mistake
    tc.grad(energy)(x).keys()  # mistake
    tc.grad(model_loss)(x, x)  # mistake
    tc.grad(model_loss)({"w": x}, x).reshape(-1)  # mistake
    tc.value_and_grad(model_loss, 1)({"w": x}, x)[1].keys()  # mistake
    tc.jacrev(energy)(x).assign(0.0)  # mistake
    tc.vjp(energy, x)[1](1.0)[1]  # mistake
    tc.scan(body, x, x, revers=True)  # mistake
    tc.scan(energy, x, x)  # mistake
    tc.while_loop(tc.any, body, x)  # mistake
    tc.default_rng("seed")  # mistake
    tc.default_rng(0).normal(size=3)  # mistake
    tc.default_rng(0).uniform((2,)).detach()  # mistake
    x.std(dim=0)  # mistake
    x.reshape("rows")  # mistake
    nn.Adam(learning_rate="fast")  # mistake
    tf.reduce_sum(tf.constant([1.0]), keep_dims=True)  # mistake
    tf.matmul(tf.constant([[1.0]]))  # mistake
    tf.reshape(tf.constant(1.0), "rows")  # mistake
    tf.cast(tf.constant(1.0), dtype=3)  # mistake
    tf.nn.relu({"x": 1.0})  # mistake
    tf.split(tf.constant([1.0]), 1).numpy()  # mistake
