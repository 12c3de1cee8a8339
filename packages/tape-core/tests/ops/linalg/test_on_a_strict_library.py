"""Linear algebra beyond the standard computes with the standard alone what it computes with NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import tape_core as tc
from support import STRICT, assert_agrees
from tape_core.extend import Draw, Refused, Sample, registry

agrees = partial(assert_agrees, double=1e-10, single=2e-4)


NAMES = (
    "einsum", "solve_triangular", "lu_factor", "lu_solve", "expm", "expm_derivative", "csr_matmul",
    "csr_transposed_matmul", "solve", "cholesky",
)  # fmt: skip


def cases() -> Iterator[Any]:
    for name in NAMES:
        samples: Any = registry[name].samples
        for k, sample in enumerate(samples(Draw(1))):
            if not isinstance(sample, Refused):
                yield pytest.param(name, sample, id=f"{name}-{k}")


def outcome(name: str, sample: Sample, backend: Any) -> list[Any]:
    """Values and gradients of a sample, whose arrays are moved to the backend."""
    leaves: list[Any] = []

    def move(value: Any) -> Any:
        if isinstance(value, list):
            return [move(v) for v in value]
        if isinstance(value, tc.Tensor):
            value = tc.asarray(value.numpy(), backend=backend)
            if value.dtype.inexact:
                leaves.append(value)
        return value

    args = [move(a) for a in sample.args]
    with tc.GradientTape() as tape:
        tape.watch(leaves)
        result = registry[name].function(*args, **sample.kwargs)
        results = list(result) if isinstance(result, tuple) else [result]
        y = sum(tc.sum(tc.real(r * r)) for r in results if r.dtype.inexact)
    return [*results, *tape.gradient(y, leaves, unconnected_gradients="zero")]


@pytest.mark.parametrize(("name", "sample"), list(cases()))
def test_a_strict_library_agrees_with_numpy(name: str, sample: Sample) -> None:
    found, expected = outcome(name, sample, STRICT), outcome(name, sample, "numpy")
    for a, b in zip(found, expected, strict=True):
        assert a.backend is STRICT
        agrees(a, b.numpy())
