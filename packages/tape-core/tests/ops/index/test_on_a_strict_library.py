"""Reading and updating by index computes with the standard alone what it computes with NumPy."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import tape_core as tc
from support import STRICT
from tape_core.extend import Draw, Refused, Sample, registry

OPS = [
    "getitem", "setitem", "scatter", "places", "take", "take_along_axis", "gather", "add_rows", "repeat",
    "scatter_add", "scatter_multiply", "scatter_min", "scatter_max", "top_k", "isin", "expand_dims", "search_in_order",
]  # fmt: skip


def cases() -> list[Any]:
    return [
        pytest.param(name, sample, id=f"{name}-{k}")
        for name in OPS
        for k, sample in enumerate(registry[name].samples(Draw(1)))  # type: ignore[misc]
    ]


def moved(value: Any) -> Any:
    """A value of a sample on the strict backend."""
    if isinstance(value, tc.Tensor):
        return tc.asarray(value, backend=STRICT)
    if isinstance(value, np.ndarray):
        return array_api_strict.asarray(value)
    return tuple(moved(v) for v in value) if isinstance(value, tuple) else value


def results(op: Any, args: Any, kwargs: Any) -> list[Any]:
    """Values and gradients."""
    watched = [a for a in args if isinstance(a, tc.Tensor) and a.dtype.inexact]
    with tc.GradientTape() as tape:
        tape.watch(watched)
        out = op.function(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    found = tape.gradient([o for o in outs if o.dtype.inexact], watched) if op.differentiable else []
    return [o.numpy() for o in (*outs, *(g.densify() if isinstance(g, tc.IndexedSlices) else g for g in found))]


@pytest.mark.parametrize(("name", "sample"), cases())
def test_the_standard_alone_gives_what_numpy_gives(name: str, sample: Sample) -> None:
    op = registry[name]
    args = [moved(a) for a in sample.args]
    kwargs = {k: moved(v) for k, v in sample.kwargs.items()}
    if isinstance(sample, Refused):
        with pytest.raises(sample.error):
            op.function(*args, **kwargs)
        return
    expected = results(op, sample.args, sample.kwargs)
    found = results(op, args, kwargs)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        tc.testing.assert_close(a, b, rtol=1e-12)
