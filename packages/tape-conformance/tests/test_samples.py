"""Samples are drawn with NumPy, and become arrays of the backend when they are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_conformance import check_backend, checks
from tape_core.extend import NONDIFF, Draw, Sample, elementwise, op
from tape_numpy.backend import NumPyBackend


class Counting(NumPyBackend):
    """A backend that counts the arrays that it makes."""

    made = 0

    def asarray(self, *args: Any, **kwargs: Any) -> Any:
        self.made += 1
        return super().asarray(*args, **kwargs)


def test_to_list_the_checks_makes_no_array_of_the_library() -> None:
    backend = Counting()
    found = checks(backend)
    assert backend.made == 0
    next(check for check in found if check.id == "multiply/value/2x3,2x3").function()
    assert backend.made == 2


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_keys_and_devices_of_a_sample_are_those_of_the_backend() -> None:
    seen = []

    def samples(draw: Draw) -> Iterator[Sample]:
        x = draw(3)
        yield Sample(x, draw.rng.integers(0, 3, (2,))._array, x.device)

    def kernel(xp: Any, x: Any, key: Any, device: str) -> Any:
        seen.append((x, key, device))
        return x[key]

    @op(x=NONDIFF, reason="a test", kernel=kernel, samples=samples)
    def picked(x: Any, /, key: Any, device: str) -> Any:
        """An op."""

    class Array(np.ndarray[Any, Any]):
        pass

    class Elsewhere(NumPyBackend):
        def device(self, array: Any) -> str:
            return "cpu:0"

        @property
        def default_device(self) -> str:
            return "cpu:0"

        def asarray(self, *args: Any, **kwargs: Any) -> Any:
            return super().asarray(*args, **kwargs).view(Array)

    check_backend(Elsewhere(), only="picked/keywords/*")
    assert seen
    assert all(type(x) is type(key) is Array and device == "cpu:0" for x, key, device in seen)


@pytest.mark.usefixtures("_ops_are_forgotten")
def test_samples_that_need_the_backend_are_drawn_on_it() -> None:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(plus_one(draw(2)))

    def keeping_samples(draw: Draw) -> Iterator[Sample]:
        weight = draw(3)
        yield Sample(draw(3)).observe(lambda xp, out: out * weight)

    def only_here(xp: Any, x: Any) -> Any:
        raise TypeError("there is no kernel but the backend's")

    @elementwise(x=1, kernel=only_here, samples=samples)
    def plus_one(x: Any, /) -> Any:
        """An op."""

    @elementwise(x=2, kernel=lambda xp, x: 2 * x, samples=keeping_samples)
    def twice(x: Any, /) -> Any:
        """An op."""

    backend = NumPyBackend()
    backend.kernels["plus_one"] = lambda x: x + 1
    report = check_backend(backend, only=["plus_one/samples", "plus_one/vjp/*", "twice/vjp/*", "twice/second/*"])
    assert report.ok, str(report)
    assert [result.id for result in report.results] == [
        "plus_one/samples",
        "plus_one/vjp/x/2",
        "twice/vjp/x/3",
        "twice/second/3",
    ]
    assert tc.get_backend() is not backend
