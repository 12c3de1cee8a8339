"""Tape in functions that JAX transforms, and Tensors as arguments of JAX's functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
from numpy.testing import assert_allclose


@pytest.fixture(autouse=True)
def on_jax():
    with tc.use_backend("jax"):
        yield


def cubes(x):
    return tc.sum(x**3)


X = tc.asarray([1.0, 2.0], backend="jax")


class TestTransformationsOfJax:
    def test_jit_takes_and_returns_tensors(self):
        found = jax.jit(lambda tree: {"g": tc.grad(cubes)(tree["x"]), "n": tree["x"].shape[0]})({"x": X})
        assert isinstance(found["g"], tc.Tensor)
        assert found["g"].tolist() == [3.0, 12.0]
        assert tc.sum(found["g"]).item() == 15.0

    def test_grad_of_a_gradient_of_tape(self):
        def inner(x):
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = cubes(tc.sin(x))
            return tc.sum(tape.gradient(y, x) ** 2).array

        def pure(x):
            return jnp.sum(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 3))(x) ** 2)

        assert_allclose(jax.grad(inner)(X), jax.grad(pure)(X.array), rtol=1e-5)
        assert_allclose(jax.jit(jax.hessian(inner))(X).array, jax.hessian(pure)(X.array), rtol=1e-5)

    def test_vmap_jvp_and_scan(self):
        rows = tc.asarray([[1.0, 2.0], [3.0, 4.0]])
        assert jax.vmap(tc.grad(cubes))(rows).tolist() == [[3.0, 12.0], [27.0, 48.0]]
        y, t = jax.jvp(cubes, (X,), (X,))
        assert (y.item(), t.item()) == (9.0, 27.0)
        last, seen = jax.lax.scan(lambda c, x: (c + x, c * x), X[0], X)
        assert (last.item(), seen.tolist()) == (4.0, [1.0, 4.0])

    def test_compiled_functions_modules_and_generators_of_tape_inside_jit(self):
        import tape_nn as nn

        layer = nn.Dense(2, kernel_initializer="ones")
        layer.build((None, 2))
        assert jax.jit(lambda x: layer(x))(X[None]).tolist() == [[3.0, 3.0]]
        assert jax.jit(lambda x: tc.vmap(tc.sin)(x))(X).shape == (2,)
        compiled = tc.function(lambda x: tc.sum(x * tc.asarray([1.0, 2.0])))
        assert jax.jit(compiled)(X).item() == 5.0
        assert jax.grad(lambda x: compiled(x).array)(X).tolist() == [1.0, 2.0]
        assert compiled.traces == 0  # no program keeps what JAX traced
        assert compiled(X).item() == 5.0
        draw = jax.jit(lambda x: x + tc.random.Generator(seed=3).normal((2,)))
        with pytest.warns(UserWarning, match="are constants"):
            assert draw(X).tolist() == draw(X).tolist()

    def test_call_inside_jit_and_jacobian(self):
        def gradient(x):
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = tape_jax.call(lambda a: jnp.sum(jnp.sin(a) ** 2), x)
            return tape.gradient(y, x)

        assert_allclose(jax.jit(gradient)(X), np.sin([2.0, 4.0]), rtol=1e-5)
        assert_allclose(jax.jacobian(gradient)(X).array, np.diag(2 * np.cos([2.0, 4.0])), rtol=1e-5, atol=1e-6)

    def test_arrays_of_numpy_go_in_and_arrays_of_jax_come_out(self):
        found = jax.jit(lambda x: x * 2.0)(tc.asarray([1.0], backend="numpy"))
        assert found.backend.name == "jax"
        assert found.tolist() == [2.0]

    def test_shard_map_and_pmap(self):
        mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
        rows = jax.sharding.PartitionSpec("rows")

        def gradient(x):
            total = tape_jax.call(lambda a: jax.lax.psum(jnp.sum(a), "rows"), x)
            return tc.grad(cubes)(x) + total

        assert jax.shard_map(gradient, mesh=mesh, in_specs=rows, out_specs=rows)(X).tolist() == [6.0, 15.0]
        assert jax.pmap(gradient, axis_name="rows")(X[None]).tolist() == [[6.0, 15.0]]

    def test_what_eval_shape_returns_can_be_printed(self):
        found = jax.eval_shape(lambda x: tc.tanh(x[None]), jnp.ones(2))
        assert (found.shape, found.dtype) == ((1, 2), tc.float64)
        assert "shape=(1, 2), dtype=float64, backend=jax)" in str(found)

    def test_a_variable_that_is_assigned_in_a_traced_function_is_named_where_it_is_used(self):
        v = tc.Variable([1.0, 2.0])
        jax.jit(lambda x: v.assign(x * 2.0).value)(X)
        with pytest.raises(jax.errors.UnexpectedTracerError, match=r"assigned to a Variable\. Return it from the"):
            v + 1.0

    def test_a_decision_by_a_value_is_jaxs_error_at_the_users_line(self):
        def decides(x):
            return x if x > 0 else -x

        with pytest.raises(jax.errors.TracerBoolConversionError, match=r"decides at .*test_trees") as caught:
            jax.jit(decides)(tc.asarray(1.0))
        assert "decides" in [entry.name for entry in caught.traceback]


class TestFunctionsOfJaxOnTensors:
    def test_they_take_the_values_of_tensors_that_no_tape_knows(self):
        assert_allclose(jnp.sin(X), jnp.sin(X.array))
        assert jnp.stack([X, X]).shape == (2, 2)
        assert isinstance(jnp.asarray(X), jax.Array)

    @pytest.mark.parametrize(
        "f",
        [jnp.sin, jnp.asarray, jax.jit(lambda x: x), lambda x: jnp.stack([x, x]), lambda x: jax.tree.map(abs, x)],
        ids=["sin", "asarray", "jit", "stack", "tree"],
    )
    def test_they_refuse_what_a_tape_records(self, f):
        with tc.GradientTape() as tape:
            tape.watch(X)
            with pytest.raises(TypeError, match=r"the gradient would end there.*tape_jax\.call"):
                f(X * 2.0)

    @pytest.mark.parametrize("compile", ["python", "xla"])
    def test_compiled_functions_return_arrays_of_jax(self, compile):
        table, key = jnp.arange(3.0), jax.random.key(1)
        f = tc.function(lambda x: (x + 1.0, table, key), compile=compile)
        for _ in range(2):
            found = f(X)
            assert isinstance(found[1], jax.Array)
            assert found[1].tolist() == [0.0, 1.0, 2.0]
            assert found[2] == key

    def test_they_refuse_what_has_no_values(self):
        with pytest.raises(TypeError, match=r"inside tape_core\.vmap.*tape_jax\.call"):
            tc.vmap(lambda x: jnp.sin(x))(X)
        with pytest.raises(TypeError, match=r"in a compiled function.*tape_jax\.call"):
            tc.function(lambda x: jnp.sin(x))(X)

    def test_operators_with_an_array_on_the_left_are_recorded(self):
        raw = jnp.asarray([3.0, 4.0], dtype="float32")
        x = tc.Variable([1.0, 2.0])
        with tc.GradientTape() as tape:
            y = tc.sum(raw * x) + raw @ x - x[0]
        assert tape.gradient(y, x).tolist() == [5.0, 8.0]
        with tc.GradientTape() as tape:
            y = tc.sum(tc.where(raw < x, x, raw / x))
        assert tape.gradient(y, x).tolist() == [-3.0, -1.0]


# -- trees with Variables


def test_variables_take_the_places_of_arrays_in_a_tree():
    tree = {"w": jnp.ones(2), "steps": jnp.arange(2), "activation": jnp.tanh, "name": "n"}
    model = tape_jax.with_variables(tree)
    (w,) = tape_jax.variables(model)
    assert model["w"] is w
    assert w.name == "['w']"
    assert model["activation"] is jnp.tanh
    assert tape_jax.with_variables(model)["w"] is w
    with tc.GradientTape() as tape:
        y = tape_jax.call(lambda m: jnp.sum(m["activation"](m["w"] * m["steps"])), model)
    assert_allclose(tape.gradient(y, w), [0.0, 1 - np.tanh(1.0) ** 2], rtol=1e-5)
    w.assign([5.0, 6.0])
    back = tape_jax.with_arrays(model)
    assert isinstance(back["w"], jax.Array)
    assert back["w"].tolist() == [5.0, 6.0]


def test_equinox_modules_are_functions_and_arguments():
    eqx = pytest.importorskip("equinox")
    mlp = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    model = tape_jax.with_variables(mlp)
    variables = tape_jax.variables(model)
    x = jnp.asarray([[0.5, -1.0], [1.0, 2.0]])

    def loss(mlp, x):
        return jnp.mean(jax.vmap(mlp)(x) ** 2)

    expected = jax.tree.leaves(eqx.filter(eqx.filter_grad(loss)(mlp, x), eqx.is_array))
    for f in (loss, eqx.filter_jit(loss)):
        with tc.GradientTape() as tape:
            y = tape_jax.call(f, model, x)
        for g, e in zip(tape.gradient(y, variables), expected, strict=True):
            assert_allclose(g, e, rtol=1e-5, atol=1e-6)
    # The module itself, and a jitted one, of one row.
    for f in (model, eqx.filter_jit(mlp)):
        assert_allclose(tape_jax.call(f, x[0]), mlp(x[0]), rtol=1e-5)


def test_flax_modules_take_variables():
    nn = pytest.importorskip("flax.linen")
    layer = nn.Dense(3)
    params = layer.init(jax.random.key(0), jnp.ones((1, 2)))
    own = tape_jax.with_variables(params)
    with tc.GradientTape() as tape:
        y = tc.sum(tape_jax.call(jax.jit(layer.apply), own, jnp.ones((1, 2))))
    found = tape.gradient(y, own)
    assert found["params"]["kernel"].tolist() == [[1.0] * 3] * 2
    assert found["params"]["bias"].tolist() == [1.0] * 3


def test_solutions_of_diffrax_have_gradients():
    diffrax = pytest.importorskip("diffrax")

    def solve(rate, start):
        term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
        saved = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 3))
        control = diffrax.PIDController(rtol=1e-8, atol=1e-8)
        solver = diffrax.Tsit5()
        return diffrax.diffeqsolve(
            term, solver, 0.0, 1.0, 0.1, start, args=rate, saveat=saved, stepsize_controller=control
        )

    rate, start = tc.Variable(0.7, dtype=tc.float64), tc.asarray([2.0], dtype=tc.float64)
    with tc.GradientTape() as tape:
        end = tape_jax.call(solve, rate, start).ys[-1, 0]
    assert_allclose(end, 2 * np.exp(-0.7), rtol=1e-6)
    assert_allclose(tape.gradient(end, rate), -2 * np.exp(-0.7), rtol=1e-6)


def test_jax_says_whether_it_is_tracing():
    """Of all that the package uses of JAX, this alone is private: a release of JAX without it fails here first."""
    from jax._src.core import trace_state_clean

    seen = []

    def f(x):
        seen.append(trace_state_clean())
        return x * 2.0

    jax.jit(f)(1.0)
    jax.grad(f)(1.0)
    jax.vmap(f)(jnp.ones(2))
    jax.linearize(f, 1.0)
    assert seen == [False] * 4
    assert trace_state_clean()
