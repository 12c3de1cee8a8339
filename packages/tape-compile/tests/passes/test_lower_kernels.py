"""Kernels in compiled functions are the calls of NumPy that they consist of, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from support import same


def losses(logits: tc.Tensor, labels: tc.Tensor) -> list[tc.Tensor]:
    with tc.GradientTape() as tape:
        tape.watch(logits)
        loss = tc.mean(tc.cross_entropy(tc.relu(logits), labels))
    slope = tape.gradient(loss, logits)
    return [loss, slope, tc.sum(slope, axis=0), tc.mean(logits, axis=0), tc.mean(logits)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "classes"), [(1, 1), (7, 5), (64, 32), (9, 33)])
def test_losses_have_the_bits_of_eager(dtype: str, n: int, classes: int) -> None:
    rng = np.random.default_rng(n)
    labels = tc.asarray(rng.integers(0, classes, n))
    compiled = tc.function(losses)
    for _ in range(3):
        logits = tc.asarray(rng.normal(size=(n, classes)).astype(dtype), backend="numpy")
        assert all(same(a, b) for a, b in zip(compiled(logits, labels), losses(logits, labels), strict=True))


def test_a_loss_and_its_gradient_share_the_exponentials() -> None:
    compiled = tc.function(losses)
    compiled(tc.ones((8, 4)), tc.asarray([0, 1, 2, 3, 0, 1, 2, 3]))
    assert compiled.text().count("= exp(") == 1


def test_labels_are_checked_in_each_call() -> None:
    compiled = tc.function(losses)
    compiled(tc.ones((2, 4)), tc.asarray([0, 3]))
    for label in (4, -1):
        with pytest.raises(ValueError, match=r"labels must be in \[0, 4\)"):
            compiled(tc.ones((2, 4)), tc.asarray([0, label]))


def test_a_mean_ends_a_run_of_elementwise_calls() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.mean(tc.tanh(x) * x)

    compiled = tc.function(f)
    x = tc.asarray(np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32), backend="numpy")
    compiled(x)
    assert compiled.stats()[0]["fusion"] == 2  # the run with its sum, and the division
    assert same(compiled(x), f(x))


def test_it_can_be_left_out() -> None:
    compiled = tc.function(passes={"lower_kernels": False})(losses)
    compiled(tc.ones((8, 4)), tc.asarray([0, 1, 2, 3, 0, 1, 2, 3]))
    assert "cross_entropy(" in compiled.text()
