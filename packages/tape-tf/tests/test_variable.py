"""Variables, tf.Module, tf.nest, names."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest
import tape_core as tc
import tape_nn as nn
import tape_tf as tf
from support import assert_close
from tape_tf.names import status
from tape_tf.names_page import tensorflow_names

pytestmark = pytest.mark.each_backend


def test_printing() -> None:
    assert repr(tf.Variable(20.0)) == "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=20.0>"
    assert str(tf.Variable(30)) == "<tf.Variable 'Variable:0' shape=() dtype=int32, numpy=30>"
    w = tf.Variable([[1.0], [2.0]], name="w")
    assert repr(w) == (
        "<tf.Variable 'w:0' shape=(2, 1) dtype=float32, numpy=\narray([[1.],\n       [2.]], dtype=float32)>"
    )
    assert f"{tf.Variable(2.5):.2f}" == "2.50"


def test_it_is_a_tensor_but_no_instance_of_tensor() -> None:
    v = tf.Variable([1.0, 2.0])
    assert tf.is_tensor(v)
    assert not isinstance(v, tf.Tensor)
    assert isinstance(v.value(), tf.Tensor)
    assert isinstance(v + 1, tf.Tensor)
    assert v.trainable
    assert tf.Variable(1).trainable
    with pytest.raises(AttributeError):
        v.trainable = False  # type: ignore[misc]
    with pytest.raises(TypeError, match="has no len"):
        len(v)  # type: ignore[arg-type]
    assert [float(part) for part in v] == [1.0, 2.0]
    with pytest.raises(TypeError, match=r"Variable is unhashable. Instead, use variable.ref\(\) as the key."):
        hash(v)
    assert v.ref().deref() is v


def test_what_it_is_made_of() -> None:
    v = tf.Variable(tf.constant([1.0, 2.0]))
    twin = tf.Variable(v)
    v.assign([5.0, 6.0])
    assert_close(twin, [1, 2])
    assert tf.Variable(lambda: tf.ones(2)).shape == (2,)
    assert tf.Variable(1, dtype=tf.float32).dtype == tf.float32
    with pytest.raises(ValueError, match="initial_value: Tensor conversion requested dtype float64"):
        tf.Variable(tf.constant(1.0), dtype=tf.float64)
    with pytest.raises(TypeError, match=r"Cannot convert 3\.5"):
        tf.Variable(3.5, dtype=tf.int32)
    with pytest.raises(ValueError, match="initial_value is needed"):
        tf.Variable()
    with pytest.raises(ValueError, match="not compatible with the explicitly supplied"):
        tf.Variable([1.0, 2.0], shape=[3])


def test_assignment() -> None:
    v = tf.Variable([1.0, 2.0])
    assert_close(v.assign([3.0, 4.0]), [3, 4])
    assert_close(v.assign_add([1.0, 1.0]), [4, 5])
    assert_close(v.assign_sub(tf.constant([1.0, 1.0])), [3, 4])
    assert_close(v.assign_add(np.ones(2)), [4, 5])
    assert v.assign([0.0, 0.0], read_value=False) is None
    before = v.value()
    v.assign_add([1.0, 2.0])
    assert_close(before, [0, 0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda v: v.assign([[1.0, 2.0]]), ValueError, "Shape mismatch.The variable shape"),
        (lambda v: v.assign(1.0), ValueError, "Shape mismatch"),
        (lambda v: v.assign_add([1.0]), tf.errors.InvalidArgumentError, "shapes must be equal"),
        (lambda v: v.assign_sub(2.0), tf.errors.InvalidArgumentError, "Cannot update variable with shape"),
        (lambda v: v.assign(tf.constant([1, 2])), ValueError, "Tensor conversion requested dtype float32"),
        (lambda v: v.__iadd__(1.0), RuntimeError, "assign_add"),
        (lambda v: v.__isub__(1.0), RuntimeError, "assign_sub"),
        (lambda v: v.__imul__(1.0), RuntimeError, "assign"),
        (lambda v: v.__setitem__(0, 1.0), TypeError, r"v\[key\]\.assign"),
        (lambda v: v.scatter_add([1.0]), TypeError, "IndexedSlices"),
        (lambda v: v.mean(), AttributeError, "reduce_mean"),
    ],
)
def test_what_cannot_be_assigned(change: Any, error: type[Exception], message: str) -> None:
    v = tf.Variable([1.0, 2.0])
    with pytest.raises(error, match=message):
        change(v)
    assert_close(v, [1, 2])


def test_parts() -> None:
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    v[0].assign([7.0, 8.0])
    v[1, 1].assign(9.0)
    v[:, 0].assign(0.0)
    assert_close(v, [[0, 8], [0, 9]])
    rows = tf.IndexedSlices(tf.constant([[1.0, 1.0], [2.0, 2.0]]), tf.constant([0, 0]))
    assert_close(v.scatter_add(rows), [[3, 11], [0, 9]])
    assert_close(v.scatter_sub(rows), [[0, 8], [0, 9]])
    assert_close(v.scatter_update(rows), [[2, 2], [0, 9]])
    assert_close(v.scatter_mul(rows), [[4, 4], [0, 9]])
    assert_close(v.scatter_max(rows), [[4, 4], [0, 9]])
    assert_close(v.scatter_min(rows), [[1, 1], [0, 9]])
    assert_close(v.scatter_nd_add([[0, 1]], [5.0]), [[1, 6], [0, 9]])
    assert_close(v.scatter_nd_sub([[0, 1]], [5.0]), [[1, 1], [0, 9]])
    assert_close(v.scatter_nd_update([[1]], [[3.0, 3.0]]), [[1, 1], [3, 3]])
    assert_close(v.sparse_read([1, 1]), [[3, 3], [3, 3]])


def test_a_part_is_differentiable() -> None:
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = v[0] * 3.0 + tf.reduce_sum(v[:1] * v[1:])
    assert_close(tape.gradient(y, v), [5, 1])


def test_equality_and_membership() -> None:
    v, w = tf.Variable(1.0), tf.Variable(1.0)
    assert_close(v == 1.0, True)
    assert_close(v == w, True)
    assert_close(tf.Variable([1.0, 2.0]) == tf.Variable([1.0, 2.0, 3.0]), False)
    assert v.ref() != w.ref()


def test_it_is_one_object_for_each_of_the_core() -> None:
    native = tc.Variable(2.0, name="kernel")
    v = tf.Variable.of(native)
    assert tf.Variable.of(native) is v
    assert v.native is native
    assert v.name == "kernel:0"
    v.assign(5.0)
    assert native.item() == 5.0
    del v
    gc.collect()
    assert_close(tf.Variable.of(native), 5)
    layer = nn.Dense(2)
    layer.build((None, 3))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(layer(tf.ones((1, 3)).native))
    (by_bias,) = tape.gradient(y, [tf.Variable.of(layer.bias)])
    assert_close(by_bias, [1, 1])


def test_copies() -> None:
    v = tf.Variable([1.0, 2.0], name="v", trainable=False)
    for twin in (copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
        assert twin is not v
        assert (twin.name, twin.trainable) == ("v:0", False)
        twin.assign([0.0, 0.0])
        assert_close(v, [1, 2])


# -- modules


class Line(tf.Module):
    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)
        self.w = tf.Variable(2.0, name="w")
        self.b = tf.Variable(1.0, name="b", trainable=False)

    def __call__(self, x: Any) -> Any:
        return self.w * x + self.b


class Nested(tf.Module):
    def __init__(self) -> None:  # without super().__init__(), as TensorFlow allows
        self.z = Line()
        self.a = {"q": tf.Variable(1.0, name="q"), "p": [Line(), tf.Variable(2.0, name="p")]}
        self.again = self.z
        self.number = 3


def test_modules_know_their_variables() -> None:
    line = Line()
    assert [v.name for v in line.variables] == ["b:0", "w:0"]
    assert [v.name for v in line.trainable_variables] == ["w:0"]
    assert [v.name for v in line.non_trainable_variables] == ["b:0"]
    nested = Nested()
    assert [v.name for v in nested.variables] == ["p:0", "q:0", "b:0", "w:0", "b:0", "w:0"]
    assert nested.submodules == (nested.a["p"][0], nested.z)
    with tf.GradientTape() as tape:
        y = nested.z(3.0)
    (gradient,) = (tape.gradient(y, line.trainable_variables),)
    assert gradient == (None,)
    assert_close(tape.watched_variables()[0], 2)


def test_names_of_modules() -> None:
    assert Line().name == "line"
    assert Line("mine").name == "mine"
    assert type("MyBigNet2D", (tf.Module,), {})().name in ("my_big_net2d", "my_big_net2_d")
    with pytest.raises(ValueError, match="not a valid module name"):
        Line("a b")

    class Scoped(tf.Module):
        @tf.Module.with_name_scope
        def __call__(self) -> None:
            self.w = tf.Variable(1.0, name="w")

    scoped = Scoped(name="outer")
    scoped()
    assert scoped.w.name == "outer/w:0"
    with tf.name_scope("a"), tf.name_scope("b"):
        assert tf.Variable(1.0).name == "a/b/Variable:0"
    assert tf.Variable(1.0).name == "Variable:0"


def test_layers_of_tape_nn_in_a_module() -> None:
    class Mixed(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Dense(2)
            self.layer.build((None, 3))
            self.scale = tf.Variable(1.0)

    mixed = Mixed()
    assert [v.shape for v in mixed.variables] == [(), (3, 2), (2,)]
    assert mixed.variables[1] is tf.Variable.of(mixed.layer.kernel)


# -- nested structures


def test_nest() -> None:
    assert tf.nest.flatten({"b": 2, "a": [1, (0, None)]}) == [1, 0, None, 2]
    assert tf.nest.flatten("abc") == ["abc"]
    x = tf.constant([1.0])
    assert tf.nest.flatten([x, {"k": x}]) == [x, x]
    assert tf.nest.map_structure(lambda a, b: a + b, (1, [2]), (3, [4])) == (4, [6])
    assert tf.nest.pack_sequence_as({"b": 0, "a": [0]}, [1, 2]) == {"a": [1], "b": 2}
    assert tf.nest.is_nested(())
    assert not tf.nest.is_nested("ab")
    with pytest.raises(ValueError, match="nested structure"):
        tf.nest.map_structure(lambda a, b: a, [1, 2], [1])
    with pytest.raises(ValueError, match="had 2 atoms, but flat_sequence had 1"):
        tf.nest.pack_sequence_as([0, 0], [1])
    with pytest.raises(ValueError, match="nested structure"):
        tf.nest.assert_same_structure([1], (1,))


# -- names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Session", "no graphs and sessions"),
        ("gradients", r"use tf\.GradientTape"),
        ("SparseTensor", "tf.IndexedSlices"),
        ("reduce_summ", r"did you mean tf\.reduce_sum"),
        ("erf", r"did you mean tf\.math\.erf\?"),
        ("placeholder", "arguments of a function"),
        ("math.sinn", r"did you mean tf\.math\.sin"),
        ("linalg.sqrtm", r"has no tf\.linalg\.sqrtm"),
        ("nn.ctc_loss", r"has no tf\.nn\.ctc_loss"),
    ],
)
def test_a_name_that_is_absent_says_what_there_is(name: str, message: str) -> None:
    space, _, last = name.rpartition(".")
    with pytest.raises(AttributeError, match=message):
        getattr(getattr(tf, space) if space else tf, last)
    assert status(name)[0] == "absent"


def test_names_that_are_there() -> None:
    assert status("math.sin") == ("supported", "")
    assert status("random.normal")[0] == "different"
    assert status("GradientTape")[0] == "supported"
    assert not hasattr(tf.math, "nonsense")
    assert tf.sin is tf.math.sin
    assert tf.sin.__name__ == "sin"
    for call in (tf.sin, tf.reshape, tf.nn.conv2d, tf.reduce_sum):
        assert call.__doc__
    with pytest.raises(TypeError, match=r"reduce_sum\(\) got an unexpected keyword argument 'keep_dims'"):
        tf.reduce_sum([1.0], keep_dims=True)
    with pytest.raises(TypeError, match=r"reshape\(\) missing 1 required"):
        tf.reshape([1.0])
    with pytest.raises(TypeError, match="multiple values"):
        tf.reshape([1.0], [1], tensor=[2.0])


def test_every_function_takes_a_name() -> None:
    x = tf.constant([1.0])
    tf.add(x, x, name="a")
    tf.add(x, x, "a")
    tf.square(x, "a")
    tf.reduce_sum(x, name="a")
    tf.reshape(x, [1], "a")
    tf.zeros([1], name="a")
    tf.concat([x, x], 0, "a")


@pytest.mark.parametrize("space", ["tf", "tf.math", "tf.linalg", "tf.nn", "tf.random", "tf.signal", "tf.debugging"])
def test_every_absent_name_says_what_there_is_instead(space: str) -> None:
    names = tensorflow_names().get(space, [])
    full = [f"{space}.{name}".removeprefix("tf.") for name in names]
    assert [name for name in full if status(name) == ("absent", "")] == []


def test_names_of_gradient_tape_code_are_there() -> None:
    """The names that tutorials, guides and tests use most, without strings, ragged and sparse tensors."""
    most_used = """
        GradientTape Variable constant custom_gradient autodiff.ForwardAccumulator ones reduce_sum gather IndexedSlices
        recompute_grad cast float32 convert_to_tensor zeros stop_gradient reduce_mean exp complex128 random.normal
        random.uniform int32 multiply reduce_max sin UnconnectedGradients concat identity nn.relu reshape square stack
        add cos math.log matmul nn.elu nn.embedding_lookup reduce_prod round tanh transpose Module abs argmax float64
        where grad_pass_through image.adjust_contrast math.argmax nn.sigmoid Tensor clip_by_norm clip_by_value einsum
        is_tensor linspace math.conj math.real math.square nest.flatten nn.softmax_cross_entropy_with_logits
        nn.softplus norm range while_loop add_n cond eye gather_nd int64 linalg.solve math.add math.imag math.is_nan
        math.sin math.top_k nn.leaky_relu nn.softmax ones_like pad sigmoid sort split tensordot unstack argsort bfloat16
        complex cumsum debugging.assert_near debugging.assert_positive device errors.InvalidArgumentError fill float16
        floor linalg.matmul math.angle math.ceil math.cumprod math.divide_no_nan math.multiply math.reduce_sum math.rint
        math.rsqrt math.xdivy math.xlogy maximum minimum nest.map_structure nest.pack_sequence_as newaxis nn.conv2d
        nn.gelu nn.max_pool3d nn.relu6 nn.selu nn.sigmoid_cross_entropy_with_logits nn.silu
        nn.sparse_softmax_cross_entropy_with_logits nn.tanh one_hot rank reduce_min shape sign size sqrt subtract tan
        zeros_like linalg.global_norm function random.set_seed reduce_all broadcast_to clip_by_global_norm expand_dims
        linalg.band_part linalg.cholesky linalg.det linalg.diag_part linalg.inv linalg.trace map_fn math.segment_sum
        math.unsorted_segment_sum nn.dropout numpy_function py_function random.shuffle repeat reverse roll scatter_nd
        signal.fft squeeze tensor_scatter_nd_add tile
    """
    assert [name for name in most_used.split() if status(name)[0] == "absent"] == []
