"""Views in compiled functions: what is turned and turned back is itself; Jacobians have no products by I."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import assert_same, code, values

draw = partial(values, dtype="float64", backend="numpy")


def test_there_and_back_is_nothing() -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        y = tc.permute_dims(tc.matrix_transpose(x[:, None, :, ...]), (0, 2, 1))[:, 0]
        return tc.exp(tc.reshape(y[None, 0:3], (3, 4)))

    compiled = tc.function(f)
    assert_same(compiled(draw(3, 4)), f(draw(3, 4)))
    assert compiled.stats()[0]["dce"] == 1


def test_two_views_are_one() -> None:
    def f(x: tc.Tensor) -> Any:
        a = tc.permute_dims(tc.permute_dims(x, (1, 2, 0)), (1, 2, 0))
        b = tc.permute_dims(x, (1, 0, 2))[:, None]
        c = tc.matrix_transpose(tc.permute_dims(x[..., None], (0, 3, 2, 1)))
        return a, b, c

    compiled = tc.function(f)
    for x in (draw(2, 3, 4), draw(2, 3, 4, seed=1)):
        for found, expected in zip(compiled(x), f(x), strict=True):
            assert_same(found, expected)
    assert compiled.stats()[0]["dce"] == 4  # `b` takes two, and the others one each


def test_what_takes_a_part_or_copies_stays() -> None:
    def f(x: tc.Tensor) -> Any:
        part = x[1:][:, None]
        return part[:, 0], x[::-1][::-1], tc.reshape(tc.reshape(tc.matrix_transpose(x), (12,)), (3, 4)), x[0][None]

    compiled = tc.function(f)
    compiled(draw(3, 4))
    for found, expected in zip(compiled(draw(3, 4)), f(draw(3, 4)), strict=True):
        assert_same(found, expected)


def jacobian(x: tc.Tensor, w1: tc.Tensor, w2: tc.Tensor) -> Any:
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.tanh(w2 @ tc.tanh(w1 @ x))
    return tape.jacobian(y, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_jacobian_has_one_product_for_each_layer_but_the_last(dtype: str) -> None:
    compiled = tc.function(jacobian)
    args = draw(6, dtype=dtype), draw(7, 6, seed=1, dtype=dtype), draw(5, 7, seed=2, dtype=dtype)
    assert_same(compiled(*args), jacobian(*args))
    assert_same(compiled(*args), jacobian(*args))
    assert code(compiled).count(" @ ") == 3  # two are those of the function
    assert ".mT" not in code(compiled)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, -0.0, 0.0, 1e300])
def test_a_diagonal_times_a_matrix_has_the_bits_of_the_product(special: float) -> None:
    def f(d: tc.Tensor, w: tc.Tensor) -> tc.Tensor:
        return (tc.eye(5, dtype="float64") * d) @ w

    compiled = tc.function(f)
    compiled(draw(5), draw(5, 4))
    assert " @ " not in code(compiled)
    for at_d, at_w in ((None, (1, 2)), (3, None), (1, (1, 2))):
        d, w = draw(5, seed=1).numpy(), draw(5, 4, seed=2).numpy()
        if at_d is not None:
            d[at_d] = special
        if at_w is not None:
            w[at_w] = special
        for matrix in (w, np.asfortranarray(w), np.repeat(w, 2, axis=0)[::2]):
            with np.errstate(all="ignore"):
                expected = f(tc.asarray(d), tc.asarray(matrix))
            assert_same(compiled(tc.asarray(d), tc.asarray(matrix)), expected)
