"""Programs of XLA in files."""

import numpy as np
import pytest
import tape_core as tc
import tape_jax


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_program_comes_back_with_its_gradient(tmp_path, backend):
    with tc.use_backend(backend):
        w = tc.Variable(tc.ones((3, 2)) * 0.5)
        offset = tc.arange(100.0)

        @tc.function(compile="xla")
        def f(x):
            carry, _ = tc.scan(lambda c, e: (tc.tanh(c + e @ w), c), tc.zeros(2), x)
            return tc.sum(carry), offset * 2

        x = tc.ones((4, 3)) * 0.1
        expected = f(x)
        path = tmp_path / "f.stablehlo"
        f.export(path, x, format="stablehlo", derivatives=1)
        gradient = tc.grad(lambda x: f(x)[0])(x)
    loaded = tape_jax.load_exported(path)
    a, b = tc.asarray(x.numpy(), backend="jax"), tc.asarray(w.numpy(), backend="jax")
    for found, wanted in zip(loaded(a, b), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)
    with tc.GradientTape() as tape:
        tape.watch(a)
        y = loaded(a, b)[0]
    np.testing.assert_allclose(tape.gradient(y, a).numpy(), gradient.numpy(), rtol=1e-4)


def test_a_program_has_reverse_mode_and_one_example_at_a_time_and_says_so(tmp_path, on_jax):
    f = tc.function(lambda x: tc.sum(tc.sin(x) * x), compile="xla")
    x = tc.asarray([0.5, 1.0], dtype="float64")
    f.export(tmp_path / "f", x, format="stablehlo", derivatives=2)
    run = tape_jax.load_exported(tmp_path / "f")
    g = lambda x: run(x)[0]  # noqa: E731
    product = tc.grad(lambda x: tc.sum(tc.grad(g)(x) * x))(x)
    assert np.allclose(product.numpy(), tc.grad(lambda x: tc.sum(tc.grad(f)(x) * x))(x).numpy())
    assert np.allclose(tc.map(g, x[None]).numpy(), f(x).numpy())
    for forward in (tc.hessian(g), tc.jacfwd(g)):
        with pytest.raises(NotImplementedError, match=r"reverse mode alone.*grad"):
            forward(x)
    for batched in (lambda x: tc.vmap(g)(x[None]), tc.jacrev(tc.grad(g))):
        with pytest.raises(NotImplementedError, match=r"all examples of a vmap at once.*tape_core.map"):
            batched(x)


def test_what_no_file_can_hold_is_refused(tmp_path):
    path = tmp_path / "f.stablehlo"
    x = tc.ones(3)
    draws = tc.function(lambda x: x + tc.random.global_rng().uniform((3,)), compile="xla")
    with pytest.raises(ValueError, match="draws random numbers"):
        draws.export(path, x, format="stablehlo")
    with pytest.raises(ValueError, match="compile='xla'"):
        tc.function(lambda x: x + 1).export(path, x, format="stablehlo")
    assert not path.exists()
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        tape_jax.load_exported(path)
