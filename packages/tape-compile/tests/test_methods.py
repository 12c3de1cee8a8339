"""Compiled methods, and copies of compiled functions."""

from __future__ import annotations

import copy
import gc
import inspect
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


class Trained:
    def __init__(self) -> None:
        self.w = tc.Variable([2.0, 3.0])

    @function
    def loss(self, x: Any) -> Any:
        return tc.sum(self.w * self.w * x)

    @function(static_argnames="factor")
    def scaled(self, x: Any, factor: float = 2.0) -> Any:
        return self.w * x * factor


def _used(trained: Trained, how: str) -> None:
    x = tc.ones(2)
    for _ in range(3):
        if how == "called":
            trained.loss(x)
        elif how == "in a tape":
            with tc.GradientTape() as tape:
                loss = trained.loss(x)
            assert tape.gradient(loss, trained.w).tolist() == [4.0, 6.0]
        elif how == "static":
            trained.scaled(x, factor=3.0)


@pytest.mark.parametrize("how", ["never", "called", "in a tape", "static"])
def test_an_instance_goes_at_once_without_the_garbage_collector(how: str) -> None:
    gc.collect()
    gc.disable()
    try:
        trained = Trained()
        _used(trained, how)
        assert trained.loss.traces == {"called": 1, "in a tape": 1}.get(how, 0)
        alive = weakref.ref(trained), weakref.ref(trained.w)
        del trained
        assert [part() for part in alive] == [None, None]
    finally:
        gc.enable()


def test_a_method_keeps_its_instance_and_its_traces() -> None:
    assert Trained().loss(tc.ones(2)).item() == 13.0
    loss = Trained().loss
    gc.collect()
    for _ in range(3):
        assert loss(tc.ones(2)).item() == 13.0
        with tc.GradientTape() as tape:
            value = loss(tc.ones(2))
        assert tape.gradient(value, loss.__self__.w).tolist() == [4.0, 6.0]
    assert loss.traces == 2
    trained: Any = loss.__self__
    assert trained.loss == loss
    assert trained.loss != Trained().loss
    assert trained.loss != trained.scaled
    assert len({trained.loss, loss, trained.scaled}) == 2
    assert loss.__name__ == "loss"
    assert str(inspect.signature(trained.scaled)) == "(x: 'Any', factor: 'float' = 2.0) -> 'Any'"
    assert trained.scaled.python(tc.ones(2)).tolist() == [4.0, 6.0]
    assert "def loss" in loss.text()


def test_a_compiled_method_as_an_argument_is_one_and_the_same() -> None:
    trained, calls = Trained(), []

    @function
    def f(method: Any, x: Any) -> Any:
        calls.append(1)
        return method(x) * 2

    for _ in range(3):
        assert f(trained.loss, tc.ones(2)).item() == 26.0
    assert len(calls) == f.traces == 1
    alive = weakref.ref(trained)
    del trained
    gc.collect()
    assert alive() is None
    assert f.traces == 0


def test_a_shallow_copy_with_the_id_of_another_has_its_own() -> None:
    first = Steep(1.0)
    for slope in range(2, 20):
        another = copy.copy(first)
        another.slope = float(slope)
        assert another.step(tc.ones(1)).item() == slope


def test_copies_and_pickles_of_a_method() -> None:
    line = Steep(2.0)
    assert line.step(tc.ones(1)).item() == 2.0
    for method in (copy.deepcopy(line.step), pickle.loads(pickle.dumps(line.step))):
        assert method.__self__ is not line
        assert method(tc.ones(1)).item() == 2.0


def test_class_methods_and_static_methods() -> None:
    traced = []

    class Scaled:
        factor = 2.0

        @classmethod
        @function
        def by_class(cls, x: Any) -> Any:
            traced.append(cls)
            return tc.sum(x * cls.factor)

        @staticmethod
        @function
        def squared(x: Any) -> Any:
            return tc.sum(x * x)

    class Tripled(Scaled):
        factor = 3.0

    x = tc.ones(2)
    for _ in range(3):
        assert (Scaled.by_class(x).item(), Tripled.by_class(x).item(), Tripled().by_class(x).item()) == (4.0, 6.0, 6.0)
        assert tc.grad(Tripled.by_class)(x).tolist() == [3.0, 3.0]
        assert Scaled().squared(x).item() == 2.0
    assert traced.count(Scaled) == 1
    gone = weakref.ref(Tripled)
    traced.clear()
    del Tripled
    gc.collect()
    assert gone() is None
