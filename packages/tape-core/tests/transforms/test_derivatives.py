"""grad, vjp, jvp, Jacobians and Hessians of functions, and what they compose to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.extend import registry

X, V = np.linspace(-1, 1, 4), np.asarray([1.0, -2.0, 0.5, 3.0])


def f(x: Any) -> Any:
    return tc.exp(x) * tc.roll(x, 1) ** 2


def rosenbrock(x: Any) -> Any:
    return tc.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_grad_of_arguments() -> None:
    def loss(w: Any, x: Any, *, scale: float = 1.0) -> Any:
        return scale * tc.sum(w["a"] * x) + 0.0 * tc.sum(w["b"])

    w = {"a": tc.asarray([1.0, 2.0]), "b": tc.asarray(3.0), "c": tc.ones(2)}
    found = tc.grad(loss)(w, np.asarray([3.0, 4.0], np.float32), scale=2.0)
    assert found["a"].tolist() == [6.0, 8.0]
    assert found["c"].tolist() == [0.0, 0.0]
    by_both = tc.grad(loss, (1, 0))(w, tc.ones(2))
    assert by_both[0].tolist() == [1.0, 2.0]
    assert by_both[1]["a"].tolist() == [1.0, 1.0]


def test_value_and_auxiliary_results() -> None:
    def loss(x: Any) -> Any:
        return x * x, {"seen": x}

    (value, aux), gradient = tc.value_and_grad(loss, has_aux=True)(3.0)
    assert (value.item(), aux["seen"].item(), gradient.item()) == (9.0, 3.0, 6.0)
    gradient, aux = tc.grad(loss, has_aux=True)(3.0)
    assert gradient.item() == 6.0
    value, pull, aux = tc.vjp(loss, 3.0, has_aux=True)
    assert pull(1.0)[0].item() == 6.0
    value, tangent, aux = tc.jvp(loss, (3.0,), (1.0,), has_aux=True)
    assert tangent.item() == 6.0
    jacobian, aux = tc.jacrev(loss, has_aux=True)(3.0)
    assert jacobian.item() == 6.0
    jacobian, aux = tc.jacfwd(loss, has_aux=True)(3.0)
    assert jacobian.item() == 6.0
    second, aux = tc.hessian(loss, has_aux=True)(3.0)
    assert second.item() == 2.0


def test_no_derivative_is_mistaken_for_another() -> None:
    assert tc.grad(lambda x: x * tc.grad(lambda y: x + y)(x))(2.0).item() == 1.0
    assert tc.grad(lambda x: x * tc.grad(lambda y: x * y)(x))(3.0).item() == 6.0
    inner = lambda x: tc.jvp(lambda y: x * y, (x,), (1.0,))[1]  # noqa: E731
    assert tc.jvp(inner, (3.0,), (1.0,))[1].item() == 1.0


def test_ways_to_a_jacobian_agree() -> None:
    x = tc.asarray(X)
    backward, forward = tc.jacrev(f)(x), tc.jacfwd(f)(x)
    assert np.allclose(backward.numpy(), forward.numpy())
    assert np.allclose(tc.jacrev(f, chunk_size=3)(x).numpy(), backward.numpy())
    assert np.allclose(tc.jacfwd(f, chunk_size=3)(x).numpy(), backward.numpy())
    y, pull = tc.vjp(f, x)
    y2, tangent = tc.jvp(f, (x,), (tc.asarray(V),))
    y3, push = tc.linearize(f, x)
    assert np.allclose(pull(tc.asarray(V))[0].numpy(), V @ backward.numpy())
    assert np.allclose(pull(tc.asarray(V))[0].numpy(), V @ backward.numpy())
    assert np.allclose(tangent.numpy(), backward.numpy() @ V)
    assert np.allclose(push(tc.asarray(V)).numpy(), backward.numpy() @ V)
    assert np.allclose(push(tc.asarray(X)).numpy(), backward.numpy() @ X)
    assert y.tolist() == y2.tolist() == y3.tolist()


@pytest.mark.parametrize("decomposition", ["eig", "eigh", "svd"])
def test_a_linear_map_of_eigenvectors_is_their_jvp(decomposition: str) -> None:
    # The rules of decompositions meet values that have no derivative, signs and orders. That alone is no reason to
    # probe a linear map element by element, which is NaN for eigenvectors, whose phase is free.
    x = tc.asarray(np.random.default_rng(0).normal(size=(3, 3)))
    v = tc.asarray(np.random.default_rng(1).normal(size=(3, 3)))

    def f(x: tc.Tensor) -> Any:
        found = getattr(tc.linalg, decomposition)(x + tc.matrix_transpose(x) if decomposition == "eigh" else x)
        return found[1]

    _, push = tc.linearize(f, x)
    _, expected = tc.jvp(f, (x,), (v,))
    found = np.asarray(push(v).array)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, np.asarray(expected.array), rtol=1e-9, atol=1e-12)


def test_ways_to_a_hessian_agree() -> None:
    x = tc.asarray(np.linspace(-1, 1, 6))
    expected = tc.hessian(rosenbrock)(x).numpy()
    for way in (
        tc.jacrev(tc.grad(rosenbrock)),
        tc.jacfwd(tc.grad(rosenbrock)),
        tc.jacfwd(tc.jacfwd(rosenbrock)),
        tc.jacrev(tc.jacfwd(rosenbrock)),
        tc.jacfwd(tc.jacrev(rosenbrock)),
    ):
        assert np.allclose(way(x).numpy(), expected)
    (product,) = tc.hvp(rosenbrock, (x,), (tc.asarray(np.arange(6.0)),))
    assert np.allclose(product.numpy(), expected @ np.arange(6.0))
    middle = 1200 * x.numpy()[1:-1] ** 2 - 400 * x.numpy()[2:] + 202
    assert np.allclose(np.diag(expected)[1:-1], middle)


def test_jacobians_of_structures() -> None:
    def g(d: Any) -> Any:
        return {"s": tc.sin(d["a"]) * d["b"], "t": tc.sum(d["b"])}

    d = {"a": tc.asarray(X), "b": tc.asarray(V)}
    backward, forward = tc.jacrev(g)(d), tc.jacfwd(g)(d)
    for k, j, shape in (("s", "a", (4, 4)), ("s", "b", (4, 4)), ("t", "a", (4,)), ("t", "b", (4,))):
        assert backward[k][j].shape == forward[k][j].shape == shape
        assert np.allclose(backward[k][j].numpy(), forward[k][j].numpy())
    second = tc.hessian(lambda d: tc.sum(g(d)["s"]))(d)
    assert np.allclose(second["a"]["b"].numpy(), np.diag(np.cos(X)))
    by_two = tc.jacfwd(lambda x, y: x * y, (0, 1))(tc.asarray(X), tc.asarray(V))
    assert np.allclose(by_two[0].numpy(), np.diag(V))
    products = tc.hvp(
        lambda x, y: tc.sum(x * x * y), (tc.asarray(X), tc.asarray(V)), (tc.ones(4, dtype="float64"),) * 2
    )
    assert np.allclose(products[0].numpy(), 2 * V + 2 * X)
    assert np.allclose(products[1].numpy(), 2 * X)


def test_a_hessian_product_takes_little_more_than_twice_the_products_of_the_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w1, w2, x = (tc.asarray(np.random.default_rng(k).normal(size=(4, 4))) for k in range(3))
    seen = []
    registry["matmul"].bind(tc.get_backend())  # what is to be there again afterwards
    kernel = tc.get_backend().xp.matmul
    monkeypatch.setattr(tc.get_backend().xp, "matmul", lambda a, b: seen.append(1) or kernel(a, b))
    monkeypatch.delitem(registry["matmul"].bindings, tc.get_backend())

    def loss(w1: Any, w2: Any) -> Any:
        return tc.sum(tc.tanh(x @ w1) @ w2)

    tc.grad(loss, (0, 1))(w1, w2)
    gradient = len(seen)
    (by_w1, _) = tc.hvp(loss, (w1, w2), (w1, w2))
    assert gradient == 5
    assert len(seen) - gradient <= 11
    assert np.allclose(tc.jvp(tc.grad(loss), (w1, w2), (w1, w2))[1].numpy(), by_w1.numpy())


def test_the_product_with_a_hessian_is_of_one_number() -> None:
    with pytest.raises(ValueError, match=r"hvp: the function must return one number, its result is of shape \(2,\)"):
        tc.hvp(lambda x: x * x, (tc.ones(2),), (tc.ones(2),))
    with pytest.raises(TypeError, match="hvp: primals must be a tuple with an entry for each argument, got Tensor"):
        tc.hvp(tc.sum, tc.ones(2), tc.ones(2))
    (product,) = tc.hvp(lambda x: tc.sum(x), (tc.ones(2),), (tc.ones(2),))
    assert product.tolist() == [0.0, 0.0]


def test_with_vmap_in_any_order() -> None:
    x = tc.asarray(np.arange(6.0).reshape(2, 3))
    cubes = lambda r: tc.sum(r**3)  # noqa: E731
    each = tc.vmap(tc.grad(cubes))(x).numpy()
    assert np.allclose(each, 3 * x.numpy() ** 2)
    assert np.allclose(tc.grad(lambda x: tc.sum(tc.vmap(cubes)(x)))(x).numpy(), each)
    hessians = tc.vmap(tc.hessian(cubes))(x).numpy()
    assert np.allclose(hessians, [np.diag(6 * row) for row in x.numpy()])
    tangents = tc.vmap(lambda r, t: tc.jvp(cubes, (r,), (t,))[1])(x, tc.ones((2, 3), dtype="float64"))
    assert np.allclose(tangents.numpy(), each.sum(1))
    tangent = tc.jvp(lambda x: tc.vmap(tc.grad(cubes))(x), (x,), (tc.ones((2, 3), dtype="float64"),))[1]
    assert np.allclose(tangent.numpy(), 6 * x.numpy())
    pulled = tc.vmap(lambda r: tc.vjp(cubes, r)[1](2.0)[0])(x)
    assert np.allclose(pulled.numpy(), 2 * each)


def test_sparse_gradients() -> None:
    table = tc.asarray(np.ones((4, 2)))
    rows = tc.asarray([1, 1])
    loss = lambda t: tc.sum(tc.gather(t, rows) ** 3)  # noqa: E731
    assert isinstance(tc.grad(loss)(table), tc.IndexedSlices)
    second = tc.hessian(loss)(table)
    assert second.shape == (4, 2, 4, 2)
    assert second[1, 0, 1, 0].item() == 12.0


def test_a_cotangent_of_none_is_neither_ones_nor_zeros() -> None:
    x = tc.asarray(X)
    _, pull = tc.vjp(lambda x: (x * 2, {"b": x * 3}, tc.argmax(x)), x)
    with pytest.raises(ValueError, match=r"cotangent of the value\[1\]\['b'\] is None; give an array of shape \(4,\)"):
        pull((x, {"b": None}, None))
    with pytest.raises(ValueError, match=r"cotangent of the value\[0\] is None"):
        pull(None)
    assert pull((x, {"b": tc.zeros_like(x)}, None))[0].tolist() == (x * 2).tolist()


def test_mistakes() -> None:
    x = tc.asarray(X)
    with pytest.raises(ValueError, match=r"must return one number, its result has shape \(4,\); use jacrev, or vjp"):
        tc.grad(f)(x)
    with pytest.raises(ValueError, match="argnums asks for argument 1, and the function is called with 1 positional"):
        tc.grad(rosenbrock, 1)(x)
    with pytest.raises(TypeError, match=r"argument 0\['n'\] has dtype int64, which has no derivative"):
        tc.grad(lambda d: tc.sum(d["n"]))({"n": tc.asarray([1, 2])})
    with pytest.raises(TypeError, match="must return a pair"):
        tc.grad(rosenbrock, has_aux=True)(x)
    with pytest.raises(TypeError, match="primals must be a tuple"):
        tc.jvp(f, x, x)
    with pytest.raises(ValueError, match="must have the structure of the primals"):
        tc.linearize(f, x)[1](x, x)
    with pytest.raises(TypeError, match="the result of the function must be a Tensor"):
        tc.grad(lambda x: "no")(x)


@pytest.mark.parametrize("reduce", [tc.mean, tc.sum, tc.var, tc.std, tc.prod, tc.max, tc.logsumexp])
@pytest.mark.parametrize("axis", [-1, 0])
def test_a_reduction_along_an_axis_of_a_number_has_the_derivative_of_one_along_all(reduce: Any, axis: int) -> None:
    x = tc.asarray(1.5)
    try:
        y = reduce(x, axis=axis)
    except (IndexError, ValueError):
        pytest.skip("the library refuses it")
    assert y.shape == ()
    found = tc.grad(lambda x: reduce(x, axis=axis))(x)
    expected = tc.grad(reduce)(x)
    assert found.item() == pytest.approx(expected.item(), nan_ok=True)


def test_a_list_of_numbers_in_place_of_an_array_is_named_in_the_functions_error() -> None:
    """`grad(f)([1.0, 2.0])` gives f a list, on which `x ** 2` fails with an error that says nothing of it."""
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        tc.grad(lambda x: tc.sum(x**2))([1.0, 2.0])
    assert ["argument 0 is a list of numbers" in note for note in caught.value.__notes__] == [True]
    with pytest.raises(TypeError) as caught:
        tc.value_and_grad(lambda x, y: x + y, argnums=1)(1.0, [2.0])
    assert "argument 1 is a list" in caught.value.__notes__[-1]
