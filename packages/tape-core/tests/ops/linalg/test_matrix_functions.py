"""The matrix exponential, Kronecker products and chains of products."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import assert_agrees, matrix, numpy_gradients

agrees = partial(assert_agrees, double=1e-10, single=2e-4)


# -- the exponential


def test_the_exponential_of_what_is_known() -> None:
    angle = 30.0
    turn = tc.asarray([[0.0, -angle], [angle, 0.0]], dtype="float64")
    cos, sin = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(tc.linalg.expm(turn).numpy(), [[cos, -sin], [sin, cos]], atol=1e-12)
    assert tc.linalg.expm(tc.zeros((3, 3))).tolist() == np.eye(3).tolist()
    diagonal = np.diag([-700.0, -1.0, 0.0, 1e-9, 20.0])
    np.testing.assert_allclose(tc.linalg.expm(tc.asarray(diagonal)).numpy(), np.diag(np.exp(np.diag(diagonal))), 1e-11)
    assert tc.linalg.expm(tc.asarray([[1.0]])).item() == pytest.approx(np.e)


def test_each_matrix_of_a_stack_is_scaled_for_itself() -> None:
    large, small = matrix(1, 3, 3) * 40, matrix(2, 3, 3) * 1e-8
    found = tc.linalg.expm(tc.asarray(np.stack([large, small])))
    np.testing.assert_allclose(found.numpy()[1], np.eye(3) + small, rtol=1e-15, atol=1e-15)
    tc.testing.assert_close(found.numpy()[0], tc.linalg.expm(tc.asarray(large)).numpy(), rtol=1e-12)
    broken = tc.linalg.expm(tc.asarray(np.stack([np.full((3, 3), np.inf), small])))
    assert np.isnan(broken.numpy()).all(axis=(-2, -1)).tolist() == [True, False]


def test_the_gradient_of_the_exponential_for_cotangents_of_any_size() -> None:
    x = matrix(1, 4, 4)
    (expected,) = numpy_gradients(lambda t: tc.sum(tc.linalg.expm(t)[0]), x)
    for scale in (1e-200, 1e200):
        (found,) = numpy_gradients(lambda t, scale=scale: scale * tc.sum(tc.linalg.expm(t)[0]), x)
        tc.testing.assert_close(found / scale, expected, rtol=1e-12)
    (zero,) = numpy_gradients(lambda t: 0 * tc.sum(tc.linalg.expm(t)), x)
    assert zero.tolist() == np.zeros((4, 4)).tolist()


# -- products


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 3), (3, 2)), ((3,), (2, 2)), ((2, 2, 2), (3,)), ((), (2, 2)),
    ((0, 2), (3, 3))])  # fmt: skip
def test_kron(shapes: Any) -> None:
    a, b = (matrix(k, *shape) for k, shape in enumerate(shapes))
    agrees(tc.kron(tc.asarray(a), tc.asarray(b)), np.kron(a, b))


@pytest.mark.parametrize(
    "shapes",
    [[(2, 3), (3, 4)], [(3,), (3, 4), (4, 2)], [(2, 9), (9, 2), (2, 9), (9,)], [(3,), (3,)], [(3,), (3, 3), (3,)],
     [(4,), (2, 4, 3), (3, 5)], [(4,), (2, 4, 3), (3,)], [(5, 2, 3), (3, 4), (5, 4, 2)]],
)  # fmt: skip
def test_multi_dot(shapes: Any) -> None:
    arrays = [matrix(k, *shape) for k, shape in enumerate(shapes)]
    expected: Any = arrays[0]
    for k, x in enumerate(arrays[1:], 1):
        if expected.ndim > 1 and len(shapes[0]) == 1 and k > 1:
            expected = (expected[..., None, :] @ (x if x.ndim > 1 else x[:, None]))[..., 0, :]
            expected = expected if x.ndim > 1 else expected[..., 0]
        else:
            expected = expected @ x
    agrees(tc.linalg.multi_dot([tc.asarray(x) for x in arrays]), expected)


# -- the order of sets


def test_transpose_has_numpys_name_and_meaning() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    for axes in (None, (2, 0, 1), [1, 0, -1]):
        np.testing.assert_array_equal(tc.transpose(tc.asarray(x), axes), np.transpose(x, axes))
    tc.testing.check_grads(tc.transpose, (tc.asarray(x),))
    with pytest.raises(ValueError, match="permute_dims"):
        tc.transpose(tc.asarray(x), (0, 0, 1))
