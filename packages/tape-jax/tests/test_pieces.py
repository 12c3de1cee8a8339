"""Joining many arrays and taking one apart into many, which takes several programs of XLA."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from tape_jax.thresholds import PIECES_AT_ONCE

LENGTHS = (PIECES_AT_ONCE, PIECES_AT_ONCE + 1, 3 * PIECES_AT_ONCE + 5)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("n", LENGTHS)
def test_many_arrays_are_joined_and_taken_apart(n, axis):
    rows = np.random.default_rng(n).standard_normal((n, 2, 3))
    x = tc.asarray(np.stack(rows, axis=axis), backend="jax")
    parts = tc.unstack(x, axis=axis)
    assert [part.tolist() for part in parts] == rows.tolist()
    assert tc.stack(list(parts), axis=axis).tolist() == x.tolist()
    assert tc.concat(list(parts), axis=axis).tolist() == np.concatenate(list(rows), axis=axis).tolist()


def test_many_arrays_are_flattened_and_joined():
    rows = np.random.default_rng(0).standard_normal((100, 2, 3))
    parts = [tc.asarray(row, backend="jax") for row in rows]
    assert tc.concat(parts, axis=None).tolist() == np.concatenate(list(rows), axis=None).tolist()


def test_many_arrays_have_the_dtype_that_all_have_in_common():
    mixed = [tc.ones(2, dtype=dtype, backend="jax") for dtype in [tc.int32] * 60 + [tc.float32] * 60 + [tc.float64]]
    assert tc.stack(mixed).dtype is tc.concat(mixed).dtype is tc.float64
    assert tc.stack(mixed).shape == (121, 2)


def test_arrays_that_do_not_fit_are_told_with_all_their_shapes():
    parts = [tc.ones(2, backend="jax")] * 60 + [tc.ones(3, backend="jax")]
    with pytest.raises(ValueError, match=r"stack.*\(3,\)"):
        tc.stack(parts)


def test_the_jacobian_of_a_long_loop_takes_arrays_of_all_rows_apart():
    def end(x):
        return tc.scan(lambda c, r: (c + tc.sin(c) * r, None), x, tc.full((600,), 0.01, dtype=tc.float64))[0]

    with tc.use_backend("jax"):
        x = tc.asarray([0.1, 0.2], dtype=tc.float64)
        found = tc.function(tc.jacrev(end), compile=False)(x)
        np.testing.assert_allclose(found.numpy(), tc.jacfwd(end)(x).numpy(), rtol=1e-12)
