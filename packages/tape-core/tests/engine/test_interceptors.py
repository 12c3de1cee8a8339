"""Interceptors: functions around kernels, those of one op inside those of all ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tape_core as tc
from tape_core.engine import op as ops
from tape_core.extend import registry

TOLD: list[str] = []


def around(label: str) -> Any:
    """An interceptor whose kernels note a label before they compute."""

    def interceptor(op: Any, backend: Any, kernels: Any) -> Any:
        kernel, residual_kernel = kernels

        def noting(*args: Any, **kwargs: Any) -> Any:
            TOLD.append(f"{label} {op.name}")
            return kernel(*args, **kwargs)

        return noting, residual_kernel

    return interceptor


@pytest.fixture
def bound() -> Iterator[Any]:
    """An op and its backend, as they were afterwards."""
    op, x = registry["expm1"], tc.asarray(1.0)
    tc.expm1(x)
    TOLD.clear()
    yield op, x
    op._interceptors.clear()
    op.bindings.pop(x.backend)


def test_an_interceptor_of_all_ops_stands_around_that_of_one(bound: Any) -> None:
    op, x = bound
    everywhere, own = around("all"), around("own")
    ops.intercept_all(everywhere)
    try:
        op.intercept(x.backend, own)  # later, and inside all the same
        op.intercept(x.backend, own)  # once is enough
        within = op.bindings[x.backend]
        tc.expm1(x)
        tc.log1p(x)
        assert TOLD == ["all expm1", "own expm1", "all log1p"]
    finally:
        ops.release_all(everywhere)
    TOLD.clear()
    tc.expm1(x)
    assert TOLD == ["own expm1"]
    before = op.bindings[x.backend]
    assert before != within
    ops.intercept_all(everywhere)
    ops.release_all(everywhere)
    assert op.bindings[x.backend] == before


def test_an_op_that_is_bound_anew_is_intercepted_as_before(bound: Any) -> None:
    op, x = bound
    op.intercept(x.backend, around("own"))
    op.bindings.pop(x.backend)
    assert tc.expm1(x).item() == pytest.approx(1.718282)
    assert TOLD == ["own expm1"]
