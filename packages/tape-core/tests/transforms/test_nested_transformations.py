"""Transformations in control flow, control flow in vmap, and derivatives of all of it, against plain programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.transforms import loops

Function = Callable[[Any], Any]

X = tc.asarray([0.3, 0.5, 0.2], dtype=tc.float64)
W = tc.asarray([1.0, 2.0, -1.0], dtype=tc.float64)
XS = np.array([0.3, 0.5, 0.2])
LONG = 10
"""Steps of a loop that is one record. By itself that begins with 129, which would take these tests far longer."""


@pytest.fixture(autouse=True)
def _loops_are_long_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "UNROLL_MAX_STEPS", LONG - 1)


def cube(v: Any) -> Any:
    return tc.sum(v**3)


def near(found: Any, wanted: Any) -> None:
    wanted = wanted.numpy() if isinstance(wanted, tc.Tensor) else np.asarray(wanted)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-11 * max(1.0, float(np.max(np.abs(wanted)))))


compiled_or_not = pytest.mark.parametrize("call", [lambda f: f, tc.function], ids=["eager", "compiled"])

# -- what a body reads

# Each gives `f(z)`, where only the transformation in it reads z.
READS_BY_TRANSFORMATION: dict[str, Function] = {
    "grad": lambda z: tc.grad(cube)(z),
    "value_and_grad": lambda z: tc.value_and_grad(cube)(z)[1],
    "jvp": lambda z: tc.jvp(lambda v: v**3, (z,), (tc.ones_like(X),))[1],
    "vjp": lambda z: tc.vjp(lambda v: v**3, z)[1](tc.ones_like(X))[0],
    "linearize": lambda z: tc.linearize(lambda v: v**3, z)[1](tc.ones_like(X)),
    "jacfwd": lambda z: tc.jacfwd(cube)(z),
    "jacrev": lambda z: tc.jacrev(cube)(z),
    "hvp": lambda z: tc.hvp(lambda v: tc.sum(v**4) / 4, (z,), (tc.ones_like(X),))[0],
    "hessian": lambda z: tc.sum(tc.hessian(lambda v: tc.sum(v**4) / 4)(z), axis=0),
    "copy": lambda z: 3 * tc.asarray(z, copy=True) ** 2,
    "grad of grad": lambda z: tc.grad(lambda v: tc.sum(tc.grad(lambda u: tc.sum(u**4) / 4)(v)))(z),
    "checkpoint of grad": lambda z: tc.checkpoint(lambda: tc.grad(cube)(z))(),
    "grad in cond": lambda z: tc.cond(tc.asarray(True), lambda: tc.grad(cube)(z), lambda: z),
    "custom_gradient": lambda z: tc.custom_gradient(lambda u: (3 * u**2, lambda g: 6 * u * g))(z),
}

COMBINATORS: dict[str, Callable[[Function], Function]] = {
    "cond": lambda f: lambda z: tc.cond(tc.sum(z) > 0, lambda: f(z), lambda: z),
    "while_loop": lambda f: (
        lambda z: tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + f(z)), (0, z * 0))[1]
    ),
    "scan": lambda f: lambda z: tc.scan(lambda c, r: (c + r * f(z), None), z * 0, tc.ones(LONG, dtype=tc.float64))[0],
    "map": lambda f: lambda z: tc.sum(tc.map(lambda r: r * f(z), tc.ones(LONG, dtype=tc.float64)), axis=0),
    "checkpoint": lambda f: lambda z: tc.checkpoint(lambda u: f(z) + 0 * u)(z),
}
TIMES = {"while_loop": 2, "scan": LONG, "map": LONG}


@compiled_or_not
@pytest.mark.parametrize("combinator", COMBINATORS)
@pytest.mark.parametrize("reader", READS_BY_TRANSFORMATION)
def test_a_tensor_that_only_a_transformation_in_a_body_reads_has_its_derivative(
    reader: str, combinator: str, call: Any
) -> None:
    f = COMBINATORS[combinator](READS_BY_TRANSFORMATION[reader])
    n = TIMES.get(combinator, 1)
    near(call(tc.grad(lambda z: tc.sum(f(z))))(X), n * 6 * XS)
    near(call(lambda x: tc.jvp(f, (x,), (x,))[1])(X), n * 6 * XS**2)


def test_a_tape_finds_what_only_a_transformation_in_a_body_reads() -> None:
    with tc.GradientTape() as tape:
        tape.watch(X)
        y = tc.map(lambda r: r * tc.grad(cube)(X), tc.ones(LONG, dtype=tc.float64))
    near(tape.gradient(y, X), LONG * 6 * XS)


def test_a_variable_s_value_that_a_body_hands_to_grad_has_its_gradient() -> None:
    v = tc.Variable(X)
    with tc.GradientTape() as tape:
        y = tc.cond(tc.sum(v) > 0, lambda: tc.grad(cube)(v.value), lambda: v.value)
    near(tape.gradient(y, v), 6 * XS)


def test_what_is_stopped_in_a_body_stays_stopped() -> None:
    f = COMBINATORS["while_loop"](lambda z: tc.grad(cube)(tc.stop_gradient(z)))
    near(tc.grad(lambda z: tc.sum(f(z)))(X), 0 * XS)


# -- checkpoint


@compiled_or_not
@pytest.mark.parametrize("policy", [None, ["sin"]])
def test_checkpoint_gives_tensors_from_around_it_their_gradients(policy: Any, call: Any) -> None:
    f = lambda z: tc.checkpoint(lambda u: tc.sin(u) * z, policy=policy)(z)  # noqa: E731
    first = np.cos(XS) * XS + np.sin(XS)
    near(call(tc.grad(lambda z: tc.sum(f(z))))(X), first)
    near(call(tc.jacrev(f))(X), np.diag(first))
    near(call(tc.hessian(lambda z: tc.sum(f(z))))(X), np.diag(2 * np.cos(XS) - XS * np.sin(XS)))
    nested = lambda z: tc.checkpoint(lambda u: tc.checkpoint(lambda v: v * z * u)(u))(z)  # noqa: E731
    near(call(tc.grad(lambda z: tc.sum(nested(z))))(X), 3 * XS**2)
    batched = lambda z: tc.vmap(lambda q: tc.checkpoint(lambda u: u * z * q, policy=policy)(q))(z)  # noqa: E731
    near(call(tc.grad(lambda z: tc.sum(batched(z))))(X), 2 * XS * np.sum(XS) + np.sum(XS**2))


# -- batches in batches


def _columns(z: Any) -> Any:
    return tc.reshape(z, (3, 1)) * tc.ones((3, 2), dtype=tc.float64)


SQUARES = tc.vmap(lambda r: r * r)
SINES = tc.vmap(lambda a, r: tc.sin(r) * a * tc.sum(r), in_axes=(None, 1), out_axes=1)


def _sines(z: Any, c: Any) -> Any:
    return tc.sin(c) * tc.reshape(z, (3, 1)) * tc.sum(c, axis=0)


def _times(n: int, f: Function) -> Function:
    def run(c: Any) -> Any:
        for _ in range(n):
            c = f(c)
        return c

    return run


def _of_examples(z: Any) -> Any:
    return tc.stack([tc.sum(z[k] * z * tc.sum(tc.sin(z[k] * z))) for k in range(3)])


def _loops_of_examples(z: Any) -> Any:
    step = lambda k: lambda c: tc.sum(z[k] * z * c * tc.sum(tc.sin(z[k] * z)))  # noqa: E731
    return tc.stack([_times(2, step(k))(z[k]) for k in range(3)])


def _while(n: int, f: Function, c: Any) -> Any:
    return tc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, f(s[1])), (0, c))[1]


VMAPS_INSIDE: dict[str, tuple[Function, Function]] = {
    "cond": (lambda z: tc.cond(tc.sum(z) > 0, tc.vmap(tc.sin), lambda z: z, z), tc.sin),
    "while_loop": (lambda z: _while(1, tc.vmap(tc.sin), z), tc.sin),
    "scan": (
        lambda z: tc.scan(
            lambda h, r: (tc.vmap(lambda v: tc.sin(v) * r)(h), None), z, tc.full(LONG, 1.01, dtype=tc.float64)
        )[0],
        _times(LONG, lambda c: tc.sin(c) * 1.01),
    ),
    "beside": (lambda z: SQUARES(z) * _while(1, SQUARES, z), lambda z: z**4),
    "two axes in cond": (
        lambda z: tc.sum(tc.cond(tc.sum(z) > 0, lambda: SINES(z, _columns(z)), lambda: _columns(z)) ** 2, axis=1),
        lambda z: tc.sum(_sines(z, _columns(z)) ** 2, axis=1),
    ),
    "two axes in scan": (
        lambda z: tc.sum(
            tc.scan(lambda c, r: (SINES(z, c) * 3.0, None), _columns(z), tc.ones(LONG, dtype=tc.float64))[0], axis=1
        ),
        lambda z: tc.sum(_times(LONG, lambda c: _sines(z, c) * 3.0)(_columns(z)), axis=1),
    ),
    "cond in vmap": (
        lambda z: tc.vmap(
            lambda a: tc.cond(tc.sum(z) > 0, lambda: tc.sum(tc.vmap(lambda b: a * b * tc.sin(a * z))(z)), lambda: a)
        )(z),
        _of_examples,
    ),
    "while_loop in vmap": (
        lambda z: tc.vmap(lambda a: _while(2, lambda c: tc.sum(tc.vmap(lambda b: a * b * c * tc.sin(a * z))(z)), a))(z),
        _loops_of_examples,
    ),
}


def _jacobian(f: Function) -> Any:
    """Row by row."""
    y, pull = tc.vjp(f, X)
    return tc.stack([pull(row)[0] for row in tc.eye(y.shape[0], dtype=tc.float64)])


@compiled_or_not
@pytest.mark.parametrize("by", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("name", VMAPS_INSIDE)
def test_jacobians_of_control_flow_with_vmap_inside_have_the_rows_of_the_plain_program(
    name: str, by: str, call: Any
) -> None:
    f, plain = VMAPS_INSIDE[name]
    near(call(getattr(tc, by)(f))(X), _jacobian(plain))
    near(call(getattr(tc, by)(f, chunk_size=2))(X), _jacobian(plain))


SECOND: dict[str, Callable[[Function], Function]] = {
    "jacrev of jacrev": lambda f: tc.jacrev(tc.jacrev(f)),
    "jacrev of jacfwd": lambda f: tc.jacrev(tc.jacfwd(f)),
    "jacfwd of jacrev": lambda f: tc.jacfwd(tc.jacrev(f)),
    "jacfwd of jacfwd": lambda f: tc.jacfwd(tc.jacfwd(f)),
    "hessian": tc.hessian,
}


@compiled_or_not
@pytest.mark.parametrize("by", SECOND)
@pytest.mark.parametrize("name", VMAPS_INSIDE)
def test_second_derivatives_of_control_flow_with_vmap_inside_are_those_of_the_plain_program(
    name: str, by: str, call: Any
) -> None:
    f, plain = VMAPS_INSIDE[name]
    wanted = _jacobian(tc.grad(lambda z: tc.sum(plain(z))))
    near(call(SECOND[by](lambda z: tc.sum(f(z))))(X), wanted)


@compiled_or_not
def test_batch_jacobian_of_control_flow_with_vmap_inside_is_that_of_each_example(call: Any) -> None:
    def jacobian(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.cond(tc.sum(x) > 0, tc.vmap(lambda r: r * tc.sum(r)), lambda z: z, x)
        return tape.batch_jacobian(y, x)

    near(call(jacobian)(tc.asarray([[1.0, 2.0], [3.0, 4.0]])), [[[4, 1], [2, 5]], [[10, 3], [4, 11]]])


HANDED_ON = {
    "gives it from a branch": lambda z: tc.cond(tc.sum(W) > 0, lambda: z, lambda: W),
    "gives it and computes with it": lambda z: mul(tc.cond(tc.sum(W) > 0, lambda: (z, z * z), lambda: (W, W))),
    "carries it on": lambda z: tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, z), (0, W))[1],
    "gives it from a long loop": lambda z: tc.scan(lambda c, _: (z, z), W, tc.ones(LONG))[1][5],
    "gives it from a checkpoint": lambda z: mul(tc.checkpoint(lambda a: (z, a * z))(W)),
    "maps over it": lambda z: tc.cond(tc.sum(W) > 0, lambda: tc.map(lambda r: r * r, z), lambda: W),
    "hands it to a branch": lambda z: tc.cond(
        tc.sum(W) > 0, lambda: tc.cond(tc.sum(z) > 0, lambda v: v * v, lambda v: v, z), lambda: W
    ),
    "starts a loop with it": lambda z: tc.cond(
        tc.sum(W) > 0, lambda: tc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 2.0), (0, z))[1], lambda: W
    ),
    "maps over it in a loop": lambda z: tc.while_loop(
        lambda c: c[0] < 1, lambda c: (c[0] + 1, tc.map(lambda r: r * r, z)), (0, W)
    )[1],
    "maps over it in a long loop": lambda z: tc.scan(lambda c, _: (tc.map(lambda r: r * r, z), None), W, tc.ones(LONG))[
        0
    ],
    "maps over it in a vmap in a branch": lambda z: tc.cond(
        tc.sum(W) > 0, lambda: tc.vmap(lambda _: tc.map(lambda r: r * r, z))(W)[1], lambda: W
    ),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("what", HANDED_ON)
def test_a_function_that_only_hands_a_tensor_on_has_the_derivative_of_it(what: str, compiled: bool) -> None:
    f = HANDED_ON[what]
    x = tc.asarray([0.3, 0.5, 0.2], dtype=tc.float64)
    slope = {"gives it and": 3 * x**2, "gives it from a ch": 2 * x * W, "maps": 2 * x, "hands": 2 * x}
    expected = next((d for start, d in slope.items() if what.startswith(start)), tc.ones_like(x))
    if what.startswith("starts"):
        expected = 4 * tc.ones_like(x)

    def by_tape(z: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(z)
            y = tc.sum(W * f(z))
        return tape.gradient(y, z)

    derivatives: list[Any] = [
        tc.grad(lambda z: tc.sum(W * f(z))),
        by_tape,
        lambda z: tc.jvp(f, (z,), (W,))[1],
        lambda z: tc.linearize(f, z)[1](W),
        lambda z: tc.sum(W * tc.jacrev(f)(z), axis=1),
        lambda z: tc.sum(W * tc.jacfwd(f)(z), axis=1),
    ]
    for derivative in derivatives:
        call = tc.function(derivative) if compiled else derivative
        for _ in range(2):
            np.testing.assert_allclose(call(x).numpy(), (W * expected).numpy(), rtol=1e-12)


def mul(pair: Any) -> Any:
    return pair[0] * pair[1]


SHARED: dict[str, Function] = {
    "cond": lambda z: tc.cond(tc.sum(W) > 0, lambda: z * z, lambda: W),
    "while_loop": lambda z: tc.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, z * z), (0, W))[1],
    "scan": lambda z: tc.scan(lambda c, _: (z * z, None), W, tc.ones(LONG))[0],
}


@compiled_or_not
@pytest.mark.parametrize("by", SECOND)
@pytest.mark.parametrize("name", SHARED)
def test_second_derivatives_of_what_all_examples_share_count_it_once(name: str, by: str, call: Any) -> None:
    def f(z: Any) -> Any:
        return tc.sum(tc.vmap(lambda r: SHARED[name](z) * r)(W)) * tc.sum(z)

    wanted = _jacobian(tc.grad(lambda z: tc.sum(z * z) * tc.sum(W) * tc.sum(z)))
    near(call(SECOND[by](f))(X), wanted)


def test_a_compiled_jacobian_goes_through_a_branch_that_reads_a_constant_that_is_linearized() -> None:
    def f(x: Any) -> Any:
        return tc.linearize(lambda u: tc.cond(tc.sum(W) > 0, lambda: x * u, lambda: W), W)[1](X)

    call = tc.function(tc.jacrev(f))
    for _ in range(2):
        near(call(X), np.diag(XS))


def test_compiled_second_derivatives_of_loops_in_loops_in_a_vmap_are_those_of_the_plain_program() -> None:
    def loop(steps: int, f: Function, start: Any) -> Any:
        return tc.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, f(s[1])), (0, start))[1]

    def f(x: Any) -> Any:
        rows = tc.vmap(lambda u: loop(1, lambda v: tc.tanh(loop(2, lambda q: tc.tanh(x), x)), x))(tc.stack([x, x]))
        return tc.sum(rows)

    wanted = tc.hessian(lambda x: 2 * tc.sum(tc.tanh(tc.tanh(x))))(X)
    call = tc.function(lambda x: tc.hvp(f, (x,), (W,))[0])
    for _ in range(2):
        near(call(X), wanted @ W)


# -- what is the same for all examples, and was made in a vmap


def _made_in_vmap(z: Any) -> Any:
    """3 times z, which inside a vmap is a Tensor of its own and the same for all examples."""
    return tc.sum(tc.vmap(lambda _: z)(W), axis=0)


READS_WHAT_IS_SHARED: dict[str, tuple[Function, Function]] = {
    "cond": (lambda y: tc.cond(tc.sum(W) > 0, lambda: tc.tanh(y), lambda: W), tc.tanh),
    "cond that hands it on": (lambda y: tc.tanh(tc.cond(tc.sum(W) > 0, lambda: y, lambda: W)), tc.tanh),
    "while_loop": (lambda y: _while(2, lambda c: tc.tanh(y) * c, y), lambda y: tc.tanh(y) ** 2 * y),
    "long scan": (
        lambda y: tc.scan(lambda c, r: (tc.tanh(y) * c * r, None), y, tc.ones(LONG, dtype=tc.float64))[0],
        lambda y: tc.tanh(y) ** LONG * y,
    ),
    "in a vmap": (
        lambda y: tc.sum(tc.vmap(lambda q: _while(1, lambda c: q * tc.tanh(y + tc.tanh(W)), W))(W), axis=0),
        lambda y: 2 * tc.tanh(y + tc.tanh(W)),
    ),
}


@compiled_or_not
@pytest.mark.parametrize("by", SECOND)
@pytest.mark.parametrize("name", READS_WHAT_IS_SHARED)
def test_second_derivatives_go_through_what_a_body_reads_that_examples_share(name: str, by: str, call: Any) -> None:
    f, plain = READS_WHAT_IS_SHARED[name]
    wanted = _jacobian(tc.grad(lambda z: tc.sum(plain(3 * z))))
    near(call(SECOND[by](lambda z: tc.sum(f(_made_in_vmap(z)))))(X), wanted)


@compiled_or_not
def test_forward_mode_in_a_vmap_goes_through_loops_that_read_examples_of_it(call: Any) -> None:
    def f(x: Any) -> Any:
        """A Jacobian by columns for each row, of a loop that starts with the row and reads what it is taken of."""
        return tc.vmap(lambda r: tc.jacfwd(lambda u: _while(2, lambda c: tc.sin(u) * c * u, r))(x))(tc.stack([x, W]))

    wanted = [tc.jacfwd(lambda u, r=r: (tc.sin(u) * u) ** 2 * r)(X) for r in (X, W)]
    near(call(f)(X), tc.stack(wanted))
    near(call(tc.jacfwd(lambda x: f(x)[1]))(X), tc.jacfwd(tc.jacfwd(lambda u: (tc.sin(u) * u) ** 2 * W))(X))
    near(call(tc.jacrev(lambda x: f(x)[1]))(X), tc.jacfwd(tc.jacfwd(lambda u: (tc.sin(u) * u) ** 2 * W))(X))


# -- what a policy keeps, and constants, in compiled functions


@pytest.mark.parametrize("derivative", ["grad", "jacrev", "jacfwd", "hessian"])
def test_a_compiled_checkpoint_with_a_policy_goes_through_branches_and_loops(derivative: str) -> None:
    def branch(u: Any) -> Any:
        return tc.cond(tc.sum(u) > 0, lambda v: tc.sin(v) * v, lambda v: v, u)

    def keeping(f: Function) -> Function:
        return tc.checkpoint(f, policy=["sin", "multiply"])

    programs: list[Function] = [
        keeping(lambda u: branch(u) * tc.sin(u)),
        lambda x: _while(2, keeping(branch), x),
        keeping(lambda u: _while(2, keeping(branch), u)),
        keeping(lambda u: tc.scan(lambda c, r: (tc.sin(c) * r, None), u, tc.ones(LONG, dtype=tc.float64))[0]),
        lambda x: tc.vmap(keeping(branch))(tc.stack([x, 2 * x]))[1],
    ]
    for f in programs:
        scalar = (lambda x, f=f: tc.sum(f(x))) if derivative in ("grad", "hessian") else f
        eager = getattr(tc, derivative)(scalar)
        call = tc.function(eager)
        for _ in range(2):
            assert np.array_equal(call(X).numpy(), eager(X).numpy())


def test_a_compiled_sweep_goes_through_ops_of_constants_that_were_computed_while_it_was_traced() -> None:
    v = tc.Variable(X)

    def f(x: Any) -> Any:
        return tc.hvp(lambda u: tc.sum(tc.tanh(u)), (W,), (v,))[0] + x

    call = tc.function(f)
    for _ in range(2):
        assert np.array_equal(call(X).numpy(), f(X).numpy())


ONES = tc.ones(200, dtype=tc.float64)
MASKED: dict[str, Any] = {
    "checkpoint": tc.checkpoint(tc.sqrt),
    "two checkpoints": tc.checkpoint(lambda a: tc.checkpoint(tc.sqrt)(a) * 2.0),
    "a policy": tc.checkpoint(lambda a: tc.sqrt(a) * tc.cos(a), policy=["cos"]),
    "cond": lambda a: tc.cond(tc.sum(a) > -1, tc.sqrt, tc.sin, a),
    "while_loop": lambda a: tc.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, tc.sqrt(c[1])), (0, a))[1],
    "long scan": lambda a: tc.scan(lambda c, r: (tc.sqrt(a) * r, tc.sum(c)), a, ONES)[0],
    "vmap of checkpoint": tc.vmap(tc.checkpoint(tc.sqrt)),
    "checkpoint in a function": tc.function(tc.checkpoint(tc.sqrt)),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_hides_the_nan_of_a_function_that_is_one_record(name: str) -> None:
    x = tc.asarray([0.0, 1.0], dtype=tc.float64)

    def masked(x: Any) -> Any:
        return tc.sum(tc.where(x > 0, MASKED[name](x), 0))

    def plain(x: Any) -> Any:
        return tc.sum(MASKED[name](x))

    slope = float(tc.grad(plain)(x)[1])
    assert tc.grad(plain)(x)[0] == np.inf or np.isnan(float(tc.grad(plain)(x)[0]))
    for found in (tc.grad(masked), tc.function(tc.grad(masked)), tc.jacfwd(masked)):
        np.testing.assert_allclose(found(x).numpy(), [0.0, slope], rtol=1e-12)
    assert np.all(np.isfinite(tc.jacrev(tc.jacrev(masked))(x).numpy()))
    # A zero that is no mask's stays what it is.
    assert np.isnan(float(tc.grad(lambda x: tc.sum(0 * MASKED[name](x)))(x)[0]))
