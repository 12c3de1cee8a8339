"""init_scope, autograph, tracing types, Python functions with strings, tables, and NumPy's functions."""

from __future__ import annotations

import numpy as np
import pytest
import tape_tf as tf
import tape_tf.experimental.numpy as tnp

pytestmark = pytest.mark.each_backend


def test_init_scope_runs_in_each_call():
    seen = []

    @tf.function
    def f(x):
        with tf.init_scope():
            seen.append(tf.executing_eagerly())
        return x + 1

    assert [float(f(tf.constant(x))) for x in (1.0, 2.0)] == [2.0, 3.0]
    assert seen[-2:] == [True, True]
    with tf.GradientTape() as tape:
        x = tf.Variable(2.0)
        y = f(x * x)
    assert float(tape.gradient(y, x)) == 4.0


def test_autograph_leaves_code_alone():
    @tf.autograph.experimental.do_not_convert
    def f(x):
        return x + 1

    assert "return x + 1" in tf.autograph.to_code(tf.function(f))
    assert tf.autograph.to_graph(f) is f
    tf.autograph.set_verbosity(0)


class Kind(tf.types.experimental.TraceType):
    def __init__(self, name):
        self.name = name

    def is_subtype_of(self, other):
        return self == other

    def most_specific_common_supertype(self, others):
        return self

    def placeholder_value(self, placeholder_context=None):
        return None

    def __eq__(self, other):
        return isinstance(other, Kind) and other.name == self.name

    def __hash__(self):
        return hash(self.name)


class Fruit:
    def __init__(self, name):
        self.name = name

    def __tf_tracing_type__(self, context):
        return Kind(self.name)


def test_arguments_with_equal_tracing_types_share_a_trace():
    @tf.function
    def f(fruit, x):
        return x * (2 if fruit.name == "apple" else 3)

    x = tf.constant(1.0)
    assert [float(f(Fruit(name), x)) for name in ("apple", "apple", "mango", "apple")] == [2.0, 2.0, 3.0, 2.0]
    assert f.experimental_get_tracing_count() == 2


def test_python_functions_as_decorators():
    @tf.py_function(Tout=tf.float32)
    def twice(x):
        return 2 * x

    @tf.numpy_function(Tout=tf.float32)
    def square(x):
        assert isinstance(x, np.ndarray | np.generic)
        return x * x

    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = twice(x)
    assert float(tape.gradient(y, x)) == 2.0
    f = tf.function(lambda x: square(x) + twice(x))
    assert [float(f(tf.constant(value))) for value in (1.0, 3.0)] == [3.0, 15.0]


def test_python_functions_take_and_give_strings():
    data = tf.data.Dataset.from_tensor_slices(["a", "b"])
    data = data.map(lambda s: tf.py_function(lambda x: x.numpy() + b"!", [s], tf.string))
    assert list(data.as_numpy_iterator()) == [b"a!", b"b!"]
    upper = tf.numpy_function(lambda x, n: (x.upper(), np.float32(n)), [tf.constant("a"), 2.0], [tf.string, tf.float32])
    assert upper[0].numpy() == b"A"
    assert float(upper[1]) == 2.0


def test_loops_and_branches_with_strings():
    words = tf.constant(["a", "bb"])
    assert tf.map_fn(tf.strings.upper, words).numpy().tolist() == [b"A", b"BB"]
    assert tf.map_fn(tf.strings.length, words, fn_output_signature=tf.int32).numpy().tolist() == [1, 2]
    assert tf.cond(tf.constant(True), lambda: tf.constant("x"), lambda: tf.constant("y")).numpy() == b"x"
    joined = tf.foldl(lambda a, b: tf.strings.join([a, b]), words)
    assert joined.numpy() == b"abb"


def test_assertions_on_strings():
    tf.debugging.assert_equal(tf.constant(["a"]), ["a"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"x == y did not hold.\nx: \[b'a'\]\ny: \[b'b'\]"):
        tf.debugging.assert_equal(tf.constant(["a"]), ["b"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="x != y"):
        tf.debugging.assert_none_equal(tf.constant(["a"]), ["a"])


def test_prints_and_assertions_in_a_function(capsys):
    @tf.function
    def f(x):
        tf.print("x is", x)
        tf.debugging.assert_positive(x, message="negative")
        tf.debugging.assert_equal(tf.shape(x), [2])
        return x + 1

    for value in (1.0, 2.0):
        f(tf.constant([value, value]))
    assert capsys.readouterr().err == "x is [1 1]\nx is [2 2]\n"
    with pytest.raises(tf.errors.InvalidArgumentError, match="negative"):
        f(tf.constant([1.0, -1.0]))


# -- tables


def test_tables():
    content = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], value_dtype=tf.int64)
    table = tf.lookup.StaticHashTable(content, default_value=-1)
    found = table.lookup([["b", "x"], ["a", "a"]])
    assert found.numpy().tolist() == [[2, -1], [1, 1]]
    assert found.dtype == tf.int64
    assert int(table.size()) == 2
    assert table.lookup(tf.strings.split(["a b", "x"])).to_list() == [[1, 2], [-1]]
    back = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], ["a", "b"]), default_value="?")
    assert back[tf.constant([2, 7])].numpy().tolist() == [b"b", b"?"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="different value for same key"):
        tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "a"], [1, 2]), 0)
    with pytest.raises(ValueError, match="each key has one"):
        tf.lookup.KeyValueTensorInitializer(["a"], [1, 2])


def test_a_table_that_changes():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, default_value=0)
    table.insert(["a", "b"], [1, 2])
    table.insert(["a"], [3])
    table.remove(["b", "c"])
    assert table.lookup(["a", "b"]).numpy().tolist() == [3, 0]
    keys, values = table.export()
    assert (keys.numpy().tolist(), values.numpy().tolist()) == ([b"a"], [3])


# -- NumPy's functions


def test_numpys_functions_have_derivatives():
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = tnp.sum(tnp.square(x) * tnp.arange(2, dtype=tnp.float32)) + tnp.mean(tnp.concatenate([x, x]))
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), [0.5, 4.5])
    f = tf.function(lambda x: tnp.max(x) - tnp.min(x))
    assert float(f(tf.constant([1.0, 5.0]))) == 4.0


def test_numpys_arrays_become_tensors():
    assert isinstance(tnp.ones((2, 3)), tnp.ndarray)
    assert tnp.array([1.0]).dtype == tf.float64
    assert tnp.array(tf.constant(1.0), ndmin=1).shape == (1,)
    assert tnp.asarray([1, 2], dtype=tf.float32).dtype == tf.float32
    assert tnp.random.randn(2, 2).shape == (2, 2)
    assert tnp.linalg.norm(tnp.array([3.0, 4.0])).numpy() == 5.0
    assert tnp.pi == np.pi
    low, high = tnp.split(tnp.arange(4), 2)
    assert (low.numpy().tolist(), high.numpy().tolist()) == ([0, 1], [2, 3])
    tnp.experimental_enable_numpy_behavior()
    with pytest.raises(AttributeError, match="NumPy has none"):
        tnp.summe  # noqa: B018
