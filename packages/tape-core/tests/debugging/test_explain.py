"""Why a gradient is None: each way to lose one, as a user writes it, with and without debug=True."""

from __future__ import annotations

import linecache
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
from tape_core.debugging import Explanation

Program = Callable[[bool], tuple[tc.GradientTape, Any, Any]]
PROGRAMS: dict[str, tuple[Program, str, str | None, str]] = {}
"""By name: the program; the reason and the op with debug=True; the reason without."""


def program(reason: str, op: str | None, plain: str) -> Callable[[Program], Program]:
    def note(function: Program) -> Program:
        PROGRAMS[function.__name__] = function, reason, op, plain
        return function

    return note


@program("not-watched", None, "not-watched")
def a_constant(debug: bool) -> Any:
    x = tc.asarray(3.0)
    with tc.GradientTape(debug=debug) as tape:
        y = x * x  # cut
    return tape, y, x


@program("not-watched", None, "not-watched")
def a_variable_that_became_a_tensor(debug: bool) -> Any:
    v = tc.Variable(2.0)
    for _ in range(2):
        with tc.GradientTape(debug=debug) as tape:
            y = v + 1  # cut
        if tape.gradient(y, v) is None:
            break
        v = v + 1  # assign_add would do
    with tc.GradientTape(debug=debug) as tape:
        y = v + 1  # cut
    return tape, y, v


@program("not-watched", None, "not-watched")
def a_frozen_variable(debug: bool) -> Any:
    v = tc.Variable(2.0, trainable=False, name="frozen")
    with tc.GradientTape(debug=debug) as tape:
        y = v * 2.0  # cut
    return tape, y, v


@program("not-watched", None, "not-watched")
def a_variable_that_is_not_accessed(debug: bool) -> Any:
    v = tc.Variable(2.0)
    with tc.GradientTape(watch_accessed_variables=False, debug=debug) as tape:
        y = v * 2.0  # cut
    return tape, y, v


@program("dtype", None, "dtype")
def an_integer(debug: bool) -> Any:
    x = tc.asarray(3)
    with tc.GradientTape(debug=debug) as tape:
        with pytest.warns(UserWarning, match="no derivative"):
            tape.watch(x)
        y = x * 2.0
    return tape, y, x


@program("outside", None, "cut")
def computed_before_the_tape(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    y = tc.sum(x * x)
    with tc.GradientTape(debug=debug) as tape:
        tc.sum(x)
    return tape, y, x


@program("watched-late", "multiply", "cut")
def used_before_it_was_watched(debug: bool) -> Any:
    x = tc.asarray([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        h = x * x  # cut
        tape.watch(x)
        y = tc.sum(h)
    return tape, y, x


def _by_dlpack(t: tc.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.from_dlpack(t)  # cut


def _cut_by(take: Callable[[tc.Tensor], Any]) -> Program:
    def function(debug: bool) -> Any:
        x = tc.Variable([1.0, 2.0])
        with tc.GradientTape(debug=debug) as tape:
            y = tc.asarray(take(tc.sum(tc.sin(x)))) * 2.0  # cut
        return tape, y, x

    return function


WAYS_OUT: list[tuple[str, Callable[[tc.Tensor], Any]]] = [
    ("numpy()", lambda t: t.numpy()),  # cut
    ("item()", lambda t: t.item()),  # cut
    ("tolist()", lambda t: t.tolist()),  # cut
    ("float()", lambda t: math.ulp(t)),  # cut
    ("float()", lambda t: float(t)),  # cut
    ("int()", lambda t: 1.5 * int(t)),  # cut
    ("array", lambda t: t.array),  # cut
    ("__dlpack__", lambda t: _by_dlpack(t)),  # cut
]


@program("integer-cast", "astype", "cut")
def a_cast_to_integers_and_back(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        h = tc.exp(x)
        n = tc.astype(h, tc.int64)  # cut
        y = tc.sum(tc.astype(n, tc.float32))
    return tape, y, x


@program("integer-cast", "astype", "integer-cast")
def a_cast_of_the_target(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        y = tc.astype(x, tc.bool)  # cut
    return tape, y, x


@program("non-differentiable", "argmax", "cut")
def a_place(debug: bool) -> Any:
    x, table = tc.Variable([1.0, 2.0]), tc.asarray([3.0, 4.0])
    with tc.GradientTape(debug=debug) as tape:
        k = tc.argmax(x * 2.0)  # cut
        y = tc.take(table, tc.reshape(k, (1,)))
    return tape, y, x


@program("non-differentiable", "floor", "cut")
def a_step(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        y = tc.floor(x) * 3.0  # cut
    return tape, y, x


@program("non-differentiable", "greater", "cut")
def a_comparison(debug: bool) -> Any:
    x, a = tc.Variable([1.0, 2.0]), tc.asarray([3.0, 4.0])
    with tc.GradientTape(debug=debug) as tape:
        mask = x > 1.5  # cut
        y = tc.where(mask, a, 0.0)
    return tape, y, x


@program("stop_gradient", "stop_gradient", "cut")
def a_stopped_gradient(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        h = tc.exp(x)
        constant = tc.stop_gradient(h)  # cut
        y = tc.sum(constant * 2.0)
    return tape, y, x


@program("stop_gradient", "stop_gradient", "cut")
def a_target_that_is_stopped(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        y = tc.stop_gradient(tc.exp(x))  # cut
    return tape, y, x


@program("stop_recording", "exp", "cut")
def a_stopped_recording(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        tc.sum(x)
        with tape.stop_recording():
            h = tc.exp(x)  # cut
        y = tc.sum(h * 2.0)
    return tape, y, x


_kept: list[Any] = []  # tapes that are still there


@program("another-tape", None, "another-tape")
def another_tape(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape() as other:
        y = tc.sum(x * x)
    _kept.append(other)
    with tc.GradientTape(debug=debug) as tape:
        tc.sum(x)
    return tape, y, x


@program("assigned", "Variable.assign", "independent")
def a_variable_in_between(debug: bool) -> Any:
    x, state = tc.Variable([1.0, 2.0]), tc.Variable([0.0, 0.0], name="state")
    with tc.GradientTape(debug=debug) as tape:
        state.assign(x * 3.0)  # cut
        y = state * state
    return tape, y, x


@program("assigned", "Variable.assign_add", "independent")
def a_variable_that_is_added_to(debug: bool) -> Any:
    x, state = tc.Variable([1.0, 2.0]), tc.Variable([0.0, 0.0], name="state")
    with tc.GradientTape(debug=debug) as tape:
        h = x * 3.0
        state.assign_add(h)  # cut
        y = state * state
    return tape, y, x


@program("independent", None, "independent")
def other_values(debug: bool) -> Any:
    x, w = tc.Variable([1.0, 2.0]), tc.Variable([3.0, 4.0], name="w")
    with tc.GradientTape(debug=debug) as tape:
        tc.sum(x)
        y = tc.sum(w * w)
    return tape, y, x


@program("not-a-tensor", None, "not-a-tensor")
def a_numpy_target(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        y = tc.sum(x).numpy()
    return tape, y, x


@program("not-a-tensor", None, "not-a-tensor")
def a_python_source(debug: bool) -> Any:
    with tc.GradientTape(debug=debug) as tape:
        y = tc.sum(tc.Variable([1.0, 2.0]))
    return tape, y, 3.0


@program("reset", None, "reset")
def a_reset(debug: bool) -> Any:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=debug) as tape:
        y = tc.sum(x * x)
        tape.reset()
        tc.sum(x)
    return tape, y, x


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_debug_it_names_the_reason_the_op_and_the_line(name: str) -> None:
    function, reason, op, _ = PROGRAMS[name]
    tape, target, source = function(True)
    found = tape.explain(target, source)
    assert (found.connected, found.reason, found.op) == (False, reason, op), found.text
    code = "" if found.place is None else linecache.getline(found.place.file, found.place.line)
    if op is not None:
        assert code.endswith("# cut\n"), found.text
        assert found.place is not None
        assert found.place.function == name
    if found.place is not None:
        assert code.strip() in found.text
        assert f'File "{__file__}", line {found.place.line}, in {name}' in found.text
    assert str(found) == repr(found) == found.text


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_debug_it_says_what_the_records_tell(name: str) -> None:
    function, _, _, reason = PROGRAMS[name]
    tape, target, source = function(False)
    found = tape.explain(target, source)
    assert (found.connected, found.reason, found.place) == (False, reason, None), found.text
    if reason == "cut":
        assert "GradientTape(debug=True) tells where" in found.text


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.filterwarnings("ignore:GradientTape.gradient. a tensor of dtype")
def test_it_agrees_with_the_gradient(name: str, debug: bool) -> None:
    if PROGRAMS[name][1] != "not-a-tensor":
        tape, target, source = PROGRAMS[name][0](debug)
        assert tape.gradient(target, source) is None


@pytest.mark.parametrize(("how", "take"), WAYS_OUT, ids=[f"{k}-{how}" for k, (how, _) in enumerate(WAYS_OUT)])
def test_where_values_left(how: str, take: Callable[[tc.Tensor], Any]) -> None:
    tape, target, source = _cut_by(take)(True)
    found = tape.explain(target, source)
    assert (found.reason, found.op) == ("left", how), found.text
    assert found.place is not None
    assert linecache.getline(found.place.file, found.place.line).endswith("# cut\n")
    assert [step.op for step in found.path] == ["sin", "sum"], "as far as the path goes"
    plain, target, source = _cut_by(take)(False)
    assert plain.explain(target, source).reason == "cut"
    assert "numpy(), item() or float()" in plain.explain(target, source).text


def test_a_numpy_array_made_in_passing() -> None:
    x = tc.Variable([1.0, 2.0])
    with tc.GradientTape(debug=True) as tape:
        h = tc.exp(x)
        with pytest.warns(UserWarning, match="NumPy array is made of a Tensor"):
            y = tc.asarray(np.asarray(h), backend=x.backend.name) * x
    found = tape.explain(y, h)
    assert (found.reason, found.op) == ("left", "__array__")
    assert tape.explain(y, x).connected, "by the other factor"


def test_printing_and_logging_are_no_cut() -> None:
    """What is read out but not computed with is not to blame."""
    x, w = tc.Variable([1.0, 2.0]), tc.Variable([1.0, 2.0], name="w")
    with tc.GradientTape(debug=True) as tape:
        h = tc.sum(x)
        texts = [repr(h), str(tc.zeros_like(h)), f"{h}"]
        y = tc.sum(w * w)
        h.item()
    assert len(texts) == 3
    assert tape.explain(y, x).reason == "independent"
    assert "Variable 'w' of shape (2,)" in tape.explain(y, x).text


# -- connected


@pytest.mark.parametrize("debug", [False, True])
def test_the_path_of_what_is_connected(debug: bool) -> None:
    x, w = tc.asarray([1.0, 2.0]), tc.Variable([[1.0, 2.0], [3.0, 4.0]])

    def layer(h: tc.Tensor) -> tc.Tensor:
        return tc.tanh(h @ w)

    with tc.GradientTape(debug=debug) as tape:
        tape.watch(x)
        y = tc.sum(layer(x))
    found = tape.explain(y, x)
    assert found.connected
    assert found.reason == "connected"
    assert [step.op for step in found.path] == ["matmul", "tanh", "sum"]
    assert "by 3 ops" in found.text
    if debug:
        assert [(step.shape, step.dtype) for step in found.path] == [
            ((2,), "float32"),
            ((2,), "float32"),
            ((), "float32"),
        ]
        assert found.path[0].place is not None
        assert found.path[0].place.function.endswith("layer")
        assert "return tc.tanh(h @ w)" in found.text
    assert tape.explain(y, y).connected
    assert tape.explain(y, x) == found, "asking is no use of the tape"
    assert tape.gradient(y, x) is not None


def test_a_path_of_several_results_and_of_functions_as_one_op() -> None:
    x = tc.Variable([[2.0, 1.0], [1.0, 3.0]])

    @tc.custom_gradient
    def double(t: tc.Tensor) -> Any:
        return 2 * t, lambda g: 2 * g

    again = tc.checkpoint(tc.exp)
    for debug in (False, True):
        with tc.GradientTape(debug=debug) as tape:
            q, r = tc.linalg.qr(again(double(x)))
            y = tc.sum(r)
        found = [step.op for step in tape.explain(y, x).path]
        assert found == ["custom_gradient(double)", "checkpoint(exp)", "qr", "sum"]
        assert tape.explain(q, y).reason == "independent"


def test_a_long_path_is_shortened_in_print() -> None:
    x = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y: Any = x
        for _ in range(100):
            y = y * 1.01
    found = tape.explain(y, x)
    assert len(found.path) == 100
    assert "... 88 more ..." in found.text
    assert len(found.text.splitlines()) == 14


# -- structures, states


def test_structures_are_explained_pair_by_pair() -> None:
    x, c = tc.Variable(1.0, name="x"), tc.asarray(2.0)
    with tc.GradientTape() as tape:
        y, z = x * c, c * c
    found = tape.explain([y, z], {"x": x, "c": c})
    assert not found.connected
    assert found.reason == "not-watched", "of the first source that no target depends on"
    assert [part.connected for part in found.parts] == [False, False, True, False]
    assert tape.explain([y, z], [x]).connected, "by one of the targets"
    assert "Tensor['c']" in found.text
    assert "target[1]" in found.text
    assert tape.explain([], x).parts == ()


def test_a_used_tape_says_so_unless_it_debugs() -> None:
    def run(**options: Any) -> Explanation:
        x, w = tc.Variable(1.0), tc.Variable(2.0)
        with tc.GradientTape(**options) as tape:
            y = x * 2.0
            z = w * w
        assert tape.gradient(y, w) is None
        assert tape.explain(z, tc.asarray(1.0)).reason == "not-watched", "this much is known of any tape"
        return tape.explain(y, w)

    found = run()
    assert (found.reason, found.connected) == ("used", False)
    assert found.text.startswith("it is not known whether")
    assert "persistent=True or debug=True" in found.text
    assert run(persistent=True).reason == "independent"
    assert run(debug=True).reason == "independent"


def test_a_debugging_tape_still_knows_the_path_after_its_gradient() -> None:
    x = tc.Variable(3.0)
    with tc.GradientTape(debug=True) as tape:
        y = x * x
        assert tape.explain(y, x).connected, "inside the block, too"
    assert tape.gradient(y, x).item() == 6.0  # type: ignore[attr-defined]
    assert [step.op for step in tape.explain(y, x).path] == ["multiply"]
    with tape:
        z = tc.exp(x)
    assert [step.op for step in tape.explain(z, x).path] == ["exp"], "entered again it is a fresh tape"
    assert tape.explain(y, x).reason == "reset"


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_unconnected_error_raises_with_the_explanation(debug: bool, persistent: bool) -> None:
    x, w = tc.Variable([1.0, 2.0]), tc.Variable([1.0, 2.0], name="w")

    def tape_and_target() -> Any:
        with tc.GradientTape(persistent=persistent, debug=debug) as tape:
            y = tc.floor(x) * w  # cut
        return tape, y

    for method, shape in (("gradient", ()), ("jacobian", ()), ("batch_jacobian", (2, 1))):
        tape, y = tape_and_target()
        source: Any = x
        if shape:
            with tape:
                source = tc.Variable(tc.ones(shape))
                y = tc.reshape(y, shape)
        with pytest.raises(ValueError, match=f"{method}: the target does not depend on the source Variable") as caught:
            getattr(tape, method)(y, source, unconnected_gradients="error")
        if not shape:
            assert "the target was computed from other values: Variable 'w' of shape (2,)" in str(caught.value) or debug
            assert ("floor has no derivative" in str(caught.value)) is debug
        if not persistent:
            with pytest.raises(RuntimeError, match="non-persistent"):
                tape.gradient(y, w)
    tape, y = tape_and_target()
    assert tape.gradient(y, w, unconnected_gradients="error").tolist() == [1.0, 2.0]


def test_unconnected_error_where_a_rule_gives_none() -> None:
    @tc.custom_gradient
    def nothing(t: tc.Tensor) -> Any:
        return t * 2.0, lambda g: None

    x = tc.Variable(1.0)
    with tc.GradientTape() as tape:
        y = nothing(x)
    with pytest.raises(ValueError, match="recorded a path from one to the other, but an op on it gave no gradient"):
        tape.gradient(y, x, unconnected_gradients="error")


def test_it_shows_in_notebooks_escaped() -> None:
    x = tc.Variable(1.0, name="<b>")
    with tc.GradientTape() as tape:
        y = tc.asarray(1.0)
    html = tape.explain(y, x)._repr_html_()
    assert html.startswith("<pre>")
    assert "&lt;b&gt;" in html
