"""Compiled methods, and copies of compiled functions."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from tape_core import function


def test_methods_are_compiled_for_each_instance() -> None:
    class Line:
        def __init__(self, slope: float) -> None:
            self.slope = tc.Variable(slope)

        @function
        def __call__(self, x: Any) -> Any:
            return self.slope * x

    one, two = Line(1.0), Line(2.0)
    for _ in range(2):
        assert (one(tc.asarray(3.0)).item(), two(tc.asarray(3.0)).item()) == (3.0, 6.0)


def test_methods_make_variables_in_the_first_call_of_each_instance() -> None:
    class Lazy:
        w: Any = None

        @function
        def step(self, x: Any) -> Any:
            if self.w is None:
                self.w = tc.Variable(tc.ones(3))
            return self.w * x

    for lazy in (Lazy(), Lazy()):
        assert [lazy.step(tc.asarray(2.0)).tolist() for _ in range(3)] == [[2.0] * 3] * 3
        assert lazy.step.traces == 1


def test_an_instance_goes_with_its_traces() -> None:
    class Line:
        @function
        def step(self, x: Any) -> Any:
            return x * 2

    line = Line()
    line.step(tc.ones(2))
    alive = weakref.ref(line)
    del line
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda line: pickle.loads(pickle.dumps(line))])
def test_copies_of_functions_and_instances_are_traced_anew(copied: Callable[[Any], Any]) -> None:
    line = Steep(2.0)
    assert line.step(tc.ones(2)).tolist() == [2.0, 2.0]
    another = copied(line)
    another.slope = 3.0
    assert another.step(tc.ones(2)).tolist() == [3.0, 3.0]
    assert (line.step.traces, another.step.traces) == (1, 1)
    assert copied(doubled)(tc.ones(2)).tolist() == [2.0, 2.0]
    assert copied(tripled)(tc.ones(2)).tolist() == [3.0, 3.0]


class Steep:
    def __init__(self, slope: float) -> None:
        self.slope = slope

    @function
    def step(self, x: Any) -> Any:
        return self.slope * x


def _doubled(x: Any) -> Any:
    return x * 2


doubled = function(_doubled)


@function
def tripled(x: Any) -> Any:
    return x * 3


def test_a_default_is_the_same_as_its_value() -> None:
    @function(static_argnames="n")
    def f(x: Any, n: int = 2) -> Any:
        return x * n

    assert [f(tc.ones(1)).item(), f(tc.ones(1), 2).item(), f(tc.ones(1), n=2).item()] == [2.0] * 3
    assert f.traces == 1
