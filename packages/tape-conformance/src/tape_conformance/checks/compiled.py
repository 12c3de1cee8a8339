"""Ops in compiled functions: the same bits as in eager calls, for the arrays of the trace and for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.backends.traced import TracingError
from tape_core.compiled.function import function
from tape_core.indexed_slices import dense

from tape_conformance import calculus
from tape_conformance.checking import expect, expect_equal
from tape_conformance.samples import Case

SHAPED_BY_VALUES = frozenset({"nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values"})
"""Ops whose results have a shape that depends on values: compiled functions refuse them."""


def check_compiled(case: Case, examples: list[dict[int, Any]]) -> None:
    """The results, and the gradients, of a compiled function are those of an eager one to the last bit."""
    weights = case.weights()
    chosen = list(examples[0])

    def values(*xs: Any) -> list[Any]:
        return list(case.observed(case.call(dict(zip(chosen, xs, strict=True)))))

    def slopes(*xs: Any) -> list[Any]:
        at = dict(zip(chosen, xs, strict=True))
        return [dense(g) for g in calculus.gradients(case, weights, at).values()]

    try:
        _expect_same_bits(values, examples, "result")
    except TracingError as error:
        expect(case.op.name in SHAPED_BY_VALUES and "the shape of the result" in str(error), str(error))
        return
    if case.op.differentiable and case.leaves:
        _expect_same_bits(slopes, examples, "gradient")


def _expect_same_bits(eager: Callable[..., list[Any]], examples: list[dict[int, Any]], what: str) -> None:
    compiled = function(eager)
    for example in [*examples, *examples]:
        pairs = zip(compiled(*example.values()), eager(*example.values()), strict=True)
        for k, (found, expected) in enumerate(pairs):
            label = f"{what} {k} of a compiled function"
            expect_equal(found.dtype, expected.dtype, f"the dtype of {label}")
            expect_equal(found.shape, expected.shape, f"the shape of {label}")
            a, b = found.numpy(), expected.numpy()
            expect(a.tobytes() == b.tobytes(), f"{label} has other bits than an eager one: {a} and {b}")
    expect_equal(compiled.traces, 1, "the number of traces")
