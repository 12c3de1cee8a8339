"""optax's chains as optimizers of Variables: the same numbers as optax alone, in compiled steps and in runs of fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
import tape_nn as nn
from numpy.testing import assert_allclose

optax = pytest.importorskip("optax")

ROWS = np.random.default_rng(0).standard_normal((16, 2)).astype("float32")


def chain():
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 20)))


def loss_of(w, rows):
    return ((rows @ w - 1.0) ** 2).mean()


def expected(steps: int) -> np.ndarray:
    w, transformation = {"w": jnp.zeros(2, "float32")}, chain()
    state = transformation.init(w)
    for _ in range(steps):
        gradients = jax.grad(lambda w: loss_of(w["w"], ROWS))(w)
        updates, state = transformation.update(gradients, state, w)
        w = optax.apply_updates(w, updates)
    return np.asarray(w["w"])


@pytest.mark.parametrize("backend", ["jax", "numpy"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_updates_are_those_of_optax(backend, is_compiled):
    w = tc.Variable([0.0, 0.0], name="w", backend=backend)
    optimizer = tape_jax.optimizer(chain(), {"w": w})
    rows = tc.asarray(ROWS, backend=backend)

    def step():
        with tc.GradientTape() as tape:
            loss = loss_of(w, rows)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    run = tc.function(step) if is_compiled else step
    for _ in range(5):
        run()
    assert w.backend.name == backend
    assert optimizer.iterations == 5
    assert_allclose(w, expected(5), rtol=2e-5)


def test_a_state_is_saved_and_loaded_and_keys_of_random_numbers_are_part_of_it():
    def made():
        w = tc.Variable([1.0, 1.0], name="w", backend="jax")
        return w, tape_jax.optimizer(optax.chain(optax.add_noise(0.1, 0.5, 0), optax.sgd(0.1, momentum=0.9)), {"w": w})

    def steps(w, optimizer, n):
        for _ in range(n):
            optimizer.apply_gradients([(w * 1.0, w)])
        return w.tolist()

    w, optimizer = made()
    steps(w, optimizer, 3)
    state, value = optimizer.state_dict({"w": w}), w.numpy()
    after = steps(w, optimizer, 2)
    assert after != steps(w, optimizer, 2)
    other, continued = made()
    other.assign(value)
    continued.load_state_dict(state, {"w": other})
    assert steps(other, continued, 2) == after


def test_fit_trains_a_module_and_continues_from_a_checkpoint(tmp_path):
    def fitted(epochs):
        with tc.use_backend("jax"):
            tc.set_seed(0)
            model = nn.Dense(1, kernel_initializer="zeros")
            model.build((None, 2))
            optimizer = tape_jax.optimizer(optax.adam(0.05), model)
            nn.fit(
                model, (ROWS, ROWS.sum(1, keepdims=True)), loss=nn.losses.MeanSquaredError(), optimizer=optimizer,
                epochs=epochs, batch_size=8, seed=0, compile=True, checkpoint=tmp_path / "run", progress=False,
            )  # fmt: skip
            return model.kernel.numpy(), optimizer.iterations

    first, steps = fitted(2)
    assert steps == 4
    second, steps = fitted(40)  # goes on where the first run ended
    assert steps == 80
    assert_allclose(second, [[1.0], [1.0]], atol=0.1)
    assert not np.allclose(first, second)


def test_trees_with_variables_are_trained():
    eqx = pytest.importorskip("equinox")
    model = tape_jax.with_variables(eqx.nn.Linear(2, 1, key=jax.random.key(0)))
    variables = tape_jax.variables(model)
    optimizer = tape_jax.optimizer(optax.adam(0.1), model)

    @eqx.filter_jit
    def loss_of(model, rows):
        return jnp.mean((jax.vmap(model)(rows)[:, 0] - jnp.sum(rows, 1)) ** 2)

    @tc.function
    def step(rows):
        with tc.GradientTape() as tape:
            loss = tape_jax.call(loss_of, model, rows)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    rows = tc.asarray(ROWS, backend="jax")
    losses = [step(rows).item() for _ in range(60)]
    assert losses[-1] < 1e-2 * losses[0]
    assert step.traces == 1


def test_wrong_arguments_are_told():
    w = tc.Variable([1.0], backend="jax")
    with pytest.raises(TypeError, match=r"has init and update, as optax\.adam"):
        tape_jax.optimizer(optax.adam, {"w": w})
    with pytest.raises(TypeError, match="there is no Variable in this list"):
        tape_jax.optimizer(optax.adam(1e-3), [jnp.ones(2)])
