"""Tensors: conversion, dtype rules, printing, indexing, operators."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_tf as tf
from support import assert_close

pytestmark = pytest.mark.each_backend


# -- what tensors are made of


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int32"),
        (2**40, "int64"),
        (1.5, "float32"),
        (True, "bool"),
        (1j, "complex128"),
        ([1, 2], "int32"),
        ([1, 2.5], "float32"),
        ([[1.0], [2.0]], "float32"),
        ([], "float32"),
        (np.float64(1), "float64"),
        (np.zeros(2), "float64"),
        (np.arange(3), "int64"),
        ([np.float64(1)], "float64"),
        (np.float16(1), "float16"),
        (range(3), "int32"),
    ],
    ids=str,
)
def test_the_dtype_of_what_is_converted(value: Any, dtype: str) -> None:
    for make in (tf.constant, tf.convert_to_tensor, tf.Variable):
        assert make(value).dtype == dtype
        assert make(value).numpy().dtype == dtype


def test_an_explicit_dtype_converts_numbers_and_arrays_but_no_tensors() -> None:
    assert tf.constant(1, tf.float32).dtype == tf.float32
    assert tf.constant(np.zeros(2), dtype="int32").dtype == tf.int32
    with pytest.raises(TypeError, match=r"Cannot convert 1\.5 to EagerTensor of dtype int32"):
        tf.constant(1.5, tf.int32)
    x = tf.constant([1.0, 2.0])
    with pytest.raises(TypeError, match=r"Expected tensor \[1\. 2\.\] with dtype tf.float64, but got dtype tf.float32"):
        tf.constant(x, tf.float64)
    with pytest.raises(ValueError, match=r"Tensor conversion requested dtype float64 for Tensor with dtype float32"):
        tf.convert_to_tensor(x, tf.float64)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1, 2], [3]], "non-rectangular"),
        (None, r"value \(None\) with an unsupported type"),
        ({}, "unsupported type"),
        (object, "unsupported type"),
        (np.array(["2020-01-01"], "datetime64[D]"), "NumPy dtype datetime64"),
    ],
    ids=str,
)
def test_what_is_no_tensor(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tf.constant(value)


def test_a_tensor_stays_itself() -> None:
    x = tf.constant([1.0, 2.0])
    assert tf.constant(x) is x
    assert tf.convert_to_tensor(x) is x
    assert tf.cast(x, tf.float32) is x
    assert tf.identity(x) is not x
    assert copy.copy(x) is x
    assert copy.deepcopy(x) is x
    assert_close(pickle.loads(pickle.dumps(x)), [1, 2])


def test_arrays_are_copied() -> None:
    a = np.ones(3, "float32")
    x, v = tf.constant(a), tf.Variable(a)
    a[0] = 7
    assert_close(x, [1, 1, 1])
    assert_close(v, [1, 1, 1])
    x.numpy()[0] = 9
    assert_close(x, [1, 1, 1])


def test_the_way_from_and_to_the_core_keeps_the_path() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.convert_to_tensor(tc.sin(x.native))
    assert_close(tape.gradient(y, x), np.cos(np.float32(3)))
    with tc.GradientTape() as native:
        native.watch(x.native)
        z = (x * x).native
    assert native.gradient(z, x.native).item() == 6.0


def test_a_function_of_the_core_takes_tensors_of_the_facade() -> None:
    x, v = tf.constant([1.0, 2.0]), tf.Variable(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.multiply(x, v))
    assert isinstance(y, tc.Tensor)
    by_x, by_v = tape.gradient(y, [x, v])
    assert_close(by_x, [2, 2])
    assert_close(by_v, 3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tc.sum(tc.concat([tc.asarray(x), tc.asarray([v, v])]) * x.native[0])
    assert_close(tape.gradient(y, x), [8, 1])
    assert isinstance(x.native * x, tf.Tensor)
    assert tc.grad(lambda a: tc.sum(a * a))(x).tolist() == [2, 4]


@pytest.mark.parametrize("shape", [(2, 2), [2, 2], 2])
def test_constant_with_a_shape(shape: Any) -> None:
    assert_close(tf.constant(1.0, shape=shape), np.ones(shape))
    with pytest.raises(TypeError, match="unsupported shape"):
        tf.constant([1.0, 2.0, 3.0], shape=shape)


# -- dtype rules


@pytest.mark.parametrize(
    "other", [1, 1.5, True, np.float64(2), np.int32(3), np.array([1.0, 2.0]), np.array([1, 2]), [1, 2]]
)
def test_numbers_and_arrays_take_the_tensors_dtype(other: Any) -> None:
    x = tf.constant([1.0, 2.0])
    for found, expected in (
        (x + other, np.float32([1, 2]) + np.asarray(other)),
        (other * x, np.float32([1, 2]) * np.asarray(other)),
        (tf.subtract(other, x), np.asarray(other) - np.float32([1, 2])),
    ):
        assert isinstance(found, tf.Tensor)
        assert found.dtype == tf.float32
        assert_close(found, expected.astype("float32"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda f, d, i: f + d,
            r"cannot compute AddV2 as input #1\(zero-based\) was expected to be a float tensor but is",
        ),
        (lambda f, d, i: f * i, "cannot compute Mul .* a float tensor but is a int32 tensor"),
        (lambda f, d, i: i + 1.5, "cannot compute AddV2 .* a int32 tensor but is a float tensor"),
        (lambda f, d, i: i * np.array([0.5, 1.0]), "cannot compute Mul"),
        (lambda f, d, i: f + 1j, "a float tensor but is a complex128 tensor"),
        (lambda f, d, i: f**i, "cannot compute Pow"),
        (lambda f, d, i: f == d, "cannot compute Equal"),
        (lambda f, d, i: f < i, "cannot compute Less"),
        (lambda f, d, i: tf.matmul(f[None], d[:, None]), "MatMul"),
        (lambda f, d, i: tf.concat([f, d], 0), "ConcatV2 as input #1"),
        (lambda f, d, i: tf.where(f > 0, f, i), "SelectV2"),
        (lambda f, d, i: tf.stack([f, d]), "Pack"),
        (lambda f, d, i: tf.einsum("i,i->", f, d), "Einsum"),
    ],
)
def test_nothing_is_promoted(make: Any, message: str) -> None:
    f, d, i = tf.constant([1.0, 2.0]), tf.constant([1.0, 2.0], tf.float64), tf.constant([1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as caught:
        make(f, d, i)
    assert "tf.cast" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_numbers_must_fit_into_integers() -> None:
    for wrong in (300, -1, [1, 300], np.array([1, -1]), np.array([0.0, 256.0])):
        with pytest.raises(TypeError, match="to EagerTensor of dtype uint8"):
            tf.constant(wrong, tf.uint8)
    assert_close(tf.constant(np.array([0.0, 255.0]), tf.uint8), [0, 255])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a int32 tensor but is a int64 tensor"):
        tf.constant([1]) + 2**40
    for call in (lambda: tf.gather([1.0], [0.0]), lambda: tf.one_hot([0.0], 2), lambda: tf.gather_nd([1.0], [[0.0]])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be integers"):
            call()


def test_integers() -> None:
    i = tf.constant([1, 2])
    assert (i / i).dtype == tf.float64
    assert (i / 2).dtype == tf.float64
    assert (3 / i).dtype == tf.float64
    assert (tf.constant([1, 2], tf.int8) / tf.constant([1, 2], tf.int8)).dtype == tf.float32
    assert (i // 2).dtype == tf.int32
    assert (i**2).dtype == tf.int32
    assert tf.reduce_sum(i).dtype == tf.int32
    assert tf.argmax(i).dtype == tf.int64
    assert tf.shape(i).dtype == tf.int32
    for function in (tf.sin, tf.sqrt, tf.nn.softmax, tf.linalg.inv, tf.math.log, tf.reduce_logsumexp, tf.math.erf):
        with pytest.raises(tf.errors.InvalidArgumentError, match="of int32 is not in the list of allowed values"):
            function(i)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + tf.constant([1.0, 2.0, 3.0]),
        lambda x: tf.reshape(x, (3,)),
        lambda x: tf.gather(x, [5]),
        lambda x: x[5],
        lambda x: x[0, 0],
        lambda x: tf.einsum("ij->ji", x),
        lambda x: tf.transpose(x, [1, 0]),
        lambda x: tf.nn.conv2d(tf.ones((1, 4, 4, 2)), tf.ones((2, 2, 3, 1)), 1, "SAME"),
        lambda x: tf.matmul(x, x),
        lambda x: tf.reduce_sum(x, axis=3),
        lambda x: tf.split(x, 3),
        lambda x: tf.tensor_scatter_nd_update(x, [[7]], [1.0]),
    ],
    ids=[
        "add",
        "reshape",
        "gather",
        "index",
        "indices",
        "einsum",
        "transpose",
        "conv",
        "matmul",
        "axis",
        "split",
        "scatter",
    ],
)
def test_what_does_not_fit_is_an_invalid_argument(call: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        call(tf.constant([1.0, 2.0]))


# -- printing


@pytest.mark.parametrize(
    ("value", "shown", "text"),
    [
        (6.0, "<tf.Tensor: shape=(), dtype=float32, numpy=6.0>", "tf.Tensor(6.0, shape=(), dtype=float32)"),
        (
            [1.0, 2.0],
            "<tf.Tensor: shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>",
            "tf.Tensor([1. 2.], shape=(2,), dtype=float32)",
        ),
        (
            [[1], [2]],
            "<tf.Tensor: shape=(2, 1), dtype=int32, numpy=\narray([[1],\n       [2]], dtype=int32)>",
            "tf.Tensor(\n[[1]\n [2]], shape=(2, 1), dtype=int32)",
        ),
        (
            0.1,
            "<tf.Tensor: shape=(), dtype=float32, numpy=0.10000000149011612>",
            "tf.Tensor(0.1, shape=(), dtype=float32)",
        ),
        (
            1 + 2j,
            "<tf.Tensor: shape=(), dtype=complex128, numpy=(1+2j)>",
            "tf.Tensor((1+2j), shape=(), dtype=complex128)",
        ),
        (True, "<tf.Tensor: shape=(), dtype=bool, numpy=True>", "tf.Tensor(True, shape=(), dtype=bool)"),
    ],
)
def test_printing(value: Any, shown: str, text: str) -> None:
    assert repr(tf.constant(value)) == shown
    assert str(tf.constant(value)) == text


def test_formatting() -> None:
    x = tf.constant(2.5)
    assert f"{x:.2f} {x}" == "2.50 2.5"
    assert "%.1f" % x == "2.5"  # noqa: UP031
    assert f"{x.numpy()}" == "2.5"
    assert f"{tf.constant(0.1)}" == "0.10000000149011612"  # as in TensorFlow
    assert f"{tf.constant([1.0, 2.0])}" == "[1. 2.]"
    assert type(x.numpy()) is np.float32


# -- shape


def test_shapes() -> None:
    shape = tf.zeros((2, 3)).shape
    assert shape == (2, 3)
    assert shape == [2, 3]
    assert shape != [2]
    assert (str(shape), repr(shape)) == ("(2, 3)", "TensorShape([2, 3])")
    assert (shape.as_list(), shape.rank, shape.ndims, len(shape)) == ([2, 3], 2, 2, 2)
    assert shape.num_elements() == 6
    assert shape[0] == 2
    assert isinstance(shape[1:], tf.TensorShape)
    assert shape + [4] == (2, 3, 4)  # noqa: RUF005
    assert [1, *shape] == [1, 2, 3]
    assert tf.TensorShape([2, None]).is_compatible_with(shape)
    assert not tf.TensorShape([3, None]).is_compatible_with(shape)
    assert not tf.TensorShape([2, None]).is_fully_defined()
    assert tf.TensorShape(None).rank is None
    assert tf.zeros(shape).shape == shape
    with pytest.raises(ValueError, match="incompatible"):
        shape.assert_is_compatible_with([1, 1])
    assert repr(tf.TensorSpec([2, None], name="a")) == "TensorSpec(shape=(2, None), dtype=tf.float32, name='a')"


# -- indexing


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, None),
        slice(None, None, -1),
        (slice(None), 1),
        (..., 0),
        (slice(None), None),
        (None, 1, slice(0, 3, 2)),
    ],
    ids=str,
)
def test_indexing(key: Any) -> None:
    values = np.arange(12.0, dtype="float32").reshape(3, 4)
    x = tf.constant(values)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x[key]
    assert_close(y, values[key])
    expected = np.zeros((3, 4))
    expected[key] = 1
    assert_close(tape.gradient(y, x), expected)


def test_indexing_with_tensors_and_masks() -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    assert_close(x[tf.constant(1)], 2)
    assert_close(x[tf.constant(1) : tf.constant(3)], [2, 3])
    assert_close(x[x > 1], [2, 3])
    assert_close(x[np.int64(2)], 3)
    assert_close(x[np.array([True, False, True])], [1, 3])
    for key in ([0, 1], np.array([0, 1]), tf.constant([0, 1]), 1.5, "a"):
        with pytest.raises(TypeError, match=r"Only integers, slices .* are valid indices"):
            x[key]


def test_as_a_sequence() -> None:
    x = tf.constant([1.0, 2.0])
    assert len(x) == 2
    assert [float(part) for part in x] == [1.0, 2.0]
    a, b = x
    assert (int(a), bool(b)) == (1, True)
    assert list(range(tf.constant(2))) == [0, 1]
    with pytest.raises(TypeError, match="iterate over a scalar"):
        iter(a)
    with pytest.raises(TypeError, match="Scalar tensor has no `len"):
        len(a)
    with pytest.raises(ValueError, match="truth value of an array"):
        bool(x)
    for kind in (float, int, complex):
        with pytest.raises(TypeError, match=r"one element.*shape \(2,\)"):
            kind(x)


# -- what is an object


def test_identity_and_equality() -> None:
    x = tf.constant([1.0, 2.0])
    with pytest.raises(TypeError, match=r"Tensor is unhashable. Instead, use tensor.ref\(\) as the key."):
        hash(x)
    assert x.ref() == x.ref()
    assert x.ref() != tf.constant([1.0, 2.0]).ref()
    assert {x.ref(): 1}[x.ref()] == 1
    assert x.ref().deref() is x
    assert_close(x == [1.0, 5.0], [True, False])
    assert_close(x != x, [False, False])
    assert (x == None) is False  # noqa: E711
    assert_close(x == [1.0, 2.0, 3.0], False)


def test_a_tensor_cannot_be_changed() -> None:
    x = tf.constant([1.0, 2.0])
    with pytest.raises(TypeError, match="tensor_scatter_nd_update"):
        x[0] = 5.0  # type: ignore[index]
    with pytest.raises(TypeError, match=r"tf\.constant"):
        tf.Tensor([1.0])
    with pytest.raises(AttributeError, match=r"no attribute 'T'; use tf\.transpose"):
        getattr(x, "T")  # noqa: B009
    with pytest.raises(AttributeError, match=r"use tf\.reduce_mean"):
        x.mean()
    y = x
    y += 1.0
    assert_close(x, [1, 2])
    assert_close(y, [2, 3])


def test_numpy_on_the_left_keeps_the_path() -> None:
    x = tf.constant([1.0, 2.0])
    for left in (np.array([3.0, 4.0]), np.float64(2.0), np.float32(2.0)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = left * x
        assert isinstance(y, tf.Tensor)
        assert_close(tape.gradient(y, x), np.broadcast_to(left, 2))
    assert_close(np.ones(2) - tf.Variable([1.0, 2.0]), [0, -1])
    assert isinstance(np.ones((1, 2), "float32") @ x[:, None], tf.Tensor)
    assert isinstance(np.sin(x), np.ndarray)


def test_dtypes() -> None:
    assert tf.float32 == "float32" == tf.as_dtype(np.float32).name
    assert tf.float32 != tf.int32
    assert tf.as_dtype(tc.float64) is tf.float64
    assert (repr(tf.float32), str(tf.int64)) == ("tf.float32", "<dtype: 'int64'>")
    assert tf.float32.as_numpy_dtype is np.float32
    assert (tf.int8.min, tf.int8.max, tf.uint8.limits) == (-128, 127, (0, 255))
    assert tf.complex64.real_dtype is tf.float32
    assert {tf.float32: 1}[tf.as_dtype("float32")] == 1
    assert np.zeros(2, tf.float32.as_numpy_dtype).dtype == "float32"
    assert pickle.loads(pickle.dumps(tf.int32)) is tf.int32
    for wrong in ("foo", None, int):
        with pytest.raises(TypeError, match="Cannot convert the argument"):
            tf.as_dtype(wrong)


def test_devices() -> None:
    x = tf.constant(1.0)
    assert x.device.startswith("/job:localhost/replica:0/task:0/device:")
    with tf.device("/CPU:0"):
        assert tf.zeros(2).device.endswith("CPU:0")
    with tf.device(None):
        tf.zeros(2)
    assert tf.config.list_physical_devices("CPU")[0].device_type == "CPU"
    with pytest.raises(ValueError, match="no name of a device"), tf.device("foo"):
        pass
    with pytest.raises(RuntimeError, match="TAPE_BACKEND"), tf.device("/GPU:99"):
        pass


def test_tensors_are_made_on_the_selected_backend() -> None:
    name = tc.get_backend().name
    for tensor in (
        tf.constant(1.0),
        tf.constant(np.ones(2)),
        tf.zeros(2),
        tf.range(3),
        tf.random.normal([2]),
        tf.eye(2),
    ):
        assert tensor.native.backend.name == name
    assert tf.Variable(np.ones(2)).native.backend.name == name


def test_a_list_that_contains_itself_is_no_tensor() -> None:
    values: list = [1.0]
    values.append(values)
    with pytest.raises(ValueError, match="a list that contains itself"):
        tf.constant(values)


def test_lists_of_numbers_keep_their_digits_in_the_dtype_that_is_asked_for() -> None:
    assert tf.constant([0.1, 1e39], tf.float64).numpy().tolist() == [0.1, 1e39]
    assert tf.convert_to_tensor([[0.1]], dtype=tf.float64).numpy().tolist() == [[0.1]]
    assert tf.Variable([0.1], dtype=tf.float64).numpy().tolist() == [0.1]
    assert tf.constant([0.1], tf.complex128).numpy().tolist() == [0.1]
    assert (tf.constant([1.0], tf.float64) * [0.1]).numpy().tolist() == [0.1]
    assert tf.constant([0.1]).dtype == tf.float32
    assert (tf.constant([1, 2]) * [1, 2]).dtype == tf.int32
