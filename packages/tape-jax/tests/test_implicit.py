"""custom_root and fixed_point where JAX differentiates and compiles: the derivative is the implicit one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
from numpy.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("on_jax")

LINEAR = ("iteration", "dense", "gmres")
SOLVERS = ("iteration", "anderson", "newton")


def equation(z, a):
    return z**3 + z - a


def by_python(a):
    z = tc.ones_like(a)
    while tc.max(tc.abs(equation(z, a))).item() > 1e-13:
        z = z - equation(z, a) / (3 * z * z + 1)
    return z


def by_loop(a):
    return tc.while_loop(
        lambda z: tc.max(tc.abs(equation(z, a))) > 1e-13,
        lambda z: z - equation(z, a) / (3 * z * z + 1),
        tc.ones_like(a),
    )


def on_arrays(f):
    return lambda *args: f(*map(tc.asarray, args)).array


def of_jax(a):
    """The same root by JAX alone."""

    def solve(f, z):
        return jax.lax.while_loop(lambda z: jnp.abs(f(z)) > 1e-13, lambda z: z - f(z) / (3 * z * z + 1), z)

    return jax.lax.custom_root(lambda z: equation(z, a), jnp.ones_like(a), solve, lambda g, y: y / g(jnp.ones_like(y)))


def differences(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2 * h)


WAYS = {
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (1.0,))[1],
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "hessian": jax.hessian,
    "reverse twice": lambda f: jax.jit(jax.grad(jax.grad(f))),
    "third": lambda f: jax.grad(jax.hessian(f)),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, x + 1])),
    "grad of vmap": lambda f: lambda x: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x * jnp.arange(1.0, 3.0))))(x),
    "scan": lambda f: jax.grad(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]),
    "scan twice": lambda f: jax.hessian(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
}


class TestOfCustomRoot:
    @pytest.mark.parametrize(
        "linear", ["dense", *[pytest.param(x, marks=pytest.mark.long_on_jax) for x in ("gmres", None)]]
    )
    @pytest.mark.parametrize("way", WAYS)
    def test_derivatives_are_those_of_jax(self, way, linear):
        f = on_arrays(tc.custom_root(equation, by_loop, linear_solver=linear))
        x = jnp.asarray(4.2)
        assert_allclose(f(x), of_jax(x), rtol=1e-12)
        assert_allclose(WAYS[way](f)(x), WAYS[way](of_jax)(x), rtol=1e-7)

    def test_a_solver_in_python_has_values_under_grad_alone(self):
        f = on_arrays(tc.custom_root(equation, by_python))
        x = jnp.asarray(4.2)
        assert_allclose(jax.grad(f)(x), differences(f, x), rtol=1e-8)
        assert_allclose(jax.jvp(f, (x,), (2.0,))[1], 2 * differences(f, x), rtol=1e-8)
        assert_allclose(jax.hessian(f)(x), differences(jax.grad(f), x), rtol=1e-8)
        assert_allclose(jax.grad(jax.grad(jax.grad(f)))(x), differences(jax.hessian(f), x), rtol=1e-6)

    @pytest.mark.parametrize("way", [jax.jit, jax.vmap, lambda f: jax.jit(jax.grad(lambda x: f(x).sum()))])
    def test_a_solver_in_python_is_told_what_to_do_where_jax_has_no_values(self, way):
        f = on_arrays(tc.custom_root(equation, by_python))
        with pytest.raises(TypeError, match=r"custom_root: by_python asks for the value.*tape_core\.while_loop"):
            way(f)(jnp.asarray([4.2]))

    def test_a_solver_may_call_the_host(self):
        def on_host(a):
            def solve(a):
                with tc.use_backend("numpy"):
                    return by_python(tc.asarray(np.asarray(a))).numpy()

            return tape_jax.call(lambda a: jax.pure_callback(solve, a, a, vmap_method="sequential"), a)

        f = on_arrays(tc.custom_root(equation, on_host))
        for way in ("jit of grad", "vmap of grad", "hessian"):
            assert_allclose(WAYS[way](f)(jnp.asarray(4.2)), WAYS[way](of_jax)(jnp.asarray(4.2)), rtol=1e-7)

    @pytest.mark.long_on_jax
    def test_trees_of_several_unknowns_and_arguments(self):
        m = np.random.default_rng(0).standard_normal((3, 3)) / 3

        def residual(z, w, b):
            return {
                "u": z["u"] - tc.tanh(w["m"] @ z["u"] + b) - 0.1 * z["v"],
                "v": z["v"] ** 3 + z["v"] - tc.sum(z["u"]),
            }

        def solver(w, b):
            start = {"u": tc.zeros_like(b), "v": tc.sum(b) * 0.0}
            step = lambda z: {k: z[k] - 0.4 * r for k, r in residual(z, w, b).items()}  # noqa: E731
            size = lambda z: sum(tc.sum(tc.abs(r)) for r in residual(z, w, b).values())  # noqa: E731
            return tc.while_loop(lambda z: size(z) > 1e-13, step, start)

        root = tc.custom_root(residual, solver)

        def f(m, b):
            return of_tape(root, tc.asarray(m), tc.asarray(b)).array

        m, b = jnp.asarray(m), jnp.asarray([0.5, -0.2, 0.3])
        expected = tc.grad(lambda m, b: of_tape(root, m, b), argnums=(0, 1))(tc.asarray(m), tc.asarray(b))
        for way in (jax.grad(f, (0, 1)), jax.jit(jax.grad(f, (0, 1))), jax.jacfwd(f, (0, 1))):
            for found, own in zip(way(m, b), expected, strict=True):
                assert_allclose(found, own.numpy(), rtol=1e-8)
        unit = jnp.zeros(3).at[1].set(1.0)
        assert_allclose(jax.grad(f, 1)(m, b)[1], differences(lambda t: f(m, b + t * unit), 0.0), rtol=1e-7)
        second = jax.jit(jax.hessian(f, 1))(m, b)
        assert_allclose(second[1], differences(lambda t: jax.grad(f, 1)(m, b + t * unit), 0.0), rtol=1e-6)

    def test_what_is_no_solution_is_nan_where_nobody_can_be_told(self):
        f = on_arrays(tc.custom_root(equation, lambda a: a, tol=1e-6))
        with pytest.raises(tc.ConvergenceError, match="above tol"):
            f(jnp.asarray(4.2))
        with pytest.raises(tc.ConvergenceError, match="above tol"):
            jax.grad(f)(jnp.asarray(4.2))
        assert np.isnan(jax.jit(f)(jnp.asarray(4.2)))
        found = jax.vmap(f)(jnp.asarray([4.2, 0.0]))
        assert np.isnan(found[0])
        assert found[1] == 0.0
        assert np.isnan(jax.jit(jax.grad(f))(jnp.asarray(4.2)))

    def test_an_array_that_is_no_argument_is_an_error(self):
        def f(a):
            captured = tc.asarray(a)
            return tc.custom_root(lambda z, b: equation(z, captured) + 0 * b, lambda b: by_python(b))(tc.asarray(4.2))

        with pytest.raises(TypeError, match="uses an array that JAX differentiates and that is not among"):
            jax.grad(lambda a: f(a).array)(4.2)

    def test_tape_differentiates_inside_jit(self):
        root = tc.custom_root(equation, by_loop)
        x = jnp.asarray(4.2)
        found = jax.jit(lambda x: tc.grad(tc.grad(root))(tc.asarray(x)).array)(x)
        assert_allclose(found, jax.hessian(of_jax)(x), rtol=1e-8)

    def test_systems_of_many_unknowns_by_gmres(self):
        n = 1100
        root = tc.custom_root(equation, by_loop)
        a = jnp.linspace(1.0, 5.0, n)
        found = jax.jit(jax.grad(lambda a: tc.sum(root(tc.asarray(a)) ** 2).array))(a)
        assert_allclose(found, jax.vmap(jax.grad(lambda a: of_jax(a) ** 2))(a), rtol=1e-7)


def of_tape(root, m, b):
    z = root({"m": m}, b)
    return tc.sum(z["u"] ** 2) * z["v"] + z["v"]


class TestOfFixedPoint:
    # Each solver and each way to solve linear systems, not each pair: they do not know of each other.
    @pytest.mark.long_on_jax
    @pytest.mark.parametrize(("solver", "linear"), list(zip(SOLVERS, LINEAR, strict=True)))
    def test_each_solver_has_derivatives(self, solver, linear):
        @on_arrays
        def f(a):
            one = tc.ones_like(a)
            found = tc.fixed_point(lambda z, a: tc.cos(a * z), one, a, solver=solver, linear_solver=linear)
            return tc.sum(found**2)

        a = jnp.asarray([0.3, 0.5, 0.8])
        unit = jnp.asarray([0.0, 1.0, 0.0])
        expected = differences(lambda t: f(a + t * unit), 0.0)
        for way in (jax.grad(f), jax.jit(jax.grad(f)), jax.jacfwd(f)):
            assert_allclose(way(a)[1], expected, rtol=1e-6)
        second = differences(lambda t: jax.grad(f)(a + t * unit), 0.0)
        assert_allclose(jax.jit(jax.hessian(f))(a)[1], second, rtol=1e-5, atol=1e-8)
        assert_allclose(jax.jit(f)(a), f(a), rtol=1e-9)
        stacked = jax.vmap(jax.grad(f))(jnp.stack([a, a / 2]))
        assert_allclose(stacked, jnp.stack([jax.grad(f)(a), jax.grad(f)(a / 2)]), rtol=1e-6)

    @pytest.mark.parametrize("linear", ["iteration", "gmres"])
    def test_complex_unknowns(self, linear):
        def f(a, b):
            a = tc.asarray(a) + 1j * tc.asarray(b)
            z = tc.fixed_point(lambda z, a: 0.3 * tc.conj(z) * a + 0.2 * z * z + a, a * 0, a, linear_solver=linear)
            return tc.real(z * tc.conj(z) + z).array

        for k in (0, 1):
            expected = differences(lambda t, k=k: f(0.3 + t * (k == 0), 0.2 + t * (k == 1)), 0.0)
            assert_allclose(jax.jit(jax.grad(f, k))(0.3, 0.2), expected, rtol=1e-6)

    def test_what_does_not_converge_is_nan(self):
        f = on_arrays(lambda a: tc.fixed_point(lambda z, a: a * z + 1.0, tc.ones_like(a), a, maxiter=50))
        with pytest.raises(tc.ConvergenceError):
            f(jnp.asarray(2.0))
        assert np.isnan(jax.jit(f)(jnp.asarray(2.0)))
        assert_allclose(jax.vmap(f)(jnp.asarray([2.0, 0.1])), [np.nan, 1 / 0.9], rtol=1e-8)


class TestOfLoops:
    def test_jax_traces_them(self):
        def halved(x):
            return tc.while_loop(lambda c: c[0] > 1, lambda c: (c[0] / 2, c[1] + 1), (tc.asarray(x), 0))

        f = lambda x: tuple(o.array for o in halved(x))  # noqa: E731
        assert jax.jit(f)(10.0) == (0.625, 4)
        assert_allclose(jax.vmap(f)(jnp.asarray([10.0, 3.0]))[1], [4, 2])
        assert_allclose(jax.jvp(lambda x: f(x)[0], (10.0,), (1.0,))[1], 1 / 16)
