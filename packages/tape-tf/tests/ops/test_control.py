"""Control flow, printing, random numbers, checks, tf.image and other functions."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf
from support import assert_close

pytestmark = pytest.mark.each_backend


DATA = Path(__file__).parents[1] / "expected"
NUMBER = r" *-?\d+\.?\d*(?:e[+-]?\d+)? *"


# -- control flow


def test_cond_case_and_switch() -> None:
    x = tf.constant(2.0)
    assert_close(tf.cond(x > 1, lambda: x * 2, lambda: x), 4)
    assert_close(tf.cond(False, lambda: 1.0, lambda: 5.0), 5)
    with pytest.raises(TypeError, match="Python function"):
        tf.cond(lambda: True, lambda: x, lambda: x)
    assert_close(tf.case([(x > 5, lambda: x), (x > 1, lambda: -x)]), -2)
    assert_close(tf.case([(x > 5, lambda: x)], default=lambda: 0.0), 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="None of the conditions"):
        tf.case([(x > 5, lambda: x)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="exclusive"):
        tf.case([(x > 1, lambda: x), (x > 0, lambda: x)], exclusive=True)
    assert_close(tf.switch_case(tf.constant(1), {0: lambda: 1.0, 1: lambda: 2.0}), 2)
    assert_close(tf.switch_case(7, [lambda: 1.0, lambda: 2.0]), 2)


def test_while_loop_is_differentiable() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        i, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (tf.constant(0), tf.constant(1.0)))
    assert_close(y, 8)
    assert_close(i, 3)
    assert_close(tape.gradient(y, x), 12)
    (few,) = tf.while_loop(lambda a: True, lambda a: (a + 1,), [0], maximum_iterations=4)
    assert_close(few, 4)
    with pytest.raises(ValueError, match="must return 2 values"):
        tf.while_loop(lambda a, b: True, lambda a, b: (a,), (1, 2))


def test_maps_and_folds() -> None:
    x = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        y = tf.map_fn(lambda row: tf.reduce_sum(row**2), x)
        z = tf.vectorized_map(lambda row: tf.reduce_sum(row**2), x)
    assert_close(y, [5, 25])
    assert_close(z, [5, 25])
    for result in (y, z):
        assert_close(tape.gradient(result, x), [[2, 4], [6, 8]])
    pairs = tf.map_fn(lambda p: (p[0] + p[1], p[0]), (x, x), fn_output_signature=(tf.float32, tf.float32))
    assert_close(pairs[0], [[2, 4], [6, 8]])
    with pytest.raises(TypeError, match="fn_output_signature says int32"):
        tf.map_fn(lambda row: row, x, fn_output_signature=tf.int32)
    assert_close(tf.foldl(lambda a, b: a - b, x), [-2, -2])
    assert_close(tf.foldr(lambda a, b: a - b, x), [2, 2])
    assert_close(tf.scan(lambda a, b: a + b, x), [[1, 2], [4, 6]])
    assert_close(tf.scan(lambda a, b: a + tf.reduce_sum(b), x, initializer=0.0), [3, 10])
    with pytest.raises(ValueError, match="same length"):
        tf.map_fn(lambda p: p[0], (tf.ones(2), tf.ones(3)))


def test_python_functions() -> None:
    x = tf.constant([1.0, 4.0])
    assert_close(tf.numpy_function(np.sqrt, [x], tf.float32), [1, 2])
    _, b = tf.py_function(lambda x: (x, tf.cast(x, tf.int32)), [x], [tf.float32, tf.int32])
    assert b.dtype == tf.int32
    with pytest.raises(ValueError, match="requested dtype"):
        tf.py_function(lambda x: x, [x], tf.int32)


# -- printing


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("a", 1, None, 1.5), "a 1 None 1.5\n"),
        ((tf.constant([1.0, 2.0]),), "[1 2]\n"),
        ((tf.constant([[1.0, 2.0], [3.0, 4.0]]),), "[[1 2]\n [3 4]]\n"),
        (
            (tf.constant(3.14159265), tf.constant(0.1), tf.constant(1e-10), tf.constant(1e20)),
            "3.14159274 0.1 1e-10 1e+20\n",
        ),
        ((tf.range(8),), "[0 1 2 ... 5 6 7]\n"),
        (([tf.constant(1), "a"], {"k": tf.constant(2.0)}), "[1, 'a'] {'k': 2}\n"),
        ((tf.constant(True), tf.Variable(2)), "1 2\n"),
    ],
    ids=["python", "vector", "matrix", "digits", "long", "nested", "bool"],
)
def test_print(values: Any, expected: str) -> None:
    stream = io.StringIO()
    tf.print(*values, output_stream=stream)
    assert stream.getvalue() == expected


def test_print_options(capsys: pytest.CaptureFixture[str]) -> None:
    tf.print("a", "b", sep="-", end="!")
    tf.print(tf.range(8), summarize=-1)
    assert capsys.readouterr().err == "a-b![0 1 2 3 4 5 6 7]\n"
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        tf.print("a", color="red")


# -- random numbers


def test_seeds() -> None:
    def draw() -> list[Any]:
        tf.random.set_seed(7)
        return [
            tf.random.normal([3]).numpy(),
            tf.random.uniform([3], seed=1).numpy(),
            tf.random.uniform([3], seed=1).numpy(),
            tf.random.shuffle(tf.range(10)).numpy(),
        ]

    first, again = draw(), draw()
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[1], first[2])
    tf.random.set_seed(8)
    assert not np.array_equal(tf.random.normal([3]).numpy(), first[0])


def test_distributions() -> None:
    tf.random.set_seed(0)
    n = 20_000
    x = tf.random.normal([n], mean=2.0, stddev=3.0).numpy()
    assert abs(x.mean() - 2) < 0.1
    assert abs(x.std() - 3) < 0.1
    x = tf.random.truncated_normal([n]).numpy()
    assert np.abs(x).max() <= 2
    assert abs(x.std() - 0.8796) < 0.02
    x = tf.random.uniform([n], -1, 3).numpy()
    assert x.min() >= -1
    assert x.max() < 3
    assert abs(x.mean() - 1) < 0.05
    i = tf.random.uniform([n], 2, 5, dtype=tf.int32).numpy()
    assert set(i.tolist()) == {2, 3, 4}
    c = tf.random.categorical(tf.math.log([[0.2, 0.8], [0.5, 0.5]]), n).numpy()
    assert c.shape == (2, n)
    assert abs(c[0].mean() - 0.8) < 0.02
    assert sorted(tf.random.shuffle(tf.range(9)).numpy().tolist()) == list(range(9))
    with pytest.raises(ValueError, match="Must specify maxval for integer"):
        tf.random.uniform([2], dtype=tf.int32)


def test_reparameterisation_has_a_gradient() -> None:
    mean, spread = tf.Variable([1.0, 2.0]), tf.Variable(0.5)
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.random.normal([2], mean, spread))
    by_mean, by_spread = tape.gradient(y, [mean, spread])
    assert_close(by_mean, [1, 1])
    assert by_spread is not None


def test_stateless_and_generators() -> None:
    for draw in (tf.random.stateless_normal, tf.random.stateless_uniform, tf.random.stateless_truncated_normal):
        assert_close(draw([3], seed=[1, 2]), draw([3], seed=(1, 2)).numpy())
        assert not np.array_equal(draw([3], seed=[1, 2]).numpy(), draw([3], seed=[2, 1]).numpy())
    with pytest.raises(ValueError, match="two integers"):
        tf.random.stateless_normal([3], seed=1)
    assert tf.random.split([1, 2], 3).shape == (3, 2)
    a, b = (tf.random.Generator.from_seed(5) for _ in range(2))
    assert_close(a.normal([3]), b.normal([3]).numpy())
    assert not np.array_equal(a.normal([3]).numpy(), tf.random.Generator.from_seed(5).normal([3]).numpy())
    assert len(a.split(2)) == 2
    assert tf.random.get_global_generator() is tf.random.get_global_generator()


def test_dropout() -> None:
    tf.random.set_seed(0)
    x = tf.ones((100, 100))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.nn.dropout(x, rate=0.25)
    kept = y.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    assert_close(tape.gradient(y, x), kept / 0.75)
    columns = tf.nn.dropout(x, 0.5, noise_shape=[1, 100]).numpy()
    assert (columns == columns[0]).all()
    with pytest.raises(ValueError, match="rate"):
        tf.nn.dropout(x, 1.5)


# -- checks


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("assert_equal", (1, 1), (1, 2)),
        ("assert_none_equal", ([1], [2]), ([1], [1])),
        ("assert_less", (1, 2), (2, 2)),
        ("assert_less_equal", (2, 2), (3, 2)),
        ("assert_greater", (3, 2), (2, 2)),
        ("assert_greater_equal", (2, 2), (1, 2)),
        ("assert_positive", ([1.0],), ([0.0],)),
        ("assert_non_negative", ([0.0],), ([-1.0],)),
        ("assert_negative", ([-1.0],), ([0.0],)),
        ("assert_non_positive", ([0.0],), ([1.0],)),
        ("assert_near", ([1.0], [1.0 + 1e-7]), ([1.0], [1.1])),
        ("assert_all_finite", ([1.0], "m"), ([float("inf")], "m")),
        ("check_numerics", ([1.0], "m"), ([float("nan")], "m")),
        ("Assert", (True, ["m"]), (False, ["m"])),
    ],
)
def test_checks_of_values(name: str, good: Any, bad: Any) -> None:
    check = getattr(tf.debugging, name)
    check(*good)
    with pytest.raises(tf.errors.InvalidArgumentError):
        check(*bad)


def test_checks_of_shapes_and_dtypes() -> None:
    x = tf.ones((2, 3))
    tf.debugging.assert_rank(x, 2)
    tf.debugging.assert_rank_at_least(x, 1)
    tf.debugging.assert_rank_in(x, [1, 2])
    tf.debugging.assert_shapes([(x, ("N", 3)), (tf.ones(2), ("N",))])
    tf.debugging.assert_type(x, tf.float32)
    tf.debugging.assert_integer(tf.constant(1))
    assert tf.debugging.is_numeric_tensor(x)
    assert tf.ensure_shape(x, [None, 3]).shape == (2, 3)
    for call in (
        lambda: tf.debugging.assert_rank(x, 1, message="here"),
        lambda: tf.debugging.assert_scalar(x),
        lambda: tf.debugging.assert_shapes([(x, ("N", "N"))]),
        lambda: tf.ensure_shape(x, [3, None]),
        lambda: tf.debugging.assert_same_float_dtype([x, tf.ones(2, tf.float64)]),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()
    with pytest.raises(TypeError, match="must be of type"):
        tf.debugging.assert_type(x, tf.int32)


# -- what is left


def test_small_things() -> None:
    assert tf.executing_eagerly()
    assert tf.newaxis is None
    assert tf.timestamp().dtype == tf.float64
    assert tf.__version__
    assert not tf.inside_function()
    unique = tf.unique(tf.constant([3, 1, 3, 2]))
    assert (unique.y.numpy().tolist(), unique.idx.numpy().tolist()) == ([3, 1, 2], [0, 1, 0, 2])
    best = tf.math.top_k([1.0, 5.0, 3.0], k=2)
    assert (best.values.numpy().tolist(), best.indices.numpy().tolist()) == ([5.0, 3.0], [1, 2])
    assert tf.reduce_sum(tf.ones((2, 3)), axis=tf.constant(1)).shape == (2,)
    assert tf.reshape(tf.ones(6), tf.stack([2, tf.constant(3)])).shape == (2, 3)
    assert tf.zeros(tf.shape(tf.ones((2, 3)))).shape == (2, 3)
    assert tf.zeros_like([1, 2]).dtype == tf.int32


def test_errors_are_those_of_tensorflow_and_of_python() -> None:
    error = tf.errors.InvalidArgumentError(None, None, "what")
    assert str(error) == "what" == error.message
    assert isinstance(error, ValueError)
    assert isinstance(error, tf.errors.OpError)
    assert issubclass(tf.errors.OutOfRangeError, IndexError)


def test_adjust_contrast_has_no_gradient_as_in_tensorflow() -> None:
    image = tf.Variable(tf.random.uniform([1, 4, 4, 3]))
    with tf.GradientTape() as tape:
        y = tf.image.adjust_contrast(image, 1.0)
    assert_close(y, image.numpy())
    with pytest.raises(LookupError, match="gradient registry has no entry for: AdjustContrastv2"):
        tape.gradient(y, image)


def test_functions_run_where_their_tensors_are() -> None:
    other = "torch" if tc.get_backend().name == "numpy" else "numpy"
    pytest.importorskip(f"tape_{other}")
    x = tf.constant([1.0, 2.0])
    with tc.use_backend(other):
        y = tf.concat([x * 2.0, [5.0]], 0) + np.ones(3, "float32")
        z = tf.one_hot(tf.cast(x, tf.int32), 3)
    assert y.native.backend is x.native.backend
    assert z.native.backend is x.native.backend


def test_tensor_arrays() -> None:
    rows = tf.TensorArray(tf.float32, size=2)
    assert rows.write(0, [1.0, 2.0]) is rows
    assert_close(rows.stack(), [[1, 2], [0, 0]])
    assert_close(rows.read(0), [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not read index 0 twice"):
        rows.read(0)
    with pytest.raises(tf.errors.OutOfRangeError, match="not resizeable and size is: 2"):
        rows.write(2, [1.0, 2.0])
    with pytest.raises(ValueError, match="requested dtype"):
        rows.write(1, tf.constant([1, 2]))
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        grown = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
        for k in range(3):
            grown = grown.write(k, v**k)
        y = tf.reduce_sum(grown.stack()) + grown.read(1) + grown.read(1)
    assert_close(tape.gradient(y, v), 0 + 1 + 4 + 2)
    assert len(grown) == 3
    assert_close(grown.size(), 3)
    assert_close(grown.gather([2, 0]), [4, 1])
    assert_close(tf.TensorArray(tf.int32, 2).split([1, 2, 3], [1, 2]).read(1), [2, 3])


def test_images_at_random() -> None:
    tf.random.set_seed(0)
    images = tf.random.uniform([20, 4, 5, 3])
    flipped = tf.image.random_flip_left_right(images).numpy()
    mirrored = images.numpy()[:, :, ::-1]
    same_as_before = (flipped == images.numpy()).all(axis=(1, 2, 3))
    assert 0 < same_as_before.sum() < 20
    assert (same_as_before | (flipped == mirrored).all(axis=(1, 2, 3))).all()
    assert tf.image.random_crop(images, [20, 2, 3, 3]).shape == (20, 2, 3, 3)
    assert float(tf.reduce_max(tf.abs(tf.image.random_brightness(images, 0.1) - images))) <= 0.1001
    assert tf.image.random_contrast(images, 0.5, 2.0).shape == images.shape
    with pytest.raises(ValueError, match=r"Need value\.shape >= size"):
        tf.image.random_crop(images, [1, 2])
    with pytest.raises(ValueError, match=r"there are bilinear, .* nearest"):
        tf.image.resize(images, [2, 2], method="best")


def test_a_program_prints_what_it_prints_in_tensorflow(capsys: pytest.CaptureFixture[str]) -> None:
    """Idioms of tutorials print what TensorFlow prints: `python idioms_program.txt > idioms_output.txt`."""
    program, expected = [(DATA / f"idioms_{part}.txt").read_text() for part in ("program", "output")]
    exec(program.replace("import tensorflow as tf", "import tape_tf as tf"), {"__name__": "idioms"})
    found = capsys.readouterr().out
    assert re.sub(NUMBER, "#", found) == re.sub(NUMBER, "#", expected)
    for line, (a, b) in enumerate(zip(re.findall(NUMBER, found), re.findall(NUMBER, expected), strict=True)):
        assert float(a) == pytest.approx(float(b), rel=1e-5, abs=1e-6), line


def test_assertions_hold_for_each_row_of_a_vectorized_map() -> None:
    def checked(row):
        tf.debugging.assert_greater(row, -1.0)
        return row * 2.0

    x = tf.constant([[1.0, 2.0], [0.5, 3.0]])
    assert tf.vectorized_map(checked, x).numpy().tolist() == [[2.0, 4.0], [1.0, 6.0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="x > y did not hold"):
        tf.vectorized_map(checked, x - 2.0)
