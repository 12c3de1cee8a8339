"""Programs of XLA in files."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
import tape_nn as nn


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


def test_a_program_has_both_modes_as_far_as_its_derivatives_go_and_says_so(tmp_path, on_jax):
    f = tc.function(lambda x, k: (tc.sum(tc.sin(x) * x[::-1] ** 2), k + 1), compile="xla")
    x, v = tc.asarray([0.5, 1.0], dtype="float64"), tc.asarray([1.0, -2.0], dtype="float64")
    k = tc.asarray([1, 2])
    f.export(tmp_path / "f", x, k, format="stablehlo", derivatives=2)
    run = tape_jax.load_exported(tmp_path / "f")
    ways = {
        "jvp": lambda f: tc.jvp(f, (x,), (v,)),
        "jacfwd": lambda f: tc.jacfwd(f)(x),
        "reverse over reverse": lambda f: tc.grad(lambda x: tc.sum(tc.grad(f)(x) * v))(x),
        "reverse over forward": lambda f: tc.grad(lambda x: tc.jvp(f, (x,), (v,))[1])(x),
        "examples": lambda f: tc.vmap(lambda v: tc.jvp(f, (x,), (v,))[1])(tc.stack([v, -v])),
    }
    of = lambda f: lambda x: f(x, k)[0]  # noqa: E731
    for name, way in ways.items():
        if name == "reverse over forward":  # a third derivative of the file
            with pytest.raises(NotImplementedError, match=r"derivatives of this order.*derivatives="):
                way(of(run))
            continue
        for found, wanted in zip(tc.tree_leaves(way(of(run))), tc.tree_leaves(way(of(f))), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12, err_msg=name)


@pytest.mark.long_on_jax
def test_a_program_runs_for_each_example_of_a_vmap_and_each_row_of_a_jacobian(tmp_path, on_jax):
    weights, labels = tc.asarray([2.0, 1.0, 0.5], dtype="float64"), tc.asarray([0, 2])

    @tc.function(compile="xla")
    def f(x, k, w):
        scores = tc.tanh(x[:, None] * w)
        return tc.take_along_axis(scores, k[:, None], axis=1)[:, 0] * x[::-1], tc.argmax(scores, axis=1)

    x = tc.asarray([0.5, -1.0], dtype="float64")
    f.export(tmp_path / "f", x, labels, weights, format="stablehlo", derivatives=2)
    run = tape_jax.load_exported(tmp_path / "f")
    rows = tc.stack([x, 2 * x, 1 - x])
    total = lambda f: lambda x, w: tc.sum(f(x, labels, w)[0] ** 2)  # noqa: E731
    ways = {
        "vmap": lambda f: tc.vmap(f, (0, None, None))(rows, labels, weights),
        "vmap over labels": lambda f: tc.vmap(f, (None, 0, None))(x, tc.stack([labels, labels[::-1]]), weights),
        "vmap in vmap": lambda f: tc.vmap(
            lambda x: tc.vmap(lambda w: f(x, labels, w))(tc.stack([weights, -weights]))
        )(rows),
        "gradients of each": lambda f: tc.vmap(tc.grad(total(f), (0, 1)), (0, None))(rows, weights),
        "the gradient of a vmap": lambda f: tc.grad(lambda w: tc.sum(tc.vmap(total(f), (0, None))(rows, w)))(weights),
        "Jacobian": lambda f: tc.jacrev(lambda x: f(x, labels, weights)[0])(x),
        "Hessian": lambda f: tc.jacrev(tc.grad(total(f)))(x, weights),
        "compiled": lambda f: tc.function(tc.vmap(lambda x: f(x, labels, weights)), compile="xla")(rows),
        "map": lambda f: tc.map(lambda x: f(x, labels, weights)[0], rows),
    }  # fmt: skip
    for name, way in ways.items():
        for found, wanted in zip(tc.tree_leaves(way(run)), tc.tree_leaves(way(f)), strict=True):
            assert found.dtype == wanted.dtype, name
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12, atol=1e-14, err_msg=name)


def test_programs_of_jax_export_take_their_trees(tmp_path, on_jax):
    program = jax.export.export(jax.jit(lambda x: {"double": 2 * x, "square": x**2}))(jnp.ones(2))
    (tmp_path / "f").write_bytes(program.serialize(vjp_order=1))
    run = tape_jax.load_exported(tmp_path / "f")
    rows = tc.asarray([[1.0, 2.0], [3.0, 4.0]], dtype="float64")
    assert tc.vmap(run)(rows)["double"].tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert tc.vmap(tc.jacrev(lambda x: run(x)["square"]))(rows)[1].tolist() == [[6.0, 0.0], [0.0, 8.0]]
    with pytest.raises(NotImplementedError, match=r"tape_jax\.load_exported"):
        tc.vmap(lambda x: tape_jax.call(program.call, x))(rows)


def test_what_no_file_can_hold_is_refused(tmp_path):
    path = tmp_path / "f.stablehlo"
    x = tc.ones(3)
    draws = tc.function(lambda x: x + tc.random.global_rng().uniform((3,)), compile="xla")
    with pytest.raises(ValueError, match="draws random numbers"):
        draws.export(path, x, format="stablehlo")
    v, optimizer = tc.Variable(tc.ones(3)), nn.Adam(0.1)
    step = tc.function(lambda x: optimizer.apply_gradients([(x, v)]), compile="xla")
    with pytest.raises(ValueError, match="optimizers count their steps: export the function that"):
        step.export(path, x, format="stablehlo")
    with pytest.raises(ValueError, match="compile='xla'"):
        tc.function(lambda x: x + 1).export(path, x, format="stablehlo")
    assert not path.exists()
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        tape_jax.load_exported(path)
