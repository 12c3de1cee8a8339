"""The backend for JAX that docs/write-a-backend.md leads to, in at most 40 lines, computes and learns as NumPy."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_conformance import check_backend

SOURCE = Path(__file__).parents[3] / "tests" / "plugins" / "tape-plain-jax" / "src"


@pytest.fixture(scope="module")
def plain():
    sys.path.insert(0, str(SOURCE))
    try:
        import tape_plain_jax

        return tape_plain_jax.tape_load_backend()
    finally:
        sys.path.remove(str(SOURCE))


def test_it_is_short():
    assert len((SOURCE / "tape_plain_jax" / "__init__.py").read_text("utf-8").splitlines()) <= 40


@pytest.mark.parametrize("op", ["sum", pytest.param("scatter_add", marks=pytest.mark.long_on_jax)])
def test_ops(plain, op):
    report = check_backend(plain, only=[f"{op}/value/*", f"{op}/vjp/*"])
    assert report.ok, report.failed


def test_indices_and_axes_out_of_bounds_are_errors(plain):
    x = tc.ones((2, 3), backend=plain)
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(IndexError):
        tc.take(x, tc.asarray([0, 7], backend=plain), axis=0)
    with pytest.raises(IndexError):
        tc.sum(x, axis=2)


@pytest.mark.long_on_jax
def test_training_is_that_of_numpy(plain):
    x = np.random.default_rng(0).normal(size=(16, 8, 8, 1)).astype(np.float32)
    labels = np.arange(16) % 3

    def losses(backend):
        with tc.use_backend(backend):
            tc.set_seed(0)
            model = nn.Sequential([nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(3)])
            optimizer, found = nn.Adam(0.01), []
            for _ in range(3):
                with tc.GradientTape() as tape:
                    loss = tc.mean(tc.cross_entropy(model(x), labels))
                variables = model.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                found.append(loss.item())
            return found

    np.testing.assert_allclose(losses(plain), losses("numpy"), rtol=1e-4)
