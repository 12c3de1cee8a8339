"""Compiled functions: what they compute is what they compute eagerly, to the last bit, in every call."""

from __future__ import annotations

import gc
import linecache
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
from support import leaves, same, values
from tape_compile.passes import PASSES
from tape_core import function
from tape_core.staging import TracingError


def assert_same_in_each_call(f: Callable[..., Any], *arguments: tuple[Any, ...]) -> None:
    compiled = function(f)
    for args in (*arguments, *arguments):
        expected, found = f(*args), compiled(*args)
        for e, c in zip(leaves(expected), leaves(found), strict=True):
            assert same(e, c)
    assert compiled.traces == 1


def test_values_and_gradients_are_those_of_eager_calls() -> None:
    w = values(3, 4)

    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.tanh(x @ w) ** 2) + tc.mean(tc.softmax(x)[:, 1:])
        return y, tape.gradient(y, x)

    assert_same_in_each_call(f, (values(5, 3, seed=1),), (values(5, 3, seed=2),))


def test_the_python_function_runs_once_for_arguments_of_one_kind() -> None:
    calls = []

    @function
    def f(x: Any) -> Any:
        calls.append(x.shape)
        return x * 2

    for shape in ((2,), (2,), (3,), (2,), (3,)):
        assert f(tc.ones(shape)).shape == shape
    assert calls == [(2,), (3,)]
    assert f(tc.ones(2, dtype="float64")).dtype is tc.float64


def test_jacobians_vmap_and_derivatives_of_derivatives() -> None:
    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sin(x) * tc.sum(x)
        return tape.jacobian(y, x), tc.vmap(lambda row: row / tc.sum(row * row))(tc.outer(x, x))

    def second(x: Any) -> Any:
        with tc.GradientTape() as outer:
            outer.watch(x)
            with tc.GradientTape() as inner:
                inner.watch(x)
                y = tc.sum(x**3 * tc.exp(x))
            g = inner.gradient(y, x)
        return outer.jacobian(g, x), tc.hessian(lambda x: tc.sum(tc.cos(x) ** 2))(x), tc.jvp(tc.tanh, (x,), (x,))

    assert_same_in_each_call(f, (values(4),), (values(4, seed=1),))
    assert_same_in_each_call(second, (values(3),), (values(3, seed=1),))


def test_variables_are_read_and_assigned_in_each_call() -> None:
    def training(compiled: bool) -> Any:
        w, b, unused = tc.Variable(values(3, 2)), tc.Variable(tc.zeros(2)), tc.Variable(1.0)

        def step(x: Any) -> Any:
            with tc.GradientTape() as tape:
                loss = tc.sum(tc.tanh(x @ w + b) ** 2) + tc.sum(w * w)
            gw, gb = tape.gradient(loss, [w, b])
            w.assign_sub(0.1 * gw)
            b.assign(b - 0.1 * gb)
            return loss

        run = function(step) if compiled else step
        losses = [run(values(4, 3, seed=k)) for k in range(3)]
        w.assign(w * 0.5)  # from outside
        losses.append(run(values(4, 3, seed=9)))
        return losses, [w.value, b.value, unused.value]

    for a, b in zip(leaves(list(training(True))), leaves(list(training(False))), strict=True):
        assert same(a, b)


def test_a_variable_keeps_what_records_and_callers_have_of_it() -> None:
    v = tc.Variable([1.0, 2.0])
    before = v.value

    @function
    def step() -> Any:
        old = v.value
        v.assign_add([1.0, 1.0])
        return old, v.value

    for k in range(3):
        old, new = step()
        assert (old.tolist(), new.tolist()) == ([1.0 + k, 2.0 + k], [2.0 + k, 3.0 + k])
    assert before.tolist() == [1.0, 2.0]
    assert v.tolist() == [4.0, 5.0]


def test_random_numbers_are_drawn_in_each_call() -> None:
    def f(x: Any) -> Any:
        return tc.dropout(x, 0.5) + tc.random.global_rng().normal((8,)), tc.default_rng(3).integers(0, 9, (2,))

    tc.set_seed(1)
    eager = [f(tc.ones(8)) for _ in range(3)]
    tc.set_seed(1)
    compiled = function(f)
    for expected in eager:
        for e, c in zip(expected, compiled(tc.ones(8)), strict=True):
            assert same(e, c)
    tc.set_seed(1)
    assert same(compiled(tc.ones(8))[0], eager[0][0])


def test_what_is_checkpointed_is_replayed_with_its_random_numbers() -> None:
    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.checkpoint(lambda x: tc.dropout(tc.sin(x), 0.5) * x)(x))
        return y, tape.gradient(y, x), tc.random.global_rng().uniform((2,))

    tc.set_seed(1)
    eager = [f(tc.ones(8)) for _ in range(3)]
    tc.set_seed(1)
    compiled = function(f)
    for expected in eager:
        for e, c in zip(expected, compiled(tc.ones(8)), strict=True):
            assert same(e, c)


def test_what_decides_by_a_value_is_refused_with_the_line_and_a_way_out() -> None:
    v = tc.Variable(1.0)

    @function
    def f(x: Any) -> Any:
        v.assign_add(1.0)
        if tc.sum(x) > 0:
            return x
        return -x

    with pytest.raises(TracingError, match=r"f is compiled.*test_function.py:\d+, in .*tape_core.where.*static_argnam"):
        f(tc.ones(2))
    assert v.item() == 1.0  # nothing has happened
    for take in (lambda x: x.item(), lambda x: x.numpy(), lambda x: x.tolist(), float, int, lambda x: [1, 2][x]):
        with pytest.raises(TracingError):
            function(lambda x, take=take: take(x))(tc.asarray(1))
    with pytest.raises(TracingError, match="shape of the result of nonzero"):
        function(tc.nonzero)(tc.ones(2))
    with pytest.raises(TracingError, match="shape of the result"):
        function(lambda x: x[x > 0])(tc.ones(2))


def test_with_fallback_it_runs_as_it_is_and_says_so_once() -> None:
    v = tc.Variable(0.0)

    @function(fallback=True)
    def f(x: Any) -> Any:
        v.assign_add(1.0)
        return x * 2 if tc.sum(x) > 0 else -x

    with pytest.warns(UserWarning, match="f is not compiled for these arguments"):
        assert f(tc.ones(2)).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(-tc.ones(2)).tolist() == [1.0, 1.0]
    assert v.item() == 2.0


def test_python_values_are_static_and_named_ones_may_be_anything_hashable() -> None:
    traced = []

    @function(static_argnames="activation")
    def f(x: Any, scale: float, activation: Any = tc.tanh) -> Any:
        traced.append((scale, activation.__name__))
        return activation(x) * scale

    x = values(3)
    for scale, activation in ((1.0, tc.sin), (2.0, tc.sin), (1.0, tc.cos), (2.0, tc.sin)):
        assert same(f(x, scale, activation=activation), activation(x) * scale)
    assert traced == [(1.0, "sin"), (2.0, "sin"), (1.0, "cos")]
    assert same(f(x, 0.5), tc.tanh(x) * 0.5)
    with pytest.raises(ValueError, match="static_argnames has 'wrong'; the parameters of f are x"):
        function(static_argnames=["wrong"])(f.python)
    with pytest.raises(TypeError, match="static_argnames must be a parameter's name, or several, got 1"):
        function(static_argnames=1)(f.python)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"f: argument \['scale'\] is a set.*hashable"):
        f(x, {1})


def test_arguments_and_results_are_nested_as_in_python() -> None:
    @function
    def f(batch: Any, *, options: Any) -> Any:
        return {"sum": batch["a"] + batch["b"][0], "same": batch["a"], "text": options["text"], "none": None}, 3

    batch = {"a": tc.ones(2), "b": [tc.ones(2), tc.zeros(3)]}
    for _ in range(2):
        found, three = f(batch, options={"text": "x"})
        assert found["sum"].tolist() == [2.0, 2.0]
        assert found["same"].tolist() == [1.0, 1.0]
        assert (found["text"], found["none"], three) == ("x", None, 3)


def test_raw_arrays_come_in_as_tensors() -> None:
    raw = tc.ones(3).array

    @function
    def f(x: Any) -> Any:
        return x + 1

    assert f(raw).tolist() == f(tc.ones(3)).tolist() == [2.0] * 3


def test_constants_may_meet_what_is_traced_in_any_way() -> None:
    table, places = values(5, 2), tc.asarray([0, 2])
    v = tc.Variable(tc.zeros((5, 2)))

    def f(x: Any, k: Any) -> Any:
        picked = table[k], x[places], tc.take(table, k, axis=0), tc.gather(v, k)
        made = tc.zeros(2)
        made[0] = x[0, 0]
        v.assign(table)
        v.assign_add(x)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = x * table
        g = tape.gradient(y, x, output_gradients=table)
        return (
            *picked, made, v.value, g, tc.vmap(lambda row: row @ x[0])(table), tc.concat([x, table]),
            tc.where(table > 0, x, 0), tc.asarray(table, dtype="float64") * tc.astype(x, "float64"),
        )  # fmt: skip

    def run(f: Any) -> Any:
        v.assign(tc.zeros((5, 2)))
        return [f(values(5, 2, seed=k), tc.asarray([k, 1])) for k in range(3)]

    for e, c in zip(leaves(run(f)), leaves(run(function(f))), strict=True):
        assert same(e, c)


def test_a_variable_made_in_the_first_call_stays() -> None:
    held: list[tc.Variable] = []

    @function
    def f(x: Any) -> Any:
        if not held:
            held.append(tc.Variable(tc.ones(2)))
        held[0].assign_add(x)
        return held[0] * 2

    assert [f(tc.ones(2)).tolist()[0] for _ in range(4)] == [4.0, 6.0, 8.0, 10.0]
    assert f.traces == 1

    @function
    def always(x: Any) -> Any:
        return tc.Variable(x) * 2

    assert always(tc.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="makes a Variable again"):
        always(tc.ones(2))


def test_a_value_that_leaves_by_another_way_than_the_result_is_refused() -> None:
    kept: list[Any] = []

    @function
    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    f(tc.ones(2))
    with pytest.raises(TracingError, match=r"after .* has returned|after that function has returned"):
        kept[0] + 1


def test_tapes_and_batches_around_a_compiled_function_see_it() -> None:
    w = tc.Variable(values(3))

    @function
    def f(x: Any) -> Any:
        return tc.sum(tc.tanh(x * w))

    x = values(3, seed=1)
    f(x)
    with tc.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    with tc.GradientTape() as eager:
        eager.watch(x)
        z = f.python(x)
    for a, b in zip(tape.gradient(y, [x, w]), eager.gradient(z, [x, w]), strict=True):
        assert same(a, b)
    rows = values(4, 3)
    assert same(tc.vmap(f)(rows), tc.vmap(f.python)(rows))
    assert same(tc.grad(f)(x), tc.grad(f.python)(x))


def test_a_compiled_function_may_call_another() -> None:
    inner = function(lambda x: tc.sin(x) * 2)
    assert_same_in_each_call(lambda x: inner(x) + inner(x * 2), (values(3),), (values(3, seed=1),))


def test_freezing_a_variable_traces_again() -> None:
    w = tc.Variable(2.0)

    @function
    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            y = w * x
        return tape.gradient(y, w, unconnected_gradients="zero")

    assert [f(tc.asarray(3.0)).item() for _ in range(2)] == [3.0, 3.0]
    w.trainable = False
    assert [f(tc.asarray(3.0)).item() for _ in range(2)] == [0.0, 0.0]
    w.trainable = True
    assert f(tc.asarray(3.0)).item() == 3.0
    assert f.traces == 2


def test_many_traces_are_warned_of_or_refused() -> None:
    f = function(lambda x, k: x * k)
    with pytest.warns(UserWarning, match="is traced for the 6th time.*Numbers among its arguments, Python"):
        for k in range(7):
            f(tc.ones(2), k)
    once = function(retrace="error")(lambda x: x + 1)
    once(tc.ones(2))
    with pytest.raises(RuntimeError, match="retrace='error'"):
        once(tc.ones(3))
    with pytest.raises(ValueError, match="retrace must be"):
        function(retrace="never")(lambda x: x)  # type: ignore[call-overload]


def test_other_threads_see_variables_as_they_are_while_one_traces() -> None:
    v = tc.Variable([1.0, 2.0])
    seen: list[Any] = []

    def look() -> None:
        seen.append(((v * 2).tolist(), v.backend.name, v.shape))

    @function
    def f() -> Any:
        v.assign(v * 10)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return v + 1

    assert f().tolist() == [11.0, 21.0]
    assert seen == [([2.0, 4.0], v.backend.name, (2,))]


def test_the_source_names_the_users_lines_and_tracebacks_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    @function
    def f(x: Any, k: Any) -> Any:
        y = tc.sin(x)
        return tc.take(y, k)

    assert "not traced" in f.text()
    f(tc.ones(3), tc.asarray([0]))
    f.show()
    shown = capsys.readouterr().out
    assert "# test_function.py:" in shown
    assert "return tc.take(y, k)" in shown
    assert "sin(" in shown
    assert f.stats()[0]["traced"] == 2
    with pytest.raises(IndexError) as caught:
        f(tc.ones(3), tc.asarray([7]))
    assert any("f compiled" in str(entry.path) for entry in caught.traceback)


def test_infinite_derivatives_are_not_warned_of() -> None:
    @function
    def f(x: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = tc.sum(tc.where(x > 0, tc.sqrt(x), x))
        return tape.gradient(y, x)

    x = tc.asarray([0.0, 4.0])
    for _ in range(2):
        assert f(x).tolist() == [1.0, 0.25]


def test_sparse_gradients_and_slices_go_in_and_out() -> None:
    def f(table: Any, k: Any) -> Any:
        with tc.GradientTape() as tape:
            tape.watch(table)
            y = tc.sum(tc.gather(table, k) ** 2)
        return tape.gradient(y, table)

    compiled, densify = function(f), function(lambda slices: slices.densify())
    for seed in range(3):
        args = values(4, 2, seed=seed), tc.asarray([seed, 3, seed])
        expected, found = f(*args), compiled(*args)
        assert isinstance(found, tc.IndexedSlices)
        assert same(found.values, expected.values)
        assert same(found.indices, expected.indices)
        assert same(densify(found), expected.densify())


def test_passes_leave_out_what_is_the_same_and_what_nothing_needs() -> None:
    def f(x: Any) -> Any:
        tc.exp(x)
        return tc.sin(x) + tc.sin(x)

    compiled = function(f)
    compiled(values(3))
    found = compiled.stats()[0]
    assert (found["traced"], found["cse"], found["dce"]) == (4, 3, 2)
    assert (found["elements_traced"], found["elements"]) == (12, 6)
    plain = function(passes=dict.fromkeys(PASSES, False))(f)
    assert same(plain(values(3)), f(values(3)))
    assert same(plain(values(3)), f(values(3)))
    assert plain.stats() == [{"traced": 4, "elements_traced": 12, "elements": 12}]
    with pytest.raises(ValueError, match="there is no pass 'wrong'"):
        function(passes={"wrong": True})(f)(values(3))


def test_what_depends_on_constants_alone_is_computed_once() -> None:
    @tc.function
    def f(x: tc.Tensor) -> tc.Tensor:
        table = tc.asarray([[2.0, 1.0], [1.0, 3.0]])
        values, vectors = tc.linalg.eigh(table)
        scale = tc.sum(tc.exp(values)) if tc.sum(values).item() > 0 else values[0]
        return scale * (vectors @ x)

    x = tc.asarray([0.5, -1.0])
    for _ in range(2):
        assert same(f(x), f.python(x))
    assert "exp" not in f.text()
    assert "eigh" not in f.text()
    each_call = tc.function(passes={"constant_folding": False})(f.python)
    assert same(each_call(x), f(x))
    assert same(each_call(x), f(x))
    assert "eigh" in each_call.text()


def test_constants_are_known_inside_branches_and_loops() -> None:
    @tc.function
    def f(x: tc.Tensor) -> tc.Tensor:
        scale = tc.exp(tc.asarray([2.0, 1.0]))
        return tc.map(lambda row: row * (tc.sum(scale) if scale[0].item() > 1 else row), x)

    x = values(3, 2)
    for _ in range(2):
        assert same(f(x), f.python(x))
    assert "exp" not in f.text()
    assert "= sum" not in f.text()


def test_the_source_of_a_trace_goes_with_it() -> None:
    def made() -> str:
        f = tc.function(lambda x: x * 2.0 + 1.0)
        f(tc.ones(3))
        (compiled,) = next(iter(f._compiled.values()))
        file = compiled.source.run.__code__.co_filename
        assert "* 2.0" in "".join(linecache.getlines(file))
        return file

    file = made()
    gc.collect()
    assert linecache.getlines(file) == []


def test_a_function_may_have_the_name_of_one_that_it_calls() -> None:
    @function
    def tanh(x: Any) -> Any:
        return tc.tanh(x) * 2

    for _ in range(2):
        assert same(tanh(tc.ones(3)), tc.tanh(tc.ones(3)) * 2)


def test_a_derivative_of_a_compiled_function_is_compiled_as_what_it_is() -> None:
    """Not as the function itself, of which it has the name and the documentation."""

    @tc.function
    def cube(x: Any) -> Any:
        return tc.sum(x**3)

    x = tc.asarray([1.0, 2.0])
    for transformed in (tc.grad(cube), tc.hessian(cube), tc.vmap(cube), tc.checkpoint(cube), tc.value_and_grad(cube)):
        compiled = tc.function(transformed)
        for _ in range(2):
            for found, expected in zip(_tensors(compiled(x)), _tensors(transformed(x)), strict=True):
                assert found.tolist() == expected.tolist()
    assert cube(x).item() == 9.0


def _tensors(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _tensors(part)] if isinstance(value, tuple) else [value]


def test_with_fallback_it_says_so_once_inside_tapes_too() -> None:
    @function(fallback=True)
    def f(x: Any) -> Any:
        return x * 2 if tc.sum(x) > 0 else -x

    def slope(f: Any) -> Any:
        x = tc.ones(2)
        with tc.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x).tolist()

    with pytest.warns(UserWarning, match="not compiled for these arguments inside tapes' blocks") as told:
        assert [slope(f) for _ in range(4)] == [[2.0, 2.0]] * 4
    assert len(told) == len(f.fallbacks) == 1
    for without in (function(f.python), function(f.python, fallback="silent")):
        assert [slope(without) for _ in range(4)] == [[2.0, 2.0]] * 4


SIZES: dict[str, Callable[[tc.Tensor], tc.Tensor]] = {
    "zeros": lambda n: tc.zeros(n),
    "ones": lambda n: tc.ones((2, n)),
    "full": lambda n: tc.full([n], 1.0),
    "eye": lambda n: tc.eye(n),
    "arange": lambda n: tc.arange(n),
    "linspace": lambda n: tc.linspace(0.0, 1.0, n),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_is_a_tensor_is_refused_with_the_users_line(name: str) -> None:
    n, make = tc.asarray(3, backend="numpy"), SIZES[name]
    with pytest.raises(TracingError, match=r"test_function\.py.*static_argnames"):
        tc.function(make)(n)
    soft = tc.function(make, fallback="silent")
    for _ in range(2):
        assert soft(n).tolist() == make(n).tolist()


def test_the_line_that_asks_whether_a_value_is_in_a_tensor_is_named() -> None:
    def holds(x: Any) -> Any:
        return 3.0 in x

    assert holds(tc.asarray([1.0, 3.0])) is True
    with pytest.raises(TracingError, match=r"needs the value.*, in .*holds"):
        function(holds)(tc.ones(2))
