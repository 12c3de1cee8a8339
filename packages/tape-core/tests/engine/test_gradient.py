"""GradientTape.gradient: the section "gradient" of the semantics, a test for each row."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from support import gradient
from tape_core.extend import op, registry, vjp

SPENT = (
    r"^A non-persistent GradientTape can only be used to compute one set of gradients "
    r"\(or jacobians\)$"
)


# -- structures


Pair = namedtuple("Pair", "left right")


def test_the_result_has_the_structure_of_the_sources() -> None:
    a, b, c = tc.Variable(2.0), tc.Variable(3.0), tc.Variable(5.0)
    with tc.GradientTape(persistent=True) as tape:
        y = a * b
    assert tape.gradient(y, a).item() == 3.0
    da, db, dc = found = tape.gradient(y, [a, b, c])
    assert type(found) is list
    assert (da.item(), db.item(), dc) == (3.0, 2.0, None)
    assert type(tape.gradient(y, (a, b))) is tuple
    nested = tape.gradient(y, {"z": a, "a": [b, (c,)]})
    assert list(nested) == ["z", "a"], "the order of the dict is kept"
    assert nested["z"].item() == 3.0
    assert type(nested["a"][1]) is tuple
    assert nested["a"][1] == (None,)
    pair = tape.gradient(y, Pair(b, a))
    assert type(pair) is Pair
    assert (pair.left.item(), pair.right.item()) == (2.0, 3.0)
    assert type(tape.gradient(y, OrderedDict(k=a))) is OrderedDict
    assert type(tape.gradient(y, defaultdict(list, k=a))) is defaultdict
    assert type(tape.gradient(y, {"k": a}.values())) is list
    assert tape.gradient(y, []) == []
    assert tape.gradient(y, {}) == {}


def test_the_same_source_twice_gives_the_gradient_twice() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
    assert [g.item() for g in tape.gradient(y, [v, v])] == [6.0, 6.0]


def test_a_gradient_has_the_dtype_shape_and_type_of_its_source() -> None:
    v = tc.Variable([[1.0, 2.0]])
    wide = tc.ones((3, 1), dtype="float64")
    with tc.GradientTape() as tape:
        y = tc.astype(v, "float64") * wide + v * wide + np.ones((1, 2))
    g = tape.gradient(y, v)
    assert type(g) is tc.Tensor
    assert (g.dtype, g.shape) == (tc.float32, (1, 2))
    assert g.tolist() == [[6.0, 6.0]]


# -- targets


def test_a_target_that_is_no_scalar_counts_as_the_sum_of_its_elements() -> None:
    assert gradient(lambda x: x * x, tc.asarray([1.0, 2.0, 3.0])).tolist() == [2.0, 4.0, 6.0]


def test_targets_add_up_and_may_be_nested() -> None:
    v = tc.Variable(2.0)
    with tc.GradientTape(persistent=True) as tape:
        y, z = v * v, v * 3.0
    assert tape.gradient([y, z], v).item() == 7.0
    assert tape.gradient({"a": y, "b": [z, (y,)]}, v).item() == 11.0
    assert tape.gradient({"a": y}.values(), v).item() == 4.0
    assert tape.gradient([y, y], v).item() == 8.0


def test_no_targets() -> None:
    v = tc.Variable([2.0, 1.0])
    with tc.GradientTape(persistent=True) as tape:
        _ = v * v
    assert tape.gradient([], v) is None
    assert tape.gradient([], v, unconnected_gradients="zero").tolist() == [0.0, 0.0]


def test_a_target_that_is_the_source_or_a_variable_has_ones() -> None:
    v, x, unread = tc.Variable([2.0, 3.0]), tc.asarray(5.0), tc.Variable(1.0)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = v * x
    assert tape.gradient(v, v).tolist() == [1.0, 1.0]
    assert tape.gradient(x, x).item() == 1.0
    assert tape.gradient(y, y).tolist() == [1.0, 1.0]
    assert tape.gradient(unread, unread).item() == 1.0
    assert tape.gradient(unread, v) is None
    constant = tc.asarray(4.0)
    assert tape.gradient(constant, constant).item() == 1.0
    assert tape.gradient([constant, constant], [constant])[0].item() == 2.0


def test_identity_and_mixtures_with_it() -> None:
    x = tc.asarray(2.0)
    assert gradient(lambda x: x, x).item() == 1.0
    assert gradient(lambda x: [x, x], x).item() == 2.0
    assert gradient(lambda x: [x, x * x], x).item() == 5.0
    v = tc.Variable(2.0)
    assert gradient(lambda v: [v, v * v], v).item() == 5.0
    assert gradient(lambda x: tc.asarray(x), x).item() == 1.0
    assert gradient(lambda x: +x, x).item() == 1.0


def test_a_variable_as_target_after_it_was_assigned_to() -> None:
    v = tc.Variable(2.0)
    with tc.GradientTape() as tape:
        y = v * v
        v.assign(5.0)
    assert tape.gradient([y, v], v).item() == 5.0


def test_a_source_may_be_an_intermediate_result() -> None:
    x = tc.ones((2, 2))
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tc.sum(x)
        z = y * y
    assert tape.gradient(z, y).item() == 8.0
    dx, dy = tape.gradient(z, [x, y])
    assert (dx.tolist(), dy.item()) == ([[8.0, 8.0], [8.0, 8.0]], 8.0)
    assert tape.gradient(y, z) is None, "downstream of the target"


def test_an_intermediate_result_of_what_is_not_watched_is_unconnected() -> None:
    x = tc.ones((2,))
    with tc.GradientTape() as tape:
        y = x * x
        z = y * y
    assert tape.gradient(z, [x, y]) == [None, None]


def test_sources_do_not_block_each_other() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape() as tape:
        tape.watch(x)
        a = x * 3.0
        b = a * a
        c = b * x
    found = tape.gradient(c, [x, a, b])
    assert [g.item() for g in found] == [36.0 + 2 * 6.0 * 2.0 * 3.0, 24.0, 2.0]


# -- output_gradients


def test_output_gradients_seed_the_sweep_one_per_target() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape(persistent=True) as tape:
        y, z = v * v, tc.sum(v)
    assert tape.gradient(y, v, output_gradients=tc.asarray([3.0, 5.0])).tolist() == [6.0, 20.0]
    assert tape.gradient(y, v, [3.0, 5.0]).tolist() == [6.0, 20.0]
    assert tape.gradient(y, v, np.asarray([3, 5])).tolist() == [6.0, 20.0]
    assert tape.gradient(y, v, [tc.asarray([3.0, 5.0])]).tolist() == [6.0, 20.0]
    assert tape.gradient(z, v, 2).tolist() == [2.0, 2.0]
    both = tape.gradient([y, z], v, output_gradients=[tc.asarray([3.0, 5.0]), tc.asarray(10.0)])
    assert both.tolist() == [16.0, 30.0]
    named = {"a": tc.asarray([3.0, 5.0]), "b": tc.asarray(10.0)}
    assert tape.gradient({"b": z, "a": y}, v, named).tolist() == [16.0, 30.0]
    assert tape.gradient([y, z], v, [None, tc.asarray(10.0)]).tolist() == [12.0, 14.0]
    assert tape.gradient(y, v, tc.Variable([3.0, 5.0])).tolist() == [6.0, 20.0]


def test_output_gradients_of_a_target_that_is_the_source() -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        pass
    assert tape.gradient(v, v, [3.0, 4.0]).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("seed", [1.0, [1.0, 2.0, 3.0], np.ones((1, 2)), tc.ones(3)], ids=np.shape)
def test_output_gradients_of_another_shape_name_both_shapes(seed: Any) -> None:
    v = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as tape:
        y = v * v
    shape = np.shape(seed)
    with pytest.raises(ValueError, match="output_gradients") as caught:
        tape.gradient(y, v, output_gradients=seed)
    assert f"shape {shape}" in str(caught.value)
    assert "shape (2,)" in str(caught.value)
    assert tape.gradient(y, v).tolist() == [2.0, 4.0], "a wrong argument does not use up the tape"


@pytest.mark.parametrize("seeds", [[1.0], [1.0, 1.0, 1.0], 1.0], ids=repr)
def test_output_gradients_in_another_number(seeds: Any) -> None:
    v = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y = [v * v, v + v]
    n = len(seeds) if isinstance(seeds, list) else 1
    with pytest.raises(ValueError, match=f"output_gradients has {n} leaves, target has 2"):
        tape.gradient(y, v, output_gradients=seeds)


def test_output_gradients_are_differentiable_for_an_outer_tape() -> None:
    v, w = tc.Variable(3.0), tc.Variable(5.0)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = v * v
        g = inner.gradient(y, v, output_gradients=w)
    assert g.item() == 30.0
    assert [d.item() for d in outer.gradient(g, [v, w])] == [10.0, 6.0]


# -- unconnected_gradients


def test_unconnected_is_none_or_zeros_of_the_sources_shape_and_dtype() -> None:
    v, unread = tc.Variable(1.0), tc.Variable([[1.0, 2.0]], dtype="float64")
    complex_ = tc.asarray([1j])
    with tc.GradientTape(persistent=True) as tape:
        y = v * v
    assert tape.gradient(y, [unread, complex_]) == [None, None]
    assert tape.gradient(y, unread, unconnected_gradients="none") is None
    dv, zero, dz = tape.gradient(y, [v, unread, complex_], unconnected_gradients="zero")
    assert dv.item() == 2.0
    assert (zero.tolist(), zero.dtype, dz.dtype) == ([[0.0, 0.0]], tc.float64, tc.complex64)
    with pytest.warns(UserWarning, match="int64 has no derivative"):
        integer = tape.gradient(y, tc.asarray([1, 2]), unconnected_gradients="zero")
    assert (integer.tolist(), integer.dtype) == ([0, 0], tc.int64)
    table = tape.gradient(y, tc.Variable(tc.ones((3, 2))), unconnected_gradients="zero")
    assert isinstance(table, tc.Tensor), "dense, also where a gather would give slices"


@pytest.mark.parametrize("method", [lambda v: tc.stop_gradient(v * v), tc.floor, tc.sign])
def test_unconnected_zero_of_paths_that_are_cut(method: Any) -> None:
    v = tc.Variable(1.5)
    with tc.GradientTape() as tape:
        y = method(v)
    assert tape.gradient(y, v, unconnected_gradients="zero").item() == 0.0


def test_unconnected_error_says_why() -> None:
    v, x = tc.Variable(1.0), tc.asarray([1.0, 2.0])
    frozen, count = tc.Variable(1.0, trainable=False, name="bias"), tc.Variable(3, name="n")
    for source, reason in [
        (x, r"Tensor\['k'\] of shape \(2,\), dtype float32: it was not watched \(tape\.watch"),
        (tc.Variable(2.0), "it was not read inside the tape's context"),
        (frozen, "Variable 'bias'.*made with trainable=False"),
        (count, "Variable 'n'.*dtype int64 has no derivative.*dtype=float32"),
    ]:
        with tc.GradientTape() as tape:
            y = v * v
        with pytest.raises(ValueError, match="the target does not depend on the source") as caught:
            tape.gradient(y, {"k": source}, unconnected_gradients="error")
        assert re.search(reason, str(caught.value))
    with tc.GradientTape(watch_accessed_variables=False) as tape:
        y = v * v
    with pytest.raises(ValueError, match="watch_accessed_variables=False"):
        tape.gradient(y, v, unconnected_gradients="error")
    with tc.GradientTape() as tape:
        y = v * v
    assert tape.gradient(y, v, unconnected_gradients="error").item() == 2.0


@pytest.mark.parametrize("value", ["bad", "ZERO", None, 0], ids=repr)
def test_unconnected_gradients_of_another_value_lists_the_valid_ones(value: Any) -> None:
    v = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y = v * v
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients") as caught:
        tape.gradient(y, v, unconnected_gradients=value)
    text = f"Unknown value for unconnected_gradients: {value!r}; use 'none', 'zero' or 'error'"
    assert str(caught.value) == text
    assert tape.gradient(y, v).item() == 2.0


# -- arguments that are no tensors


@pytest.mark.parametrize("bad", ["x", 3.0, np.ones(2), None, {1.0}, object], ids=repr)
def test_a_source_or_target_that_is_no_tensor_is_named_with_its_path(bad: Any) -> None:
    v = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y = v * v
    kind = repr(type(bad).__name__)
    for argument, call in [
        (r"sources must", lambda: tape.gradient(y, bad)),
        (r"sources\['w'\]\[1\]", lambda: tape.gradient(y, {"w": [v, bad]})),
        (r"target must", lambda: tape.gradient(bad, v)),
        (r"target\[0\]", lambda: tape.gradient([bad, y], v)),
    ]:
        with pytest.raises(TypeError, match=f"gradient: {argument}") as caught:
            call()
        assert kind in str(caught.value)
    assert tape.gradient(y, v).item() == 2.0, "wrong arguments do not use up the tape"


def test_a_number_as_target_says_that_it_is_not_connected() -> None:
    """`float(tc.sum(y))` is a number: making a Tensor of it again would give None for a gradient."""
    v = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y = float(v * v)
    with pytest.raises(TypeError, match=r"no longer connected.*take the number, by item\(\) or float\(\)"):
        tape.gradient(y, v)


def test_a_none_target_hints_at_an_unconnected_gradient() -> None:
    with tc.GradientTape() as tape:
        pass
    with pytest.raises(TypeError, match="was it the gradient of something unconnected"):
        tape.gradient(None, tc.Variable(1.0))


# -- persistent or not


def test_a_second_call_on_a_tape_that_is_not_persistent() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y, z = v * v, v * 5.0
    assert tape.gradient(y, v).item() == 6.0
    with pytest.raises(RuntimeError, match=SPENT):
        tape.gradient(z, v)


def test_a_persistent_tape_gives_any_number_of_gradients() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape(persistent=True) as tape:
        y = v * v
        z = y * y
    assert tape.gradient(z, v).item() == 108.0
    assert tape.gradient(y, v).item() == 6.0
    assert tape.gradient(z, y).item() == 18.0
    with tape:
        w = z * v
    assert tape.gradient(w, v).item() == 405.0


def test_inside_the_context_a_tape_that_is_not_persistent_stops() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
        assert tape.gradient(y, v).item() == 6.0
        z = v * v
    with pytest.raises(RuntimeError, match=SPENT):
        tape.gradient(z, v)


def test_inside_the_context_a_persistent_tape_records_its_gradient_and_warns() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape(persistent=True) as tape:
        y = v * v * v
        with pytest.warns(UserWarning, match="inside the context of a persistent tape") as found:
            g = tape.gradient(y, v)
    assert found[0].filename == __file__
    assert (g.item(), tape.gradient(g, v).item()) == (27.0, 18.0)


def test_an_error_in_the_sweep_uses_up_a_tape_that_is_not_persistent() -> None:
    def rule(xp: Any, g: Any) -> Any:
        raise ZeroDivisionError("mine")

    @op(x=vjp(rule), kernel=lambda xp, x: x * 1.0)
    def failing_for_test(x: Any, /) -> Any:
        """Its rule raises."""

    v = tc.Variable(3.0)
    try:
        with tc.GradientTape() as tape:
            y = failing_for_test(v)
        with pytest.raises(ZeroDivisionError, match="mine"):
            tape.gradient(y, v)
        with pytest.raises(RuntimeError, match=SPENT):
            tape.gradient(y, v)
        with tc.GradientTape(persistent=True) as tape:
            z = v * v
            y = failing_for_test(z)
        with pytest.raises(ZeroDivisionError, match="mine"):
            tape.gradient(y, v)
        assert tape.gradient(z, v).item() == 6.0, "a persistent one goes on"
    finally:
        registry._ops.pop("failing_for_test")


def test_a_finished_tape_can_be_used_while_another_records_or_not() -> None:
    v = tc.Variable(3.0)
    with tc.GradientTape() as tape:
        y = v * v
    with tc.GradientTape() as later:
        g = tape.gradient(y, v)
    assert g.item() == 6.0
    assert later.gradient(g, v) is None, "the later tape has not seen v"


def test_a_later_tape_that_watches_records_the_earlier_tapes_sweep() -> None:
    x, c = tc.asarray([2.0, 3.0]), tc.asarray([1.0, 5.0])
    for f in (lambda x: x * x, lambda x: x**2, tc.square, lambda x: tc.vecdot(x, x)):
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(f(x) * c) if f(x).shape else f(x)
        with tc.GradientTape() as later:
            later.watch([x, c])
            g = tape.gradient(y, x)
        scale = [1.0, 1.0] if not f(x).shape else [1.0, 5.0]
        assert g.tolist() == [4.0 * scale[0], 6.0 * scale[1]]
        assert later.gradient(g, x).tolist() == [2.0 * s for s in scale]
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(x * c)
    with tc.GradientTape() as later:
        later.watch(c)
        g = tape.gradient(y, x)
    assert later.gradient(g, c).tolist() == [1.0, 1.0], "also a constant that was not watched"


# -- higher order


def test_tapes_nest_to_any_order() -> None:
    x = tc.Variable(1.0)
    with tc.GradientTape() as third, tc.GradientTape() as second:
        with tc.GradientTape() as first:
            y = x * x * x
        dy = first.gradient(y, x)
        ddy = second.gradient(dy, x)
    assert (dy.item(), ddy.item(), third.gradient(ddy, x).item()) == (3.0, 6.0, 6.0)


def test_the_inner_gradient_must_be_computed_while_the_outer_records() -> None:
    x = tc.Variable(2.0)
    with tc.GradientTape() as outer, tc.GradientTape() as inner:
        y = x * x * x
    g = inner.gradient(y, x)
    assert outer.gradient(g, x) is None


def test_constants_must_be_watched_by_every_tape() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = x * x * x
        g = inner.gradient(y, x)
    assert outer.gradient(g, x) is None


def test_a_second_derivative_is_none_where_the_rule_does_not_use_the_source() -> None:
    def second(f: Any, at: float) -> Any:
        x = tc.Variable(at)
        with tc.GradientTape() as outer:
            with tc.GradientTape() as inner:
                y = f(x)
            g = inner.gradient(y, x)
        return outer.gradient(g, x)

    assert second(lambda x: 3.0 * x, 2.0) is None
    assert second(lambda x: x + x, 2.0) is None
    assert second(tc.sum, 2.0) is None
    assert second(lambda x: x**1, 2.0).item() == 0.0
    assert second(tc.abs, 2.0).item() == 0.0
    assert second(lambda x: x**2, 2.0).item() == 2.0


def test_higher_order_through_a_gather() -> None:
    v, i = tc.Variable([[1.0], [2.0], [3.0]]), tc.asarray([2, 0, 2])
    with tc.GradientTape() as outer:
        with tc.GradientTape() as inner:
            y = tc.sum(tc.gather(v, i) ** 3)
        g = inner.gradient(y, v).densify()
    assert g.tolist() == [[3.0], [0.0], [54.0]]
    assert outer.gradient(g, v).densify().tolist() == [[6.0], [0.0], [36.0]]


# -- copies


def test_a_copy_of_a_variable_is_another_variable() -> None:
    """Models with Variables are copied with their values. (Copies of Tensors: see test_in_place.)"""
    v = tc.Variable([3.0], name="w", trainable=False)
    twin = copy.deepcopy(v)
    twin.assign([5.0])
    assert (v.item(), twin.item(), twin.name, twin.trainable) == (3.0, 5.0, "w", False)
    assert (type(twin), twin.backend) == (tc.Variable, v.backend)


def test_stop_gradient_is_the_identity_and_nothing_flows_back() -> None:
    x = tc.asarray(2.0)
    with tc.GradientTape(persistent=True) as tape:
        tape.watch(x)
        with tc.GradientTape() as inner:
            inner.watch(x)
            y = tc.stop_gradient(x) * x
        first = inner.gradient(y, x)
        stopped = tc.stop_gradient(x * x)
    assert y.item() == 4.0
    assert first.item() == 2.0
    assert tape.gradient(first, x) is None
    assert tape.gradient(stopped, x) is None
