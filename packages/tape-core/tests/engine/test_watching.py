"""What a tape watches: the section "Watching" of the semantics, a test for each row."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import tape_core as tc


def slope(x: Any, **options: Any) -> Any:
    """d x² / dx, where nothing is watched by name."""
    with tc.GradientTape(**options) as tape:
        y = x * x
    return tape.gradient(y, x)


# -- what is watched of itself


def test_a_trainable_variable_that_is_read_is_watched() -> None:
    assert slope(tc.Variable(3.0)).item() == 6.0


def test_a_variable_that_is_not_trainable_is_not_watched() -> None:
    v = tc.Variable(3.0, trainable=False)
    assert slope(v) is None
    with tc.GradientTape() as tape:
        y = v * v
    assert tape.watched_variables() == ()
    assert tape.gradient(y, v) is None


def test_watch_watches_a_variable_that_is_not_trainable() -> None:
    v = tc.Variable(3.0, trainable=False)
    with tc.GradientTape() as tape:
        tape.watch(v)
        y = v * v
    assert tape.watched_variables() == (v,)
    assert tape.gradient(y, v).item() == 6.0


def test_a_constant_is_not_watched_unless_watch_names_it() -> None:
    x = tc.asarray(3.0)
    assert slope(x) is None
    with tc.GradientTape() as tape:
        assert tape.watch(x) is None
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


def test_watch_accessed_variables_false_watches_only_what_watch_names() -> None:
    v, w = tc.Variable(2.0), tc.Variable(3.0)
    assert slope(v, watch_accessed_variables=False) is None
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(v)
        y = v * w
    assert tape.watched_variables() == (v,)
    dv, dw = tape.gradient(y, [v, w])
    assert dv.item() == 3.0
    assert dw is None


def test_a_watch_after_the_read_comes_too_late() -> None:
    v = tc.Variable(2.0)
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        y = v * v
        tape.watch(v)
        z = v * 3.0
    assert tape.gradient([y, z], v).item() == 3.0


def test_a_value_read_before_the_block_is_an_unwatched_tensor() -> None:
    v = tc.Variable(2.0)
    for before in (v.value, tc.asarray(v)):
        with tc.GradientTape() as tape:
            y = before * v
        dv = tape.gradient(y, v)
        assert dv.item() == 2.0, "only the read inside counts"


def test_all_reads_of_a_variable_add_up() -> None:
    v = tc.Variable(2.0)
    with tc.GradientTape() as tape:
        first, second = v.value, tc.asarray(v)
        y = first * second * v
    assert tape.gradient(y, v).item() == 12.0


# -- structures


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: [a, b],
        lambda a, b: (a, (b,)),
        lambda a, b: {"a": a, "b": [b]},
        lambda a, b: {"a": a, "b": b}.values(),
        lambda a, b: OrderedDict(z=a, y={"k": b}),
        Pair,
    ],
    ids=["list", "nested tuple", "dict", "dict values", "ordered dict", "namedtuple"],
)
def test_watch_takes_each_leaf_of_a_structure(build: Any) -> None:
    a, b = tc.asarray(2.0), tc.Variable(3.0, trainable=False)
    with tc.GradientTape() as tape:
        tape.watch(build(a, b))
        y = a * b
    assert [g.item() for g in tape.gradient(y, [a, b])] == [3.0, 2.0]


@pytest.mark.parametrize("empty", [[], (), {}], ids=["list", "tuple", "dict"])
def test_watch_of_an_empty_structure_is_fine(empty: Any) -> None:
    with tc.GradientTape() as tape:
        assert tape.watch(empty) is None


def test_watch_takes_any_pytree() -> None:
    import optree

    class Point:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    optree.register_pytree_node(Point, lambda p: ((p.x, p.y), None), lambda _, xy: Point(*xy), namespace="tape")
    try:
        p = Point(tc.asarray(2.0), tc.asarray(5.0))
        with tc.GradientTape() as tape:
            tape.watch(p)
            z = p.x * p.y
        g = tape.gradient(z, p)
    finally:
        optree.unregister_pytree_node(Point, namespace="tape")
    assert isinstance(g, Point)
    assert (g.x.item(), g.y.item()) == (5.0, 2.0)


# -- what cannot be watched


@pytest.mark.parametrize(("value", "kind"), [("a", "str"), (np.ones(2), "ndarray"), (3.0, "float"), (None, "NoneType")])
@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_watch_of_what_is_no_tensor_is_both_errors(value: Any, kind: str, error: type[Exception]) -> None:
    tape = tc.GradientTape()
    with pytest.raises(error) as caught:
        tape.watch(value)
    message = str(caught.value)
    assert "Passed in object" in message
    assert repr(value) in message
    assert repr(kind) in message
    assert "asarray" in message


def test_watch_names_the_place_of_a_bad_leaf_and_then_watches_nothing() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape() as tape:
        with pytest.raises(TypeError, match=r"'b'\['k'\]\[1\] of type 'str'"):
            tape.watch({"k": [x, "b"]})
        y = x * x
    assert tape.gradient(y, x) is None


@pytest.mark.parametrize("value", [3, True, [1, 2]], ids=["int", "bool", "ints"])
def test_watch_of_integers_and_booleans_warns_at_the_users_line(value: Any) -> None:
    x = tc.asarray(value)
    with (
        pytest.warns(UserWarning, match=f"dtype {x.dtype} has no derivative") as found,
        tc.GradientTape() as tape,
    ):
        tape.watch(x)
        y = x + x
        assert tape.gradient(y, x) is None
    assert len(found) == 1, "once: gradient does not repeat it"
    assert found[0].filename == __file__


def test_the_warning_of_a_loop_is_shown_once() -> None:
    x = tc.asarray(3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            with tc.GradientTape() as tape:
                tape.watch(x)
    assert len(found) == 1


def test_an_integer_variable_warns_once_and_says_what_to_do() -> None:
    v = tc.Variable(30)
    with tc.GradientTape() as tape:
        y = v**3
    assert y.item() == 27000
    with pytest.warns(UserWarning, match="dtype int64") as found:
        assert tape.gradient(y, v) is None
    assert len(found) == 1
    assert "dtype=" in str(found[0].message)
    assert "float32" in str(found[0].message)
    assert found[0].filename == __file__


@pytest.mark.filterwarnings("ignore:.*has no derivative")
def test_an_integer_variable_that_is_watched_has_no_gradient_either() -> None:
    v = tc.Variable([1, 2])
    with tc.GradientTape() as tape:
        tape.watch(v)
        y = v * 2
        z = tc.astype(v, tc.float32) ** 2
    assert tape.gradient([y, z], v) is None


# -- when


def test_watch_before_the_block_watches_from_the_start() -> None:
    x = tc.asarray(3.0)
    tape = tc.GradientTape()
    tape.watch(x)
    with tape:
        y = x * x
    assert tape.gradient(y, x).item() == 6.0


def test_watch_after_gradient_watches_for_the_next_block() -> None:
    x, v = tc.asarray(3.0), tc.Variable(2.0, trainable=False)
    tape = tc.GradientTape()
    for _ in range(3):
        tape.watch([x, v])
        with tape:
            y = x * v
        assert [g.item() for g in tape.gradient(y, [x, v])] == [2.0, 3.0]


def test_watching_is_not_retroactive() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as tape:
        before = x * x
        tape.watch(x)
        after = x * 5.0
    assert tape.gradient([before, after], x).item() == 5.0


def test_watching_twice_does_not_count_twice() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as tape:
        tape.watch([x, x])
        y = x * x
        tape.watch(x)
    assert tape.gradient(y, x).item() == 6.0


def test_copies_and_equal_constants_are_other_tensors() -> None:
    x, twin = tc.asarray([3.0]), tc.asarray([3.0])
    copy = tc.asarray(x, copy=True)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = twin * copy
    assert tape.gradient(y, [x, twin, copy]) == [None, None, None]


def test_a_copy_made_before_a_watch_is_not_watched_with_its_original() -> None:
    x = tc.asarray([3.0])
    with tc.GradientTape() as first:
        first.watch(x)
        copy = tc.asarray(x, copy=True)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = copy * 2.0
    assert tape.gradient(y, x) is None
    assert copy.numpy() == [3.0]


def test_a_watch_is_of_one_tape() -> None:
    x = tc.asarray(3.0)
    with tc.GradientTape() as one, tc.GradientTape() as other:
        one.watch(x)
        y = x * x
    assert one.gradient(y, x).item() == 6.0
    assert other.gradient(y, x) is None


def test_a_view_of_a_watched_value_does_not_exist_before_it_is_taken() -> None:
    x = tc.asarray([1.0, 2.0])
    part = x[0]
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = part * part
    assert tape.gradient(y, x) is None


# -- watched_variables


def test_watched_variables_come_in_order_of_construction() -> None:
    a, b, c = tc.Variable(1.0), tc.Variable(2.0), tc.Variable(3.0, trainable=False)
    with tc.GradientTape() as tape:
        _ = b * 2.0
        tape.watch(c)
        tape.watch(tc.asarray(1.0))
        _ = a + b
    found = tape.watched_variables()
    assert isinstance(found, tuple)
    assert [id(v) for v in found] == [id(a), id(b), id(c)]


def test_watched_variables_has_integer_trainables_and_survives_gradient() -> None:
    v, n, frozen = tc.Variable(1.0), tc.Variable(2), tc.Variable(3.0, trainable=False)
    with tc.GradientTape() as tape:
        y = v * n * frozen
    assert [id(w) for w in tape.watched_variables()] == [id(v), id(n)]
    assert tape.gradient(y, v).item() == 6.0
    assert [id(w) for w in tape.watched_variables()] == [id(v), id(n)]


def test_watched_variables_of_a_tape_never_entered_is_empty() -> None:
    assert tc.GradientTape().watched_variables() == ()


def test_attributes_and_paused_reads_are_no_access() -> None:
    v = tc.Variable(1.0, name="v")
    with tc.GradientTape() as tape:
        _ = (v.shape, v.dtype, v.name, v.ndim)
        tc.stop_gradient(v)
        with tape.stop_recording():
            _ = v * 2.0
        assert tape.watched_variables() == ()
        assert bool(v > 0)
        assert len(tape.watched_variables()) == 1


# -- dtypes


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_floating_and_complex_dtypes_are_differentiable(dtype: str) -> None:
    for v in (tc.Variable([1.0, 2.0], dtype=dtype), tc.Variable(2.0, dtype=dtype)):
        g = slope(v)
        assert g.dtype is v.dtype
        assert g.shape == v.shape
        assert np.array_equal(g.numpy(), 2 * v.numpy())


# -- readings of a Variable


def _gradient_of_readings(v):
    with tc.GradientTape() as tape:
        a, b = v.value, v.value
        y = a * a * b
    return tape.gradient(y, [a, b, v])


@pytest.mark.parametrize("compiled", [False, True])
def test_each_reading_of_a_variable_has_a_gradient_of_its_own(compiled):
    v = tc.Variable(3.0)
    call = tc.function(lambda: _gradient_of_readings(v)) if compiled else (lambda: _gradient_of_readings(v))
    for _ in range(3):
        assert [g.item() for g in call()] == [18.0, 9.0, 27.0]


def test_second_derivatives_tell_readings_apart():
    v = tc.Variable(3.0)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            a, b = v.value, v.value
            y = a * a * b
        g = inner.gradient(y, a)  # 2 a b
    assert [d.item() for d in outer.gradient(g, [a, b, v])] == [6.0, 6.0, 12.0]


def test_the_jacobian_of_a_reading_is_of_that_one():
    w = tc.Variable([1.0, 2.0])
    with tc.GradientTape(persistent=True) as tape:
        a, b = w.value, w.value
        y = a * b
    assert tape.jacobian(y, a).tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert tape.jacobian(y, w).tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_readings_carry_the_tangent_of_their_variable():
    w = tc.Variable([1.0, 2.0])
    with tc.ForwardAccumulator(w, tc.asarray([1.0, 0.0])) as accumulator:
        a, b = w.value, w.value
        y = a * b
    assert accumulator.jvp(a).tolist() == [1.0, 0.0]
    assert accumulator.jvp(y).tolist() == [2.0, 0.0]


def test_a_reading_before_the_tape_is_a_constant_and_one_that_is_watched_a_source():
    v = tc.Variable(3.0)
    before = v.value
    with tc.GradientTape(persistent=True) as tape:
        y = before * v
    assert tape.gradient(y, before) is None
    assert tape.gradient(y, v).item() == 3.0
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        a = v.value
        tape.watch(a)
        y = a * v.value
    assert [g if g is None else g.item() for g in tape.gradient(y, [a, v])] == [3.0, None]


def test_a_reading_that_a_compiled_function_gives_back_is_a_tensor_of_its_own():
    v = tc.Variable(3.0)
    read = tc.function(lambda: (v.value, v.value))
    for _ in range(3):
        with tc.GradientTape() as tape:
            a, b = read()
            y = a * a * b
        assert [g.item() for g in tape.gradient(y, [a, b, v])] == [18.0, 9.0, 27.0]


def test_sum_over_readings_inside_transformations():
    v = tc.Variable(3.0)
    assert tc.vmap(tc.grad(lambda x: x * v.value * v.value))(tc.asarray([1.0, 2.0])).tolist() == [9.0, 9.0]
    with tc.GradientTape() as tape:
        y = tc.checkpoint(lambda x: x * v.value * v.value)(tc.asarray(2.0))
    assert tape.gradient(y, v).item() == 12.0
    with tc.GradientTape() as tape:
        y = tc.sum(tc.vmap(lambda x: x * v.value)(tc.asarray([1.0, 2.0])))
    assert tape.gradient(y, v).item() == 3.0
