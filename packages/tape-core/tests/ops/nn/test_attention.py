"""Attention: queries without keys, masks, large scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import numpy_gradients


def attention(mask: Any = None, **kwargs: Any) -> Any:
    def f(*xs: Any) -> Any:
        return tc.sum(tc.scaled_dot_product_attention(*xs, mask, **kwargs) ** 2)

    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((3, 4)) for _ in range(3)]
    return xs, f


@pytest.mark.parametrize("additive", [False, True], ids=["boolean", "additive"])
def test_a_query_without_a_key_gets_zeros_and_no_gradient(additive: bool) -> None:
    allowed = np.asarray([[True, False, True], [False, False, False], [True, True, True]])
    mask = tc.asarray(np.where(allowed, 0.0, -np.inf) if additive else allowed)
    xs, f = attention(mask)
    out = tc.scaled_dot_product_attention(*map(tc.asarray, xs), mask)
    assert out[1, :].tolist() == [0.0] * 4
    found = numpy_gradients(f, *xs)
    assert all(np.isfinite(g).all() for g in found)
    assert not found[0][1].any()
    rest = [0, 2]
    alone = tc.scaled_dot_product_attention(
        tc.asarray(xs[0][rest]), tc.asarray(xs[1]), tc.asarray(xs[2]), tc.asarray(allowed[rest])
    )
    np.testing.assert_allclose(out.numpy()[rest], alone.numpy())


def test_no_keys_at_all() -> None:
    q, k, v = tc.ones((2, 3)), tc.ones((0, 3)), tc.ones((0, 4))
    assert tc.scaled_dot_product_attention(q, k, v).tolist() == [[0.0] * 4] * 2


def test_large_scores_do_not_overflow() -> None:
    xs, f = attention()
    found = numpy_gradients(f, 1e4 * xs[0], 1e4 * xs[1], xs[2])
    assert all(np.isfinite(g).all() for g in found)


def test_causal_goes_with_a_mask() -> None:
    xs, _ = attention()
    tensors = [tc.asarray(x) for x in xs]
    mask = tc.asarray(np.asarray([True, False, True]))
    both = tc.asarray(np.tri(3, dtype=bool) & mask.numpy())
    np.testing.assert_allclose(
        tc.scaled_dot_product_attention(*tensors, mask, is_causal=True).numpy(),
        tc.scaled_dot_product_attention(*tensors, both).numpy(),
    )
