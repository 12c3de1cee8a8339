"""Calls that differ from the usual one in a single point: the guard of the usual call must not take them."""

import gc
import weakref
from collections import namedtuple
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
from tape_compile import function

pytestmark = pytest.mark.each_backend

Pair = namedtuple("Pair", "first second")


def described(tree: Any) -> Any:
    """What a traced function can see of its arguments besides values: it becomes a part of the result."""
    if isinstance(tree, dict):
        return [(key, described(value)) for key, value in tree.items()]
    if isinstance(tree, (list, tuple)):
        return [type(tree).__name__, *map(described, tree)]
    if isinstance(tree, tc.Tensor):
        return [type(tree).__name__, tree.dtype.name, tree.shape]
    return [type(tree).__name__, repr(tree)]


def look(*args: Any, **kwargs: Any) -> Any:
    tensors = [leaf for leaf in tc.tree_leaves((args, kwargs)) if isinstance(leaf, tc.Tensor)]
    values = [tc.sum(tensor) * (k + 1) for k, tensor in enumerate(tensors)]
    return values, str(described(args)), str(described(kwargs)), tc.zeros(1).dtype.name, tc.get_default_dtype().name


def check(calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
    """Call a compiled function as a loop does, with other calls between, and compare with the Python function."""
    f = tc.function(look, retrace="allow")
    for args, kwargs in [*calls[:1] * 5, *calls, *calls[:1] * 2, *calls * 3]:
        found, expected = f(*args, **kwargs), look(*args, **kwargs)
        assert found[1:] == expected[1:]
        for a, b in zip(found[0], expected[0], strict=True):
            np.testing.assert_allclose(np.asarray(a.numpy()), np.asarray(b.numpy()), rtol=1e-5)
    return f


def x(*shape: int, dtype: str = "float32", first: int = 1) -> tc.Tensor:
    size = int(np.prod(shape))
    return tc.reshape(tc.arange(first, first + size, dtype=dtype), shape)


def test_the_usual_call_makes_no_cache_key(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tc.function(lambda model, batch, training: tc.sum(model(batch["x"])), retrace="allow")
    model = nn.Dense(2)
    model.build((None, 3))
    for _ in range(4):
        f(model, {"x": x(2, 3)}, training=True)
    known = f(model, {"x": x(2, 3)}, training=True).item()

    def refuse(*_: object) -> None:
        raise AssertionError("a key was made")

    monkeypatch.setattr(function, "Signature", refuse)
    assert f(model, {"x": x(2, 3)}, training=True).item() == known
    with pytest.raises(AssertionError, match="a key was made"):
        f(model, {"x": x(3, 3)}, training=True)


def test_equal_keys_of_other_types_are_other_keys() -> None:
    class Grade(IntEnum):
        ONE = 1

    keys = (1, 1.0, True, np.int64(1), Grade.ONE, "1", 0.0, -0.0)
    check([(({key: x(2)},), {}) for key in keys])
    check([(({"a": [{key: x(2)}]}, x(3)), {}) for key in keys])
    check([(({key: x(2), "a": x(3)},), {}) for key in keys])
    scaled = tc.function(lambda parts: [key * part for key, part in parts.items()], retrace="allow")
    for _ in range(3):
        dtypes = [scaled({key: tc.asarray([1, 2])})[0].dtype.name for key in (1, 1.0, True)]
        assert dtypes == ["int64", "float32", "int64"]


def test_another_array() -> None:
    others = [
        x(3, 2), x(6), x(2, 3, dtype="int32"), x(2, 3, first=5), tc.Variable(x(2, 3)),
        [x(2, 3)], (x(2, 3),), {"x": x(2, 3)}, None, 2, 2.0, "text",
    ]  # fmt: skip
    check([((x(2, 3),), {}), *[((other,), {}) for other in others], ((), {}), ((x(2, 3), x(2, 3)), {})])


@pytest.mark.parametrize(
    "arguments",
    [
        [1, True, 1.0, 2, -1, "1", None],
        [True, 1, False, 0],
        ["a", "b", b"a"],
        [0.0, -0.0, 0],
        [(), [], {}, None],
        [(1, 2), [1, 2], (1, 2, 3), Pair(1, 2), (2, 1)],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}, {"a": 1}, {"a": 1, "c": 2}],
    ],
    ids=str,
)
def test_another_value(arguments: list[Any]) -> None:
    check([((x(3), argument), {}) for argument in arguments])
    check([((argument,), {}) for argument in arguments])
    check([((x(3),), {"a": argument}) for argument in arguments])
    check([([[x(3), argument]], {}) for argument in arguments])  # type: ignore[list-item]


def test_an_array_of_numpy_after_tensors() -> None:
    f = tc.function(lambda x: tc.sum(x) * 2, retrace="allow")
    for given in [*[x(3)] * 4, np.ones(3, np.float32), x(3), np.ones(3, np.float64), np.float32(4), x(3)]:
        assert f(given).item() == 2 * np.sum(np.asarray(given.numpy() if isinstance(given, tc.Tensor) else given))


def test_keywords_and_positions_are_told_apart() -> None:
    a, b = x(3), x(3, first=10)
    check(
        [
            ((a, b), {}),
            ((a,), {"b": b}),
            ((), {"a": a, "b": b}),
            ((), {"b": b, "a": a}),
            ((b, a), {}),
            (({"a": a, "b": b},), {}),
            (((a,), {"b": b}), {}),
            ((a,), {"c": b}),
        ]
    )
    check([((), {"a": a, "b": b}), ((), {"b": b, "a": a}), ((), {"a": a}), ((a,), {"b": b})])


def test_a_tree_of_many_parts() -> None:
    def tree(k: int = 2, order: str = "ab", last: Any = None) -> Any:
        layers = [{"w": x(2, k), "b": (x(k), last)} for _ in range(2)]
        return dict.fromkeys(order, layers)

    trees = [(tree(), 1), (tree(3), 1), (tree(order="ba"), 1), (tree(last=1), 1), (tree(), True)]
    check([(args, {}) for args in trees])


def test_the_default_dtype_and_the_backend_are_part_of_it() -> None:
    f = check([((x(3), 1), {})])
    arguments = x(3), 1
    before = tc.get_default_dtype()
    tc.set_default_dtype("float64" if before.name == "float32" else "float32")
    try:
        assert f(*arguments)[1:] == look(*arguments)[1:]
    finally:
        tc.set_default_dtype(before)
    assert f(*arguments)[1:] == look(*arguments)[1:]
    with tc.use_backend("numpy"):
        made = tc.function(lambda x: tc.ones(2))
        assert [made(arguments[0]).backend.name for _ in range(5)] == ["numpy"] * 5
    assert made(arguments[0]).backend is tc.get_backend()


def test_another_variable_or_module() -> None:
    f = tc.function(lambda v, x: v * x, retrace="allow")
    variables = [tc.Variable([float(k)]) for k in range(3)]
    for k in (0, 0, 0, 0, 1, 2, 0, 1, 1, 1, 2):
        assert f(variables[k], tc.asarray([2.0])).tolist() == [2.0 * k]
    variables[1].assign([7.0])
    assert f(variables[1], tc.asarray([2.0])).tolist() == [14.0]

    models = [nn.Dense(2) for _ in range(2)]
    for model in models:
        model.build((None, 3))
    g = tc.function(lambda model, x: model(x), retrace="allow")
    for k in (0, 0, 0, 0, 1, 0, 1, 1, 1):
        expected = models[k](x(1, 3))
        np.testing.assert_allclose(g(models[k], x(1, 3)).numpy(), expected.numpy(), rtol=1e-5)


def test_a_module_with_tensors_in_place_of_its_variables() -> None:
    model = nn.Dense(2)
    model.build((None, 3))
    f = tc.function(lambda model, x: tc.sum(model(x)), retrace="allow")
    for _ in range(4):
        f(model, x(1, 3))
    twice = tc.tree_map(lambda v: 2 * v, model)
    np.testing.assert_allclose(f(twice, x(1, 3)).numpy(), 2 * f(model, x(1, 3)).numpy(), rtol=1e-5)
    expected = tc.grad(lambda model: tc.sum(model(x(1, 3))))(model)
    found = tc.grad(f)(model, x(1, 3))
    np.testing.assert_allclose(found.kernel.numpy(), expected.kernel.numpy(), rtol=1e-5)


def test_a_variable_that_is_frozen_between_calls() -> None:
    v = tc.Variable([3.0])

    def gradient(x: tc.Tensor) -> Any:
        with tc.GradientTape() as tape:
            y = tc.sum(v * x)
        return tape.gradient(y, v)

    f = tc.function(gradient, retrace="allow")
    for trainable in (True, True, True, True, False, True, True, False, False):
        v.trainable = trainable
        found = f(tc.asarray([2.0]))
        assert (None if found is None else found.tolist()) == ([2.0] if trainable else None)


def test_calls_inside_tapes_vmaps_and_traces_are_seen_by_them() -> None:
    f = tc.function(lambda x: tc.sum(x**2), retrace="allow")
    at = tc.asarray([1.0, 2.0])
    for _ in range(4):
        f(at)
    with tc.GradientTape() as tape:
        tape.watch(at)
        y = f(at)
    gradient = tape.gradient(y, at)
    assert gradient is not None
    assert gradient.tolist() == [2.0, 4.0]
    assert tc.vmap(f)(tc.asarray([[1.0, 2.0], [3.0, 4.0]])).tolist() == [5.0, 25.0]
    assert tc.function(lambda x: f(x) + 1)(at).item() == 6.0
    assert tc.jvp(f, (at,), (at,))[1].item() == 10.0


def test_traces_end_with_their_arguments_and_with_the_limit() -> None:
    f = tc.function(lambda model, x: model(x), retrace="allow")
    model = nn.Dense(2)
    for _ in range(5):
        f(model, x(1, 3))
    assert f.traces == 1
    gone = [weakref.ref(model), weakref.ref(model.kernel)]
    del model
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert f.traces == 0

    limited = tc.function(lambda x: x + 1, retrace="allow", max_traces=1)
    for _ in range(5):
        limited(x(1))
    kept = weakref.ref(limited._compiled.all[0])
    limited(x(2))
    gc.collect()
    assert kept() is None
    assert limited.traces == 1


def test_a_guard_that_is_written_keeps_its_arguments_not_alive() -> None:
    f = tc.function(lambda x, p: tc.sum(x) + tc.sum(p["a"]), retrace="allow")
    arrays = [x(2), x(3)]
    for _ in range(5):
        f(arrays[0], {"a": arrays[1]})
    gone = [weakref.ref(array) for array in arrays]
    del arrays
    gc.collect()
    assert [one() for one in gone] == [None, None]
