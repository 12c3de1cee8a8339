"""Arguments that are donated to compiled functions: their memory serves results, and they hold nothing afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc

Params = dict[str, Any]
N = 100


def updated(params: Params, x: Any) -> Params:
    gradients = tc.grad(lambda p: tc.sum((x @ p["w"] + p["b"]) ** 2))(params)
    return {name: value - 0.1 * gradients[name] for name, value in params.items()}


def parameters() -> Params:
    rng = tc.default_rng(0)
    return {"w": rng.normal((N, N)), "b": tc.zeros(N)}


def test_results_are_those_of_eager_calls_and_have_the_memory() -> None:
    step = tc.function(donate="params")(updated)
    expected, x = parameters(), tc.ones((3, N))
    params = step(parameters(), x)  # traced: in memory of its own
    expected = updated(expected, x)
    for _ in range(3):
        place = id(params["w"]._array)
        params = step(params, x)
        expected = updated(expected, x)
        if params["w"].backend.array_class is not None:  # where it can be told that nobody else has it
            assert id(params["w"]._array) == place
        assert x.shape == (3, N)  # it was not donated
    for name, value in params.items():
        assert value.numpy().tobytes() == expected[name].numpy().tobytes()


USES: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: x + 1,
    "the other way round": lambda x: 2.0 * x,
    "with another": lambda x: tc.ones((N, N)) - x,
    "an op": tc.sum,
    "several": lambda x: tc.concat([tc.ones((N, N)), x]),
    "a shape": lambda x: x.shape,
    "a dtype": lambda x: x.dtype,
    "a device": lambda x: x.device,
    "indexing": lambda x: x[0],
    "numpy": lambda x: x.numpy(),
    "numpy's function": np.asarray,
    "printing": str,
    "watching": lambda x: tc.GradientTape().watch(x),
    "asarray": lambda x: tc.asarray(x, dtype=tc.float64),
    "a Variable": tc.Variable,
    "another call": lambda x: tc.function(lambda x: x + 1)(x),
}


@pytest.mark.parametrize("use", USES)
def test_any_use_of_a_donated_tensor_is_an_error_that_names_the_function(use: str) -> None:
    @tc.function(donate=("x",))
    def double(x: Any) -> Any:
        return x * 2

    for _ in range(2):  # traced, and compiled
        x = tc.ones((N, N))
        double(x)
        with pytest.raises(RuntimeError, match=r"of shape \(100, 100\), was donated to double: use what that returned"):
            USES[use](x)


def test_what_somebody_else_holds_is_left_alone() -> None:
    @tc.function(donate="x")
    def double(x: Any) -> Any:
        return x * 2

    raw = np.ones((N, N), np.float32)
    backend = tc.get_backend()
    for _ in range(2):
        assert double(raw)[0, 0].item() == 2
    assert raw[0, 0] == 1
    raw = tc.asarray(raw, backend=backend, copy=True).array
    x = tc.asarray(raw, backend=backend)
    y = tc.stop_gradient(x)  # the same array
    with tc.GradientTape() as tape:
        tape.watch(y)
        z = y * y
    double(x)
    assert tc.asarray(raw)[0, 0].item() == y[0, 0].item() == 1
    assert tape.gradient(z, y)[0, 0].item() == 2
    a = tc.ones((N, N))
    first = a[0]
    double(a)
    assert first.numpy().tolist() == [1] * N


def test_a_result_may_be_the_donated_value_itself() -> None:
    @tc.function(donate="x")
    def same(x: Any, y: Any) -> Any:
        return x, x + y

    for _ in range(2):
        x, total = same(tc.ones((N, N)), tc.ones((N, N)))
        assert (x[0, 0].item(), total[0, 0].item()) == (1, 2)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="donate has 'y'; the parameters of double are x"):

        @tc.function(donate="y")
        def double(x: Any) -> Any:
            return x * 2

    with pytest.raises(ValueError, match="'x' is in static_argnames and in donate"):
        tc.function(static_argnames="x", donate="x")(lambda x: x)

    @tc.function(donate="x")
    def added(x: Any, y: Any) -> Any:
        return x + y

    x = tc.ones((N, N))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"added is compiled, and overwrites an argument .* given to it twice"):
            added(x, x)
        assert x[0, 0].item() == 1
        added(tc.ones((N, N)), x)


def test_variables_and_what_runs_as_it_is_stay() -> None:
    @tc.function(donate="x")
    def double(x: Any) -> Any:
        return x * 2

    w, x = tc.Variable(tc.ones((N, N))), tc.ones((N, N))
    for _ in range(2):
        assert double(w)[0, 0].item() == 2
        assert w[0, 0].item() == 1
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = double(x)
    assert tape.gradient(y, x)[0, 0].item() == 2
