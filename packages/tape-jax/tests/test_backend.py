"""The JAX backend, as its users meet it."""

import jax
import tape_core as tc


def test_gradients_of_jax_arrays_are_jax_arrays():
    x = tc.asarray([1.0, 2.0, 3.0], backend="jax")
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(x[1:] ** 2)
    gradient = tape.gradient(y, x)
    assert isinstance(gradient.array, jax.Array)
    assert gradient.array.tolist() == [0.0, 4.0, 6.0]
