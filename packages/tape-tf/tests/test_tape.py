"""GradientTape behaves like TensorFlow's."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf
from support import assert_close

pytestmark = pytest.mark.each_backend


def derivative(f: Callable[[Any], Any], x: Any, **kwargs: Any) -> Any:
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, **kwargs)


# -- watching


@pytest.mark.parametrize("wrong", ["a", np.ones(2), 3.0, None], ids=str)
def test_what_cannot_be_watched(wrong: Any) -> None:
    with tf.GradientTape() as tape, pytest.raises(ValueError, match=r"Passed in object .* of type '.*', not tf.Tensor"):
        tape.watch(wrong)


def test_structures_are_watched() -> None:
    x, s, v = tf.constant([1.0, 2.0]), tf.constant(3.0), tf.Variable(1.0, trainable=False)
    with tf.GradientTape() as tape:
        tape.watch([])
        assert tape.watch({"a": x, "b": [s, (v,)]}) is None
        y = tf.reduce_sum(x) * s * v
    found = tape.gradient(y, {"a": x, "b": [s, (v,)]})
    assert_close(found["a"], [3, 3])
    assert_close(found["b"][0], 3)
    assert_close(found["b"][1][0], 9)


def test_constants_are_not_watched_and_variables_are() -> None:
    x, v, fixed = tf.constant(3.0), tf.Variable(2.0), tf.Variable(2.0, trainable=False)
    with tf.GradientTape() as tape:
        y = x * x * v * v * fixed
    by_x, by_v, by_fixed = tape.gradient(y, [x, v, fixed])
    assert by_x is None
    assert by_fixed is None
    assert_close(by_v, 72)


def test_selective_watching() -> None:
    v, w = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(v)
        y = v * w
    by_v, by_w = tape.gradient(y, [v, w])
    assert_close(by_v, 3)
    assert by_w is None


def test_watched_variables_are_in_order_of_construction() -> None:
    a, b, c = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3)
    with tf.GradientTape() as tape:
        b * a
        c.assign_add(1)
        a.assign(5.0, read_value=False)
        b.shape, b.dtype, b.name  # noqa: B018
    watched = tape.watched_variables()
    assert isinstance(watched, tuple)
    assert [v.ref() for v in watched] == [a.ref(), b.ref(), c.ref()]
    assert watched[0] is a
    assert tf.GradientTape().watched_variables() == ()
    with tf.GradientTape() as tape:
        tf.stop_gradient(a)
        a.assign(5.0, read_value=False)
    assert tape.watched_variables() == ()
    with tf.GradientTape() as tape:
        float(a), b.numpy()
    assert len(tape.watched_variables()) == 2


def test_integers_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    v = tf.Variable(30)
    with tf.GradientTape() as tape:
        y = v**3
    assert tape.gradient(y, v) is None
    expected = [
        f"WARNING:tensorflow:The dtype of the {what} tensor must be floating (e.g. tf.float32) when calling "
        f"GradientTape.gradient, got tf.int32"
        for what in ("target", "source")
    ]
    text = capsys.readouterr().err
    assert not text or text.splitlines() == expected  # where the root logger has handlers, they have it


def test_the_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with tf.GradientTape() as tape:
        tape.watch(tf.constant(1))
    assert "The dtype of the watched tensor must be floating (e.g. tf.float32), got tf.int32" in caplog.text


# -- gradient()


def test_the_structure_of_the_result() -> None:
    v, w = tf.Variable(2.0), tf.Variable([1.0, 2.0])
    pair = collections.namedtuple("pair", "p q")(v, w)
    with tf.GradientTape(persistent=True) as tape:
        y = v * tf.reduce_sum(w)
    for sources in ([v, w], (v, w), pair, {"z": v, "a": [w]}, collections.OrderedDict(b=v, a=w)):
        found = tape.gradient(y, sources)
        assert type(found) is type(sources)
        tf.nest.assert_same_structure(found, sources)
    assert list(tape.gradient(y, collections.OrderedDict(b=v, a=w))) == ["b", "a"]
    assert_close(tape.gradient(y, {"z": v, "a": [w]})["z"], 3)
    assert isinstance(tape.gradient(y, {"z": v}.values()), list)
    assert tape.gradient(y, []) == []
    assert tape.gradient([], v) is None
    assert_close(tape.gradient([], v, unconnected_gradients="zero"), 0)
    assert_close(tape.gradient([y, (y,)], v), 6)
    twice = tape.gradient(y, [v, v])
    assert_close(twice[1], twice[0].numpy())


def test_source_and_target() -> None:
    x, v = tf.constant(3.0), tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y * v
    assert_close(tape.gradient(x, x), 1)
    assert_close(tape.gradient(v, v), 1)
    assert_close(tape.gradient([y, y], x), 12)
    assert_close(tape.gradient(z, y), 2)
    assert tape.gradient(y, z) is None
    assert_close(tape.gradient(y, x), 6)


@pytest.mark.parametrize("how", ["zero", tf.UnconnectedGradients.ZERO])
def test_unconnected_gradients(how: Any) -> None:
    v, w = tf.Variable(2.0), tf.Variable([1.0, 2.0], dtype=tf.float64)
    with tf.GradientTape() as tape:
        y = v * v
    found = tape.gradient(y, w, unconnected_gradients=how)
    assert found.dtype == tf.float64
    assert_close(found, [0, 0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t, y, v: t.gradient(None, v), TypeError, "Argument `target` should be a list or nested structure"),
        (lambda t, y, v: t.gradient(y, None), TypeError, "sources must be a tf.Tensor or tf.Variable, got None"),
        (lambda t, y, v: t.gradient(y, "x"), TypeError, "got 'x' of type 'str'"),
        (lambda t, y, v: t.gradient(3.0, v), TypeError, "target must be .* got 3.0"),
        (lambda t, y, v: t.gradient(y, [v, {"a": 1}]), TypeError, r"sources\[1\]\['a'\]"),
        (lambda t, y, v: t.gradient(y, v, unconnected_gradients="nonsense"), ValueError, "Unknown value .* 'nonsense'"),
        (lambda t, y, v: t.gradient(y, v, output_gradients=tf.ones(3)), ValueError, r"shape \(3,\)"),
        (lambda t, y, v: t.gradient([y, y], v, output_gradients=[tf.ones(())]), ValueError, "1 leaves"),
        (lambda t, y, v: t.jacobian(y, v, unconnected_gradients="x"), ValueError, "Unknown value"),
        (lambda t, y, v: t.batch_jacobian(y, v), ValueError, "must have rank at least 2"),
        (lambda t, y, v: t.reset(), ValueError, "Tape is not recording."),
        (lambda t, y, v: t.stop_recording().__enter__(), RuntimeError, "a tape which is not recording"),
    ],
    ids=[
        *("no target", "no source", "a string", "a number", "in a structure", "unconnected", "weights", "few weights"),
        *("jacobian", "rank", "reset", "stop"),
    ],
)
def test_errors_do_not_use_the_tape_up(call: Any, error: type[Exception], message: str) -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
    with pytest.raises(error, match=message):
        call(tape, y, v)
    assert_close(tape.gradient(y, v), 4)


def test_a_tape_is_used_once() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
    tape.gradient(y, v)
    for call in (tape.gradient, tape.jacobian):
        with pytest.raises(RuntimeError, match="A non-persistent GradientTape can only be used to compute one set of"):
            call(y, v)


def test_output_gradients() -> None:
    x = tf.constant([1.0, 2.0])
    for weights in (
        tf.constant([1.0, -1.0]),
        np.float32([1, -1]),
        [[1.0, -1.0]],
        [1.0, -1.0],
        tf.Variable([1.0, -1.0]),
    ):
        assert_close(derivative(lambda x: x * x, x, output_gradients=weights), [2, -4])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, z = x * x, 3.0 * x
    assert_close(tape.gradient([y, z], x, output_gradients=[tf.ones(2), tf.constant([1.0, 0.0])]), [5, 4])


def test_casts_and_dtypes() -> None:
    x = tf.constant([1.0, 2.0])
    found = derivative(lambda x: tf.cast(x, tf.float64) ** 2, x)
    assert found.dtype == tf.float32
    assert_close(found, [2, 4])
    assert derivative(lambda x: tf.cast(tf.cast(x, tf.int32), tf.float32), x) is None


@pytest.mark.parametrize(
    ("name", "f", "expected"),
    [
        ("abs", tf.abs, 0),
        ("relu", tf.nn.relu, 0),
        ("sign", tf.sign, 0),
        ("maximum", lambda x: tf.maximum(x, 0.0), 1),
        ("minimum", lambda x: tf.minimum(x, 0.0), 1),
        ("clip", lambda x: tf.clip_by_value(x, 0.0, 1.0), 1),
        ("leaky_relu", tf.nn.leaky_relu, 0.2),
        ("elu", tf.nn.elu, 1),
        ("relu6", tf.nn.relu6, 0),
        ("power 1", lambda x: x**1, 1),
        ("power 2", lambda x: x**2, 0),
        ("power 0", lambda x: x**0, 0),
        ("sqrt", tf.sqrt, np.inf),
        ("divide_no_nan", lambda x: tf.math.divide_no_nan(1.0, x), 0),
        ("xlogy", lambda x: tf.math.xlogy(x, x), 0),
        ("modulo", lambda x: x % 2.0, 1),
        ("where", lambda x: tf.where(x > 0, tf.sqrt(x), 0.0), 0),
        ("norm", lambda x: tf.norm(tf.stack([x, x])), 0),
        ("floor", tf.floor, None),
        ("round", tf.round, None),
        ("floordiv", lambda x: x // 1.0, None),
        ("ones_like", tf.ones_like, None),
        ("zeros_like", tf.zeros_like, None),
        ("argmax", lambda x: tf.cast(tf.argmax([x]), tf.float32), None),
        ("compare", lambda x: tf.cast(x > 0, tf.float32), None),
        ("shape", lambda x: tf.cast(tf.shape(x), tf.float32), None),
    ],
    ids=lambda c: c if isinstance(c, str) else "",
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients_at_zero(name: str, f: Any, expected: float | None) -> None:
    found = derivative(f, 0.0)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert_close(found, expected)


def test_ties_and_zeros() -> None:
    assert_close(derivative(tf.reduce_max, [2.0, 2.0, 1.0]), [0.5, 0.5, 0])
    assert_close(derivative(tf.reduce_prod, [0.0, 0.0, 3.0]), [0, 0, 0])
    assert_close(derivative(tf.reduce_prod, [0.0, 2.0, 3.0]), [6, 0, 0])


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda z: z * z, 2 - 4j),
        (tf.math.real, 1),
        (tf.math.imag, 1j),
        (tf.math.conj, 1),
        (tf.abs, (1 + 2j) / 5**0.5),
        (tf.math.angle, (-2 + 1j) / 5),
    ],
    ids=["square", "real", "imag", "conj", "abs", "angle"],
)
def test_complex_gradients(f: Any, expected: complex) -> None:
    found = derivative(f, tf.constant(1 + 2j))
    assert found.dtype == tf.complex128
    assert_close(found, expected)


# -- recording


def test_stop_recording_and_reset() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape(persistent=True) as tape:
        y = v * v
        with tape.stop_recording():
            z = v * v * v
        w = y * v
    assert tape.gradient(z, v) is None
    assert_close(tape.gradient(w, v), 12)
    with tf.GradientTape() as tape:
        y = v * v
        tape.reset()
        assert tape.watched_variables() == ()
        z = v * v * v
    assert_close(tape.gradient([y, z], v), 12)


def test_entering_again() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
        with pytest.raises(ValueError, match="Tape is still recording, This can happen if you try to re-enter"):
            tape.__enter__()
    with tape:
        z = y * v
    assert_close(tape.gradient(z, v), 12)


def test_an_exception_leaves_the_block() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with pytest.raises(KeyError):
            with tf.GradientTape() as inner:
                y = v * v
                raise KeyError
        z = y * v
    assert_close(inner.gradient(y, v), 4)
    assert_close(outer.gradient(z, v), 12)


def test_watching_before_the_block() -> None:
    x = tf.constant(3.0)
    tape = tf.GradientTape()
    tape.watch(x)
    with tape:
        y = x * x
    assert_close(tape.gradient(y, x), 6)


def test_a_record_has_the_values_that_were_read() -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = v * v
        v.assign(10.0)
        z = y * v
    assert_close(z, 40)
    assert_close(tape.gradient(z, v), 44)
    with tf.GradientTape() as tape:
        y = v.assign(3.0) * 5.0
    assert_close(tape.gradient(y, v), 5)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda v: tf.convert_to_tensor(v) * 2.0, 2),
        (lambda v: tf.constant(v) * 2.0, None),
        (lambda v: tf.reduce_sum([v, v * 2.0]), 3),
        (lambda v: tf.stack([v, 1.0])[0], 1),
        (lambda v: tf.numpy_function(np.square, [v], tf.float32), None),
        (lambda v: tf.py_function(lambda a: a * a, [v], tf.float32), 4),
        (lambda v: tf.stop_gradient(v) * v, 2),
        (lambda v: tf.Variable(v * 1.0) * 2.0, None),
        (lambda v: tf.identity(v) * v, 4),
    ],
    ids=[
        "convert",
        "constant",
        "list",
        "stack",
        "numpy_function",
        "py_function",
        "stop_gradient",
        "Variable",
        "identity",
    ],
)
def test_what_keeps_the_path(f: Any, expected: float | None) -> None:
    v = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        y = f(v)
    found = tape.gradient(y, v)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert_close(found, expected)


def test_threads_do_not_see_the_tape() -> None:
    v, results = tf.Variable(2.0), []
    with tf.GradientTape() as tape:
        thread = threading.Thread(target=lambda: results.append(v * v))
        thread.start()
        thread.join()
    assert tape.gradient(results[0], v) is None


# -- higher orders, Jacobians


def test_nested_tapes() -> None:
    x = tf.Variable(1.0)
    with tf.GradientTape() as third:
        with tf.GradientTape() as second:
            with tf.GradientTape() as first:
                y = x * x * x
            dy = first.gradient(y, x)
        d2y = second.gradient(dy, x)
    d3y = third.gradient(d2y, x)
    for found, expected in ((dy, 3), (d2y, 6), (d3y, 6)):
        assert_close(found, expected)


def test_a_persistent_tape_in_its_own_block() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x**3
        with pytest.warns(UserWarning, match="inside the context of a persistent tape"):
            dy = tape.gradient(y, x)
    assert_close(tape.gradient(dy, x), 12)
    del tape


def test_jacobians() -> None:
    x, w = tf.constant([1.0, 2.0]), tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.linalg.matvec(w, x)
    assert_close(tape.jacobian(y, x), [[1, 2], [3, 4]])
    _, by_w = tape.jacobian(y, [x, w])
    assert by_w.shape == (2, 2, 2)
    assert_close(tape.jacobian(y, x, experimental_use_pfor=False), [[1, 2], [3, 4]])
    assert_close(tape.jacobian(y, x, parallel_iterations=2), [[1, 2], [3, 4]])
    assert tape.jacobian(y, tf.constant(1.0)) is None
    with tf.GradientTape() as tape:
        y = w * w
    assert_close(tape.batch_jacobian(y, w), [[[2, 0], [0, 4]], [[6, 0], [0, 8]]])
    with tf.GradientTape() as tape:
        y = tf.ones((3, 2)) * w[0]
    with pytest.raises(
        ValueError, match=r"Need first dimension of target shape \(\(3, 2\)\) and source shape \(\(2, 2\)\)"
    ):
        tape.batch_jacobian(y, w)


# -- IndexedSlices


def test_the_gradient_of_gather() -> None:
    table = tf.Variable(tf.ones((4, 2)))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.gather(table, tf.constant([1, 1, 3])) * 2.0)
    g = tape.gradient(y, table)
    assert isinstance(g, tf.IndexedSlices)
    assert not isinstance(g, tf.Tensor)
    assert tf.is_tensor(g)
    assert g.indices.numpy().tolist() == [1, 1, 3]
    assert g.dense_shape.numpy().tolist() == [4, 2]
    assert (g.shape, g.dtype) == ((4, 2), tf.float32)
    dense = [[0, 0], [4, 4], [0, 0], [2, 2]]
    assert_close(tf.convert_to_tensor(g), dense)
    assert_close(tf.multiply(g, 2.0), np.multiply(dense, 2))
    assert_close(tf.square(g), np.square(dense))
    assert_close(tf.convert_to_tensor(-g), np.negative(dense))
    assert_close(tf.linalg.global_norm([g]), np.sqrt(3 * 8))
    clipped, norm = tf.clip_by_global_norm([g, None], 1.0)
    assert isinstance(clipped[0], tf.IndexedSlices)
    assert clipped[1] is None
    assert_close(norm, np.sqrt(24))
    assert_close(table.assign_sub(g), np.subtract(1, dense))
    assert_close(table.scatter_add(g), np.ones((4, 2)))


def test_slices_made_by_hand() -> None:
    g = tf.IndexedSlices([[1.0, 2.0]], [1], dense_shape=[3, 2])
    assert_close(tf.convert_to_tensor(g), [[0, 0], [1, 2], [0, 0]])
    with pytest.raises(ValueError, match="without dense_shape"):
        tf.convert_to_tensor(tf.IndexedSlices([[1.0, 2.0]], [1]))


@pytest.mark.parametrize(
    "f",
    [lambda t: tf.gather(t, [0, 1], axis=1), lambda t: t[0], lambda t: tf.gather_nd(t, [[0, 1]])],
    ids=["axis 1", "row", "element"],
)
def test_other_reads_have_dense_gradients(f: Any) -> None:
    table = tf.Variable(tf.ones((4, 2)))
    with tf.GradientTape() as tape:
        y = f(table)
    assert isinstance(tape.gradient(y, table), tf.Tensor)


def test_the_tape_beneath_explains() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        y = x * x
    assert tape.gradient(y, x) is None
    assert isinstance(tape.native, tc.GradientTape)
