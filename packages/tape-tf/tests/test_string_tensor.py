"""Tensors of strings: what they are, what moves and compares them, and what refuses them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import tape_tf as tf

pytestmark = pytest.mark.each_backend


def words(tensor) -> list:
    return tensor.numpy().tolist()


def test_values_are_bytes_and_text_is_encoded():
    t = tf.constant(["a", b"\xff", "ü"])
    assert words(t) == [b"a", b"\xff", "ü".encode()]
    assert tf.constant("one").numpy() == b"one"
    assert t.dtype == tf.string
    assert t.dtype == "string"
    assert t.shape == (3,)
    assert isinstance(t, tf.Tensor)
    assert tf.is_tensor(t)
    assert not t.dtype.is_floating
    assert t.dtype.as_numpy_dtype is np.object_
    assert words(tf.convert_to_tensor(np.array(["x", "yy"]))) == [b"x", b"yy"]
    assert words(tf.constant("z", shape=(2,))) == [b"z", b"z"]
    assert words(tf.constant([tf.constant("p"), "q"])) == [b"p", b"q"]
    assert words(tf.constant(["end\0"])) == [b"end\0"]  # NumPy's own fixed width would cut it off


def test_it_is_printed_as_tensorflow_prints_it(capsys):
    t = tf.constant(["a", "b"])
    assert str(t) == "tf.Tensor([b'a' b'b'], shape=(2,), dtype=string)"
    assert repr(t) == "<tf.Tensor: shape=(2,), dtype=string, numpy=array([b'a', b'b'], dtype=object)>"
    assert repr(tf.constant("s")) == "<tf.Tensor: shape=(), dtype=string, numpy=b's'>"
    tf.print(t, tf.constant("s"))
    assert capsys.readouterr().err == '["a" "b"] s\n'


def test_functions_that_move_elements_take_strings():
    t = tf.constant(["a", "b", "c"])
    assert words(tf.gather(t, [2, 0])) == [b"c", b"a"]
    assert words(tf.concat([t, ["d"]], axis=0)) == [b"a", b"b", b"c", b"d"]
    assert words(tf.stack([t, t], axis=1)[0]) == [b"a", b"a"]
    assert words(tf.reshape(t, [3, 1])) == [[b"a"], [b"b"], [b"c"]]
    assert words(tf.where([True, False, True], t, "-")) == [b"a", b"-", b"c"]
    assert words(tf.boolean_mask(t, [False, True, True])) == [b"b", b"c"]
    assert words(tf.expand_dims(t, 0)) == [[b"a", b"b", b"c"]]
    assert words(tf.tile(t, [2])) == [b"a", b"b", b"c"] * 2
    assert words(tf.sort(tf.constant(["b", "a"]))) == [b"a", b"b"]
    assert words(tf.unique(tf.constant(["x", "y", "x"])).y) == [b"x", b"y"]
    assert tf.unique(tf.constant(["x", "y", "x"])).idx.numpy().tolist() == [0, 1, 0]
    assert words(tf.fill([2], "f")) == [b"f", b"f"]
    assert words(tf.identity(t)) == words(t)
    assert tf.shape(t).numpy().tolist() == [3]
    assert int(tf.size(t)) == 3
    assert int(tf.rank("s")) == 0
    assert words(t[1:]) == [b"b", b"c"]
    assert t[tf.constant(0)].numpy() == b"a"
    assert len(t) == 3
    assert [x.numpy() for x in t] == [b"a", b"b", b"c"]
    assert words(t[tf.newaxis]) == [[b"a", b"b", b"c"]]
    assert [words(part) for part in tf.split(t, [1, 2])] == [[b"a"], [b"b", b"c"]]


def test_strings_are_compared():
    t = tf.constant(["a", "b"])
    assert (t == "a").numpy().tolist() == [True, False]
    assert (t != ["a", "c"]).numpy().tolist() == [False, True]
    assert tf.equal("b", t).numpy().tolist() == [False, True]
    assert tf.constant("x") == b"x"
    assert (t + "!").numpy().tolist() == [b"a!", b"b!"]
    assert ("<" + t).numpy().tolist() == [b"<a", b"<b"]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t + 1.0,
        lambda t: -t,
        lambda t: tf.sin(t),
        lambda t: tf.reduce_sum(t),
        lambda t: tf.matmul(t, t),
        lambda t: tf.zeros(2, tf.string),
        lambda t: tf.Variable(t),
        lambda t: tf.equal(t, [1, 2]),
        lambda t: tf.concat([t, [1.0]], 0),
        lambda t: tf.where([True, False], t, [1.0, 2.0]),
        lambda t: tf.constant("a", tf.float32),
        lambda t: tf.constant(1.0, tf.string),
        lambda t: tf.cast(t, tf.float32),
    ],
    ids=range(13),
)
def test_computing_with_strings_is_an_error_that_names_what_to_use(call):
    with pytest.raises((TypeError, ValueError), match=r"tf\.strings|as_string|to a string"):
        call(tf.constant(["a", "b"]))


def test_a_derivative_of_strings_is_an_error():
    t = tf.constant(["1.0"])
    with tf.GradientTape() as tape, pytest.raises(TypeError, match="strings"):
        tape.watch(t)
    x = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = x * tf.strings.to_number(t)[0]
    assert float(tape.gradient(y, x)) == 1.0


def test_ragged_lists_of_text_say_what_takes_them():
    with pytest.raises(ValueError, match=r"tf\.ragged\.constant"):
        tf.constant([["a"], ["b", "c"]])
    with pytest.raises(TypeError, match="as_string"):
        tf.constant(["a", 1])


def test_copies_and_pickles_are_equal():
    t = tf.constant(["a", "b"])
    assert words(pickle.loads(pickle.dumps(t))) == words(t)
    with pytest.raises(TypeError, match="unhashable"):
        hash(t)


def test_a_tf_function_takes_strings_and_computes_with_numbers_beside_them():
    calls = []

    @tf.function
    def f(names, x):
        calls.append(1)
        return tf.strings.length(names) + tf.cast(x * 2, tf.int32), tf.strings.upper(names)

    for x in (1.0, 2.0):
        numbers, upper = f(tf.constant(["a", "bb"]), tf.constant(x))
        assert numbers.numpy().tolist() == [1 + 2 * x, 2 + 2 * x]
        assert words(upper) == [b"A", b"BB"]

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def g(name):
        return tf.strings.join([name, "!"])

    assert g("hi").numpy() == b"hi!"


def test_a_tf_function_that_chooses_strings_by_a_traced_value_chooses_anew_in_each_call():
    @tf.function
    def label(x):
        return tf.where(x > 0, tf.constant(["plus", "plus"]), "minus")

    assert words(label(tf.constant([1.0, -1.0]))) == [b"plus", b"minus"]
    assert words(label(tf.constant([-1.0, 1.0]))) == [b"minus", b"plus"]


def test_datasets_hold_strings():
    data = tf.data.Dataset.from_tensor_slices((["x", "y", "zz"], [1, 2, 3]))
    assert data.element_spec[0] == tf.TensorSpec((), tf.string)
    (names, numbers), last = list(data.batch(2))
    assert words(names) == [b"x", b"y"]
    assert numbers.numpy().tolist() == [1, 2]
    assert words(last[0]) == [b"zz"]
    upper = data.map(lambda name, n: tf.strings.upper(name))
    assert list(upper.as_numpy_iterator()) == [b"X", b"Y", b"ZZ"]
    assert [x.numpy() for x in data.map(lambda name, n: name).filter(lambda name: name != "y")] == [b"x", b"zz"]
    split = tf.data.Dataset.from_tensor_slices(["a b", "c"]).map(tf.strings.split).padded_batch(2)
    assert words(next(iter(split))) == [[b"a", b"b"], [b"c", b""]]
    assert list(tf.data.Dataset.from_tensor_slices(["a", "b", "a"]).unique().as_numpy_iterator()) == [b"a", b"b"]
    made = tf.data.Dataset.from_generator(lambda: iter(["p", "q"]), output_signature=tf.TensorSpec((), tf.string))
    assert [x.numpy() for x in made] == [b"p", b"q"]
