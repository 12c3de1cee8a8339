"""Names that mean something else by the time that a function is run again for its derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_core.transforms.snapshots import snapshot


def branched(x: Any) -> Any:
    y = x * 2.0
    y = tc.cond(y > 0, lambda: y * x, lambda: y)
    return y * x


def helped(x: Any) -> Any:
    y = x * 2.0

    def inner() -> Any:
        return y * x

    y = tc.cond(x > 0, lambda: inner(), lambda: y)
    return y * x


def looped(x: Any) -> Any:
    y = x * 2.0
    y = tc.while_loop(lambda c: c < 10.0, lambda c: c * y, x)  # 1.5, 4.5, 13.5
    return y


def scanned(x: Any) -> Any:
    y = x * 2.0
    y, _ = tc.scan(lambda c, _: (c * y, None), x, length=2)
    return y


@pytest.mark.parametrize(("function", "slope"), [(branched, 13.5), (helped, 13.5), (looped, 27.0), (scanned, 27.0)])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_name_that_is_bound_anew_does_not_change_the_derivative(
    function: Callable[[Any], Any], slope: float, compiled: bool
) -> None:
    derivative = tc.grad(function)
    assert (tc.function(derivative) if compiled else derivative)(tc.asarray(1.5)).item() == slope


def test_what_a_function_assigns_stays_shared() -> None:
    n = 0

    def count() -> None:
        nonlocal n
        n += 1

    def run() -> int:
        count()
        return n

    assert snapshot(run)() == 1
    n = 10
    assert snapshot(run)() == 11
    assert n == 11


def test_functions_that_call_themselves_and_names_to_come() -> None:
    def power(k: int) -> int:
        return 1 if k == 0 else base * power(k - 1)

    early = snapshot(power)
    base = 2
    assert early(3) == 8
    late = snapshot(power)
    base = 5
    assert late(3) == 8
    assert power(3) == 125
