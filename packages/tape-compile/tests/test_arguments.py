"""Compiled functions that change what they are given, or what is around them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
import tape_core as tc
from tape_core import function
from tape_core.staging import TracingError

needs_jax = pytest.mark.skipif(find_spec("tape_jax") is None, reason="needs JAX")


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
        with pytest.raises(TracingError, match=r"from around it, in .*test_arguments\.py, line .* it is a constant"):
            call()
        assert total.tolist() == [0.0, 0.0]


@pytest.mark.each_backend
@pytest.mark.parametrize("compiler", ["python", pytest.param("xla", marks=needs_jax)])
def test_what_is_computed_of_constants_inside_is_changed(compiler: str) -> None:
    total = tc.ones(2)
    held: list[Any] = []

    def put_into_copies(x: Any) -> Any:
        sums, copy, known = total + 1, total.copy(), total * 2
        same = sums
        sums[0] = x
        copy += x
        for k in range(2):
            known[k] *= x * k
        known[0] = 7.0
        return {"sums": sums, "same": same}, copy, tc.grad(lambda y: changed_sum(total * 1, y))(x), known

    def changed_sum(buffer: Any, y: Any) -> Any:
        buffer[1] = y * y
        return tc.sum(buffer * buffer)

    def keep(x: Any) -> Any:
        held.append(total + 1)
        held[-1][0] = x
        return x * 1

    f = tc.function(put_into_copies, compile=compiler)
    for value in (3.0, 5.0):
        expected = put_into_copies(tc.asarray(value))
        for a, b in zip(tc.tree_leaves(f(tc.asarray(value))), tc.tree_leaves(expected), strict=True):
            assert a.tolist() == pytest.approx(b.tolist(), rel=1e-6)
    assert total.tolist() == [1.0, 1.0]
    with pytest.raises(TracingError, match="from around it"):
        tc.function(keep, compile=compiler)(tc.asarray(3.0))


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
    with pytest.raises(TypeError, match="steps is a generator or coroutine"):

        @function
        def steps(x: Any) -> Iterator[Any]:
            yield x


# The order of dicts' keys, which Python code can go by.


def _weighted(parts: Any) -> Any:
    total = tc.asarray(0.0)
    for part in parts:
        total = total * 2 + part
    return total


class _Node(NamedTuple):
    inner: Any


@pytest.mark.parametrize(
    "wrap",
    [lambda d: d, lambda d: [(d,)], lambda d: {"x": d}, _Node],
    ids=["itself", "in a list", "in a dict", "in a tuple"],
)
@pytest.mark.parametrize("in_tape", [False, True])
def test_a_dict_in_another_order_is_another_argument(wrap: Any, in_tape: bool) -> None:
    def inner(tree: Any) -> Any:
        while not isinstance(tree, dict) or "a" not in tree:
            tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
        return tree

    @function
    def weighted(tree: Any) -> Any:
        return _weighted(inner(tree).values()), inner(tree)

    def call(tree: Any) -> Any:
        if not in_tape:
            return weighted(tree)
        with tc.GradientTape() as tape:
            tape.watch(tree)
            return weighted(tree)

    one, two = tc.asarray(1.0), tc.asarray(2.0)
    for _ in range(3):
        total, found = call(wrap({"b": one, "a": two}))
        assert total.item() == 4.0
        assert list(found) == ["b", "a"]
        total, found = call(wrap({"a": two, "b": one}))
        assert total.item() == 5.0
        assert list(found) == ["a", "b"]


def test_keyword_arguments_in_another_order_count_where_the_function_sees_their_order() -> None:
    @function
    def weighted(**parts: Any) -> Any:
        return _weighted(parts.values())

    @function(retrace="error")
    def named(a: Any, b: Any) -> Any:
        return a * 2 + b

    one, two = tc.asarray(1.0), tc.asarray(2.0)
    for _ in range(2):
        assert weighted(b=one, a=two).item() == 4.0
        assert weighted(a=two, b=one).item() == 5.0
        assert named(b=one, a=two).item() == named(a=two, b=one).item() == 5.0


def test_a_constant_integer_scalar_computes_as_in_the_eager_call() -> None:
    # Powers of NumPy's scalars round in another way than those of arrays of shape () on some processors.
    for base in (3, 5, 6, 7):
        for dtype in ("int8", "uint8", "int16", "int32", "int64"):
            constant = tc.asarray(base, dtype=dtype)
            f = lambda x, constant=constant: (constant**x, x**constant)  # noqa: E731
            compiled = function(f)
            for exponent in (1.5, 0.3, 2.7):
                x = tc.asarray(exponent)
                assert [y.item() for y in compiled(x)] == [y.item() for y in f(x)]


@pytest.mark.parametrize("in_tape", [False, True])
def test_a_raw_array_that_is_returned_is_the_callers_own(in_tape: bool) -> None:
    numpy = pytest.importorskip("numpy")
    outside = numpy.ones(2)

    @function
    def f(x: Any) -> Any:
        return numpy.zeros(2), outside, x * 2

    def call() -> Any:
        x = tc.asarray([1.0, 2.0])
        if not in_tape:
            return f(x)
        with tc.GradientTape() as tape:
            tape.watch(x)
            return f(x)

    for _ in range(3):
        call()
    for _ in range(2):
        inner, copy, _ = call()
        assert inner.tolist() == [0.0, 0.0]
        assert copy.tolist() == [1.0, 1.0]
        inner[:] = copy[:] = 5.0
    assert outside.tolist() == [1.0, 1.0]


def test_an_iterator_is_no_result() -> None:
    # The second call would give the one that the first has emptied.
    def f(x: Any) -> Any:
        return (x * k for k in range(2))

    with pytest.raises(TracingError, match=r"returns a generator, .* return a list"):
        function(f)(tc.asarray(1.0))
    for _ in range(2):
        assert [y.item() for y in function(f, fallback="silent")(tc.asarray(3.0))] == [0.0, 3.0]

    compiled = function(f)
    for _ in range(3):
        with tc.GradientTape() as tape:
            x = tc.asarray(3.0)
            tape.watch(x)
            assert [y.item() for y in compiled(x)] == [0.0, 3.0]


def _replaced(parts: Any, x: Any) -> Any:
    parts["w"] = parts["w"] - x
    return parts["w"]


@pytest.mark.parametrize(
    ("change", "given"),
    [
        (_replaced, lambda: {"w": tc.asarray(1.0)}),
        (lambda parts, x: parts.pop("w") * x, lambda: {"w": tc.asarray(1.0), "b": tc.asarray(2.0)}),
        (lambda parts, x: parts.append(x), list),
        (lambda parts, x: parts[0].append(x), lambda: ([tc.asarray(1.0)],)),
    ],
    ids=["replaced", "taken out", "added", "in a tuple"],
)
def test_a_list_or_dict_among_the_arguments_is_not_changed_in_vain(change: Any, given: Any) -> None:
    x = tc.asarray(0.5)
    for _ in range(2):
        with pytest.raises(TracingError, match="changes a list or dict among its arguments"):
            function(change)(given(), x)

    # Where it runs as plain Python, and in tapes, the caller's change as in an eager call.
    expected = given()
    change(expected, x)
    fallback, compiled = function(change, fallback="silent"), function(change)
    for _ in range(3):
        parts = given()
        fallback(parts, x)
        assert str(parts) == str(expected)
        parts = given()
        with tc.GradientTape() as tape:
            tape.watch(x)
            compiled(parts, x)
        assert str(parts) == str(expected)


def test_a_copy_may_be_changed_and_tensors_in_place() -> None:
    @function
    def f(parts: Any, **others: Any) -> Any:
        others.pop("y")
        own = dict(parts)
        own["w"] = own["w"] * 2
        parts["b"] += 1
        return own

    for _ in range(3):
        b = tc.asarray(1.0)
        assert f({"w": tc.asarray(3.0), "b": b}, y=b * 1, z=2)["w"].item() == 6.0
        assert b.item() == 2.0


def test_scalars_of_numpy_that_change_are_warned_of_as_pythons_numbers_are() -> None:
    f = tc.function(lambda x, rate: x * rate)
    with pytest.warns(
        UserWarning, match="NumPy's scalars, are constants of a trace: give those that change as Tensors"
    ):
        for k in range(8):
            assert f(tc.ones(2), np.float64(k)).dtype is tc.float32
    before = f.traces
    for k in range(8):
        f(tc.ones(2), tc.asarray(float(k)))
    assert f.traces == before + 1
