"""Checks of every op on complex numbers: it computes with them, as its samples show, or refuses them by one message."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tape_core as tc
from tape_core.extend import REFUSED, Op

from tape_conformance.checking import Check, Target, expect, expect_close
from tape_conformance.samples import Case, Cases, Replaced, on_backend


def complex_checks(op: Op, samples: Cases, target: Target) -> Iterator[Check]:
    """Yield the check of an op that has inputs of floats."""
    found = [case for case in samples.accepted if _places(case) and not any(0 in s for s in _shapes(case))]
    if not found or not _has_complex(target):
        return
    if op.complex_kernel is REFUSED:
        yield Check(f"{op.name}/complex", lambda: check_refuses_complex(found[0]))
    elif not any([case.is_complex for case in samples.accepted]):
        yield Check(f"{op.name}/complex", lambda: check_takes_complex(found[0]))


def _has_complex(target: Target) -> bool:
    try:
        target.backend.raw_dtype("complex128")
    except TypeError:
        return False
    return True


def _places(case: Case) -> list[int]:
    return [k for k, v in enumerate(case.drawn_values) if isinstance(v, tc.Tensor) and v.dtype.inexact]


def _shapes(case: Case) -> list[tuple[int, ...]]:
    return [value.shape for value in case.drawn_values if isinstance(value, tc.Tensor)]


def _as_complex(case: Case, k: int) -> tc.Tensor:
    return on_backend(case.values[k].numpy().astype(np.complex128))


def check_refuses_complex(case: Case) -> None:
    """A complex operand in any place is a TypeError that says so: alone, watched, inside vmap and compiled."""
    for k in _places(case):
        given = _as_complex(case, k)
        _expect_refused(case, {k: given}, "a call")
        with tc.GradientTape() as tape:
            tape.watch(given)
            _expect_refused(case, {k: given}, "a recorded call")
    first = _places(case)[0]
    given = _as_complex(case, first)

    def call(x: tc.Tensor) -> None:
        _expect_refused(case, {first: x}, "a call inside vmap or of a compiled function")
        raise _RefusedError

    for transformed, argument in ((tc.vmap(call), tc.stack([given, given])), (tc.function(call), given)):
        try:
            transformed(argument)
        except _RefusedError:
            continue


class _RefusedError(Exception):
    """The call was refused as it should be, and there is no result to return."""


def _expect_refused(case: Case, replaced: Replaced, what: str) -> None:
    try:
        outs = case.call(replaced)
    except TypeError as error:
        text = str(error)
        expect("real numbers" in text and "complex" in text and text.startswith(case.op.name), f"{what}: {text!r}")
    else:
        raise AssertionError(f"{what} of complex numbers gives {outs!r}; the op declares that it refuses them")


def check_takes_complex(case: Case) -> None:
    """An op without complex samples gives in a complex dtype what it gives in a real one, or raises a TypeError."""
    op = case.op
    expect(
        not op.differentiable,
        "no sample is complex: give one, `samples=with_complex(...)`, or declare `complex_kernel=REFUSED`",
    )
    replaced = {k: _as_complex(case, k) for k in _places(case)}
    try:
        outs = case.call(replaced)
    except TypeError as error:
        expect(op.name in str(error), f"the library refuses complex numbers, and does not say which op: {error}")
        return
    for found, expected in zip(case.observed(outs), case.observed(case.call()), strict=True):
        if isinstance(found, tc.Tensor):
            expect_close(found.numpy(), expected.numpy(), f"{op.name} of complex numbers", rtol=1e-12)
