"""Who has given an array to a compiled function may write to it after the call, as to the buffer of a data loader."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tape_core as tc

COMPILERS = ["python", pytest.param("xla", marks=pytest.mark.skipif(find_spec("tape_jax") is None, reason="needs JAX"))]
each_library = pytest.mark.parametrize(
    "library", ["numpy", pytest.param("torch", marks=pytest.mark.skipif(not find_spec("torch"), reason="needs torch"))]
)
each_compiler = pytest.mark.parametrize("compiler", COMPILERS)

MAKE_NEW: dict[str, Callable[[Any], Any]] = {
    "x * 1": lambda x: x * 1.0,
    "x / 1": lambda x: x / 1.0,
    "x ** 1": lambda x: x**1,
    "x - 0": lambda x: x - 0.0,
    "-(-x)": lambda x: -tc.negative(x),
    "twice": lambda x: (x * 1.0) * 1.0,
    "a view of a copy": lambda x: tc.matrix_transpose(x * 1.0),
    "a copy": lambda x: tc.asarray(x, copy=True),
    "a copy of a view": lambda x: tc.asarray(tc.asarray(x)[...], copy=True),
    "in a branch": lambda x: tc.cond(tc.sum(x) > 0, lambda: x * 2.0, lambda: x * 1.0),
}

ITSELF: dict[str, Callable[[Any], Any]] = {
    "the argument": lambda x: x,
    "a view": lambda x: tc.squeeze(tc.expand_dims(x, axis=0), axis=0),
    "a view of a view": lambda x: tc.matrix_transpose(tc.matrix_transpose(x)),
}


def buffer(library: str) -> Any:
    values = -np.arange(4.0).reshape(2, 2)
    if library == "numpy":
        return values
    import torch

    return torch.tensor(values)


@each_compiler
@each_library
@pytest.mark.parametrize("name", MAKE_NEW)
def test_results_that_are_new_in_eager_code_stay_as_they_are(name: str, library: str, compiler: str) -> None:
    f = tc.function(MAKE_NEW[name], compile=compiler)
    for _ in range(3):
        x = buffer(library)
        found = f(x)
        expected = found.tolist()
        x[...] = 7.0
        assert found.tolist() == expected


@each_compiler
@each_library
@pytest.mark.parametrize(
    "name",
    ["the argument", "a view", "a view of a view", "x * 1", "a copy", "by way of another", "in a branch", "in a loop"],
)
def test_variables_keep_the_values_that_were_assigned(name: str, library: str, compiler: str) -> None:
    v, w = (tc.Variable(np.zeros((2, 2)), backend=library) for _ in range(2))

    @tc.function(compile=compiler)
    def step(x: Any) -> Any:
        if name == "by way of another":
            w.assign(x)
            v.assign(w)
        elif name == "in a branch":
            tc.cond(tc.sum(x) < 0, lambda: [v.assign(x), None][1], lambda: None)
        elif name == "in a loop":
            tc.scan(lambda c, _: ([v.assign(x), c][1], None), tc.zeros(1, backend=library), length=2)
        else:
            v.assign({**MAKE_NEW, **ITSELF}[name](x))
        return v + 0.0, tc.stop_gradient(v)

    for k in range(3):
        x = buffer(library)
        x *= k + 1
        found = step(x)
        expected = [tensor.tolist() for tensor in (v, *found)]
        x[...] = 7.0
        assert [tensor.tolist() for tensor in (v, *found)] == expected
        assert v.tolist() == (-np.arange(4.0) * (k + 1)).reshape(2, 2).tolist()


@each_compiler
def test_a_donated_argument_is_assigned_without_a_copy(compiler: str) -> None:
    v = tc.Variable(np.zeros(3), backend="numpy")

    @tc.function(compile=compiler, donate=["x"])
    def keep(x: Any) -> None:
        v.assign(x)

    for _ in range(3):
        array = np.arange(3.0)
        keep(tc.asarray(array))
        assert v._array is array
