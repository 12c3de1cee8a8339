"""Tensors in the places where Python and other libraries expect numbers and arrays."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import STRICT


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("values", [1.5, [1.0, 2.0], [[1 + 2j]], [True, False], []])
def test_a_tensor_is_pickled_by_value(values: Any, protocol: int) -> None:
    x = tc.asarray(values)
    found = pickle.loads(pickle.dumps(x, protocol))
    assert type(found) is tc.Tensor
    assert found.backend is x.backend
    assert (found.tolist(), found.shape, found.dtype) == (x.tolist(), x.shape, x.dtype)


def test_a_pickled_tensor_is_a_constant() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x * pickle.loads(pickle.dumps(x)) * copy.copy(x)
    assert tape.gradient(y, x).item() == 8.0


def test_a_variable_is_pickled_with_its_name() -> None:
    v = tc.Variable([1.0, 2.0], name="w", trainable=False)
    with tc.GradientTape() as tape:
        found = pickle.loads(pickle.dumps(v))
    assert type(found) is tc.Variable
    assert (found.name, found.trainable, found.tolist()) == ("w", False, [1.0, 2.0])
    assert tape.watched_variables() == ()
    found.assign_add([1.0, 1.0])
    assert v.tolist() == [1.0, 2.0]


def test_truth_of_many_elements_is_ambiguous() -> None:
    for backend in (None, STRICT):
        with pytest.raises(ValueError, match=r"shape \(2,\) is ambiguous; use tape_core.any or tape_core.all"):
            max(tc.ones(2, backend=backend), tc.ones(2, backend=backend))


def test_builtins_take_tensors() -> None:
    x = tc.Variable([3.0, 1.0])
    with tc.GradientTape() as tape:
        y = sum([x, x]) + max(x) + min(x)  # type: ignore[operator]
    assert tape.gradient(y, x).tolist() == [4.0, 4.0]
    assert (float(max(x)), len(x), f"{min(x):.2f}", [v.item() for v in sorted(x)]) == (3.0, 2, "1.00", [1.0, 3.0])


@pytest.mark.each_backend
def test_what_python_asks_of_a_container_and_of_a_number() -> None:
    for make in (tc.asarray, tc.Variable):
        x = make([[1.0, 2.0], [3.0, 4.0]])
        assert 3.0 in x
        assert 5.0 not in x
        assert 2.5 in make(2.5)
        assert math.trunc(make(-2.5)) == -2
        assert {x: 1}[x] == 1
        for convert in (float, int):
            with pytest.raises(TypeError, match="of a complex tensor would drop its imaginary part"):
                convert(make(1 + 2j))


@pytest.mark.parametrize("backend", [None, STRICT])
def test_full_and_linspace_of_tensors_have_gradients(backend: Any) -> None:
    a, b = (tc.asarray(v, backend=backend) for v in (1.0, 3.0))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch([a, b])
        full = tc.full((2, 3), a)
        like = tc.full_like(full, b, dtype="float64")
        line = tc.linspace(a, b, 5)
        half = tc.linspace(0.0, b, 3, endpoint=False)
    assert full.tolist() == [[1.0] * 3] * 2
    assert (like.dtype, like.tolist()) == (tc.float64, [[3.0] * 3] * 2)
    assert (line.tolist(), half.tolist()) == ([1.0, 1.5, 2.0, 2.5, 3.0], [0.0, 1.0, 2.0])
    assert tape.gradient(full, a).item() == 6.0
    assert tape.gradient(like, b).item() == 6.0
    assert [g.item() for g in tape.gradient(line, [a, b])] == [2.5, 2.5]
    assert tape.gradient(half, b).item() == 1.0
    with pytest.raises(ValueError, match="fill_value must have no dimensions"):
        tc.full((2, 2), tc.ones(2, backend=backend))


def test_what_is_made_beside_an_array_finds_its_device() -> None:
    """A device that is named by `x.device`, where the library's own is no string."""
    x = tc.ones((2, 2), backend=STRICT)
    assert tc.tril(x).tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert tc.zeros(1, device=x.device, backend=STRICT).device == x.device


def test_an_array_made_of_a_recorded_value_warns() -> None:
    """SciPy and others call numpy.asarray on their way: the gradient would be cut, or wrong, in silence."""
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = x * 2
        with pytest.warns(UserWarning, match=r"of shape \(2,\) that a tape is recording: no gradient comes back"):
            np.asarray(y)
        y.numpy()
        np.asarray(tc.stop_gradient(y))
        np.asarray(tc.asarray([3.0]) * 2)
        with tape.stop_recording():
            np.asarray(y)
    np.asarray(y)


class StandsFor:
    """Another library's wrapper of a Tensor."""

    def __init__(self, tensor: tc.Tensor) -> None:
        self.tensor = tensor

    def __tape_tensor__(self) -> tc.Tensor:
        return self.tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise AssertionError("this would cut the path")


def test_an_object_that_stands_for_a_tensor() -> None:
    x = tc.asarray([1.0, 2.0])
    wrapped = StandsFor(x)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.multiply(tc.sin(wrapped), tc.asarray(wrapped)) + tc.asarray([wrapped, wrapped])[0])
    expected = np.cos([1.0, 2.0]) * [1.0, 2.0] + np.sin([1.0, 2.0]) + 1
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), expected, rtol=1e-6)
    assert tc.asarray(wrapped) is x
    assert tc.asarray(wrapped, dtype=tc.float64).dtype is tc.float64
