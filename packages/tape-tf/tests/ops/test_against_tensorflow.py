"""The functions against TensorFlow's numbers: values, dtypes, shapes and gradients."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tape_tf as tf
from tape_tf.functions import op

pytestmark = pytest.mark.each_backend


DATA = json.loads((Path(__file__).parents[1] / "expected" / "functions.json").read_text())


def array(stored: dict[str, Any]) -> Any:
    kind = stored["dtype"]
    values = [float(v) if isinstance(v, str) else v for v in stored["values"]]
    if kind.startswith("complex"):
        pairs = np.reshape(np.array(values, "float64"), stored["shape"])
        return (pairs[..., 0] + 1j * pairs[..., 1]).astype(kind)
    return np.reshape(np.array(values, kind), stored["shape"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on square roots of negative numbers
@pytest.mark.parametrize("case", DATA["cases"], ids=lambda c: c["call"])
def test_it_gives_what_tensorflow_gives(case: dict[str, Any]) -> None:
    inputs = {name: tf.constant(array(stored)) for name, stored in DATA["inputs"].items()}
    sources = {name: inputs[name] for name in case["gradients"]}
    with tf.GradientTape() as tape:
        tape.watch(list(sources.values()))
        result = eval(case["call"], {"tf": tf, "np": np, **inputs})
    leaves = [leaf for leaf in tf.nest.flatten(result) if tf.is_tensor(leaf)]
    assert len(leaves) == len(case["result"])
    for leaf, stored in zip(leaves, case["result"], strict=True):
        assert leaf.dtype.name == stored["dtype"]
        np.testing.assert_allclose(leaf.numpy(), array(stored), rtol=3e-4, atol=3e-5)
    targets = [leaf for leaf in leaves if leaf.dtype.is_floating or leaf.dtype.is_complex]
    if not sources or not targets:
        return
    for name, found in tape.gradient(targets, sources).items():
        expected = case["gradients"][name]
        assert (found is None) == (expected is None), name
        if expected is not None:
            np.testing.assert_allclose(
                tf.convert_to_tensor(found).numpy(), array(expected), rtol=3e-3, atol=3e-4, err_msg=name
            )


def test_all_namespaces_are_covered() -> None:
    called = {name for case in DATA["cases"] for name in re.findall(r"tf\.([\w.]+)\(", case["call"])}
    for space in ("math", "linalg", "nn", "signal"):
        assert len([name for name in called if name.startswith(space)]) >= 9


def test_what_is_not_finite_is_not_among_the_best() -> None:
    scores = tf.constant([[0.0, 1.0, 2.0], [np.nan, 1.0, 2.0], [0.0, 1.0, np.inf], [0.0, 1.0, 2.0]])
    assert tf.math.in_top_k([1, 1, 1, 5], scores, 2).numpy().tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: tf.reduce_sum(None), "input_tensor"),
        (lambda: tf.matmul(tf.ones((2, 2)), None), "b"),
        (lambda: tf.concat(None, 0), "values"),
        (lambda: tf.cumsum(None), "x"),
        (lambda: tf.math.segment_sum(tf.ones(3), None), "segment_ids"),
        (lambda: tf.linalg.trace(None), "x"),
    ],
    ids=["reduce_sum", "matmul", "concat", "cumsum", "segment_sum", "trace"],
)
def test_none_for_a_tensor_is_named(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: Attempt to convert a value \(None\) with an unsupported type"):
        call()


def test_einsum_without_its_equation_says_so() -> None:
    with pytest.raises(TypeError, match=r"equation must be a string such as .* before the tensors; got <tf.Tensor"):
        tf.einsum(tf.ones((2, 2)), tf.ones((2, 2)))


@pytest.mark.parametrize(
    "call",
    [
        lambda i: tf.reduce_sum(tf.ones((2, 3)), axis=i(1)),
        lambda i: tf.reshape(tf.ones((2, 3)), i([3, 2])),
        lambda i: tf.slice(tf.ones((2, 3)), i([0, 1]), i([-1, 2])),
        lambda i: tf.pad(tf.ones((2, 3)), i([[0, 1], [2, 0]])),
        lambda i: tf.math.top_k(tf.range(5.0), i(2)).indices,
        lambda i: tf.one_hot([0, 2], i(3)),
        lambda i: tf.scatter_nd([[1]], [2.0], i([3])),
        lambda i: tf.image.resize(tf.ones((1, 2, 2, 1)), i([4, 3])),
    ],
    ids=["axis", "shape", "begin-size", "paddings", "k", "depth", "scatter-shape", "size"],
)
def test_axes_shapes_and_counts_may_be_tensors(call: Any) -> None:
    of_ints, of_tensors = call(lambda value: value), call(tf.constant)
    np.testing.assert_array_equal(of_tensors.numpy(), of_ints.numpy())


def test_an_op_that_declares_a_parameter_that_it_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="no parameter is called width"):
        op("math.made_up", "x", static_args="width")(lambda x: x)
