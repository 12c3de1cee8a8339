"""Normalization by PyTorch's kernels: gradients with respect to some of the inputs only."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import tape_core as tc


@pytest.mark.parametrize("watched", [w for w in product([True, False], repeat=3) if any(w)])
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_batch_norm_of_what_is_watched(watched: tuple[bool, ...], layout: Any) -> None:
    rng = tc.default_rng(0)
    arrays = [rng.normal(shape, dtype=tc.float64, backend="numpy") for shape in ((4, 3, 3), (3,), (3,))]
    found = []
    for backend in ("numpy", "torch"):
        inputs = [tc.asarray(x, backend=backend) for x in arrays]
        with tc.GradientTape() as tape:
            sources = [x for x, wanted in zip(inputs, watched, strict=True) if wanted]
            tape.watch(sources)
            y = tc.batch_norm(*inputs, layout=layout).output
            loss = tc.sum(y * y * y)
        found.append(tape.gradient(loss, sources))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-9)
