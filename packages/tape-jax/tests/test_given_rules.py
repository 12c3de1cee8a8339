"""Derivatives that users give, where JAX differentiates: `jax.grad` and its relatives take them as Tape does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
from numpy.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("on_jax")


@tc.custom_gradient
def tripled(x):
    """log(1 + exp(x)) with three times its derivative, by residuals that the rule closes over."""
    e = tc.exp(x)
    return tc.log(1 + e), lambda g: g * 3 * (1 - 1 / (1 + e))


@tc.custom_jvp
def pushed(x):
    return tc.log(1 + tc.exp(x))


@pushed.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return pushed(x), 3 * tc.sigmoid(x) * t


@tc.custom_jvp
def exponential(x):
    return tc.exp(x)


@exponential.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    y = exponential(x)  # whose derivative is needed for the next order
    return y, 2 * y * t


@tc.custom_gradient
def recursive(x):
    return tc.exp(x), lambda g: 2 * g * recursive(x)


@tc.custom_jvp
def product(x, y):
    return x * y


@product.defjvp
def _(primals, tangents):
    (x, y), (s, t) = primals, tangents
    return product(x, y), 2 * s * y + 3 * x * t


@tc.custom_jvp
def both(x):
    return x * x, tc.exp(x)


@both.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return both(x), (5 * x * t, 7 * t)


FUNCTIONS = pytest.mark.parametrize("f", [tripled, exponential], ids=lambda f: f.__name__)


def scalar(f):
    """Return a function of arrays of JAX, which returns one."""
    return lambda *args: tc.sum(f(*map(tc.asarray, args)) ** 2).array


def difference(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2 * h)


X = np.asarray([0.7, -0.3, 1.1])


class TestEveryWayToDifferentiate:
    @FUNCTIONS
    def test_first_order_is_tapes(self, f):
        expected = tc.grad(lambda x: tc.sum(f(x) ** 2))(tc.asarray(X))
        true = jax.grad(lambda x: jnp.sum(jnp.log(1 + jnp.exp(x)) ** 2))(X)
        assert not np.allclose(expected, true)  # the derivative that the function has
        F = scalar(f)
        ways = {
            "grad": jax.grad(F),
            "grad of jit": jax.grad(jax.jit(F)),
            "jit of grad": jax.jit(jax.grad(F)),
            "vjp": lambda x: jax.vjp(F, x)[1](1.0)[0],
            "jacfwd": jax.jacfwd(F),
            "jacrev": jax.jacrev(F),
            "linearize": lambda x: jax.vmap(jax.linearize(F, x)[1])(jnp.eye(3)),
            "jvp": lambda x: jnp.stack([jax.jvp(F, (x,), (t,))[1] for t in jnp.eye(3)]),
            "vmap of grad": lambda x: jax.vmap(jax.grad(F))(x[:, None])[:, 0],
            "grad of vmap": jax.grad(lambda x: jnp.sum(jax.vmap(F)(x[:, None]))),
            "vmap of jvp": lambda x: jax.vmap(lambda a: jax.jvp(F, (a,), (jnp.ones(()),))[1])(x),
            "grad of checkpoint": jax.grad(jax.checkpoint(F)),
        }
        for name, way in ways.items():
            assert_allclose(way(X), expected, rtol=1e-10, err_msg=name)

    @pytest.mark.parametrize("f", [tripled, pushed, exponential, recursive], ids=lambda f: f.__name__)
    def test_higher_orders_differentiate_the_rule(self, f):
        def g(x):
            return tc.sum(f(x) ** 2)

        F = scalar(f)
        second, third = tc.grad(tc.grad(g)), tc.grad(tc.grad(tc.grad(g)))
        x = tc.asarray(0.4)
        a = x.array
        first = jax.grad(F)
        for name, way in {
            "reverse over reverse": jax.grad(first),
            "hessian": jax.hessian(F),
            "jit": jax.jit(jax.hessian(jax.jit(F))),
            "forward over forward": jax.jacfwd(jax.jacfwd(F)),
            "reverse over forward": jax.jacrev(jax.jacfwd(F)),
        }.items():
            assert_allclose(way(a), second(x), rtol=1e-10, err_msg=name)
        assert_allclose(jax.grad(jax.grad(first))(a), third(x), rtol=1e-10)
        assert_allclose(jax.jit(jax.jacfwd(jax.hessian(F)))(a), third(x), rtol=1e-10)

    @FUNCTIONS
    def test_inside_control_flow_of_jax(self, f):
        def looped(x):
            return jax.lax.scan(lambda c, _: (f(tc.asarray(c) * 0.5).array, None), x, None, length=3)[0]

        def unrolled(x):
            for _ in range(3):
                x = f(x * 0.5)
            return x

        x = tc.asarray(0.4)
        assert_allclose(jax.grad(looped)(0.4), tc.grad(unrolled)(x), rtol=1e-10)
        assert_allclose(jax.grad(jax.grad(looped))(0.4), tc.grad(tc.grad(unrolled))(x), rtol=1e-10)
        assert_allclose(jax.jacfwd(looped)(0.4), tc.grad(unrolled)(x), rtol=1e-10)

    @FUNCTIONS
    def test_tapes_inside_take_the_rule_and_are_differentiated(self, f):
        def slope(x):
            with tc.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        second = tc.grad(tc.grad(f))(tc.asarray(0.4))
        assert_allclose(jax.grad(lambda a: slope(tc.asarray(a)).array)(0.4), second, rtol=1e-10)
        assert_allclose(jax.jit(jax.grad(lambda a: slope(tc.asarray(a)).array))(0.4), second, rtol=1e-10)
        forward = jax.grad(lambda a: tc.jvp(f, (tc.asarray(a),), (1.0,))[1].array)
        assert_allclose(forward(0.4), second, rtol=1e-10)

    @FUNCTIONS
    def test_inside_vmap_of_tape(self, f):
        def total(x):
            return tc.sum(tc.vmap(lambda row: tc.sum(f(row)) * row)(x))

        x = X[:, None] * jnp.arange(1.0, 3.0)
        expected = tc.grad(total)(tc.asarray(x))
        assert_allclose(jax.grad(lambda a: total(tc.asarray(a)).array)(x), expected, rtol=1e-10)
        assert_allclose(jax.jit(jax.grad(lambda a: total(tc.asarray(a)).array))(x), expected, rtol=1e-10)

    @FUNCTIONS
    def test_call_differentiates_it_so(self, f):
        x = tc.asarray(X)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tape_jax.call(jax.jit(scalar(f)), x)
        assert_allclose(tape.gradient(y, x), tc.grad(lambda x: tc.sum(f(x) ** 2))(x), rtol=1e-10)


def test_a_true_rule_has_the_derivatives_of_jax_and_of_finite_differences():
    @tc.custom_gradient
    def softplus(x):
        e = tc.exp(-tc.abs(x))
        return tc.maximum(x, 0.0) + tc.log(1 + e), lambda g: g * tc.sigmoid(x)

    def F(a):
        return tc.sum(softplus(tc.asarray(a)) ** 2).array

    def G(a):
        return jnp.sum(jax.nn.softplus(a) ** 2)

    for k in range(3):
        for a in (0.7, -2.0, 0.1):
            assert_allclose(F(a), G(a), rtol=1e-10)
            assert_allclose(jax.grad(F)(a), difference(F, a), rtol=1e-7, err_msg=f"order {k}")
        F, G = jax.grad(F), jax.grad(G)


class TestRulesThatAreNoDerivatives:
    def test_clipped_gradient(self):
        @tc.custom_gradient
        def clipped(x):
            return x, lambda g: tc.clip(g, -1.0, 1.0)

        def loss(x):
            return tc.sum(clipped(x * 2.0) ** 3).array

        x = jnp.asarray([0.1, 3.0, -4.0])
        assert_allclose(jax.grad(lambda a: loss(tc.asarray(a)))(x), [0.24, 2.0, 2.0])
        assert_allclose(jax.jit(jax.vmap(jax.grad(lambda a: loss(tc.asarray(a)))))(x), [0.24, 2.0, 2.0])
        # Tape's forward mode takes the transpose of the rule at cotangents of 0, where nothing is clipped.
        t = jnp.ones(3)
        expected = tc.jvp(lambda a: tc.sum(clipped(a * 2.0) ** 3), (tc.asarray(x),), (tc.asarray(t),))[1]
        assert_allclose(jax.jvp(lambda a: loss(tc.asarray(a)), (x,), (t,))[1], expected)

    def test_straight_through(self):
        @tc.custom_gradient
        def rounded(x):
            return tc.round(x), lambda g: g

        x = jnp.asarray([0.4, 1.6])
        f = lambda a: tc.sum(rounded(tc.asarray(a)) ** 2).array  # noqa: E731
        assert_allclose(jax.grad(f)(x), [0.0, 4.0])
        assert_allclose(jax.hessian(f)(x), 2 * np.eye(2))

    def test_none_cuts_the_path(self):
        @tc.custom_gradient
        def product(x, y):
            return x * y, lambda g: (g * y, None)

        f = lambda x, y: product(tc.asarray(x), tc.sqrt(tc.asarray(y))).array  # noqa: E731
        gx, gy = jax.grad(f, (0, 1))(2.0, 0.0)  # and not 0 times the infinite derivative of sqrt
        assert (gx, gy) == (0.0, 0.0)
        assert jax.jvp(f, (2.0, 4.0), (0.0, 1.0))[1] == 0.0


class TestWhatRulesRead:
    def test_closures_over_other_traced_values(self):
        def outer(x, scale):
            scale = tc.asarray(scale)

            @tc.custom_gradient
            def f(x):
                return x * scale, lambda g: g * tc.exp(scale)

            return tc.sum(f(tc.asarray(x))).array

        slope = lambda x, s: jnp.sum(jax.grad(outer)(x, s))  # noqa: E731
        for s in (jax.grad(slope, 1)(X, 0.5), jax.jit(jax.grad(slope, 1))(X, 0.5), jax.jacfwd(slope, 1)(X, 0.5)):
            assert_allclose(s, 3 * np.exp(0.5), rtol=1e-10)
        # What is no argument is a constant, as on a tape.
        assert jax.grad(outer, 1)(X, 0.5) == 0.0

    def test_trees_integers_and_keyword_arguments(self):
        @tc.custom_gradient
        def f(tree, k, *, power):
            x, y = tree["x"], tree["y"]
            return {"a": x**power * y, "k": k + 1}, lambda g, _: ({"x": g * k, "y": 5 * g}, None)

        def loss(tree, k):
            out = f({name: tc.asarray(a) for name, a in tree.items()}, tc.asarray(k), power=2)
            return tc.sum(out["a"] * out["k"]).array

        tree, k = {"x": X, "y": X + 1}, jnp.asarray([1, 2, 3])
        for way in (jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f)), jax.jacfwd):
            found = way(loss)(tree, k)
            assert_allclose(found["x"], [2.0, 6.0, 12.0])
            assert_allclose(found["y"], [10.0, 15.0, 20.0])
        rows = jax.vmap(jax.grad(loss), ({"x": 0, "y": None}, 0))({"x": X[:, None], "y": X[:1] + 1}, k[:, None])
        assert_allclose(rows["x"], [[2.0], [6.0], [12.0]])

    def test_several_results_and_complex_arguments(self):
        @tc.custom_gradient
        def f(z):
            return (z * z, tc.real(z)), lambda g, h: tc.conj(2 * z) * g * 2 + 3 * h

        def loss(z):
            a, b = f(z)
            return tc.sum(tc.abs(a) ** 2) + tc.sum(tc.sin(b))

        z = tc.asarray([0.5 + 1.0j, -1.0 + 0.25j])
        with tc.GradientTape() as tape:
            tape.watch(z)
            y = loss(z)
        expected = tape.gradient(y, z)
        # JAX's gradient of a real function is the conjugate of Tape's.
        assert_allclose(jax.grad(lambda a: loss(tc.asarray(a)).array)(z.array), np.conj(expected), rtol=1e-10)

    def test_variables(self):
        v = tc.Variable(3.0)

        @tc.custom_gradient
        def f(x):
            return x * v, lambda g, variables=None: (g * 10 * v, [g * x])

        assert jax.grad(lambda a: f(tc.asarray(a)).array)(2.0) == 30.0
        assert jax.jit(jax.grad(lambda a: f(tc.asarray(a)).array))(2.0) == 30.0

    def test_a_rule_that_needs_values_is_an_error_only_where_jax_differentiates(self):
        @tc.custom_gradient
        def f(x):
            return x * 2.0, lambda g: tc.asarray(np.asarray(g) * 7.0)

        F = lambda a: f(tc.asarray(a)).array  # noqa: E731
        assert jax.jit(F)(2.0) == 4.0
        assert jax.vmap(F)(np.ones(2)).tolist() == [2.0, 2.0]
        for way in (jax.grad(F), jax.jit(jax.grad(F)), jax.grad(jax.jit(F)), lambda a: jax.jvp(F, (a,), (a,))):
            with pytest.raises(TypeError, match=r"^custom_gradient\(f\): JAX differentiates it, and cannot trace") as e:
                way(2.0)
            assert not any("arose inside Tape" in note for note in getattr(e.value, "__notes__", ()))
        assert tc.grad(f)(tc.asarray(2.0)).item() == 7.0

    def test_a_wrong_rule_is_its_own_error(self):
        @tc.custom_gradient
        def f(x):
            return x * 2.0, lambda g: (g, g)

        assert jax.jit(lambda a: f(tc.asarray(a)).array)(2.0) == 4.0
        with pytest.raises(ValueError, match="expected to return 1 gradients, but returned 2"):
            jax.grad(lambda a: f(tc.asarray(a)).array)(2.0)


def test_orders_beyond_what_jax_is_given_of_a_recursive_rule_are_an_error():
    f = lambda a: recursive(tc.asarray(a)).array  # noqa: E731
    for _ in range(4):
        f = jax.grad(f)
    assert_allclose(f(0.5), 16 * np.exp(0.5), rtol=1e-10)
    with pytest.raises(NotImplementedError, match=r"custom_gradient\(recursive\).*up to order 4"):
        jax.grad(f)(0.5)


def test_collectives_in_a_rule():
    @tc.custom_gradient
    def f(x):
        return x, lambda g: tape_jax.call(lambda g: jax.lax.psum(g, "rows"), g)

    F = lambda a: f(tc.asarray(a) * 2.0).array  # noqa: E731
    grad = jax.vmap(lambda a: jax.grad(lambda a: F(a) * a)(a), axis_name="rows")
    assert_allclose(grad(X), 2 * X + 2 * jnp.sum(X))
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("rows")
    slopes = jax.grad(lambda a: tc.sum(tripled(tc.asarray(a))).array)
    shards = jax.shard_map(slopes, mesh=mesh, in_specs=rows, out_specs=rows)
    assert_allclose(shards(X), slopes(X), rtol=1e-12)


def test_tangents_of_several_inputs_become_their_cotangents():
    def f(x, y):
        return tc.sum(product(x, y)).array

    x, y = jnp.asarray([2.0, 3.0]), jnp.asarray([5.0, 7.0])
    for gradient in (jax.grad(f, (0, 1)), jax.jit(jax.grad(f, (0, 1))), jax.vmap(jax.grad(f, (0, 1)))):
        of_x, of_y = gradient(x, y)
        assert_allclose(of_x, 2 * y)
        assert_allclose(of_y, 3 * x)
    assert_allclose(jax.grad(lambda x: f(x, y))(x), 2 * y)
    of_both, _ = jax.hessian(f, (0, 1))(x, y)
    assert_allclose(of_both[1], 2 * np.eye(2))


def test_tangents_of_several_results_become_one_cotangent():
    x = jnp.asarray(2.0)
    square, exponential = jax.jacrev(lambda x: tuple([y.array for y in both(x)]))(x)
    assert_allclose([square, exponential], [10.0, 7.0])
    assert_allclose(jax.grad(lambda x: both(x)[1].array)(x), 7.0)
    assert_allclose(jax.grad(lambda x: both(x)[0].array + both(x)[1].array)(x), 17.0)


class TestOfOpsWithTapesRules:
    @pytest.mark.parametrize("order", [2, 1, 3, 0.5])
    @pytest.mark.parametrize("at", [[0.0, 0.0], [3.0, 4.0], [0.0, -2.0], [1.0, 1.0]])
    def test_norms_have_tapes_derivative_at_points_without_one(self, order, at):
        f = lambda x: tc.linalg.vector_norm(x, ord=order) * 2.0  # noqa: E731
        x = jnp.asarray(at)
        expected = tc.grad(f)(tc.asarray(x)).numpy()
        F = lambda x: f(tc.asarray(x)).array  # noqa: E731
        for way in (jax.grad(F), jax.jit(jax.grad(F)), jax.jacfwd(F), lambda x: jax.vmap(jax.grad(F))(x[None])[0]):
            assert_allclose(way(x), expected, rtol=1e-12)

    def test_norms_have_higher_orders_and_complex_arguments(self):
        F = lambda x: tc.linalg.vector_norm(tc.asarray(x)).array  # noqa: E731
        assert_allclose(jax.jit(jax.hessian(F))(X), jax.hessian(jnp.linalg.norm)(X), rtol=1e-12, atol=1e-15)
        z = jnp.asarray([1.0 + 2.0j, 3.0 - 1.0j])
        assert_allclose(jax.grad(F)(z), jax.grad(jnp.linalg.norm)(z), rtol=1e-12)
