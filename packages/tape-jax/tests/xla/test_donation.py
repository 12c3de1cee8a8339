"""Arguments and Variables that are donated to programs of XLA: their memory serves results, unless somebody has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_core.support import COUNTS_REFERENCES
from tape_jax.xla import segment


@tc.function(compile="xla", donate="params")
def update(params: dict[str, tc.Tensor], x: tc.Tensor) -> dict[str, tc.Tensor]:
    gradients = tc.grad(lambda p: tc.sum((x @ p["w"] + p["b"]) ** 2))(params)
    return {name: value - 0.01 * gradients[name] for name, value in params.items()}


def parameters() -> dict[str, tc.Tensor]:
    return {"w": tc.asarray(np.full((64, 64), 0.5), backend="jax"), "b": tc.zeros(64, backend="jax") + 1.0}


def memory(tensor: tc.Tensor) -> int:
    place: int = tensor.array.unsafe_buffer_pointer()
    return place


@pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
def test_a_result_has_the_memory_of_what_was_donated() -> None:
    x = tc.ones((3, 64), backend="jax")
    params, expected = update(parameters(), x), update.python(parameters(), x)
    for _ in range(3):
        place = memory(params["w"])
        params, expected = update(params, x), update.python(expected, x)
        assert memory(params["w"]) == place
        np.testing.assert_allclose(params["w"].numpy(), expected["w"].numpy(), rtol=1e-4)
    assert x.numpy().sum() == 192  # it was not donated


def test_what_somebody_else_has_is_not_overwritten() -> None:
    x = tc.ones((3, 64), backend="jax")
    params = update(parameters(), x)
    for keep in (
        lambda p: p["w"].array,  # the array
        lambda p: tc.asarray(p["w"].array),  # another Tensor
        lambda p: p["w"].numpy(),  # a view of its memory
        lambda p: p["w"] * 1.0,  # a copy
    ):
        kept = keep(params)
        before = np.array(kept)
        params = update(params, x)
        np.testing.assert_array_equal(np.asarray(kept), before)


def test_a_tape_has_what_it_recorded() -> None:
    x, v = tc.ones((3, 64), backend="jax"), tc.Variable(tc.asarray(2.0, backend="jax"))
    params = update(parameters(), x)
    expected = float(tc.sum(params["w"]))
    with tc.GradientTape() as tape:
        product = tc.sum(v * params["w"])
    update(params, x)
    gradient = tape.gradient(product, v)
    assert gradient is not None
    np.testing.assert_allclose(float(gradient), expected, rtol=1e-5)


def test_nothing_is_overwritten_where_references_do_not_tell_who_else_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "COUNTS_REFERENCES", False)  # as from Python 3.14 on
    step = tc.function(update.python, compile="xla", donate="params")
    x = tc.ones((3, 64), backend="jax")
    params = step(parameters(), x)
    for _ in range(2):
        place = memory(params["w"])
        params = step(params, x)
        assert memory(params["w"]) != place


counted = pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")


class Trained:
    """A network with Adam, whose step is compiled."""

    def __init__(self, **options: Any) -> None:
        self.model = nn.Sequential([nn.Dense(96, activation="tanh"), nn.Dropout(0.25), nn.Dense(96)])
        self.model.build((None, 96))
        values = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32) * 0.1
        for variable in self.model.variables:
            variable.assign(tc.asarray(values if variable.shape == (96, 96) else values[0], backend="jax"))
        self.optimizer = nn.Adam(0.01)
        self.step = tc.function(self.python, compile="xla", **options)
        self.x = tc.asarray(values[:4], backend="jax")

    def python(self, x: tc.Tensor) -> tc.Tensor:
        with tc.GradientTape() as tape:
            loss = tc.mean((self.model(x, training=True) - x) ** 2)
        self.optimizer.apply_gradients(tape.gradient(loss, self.model), self.model)
        return loss


@pytest.fixture
def on_jax() -> Iterator[None]:
    with tc.use_backend("jax"):
        yield


@counted
def test_new_values_of_variables_have_the_memory_of_the_old(on_jax: None) -> None:
    found = []
    for options in ({}, {"donate_variables": True}):
        tc.set_seed(3)
        trained = Trained(**options)
        losses = [float(trained.step(trained.x)) for _ in range(3)]
        kernel = trained.model.layers[0].kernel
        places = [memory(kernel)]
        for _ in range(3):
            losses.append(float(trained.step(trained.x)))
            places.append(memory(kernel))
        assert (len(set(places)) == 1) is bool(options)
        found.append(losses)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert len(set(found[0])) == 6


@pytest.mark.skipif(not COUNTS_REFERENCES, reason="it is not known who else has an array")
def test_values_of_any_size_are_given_away_but_single_numbers(on_jax: None) -> None:
    count = tc.Variable(0.0)
    variables = [tc.Variable(tc.ones(shape, dtype=dtype)) for shape in ((2,), (0, 2), (3, 4)) for dtype in
                 ("float32", "int32", "complex64")]  # fmt: skip

    @tc.function(compile="xla", donate_variables=True)
    def step(x: Any) -> None:
        for v in (count, *variables):
            v.assign(v + tc.astype(x, v.dtype))

    x = tc.asarray(1.0)
    counts: list[Any] = []
    for k in range(4):
        places = {memory(v) for v in variables if v.size}
        counts.append(count.value)
        step(x)
        if k:  # results of the first run are checked, and might be refused
            assert {memory(v) for v in variables if v.size} == places
        for v in variables:
            np.testing.assert_array_equal(v.numpy(), np.full(v.shape, k + 2))
    assert [number.item() for number in counts] == [0.0, 1.0, 2.0, 3.0]


def test_old_values_that_somebody_has_stay_as_they_are(on_jax: None) -> None:
    trained = Trained(donate_variables=True)
    kernel = trained.model.layers[0].kernel
    for _ in range(2):
        trained.step(trained.x)
    for keep in (lambda: kernel.array, lambda: kernel + 0, lambda: tc.asarray(kernel), lambda: kernel.numpy()):
        kept = keep()
        before = np.array(kept)
        trained.step(trained.x)
        np.testing.assert_array_equal(np.asarray(kept), before)
        assert not np.array_equal(before, kernel.numpy())
    with tc.GradientTape() as tape:
        y = tc.sum(kernel**2)
    expected = 2.0 * np.array(kernel)
    trained.step(trained.x)
    gradient = tape.gradient(y, kernel)
    assert gradient is not None
    np.testing.assert_array_equal(gradient.numpy(), expected)
    shared = tc.Variable(kernel)
    before = shared.numpy().copy()
    trained.step(trained.x)
    np.testing.assert_array_equal(shared.numpy(), before)


def test_assignments_by_hand_count_between_calls(on_jax: None) -> None:
    trained, plain = Trained(donate_variables=True), Trained()
    for step in range(6):
        for one in (trained, plain):
            tc.set_seed(step)
            if step in (2, 4):
                one.model.layers[0].kernel.assign(tc.full((96, 96), 0.01 * step))
            one.step(one.x)
    np.testing.assert_allclose(
        trained.model.layers[0].kernel.numpy(), plain.model.layers[0].kernel.numpy(), rtol=1e-5, atol=1e-7
    )


def test_values_that_an_error_brings_back_are_not_given_away(on_jax: None) -> None:
    """A function that runs as plain Python undoes what it has assigned, also by functions that it calls."""
    v = tc.Variable(tc.zeros((96, 96)))
    inner = tc.function(lambda: v.assign_add(tc.ones((96, 96))), compile="xla", donate_variables=True)
    for _ in range(3):
        inner()

    @tc.function(fallback="silent")
    def outer(fails: bool) -> None:
        if float(tc.sum(v)) > 0:  # the value of a Tensor decides
            inner()
        if fails:
            raise ZeroDivisionError

    outer(False)
    before = v.numpy().copy()
    with pytest.raises(ZeroDivisionError):
        outer(True)
    np.testing.assert_array_equal(v.numpy(), before)


def test_an_interrupt_finds_all_of_a_call_or_nothing(
    on_jax: None, interrupted: Callable[[Callable[[], object]], bool]
) -> None:
    v, count = tc.Variable(tc.zeros((96, 96))), tc.Variable(tc.asarray(0.0))
    optimizer = nn.SGD(1.0)

    @tc.function(compile="xla", donate_variables=True)
    def step() -> None:
        count.assign_add(1.0)
        optimizer.apply_gradients([(-tc.ones((96, 96)), v)])

    for _ in range(3):
        step()
    for _ in range(200):
        interrupted(step)
        values = v.numpy()
        assert values.min() == values.max() == float(count) == optimizer.iterations


@counted
def test_values_that_are_lost_by_a_failure_of_xla_are_named(on_jax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    v = tc.Variable(tc.zeros((96, 96)))
    step = tc.function(lambda: v.assign_add(tc.ones((96, 96))), compile="xla", donate_variables=True)
    for _ in range(3):
        step()
    call_into = segment.Segment.call_into

    def failing(self: Any, made: list[Any], given: tuple[Any, ...]) -> Any:
        def function(states: object, large: object, *arrays: Any) -> None:
            for array in arrays:
                array.delete()
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

        self._donating = function
        return call_into(self, made, given)

    monkeypatch.setattr(segment.Segment, "call_into", failing)
    with pytest.raises(RuntimeError, match=r"1 Variables?, of shapes \(96, 96\), whose values are lost: load") as found:
        step()
    assert "RESOURCE_EXHAUSTED" in str(found.value)


def test_lost_values_are_loaded_again(on_jax: None) -> None:
    model, optimizer = nn.Dense(96), nn.Adam(0.1)
    model.build((None, 96))
    x = tc.ones((4, 96))

    @tc.function(compile="xla", donate_variables=True)
    def step() -> tc.Tensor:
        with tc.GradientTape() as tape:
            loss = tc.mean((model(x) - 1.0) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.variables), model.variables, strict=True))
        return loss

    for _ in range(3):
        step()
    saved = [{name: value.numpy().copy() for name, value in one.items()}
             for one in (model.state_dict(), optimizer.state_dict(model))]  # fmt: skip
    expected = float(step())
    for variable in model.variables:
        variable.array.delete()  # as XLA does where it fails
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1], model)
    assert float(step()) == expected
    assert model.kernel.device == "cpu:0"


@counted
def test_the_use_of_a_variable_whose_memory_is_given_away_is_an_error_that_says_so(on_jax: None) -> None:
    v = tc.Variable(tc.zeros((96, 96)))
    step = tc.function(lambda: v.assign_add(tc.ones((96, 96))), compile="xla", donate_variables=True)
    for _ in range(3):
        step()
    v.array.delete()  # as another thread finds it
    with pytest.raises(RuntimeError, match="no other thread, callback or signal handler may use it meanwhile"):
        step()
    v.assign(tc.ones((96, 96)))
    step()
    assert float(v[0, 0]) == 2.0


def test_other_compilers_leave_the_old_values_alone() -> None:
    for backend in ("numpy", "jax"):
        v = tc.Variable(tc.zeros((96, 96), backend=backend))
        step = tc.function(lambda v=v: v.assign_add(tc.ones((96, 96), backend=v.backend)), donate_variables=True)
        for _ in range(3):
            old = v.array
            step()
            assert float(tc.sum(tc.asarray(old))) + 96 * 96 == float(tc.sum(v))
    with pytest.raises(TypeError, match="donate_variables must be True or False"):
        tc.function(lambda: None, donate_variables="v")  # type: ignore[arg-type]
