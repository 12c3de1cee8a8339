"""TensorFlow's names for tape_core and tape_nn: GradientTape code runs by changing one import.

>>> import tape_tf as tf
>>> x = tf.Variable(3.0)
>>> with tf.GradientTape() as tape:
...     y = x ** 2
>>> tape.gradient(y, x)
<tf.Tensor: shape=(), dtype=float32, numpy=6.0>

`t.native` is the tape_core Tensor that a tensor wraps; `tf.convert_to_tensor(t)` is the way back.
"""

import sys as _sys
import typing as _typing

from tape_core.backends import require_core as _require_core

_require_core("tape-tf", "tape-core>=0.1,<0.2")

from tape_core import __version__

from tape_tf import (
    absences_v1,  # noqa: F401 - imported for its effect: it adds hints for the names of TensorFlow 1
    autodiff,
    bitwise,
    config,
    data,
    debugging,
    distribute,
    dtypes,
    errors,
    experimental,
    image,
    keras,
    linalg,
    math,
    nest,
    nn,
    ops,
    random,
    saved_model,
    signal,
    summary,
    tape,
    train,
)
from tape_tf.conversion import constant, convert_to_tensor, is_tensor
from tape_tf.dtypes import DType, as_dtype
from tape_tf.module import Module
from tape_tf.module import NameScope as name_scope
from tape_tf.names import absent as _absent
from tape_tf.names import export as _export
from tape_tf.names import publish as _publish
from tape_tf.shapes import TensorShape, TensorSpec
from tape_tf.tensor import IndexedSlices, Tensor
from tape_tf.variable import Variable

if _typing.TYPE_CHECKING:  # when it runs, `_publish` sets these; as functions that are known they keep types
    from tape_tf.ops.function import function as function
    from tape_tf.signatures import *  # noqa: F403 - functions that decorators make, as stubs
    from tape_tf.tape import GradientTape as GradientTape

newaxis = None

__all__ = [
    "DType",
    "IndexedSlices",
    "Module",
    "Tensor",
    "TensorShape",
    "TensorSpec",
    "Variable",
    "__version__",
    "as_dtype",
    "autodiff",
    "bitwise",
    "config",
    "constant",
    "convert_to_tensor",
    "data",
    "debugging",
    "distribute",
    "dtypes",
    "errors",
    "experimental",
    "image",
    "is_tensor",
    "keras",
    "linalg",
    "math",
    "name_scope",
    "nest",
    "newaxis",
    "nn",
    "ops",
    "random",
    "saved_model",
    "signal",
    "summary",
    "tape",
    "train",
]

# Everything above has exported its names by now, since importing a chapter does so; the rest are exported here.
for _name, _dtype in dtypes.EXPORTS.items():
    _export(f"{_name} dtypes.{_name}", _dtype)
for _name in __all__:
    _export(_name, globals()[_name])
# TensorFlow's own names for some of Keras's classes and modules: tf.losses is tf.keras.losses.
for _name in ("constant", "ones", "random_normal", "random_uniform", "zeros"):
    _export(f"{_name}_initializer", getattr(keras.initializers, _name))
for _name in ("initializers", "losses", "metrics", "optimizers"):
    _export(_name, getattr(keras, _name))
_export("version.VERSION", __version__)
_export("compat.v2", _sys.modules[__name__])
keras.backend_functions.publish()
_publish()
__getattr__ = _absent("")
