"""First calls of Keras layers and of tf.functions in several threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


THREADS = 8


class _Own(tf.keras.layers.Layer):
    """A layer that sets `built` before its weights exist."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        time.sleep(0.005)
        self.w = self.add_weight(shape=(input_shape[-1], 3), initializer="glorot_uniform", name="w")

    def call(self, inputs: Any) -> Any:
        return tf.matmul(inputs, self.w)


def _sequential() -> Any:
    return tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.Sequential([tf.keras.layers.Dense(3)])])


def together(call: Any) -> list[Any]:
    """Call a function from several threads at once, and return its results."""
    barrier = threading.Barrier(THREADS)

    def run() -> Any:
        barrier.wait(60)
        return call()

    with ThreadPoolExecutor(THREADS) as pool:
        return [job.result(60) for job in [pool.submit(run) for _ in range(THREADS)]]


@pytest.mark.parametrize("make", [_Own, lambda: tf.keras.layers.Dense(4), _sequential])
def test_threads_that_make_the_first_call_at_once_see_the_same_weights(make: Any) -> None:
    for _ in range(5):
        layer = make()
        x = tf.ones((2, 5))
        found = together(lambda layer=layer, x=x: layer(x).numpy().tolist())
        assert found == [layer(x).numpy().tolist()] * THREADS
        assert len(layer.weights) in (1, 2, 4)


def test_a_function_that_threads_call_at_once_is_traced_once() -> None:
    runs: list[int] = []

    @tf.function
    def f(x: Any) -> Any:
        runs.append(1)
        for _ in range(20):
            x = tf.sin(x)
        return x

    x = tf.constant([1.0, 2.0])
    assert len({tuple(y) for y in together(lambda: f(x).numpy().tolist())}) == 1
    assert len(runs) == f.experimental_get_tracing_count() == 1
