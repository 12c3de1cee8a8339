"""Values of Variables that XLA's code keeps from call to call on JAX's arrays; test_deferred.py has what all share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tape_compile.extend import Spec
from tape_jax import devices, distribute
from tape_jax.xla import kept

pytestmark = pytest.mark.skipif(
    devices.several() or devices.default().platform != "cpu", reason="values are kept on a single CPU"
)
SHAPES = [(3,), (4, 5), (2, 3), (1,), ()]


@pytest.fixture(autouse=True)
def on_jax() -> Iterator[None]:
    with tc.use_backend("jax"):
        yield


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each array that has been made of kept values."""
    found, original = list[int](), kept.Pack.array

    def array(self: Any, whole: Any, number: int) -> Any:
        found.append(number)
        return original(self, whole, number)

    monkeypatch.setattr(kept.Pack, "array", array)
    return found


def training(dtype: str = "float32", **options: Any) -> tuple[list[tc.Variable], Any]:
    """Variables, and a function that adds the sum of its argument to each."""
    variables = [tc.Variable(tc.zeros(shape, dtype=dtype)) for shape in SHAPES]

    def step(x: tc.Tensor) -> tc.Tensor:
        for v in variables:
            v.assign(v + tc.astype(tc.sum(x), v.dtype))
        return x * 2

    return variables, tc.function(step, compile="xla", **options)


def check(variables: list[tc.Variable], value: float) -> None:
    for v, shape in zip(variables, SHAPES, strict=True):
        np.testing.assert_array_equal(v.numpy(), np.full(shape, value))


@pytest.mark.parametrize("donate", [False, True])
def test_what_nobody_reads_is_no_array(made: list[int], donate: bool) -> None:
    variables, step = training(donate_variables=donate)
    for _ in range(4):
        step(tc.ones(2))
    assert not made
    assert variables[1].array.shape == (4, 5)
    assert made == [1]
    assert variables[1].array is variables[1].array
    step(tc.ones(2))
    assert made == [1]
    check(variables, 10)


def test_functions_of_the_same_variables_leave_values_to_each_other(made: list[int]) -> None:
    variables, step = training()
    for k in range(12):
        step(tc.ones(1 + k % 3))
        if k == 2:  # to trace a function reads
            assert step.traces == 3
            made.clear()
    assert not made
    check(variables, 4 * 6)
    variables[0].assign(tc.ones(3))
    for k in range(1, 4):
        step(tc.ones(k))
    np.testing.assert_array_equal(variables[0].numpy(), np.full(3, 7))
    np.testing.assert_array_equal(variables[1].numpy(), np.full((4, 5), 30))


def test_functions_of_other_variables_find_the_values(made: list[int]) -> None:
    variables, step = training()
    some = tc.function(lambda: [v.assign_add(tc.ones_like(v)) for v in variables[1:]], compile="xla")
    for _ in range(3):
        step(tc.ones(1))
        some()
    np.testing.assert_array_equal(variables[0].numpy(), np.full(3, 3))
    np.testing.assert_array_equal(variables[2].numpy(), np.full((2, 3), 6))


def test_values_that_are_read_after_each_call_are_made_together(
    made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "READ_TOGETHER_AFTER", 3)
    variables, step = training()
    for k in range(1, 13):
        step(tc.ones(1))
        if k == 10:
            first, made[:] = variables[3].array, []
            check(variables, k)
            assert variables[3].array is first
            assert made == [0, 2, 4]  # 1 and 3 came together, by one program
            continue
        np.testing.assert_array_equal(variables[1].numpy(), np.full((4, 5), k))
        np.testing.assert_array_equal(variables[3].numpy(), np.full(1, k))
    made.clear()
    step(tc.ones(1))
    np.testing.assert_array_equal(variables[0].numpy(), np.full(3, 13))
    assert made == [0]
    variables[1].assign(tc.zeros((4, 5)))
    step(tc.ones(1))
    np.testing.assert_array_equal(variables[1].numpy(), np.full((4, 5), 1))
    np.testing.assert_array_equal(variables[3].numpy(), np.full(1, 14))


def test_a_value_that_is_read_in_a_trace_of_jax_is_an_array(made: list[int]) -> None:
    variables, step = training()
    for _ in range(3):
        step(tc.ones(1))
    double = jax.jit(lambda x: x + variables[0].array)
    np.testing.assert_array_equal(double(jnp.ones(3)), np.full(3, 4))
    assert made == [0]
    np.testing.assert_array_equal(variables[0].numpy(), np.full(3, 3))
    step(tc.ones(1))
    check(variables, 4)


def test_values_that_a_user_gives_to_xla_are_none_of_the_step() -> None:
    variables, step = training()
    for _ in range(3):
        step(tc.ones(1))
    array = variables[1].array
    np.testing.assert_array_equal(jax.jit(lambda x: x * 0 - 5, donate_argnums=0)(array), np.full((4, 5), -5))
    step(tc.ones(1))
    check(variables, 4)


def test_values_stay_committed_to_their_device() -> None:
    variables, step = training()
    place = jax.devices()[0]
    step(tc.ones(1))
    assert not variables[1].array.committed
    for v in variables:
        v.assign(tc.asarray(jax.device_put(v.array, place)))
    for _ in range(2):
        step(tc.ones(1))
        assert variables[1].array.committed
        variables[0].assign(variables[0] * 1)
    check(variables, 3)


@pytest.mark.parametrize("before", [0, 2])
def test_values_on_a_mesh_of_one_device_are_trained(before: int) -> None:
    variables, step = training()
    for _ in range(before):
        step(tc.ones(1))
    place = NamedSharding(Mesh(np.asarray(jax.devices()), ("data",)), PartitionSpec(None, "data"))
    distribute(variables[1], place)
    assert variables[1].array.sharding == place
    for _ in range(3):
        step(tc.ones(1))
    check(variables, before + 3)


def test_values_keep_their_dtype_wherever_they_are_read() -> None:
    with jax.enable_x64(True):
        variables, step = training("float64")
        for _ in range(3):
            step(tc.ones(1))
        with jax.enable_x64(False):
            assert variables[1].array.dtype == np.float64
        check(variables, 3)


def test_an_interrupt_finds_all_of_a_call_or_nothing(interrupted: Callable[[Callable[[], object]], bool]) -> None:
    variables = [tc.Variable(tc.zeros(shape)) for shape in SHAPES]
    optimizer = nn.SGD(1.0)
    step = tc.function(lambda: optimizer.apply_gradients([(-tc.ones(v.shape), v) for v in variables]), compile="xla")
    for _ in range(3):
        step()
    interrupts = 0
    for k in range(200):
        interrupts += interrupted(step)
        if k % 2:
            check(variables, optimizer.iterations)
    assert interrupts


def test_arguments_of_other_shapes_go_one_by_one() -> None:
    def function(states: Any, large: Any, *given: Any) -> Any:
        return [x + given[0] for x in given], []

    kind, dtype = type(jnp.ones(1)), np.dtype("float32")
    packs = [kept.Pack([(k, k) for k in range(1, 3)], [Spec(kind, (3,), dtype), Spec(kind, (2, 3), dtype)])]
    keeping = kept.Keeping(function, lambda given: jax.jit(function), 3, 3, packs)
    one, other = jnp.ones((), dtype), jnp.zeros((2, 3), dtype)
    first, held, nothing = keeping([], (), (one, jnp.zeros(3, dtype), other))[0]
    assert nothing is None
    assert [x.shape for x in held.arrays] == [(3,), (2, 3)]
    found = keeping([], (), (one, jnp.zeros(7, dtype), other))[0]
    assert [x.shape for x in found] == [(), (7,), (2, 3)]
    found = keeping([], (), (first, held, None))[0]
    np.testing.assert_array_equal(found[1].array(0), np.full(3, 3))
