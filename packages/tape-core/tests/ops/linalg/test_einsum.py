"""einsum: NumPy's values, its gradient, and the order of a chain of products."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tape_core as tc
from support import assert_agrees, matrix, numpy_gradients

agrees = partial(assert_agrees, double=1e-10, single=2e-4)


@pytest.mark.parametrize(
    ("expression", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]), ("ba", [(2, 3)]), ("ij -> ji", [(2, 3)]), ("->", [()]), (",", [(), ()]),
        ("...", [(2, 3)]), ("...i->...", [(2, 3)]), ("i...->...i", [(2, 3, 4)]), ("ij->...ji", [(2, 3)]),
        ("...ab,...bc", [(5, 1, 2, 3), (4, 3, 2)]), ("aab,b->a", [(2, 2, 3), (3,)]), ("abcabc->cb", [(2, 3, 1) * 2]),
        ("zA,Ab", [(2, 3), (3, 2)]), ("ij,ij->", [(2, 3), (2, 3)]), ("a,b,c,d->dbca", [(2,), (3,), (4,), (5,)]),
        ("ij,jk,kl,lm->im", [(2, 9), (9, 2), (2, 9), (9, 3)]), ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,jk,ki->", [(2, 3), (3, 4), (4, 2)]), ("i,i,i->i", [(3,), (1,), (3,)]), ("ij,kl->", [(2, 0), (3, 2)]),
        ("ijk,k->ij", [(0, 2, 3), (3,)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_einsum_gives_what_numpy_gives(expression: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    arrays = [matrix(k, *shape, dtype=dtype) for k, shape in enumerate(shapes)]
    agrees(tc.einsum(expression, *map(tc.asarray, arrays)), np.einsum(expression, *arrays))


def test_einsum_of_integers_and_of_numbers() -> None:
    a = np.arange(6).reshape(2, 3)
    assert tc.einsum("ij,kj->ik", tc.asarray(a), tc.asarray(a)).tolist() == (a @ a.T).tolist()
    x = tc.asarray([1.0, 2.0])
    assert tc.einsum("i,,->i", x, 2.0, 3).tolist() == [6.0, 12.0]
    assert tc.einsum("i,->i", x, 2.0).dtype is tc.float32


def test_einsum_with_lists_of_subscripts() -> None:
    a, b = matrix(1, 2, 3), matrix(2, 3, 4)
    agrees(tc.einsum(tc.asarray(a), [0, 1], tc.asarray(b), [1, 2], [0, 2]), a @ b)
    agrees(tc.einsum(tc.asarray(a), [30, 1]), np.einsum(a, [30, 1]))
    agrees(tc.einsum(tc.asarray(a), [..., 0], [0, ...]), a.T)
    with pytest.raises(TypeError, match="a string of subscripts, or each operand be followed by a list"):
        tc.einsum(tc.asarray(a), tc.asarray(b))
    with pytest.raises(ValueError, match="numbers below 52, got 52"):
        tc.einsum(tc.asarray(a), [52, 1])


def test_the_gradient_of_a_trace_is_the_identity_and_of_a_sum_over_one_operand_is_spread() -> None:
    (g,) = numpy_gradients(lambda x: tc.einsum("ii", x), matrix(1, 3, 3))
    assert g.tolist() == np.eye(3).tolist()
    g, h = numpy_gradients(lambda x, y: tc.einsum("ij,k->", x, y), np.ones((2, 3)), np.array([1.0, 2.0]))
    assert (g.tolist(), h.tolist()) == ([[3.0] * 3] * 2, [6.0, 6.0])


def test_einsum_multiplies_a_chain_in_a_good_order() -> None:
    """From the left this would make a matrix of 10**10 elements."""
    n = 100_000
    a, b, c = tc.ones((n, 1)), tc.ones((1, n)), tc.ones((n, 1))
    assert tc.einsum("ij,jk,kl->l", a, b, c).tolist() == pytest.approx([float(n) ** 2])
