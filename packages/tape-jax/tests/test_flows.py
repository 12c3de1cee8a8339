"""Branches and loops of Tape where JAX traces them: those of `jax.lax`, with derivatives by JAX or by Tape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from numpy.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("on_jax")

X = np.array([0.3, -0.5, 0.2])


def on_arrays(f):
    return lambda *args: f(*map(tc.asarray, args)).array


def primitives(f, *args):
    """The names of the primitives that JAX traces, those in loops and branches among them."""
    found = []

    def look(jaxpr):
        for eqn in jaxpr.eqns:
            found.append(eqn.primitive.name)
            for value in jax.tree_util.tree_leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    look(inner)

    look(jax.make_jaxpr(f)(*args).jaxpr)
    return found


def ramp(n):
    return tc.asarray([0.1 + 0.8 * k / n for k in range(n)], dtype="float64")


def rnn(x, n=40, reverse=False):
    last, rows = tc.scan(
        lambda h, r: ({"h": tc.tanh(h["h"] * x + r), "n": h["n"] + 1}, (tc.sin(h["h"]) * r, h["n"])),
        {"h": x, "n": 0},
        ramp(n),
        reverse=reverse,
    )
    return last["h"] * last["n"] + tc.sum(rows[0], axis=0) * tc.sum(rows[1])


def nested(x):
    def step(h, r):
        inner, _ = tc.scan(lambda q, s: (tc.tanh(q + s * h), None), x, ramp(4))
        return tc.sin(inner + r), tc.checkpoint(lambda a: tc.exp(0.1 * a))(h)

    last, rows = tc.scan(step, x, ramp(5))
    return last + tc.sum(rows, axis=0)


def branch(x):
    return tc.cond(tc.sum(x) > -9.0, lambda a: tc.tanh(a) * x, lambda a: a * 2.0, x * x)


def branch_in_loop(x):
    return tc.scan(lambda h, r: (tc.cond(tc.sum(h) > r, lambda: tc.sin(h) * r, lambda: h * x), None), x, ramp(6))[0]


def mapped(x):
    return tc.sum(tc.map(lambda r: tc.tanh(r * x), ramp(20)), axis=0)


def loop_in_loop(x):
    step = lambda h, r: tc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, tc.tanh(c[1] * x + r)), (0, h))[1]  # noqa: E731
    return tc.scan(lambda h, r: (step(h, r), h), x, ramp(6))[0]


def captured(x):
    """The carry and the elements are constants, so that JAX traces what the step captures alone."""
    return tc.scan(lambda h, r: (tc.tanh(h * x + r), None), tc.ones(3, dtype="float64"), ramp(5))[0]


def with_rule(x):
    f = tc.custom_gradient(lambda a: (tc.sin(a), lambda g: 3.0 * g * tc.cos(a)))
    return tc.scan(lambda h, r: (f(h) + r * x, None), x, ramp(5))[0]


def backwards(x):
    return rnn(x, 3, True)


def long(x):
    return rnn(x, 200)


FUNCTIONS = [rnn, backwards, long, nested, branch, branch_in_loop, mapped, loop_in_loop, captured, with_rule]
each_function = pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)

BY_JAX = {
    "jit": jax.jit,
    "grad": lambda f: jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(f(x))))),
    "jacfwd": lambda f: jax.jacfwd(jax.jit(f)),
    "hessian": lambda f: jax.jit(jax.hessian(lambda x: jnp.sum(jnp.sin(f(x))))),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x * 0.5])),
    "grad of vmap": lambda f: jax.grad(lambda x: jnp.sum(jnp.sin(jax.vmap(f)(jnp.stack([x, x * 0.5]))))),
}
BY_TAPE = {
    "jit": lambda f: f,
    "grad": lambda f: tc.grad(lambda x: tc.sum(tc.sin(f(x)))),
    "jacfwd": tc.jacfwd,
    "hessian": lambda f: tc.hessian(lambda x: tc.sum(tc.sin(f(x)))),
    "vmap": lambda f: lambda x: tc.stack([f(x), f(x * 0.5)]),
    "grad of vmap": lambda f: tc.grad(lambda x: tc.sum(tc.sin(f(x))) + tc.sum(tc.sin(f(x * 0.5)))),
}


@each_function
@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=[pytest.mark.long_on_jax] * (w in ("hessian", "grad of vmap"))) for w in BY_JAX]
)
def test_they_have_the_derivatives_of_eager_code_by_jax(f, way):
    if f is loop_in_loop and way in ("grad", "hessian", "grad of vmap"):
        pytest.skip("JAX has no reverse mode of a while_loop")
    assert_allclose(BY_JAX[way](on_arrays(f))(X), BY_TAPE[way](f)(tc.asarray(X)).numpy(), rtol=1e-9, atol=1e-11)


@each_function
@pytest.mark.parametrize("way", ["grad", "jacfwd", pytest.param("hessian", marks=pytest.mark.long_on_jax)])
def test_they_have_the_derivatives_of_eager_code_by_tape(f, way):
    if f is loop_in_loop and way != "jacfwd":
        pytest.skip("Tape keeps what each step of a while_loop was given, of which JAX does not know the number")
    g = BY_TAPE[way](f)
    assert_allclose(jax.jit(on_arrays(g))(X), g(tc.asarray(X)).numpy(), rtol=1e-9, atol=1e-11)


def until(x, v):
    """A loop whose number of steps depends on values, with what has no derivative beside, and a value from around."""
    step = lambda c: {"n": c["n"] + 1, "h": c["h"] * 1.5 + tc.sin(c["k"]) * v, "k": c["h"]}  # noqa: E731
    last = tc.while_loop(lambda c: tc.sum(tc.abs(c["h"])) < 40.0, step, {"n": 0, "h": x, "k": v * 0})
    return last["h"] * last["n"] + last["k"]


def of_examples(f):
    slope = lambda x: lambda a: tc.jvp(lambda a: f(a * x, x), (a,), (tc.ones_like(a),))[1]  # noqa: E731
    return lambda x: tc.vmap(slope(x))(tc.asarray([1.0, 30.0], dtype="float64"))


def beside_a_tape(f):
    return tc.jacfwd(tc.grad(lambda x: tc.sum(x**3 * tc.stop_gradient(f(x, x)))))


@pytest.mark.parametrize(
    "way",
    [
        lambda f: tc.jacfwd(lambda x: f(x, tc.asarray(2.0 * X))),
        lambda f: tc.jacfwd(lambda v: f(tc.asarray(X), v)),
        lambda f: tc.jacfwd(tc.jacfwd(lambda x: f(x, x))),
        of_examples,
        beside_a_tape,
    ],
    ids=["the carry", "what is captured", "both twice", "of examples", "beside a tape"],
)
def test_forward_mode_of_a_while_loop_carries_tangents_along(way):
    g = way(until)
    assert_allclose(jax.jit(on_arrays(g))(X), g(tc.asarray(X)).numpy(), rtol=1e-9)


def test_jax_gets_a_loop_and_no_steps():
    assert primitives(on_arrays(rnn), X).count("tanh") == 1
    assert "scan" in primitives(on_arrays(rnn), X)
    assert "cond" in primitives(on_arrays(branch), X)
    # The loop itself, and one that carries tangents.
    pushed = on_arrays(tc.jacfwd(lambda x: until(x, x)))
    assert primitives(pushed, X).count("while") == 2
    # Of a tape inside, the steps of the loop and those of its derivative, which runs them again.
    assert primitives(on_arrays(tc.grad(lambda x: tc.sum(rnn(x)))), X).count("tanh") <= 3


@pytest.mark.filterwarnings("ignore:random numbers of Tape inside a function that JAX traces")
def test_a_step_that_draws_or_assigns_draws_and_assigns_in_each():
    def noisy(x):
        rng = tc.default_rng(0)
        return tc.scan(lambda h, r: (h + r * rng.normal(3, dtype="float64"), None), x, ramp(5))[0]

    assert_allclose(jax.jit(on_arrays(noisy))(X), noisy(tc.asarray(X)).numpy())
    grad = tc.grad(lambda x: tc.sum(noisy(x) ** 2))
    assert_allclose(jax.jit(on_arrays(grad))(X), grad(tc.asarray(X)).numpy())

    class Counter(nn.Module):
        def __init__(self):
            self.v = tc.Variable(np.zeros(3), dtype="float64")

    counter = Counter()

    def counting(x):
        with counter.using({"v": x}) as values:
            tc.scan(lambda h, r: (counter.v.assign_add(r * h), (h, None))[1], x, ramp(5))
            return values["v"]

    assert_allclose(jax.jit(on_arrays(counting))(X), counting(tc.asarray(X)).numpy())


def test_a_step_that_asks_for_values_has_those_that_are_known():
    def f(x):
        return tc.scan(lambda h, r: (h * r.item() if r.item() > 0.3 else tc.sin(h), None), x, ramp(5))[0]

    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(on_arrays(f))(X)


def test_numbers_in_branches_take_the_dtype_of_the_other_result():
    def f(x):
        return tc.cond(tc.sum(x) > 0, lambda: 0, lambda: tc.sum(x)) + tc.cond(
            tc.sum(x) > 0, lambda: tc.sum(x), lambda: 1
        )

    for sign in (1, -1):
        found = jax.jit(on_arrays(f))(sign * X)
        assert found.dtype == jnp.float64
        assert_allclose(found, f(tc.asarray(sign * X)).numpy())


def test_inside_a_vmap_of_tape():
    def f(x):
        g = lambda a: rnn(x * a, 4) + tc.cond(tc.sum(x) > -9.0, lambda: a * x, lambda: a + x)  # noqa: E731
        return tc.sum(tc.vmap(g)(x), axis=0)

    assert_allclose(jax.jit(on_arrays(f))(X), f(tc.asarray(X)).numpy())
    assert_allclose(jax.jacrev(on_arrays(f))(X), tc.jacrev(f)(tc.asarray(X)).numpy())


def test_what_jax_cannot_trace_is_an_error_in_the_users_terms():
    rng = tc.default_rng(0)
    draws = lambda x: tc.cond(tc.sum(x) > 0, lambda: rng.normal(3, dtype="float64"), lambda: x)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"cond: JAX traces it.*draws random numbers"):
        jax.jit(on_arrays(draws))(X)
    loops = lambda x: tc.while_loop(lambda h: tc.sum(h) < 9.0, lambda h: h + rng.uniform(3, dtype="float64"), x)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"while_loop: JAX traces it.*draws random numbers"):
        jax.jit(on_arrays(loops))(X)
    v = tc.Variable(X)
    assigns = lambda x: tc.cond(tc.sum(x) > 0, lambda: (v.assign(x), x)[1], lambda: x)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"cond: JAX traces it.*assigns to a Variable"):
        jax.jit(on_arrays(assigns))(X)
    asks = lambda x: tc.cond(tc.sum(x) > 0, lambda: x * x[0].item(), lambda: x)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"cond: JAX traces it.*asks for the value"):
        jax.jit(on_arrays(asks))(X)
    recorded = tc.grad(lambda x: tc.sum(tc.while_loop(lambda h: tc.sum(h) < 9.0, lambda h: h + 1.0, x)))
    with pytest.raises(NotImplementedError, match=r"while_loop: a gradient flows back through it where JAX"):
        jax.jit(on_arrays(recorded))(X)
    noisy = tc.grad(lambda x: tc.sum(tc.scan(lambda h, r: (h * rng.normal(3), None), x, ramp(200))[0]))
    with pytest.raises(NotImplementedError, match=r"scan: a tape or accumulator records its 200 steps"):
        jax.jit(on_arrays(noisy))(X)
