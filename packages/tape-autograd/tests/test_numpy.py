"""tape_autograd.numpy: NumPy's functions on plain arrays and on values that are being differentiated."""

from __future__ import annotations

import math

import numpy
import pytest
import tape_autograd.numpy as np
import tape_autograd.numpy.random as npr
from tape_autograd import grad, jacobian, make_vjp
from tape_autograd.numpy.namespace import CONSTANT, SEQUENCES
from tape_autograd.test_util import check_grads

X = numpy.array([0.5, -1.0, 2.0])
M = numpy.array([[1.0, 2.0, -1.0], [0.5, 0.3, 3.0]])


def test_plain_arrays_are_numpys_business():
    assert type(np.sin(X)) is numpy.ndarray
    assert np.sum([1, 2]) == 3
    assert np.pi is numpy.pi
    assert np.float64 is numpy.float64
    assert np.abs is np.absolute
    with pytest.raises(AttributeError, match="neither has numpy"):
        np.no_such_name  # noqa: B018


def test_the_tables_name_functions_of_numpy():
    for name in CONSTANT | SEQUENCES:
        path = name.split(".")
        assert hasattr(getattr(numpy, path[0]) if len(path) > 1 else numpy, path[-1]), name


@pytest.mark.parametrize(
    "expression",
    [
        "np.array([[x[0], 1.0], [x[1] ** 2, x[2]]])",
        "np.concatenate([x, [1.0], x[:1] * 2])",
        "np.stack([x, x * 2], axis=1)",
        "np.r_[x, 1.0, x[0]]",
        "np.c_[x, x**2]",
        "np.append(x, x[0])",
        "np.full((2, 2), x[1])",
        "np.stack(map(np.sin, x))",
        "np.take(x, [4, -1], mode='wrap')",
        "np.trapezoid([1.0, 2.0, 4.0], x)",
        "np.sum(x[0], axis=0) + np.max(x[1], axis=0)",
        "np.add.reduce(x) * np.multiply.outer(x, x)",
        "np.outer(x, x)[:, (0, 2)]",
        "np.where(x > 0, x**2, 1.0)",
        "np.select([x > 0], [x], default=0.5)",
        'np.reshape(np.outer(x, x), (3, 3), order="F")[:2]',
        'np.outer(x, x).ravel(order="F")',
        "np.linalg.norm(np.outer(x, x) + np.eye(3), axis=(0, 1), keepdims=True)",
        "np.linalg.solve(np.outer(x, x) + 3 * np.eye(3), x)",
        'np.linalg.eigh(np.outer(x, [1.0, 2.0, 3.0]), "U")[0]',
        'np.einsum("ij,j->i", M, x)',
        "np.abs(np.fft.fft(x))",
        "np.max(np.array([x[0], x[0], 0.2]))",
        "x.T @ x + x.mean() - x.std(ddof=1)",
        "np.make_diagonal(x, axis1=-1, axis2=-2)",
        "np.clip(x, -0.5, x[2] / 5)",
        "np.take(np.outer(x, x), [0, 0, 2], axis=1)",
        "np.sum([x, x**2])",
        "np.mean((x[0], x[1] ** 2))",
        "numpy.sum(numpy.exp(x)) * numpy.arange(3.0)",
        "divmod(x, 0.3)[1] + 2.0**x",
    ],
)
def test_derivatives(expression):
    f = eval(f"lambda x: {expression}")
    check_grads(f)(X)
    # The value is NumPy's, also while it is differentiated.
    numpy.testing.assert_allclose(make_vjp(f)(X)[1], f(X))
    numpy.testing.assert_allclose(jacobian(f)(X).shape, (*numpy.shape(f(X)), 3))


def test_constants_are_plain_while_a_function_is_differentiated():
    def f(x):
        assert type(x > 0) is numpy.ndarray
        assert type(np.argmax(x)) is numpy.int64
        assert np.shape(x) == x.shape == (3,)
        assert x.dtype == numpy.float64
        assert np.int64(x[2]) == 2
        assert x.astype(int).dtype == numpy.int64
        assert type(np.zeros_like(x)) is numpy.ndarray
        table = numpy.arange(9.0).reshape(3, 3)
        return np.sum(x[x > 0] * table[np.argmax(x)][x > 0]) / (x > 0).sum()

    numpy.testing.assert_allclose(grad(f)(X), [3.0, 0.0, 4.0])


def test_dtypes_are_numpys():
    def f(x):
        assert (x * numpy.arange(3)).dtype == numpy.float64  # int64 beside float32
        assert (x * numpy.float64(2.0)).dtype == numpy.float64
        assert (x * 2.0).dtype == numpy.float32
        assert np.dot(x, numpy.arange(3)).dtype == numpy.float64
        return np.sum(x)

    assert grad(f)(X.astype("float32")).dtype == numpy.float32


def test_a_function_without_derivative_says_so():
    with pytest.raises(NotImplementedError, match=r"numpy\.frexp has no derivative here"):
        grad(lambda x: np.frexp(x)[0])(1.0)
    with pytest.raises(NotImplementedError, match=r"mu \+ sigma \* randn"):
        grad(lambda x: npr.normal(x))(1.0)


def test_a_singular_matrix_is_numpys_error():
    for f in (np.linalg.cholesky, np.linalg.inv):
        with pytest.raises(numpy.linalg.LinAlgError):
            jacobian(f)(numpy.zeros((2, 2)))


def test_the_sign_of_complex_numbers_has_a_derivative():
    check_grads(np.sign)(X + 1j)
    assert grad(lambda x: x * np.sign(x))(-2.0) == -1.0


def test_ways_out_of_the_trace_are_refused():
    with pytest.raises(TypeError, match="its derivative would be lost"):
        grad(lambda x: numpy.array(x).sum())(X)
    with pytest.raises(TypeError, match=r"np\.concatenate, np\.stack or np\.where"):
        grad(lambda x: x.__setitem__(0, 1.0))(X)
    for take in (math.sin, float, complex):
        with pytest.raises(TypeError, match=r"cannot become a plain number.*np\.stack"):
            grad(take)(1.0)
    with pytest.raises(TypeError, match=r"write `array = array \+ value`"):
        grad(lambda x: numpy.ones(3).__iadd__(x))(X)
    with pytest.raises(AttributeError, match=r"no attribute 'item'.*getval"):
        grad(lambda x: x.item())(1.0)
    with pytest.raises((TypeError, ValueError)) as caught:
        grad(lambda x: numpy.zeros(3).__setitem__(0, x))(1.0)
    assert "cannot become a plain number" in str(caught.value.__cause__ or caught.value)


def test_where_takes_names_and_python_numbers():
    assert np.where(condition=True, x=1, y=2) == 1
    assert type(np.where(True, 1, 2)) is int
    with pytest.raises(ValueError, match="either both or neither"):
        np.where([True], 1.0)


def test_values_are_shown():
    texts = []

    def f(x):
        texts.extend([str(x), f"{x:.1f}"])
        return x

    grad(f)(1.0)
    assert texts == ["Box with value 1.0", "1.0"]
