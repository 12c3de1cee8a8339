"""Checks of every op on pairs of dtypes: its results have the dtype that the one promotion rule says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.extend import NONDIFF, TODO, Op
from tape_core.support import dtypes

from tape_conformance.checking import Check, Target, expect, expect_equal
from tape_conformance.samples import Case, Cases, Replaced, check_of

DTYPES = ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64")
"""One dtype of each sort: those that libraries treat as another one do."""

FEWER_DTYPES = tuple(name for name in DTYPES if name not in ("bool", "int16"))
"""Those for ops of several inputs that are not elementwise, whose calls take longer."""

NUMBERS = (1, 0.5, np.float64(0.5), np.float32(0.5), np.int64(1))
"""Numbers that are weak beside an array: Python's and NumPy's."""


def dtype_checks(op: Op, samples: Cases, target: Target) -> Iterator[Check]:
    """Yield the check of an op that has inputs with a common dtype."""
    found = [case for case in samples.accepted if places(case) and not case.is_complex]
    if found:
        # A few elements, since kernels may return at once where there is one or none.
        smallest = min(found, key=lambda case: (any(size < 2 for size in _sizes(case)), sum(_sizes(case))))
        # An op whose samples have no complex numbers may be for real ones, and need not refuse others.
        is_real = not any([case.is_complex for case in samples.accepted])
        yield check_of(f"{op.name}/dtypes", check_dtypes, smallest, target, is_real)


def _sizes(case: Case) -> list[int]:
    return [value.size for value in case.drawn_values if isinstance(value, tc.Tensor)]


def places(case: Case) -> list[int]:
    """Return the inputs of a sample whose common dtype is that of the result."""
    promoted = case.op.promoted
    values = case.drawn_values
    given = range(len(values)) if case.op.sequence and promoted == (-1,) else promoted
    return [k for k in given if k < len(values) and isinstance(v := values[k], tc.Tensor) and v.dtype.inexact]


def check_dtypes(case: Case, target: Target, is_real: bool) -> None:
    """For operands of two dtypes the results are those for operands of their common one; numbers are weak."""
    if case.parameter("dtype") is not None or case.op.name in ("astype", "to_device"):
        return
    at = places(case)
    plain = {k: np.abs(np.asarray(case.values[k].numpy(), np.float64)) for k in at}
    names: Sequence[str] = FEWER_DTYPES if at[1:] and not case.op.elementwise else DTYPES
    names = [name for name in names if not (is_real and name.startswith("complex"))]
    known = [dtypes.DTYPES[name] for name in names if _has(target, name)]
    arrays = {
        (k, dtype): tc.astype(tc.asarray(values, device=target.device, backend=target.backend), dtype)
        for k, values in plain.items()
        for dtype in known
    }

    def of_one_dtype(dtype: tc.DType, like: tuple[tc.DType, tc.DType]) -> Any:
        """Return the results for operands of one dtype, with the values that those of other dtypes have."""
        given = {}
        for n, k in enumerate(at):
            given[k] = tc.astype(arrays[k, like[min(n, 1)]], dtype)
        return _outcome(case, given)

    default = dtypes.precision(tc.get_default_dtype())
    for pair in itertools.product(known, known) if at[1:] else [(dtype, dtype) for dtype in known]:
        wanted = dtypes.common_dtype(pair)
        theirs = of_one_dtype(wanted, pair)
        if isinstance(theirs, Exception):
            continue  # not for these values, or not for this dtype
        what = f"{case.op.name} of {' and '.join(map(str, pair))}"
        given = {k: arrays[k, pair[min(n, 1)]] for n, k in enumerate(at)}
        ours = _outcome(case, given)
        expect(not isinstance(ours, Exception), f"{what} raises {ours!r}; of {wanted} alone it does not")
        for found, own in zip(ours, theirs, strict=True):
            if not wanted.inexact and found.dtype.inexact:
                expect_equal(dtypes.precision(found.dtype), default, f"the precision of {what}")
            else:
                expect_equal(found.dtype, own.dtype, f"the dtype of {what}")
        if not wanted.inexact and any(found.dtype.inexact for found in ours):
            theirs = of_one_dtype(tc.get_default_dtype(), pair)
        if not isinstance(theirs, Exception):
            _expect_same(case, ours, theirs, what)
    if at[1:]:
        _check_numbers(case, at, arrays, known)
        _check_gradients(case, at, arrays, known)


def _check_numbers(case: Case, at: list[int], arrays: dict[tuple[int, tc.DType], Any], known: list[tc.DType]) -> None:
    """A number in place of the last operand is weak, and NumPy's is as Python's."""
    *others, last = at
    if case.op.name == "setitem" or case.values[last].shape:
        return
    for dtype in known:
        for number in NUMBERS:
            kind = type(number.item() if isinstance(number, np.generic) else number)
            wanted = dtypes.common_dtype([dtype], [kind])
            given: dict[int, Any] = {k: arrays[k, dtype] for k in others}
            theirs = _outcome(case, {k: tc.astype(x, wanted) for k, x in {**given, last: tc.asarray(number)}.items()})
            if isinstance(theirs, Exception):
                continue
            ours = _outcome(case, {**given, last: number})
            what = f"{case.op.name} of {dtype} and {number!r}"
            expect(not isinstance(ours, Exception), f"{what} raises {ours!r}; of {wanted} alone it does not")
            for found, own in zip(ours, theirs, strict=True):
                if not wanted.inexact and found.dtype.inexact:
                    expect_equal(dtypes.precision(found.dtype), tc.get_default_dtype(), f"the precision of {what}")
                else:
                    expect_equal(found.dtype, own.dtype, f"the dtype of {what}")


def _check_gradients(case: Case, at: list[int], arrays: dict[tuple[int, tc.DType], Any], known: list[tc.DType]) -> None:
    """A gradient has the dtype of its input, whatever is beside it."""
    if not case.op.differentiable or case.rule_of(at[0]) in (NONDIFF, TODO):
        return
    for other in (tc.int64, tc.float64):
        if tc.float32 not in known or other not in known:
            continue
        given = {k: arrays[k, tc.float32 if n == 0 else other] for n, k in enumerate(at)}
        with tc.GradientTape() as tape:
            tape.watch(given[at[0]])
            outs = _outcome(case, given)
        if isinstance(outs, Exception) or not any(out.dtype.kind == "real floating" for out in outs):
            continue
        gradient = tape.gradient([out for out in outs if out.dtype.inexact], given[at[0]])
        if gradient is not None:
            expect_equal(gradient.dtype, tc.float32, f"the dtype of a gradient of {case.op.name} beside {other}")


def _has(target: Target, name: str) -> bool:
    try:
        target.backend.raw_dtype(name)
    except TypeError:
        return False
    return True


def _outcome(case: Case, given: Replaced) -> Any:
    try:
        with np.errstate(all="ignore"):
            outs = case.call(given)
        return [out for out in outs if isinstance(out, tc.Tensor)]
    except Exception as error:  # noqa: BLE001 - a library may refuse a dtype; what it does for others is compared
        return error


def _expect_same(case: Case, ours: Any, theirs: Any, what: str) -> None:
    for found, own in zip(ours, theirs, strict=True):
        a, b = (
            np.asarray(tc.astype(x, "complex64" if x.dtype.kind == "complex floating" else "float32").numpy())
            for x in (found, own)
        )
        tolerance = 4e-3 if "16" in (str(found.dtype)[-2:], str(own.dtype)[-2:]) else 1e-5
        finite = np.isfinite(b)
        expect(
            a.shape == b.shape
            and np.array_equal(np.isfinite(a), finite)
            and np.allclose(a[finite], b[finite], rtol=tolerance, atol=tolerance),
            f"the value of {what} is {a}, of one dtype {b}",
        )
