"""Every transformation of every kind of function, compiled: inside `tc.function`, around it, and both.

Values and derivatives are those of the same without `tc.function`, which are compared with finite differences. A
compiled function is called with several arguments: what it has kept of the first would be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

Function = Callable[[Any], Any]

POINTS = (np.array([0.3, 0.5, 0.2]), np.array([0.6, 0.1, 0.4]), np.array([0.45, 0.2, 0.7]))
AROUND = np.array([0.8, -0.5, 0.3])


def step(z: Any, a: Any) -> Any:
    """A contraction whose fixed point is a function of `a`."""
    return 0.3 * tc.sin(z) * a + 0.2 * tc.flip(z) + a * a


def fixed_point(**how: Any) -> Function:
    return lambda a: tc.fixed_point(step, tc.zeros_like(a), a, tol=1e-14, **how)


def root(**how: Any) -> Function:
    def solve(a: Any) -> Any:
        return tc.while_loop(lambda c: c[0] < 60, lambda c: (c[0] + 1, step(c[1], a)), (tc.asarray(0), a * 0.0))[1]

    return tc.custom_root(lambda z, a: step(z, a) - z, solve, **how)


def by_python(a: Any) -> Any:
    def solve(a: Any) -> Any:  # asks for values
        low, high = np.zeros(3), np.full(3, 10.0)
        for _ in range(70):
            middle = (low + high) / 2
            below = middle**3 + middle < a.numpy()
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return low

    return tc.custom_root(lambda z, a: z**3 + z - a, solve)(a)


def plain(a: Any) -> Any:
    return tc.sin(a) * tc.sum(a * a) + a**3


@tc.custom_gradient
def with_gradient(a: Any) -> Any:
    y, pull = tc.vjp(plain, a)
    return y, lambda upstream: pull(upstream)[0]


@tc.custom_jvp
def with_jvp(a: Any) -> Any:
    return plain(a)


@with_jvp.defjvp
def _rule(primals: Any, tangents: Any) -> Any:
    return tc.jvp(plain, primals, tangents)


def a_loop(a: Any) -> Any:
    return tc.while_loop(lambda c: tc.sum(c) < 4.0, lambda c: c * 1.3 + tc.sin(c) * 0.1, a)


FUNCTIONS: dict[str, Function] = {
    "plain": plain,
    "custom_gradient": with_gradient,
    "custom_jvp": with_jvp,
    "checkpoint": tc.checkpoint(plain),
    "checkpoint with a policy": tc.checkpoint(plain, policy=["sin"]),
    "cond": lambda a: tc.cond(a[0] > 0.35, lambda: tc.sin(a) * a[1], lambda: tc.cos(a) * a[2]),
    "while_loop": a_loop,
    "scan": lambda a: tc.scan(lambda c, x: (tc.sin(c) * x + a, c * x), a, a)[1].sum(axis=0),
    "long scan": lambda a: tc.scan(lambda c, _: (tc.sin(c) * 0.5 + a, None), a, length=140)[0],
    "map": lambda a: tc.map(lambda x: tc.sin(x) * tc.sum(a * x), a),
    "fixed_point": fixed_point(),
    "anderson": fixed_point(solver="anderson"),
    "newton": fixed_point(solver="newton"),
    "newton by gmres": fixed_point(solver="newton", linear_solver="gmres"),
    "dense": fixed_point(linear_solver="dense"),
    "gmres": fixed_point(linear_solver="gmres"),
    "custom_root": root(),
    "custom_root by gmres": root(linear_solver="gmres"),
    "custom_root by Python": by_python,
}
NOT_IN_VMAP = {"custom_root by Python"}  # what it asks for is another value for each example


def summed(f: Function) -> Function:
    return lambda a: tc.sum(f(a) * tc.asarray([1.0, 2.0, -0.5], dtype=tc.float64))


def by_tape(f: Function) -> Function:
    def gradient(a: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(a)
            y = summed(f)(a)
        return tape.gradient(y, a)

    return gradient


def by_jacobian_of_tape(f: Function) -> Function:
    def jacobian(a: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(a)
            y = f(a)
        return tape.jacobian(y, a)

    return jacobian


def by_accumulator(f: Function) -> Function:
    def tangent(a: Any) -> Any:
        with tc.ForwardAccumulator(a, a * 0.5) as accumulator:
            y = f(a)
        return accumulator.jvp(y)

    return tangent


def looped(f: Function) -> Function:
    going = lambda c: c[0] < 2  # noqa: E731
    return lambda a: tc.while_loop(going, lambda c: (c[0] + 1, 0.3 * f(c[1]) + a), (tc.asarray(0), a))[1]


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "call": lambda f: f,
    "grad": lambda f: tc.grad(summed(f)),
    "value_and_grad": lambda f: lambda a: tc.value_and_grad(summed(f))(a)[1],
    "jvp": lambda f: lambda a: tc.jvp(f, (a,), (a * 0.5,))[1],
    "vjp": lambda f: lambda a: tc.vjp(f, a)[1](a * 0.5)[0],
    "linearize": lambda f: lambda a: tc.linearize(f, a)[1](a * 0.5),
    "jacrev": tc.jacrev,
    "jacfwd": tc.jacfwd,
    "hessian": lambda f: tc.hessian(summed(f)),
    "hvp": lambda f: lambda a: tc.hvp(summed(f), (a,), (a * 0.5,))[0],
    "tape": by_tape,
    "jacobian of a tape": by_jacobian_of_tape,
    "accumulator": by_accumulator,
    "checkpoint": tc.checkpoint,
    "checkpoint of grad": lambda f: tc.checkpoint(tc.grad(summed(f))),
    "grad of checkpoint": lambda f: tc.grad(summed(tc.checkpoint(f))),
    "vmap": lambda f: lambda a: tc.vmap(lambda k: f(a * k))(tc.asarray([0.5, 1.0], dtype=tc.float64)),
    "vmap of grad": lambda f: lambda a: tc.vmap(tc.grad(summed(f)))(tc.stack([a, a * 0.5])),
    "grad of vmap": lambda f: tc.grad(lambda a: tc.sum(tc.vmap(lambda k: f(a * k))(a))),
    "grad of cond": lambda f: tc.grad(summed(lambda a: tc.cond(a[0] > 0, f, lambda a: a, a))),
    "cond of grad": lambda f: lambda a: tc.cond(a[0] > 0, tc.grad(summed(f)), lambda a: a, a),
    "grad of scan": lambda f: tc.grad(summed(lambda a: tc.scan(lambda c, _: (0.3 * f(c) + a, None), a, length=2)[0])),
    "scan of grad": lambda f: lambda a: tc.scan(lambda c, _: (0.1 * tc.grad(summed(f))(c) + a, None), a, length=2)[0],
    "while_loop": looped,
    "grad of while_loop": lambda f: tc.grad(summed(looped(f))),
}
MAPPING = [name for name in TRANSFORMS if "vmap" in name]


def fits(function: str, transform: str) -> bool:
    return not (function in NOT_IN_VMAP and transform in MAPPING)


def given(point: Any) -> Any:
    return tc.asarray(point.copy(), dtype=tc.float64)


def compare(run: Function, plain: Function, what: str) -> None:
    for point in (POINTS[0], POINTS[0], POINTS[1], POINTS[2]):
        got, want = run(given(point)).numpy(), plain(given(point)).numpy()
        assert got.shape == want.shape, what
        assert np.allclose(got, want, rtol=1e-10, atol=1e-10), f"{what}: {got} is not {want}"


def slope(f: Function, point: Any, direction: Any, eps: float = 1e-6) -> Any:
    return (f(given(point + eps * direction)).numpy() - f(given(point - eps * direction)).numpy()) / (2 * eps)


@pytest.mark.each_backend
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    f = FUNCTIONS[name]
    compiled = tc.function(f)
    for point in POINTS[:2]:
        wanted = np.stack([slope(f, point, e) for e in np.eye(3)], axis=1)
        for jacobian in (
            tc.jacrev(compiled),
            tc.jacfwd(compiled),
            tc.function(tc.jacrev(f)),
            tc.function(tc.jacfwd(f)),
        ):
            assert np.allclose(jacobian(given(point)).numpy(), wanted, atol=1e-6), name
        second = np.stack([slope(tc.grad(summed(f)), point, e) for e in np.eye(3)], axis=1)
        if fits(name, "hessian"):
            assert np.allclose(tc.function(tc.hessian(summed(f)))(given(point)).numpy(), second, atol=1e-5), name


@pytest.mark.each_backend
@pytest.mark.long_on_torch
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_transformation_may_be_compiled(name: str) -> None:
    for transform, make in TRANSFORMS.items():
        if fits(name, transform):
            run = make(FUNCTIONS[name])
            compare(tc.function(run), run, f"{transform} of {name}, compiled")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_function_may_be_transformed(name: str) -> None:
    for transform, make in TRANSFORMS.items():
        if fits(name, transform):
            f = FUNCTIONS[name]
            compare(make(tc.function(f)), make(f), f"{transform} of the compiled {name}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_from_around_have_derivatives(name: str) -> None:
    """Of a Variable, and of a Tensor that a tape around watches, inside of all else."""
    f = FUNCTIONS[name]

    def loss(a: Any) -> Any:
        return tc.sum(f(0.5 * a + 0.1 * v * w) * w)

    v = tc.Variable(AROUND, dtype=tc.float64)
    for run in (tc.function(loss), tc.function(tc.checkpoint(loss)), lambda a: tc.function(loss)(a)):
        for point in (*POINTS, POINTS[0]):
            found = []
            for called in (loss, run):
                w = given(AROUND[::-1] * 0.5 + 0.5)
                with tc.GradientTape() as tape:
                    tape.watch(w)
                    y = called(given(point))
                found.append([y.numpy(), *[g.numpy() for g in tape.gradient(y, [v, w])]])
            for got, want in zip(*found, strict=True):
                assert np.allclose(got, want, rtol=1e-10, atol=1e-10), name
            v.assign(v * 0.9)


@pytest.mark.parametrize("name", ["fixed_point", "newton", "custom_root", "gmres"])
def test_variables_that_a_compiled_step_assigns(name: str) -> None:
    f = FUNCTIONS[name]

    def train(compiled: bool) -> list[Any]:
        v = tc.Variable(POINTS[0], dtype=tc.float64)

        def update(a: Any) -> Any:
            with tc.GradientTape() as tape:
                y = tc.sum(f(v * a) ** 2)
            v.assign_sub(0.1 * tape.gradient(y, v))
            return y

        run: Any = tc.function(update) if compiled else update
        return [*[run(given(point)).numpy() for point in POINTS], v.numpy()]

    for got, want in zip(train(True), train(False), strict=True):
        assert np.array_equal(got, want)


# -- what cannot work says so


def growing(a: Any) -> Any:
    return tc.fixed_point(lambda z, a: z * a + 1.0, tc.asarray(0.0, dtype=tc.float64), a, maxiter=40)


@pytest.mark.parametrize(
    "transform", [lambda f: f, tc.grad, lambda f: lambda a: tc.vmap(f)(a[None])[0]], ids=["call", "grad", "vmap"]
)
def test_what_does_not_converge_is_an_error_in_the_run_that_it_happens_in(transform: Any) -> None:
    good, bad = tc.asarray(0.25, dtype=tc.float64), tc.asarray(0.99, dtype=tc.float64)
    for run in (transform(growing), tc.function(transform(growing)), transform(tc.function(growing))):
        assert np.isfinite(run(good).item())
        with pytest.raises(tc.ConvergenceError, match=r"^fixed_point: after 40 steps the residual is .*; start nearer"):
            run(bad)
        assert np.isfinite(run(good).item())


def test_in_a_branch_that_is_recorded_what_does_not_converge_is_nan() -> None:
    @tc.function
    def run(a: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(a)
            return tc.cond(a > 0, growing, lambda a: a, a)

    assert np.isfinite(run(tc.asarray(0.25, dtype=tc.float64)).item())
    assert np.isnan(run(tc.asarray(0.99, dtype=tc.float64)).item())


def test_a_root_that_is_none_is_an_error_in_the_run_that_it_happens_in() -> None:
    wrong = tc.custom_root(lambda z, a: z * z - a, lambda a: tc.sqrt(a) + tc.where(a > 3.0, 0.1, 0.0), tol=1e-3)
    for run in (wrong, tc.function(wrong)):
        assert run(tc.asarray(1.0, dtype=tc.float64)).item() == 1.0
        with pytest.raises(tc.ConvergenceError, match=r"residual has norm 0.41, above tol=0.001"):
            run(tc.asarray(4.0, dtype=tc.float64))


def test_a_solver_that_asks_for_values_reads_what_the_function_has_assigned() -> None:
    v = tc.Variable(2.0, dtype=tc.float64)
    root = tc.custom_root(lambda z, a: z * z - a * v, lambda a: float(a.item() * v.item()) ** 0.5, tol=1e-6)

    def step(a: Any) -> Any:
        before = root(a)
        v.assign(v + 1.0)
        return before, root(a), tc.cond(a > 0, lambda: root(a), lambda: a)

    run = tc.function(step)
    for k in range(3):
        found = [round(t.item() ** 2, 10) for t in run(tc.asarray(2.0, dtype=tc.float64))]
        assert found == [4.0 + 2 * k, 6.0 + 2 * k, 6.0 + 2 * k]


@pytest.mark.parametrize("loop", ["scan", "while_loop", "the test of a while_loop"])
def test_a_solver_in_a_loop_reads_what_the_step_before_has_assigned_further_on(loop: str) -> None:
    v = tc.Variable(1.0, dtype=tc.float64)
    root = tc.custom_root(lambda z, a: z * z - a * v, lambda a: float(a.item() * v.item()) ** 0.5, tol=1e-6)

    def f(a: Any) -> Any:
        def step(total: Any, _: Any) -> Any:
            found = root(a) if "test" not in loop else a
            v.assign(2.0 * v + total)
            return total + found, found

        if loop == "scan":
            return tc.scan(step, 0.0 * a, length=3)
        goes_on = lambda c: root(a) < 9.0 if "test" in loop else c < 9.0  # noqa: E731
        return tc.while_loop(goes_on, lambda total: step(total, None)[0], a)

    def outcome(run: Any) -> Any:
        v.assign(1.0)
        found = tc.tree_leaves(run(tc.asarray(2.0, dtype=tc.float64)))
        return [t.tolist() for t in found], v.item()

    wanted, run = outcome(f), tc.function(f)
    assert [outcome(run) for _ in range(3)] == [wanted] * 3


def test_a_system_of_a_singular_matrix() -> None:
    def f(a: Any, k: Any) -> Any:
        return tc.fixed_point(lambda z, a: z * k + 0.0 * a, 1.0, a, tol=0.5, linear_solver="gmres")

    one, half = tc.asarray(1.0), tc.asarray(0.5)
    for run in (tc.grad(f), tc.function(tc.grad(f))):
        assert run(one, half).item() == 0.0
        with pytest.raises(
            tc.ConvergenceError, match="in the derivative: linear_solver='gmres': the matrix is singular"
        ):
            run(one, one)
