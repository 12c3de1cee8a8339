"""grad, jacobian and their relatives: values, structures, nesting, complex numbers, and what they refuse."""

from __future__ import annotations

import numpy
import pytest
import tape_autograd.numpy as np
import tape_core as tc
from tape_autograd import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
)
from tape_autograd.test_util import check_grads
from tape_autograd.tracer import isbox

X = numpy.array([0.5, -1.0, 2.0])
A = numpy.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])


def loss(x):
    return np.sum(np.tanh(np.dot(A, x)) ** 2)


def test_gradients_are_plain_arrays_and_floats():
    g = grad(loss)(X)
    assert type(g) is numpy.ndarray
    assert g.flags.writeable
    assert isinstance(grad(np.sin)(1.0), float)
    assert grad(lambda x: np.sum(x))(X.astype("float32")).dtype == numpy.float32


def test_derivatives_of_every_order():
    for mode in ("fwd", "rev"):
        check_grads(loss, modes=[mode], order=3)(X)
    third = grad(grad(grad(lambda x: x**5)))
    assert numpy.isclose(third(2.0), 60 * 4.0)


def test_values_stay_connected_while_an_outer_function_is_differentiated():
    def outer(x):
        g = grad(lambda y: np.sum(y**3))(x)
        assert isbox(g)
        value, both = value_and_grad(lambda y: np.sum(y * x))(x)
        assert isbox(value)
        return np.sum(g * both)

    numpy.testing.assert_allclose(grad(outer)(X), 9 * X**2)


def test_a_value_around_the_function_is_a_constant_of_the_inner_gradient():
    f = lambda x: x * grad(lambda y: x * y)(x)  # noqa: E731
    assert grad(f)(3.0) == 6.0


def test_structures():
    def f(params, scale):
        (w, b), extra = params["layers"], params["extra"]
        return scale * np.sum(np.sin(w) * b) + extra[0] ** 2

    params = {"layers": (X, 2.0), "extra": [3.0]}
    g = grad(f)(params, 0.5)
    numpy.testing.assert_allclose(g["layers"][0], 0.5 * 2.0 * numpy.cos(X))
    assert type(g["layers"]) is tuple
    assert numpy.isclose(g["layers"][1], 0.5 * numpy.sum(numpy.sin(X)))
    assert g["extra"] == [6.0]
    assert isinstance(g["extra"][0], float)
    check_grads(f, argnum=(0, 1))(params, 0.5)


def test_several_arguments_by_number_and_by_name():
    f = lambda a, b, c=1.0: a * b**2 * c  # noqa: E731
    assert grad(f, (1, 0))(2.0, 3.0, c=2.0) == (24.0, 18.0)
    assert grad(f, [0])(2.0, 3.0) == (9.0,)
    assert grad_named(f, "b")(2.0, 3.0) == 12.0
    assert multigrad_dict(f)(2.0, 3.0) == {"a": 9.0, "b": 12.0, "c": 18.0}
    assert grad(f, 1).__name__ == "grad_of_<lambda>_wrt_argnum_1"
    with pytest.raises(TypeError, match="called with 1 positional arguments, of which number 1"):
        grad(f, 1)(2.0)


def test_jacobians_nest():
    f = lambda x: np.array([x[0] * x[1], np.sin(x[2]), x[0] ** 2])  # noqa: E731
    j = jacobian(f)(X)
    numpy.testing.assert_allclose(j, [[-1.0, 0.5, 0.0], [0.0, 0.0, numpy.cos(2.0)], [1.0, 0.0, 0.0]])
    second = jacobian(jacobian(f))(X)
    assert second.shape == (3, 3, 3)
    assert second[2, 0, 0] == 2.0
    check_grads(lambda x: np.sum(np.sin(jacobian(f)(x))))(X)
    assert jacobian(lambda x: np.ones(2))(X).tolist() == [[0.0] * 3] * 2
    assert jacobian(lambda x: x[None] * x[:, None])(X).shape == (3, 3, 3)


def test_hessians_and_products_with_them():
    h = hessian(loss)(X)
    numpy.testing.assert_allclose(h, h.T, atol=1e-12)
    v = numpy.array([1.0, 0.0, -2.0])
    numpy.testing.assert_allclose(make_hvp(loss)(X)[0](v), h @ v)
    numpy.testing.assert_allclose(hessian_vector_product(loss)(X, v), h @ v)


def test_products_with_jacobians():
    f = lambda x: np.tanh(np.dot(A, x))  # noqa: E731
    j, v, w = jacobian(f)(X), numpy.array([1.0, 2.0, 3.0]), numpy.array([-1.0, 0.5])
    value, tangent = make_jvp(f)(X)(v)
    numpy.testing.assert_allclose(value, f(X))
    numpy.testing.assert_allclose(tangent, j @ v)
    pull, value = make_vjp(f)(X)
    numpy.testing.assert_allclose(pull(w), w @ j)
    numpy.testing.assert_allclose(pull(2 * w), 2 * (w @ j))
    numpy.testing.assert_allclose(make_jvp_reversemode(f)(X)(v), j @ v)
    numpy.testing.assert_allclose(tensor_jacobian_product(f)(X, w), w @ j)
    numpy.testing.assert_allclose(make_ggnvp(f)(X)(v), j.T @ (j @ v))
    with pytest.raises(ValueError, match=r"the vector has shape \(3,\), its value has shape \(2,\)"):
        pull(v)


def test_elementwise_grad_and_deriv_broadcast():
    f = lambda a, b: a * np.exp(b)  # noqa: E731
    numpy.testing.assert_allclose(elementwise_grad(f, 1)(2.0, X), 2.0 * numpy.exp(X))
    numpy.testing.assert_allclose(elementwise_grad(f)(2.0, X), numpy.exp(X).sum())
    numpy.testing.assert_allclose(deriv(lambda x: x**2)(X), 2 * X)
    with pytest.raises(TypeError, match="real-output"):
        elementwise_grad(lambda x: x * 1j)(X)


def test_grad_and_aux_and_checkpoint():
    g, aux = grad_and_aux(lambda x: (np.sum(x**2), {"norm": np.max(x), "name": "x"}))(X)
    numpy.testing.assert_allclose(g, 2 * X)
    assert aux == {"norm": 2.0, "name": "x"}
    runs = []

    def f(x):
        runs.append(isbox(x))
        return np.sin(x) ** 2

    numpy.testing.assert_allclose(grad(lambda x: np.sum(checkpoint(f)(x)))(X), numpy.sin(2 * X))
    assert runs == [False, True]
    check_grads(checkpoint(f))(X)


def test_complex_gradients_are_autograds():
    # df/dx - i df/dy: the conjugate of what Tape and PyTorch return.
    assert grad(lambda z: np.real(z) ** 2 + 3 * np.imag(z))(2.0 + 1.0j) == 4.0 - 3.0j
    assert numpy.isclose(holomorphic_grad(lambda z: np.exp(z))(1.0 + 2.0j), numpy.exp(1.0 + 2.0j))
    pull, _ = make_vjp(lambda z: (1.0 + 2.0j) * z)(3.0 + 1.0j)
    assert pull(1.0j) == (1.0 + 2.0j) * 1.0j
    check_grads(lambda z: np.abs(np.exp(z)) * np.conj(z))(X + 1j)
    numpy.testing.assert_allclose(jacobian(np.abs)(numpy.array([3.0 + 4.0j])), [[0.6 - 0.8j]])
    with pytest.raises(TypeError, match="scalar-output"):
        grad(lambda x: x * 1j)(1.0)
    with pytest.raises(TypeError, match=r"np\.real and np\.imag"):
        jacobian(lambda x: x * 1j)(X)


def test_what_depends_on_nothing_has_the_gradient_zero():
    assert grad(lambda x: 1.0)(2.0) == 0.0
    assert grad(lambda x: np.sum(np.floor(x)))(X).tolist() == [0.0] * 3
    assert grad(lambda p: p["a"] ** 2)({"a": 1.0, "b": X})["b"].tolist() == [0.0] * 3
    assert make_jvp(lambda x: 3.0)(1.0)(1.0) == (3.0, 0.0)


def test_results_and_arguments_without_derivative_are_refused():
    with pytest.raises(TypeError, match="Try jacobian"):
        grad(lambda x: x * 2)(X)
    with pytest.raises(TypeError, match="vector space"):
        grad(lambda x: np.all(x > 0))(X)
    with pytest.raises(TypeError, match="write it as a float"):
        grad(lambda x: x**2)(3)
    with pytest.raises(TypeError, match="dtype bool"):
        grad(lambda x: 1.0)(X > 0)
    # Whole numbers in an array count as real ones.
    assert grad(lambda x: np.sum(x**2))(numpy.array([1, 2])).tolist() == [2.0, 4.0]
    with pytest.raises(TypeError, match="argnum must be an int"):
        grad(np.sin, "x")


def test_tensors_are_taken_and_given_so_that_functions_compile() -> None:
    def f(p, x):
        hidden = np.maximum(np.dot(x, p["w"]) + p["b"], 0.0)
        return np.mean(np.where(hidden > 0.5, hidden**2, np.sign(hidden))) + np.linalg.norm(np.array([p["b"], p["b"]]))

    params = {"w": A.T, "b": numpy.array([0.1, -0.2])}
    tensors = tc.tree_map(lambda p: tc.asarray(p, backend="numpy"), params)
    expected = grad(f)(params, A)
    for differentiate in (grad(f), tc.function(grad(f))):
        found = differentiate(tensors, A)
        assert isinstance(found["w"], tc.Tensor)
        for name in params:
            numpy.testing.assert_allclose(found[name].numpy(), expected[name])
    rows = tc.asarray(numpy.stack([X, -X]), backend="numpy")
    numpy.testing.assert_allclose(tc.vmap(grad(loss))(rows).numpy(), [grad(loss)(X), grad(loss)(-X)])
    assert isinstance(value_and_grad(loss)(rows[0])[0], tc.Tensor)
    assert isinstance(make_jvp(loss)(rows[0])(X)[1], tc.Tensor)
    assert isinstance(jacobian(np.sin)(rows[0]), tc.Tensor)


@pytest.mark.each_backend
def test_arrays_are_numpys_whatever_backend_is_selected() -> None:
    f = lambda x: np.sum(np.dot(A, np.maximum(x, 0.1)) * np.array([x[0], 1.0])) + np.linalg.norm(x)  # noqa: E731
    g = grad(f)(X)
    assert type(g) is numpy.ndarray
    assert g.dtype == numpy.float64
    assert hessian(f)(X).shape == (3, 3)
    check_grads(f)(X)
    # Tensors of the selected backend stay there.
    found = grad(f)(tc.asarray(X))
    assert found.backend.name == tc.get_backend().name
    numpy.testing.assert_allclose(found.numpy(), g, rtol=1e-5)
