"""`tape_jax.call`: a function of JAX on a tape, under every transformation, as JAX alone computes it."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_jax
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tape_core.staging import TracingError

F = Callable[..., Any]


@pytest.fixture(autouse=True)
def on_jax():
    with tc.use_backend("jax"):
        yield


def double(values: Any) -> tc.Tensor:
    return tc.asarray(np.asarray(values, dtype="float64"))


def both(f: F) -> list[F]:
    """A plain function, and a jitted one."""
    return [f, jax.jit(f)]


def spread(x, y):
    return jnp.sin(x) * jnp.sum(y * y)


X, Y = np.asarray([0.5, -1.0, 2.0]), np.asarray([0.3, 1.2])


@pytest.mark.parametrize("f", both(spread), ids=["plain", "jitted"])
class TestUnder:
    def test_a_tape(self, f):
        x, y = tc.Variable(X, dtype=tc.float64), tc.Variable(Y, dtype=tc.float64)
        with tc.GradientTape() as tape:
            loss = tc.sum(tape_jax.call(f, x, y) ** 2)
        found = tape.gradient(loss, [x, y])
        expected = jax.grad(lambda x, y: jnp.sum(spread(x, y) ** 2), (0, 1))(jnp.asarray(X), jnp.asarray(Y))
        for g, e in zip(found, expected, strict=True):
            assert_allclose(g, e, rtol=1e-12)

    def test_a_persistent_tape_inside_another(self, f):
        x = tc.Variable(X, dtype=tc.float64)
        with tc.GradientTape() as outer:
            with tc.GradientTape(persistent=True) as inner:
                a = tc.sum(tape_jax.call(f, x, x))
                b = tc.sum(tape_jax.call(f, x, a * x))
            g = tc.sum(inner.gradient(b, x) * inner.gradient(a, x))

        def product(x):
            first = lambda x: jnp.sum(spread(x, x))  # noqa: E731
            return jnp.sum(jax.grad(lambda x: jnp.sum(spread(x, first(x) * x)))(x) * jax.grad(first)(x))

        assert_allclose(outer.gradient(g, x), jax.grad(product)(jnp.asarray(X)), rtol=1e-10)

    def test_jacobians_and_hessians(self, f):
        own = lambda x: tape_jax.call(f, x, x)  # noqa: E731
        raw = lambda x: spread(x, x)  # noqa: E731
        assert_allclose(tc.jacrev(own)(double(X)), jax.jacrev(raw)(jnp.asarray(X)), rtol=1e-12)
        assert_allclose(tc.jacfwd(own)(double(X)), jax.jacrev(raw)(jnp.asarray(X)), rtol=1e-12)
        scalar = jax.hessian(lambda x: jnp.sum(raw(x)))(jnp.asarray(X))
        assert_allclose(tc.hessian(lambda x: tc.sum(own(x)))(double(X)), scalar, rtol=1e-12)
        assert_allclose(tc.function(tc.hessian(lambda x: tc.sum(own(x))))(double(X)), scalar, rtol=1e-12)

    def test_forward_mode_alone_and_over_reverse(self, f):
        t = np.asarray([1.0, 0.0, -2.0])
        own, raw = lambda x: tape_jax.call(f, x, x), lambda x: spread(x, x)
        y, dy = tc.jvp(own, (double(X),), (double(t),))
        expected = jax.jvp(raw, (jnp.asarray(X),), (jnp.asarray(t),))
        assert_allclose(y, expected[0], rtol=1e-12)
        assert_allclose(dy, expected[1], rtol=1e-12)
        _, hv = tc.jvp(tc.grad(lambda x: tc.sum(own(x))), (double(X),), (double(t),))
        assert_allclose(hv, jax.jvp(jax.grad(lambda x: jnp.sum(raw(x))), (X,), (t,))[1], rtol=1e-12)

    def test_vmap_with_gradients_inside_and_outside(self, f):
        rows, y = np.stack([X, 2 * X]), tc.Variable(Y, dtype=tc.float64)

        def gradient_of_shared(row):
            with tc.GradientTape() as tape:
                loss = tc.sum(tape_jax.call(f, row, y) ** 2)
            return tape.gradient(loss, y)

        raw = lambda y, row: jnp.sum(spread(row, y) ** 2)  # noqa: E731
        each = jax.vmap(jax.grad(raw), (None, 0))(jnp.asarray(Y), jnp.asarray(rows))
        assert_allclose(tc.vmap(gradient_of_shared)(double(rows)), each, rtol=1e-12)
        assert_allclose(tc.function(tc.vmap(gradient_of_shared))(double(rows)), each, rtol=1e-12)
        with tc.GradientTape() as tape:
            loss = tc.sum(tc.vmap(lambda row: tape_jax.call(f, row, y) ** 2)(double(rows)))
        assert_allclose(tape.gradient(loss, y), jnp.sum(each, 0), rtol=1e-12)

    def test_vmap_inside_vmap_and_without_examples(self, f):
        grid = np.arange(12.0).reshape(2, 2, 3)
        own = tc.vmap(tc.vmap(lambda row: tape_jax.call(f, row, double(Y))))
        assert_allclose(own(double(grid)), jax.vmap(jax.vmap(lambda r: spread(r, Y)))(grid), rtol=1e-12)
        assert tc.vmap(lambda row: tape_jax.call(f, row, double(Y)))(tc.zeros((0, 3))).shape == (0, 3)

    def test_checkpoint_scan_and_branches(self, f):
        def run(x):
            x = tc.checkpoint(lambda x: tape_jax.call(f, x, x))(x)
            x = tc.scan(lambda c, e: (tape_jax.call(f, c * e, c), c), x, double([0.5, -0.25]))[0]
            return tc.sum(tc.cond(x[0] > -9.0, lambda x: tape_jax.call(f, x, x), lambda x: x, x))

        def raw(x):
            x = spread(x, x)
            for e in (0.5, -0.25):
                x = spread(x * e, x)
            return jnp.sum(spread(x, x))

        expected = jax.grad(raw)(jnp.asarray(X))
        assert_allclose(tc.grad(run)(double(X)), expected, rtol=1e-10)
        assert_allclose(tc.function(tc.grad(run))(double(X)), expected, rtol=1e-10)

    def test_compiled_functions_with_other_values_in_each_run(self, f):
        y = tc.Variable(Y, dtype=tc.float64)

        @tc.function
        def step(x):
            with tc.GradientTape() as tape:
                loss = tc.sum(tape_jax.call(f, x, y) ** 2)
            y.assign_sub(0.1 * tape.gradient(loss, y))
            return loss

        expected = jnp.asarray(Y)
        for k in range(3):
            raw = lambda y, x: jnp.sum(spread(x, y) ** 2)  # noqa: E731
            loss, g = jax.value_and_grad(raw)(expected, jnp.asarray(X) + k)
            assert_allclose(step(double(X + k)), loss, rtol=1e-10)
            expected = expected - 0.1 * g
        assert_allclose(y, expected, rtol=1e-10)
        assert step.traces == 1


def test_xla_compiles_calls_into_the_program_around_them():
    runs = []

    def f(x):
        runs.append(None)
        return jnp.sin(x) * jnp.sum(x)

    own = tc.grad(lambda x: tc.sum(tape_jax.call(f, tc.exp(x)) ** 2))
    compiled = tc.function(own, compile="xla")
    expected = jax.grad(lambda x: jnp.sum((jnp.sin(jnp.exp(x)) * jnp.sum(jnp.exp(x))) ** 2))
    for k in range(3):
        assert_allclose(compiled(double(X + k)), expected(jnp.asarray(X) + k), rtol=1e-9)
    assert compiled.traces == len(runs) == 1
    hessian = tc.function(tc.hessian(lambda x: tc.sum(tape_jax.call(spread, x, x))), compile="xla")
    assert_allclose(hessian(double(X)), jax.hessian(lambda x: jnp.sum(spread(x, x)))(jnp.asarray(X)), rtol=1e-10)


# -- arguments and results


def test_trees_integers_and_what_is_no_array_pass_through():
    def f(batch, *, scale):
        return {"y": batch["x"] ** 2 * scale, "n": batch["n"] + 1, "best": jnp.argmax(batch["x"])}, ("text", None, 3)

    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        out, plain = tape_jax.call(f, {"x": x, "n": tc.asarray([1, 2])}, scale=np.float32(3.0))
    assert plain == ("text", None, 3)
    assert out["n"].tolist() == [2, 3]
    assert out["best"].item() == 1
    assert tape.gradient(out["y"], x).tolist() == [6.0, 12.0]


def test_float32_stays_float32_with_numbers_arrays_and_in_gradients():
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = tape_jax.call(jax.jit(lambda x, s: s * x), x, 2.5)
    assert y.dtype is tc.float32
    assert tape.gradient(y, x).dtype is tc.float32


def test_arrays_of_numpy_are_data_and_tensors_elsewhere_are_refused():
    assert_allclose(tape_jax.call(jnp.sin, X), np.sin(X), rtol=1e-12)
    with pytest.raises(TypeError, match=r"call\(f\): argument rate\['x'\] is on backend 'numpy'.*asarray\(x, backend"):

        def f(rate):
            return rate

        tape_jax.call(f, rate={"x": tc.asarray([1.0], backend="numpy")})


def test_results_without_a_derivative_are_not_recorded():
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        n = tape_jax.call(jnp.argmax, x)
    assert n.item() == 1
    assert tape.gradient(n, x) is None


def test_complex_values_follow_the_tapes_convention():
    def f(x):
        return (x + 1j * x) ** 3

    x = tc.Variable(X, dtype=tc.float64)
    with tc.GradientTape(persistent=True) as tape:
        a, b = tc.sum(tc.imag(tape_jax.call(f, x))), tc.sum(tc.imag(f(x)))
    assert_allclose(tape.gradient(a, x), tape.gradient(b, x), rtol=1e-12)
    z = tc.asarray([1.0 + 2.0j])
    with tc.GradientTape() as tape:
        tape.watch(z)
        y = tape_jax.call(lambda z: z * z, z)
    assert tape.gradient(y, z).tolist() == [2.0 - 4.0j]


def test_keys_of_random_numbers_go_in_and_come_out():
    draw = jax.jit(lambda key, x: x * jax.random.normal(key, x.shape))
    x = tc.Variable([1.0, 1.0])
    for seed in (0, 1):
        key = tape_jax.call(jax.random.split, jax.random.key(seed))[0]
        with tc.GradientTape() as tape:
            y = tape_jax.call(draw, key, x)
        assert_allclose(tape.gradient(y, x), jax.random.normal(key, (2,)))


def test_partials_and_methods_give_what_they_hold():
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = tape_jax.call(functools.partial(jnp.multiply, tc.asarray([3.0, 4.0])), x)
    assert tape.gradient(y, x).tolist() == [3.0, 4.0]


def test_numbers_may_be_static_arguments():
    f = jax.jit(lambda x, n, s: jnp.concatenate([x] * n) * s, static_argnames="n")
    for n in (2, 3):
        x = tc.Variable([1.0])
        with tc.GradientTape() as tape:
            y = tape_jax.call(f, x, n, 0.5)
        assert tape.gradient(y, x).tolist() == [0.5 * n]


def test_numbers_that_change_do_not_compile_again():
    runs = []

    @jax.jit
    def f(x, step):
        runs.append(None)
        return x * step

    x = tc.Variable([1.0])
    for kind in (int, float, np.float32):
        runs.clear()
        for step in range(3):
            with tc.GradientTape() as tape:
                y = tape_jax.call(f, x, kind(step))
            assert tape.gradient(y, x).tolist() == [float(step)]
        assert len(runs) == 1


def test_distributions_of_distrax_have_gradients():
    distrax = pytest.importorskip("distrax")
    mean, scale = tc.Variable(0.5), tc.Variable(2.0)
    with tc.GradientTape() as tape:
        y = tape_jax.call(lambda mean, scale, x: distrax.Normal(mean, scale).log_prob(x), mean, scale, 1.5)
    assert [g.item() for g in tape.gradient(y, [mean, scale])] == [0.25, -0.375]


# -- how often Python runs


def test_a_jitted_function_is_traced_once_for_the_call_and_its_gradient():
    runs = []

    @jax.jit
    def f(x):
        runs.append(None)
        return jnp.sum(x**3)

    x = tc.Variable([1.0, 2.0])
    for _ in range(3):
        with tc.GradientTape() as tape:
            y = tape_jax.call(f, x)
        assert tape.gradient(y, x).tolist() == [3.0, 12.0]
    assert len(runs) == 1


def test_functions_that_are_jitted_again_in_each_step_are_traced_once_for_each_way_of_it():
    runs = []

    def f(x, n=2):
        runs.append(n)
        return jnp.sum(x**n)

    x = tc.Variable([1.0, 2.0])
    for _ in range(3):
        for options in ({}, {"static_argnames": "n"}):
            with tc.GradientTape() as tape:
                y = tape_jax.call(jax.jit(f, **options), x)
            assert tape.gradient(y, x).tolist() == [2.0, 4.0]
    assert len(runs) == 2


def test_a_plain_function_runs_once_in_each_call_and_sees_what_has_changed():
    runs, factor = [], [1.0]

    def f(x):
        runs.append(None)
        return x * factor[0]

    x = tc.Variable([1.0])
    for k in range(3):
        factor[0] = float(k)
        with tc.GradientTape() as tape:
            y = tape_jax.call(f, x)
        assert tape.gradient(y, x).tolist() == [float(k)]
    assert len(runs) == 3


@pytest.mark.parametrize("how", ["python", "xla"])
def test_a_tensor_of_the_compiled_function_around_is_to_be_an_argument(how):
    for f in (lambda b: tape_jax.call(lambda a: a * b, tc.ones(3)), lambda b: tape_jax.call(lambda: b + 1.0)):
        with pytest.raises(TracingError, match="make it an argument of the other function"):
            tc.function(f, compile=how)(tc.ones(3))


def test_python_may_decide_by_values_outside_of_compiled_functions():
    def f(x):
        return 2 * x if x[0] > 0 else -x

    for first, slope in ((1.0, 2.0), (-1.0, -1.0)):
        assert tc.grad(lambda x: tc.sum(tape_jax.call(f, x)))(tc.asarray([first])).tolist() == [slope]
    with pytest.raises(TracingError, match=r"call\(f\).*tape_core\.where"):
        tc.function(lambda x: tape_jax.call(f, x))(tc.asarray([1.0]))
    with pytest.warns(UserWarning, match=r"call\(f\)"):
        plain = tc.function(lambda x: tape_jax.call(f, x), fallback=True)
        assert [plain(tc.asarray([v])).item() for v in (1.0, -1.0)] == [2.0, 1.0]


def test_records_do_not_keep_plain_functions_or_values_alive():
    class Big:
        pass

    big = Big()
    seen = weakref.ref(big)
    x = tc.Variable([1.0])
    with tc.GradientTape() as tape:
        y = tape_jax.call(lambda x, _: x, x, big)
    tape.gradient(y, x)
    del big, tape, y
    gc.collect()
    assert seen() is None


# -- what would lose a gradient, or be stale


def test_variables_and_watched_tensors_that_are_no_arguments_are_refused():
    w, x = tc.Variable(3.0, name="w"), tc.asarray([1.0])
    for f in both(lambda x: (tc.asarray(x) * w).array):
        with pytest.raises(TypeError, match="reads 'w', which is no argument"):
            tape_jax.call(f, x)
    with tc.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(TypeError, match="not among its arguments"):
            tape_jax.call(lambda a: (tc.asarray(a) * x).array, tc.asarray([1.0]))


def test_tape_inside_of_the_function_is_differentiated_by_jax():
    def f(x):
        w = tc.Variable(2.0)
        return tc.grad(lambda u: tc.sum(w * u**3))(tc.asarray(x))

    assert tc.grad(lambda x: tc.sum(tape_jax.call(f, x)))(tc.asarray([1.0, 2.0])).tolist() == [12.0, 24.0]


def test_results_that_may_hide_an_array_are_refused():
    class Hidden:
        pass

    with pytest.raises(TypeError, match=r"call\(f\): its result\['a'\] is a Hidden"):

        def f(x):
            return {"a": Hidden()}

        tape_jax.call(f, tc.asarray([1.0]))
    with pytest.raises(TypeError, match="takes a function first"):
        tape_jax.call(tc.asarray([1.0]))


def test_errors_of_the_function_keep_their_class_and_place():
    def wrong(x):
        raise KeyError("mine")

    for f in both(wrong):
        with pytest.raises(KeyError, match="mine") as caught:
            tape_jax.call(f, tc.asarray([1.0]))
        assert "wrong" in [entry.name for entry in caught.traceback]


# -- random functions

UNARY: Sequence[F] = (jnp.sin, jnp.tanh, lambda x: x * x, jax.nn.softplus, lambda x: jnp.cumsum(x, -1), jnp.flip)
BINARY: Sequence[F] = (jnp.multiply, jnp.add, lambda a, b: a * jnp.sum(b), jnp.arctan2, lambda a, b: jnp.outer(a, b)[0])
STEP = st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9))


def built(steps: Sequence[tuple[int, int, int]]) -> F:
    def f(x, y):
        values = [x, y]
        for which, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append(UNARY[which](a) if which < len(UNARY) else BINARY[which - len(UNARY)](a, b + 3.0))
        return values[-1], jnp.sum(values[-1] * values[0])

    return f


@settings(deadline=None, max_examples=12, derandomize=True)
@given(st.lists(STEP, min_size=1, max_size=4), st.booleans(), st.integers(0, 3))
def test_random_functions_agree_with_jax(steps, is_jitted, kind):
    f = built(steps)
    g = jax.jit(f) if is_jitted else f
    rng = np.random.default_rng(len(steps))
    x, y = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)

    def own(x, y):
        a, b = tape_jax.call(g, x, y)
        return tc.sum(tc.sin(a)) + b

    def raw(x, y):
        a, b = f(x, y)
        return jnp.sum(jnp.sin(a)) + b

    ours, theirs = [
        (tc.grad(own, (0, 1)), jax.grad(raw, (0, 1))),
        (tc.function(tc.grad(own, (0, 1))), jax.grad(raw, (0, 1))),
        (tc.hessian(own), jax.hessian(raw)),
        (tc.vmap(tc.grad(own)), jax.vmap(jax.grad(raw))),
    ][kind]
    if kind == 3:
        x, y = np.stack([x, 2 * x]), np.stack([y, -y])
    found, expected = jax.tree.leaves(ours(double(x), double(y))), jax.tree.leaves(theirs(x, y))
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_stop_gradient_stops_derivatives_of_jax_too() -> None:
    x = jnp.asarray([1.0, 2.0])

    def f(a: Any) -> Any:
        t = tc.asarray(a)
        return tc.sum(tc.stop_gradient(t) * t)

    def rows(a: Any) -> Any:
        return tc.sum(tc.vmap(lambda t: tc.stop_gradient(t) * t)(tc.asarray(a)))

    for function in (f, rows, tc.checkpoint(f)):
        raw = lambda a, function=function: function(a).array  # noqa: E731
        assert jax.grad(raw)(x).tolist() == jax.jit(jax.grad(raw))(x).tolist() == [1.0, 2.0]
        assert float(jax.jvp(raw, (x,), (x,))[1]) == 5.0
    gradient = jax.grad(lambda a: tc.sum(tc.grad(lambda t: tc.sum(tc.stop_gradient(t) * t**2))(tc.asarray(a))).array)
    assert gradient(x).tolist() == [2.0, 4.0]


def test_what_tape_detaches_for_itself_is_differentiated_by_jax() -> None:
    x = jnp.asarray([1.0, 2.0])
    square = tc.checkpoint(lambda t: tc.sum(t * t))
    assert jax.grad(lambda a: square(tc.asarray(a)).array)(x).tolist() == [2.0, 4.0]
    scanned = jax.grad(lambda a: tc.sum(tc.scan(lambda c, e: (c * e, None), tc.asarray(a), tc.ones((2, 2)))[0]).array)
    assert scanned(x).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("compiler", [None, "xla"])
def test_what_jax_calls_on_the_host_may_draw_while_tape_traces_around_it(compiler):
    def host(a):
        with tc.use_backend("numpy"):
            return np.asarray(a) + tc.random.global_rng().normal(a.shape, dtype="float64").numpy()

    def noisy(x):
        return 2.0 * tape_jax.call(lambda a: jax.pure_callback(host, a, a), x)

    compiled = tc.function(noisy, compile=compiler)
    with tc.use_backend("jax"):
        x = double([1.0, 2.0])
        tc.set_seed(1)
        expected = [noisy(x).tolist() for _ in range(3)]
        tc.set_seed(1)
        assert [compiled(x).tolist() for _ in range(3)] == expected


def sine_by_the_host(x):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda a: np.sin(np.asarray(a)), like, x, vmap_method="sequential")


@tc.custom_gradient
def sine(x):
    return tape_jax.call(sine_by_the_host, x), lambda g: g * tc.cos(x)


def iterated(f: Any, n: int = 4) -> Any:
    return lambda x: tc.scan(lambda c, _: (f(c), None), x, None, length=n)[0]


WAYS_AROUND: dict[str, Any] = {
    "plain": lambda f: f,
    "scan": iterated,
    "long scan": lambda f: iterated(f, 40),
    "cond": lambda f: lambda x: tc.cond(tc.sum(x) > 0, f, lambda x: x, x),
    "checkpoint": tc.checkpoint,
}


CASES_AROUND = [(around, how) for around in WAYS_AROUND for how in ("eager", None, "xla") if around != "long scan"]


@pytest.mark.parametrize(("around", "compiler"), [*CASES_AROUND, ("long scan", "xla")])
def test_a_derivative_that_the_user_gives_serves_a_function_of_which_jax_has_none(around, compiler):
    def compiled(f):
        return f if compiler == "eager" else tc.function(f, compile=compiler)

    x = double([0.1, 0.2, 0.3])
    found, expected = [tc.grad(lambda x, f=f: tc.sum(WAYS_AROUND[around](f)(x) * x)) for f in (sine, tc.sin)]
    assert_allclose(compiled(found)(x).numpy(), expected(x).numpy(), rtol=1e-12)
    rows = tc.stack([x, 2 * x])
    assert_allclose(compiled(tc.vmap(found))(rows).numpy(), tc.vmap(expected)(rows).numpy(), rtol=1e-12)
    if around != "long scan":
        assert_allclose(compiled(tc.jacrev(found))(x).numpy(), tc.jacrev(expected)(x).numpy(), rtol=1e-12, atol=1e-14)


def test_that_jax_has_no_derivative_of_a_function_is_an_error_where_one_is_asked_for():
    x = double([0.1, 0.2])
    with tc.GradientTape() as tape:
        tape.watch(x)
        wave = tape_jax.call(sine_by_the_host, x)
        y = tc.sum(x * tc.stop_gradient(wave))
    assert_allclose(tape.gradient(y, x).numpy(), np.sin([0.1, 0.2]))
    f = lambda x: tc.sum(tape_jax.call(sine_by_the_host, x))  # noqa: E731
    for derivative in (tc.grad(f), tc.jacfwd(f), tc.function(tc.grad(f)), tc.function(tc.grad(f), compile="xla")):
        with pytest.raises(NotImplementedError, match=r"call\(sine_by_the_host\): JAX has no derivative of a callback"):
            derivative(x)


def test_a_loop_of_jax_that_has_derivatives_in_forward_mode_alone_has_them():
    def grown(x):
        return jax.lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 1.5, x)

    x = double([0.1, 0.2])
    for f in both(grown):
        assert_allclose(tc.jacfwd(lambda x, f=f: tape_jax.call(f, x))(x).numpy(), jax.jacfwd(grown)(jnp.asarray(x)))
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
            tc.grad(lambda x, f=f: tc.sum(tape_jax.call(f, x)))(x)
