"""Proofs of checks: what is surely between bounds is not looked at in each run, and all else is."""

from __future__ import annotations

import numpy as np
import pytest
import tape_core as tc
from support import names, traced
from tape_compile.passes import PASSES, prove_checks

X = [[0.5, -1.0], [2.0, 0.25], [1.5, 3.0], [-2.0, 1.0]]


def checks_left(function: object, *args: tc.Tensor) -> int:
    """Return how many checks of ids the pass leaves."""
    program = traced(function, *args)
    assert names(program).count("_check_ids") >= 1
    return names(PASSES["prove_checks"].transform(program)).count("_check_ids")


PROVED = {
    "argmin": lambda x: tc.argmin(x, axis=1),
    "argmax": lambda x: tc.argmax(x, axis=1),
    "argsort": lambda x: tc.argsort(x[:, 0]) // 2,
    "top_k": lambda x: tc.top_k(x, 1).indices[:, 0],
    "clip": lambda x: tc.clip(tc.astype(x[:, 0], "int64"), 0, 1),
    "remainder": lambda x: tc.astype(x[:, 0], "int64") % 2,
    "comparison": lambda x: tc.astype(x[:, 0] > 0, "int64"),
    "searchsorted": lambda x: tc.minimum(tc.searchsorted(tc.sort(x[:, 0]), x[:, 1]), 1),
    "constant": lambda x: tc.asarray([0, 1, 1, 0], backend="numpy"),
    "arange": lambda x: tc.arange(4, backend="numpy") // 2,
    "where": lambda x: tc.where(x[:, 0] > 0, 1, tc.argmin(x, axis=1)),
    "arithmetic": lambda x: 1 - tc.abs(tc.argmin(x, axis=1) * -1),
    "views": lambda x: tc.reshape(tc.stack([tc.argmin(x, axis=1), tc.argmax(x, axis=1)])[:, ::2], (-1,)),
}
"""Ids from 0 to 1."""


@pytest.mark.parametrize("case", PROVED)
def test_ids_that_are_surely_in_range_are_not_looked_at(case: str) -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.segment_sum(x, PROVED[case](x), 2)

    x = tc.asarray(X, backend="numpy")
    assert checks_left(f, x) == 0
    np.testing.assert_array_equal(tc.function(f)(x).numpy(), f(x).numpy())


@pytest.mark.parametrize("case", PROVED)
def test_ids_that_may_be_one_less_are_looked_at(case: str) -> None:
    def f(x: tc.Tensor) -> tc.Tensor:
        return tc.segment_sum(x, PROVED[case](x) - tc.astype(x[:, 0] > 100.0, "int64"), 2)

    assert checks_left(f, tc.asarray(X, backend="numpy")) == 1


UNPROVED = {
    "argument": lambda x, n: n,
    "negative": lambda x, n: tc.argmin(x, axis=1) - 1,
    "divisor that may be negative": lambda x, n: tc.argmin(x, axis=1) % n,
    "overflow": lambda x, n: tc.astype(tc.astype(tc.argmin(x, axis=1), "int8") * 64 * 4, "int64"),
    "conversion of floats": lambda x, n: tc.astype(x[:, 0], "int64"),
    "clipped on one side": lambda x, n: tc.clip(n, 0, None),
    "clipped between values": lambda x, n: tc.clip(tc.argmin(x, axis=1), n, n),
}


@pytest.mark.parametrize("case", UNPROVED)
def test_ids_that_may_be_out_of_range_are_looked_at(case: str) -> None:
    def f(x: tc.Tensor, n: tc.Tensor) -> tc.Tensor:
        return tc.segment_sum(x, UNPROVED[case](x, n), 2)

    x, n = tc.asarray([[1.0, 0.0]] * 4, backend="numpy"), tc.ones(4, dtype="int64", backend="numpy")
    assert checks_left(f, x, n) == 1


def test_ids_are_looked_at_in_each_call() -> None:
    f = tc.function(lambda x, n: tc.segment_sum(x, n, 2))
    x, n = tc.ones(3, backend="numpy"), tc.asarray([0, 1, 1], backend="numpy")
    assert f(x, n).tolist() == [1.0, 2.0]
    for wrong in (n + 1, n - 1):
        with pytest.raises(ValueError, match=r"segment_sum: segment_ids must be in \[0, 2\)"):
            f(x, wrong)
    assert f(x, 1 - n).tolist() == [2.0, 1.0]


def test_what_has_been_looked_at_is_known() -> None:
    def f(x: tc.Tensor, n: tc.Tensor) -> object:
        return tc.segment_sum(x, n, 2), tc.segment_max(x, n, 3), tc.segment_sum(x, 1 - n, 2)

    x, n = tc.ones(3, backend="numpy"), tc.asarray([0, 1, 1], backend="numpy")
    assert checks_left(f, x, n) == 1
    compiled = tc.function(f)
    compiled(x, n)
    with pytest.raises(ValueError, match=r"segment_sum: segment_ids must be in \[0, 2\), got 1 to 2"):
        compiled(x, n + 1)


def test_narrow_integers_are_in_range_of_many_segments() -> None:
    def f(x: tc.Tensor, n: tc.Tensor) -> tc.Tensor:
        return tc.segment_sum(x, n, 256)

    assert checks_left(f, tc.ones(3, backend="numpy"), tc.ones(3, dtype="uint8", backend="numpy")) == 0
    assert checks_left(f, tc.ones(3, backend="numpy"), tc.ones(3, dtype="int8", backend="numpy")) == 1


def test_intervals_hold_for_random_programs_of_integers() -> None:
    rng = np.random.default_rng(0)
    binary = [
        tc.add, tc.subtract, tc.multiply, tc.minimum, tc.maximum, tc.floor_divide, tc.remainder,
        lambda a, b: tc.where(a < b, a, b), lambda a, b: tc.concat([a, b])[::2],
    ]  # fmt: skip
    unary = [
        tc.abs, tc.negative, lambda a: tc.clip(a, -3, 5), lambda a: tc.clip(a, 2), lambda a: tc.astype(a, "int8"),
        lambda a: tc.astype(a, "uint8"), lambda a: tc.astype(a > 1, "int16"), tc.argsort, lambda a: tc.flip(a),
    ]  # fmt: skip
    followed = 0
    for _ in range(60):
        steps = [(int(rng.integers(2)), int(rng.integers(99)), int(rng.integers(99)), int(rng.integers(99)))
                 for _ in range(6)]  # fmt: skip

        def f(x: tc.Tensor, steps: object = steps) -> object:
            values = [x, x % 7, tc.arange(6, backend="numpy") - 2, tc.argsort(x), tc.astype(x, "int8")]
            for is_binary, at, i, j in steps:  # type: ignore[attr-defined]
                a, b = values[i % len(values)], values[j % len(values)]
                if is_binary:
                    step = binary[at % len(binary)]
                    # A divisor of 0 is an error, or a warning and another number.
                    b = tc.maximum(tc.abs(b), 1) if step in (tc.floor_divide, tc.remainder) else b
                    values.append(step(a, b))
                else:
                    values.append(unary[at % len(unary)](a))
            return values

        x = tc.asarray(rng.integers(-300, 300, 6), backend="numpy")
        with np.errstate(all="ignore"):
            program = traced(f, x)
            ranges = prove_checks._Ranges(program)  # the proofs themselves: a wrong one is seldom seen in a check
            for instruction in program.instructions:
                ranges.follow(instruction)
            for _ in range(4):
                found = tc.function(f)(tc.asarray(rng.integers(-300, 300, 6), backend="numpy"))
                for number, value in zip(program.outputs, found, strict=True):  # type: ignore[call-overload]
                    interval = ranges._known.get(number)
                    if interval is not None:
                        followed += 1
                        assert interval.least <= int(tc.min(value)) <= int(tc.max(value)) <= interval.greatest
    assert followed > 300
