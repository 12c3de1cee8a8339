"""tf.function: what is traced, when, and what is done in each call."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import tape_tf as tf
from support import assert_close

pytestmark = pytest.mark.each_backend


@tf.function
def doubled(x: Any) -> Any:
    return 2 * x


# -- traces


def test_python_runs_once_for_arguments_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    @tf.function
    def f(x: Any, n: int = 2) -> Any:
        print("tracing", x)  # noqa: T201 - what is tested
        return x * n

    assert_close(f(tf.constant(3.0)), 6)
    assert_close(f(tf.constant(4.0), 2), 8)
    assert_close(f(x=tf.constant(5.0), n=2), 10)
    assert capsys.readouterr().out == 'tracing Tensor("args_0:0", shape=(), dtype=float32)\n'
    assert_close(f(tf.constant(4.0), 3), 12)
    assert_close(f(tf.constant([4.0])), [8])
    assert_close(f(np.float32(4.0)), 8)
    assert f.experimental_get_tracing_count() == 3
    assert capsys.readouterr().out.count("tracing") == 2


def test_results_are_tensors_and_names_stay() -> None:
    @tf.function
    def f(x: Any, *, scale: float = 1.0) -> Any:
        """Doc."""
        return x * x * scale

    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x, scale=2.0)
    assert_close(tape.gradient(y, x), 12)
    assert (f.__name__, f.__doc__) == ("f", "Doc.")
    assert f.python_function(2.0) == 4.0
    for _ in range(2):
        assert isinstance(tf.function(lambda: 3)(), tf.Tensor)
        assert tf.function(lambda: (np.ones(2), None))()[1] is None
        assert isinstance(tf.function(lambda a: a)(np.ones(2)), tf.Tensor)


def test_tensors_inside_are_shown_as_symbols() -> None:
    shown = []

    @tf.function
    def f(x: Any, v: Any) -> Any:
        y = x + v
        shown.extend([str(x), repr(y), f"{y}", repr(v), tf.executing_eagerly(), tf.inside_function()])
        return y

    f(tf.ones((2, 3)), tf.Variable(1.0))
    assert shown == [
        'Tensor("args_0:0", shape=(2, 3), dtype=float32)',
        "<tf.Tensor 'add:0' shape=(2, 3) dtype=float32>",
        'Tensor("add:0", shape=(2, 3), dtype=float32)',
        "<tf.Variable 'Variable:0' shape=() dtype=float32>",
        False,
        True,
    ]
    assert tf.executing_eagerly()
    assert not tf.inside_function()


def test_a_function_that_is_traced_again_and_again_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for n in range(1, 6):
        doubled(tf.ones(n))
    assert "5 out of the last 5 calls to <function doubled" in caplog.text
    assert "triggered tf.function retracing" in caplog.text


def test_functions_inside_functions_are_part_of_them(caplog: pytest.LogCaptureFixture) -> None:
    inner = tf.function(lambda x, n: x * n)

    @tf.function
    def outer(x: Any) -> Any:
        return tf.add_n([inner(x, tf.constant(float(k))) for k in range(8)])

    for value in (1.0, 2.0):
        assert_close(outer(tf.constant(value)), 28 * value)
    assert outer.experimental_get_tracing_count() == 1
    assert not caplog.text


def test_functions_run_as_they_are_on_request() -> None:
    runs = []
    f = tf.function(lambda x: runs.append(tf.executing_eagerly()) or x.numpy())
    tf.config.run_functions_eagerly(True)
    try:
        assert tf.config.functions_run_eagerly()
        for _ in range(2):
            assert_close(f(tf.constant(3.0)), 3)
    finally:
        tf.config.run_functions_eagerly(False)
    assert runs == [True, True]


def test_methods_have_traces_for_each_instance() -> None:
    class Scaled(tf.Module):
        def __init__(self, w: float) -> None:
            super().__init__()
            self.w: Any = tf.Variable(w)
            self.runs = 0

        @tf.function(jit_compile=True, reduce_retracing=True)
        def __call__(self, x: Any) -> Any:
            self.runs += 1
            return self.w * x

    a, b = Scaled(2.0), Scaled(3.0)
    for _ in range(2):
        assert_close(a(tf.constant(3.0)), 6)
        assert_close(b(tf.constant(3.0)), 9)
    c = copy.deepcopy(a)
    c.w.assign(10.0)
    assert_close(c(tf.constant(3.0)), 30)
    assert_close(a(tf.constant(3.0)), 6)
    assert (a.runs, b.runs) == (1, 1)
    assert len(a.variables) == 1


def test_functions_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert_close(copy.deepcopy(tf.function(doubled.python_function))(tf.constant(2.0)), 4)


# -- signatures


def test_input_signature() -> None:
    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32), {"a": tf.TensorSpec([], tf.int32)}])
    def f(x: Any, more: Any) -> Any:
        return x, more["a"]

    for x, a in (f([1.0, 2.0], {"a": 3}), f(x=[1.0, 2.0], more={"a": 3})):
        assert (x.dtype, a.dtype) == (tf.float32, tf.int32)
    for arguments, message in (
        (([1.0, 2.0],), "missing a required argument"),
        (([1.0, 2.0], {"a": 3}, 1), "too many positional arguments"),
        ((tf.constant([1, 2]), {"a": 3}), r"Can not cast TensorSpec\(shape=\(2,\), dtype=tf.int32"),
        (("a", {"a": 3}), "Tensor conversion requested dtype float32 for text"),
    ):
        with pytest.raises(TypeError, match=f"Binding inputs to tf.function failed due to `{message}"):
            f(*arguments)
    with pytest.raises(TypeError, match="missing a required argument: 'more'"):
        f(x=[1.0, 2.0])


def test_concrete_functions() -> None:
    @tf.function
    def f(x: Any, n: int = 2) -> Any:
        return x * n

    concrete = f.get_concrete_function(tf.TensorSpec([None], tf.float32), 3)
    assert concrete.structured_input_signature == ((tf.TensorSpec([None], tf.float32), 3), {})
    assert_close(concrete(tf.constant([1.0, 2.0])), [3, 6])
    for arguments in ((tf.constant([1]),), (tf.ones(2), 4)):
        with pytest.raises(TypeError, match=r"Binding inputs to tf\.function failed"):
            concrete(*arguments)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        concrete()
    with pytest.raises(AttributeError, match="no graph"):
        concrete.graph  # noqa: B018
    with pytest.raises(AttributeError, match="no experimental_get_compiler_ir"):
        f.experimental_get_compiler_ir()


# -- Variables


def test_variables_are_read_and_assigned_in_each_call() -> None:
    v = tf.Variable(0.0)

    @tf.function
    def f(x: Any) -> Any:
        v.assign_add(x)
        return v

    first = f(tf.constant(1.0))
    assert isinstance(first, tf.Tensor)
    v.assign(10.0)
    assert_close(f(tf.constant(2.0)), 12)
    assert_close(first, 1)
    assert f.experimental_get_tracing_count() == 1


def test_a_variable_is_made_in_the_first_call_only() -> None:
    made: list[Any] = []

    @tf.function
    def once(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(2.0))
        return made[0] * x

    for _ in range(3):
        assert_close(once(tf.constant(3.0)), 6)
    assert once.experimental_get_tracing_count() == 2

    @tf.function
    def always(x: Any) -> Any:
        return tf.Variable(1.0) * x

    always(tf.constant(1.0))
    with pytest.raises(ValueError, match=r"only supports singleton tf\.Variables created on the first call"):
        always(tf.constant(1.0))


def test_optimizers_and_metrics_go_on_from_call_to_call() -> None:
    def trained(decorate: Any) -> list[Any]:
        w, mean = tf.Variable([1.0, 2.0]), tf.keras.metrics.Mean()
        optimizer = tf.keras.optimizers.Adam(0.1)

        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((w * x) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w], strict=True))
            mean.update_state(loss)
            return mean.result(), optimizer.iterations

        step = decorate(step)
        found = []
        for k in range(4):
            found += [t.numpy().item() for t in step(tf.constant([0.5, 0.25]))]
            if k == 1:
                optimizer.learning_rate.assign(0.2)
                mean.reset_state()
        return [*found, *w.numpy().tolist()]

    assert trained(tf.function) == trained(lambda f: f)


def test_a_learning_rate_that_is_assigned_inside_counts() -> None:
    v = tf.Variable(1.0)
    optimizer = tf.keras.optimizers.SGD(0.0)

    @tf.function
    def step(rate: Any) -> None:
        optimizer.learning_rate.assign(rate)
        optimizer.apply_gradients([(tf.constant(1.0), v)])

    for rate in (0.5, 0.25):
        step(tf.constant(rate))
    assert_close(v, 0.25)


# -- random numbers


def test_random_numbers_are_those_of_calls_without_it() -> None:
    def drawn(decorate: Any) -> list[Any]:
        tf.random.set_seed(1)
        draw = decorate(
            lambda x: (
                tf.random.normal([2]),
                tf.random.uniform([], seed=3),
                tf.nn.dropout(x, 0.5),
                tf.random.shuffle(x),
            )
        )
        return [t.numpy().tolist() for _ in range(3) for t in draw(tf.range(6.0))]

    assert drawn(tf.function) == drawn(lambda f: f)


# -- what is done in each call


def test_tf_print_prints_in_each_call_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    v = tf.Variable(0.0)

    @tf.function
    def f(x: Any) -> None:
        tf.print("before", v, [x, {"a": x}])
        v.assign_add(x)
        tf.cond(x > 1.0, lambda: tf.print("much", x), lambda: tf.print("little"))
        tf.while_loop(lambda i: i < 2, lambda i: (tf.print("i", i), i + 1)[1:], [0])
        tf.print("after", v)

    f(tf.constant(1.0))
    f(tf.constant(2.0))
    one, two = "before 0 [1, {'a': 1}]\nlittle", "before 1 [2, {'a': 2}]\nmuch 2"
    assert capsys.readouterr().err == f"{one}\ni 0\ni 1\nafter 1\n{two}\ni 0\ni 1\nafter 3\n"
    assert f.experimental_get_tracing_count() == 1


def test_checks_are_made_in_each_call() -> None:
    v = tf.Variable(0)

    @tf.function
    def f(x: Any) -> Any:
        v.assign_add(1)
        tf.debugging.assert_positive(x, message="x!")
        tf.Assert(tf.reduce_all(x < 10.0), [x])
        return tf.math.log(tf.debugging.check_numerics(x, "x"))

    assert_close(f(tf.constant(1.0)), 0)
    for value, message in ((-1.0, "x!\nCondition x > 0 did not hold"), (20.0, "Summarized data: 20"), (np.nan, "x!")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            f(tf.constant(value))
    assert_close(f(tf.constant(1.0)), 0)
    assert f.experimental_get_tracing_count() == 1
    assert v.numpy() == 2  # a call that failed has assigned nothing


def test_python_functions_run_in_each_call() -> None:
    calls = []

    @tf.function
    def f(x: Any) -> Any:
        y = tf.py_function(lambda a: (calls.append(1), a * 2)[1], [x], tf.float32)
        return tf.numpy_function(lambda a: np.float32(a + 1), [y], tf.float32)

    assert_close(f(tf.constant(1.0)), 3)
    assert_close(f(tf.constant(2.0)), 5)
    assert len(calls) == 2
    assert f.experimental_get_tracing_count() == 1

    @tf.function
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(lambda a: a * a, [x], tf.float32)
        return tape.gradient(y, x)

    assert_close(slope(tf.constant(3.0)), 6)
    assert_close(slope(tf.constant(4.0)), 8)


# -- what Python decides


def test_a_function_in_which_python_decides_runs_as_it_is() -> None:
    v, runs = tf.Variable(0), []

    @tf.function
    def f(x: Any) -> Any:
        runs.append(1)
        v.assign_add(1)
        number = tf.random.uniform([])
        if x > 0:
            v.assign_add(10)
        v.assign_add(100)
        return v.read_value(), number

    tf.random.set_seed(1)
    found = [f(tf.constant(x)) for x in (1.0, -1.0, 1.0)]
    assert [int(value) for value, _ in found] == [111, 212, 323]
    tf.random.set_seed(1)
    assert [float(number) for _, number in found] == [float(tf.random.uniform([])) for _ in range(3)]
    assert len(runs) == 3


def test_datasets_and_arrays_of_tensors_are_no_constants() -> None:
    iterator = iter(tf.data.Dataset.range(4))
    following = tf.function(lambda it: next(it) * 2)
    assert [int(following(iterator)) for _ in range(3)] == [0, 2, 4]
    total = tf.function(lambda: sum(tf.data.Dataset.range(4), tf.constant(0, tf.int64)))
    assert [int(total()) for _ in range(2)] == [6, 6]

    @tf.function
    def rows(x: Any) -> Any:
        found = tf.TensorArray(tf.float32, size=2)
        for k in range(2):
            found = found.write(k, x * k)
        return found

    for x in (1.0, 2.0):
        assert_close(rows(tf.constant(x)).stack(), [0, x])
    written = tf.TensorArray(tf.float32, size=1)
    read = tf.function(lambda array: array.stack() * 2)
    for x in (1.0, 2.0):
        assert_close(read(written.write(0, x)), [2 * x])


def test_control_flow_is_compiled_and_has_derivatives() -> None:
    w, runs = tf.Variable(0.5), []

    @tf.function
    def f(x: Any, n: Any) -> Any:
        runs.append(1)
        with tf.GradientTape() as tape:
            y = tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, tf.tanh(w * y)), (0, x), maximum_iterations=3)[1]
            y = tf.cond(y > 0.1, lambda: y * w, lambda: w * w)
            y += tf.case([(x < 0.0, lambda: -w), (x > 10.0, lambda: w * 0.0)], default=lambda: w)
            y += tf.switch_case(n, [lambda: w, lambda: w * 2.0, lambda: w * 3.0])
        return y, tape.gradient(y, w)

    def as_it_is(x: float, n: int) -> Any:
        with tf.GradientTape() as tape:
            y = tf.constant(x)
            for _ in range(min(n, 3)):
                y = tf.tanh(w * y)
            y = y * w if y > 0.1 else w * w
            y += -w if x < 0 else w * 0.0 if x > 10 else w
            y += w * (min(n, 2) + 1.0)
        return y, tape.gradient(y, w)

    for x, n in ((1.0, 1), (1.0, 3), (-2.0, 2), (20.0, 5)):
        for found, expected in zip(f(tf.constant(x), tf.constant(n)), as_it_is(x, n), strict=True):
            assert_close(found, expected.numpy())
    assert len(runs) == 1


@pytest.mark.parametrize("n", [3, 50])
def test_maps_and_folds_are_compiled(n: int) -> None:
    def several(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = (
                tf.map_fn(lambda row: tf.reduce_sum(row**2), x),
                tf.scan(lambda a, row: a * 0.5 + row, x, initializer=tf.zeros(2)),
                tf.scan(lambda a, row: a * 0.5 + row, x, reverse=True),
                tf.foldl(lambda a, row: a + tf.sin(row), x, initializer=tf.zeros(2)),
                tf.foldr(lambda a, row: a * 0.5 + row, x, initializer=tf.zeros(2)),
                tf.vectorized_map(lambda row: row * tf.reduce_sum(row), x),
            )
        return *found, tape.gradient(found, x)

    compiled = tf.function(several)
    for k in range(2):
        x = tf.reshape(tf.range(2.0 * n) / n + k, (n, 2))
        for found, expected in zip(compiled(x), several(x), strict=True):
            assert found.shape == expected.shape
            assert_close(found, expected.numpy())
    assert compiled.experimental_get_tracing_count() == 1
    assert not compiled._compiled.fallbacks


def test_loops_that_are_no_instruction_run_as_they_are() -> None:
    @tf.function
    def f(x: Any, n: Any) -> Any:
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        _, array = tf.while_loop(
            lambda i, array: i < n, lambda i, array: (i + 1, array.write(i, x * tf.cast(i, tf.float32))), (0, array)
        )
        grown = tf.while_loop(lambda y: tf.size(y) < 4, lambda y: (tf.concat([y, y], 0),), [x[None]])[0]
        return array.stack(), grown

    for x, n in ((2.0, 3), (3.0, 2)):
        rows, grown = f(tf.constant(x), tf.constant(n))
        assert_close(rows, [x * k for k in range(n)])
        assert_close(grown, [x] * 4)


def test_an_instance_with_compiled_methods_goes_without_the_garbage_collector() -> None:
    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(2.0)

        @tf.function
        def __call__(self, x: Any) -> Any:
            return self.w * x

    gc.collect()
    gc.disable()
    try:
        net = Net()
        for _ in range(3):
            assert net(tf.constant(3.0)).numpy() == 6.0
            with tf.GradientTape() as tape:
                y = net(tf.constant(3.0))
            assert tape.gradient(y, net.w).numpy() == 3.0
        alive = weakref.ref(net), weakref.ref(net.w.native)
        del net, tape, y
        assert [part() for part in alive] == [None, None]
    finally:
        gc.enable()
    assert Net().__call__(tf.constant(3.0)).numpy() == 6.0
