"""fixed_point and custom_root: solutions of equations, and their derivatives by the implicit function theorem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc

LINEAR = ("iteration", "dense", "gmres")
SOLVERS = ("iteration", "anderson", "newton")
A = np.asarray([0.3, 0.5, 0.8])
RNG = np.random.default_rng(0)
M = RNG.standard_normal((4, 4)) / 5


def here(values: Any) -> Any:
    return tc.asarray(np.asarray(values).tolist(), dtype="float64")


def babylonian(a: Any, **options: Any) -> Any:
    return tc.fixed_point(lambda z, a: 0.5 * (z + a / z), tc.ones_like(a), a, **options)


def cosine(a: Any, **options: Any) -> Any:
    return tc.fixed_point(lambda z, a: tc.cos(a * z), tc.ones_like(a), a, **options)


def test_square_roots() -> None:
    a = here(4.0)
    assert babylonian(a).item() == pytest.approx(2.0, abs=1e-12)
    expected = [0.5 * 4**-0.5, -0.25 * 4**-1.5, 0.375 * 4**-2.5, -0.9375 * 4**-3.5]
    f = babylonian
    for order, derivative in enumerate(expected):
        assert tc.jvp(f, (a,), (1.0,))[1].item() == pytest.approx(derivative, rel=1e-8)
        assert tc.linearize(f, a)[1](here(1.0)).item() == pytest.approx(derivative, rel=1e-8)
        f = tc.grad(f)
        assert f(a).item() == pytest.approx(derivative, rel=1e-8), order


@pytest.mark.parametrize("linear", LINEAR)
@pytest.mark.parametrize("solver", SOLVERS)
def test_derivatives_agree_with_differences_to_order_2(solver: str, linear: str) -> None:
    tc.testing.check_grads(lambda a: cosine(a, solver=solver, linear_solver=linear), (here(A),), order=2)


@pytest.mark.parametrize("linear", LINEAR)
def test_a_linear_fixed_point_is_a_solution_of_equations(linear: str) -> None:
    m, b = here(M), here(np.arange(1.0, 5.0))

    def affine(m: Any, b: Any) -> Any:
        return tc.fixed_point(lambda z, m, b: m @ z + b, tc.zeros(4, dtype="float64"), m, b, linear_solver=linear)

    def solved(m: Any, b: Any) -> Any:
        return tc.linalg.solve(tc.eye(4, dtype="float64") - m, b)

    assert np.allclose(affine(m, b).numpy(), np.linalg.solve(np.eye(4) - M, b.numpy()), atol=1e-9)
    for derivative in (tc.jacrev, tc.jacfwd, lambda f, k: tc.jacfwd(tc.jacrev(f, k), k)):
        for k in (0, 1):
            assert np.allclose(derivative(affine, k)(m, b).numpy(), derivative(solved, k)(m, b).numpy(), atol=1e-8)


def deq(w: Any, u: Any, x: Any, **options: Any) -> Any:
    """An equilibrium of structures: what a deep equilibrium network computes."""

    def layer(z: Any, w: Any, u: Any, x: Any) -> Any:
        return {"h": tc.tanh(w @ z["h"] + u * z["s"] + x), "s": 0.3 * tc.sin(tc.sum(z["h"])) * tc.ones(())}

    start = {"h": tc.zeros(4, dtype="float64"), "s": tc.zeros((), dtype="float64")}
    return tc.fixed_point(layer, start, w, u, x, **options)


def unrolled(w: Any, u: Any, x: Any) -> Any:
    h, s = tc.zeros(4, dtype="float64"), tc.zeros((), dtype="float64")
    for _ in range(60):
        h, s = tc.tanh(w @ h + u * s + x), 0.3 * tc.sin(tc.sum(h))
    return {"h": h, "s": s}


@pytest.mark.parametrize("options", [{}, {"linear_solver": "gmres"}, {"solver": "newton"}, {"solver": "anderson"}])
def test_an_equilibrium_is_what_many_layers_come_to(options: dict[str, Any]) -> None:
    args = here(M), here([0.1, -0.2, 0.3, 0.4]), here([0.5, -0.5, 0.2, 1.0])

    def loss(f: Any) -> Any:
        return lambda *args: tc.sum(f(*args)["h"] ** 2) * (1 + f(*args)["s"])

    implicit = loss(lambda *args: deq(*args, **options))
    for a, b in zip(tc.grad(implicit, (0, 1, 2))(*args), tc.grad(loss(unrolled), (0, 1, 2))(*args), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), atol=1e-9)
    assert np.allclose(tc.hessian(implicit, 2)(*args).numpy(), tc.hessian(loss(unrolled), 2)(*args).numpy(), atol=1e-8)


def test_an_equilibrium_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    w, x = torch.tensor(M, requires_grad=True), torch.tensor(A[:1].repeat(4), requires_grad=True)
    z = torch.zeros(4, dtype=torch.float64)
    for _ in range(200):
        z = torch.tanh(w @ z + x)
    expected = torch.autograd.grad((z**3).sum(), (w, x))

    def loss(w: Any, x: Any) -> Any:
        z = tc.fixed_point(lambda z, w, x: tc.tanh(w @ z + x), tc.zeros(4, dtype="float64"), w, x)
        return tc.sum(z**3)

    for own, theirs in zip(tc.grad(loss, (0, 1))(here(M), here(A[:1].repeat(4))), expected, strict=True):
        assert np.allclose(own.numpy(), theirs.numpy(), atol=1e-9)


def test_variables_that_are_read_have_gradients() -> None:
    w, frozen = tc.Variable(here(M)), tc.Variable(here(2.0), trainable=False)
    x = here([0.1, 0.2, 0.3, 0.4])

    def run(x: Any) -> Any:
        return tc.fixed_point(lambda z, x: tc.tanh(w @ z + frozen * x), tc.zeros(4, dtype="float64"), x)

    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(run(x) ** 2)
        w.assign(w * 0)  # the gradient is that of the value that was read
    found = tape.gradient(y, [x, w, frozen])

    def explicit(x: Any, w: Any) -> Any:
        z = tc.fixed_point(lambda z, x, w: tc.tanh(w @ z + 2 * x), tc.zeros(4, dtype="float64"), x, w)
        return tc.sum(z**2)

    for a, b in zip(found[:2], tc.grad(explicit, (0, 1))(x, here(M)), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), atol=1e-9)
    assert found[2] is None

    w.assign(here(M))
    with tc.GradientTape() as outer:
        with tc.GradientTape() as tape:
            y = tc.sum(run(x) ** 2)
        first = tape.gradient(y, w)
        total = tc.sum(first**2)
    second = outer.gradient(total, w)
    expected = tc.grad(lambda w: tc.sum(tc.grad(explicit, 1)(x, w) ** 2))(here(M))
    assert np.allclose(second.numpy(), expected.numpy(), atol=1e-8)


@pytest.mark.parametrize(("solver", "linear"), [("iteration", "iteration"), ("anderson", "dense"), ("newton", "gmres")])
def test_inside_vmap_and_around_it(solver: str, linear: str) -> None:
    a = here(A)

    def f(a: Any) -> Any:
        return tc.fixed_point(
            lambda z, a: tc.cos(a * z), tc.ones((), dtype="float64"), a, solver=solver, linear_solver=linear
        )

    each = [f(one) for one in a]
    slopes = [tc.grad(f)(one).item() for one in a]
    assert np.allclose(tc.vmap(f)(a).numpy(), [z.item() for z in each], atol=1e-9)
    assert np.allclose(tc.vmap(tc.grad(f))(a).numpy(), slopes, atol=1e-8)
    assert np.allclose(tc.grad(lambda a: tc.sum(tc.vmap(f)(a)))(a).numpy(), slopes, atol=1e-8)
    assert np.allclose(tc.jvp(tc.vmap(f), (a,), (tc.ones(3, dtype="float64"),))[1].numpy(), slopes, atol=1e-8)
    seconds = [tc.grad(tc.grad(f))(one).item() for one in a]
    assert np.allclose(tc.vmap(tc.grad(tc.grad(f)))(a).numpy(), seconds, atol=1e-7)
    assert np.allclose(tc.hessian(lambda a: tc.sum(tc.vmap(f)(a)))(a).numpy(), np.diag(seconds), atol=1e-7)


def test_complex_fixed_points() -> None:
    a = tc.asarray([0.3 + 0.2j, -0.1 + 0.4j], dtype="complex128")

    def implicit(a: Any, **options: Any) -> Any:
        return tc.fixed_point(lambda z, a: 0.3 * tc.conj(z) + tc.sin(a * z) / 2 + a, a, a, **options)

    def explicit(a: Any) -> Any:
        z = a
        for _ in range(150):
            z = 0.3 * tc.conj(z) + tc.sin(a * z) / 2 + a
        return z

    for options in ({}, {"linear_solver": "gmres"}, {"solver": "newton"}):
        found = tc.vjp(lambda a, options=options: implicit(a, **options), a)[1](a)
        assert np.allclose(found[0].numpy(), tc.vjp(explicit, a)[1](a)[0].numpy(), atol=1e-9)
    assert np.allclose(tc.jvp(implicit, (a,), (a,))[1].numpy(), tc.jvp(explicit, (a,), (a,))[1].numpy(), atol=1e-9)
    with pytest.raises(TypeError, match="'dense' is for real unknowns; use 'gmres'"):
        tc.vjp(lambda a: implicit(a, linear_solver="dense"), a)[1](a)


def test_acceleration_saves_steps() -> None:
    steps: dict[str, int] = {}
    a = here(RNG.standard_normal((20, 20)))
    slow = 0.9 * (a + a.T) / float(np.abs(np.linalg.eigvalsh((a + a.T).numpy())).max())

    for solver in SOLVERS:
        calls: list[int] = []

        def f(z: Any, calls: list[int] = calls) -> Any:
            calls.append(1)
            return slow @ z + tc.cos(z) / 50 + 1

        z = tc.fixed_point(f, tc.zeros(20, dtype="float64"), solver=solver)
        assert np.allclose(z.numpy(), f(z).numpy(), atol=1e-7)
        steps[solver] = len(calls)
    assert steps["anderson"] < steps["iteration"] / 3
    assert steps["newton"] < steps["anderson"]


def test_what_does_not_converge_is_an_error() -> None:
    x = here(3.0)
    with pytest.raises(tc.ConvergenceError, match=r"beyond what is finite.*use solver='anderson', 'newton'"):
        tc.fixed_point(lambda z, x: z * z * x, here(1.5), x)
    with pytest.raises(tc.ConvergenceError, match=r"after 20 steps the residual is \S+, above"):
        tc.fixed_point(lambda z, x: -z + x, here(1.0), x, maxiter=20)

    # Newton finds it; its derivative is no contraction, so that a plain iteration would not come to it.
    def f(x: Any, **options: Any) -> Any:
        return tc.fixed_point(lambda z, x: -3 * z + x, here(1.0), x, solver="newton", **options)

    assert f(x).item() == pytest.approx(0.75)
    assert tc.grad(f)(x).item() == pytest.approx(0.25)
    with pytest.raises(tc.ConvergenceError, match="f may be no contraction at the fixed point"):
        tc.grad(lambda x: f(x, linear_solver="iteration"))(x)
    with pytest.raises(tc.ConvergenceError, match="f may be no contraction at the fixed point"):
        tc.jvp(lambda x: f(x, linear_solver="iteration"), (x,), (1.0,))
    for linear in ("dense", "gmres"):
        root = tc.custom_root(
            lambda z, a: tc.stack([z[0] + z[1] - a, 2 * (z[0] + z[1] - a)]), _ones, linear_solver=linear
        )
        with pytest.raises(tc.ConvergenceError, match=f"linear_solver='{linear}': the matrix is singular"):
            tc.grad(lambda a, root=root: root(a)[0])(here(2.0))


def _ones(a: Any) -> Any:
    return tc.ones(2, dtype="float64")


def test_arguments_are_checked() -> None:
    x, two, narrow = here(1.0), here([1.0, 1.0]), tc.ones((), dtype="float32")
    find = tc.fixed_point
    for message, call in {
        r"the result of <lambda> has shape \(2,\), z0 has \(\)": lambda: find(lambda z: z * two, x),
        r"must have the structure of z0; it is \[\*, \*\], z0 is \*": lambda: find(lambda z: [z, z], x),
        "has dtype float64, z0 has float32": lambda: find(lambda z, x: z + x, narrow, x),
        "z0 has dtype int64, it must be floating": lambda: find(lambda z: z, tc.asarray(1)),
        "solver must be one of 'iteration', 'anderson', 'newton'": lambda: find(lambda z: z, x, solver="no"),
        "linear_solver must be 'iteration', 'dense'": lambda: find(lambda z: z, x, linear_solver="no"),
        "tol must be positive": lambda: find(lambda z: z, x, tol=0.0),
        "maxiter must be a positive int": lambda: find(lambda z: z, x, maxiter=0),
        "'dense', 'gmres' or a function": lambda: tc.custom_root(_ones, _ones, linear_solver="iteration"),
    }.items():
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_what_would_lose_a_derivative_is_refused() -> None:
    x = here(2.0)
    with pytest.raises(TypeError, match=r"fixed_point: <lambda> computes with a Tensor .* not among its arguments"):
        tc.grad(lambda a: tc.fixed_point(lambda z: 0.5 * (z + a / z), here(1.0)))(x)
    with pytest.raises(TypeError, match="not among its arguments"):
        tc.jvp(lambda a: tc.fixed_point(lambda z: 0.5 * (z + a / z), here(1.0)), (x,), (1.0,))
    with pytest.raises(TypeError, match=r"custom_root: <lambda> computes with a Tensor .* not among its arguments"):
        tc.grad(lambda a: tc.custom_root(lambda z: z * z - a, lambda: here(2.0**0.5))())(x)


# -- custom_root


def test_a_solver_of_another_library() -> None:
    optimize = pytest.importorskip("scipy.optimize")

    def system(z: Any, a: Any, b: Any) -> Any:
        return tc.stack([z[0] ** 3 + z[1] - a, tc.exp(z[1]) - b * z[0]])

    def by_scipy(a: Any, b: Any, start: Any = (1.0, 0.5)) -> Any:
        a, b = a.item(), b.item()
        return tc.asarray(
            optimize.root(lambda z: [z[0] ** 3 + z[1] - a, np.exp(z[1]) - b * z[0]], start, tol=1e-13).x.tolist(),
            dtype="float64",
        )

    for linear in ("dense", "gmres", None):
        root = tc.custom_root(system, by_scipy, tol=1e-8, linear_solver=linear)
        a, b = here(2.0), here(1.5)
        z = root(a, b, start=(1.2, 0.3))
        assert np.allclose(system(z, a, b).numpy(), 0, atol=1e-10)
        tc.testing.check_grads(root, (a, b), order=2)


def test_brackets_on_python_floats_and_a_linear_solver_of_ones_own() -> None:
    calls: list[int] = []

    def solve(matvec: Any, b: Any) -> Any:
        calls.append(1)
        return b / matvec(tc.ones_like(b))

    def bisect(a: Any) -> Any:
        low, high = 0.0, 10.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if middle**3 < a.item() else (low, middle)
        return low

    root = tc.custom_root(lambda z, a: z**3 - a, bisect, linear_solver=solve)
    a = here(8.0)
    assert root(a).item() == pytest.approx(2.0)
    assert root(a).dtype is tc.float64
    assert tc.grad(root)(a).item() == pytest.approx(1 / 12)
    assert tc.grad(tc.grad(root))(a).item() == pytest.approx(-2 / 9 * 8 ** (-5 / 3))
    assert calls


def test_structures_variables_and_vmap() -> None:
    w = tc.Variable(here(3.0))

    def newton(pair: Any) -> Any:
        return {"z": tc.sqrt(pair["a"] * 3.0 * pair["b"])}

    root = tc.custom_root(lambda z, pair: {"z": z["z"] ** 2 - w * pair["a"] * pair["b"]}, newton)
    pair = {"a": here(2.0), "b": here(6.0)}
    with tc.GradientTape() as tape:
        tape.watch(pair)
        y = root(pair)["z"]
    assert y.item() == pytest.approx(6.0)
    found = tape.gradient(y, [pair, w])
    assert [found[0]["a"].item(), found[0]["b"].item(), found[1].item()] == pytest.approx([1.5, 0.5, 1.0])
    many = {"a": here([2.0, 8.0]), "b": here([6.0, 6.0])}
    slopes = tc.vmap(tc.grad(lambda pair: root(pair)["z"]))(many)
    assert np.allclose(slopes["a"].numpy(), [1.5, 0.75])


def test_what_is_no_root_is_an_error() -> None:
    root = tc.custom_root(lambda z, a: z * z - a, lambda a: 1.0, tol=1e-6)
    with pytest.raises(tc.ConvergenceError, match=r"the residual has norm 3, above tol=1e-06"):
        root(here(4.0))
    with pytest.raises(tc.ConvergenceError, match="the residual has norm nan"):
        tc.custom_root(lambda z, a: z * z - a, lambda a: float("nan"))(here(4.0))


def test_a_root_of_constants_in_a_branch_of_a_compiled_derivative() -> None:
    """The check of what the solver found may run again, as the branch does for its derivative."""
    c = tc.asarray([0.5, 0.25], dtype=tc.float64)

    def halved(a: Any) -> Any:
        return tc.custom_root(lambda z, a: 2.0 * z - a, lambda a: a / 2.0)(a)

    def f(x: Any) -> Any:
        return tc.sum(tc.cond(tc.sum(c) > 0.0, lambda x: x * halved(c), lambda x: x, x) ** 2)

    x = tc.asarray([1.0, 3.0], dtype=tc.float64)
    gradient = tc.function(tc.grad(f))
    for _ in range(2):
        assert np.allclose(gradient(x).numpy(), 2.0 * x.numpy() * (c.numpy() / 2.0) ** 2)
