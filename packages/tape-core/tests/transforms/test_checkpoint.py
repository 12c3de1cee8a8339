"""checkpoint: what is kept, what is computed again, and that derivatives are the same."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest
import tape_core as tc

X = np.linspace(-1, 1, 4)

W = np.random.default_rng(0).standard_normal((4, 4))


def here(values: Any) -> Any:
    return tc.asarray(values.tolist(), dtype="float64")


def layer(x: Any, w: Any) -> Any:
    return tc.tanh(w @ x) * tc.sin(x)


def test_checkpoint_gives_the_same() -> None:
    again = tc.checkpoint(layer)
    x, w = here(X), here(W)

    def loss(f: Any) -> Any:
        return lambda x, w: tc.sum(f(f(x, w), w) ** 2)

    for derivative in (
        lambda f: tc.grad(f, (0, 1)),
        tc.hessian,
        lambda f: tc.jacfwd(tc.jacfwd(f)),
        lambda f: lambda x, w: tc.jvp(lambda x: f(x, w), (x,), (x,)),
        lambda f: tc.vmap(tc.grad(f), in_axes=(None, 1)),
        lambda f: tc.grad(lambda x, w: tc.sum(tc.vmap(f, in_axes=(None, 1))(x, tc.stack([w, w], axis=1)))),
    ):
        args = (x, tc.stack([w, 2 * w], axis=1)) if "vmap" in str(derivative.__code__.co_names) else (x, w)
        expected, found = derivative(loss(layer))(*args), derivative(loss(again))(*args)
        for a, b in zip(_leaves(expected), _leaves(found), strict=True):
            assert np.allclose(a.numpy(), b.numpy())


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple | list) else [tree]


def test_checkpoint_keeps_no_intermediate_result() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = tc.exp(x)
        seen.append(weakref.ref(y._array))
        return tc.sin(y)

    x = here(X)
    with tc.GradientTape() as tape:
        tape.watch(x)
        z = tc.checkpoint(f)(x)
    gc.collect()
    assert seen[0]() is None
    assert np.allclose(tape.gradient(z, x).numpy(), np.cos(np.exp(X)) * np.exp(X))
    assert len(seen) == 2


def test_checkpoint_watches_variables_and_uses_the_values_that_were_read() -> None:
    w = tc.Variable(2.0)
    frozen = tc.Variable(5.0, trainable=False)
    f = tc.checkpoint(lambda x: x * w * w * frozen)
    x = tc.asarray(3.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
        w.assign(10.0)
        frozen.assign(7.0)
    found = tape.gradient(y, [x, w, frozen])
    assert found[0].item() == 20.0
    assert found[1].item() == 60.0
    assert found[2] is None
    assert w.numpy() == 10.0


def test_checkpoint_draws_the_same_random_numbers() -> None:
    tc.set_seed(0)
    f = tc.checkpoint(lambda x: x * tc.dropout(tc.ones(64), 0.5))
    x = tc.ones(64)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert tape.gradient(y, x).tolist() == y.tolist()


def test_checkpoint_without_a_tape_or_with_nothing_to_differentiate() -> None:
    f = tc.checkpoint(lambda x, n: (x * 2, n + 1, None))
    assert f(tc.asarray(1.0), 2)[1] == 3
    with tc.GradientTape():
        y, n, nothing = f(tc.asarray([1, 2]), 2)
    assert y.tolist() == [2, 4]
    assert (n, nothing) == (3, None)


# -- what is kept


class Calls:
    """Counts the calls of an op's kernel on the backend."""

    def __init__(self, monkeypatch: Any, name: str) -> None:
        self.backend, self.op, self.n = tc.get_backend(), tc.extend.registry[name], 0
        kernel = getattr(self.backend.xp, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.n += 1
            return kernel(*args, **kwargs)

        monkeypatch.setattr(self.backend.xp, name, counting)
        self.op.bindings.pop(self.backend, None)

    def forget(self) -> None:
        self.op.bindings.pop(self.backend, None)


@pytest.fixture
def calls(monkeypatch: Any) -> Any:
    made: list[Calls] = []

    def count(name: str) -> Calls:
        made.append(Calls(monkeypatch, name))
        return made[-1]

    yield count
    for each in made:
        each.forget()


def deep(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = tc.tanh(x @ w)
    return tc.sum(x)


@pytest.mark.parametrize(
    ("policy", "matmuls", "tanhs"),
    [(None, 6, 6), (["matmul"], 3, 6), (("tanh", "matmul"), 3, 3), (lambda name: name == "tanh", 6, 3)],
)
def test_a_policy_says_what_is_not_computed_again(calls: Any, policy: Any, matmuls: int, tanhs: int) -> None:
    # One call for each in the function, and one more where it is computed again; the sweep has its own products.
    matmul, tanh = calls("matmul"), calls("tanh")
    f = tc.checkpoint(deep, policy=policy)
    x, w = here(W), here(W / 2)
    found: list[int] = []
    with tc.GradientTape() as tape:
        tape.watch(w)
        y = f(x, w)
        found.append(matmul.n)
    expected = tc.grad(deep, 1)(x, w)
    own = matmul.n - found[0]  # three forward, and those of the sweep
    before, before_tanh = matmul.n, tanh.n
    gradient = tape.gradient(y, w)
    assert np.allclose(gradient.numpy(), expected.numpy(), atol=1e-12)
    assert found[0] + matmul.n - before - (own - 3) == matmuls
    assert tanh.n - (before_tanh - 3) == tanhs


def test_with_a_policy_derivatives_are_the_same_to_any_order() -> None:
    x, w = here(X), here(W)
    for policy in (["matmul"], ["tanh", "sin"], lambda name: True):
        again = tc.checkpoint(layer, policy=policy)

        def loss(f: Any) -> Any:
            return lambda x, w: tc.sum(f(f(x, w), w) ** 2)

        def derivatives(f: Any) -> Any:
            ws = tc.stack([w, 2 * w])
            return (
                tc.grad(loss(f), (0, 1))(x, w),
                tc.hessian(loss(f))(x, w),
                tc.jacfwd(tc.jacfwd(loss(f)))(x, w),
                tc.jacrev(tc.jacrev(loss(f)))(x, w),
                tc.jvp(lambda x: tc.grad(loss(f))(x, w), (x,), (x,)),
                tc.vmap(tc.grad(loss(f), 1), in_axes=(None, 0))(x, ws),
                tc.grad(lambda w: tc.sum(tc.vmap(loss(f), in_axes=(None, 0))(x, w)))(ws),
                tc.vmap(tc.hessian(loss(f)), in_axes=(None, 0))(x, ws),
            )

        for a, b in zip(_leaves(derivatives(layer)), _leaves(derivatives(again)), strict=True):
            assert np.allclose(a.numpy(), b.numpy())


def test_checkpoints_with_policies_nest(calls: Any) -> None:
    matmul, tanh = calls("matmul"), calls("tanh")

    def nested(outer: Any, inner: Any) -> Any:
        own = tc.checkpoint(layer, policy=inner)
        return tc.checkpoint(lambda x, w: tc.sum(own(own(x, w), w)), policy=outer)

    def second(f: Any) -> Any:
        return tc.grad(lambda x: tc.sum(tc.grad(f)(x, w)))(x)

    x, w = here(X), here(W)
    expected = tc.grad(nested(None, None), (0, 1))(x, w)
    policies = (None, ["matmul"], ["tanh"], ["matmul", "tanh", "sin"])
    for outer, inner in itertools.product(policies, policies):
        tanh.n = matmul.n = 0
        found = tc.grad(nested(outer, inner), (0, 1))(x, w)
        for a, b in zip(expected, found, strict=True):
            assert np.allclose(a.numpy(), b.numpy())
        # Twice forward; twice for the outer one, unless it keeps them; twice for the inner, unless either keeps them.
        assert tanh.n == 2 + 2 * ("tanh" not in (outer or ())) + 2 * ("tanh" not in (inner or ()))
        assert np.allclose(second(nested(outer, inner)).numpy(), second(nested(None, None)).numpy())


def test_a_gradient_inside_a_checkpoint_with_a_policy() -> None:
    def f(x: Any, w: Any) -> Any:
        return tc.sum(tc.grad(lambda x: tc.sum(layer(x, w)))(x) ** 2)

    x, w = here(X), here(W)
    expected = tc.grad(f, (0, 1))(x, w)
    for policy in (["matmul"], ["tanh"], lambda name: True):
        again = tc.checkpoint(f, policy=policy)
        for a, b in zip(expected, tc.grad(again, (0, 1))(x, w), strict=True):
            assert np.allclose(a.numpy(), b.numpy())


def test_kernels_that_keep_for_their_rules_and_policies(calls: Any) -> None:
    a, b = here(W + 4 * np.eye(4)), here(X)
    f = tc.checkpoint(lambda a, b: tc.sum(tc.sin(tc.linalg.solve(a, b))), policy=["solve", "sin"])
    plain = lambda a, b: tc.sum(tc.sin(tc.linalg.solve(a, b)))  # noqa: E731
    for x, y in zip(tc.grad(plain, (0, 1))(a, b), tc.grad(f, (0, 1))(a, b), strict=True):
        assert np.allclose(x.numpy(), y.numpy())


def test_a_persistent_tape_takes_what_is_kept_more_than_once() -> None:
    x, w = here(X), here(W)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.checkpoint(layer, policy=["matmul"])(x, w)
    first = tape.gradient(y, x)
    assert tape.gradient(y, x).tolist() == first.tolist()


def test_a_function_that_does_something_else_is_found_out() -> None:
    x = here(X)

    def gradient(*ways: Any, policy: Any = ("sin", "exp")) -> Any:
        each = iter(ways)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.checkpoint(lambda x: next(each)(x), policy=policy)(x)
        return tape.gradient(y, x)

    with pytest.raises(RuntimeError, match=r"it called exp of .*, where it had called sin of .*must do the same"):
        gradient(tc.sin, tc.exp)
    with pytest.raises(RuntimeError, match=r"it called sin of \(2,\), where it had called sin of \(4,\)"):
        gradient(tc.sin, lambda x: tc.sin(x[:2]))
    with pytest.raises(RuntimeError, match=r"it called sin of \(4,\) once more"):
        gradient(tc.sin, lambda x: tc.sin(tc.sin(x)))
    with pytest.raises(RuntimeError, match="it called 0 ops whose results are kept, and 1 before"):
        gradient(tc.sin, lambda x: x)
    with pytest.raises(RuntimeError, match=r"its result has shape \(2,\), the result has shape \(4,\)"):
        gradient(tc.sin, lambda x: tc.sin(x[:2]), policy=None)
    # What follows is not touched by it.
    assert np.allclose(gradient(tc.sin, tc.sin).numpy(), np.cos(X))


def test_policies_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"policy names 'matmull', and there is no such op; did you mean 'matmul'\?"):
        tc.checkpoint(layer, policy=["matmull"])
    with pytest.raises(ValueError, match="must be a collection of names of ops, got the str 'matmul'"):
        tc.checkpoint(layer, policy="matmul")


def test_in_forward_mode_alone_nothing_is_computed_twice() -> None:
    runs: list[int] = []

    def f(x: Any) -> Any:
        runs.append(1)
        return tc.sin(x)

    assert np.allclose(tc.jvp(tc.checkpoint(f), (here(X),), (tc.ones(4),))[1].numpy(), np.cos(X))
    assert len(runs) == 1


def test_an_error_inside_leaves_everything_as_it_was() -> None:
    def f(x: Any) -> Any:
        y = tc.sin(x)
        if fail:
            raise KeyError("no")
        return y

    again, x, fail = tc.checkpoint(f, policy=["sin"]), here(X), True
    with tc.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(KeyError):
            again(x)
        fail = False
        y = again(x) * x
    fail = True
    with pytest.raises(KeyError):
        tape.gradient(y, x)
    fail = False
    assert np.allclose(tc.grad(lambda x: tc.sum(again(x)))(x).numpy(), np.cos(X))


@pytest.mark.skipif(tc.get_backend().name != "numpy", reason="tracemalloc sees NumPy's arrays")
def test_the_memory_of_a_deep_network() -> None:
    import tracemalloc

    rng = np.random.default_rng(0)
    x = tc.asarray(rng.standard_normal((2000, 16)))
    ws = [tc.asarray(rng.standard_normal((16, 16)) / 4) for _ in range(64)]

    def segment(x: Any, ws: Any) -> Any:
        for w in ws:
            x = tc.relu(x @ w)
        return x

    def peak(run: Any) -> int:
        def gradient(ws: Any) -> Any:
            h = x
            for k in range(0, 64, 8):
                h = run(h, ws[k : k + 8])
            return tc.sum(h)

        tc.grad(gradient)(ws)
        gc.collect()
        tracemalloc.start()
        tc.grad(gradient)(ws)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(tc.checkpoint(segment)) <= 0.3 * peak(segment)


def test_a_policy_keeps_what_it_keeps_around_a_compiled_function_and_around_steps_in_one() -> None:
    inner = tc.function(lambda u: tc.sin(u) * u)
    steps = here(X)

    def calls(u: Any) -> Any:
        return inner(u) * tc.sin(u)

    def loops(u: Any) -> Any:
        return tc.scan(lambda c, r: (tc.sin(c) * r, None), u, steps)[0] * tc.sin(u)

    def constants(u: Any) -> Any:
        return tc.sin(tc.scan(lambda c, r: (steps * 2, None), steps, steps)[0]) * u

    x = here(X)
    for f in (calls, loops, constants):
        loss, kept = (lambda x, g=g: tc.sum(g(x)) for g in (f, tc.checkpoint(f, policy=["sin"])))
        for derivative in (tc.grad, tc.hessian, lambda g: lambda x: tc.hvp(g, (x,), (x,))[0]):
            wanted = derivative(loss)(x).numpy()
            for call in (derivative(kept), tc.function(derivative(kept))):
                for _ in range(3):  # of which the compiled function is traced in the second
                    np.testing.assert_allclose(call(x).numpy(), wanted, rtol=1e-12, atol=1e-12)

    def of_constants(x: Any) -> Any:
        return tc.sum(tc.checkpoint(lambda u: constants(u) * x, policy=["sin"])(steps))

    wanted = (tc.sin(steps * 2) * steps).numpy()
    np.testing.assert_allclose(tc.function(tc.grad(of_constants))(x).numpy(), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.each_backend
def test_arrays_of_numpy_are_tensors_to_the_function_and_its_scalars_numbers() -> None:
    seen = []

    def f(x: Any, weights: Any, scale: Any, *, offset: Any) -> Any:
        seen.append([type(v) for v in (x, weights["w"], scale, offset)])
        return tc.sum(x * weights["w"] * scale + offset)

    array, w = np.ones(3, np.float32), tc.Variable([1.0, 2.0, 3.0])
    layer = tc.checkpoint(f)
    out = layer(array, {"w": array}, np.float64(0.5), offset=array)
    assert out.item() == 4.5
    assert out.dtype == tc.float32
    with tc.GradientTape() as tape:
        out = layer(array, {"w": w}, np.float64(0.5), offset=array)
    assert tape.gradient(out, w).tolist() == [0.5, 0.5, 0.5]
    assert out.dtype == tc.float32
    assert all(kinds[0] is kinds[3] is tc.Tensor and kinds[2] is float for kinds in seen)
    assert len(seen) >= 3
