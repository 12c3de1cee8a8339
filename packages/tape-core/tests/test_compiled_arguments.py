"""Compiled functions that change what they are given, or what is around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tape_core as tc
from tape_core import function
from tape_core.backends.traced import TracingError


def moved(x: Any, y: Any) -> Any:
    x += y
    x[0] = 7.0
    return x * y


def test_an_argument_that_is_assigned_to_is_the_callers() -> None:
    compiled = function(moved)
    for _ in range(3):
        x, y = tc.ones(3), tc.asarray([1.0, 2.0, 3.0])
        expected_x = tc.ones(3)
        expected = moved(expected_x, y)
        assert compiled(x, y).tolist() == expected.tolist() == [7.0, 6.0, 12.0]
        assert x.tolist() == expected_x.tolist() == [7.0, 3.0, 4.0]
        assert y.tolist() == [1.0, 2.0, 3.0]


def test_it_may_not_be_given_twice() -> None:
    compiled = function(moved)
    x = tc.ones(3)
    for _ in range(2):
        with pytest.raises(ValueError, match="given to it twice: give a copy"):
            compiled(x, x)
        assert x.tolist() == [1.0, 1.0, 1.0]
        compiled(tc.ones(3), x)


def test_the_exported_file_returns_the_new_value(tmp_path: Any) -> None:
    import runpy

    compiled = function(moved)
    compiled(tc.ones(3), tc.ones(3))
    compiled.export(tmp_path / "moved.py")
    source = (tmp_path / "moved.py").read_text()
    assert "a tuple: result 0, the new value of argument 0." in source
    x, y = tc.ones(3), tc.asarray([1.0, 2.0, 3.0])
    result, new = runpy.run_path(str(tmp_path / "moved.py"))["moved"](x.array, y.array)
    assert compiled(x, y).tolist() == result.tolist()
    assert x.tolist() == new.tolist()


def test_a_tensor_from_around_it_is_not_changed() -> None:
    total = tc.zeros(2)

    @function
    def add(x: Any) -> Any:
        nonlocal total
        total += x
        return total

    @function
    def put(x: Any) -> Any:
        total[0] = x
        return total

    @function
    def count() -> Any:
        nonlocal total
        total += 1
        return total

    for call in (lambda: add(tc.ones(2)), lambda: put(tc.asarray(3.0)), count):
        with pytest.raises(TracingError, match="changes a Tensor from around a compiled function"):
            call()
    assert total.tolist() == [0.0, 0.0]


def test_tensors_made_inside_are_written_to() -> None:
    @function
    def squares(x: Any) -> Any:
        out = tc.zeros(3)
        for k in range(3):
            out[k] = x[k] ** 2
        out += 1
        return out

    for _ in range(2):
        assert squares(tc.asarray([1.0, 2.0, 3.0])).tolist() == [2.0, 5.0, 10.0]


def test_generators_are_refused() -> None:
    with pytest.raises(TypeError, match="steps yields or awaits"):

        @function
        def steps(x: Any) -> Iterator[Any]:
            yield x
