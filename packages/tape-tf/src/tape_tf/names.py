"""Which of TensorFlow's names there are, and what is said of those that are not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Literal, TypeVar

Status = Literal["supported", "different", "absent"]

_published: dict[str, Any] = {}
_differences: dict[str, str] = {}

T = TypeVar("T")


def export(names: str, value: Any, differs: str = "") -> Any:
    """Publish a value under TensorFlow's names for it, such as `"math.sin sin"`; returns the value.

    Args:
        differs: what it does otherwise than TensorFlow's, one clause.
    """
    for name in names.split():
        if name in _published and _published[name] is not value:
            raise ValueError(f"tf.{name} is published already, as {_published[name]!r}")
        _published[name] = value
        if differs:
            _differences[name] = differs
    return value


def exported(names: str, differs: str = "") -> Callable[[T], T]:
    """Decorator: :func:`export`."""
    return lambda value: export(names, value, differs)


def published() -> Mapping[str, Any]:
    """What was exported, by its names."""
    return _published


def publish() -> None:
    """Put what was exported where it belongs: `"math.sin"` into the module `tape_tf.math`."""
    for name, value in _published.items():
        space, _, last = name.rpartition(".")
        setattr(_module(space), last, value)


def _module(space: str) -> Any:
    if not space:
        return sys.modules["tape_tf"]
    name = f"tape_tf.{space}"
    module = sys.modules.get(name)
    if module is None:
        module = sys.modules[name] = ModuleType(name, f"tf.{space}")
        module.__getattr__ = absent(space)  # type: ignore[method-assign]
        above, _, last = space.rpartition(".")
        setattr(_module(above), last, module)
    return module


def status(name: str) -> tuple[Status, str]:
    """Whether there is a name of TensorFlow's, such as `"math.sin"`, and what is to be said of it.

    >>> from tape_tf.names import status
    >>> status("math.sin")
    ('supported', '')
    >>> status("strings")[0]
    'absent'

    Returns:
        `"supported"`, `"different"` or `"absent"`, with how it differs or what there is instead.
    """
    value = sys.modules["tape_tf"]
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return "absent", instead(name)
    note = _differences.get(name) or getattr(value, "__dict__", {}).get("__tf_differs__", "")
    return ("different" if note else "supported"), note


_GRAPH = "there are no graphs and sessions: code runs as it is written"
_STRINGS = "there are no tensors of strings: use Python's str and bytes, and tensors of what they are encoded to"
_SPARSE = "there are no sparse tensors: use tf.IndexedSlices for rows, tape_core.sparse_jacobian for Jacobians"
_FILES = "there is no input from files: read them with Python or NumPy, and use tf.data.Dataset.from_tensor_slices"
_DEVICES = "there is one process and its devices: use tf.device, or tape_core.use_backend"
_SAVING = "models are saved with model.save, weights with save_weights, other Variables with tf.train.Checkpoint"
_COMPILER = "there is no graph compiler"
_QUANTIZED = "there are no quantized types"

ABSENT: dict[str, str] = {
    "ragged": "there are no ragged tensors: pad to one length, and use a mask",
    "RaggedTensor": "there are no ragged tensors: pad to one length, and use a mask",
    "RaggedTensorSpec": "there are no ragged tensors",
    "strings": _STRINGS,
    "string": _STRINGS,
    "as_string": _STRINGS,
    "sparse": _SPARSE,
    "SparseTensor": _SPARSE,
    "SparseTensorSpec": _SPARSE,
    "Session": _GRAPH,
    "compat": "there is no TensorFlow 1: " + _GRAPH,
    "placeholder": _GRAPH + "; use arguments of a function",
    "global_variables_initializer": "Variables have their value from the start",
    "gradients": "use tf.GradientTape",
    "hessians": "use nested tf.GradientTape, tape.jacobian, or tape_core.hessian",
    "Graph": _GRAPH,
    "Operation": _GRAPH,
    "graph_util": _GRAPH,
    "get_static_value": "use tensor.numpy()",
    "control_dependencies": _GRAPH + "; statements run in their order",
    "init_scope": _GRAPH,
    "group": _GRAPH,
    "no_op": _GRAPH,
    "make_ndarray": "use tensor.numpy()",
    "make_tensor_proto": "use tensor.numpy()",
    "RegisterGradient": "use tf.custom_gradient, or declare an op with tape_core.extend",
    "io": _FILES,
    "queue": "use Python's queue",
    "lookup": "use a dict, or tf.gather on a table",
    "train": "of tf.train there are checkpoints; averages are in tape_nn.ExponentialMovingAverage",
    "saved_model": _SAVING,
    "distribute": _DEVICES,
    "tpu": _DEVICES,
    "summary": "log with Python's logging or a library of your choice",
    "profiler": "use tape_core.GradientTape(debug=True) and its summary()",
    "lite": _COMPILER,
    "mlir": _COMPILER,
    "xla": _COMPILER,
    "raw_ops": "use the functions of tf, tf.math and tf.nn, or those of tape_core",
    "feature_column": "use NumPy or a data frame, and tf.data",
    "estimator": "use tf.keras.Model.fit or your own loop",
    "contrib": "it was part of TensorFlow 1",
    "quantization": _QUANTIZED,
    "quantize_and_dequantize_v4": _QUANTIZED,
    "test": "use pytest, and tape_core.testing for gradients",
    "audio": _FILES,
    "experimental": "tape_core has tensors with NumPy's operators and functions: tensor.native",
    "experimental.numpy": "tape_core has tensors with NumPy's operators and functions: tensor.native",
    "keras.datasets": "nothing is downloaded: load data with scikit-learn or NumPy, and give it to tf.data or fit",
    "load_op_library": "declare an op with tape_core.extend",
    "load_library": "declare an op with tape_core.extend",
    "parallel_stack": "use tf.stack",
    "get_logger": 'use logging.getLogger("tensorflow")',
    "sysconfig": "nothing is compiled against this package",
    "version": "use tf.__version__",
    "nondifferentiable_batch_function": "there is no batching of calls",
    "type_spec_from_value": "use tf.TensorSpec.from_tensor",
    "variable_creator_scope": "Variables are made by tf.Variable alone",
    "image": "of tf.image there is little: use the functions of tf and tf.nn on arrays, or Pillow before",
}
"""What there is instead of names that are absent. A name stands for all below it."""


def instead(name: str) -> str:
    """What there is instead of a name that is absent; empty where nothing is known."""
    while name:
        if note := ABSENT.get(name):
            return note
        name = name.rpartition(".")[0]
    return ""


def _public(module: Any, space: str) -> list[str]:
    """What a module says is public, for those that publish nothing here."""
    return [f"{space}.{name}" if space else name for name in getattr(module, "__all__", ())]


def absent(space: str) -> Callable[[str], Any]:
    """The `__getattr__` of a namespace: what is said of a name that is not there."""

    def __getattr__(name: str) -> Any:
        module = _module(space)
        full = f"{space}.{name}" if space else name
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        text = f"tape_tf has no tf.{full}"
        if note := instead(full):
            raise AttributeError(f"{text}: {note}", name=name, obj=module)
        elsewhere = [other for other in _published if other.rpartition(".")[2] == name]
        there = [other for other in (*_published, *_public(module, space)) if other.rpartition(".")[0] == space]
        meant = elsewhere[:3] or get_close_matches(full, there, 3)
        if meant:
            text += f"; did you mean {' or '.join(f'tf.{other}' for other in meant)}?"
        else:
            where = f"tf.{space}" if space else "tf"
            text += f"; dir({where}) lists what there is, and functions of tape_core take tensors, too"
        raise AttributeError(text)

    return __getattr__
