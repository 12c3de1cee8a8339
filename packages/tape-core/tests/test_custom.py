"""custom_gradient and checkpoint: their contract, and that they compose like any function."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tape_core as tc

X = np.linspace(-1, 1, 4)


@tc.custom_gradient
def log1pexp(x: Any) -> Any:
    e = tc.exp(x)
    return tc.log(1 + e), lambda upstream: upstream * (1 - 1 / (1 + e))


def test_the_gradient_is_the_one_given() -> None:
    assert tc.grad(log1pexp)(50.0).item() == 1.0
    x = tc.asarray(2.0)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = log1pexp(3 * x)
    assert tape.gradient(y, x).item() == pytest.approx(3 / (1 + np.exp(-6)))
    assert tape.gradient(y, x).item() == pytest.approx(3 / (1 + np.exp(-6)))


def test_it_is_differentiated_itself_and_composes() -> None:
    slope = 1 / (1 + np.exp(-X))
    x = tc.asarray(X)
    assert np.allclose(tc.vmap(tc.grad(tc.grad(log1pexp)))(x).numpy(), slope * (1 - slope))
    assert np.allclose(tc.jacfwd(log1pexp)(x).numpy(), np.diag(slope))
    assert np.allclose(tc.jacrev(log1pexp)(x).numpy(), np.diag(slope))
    assert np.allclose(tc.grad(lambda x: tc.sum(tc.vmap(log1pexp)(x)))(x).numpy(), slope)
    assert np.allclose(tc.hessian(lambda x: tc.sum(log1pexp(x)))(x).numpy(), np.diag(slope * (1 - slope)))


def test_arguments_and_results_are_structures() -> None:
    @tc.custom_gradient
    def f(pair: Any, name: str, n: Any, *, scale: float) -> Any:
        def grad(*upstream: Any) -> Any:
            assert len(upstream) == 2
            assert not upstream[1].numpy().any()
            return [{"a": upstream[0] * 10, "b": None}, None, None]

        return (pair["a"] * scale, {"other": pair["b"]}), grad

    a, b = tc.asarray(2.0), tc.asarray(3.0)
    with tc.GradientTape() as tape:
        tape.watch([a, b])
        y, other = f({"a": a, "b": b}, "x", tc.asarray(1), scale=5.0)
    assert y.item() == 10.0
    assert other["other"].item() == 3.0
    assert tape.gradient(y, [a, b], unconnected_gradients="none")[0].item() == 10.0


def test_variables() -> None:
    w = tc.Variable(3.0, name="w")

    @tc.custom_gradient
    def f(x: Any) -> Any:
        def grad(upstream: Any, variables: Any = None) -> Any:
            assert variables == [w]
            return upstream * 100, [upstream * 7]

        return x * w, grad

    x = tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    assert [g.item() for g in tape.gradient(y, [x, w])] == [100.0, 7.0]

    @tc.custom_gradient
    def without(x: Any) -> Any:
        return x * w, lambda upstream: upstream

    with pytest.raises(TypeError, match=r"reads the variables \['w'\], so its grad must take the keyword argument"):
        without(x)

    @tc.custom_gradient
    def too_few(x: Any) -> Any:
        return x * w, lambda upstream, variables=None: (upstream, [])

    with tc.GradientTape() as tape:
        tape.watch(x)
        y = too_few(x)
    with pytest.raises(ValueError, match="Must return gradient for each variable"):
        tape.gradient(y, x)


def test_mistakes() -> None:
    x = tc.asarray([1.0, 2.0])

    def gradient(f: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.custom_gradient(f)(x, x)
        return tape.gradient(y, x)

    with pytest.raises(ValueError, match="expected to return 2 gradients, but returned 1 instead"):
        gradient(lambda x, y: (x * y, lambda upstream: upstream))
    with pytest.raises(ValueError, match=r"for argument 1 has shape \(\), the value has shape \(2,\)|argument"):
        gradient(lambda x, y: (x * y, lambda upstream: (upstream, tc.sum(upstream))))
    with pytest.raises(TypeError, match="must return a pair"):
        tc.custom_gradient(lambda x: x)(x)


def test_the_result_is_a_new_tensor_and_what_is_inside_is_off_the_path() -> None:
    double = tc.custom_gradient(lambda x: (x, lambda upstream: upstream * 2))
    x = tc.asarray(1.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = double(x)
    assert y is not x
    assert tape.gradient(y, x).item() == 2.0


def test_complex_gradients_are_conjugated_as_those_of_a_tape() -> None:
    z = tc.asarray(1 + 2j)
    square = tc.custom_gradient(lambda z: (z * z, lambda upstream: upstream * tc.conj(2 * z)))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(z)
        own, custom = z * z * 1j, square(z) * 1j
    assert tape.gradient(custom, z).item() == tape.gradient(own, z).item()


# -- checkpoint

W = np.random.default_rng(0).standard_normal((4, 4))


def layer(x: Any, w: Any) -> Any:
    return tc.tanh(w @ x) * tc.sin(x)


def test_checkpoint_gives_the_same() -> None:
    again = tc.checkpoint(layer)
    x, w = tc.asarray(X), tc.asarray(W)

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

    x = tc.asarray(X)
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
