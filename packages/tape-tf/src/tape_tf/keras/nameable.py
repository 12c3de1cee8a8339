"""The names that the description of a model may contain: fixed tables of classes and functions, and registered ones.

This is what makes files of models safe to read. A name from a file is looked up in these tables and nowhere else: it
never becomes an attribute of a module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from inspect import isfunction
from typing import Any

from tape_tf.keras.constraints import Constraint
from tape_tf.keras.initializers import Initializer
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.losses import Loss
from tape_tf.keras.metric import Metric
from tape_tf.keras.models import Model
from tape_tf.keras.optimizers import Optimizer
from tape_tf.keras.optimizers.schedules import LearningRateSchedule
from tape_tf.keras.regularizers import Regularizer
from tape_tf.names import published

CONSTRUCTIBLE_BASES = (Layer, Initializer, Regularizer, Constraint, Optimizer, LearningRateSchedule, Loss, Metric)
"""The base classes of classes that a description may name to have an instance made."""

# The namespaces of `tf.keras`, and the base class of the classes in them; None for functions.
_NAMESPACES: dict[str, type | None] = {
    "layers": Layer,
    "models": Layer,
    "initializers": Initializer,
    "regularizers": Regularizer,
    "constraints": Constraint,
    "optimizers": Optimizer,
    "optimizers.schedules": LearningRateSchedule,
    "losses": Loss,
    "metrics": Metric,
    "activations": None,
}

OPERATORS: Mapping[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "lt",
        "le",
        "gt",
        "ge",
        "neg",
        "abs",
        "getitem",
    ]
}
"""The operators on symbolic tensors, by name."""

# Functions of `tf` that a Lambda or an activation may be. Safe to call with values from a file: each takes tensors and
# returns one no larger than its arguments together, calls no function it is given, and reads or writes nothing else.
_TF_FUNCTIONS = """
nn.relu nn.relu6 nn.elu nn.selu nn.leaky_relu nn.gelu nn.silu nn.swish nn.softsign nn.softmax nn.log_softmax
nn.sigmoid nn.softplus nn.tanh nn.l2_normalize nn.l2_loss sigmoid tanh sin cos tan exp sqrt abs square sign negative
round floor identity stop_gradient
math.abs math.acos math.acosh math.asin math.asinh math.atan math.atanh math.ceil math.conj math.cos math.cosh math.erf
math.erfc math.exp math.expm1 math.floor math.imag math.real math.angle math.l2_normalize math.lgamma math.digamma
math.log math.log1p math.log_sigmoid math.log_softmax math.negative math.reciprocal math.reciprocal_no_nan math.rint
math.round math.rsqrt math.sigmoid math.sign math.sin math.sinh math.softmax math.softplus math.softsign math.sqrt
math.square math.tan math.tanh math.is_finite math.is_inf math.is_nan math.logical_not logical_not
math.reduce_sum reduce_sum math.reduce_prod reduce_prod math.reduce_mean reduce_mean math.reduce_max reduce_max
math.reduce_min reduce_min math.reduce_any reduce_any math.reduce_all reduce_all math.reduce_logsumexp reduce_logsumexp
math.reduce_std math.reduce_variance math.reduce_euclidean_norm math.argmax argmax math.argmin argmin math.cumsum cumsum
math.cumprod math.add_n add_n math.add add math.subtract subtract math.multiply multiply math.maximum maximum
math.minimum minimum math.divide_no_nan math.squared_difference clip_by_value clip_by_norm cast
reshape squeeze expand_dims transpose concat stack reverse sort argsort
""".split()  # noqa: SIM905


# Made at the first use, when all modules of `tape_tf.keras` can be imported.
@cache
def _namespace_table(space: str) -> dict[str, Any]:
    """Return the classes and functions of a namespace of `tf.keras`, by name."""
    module: Any = import_module(f"tape_tf.keras.{space}")
    base = _NAMESPACES[space]
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    if base is None:
        return dict(module._BY_NAME)
    table = {
        name: value
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__.startswith("tape_tf.")
    }
    # Losses and metrics may also be functions, such as "mse".
    if base is Loss:
        table |= module._FUNCTIONS
    if base is Metric:
        functions = {name: public[name] for name in module.__all__ if isfunction(public[name]) and name != "get"}
        table |= functions
    return table


def namespace_of(value: object) -> str | None:
    """Return the namespace of `tf.keras` that holds a class or function; None if it is not Keras' own."""
    name = getattr(value, "__name__", "")
    # By identity, not by name: a class of the user's may be called Dense, too.
    return next((space for space in _NAMESPACES if _namespace_table(space).get(name) is value), None)


def find_namespace(name: str) -> str | None:
    """Return the first namespace of `tf.keras` with a class of this name, for descriptions that do not say which."""
    return next((space for space in _NAMESPACES if isinstance(_namespace_table(space).get(name), type)), None)


def name_in_tf(function: object) -> str | None:
    """Return the name of a function of `tf`, if a description may contain it; else None."""
    return next((name for name in _TF_FUNCTIONS if published().get(name) is function), None)


def look_up(name: str, space: str | None, registered: Callable[[str], Any]) -> Any:
    """Return the class or function of a name.

    Args:
        space: a namespace of `tf.keras`; "operator"; "tf"; or None for registered names.
        registered: returns what was registered under a name, or None.

    Raises:
        TypeError: nothing has this name.
    """
    if space == "operator":
        found = OPERATORS.get(name)
    elif space == "tf":
        found = published().get(name) if name in _TF_FUNCTIONS else None
    elif space in _NAMESPACES:
        found = _namespace_table(space).get(name)
    elif space is None:
        found = registered(name)
    else:
        found = None
    if found is None:
        raise TypeError(
            f"Could not locate {name!r}. Make sure custom classes and functions are decorated with "
            "@tf.keras.saving.register_keras_serializable(), or give them as custom_objects={name: value}"
        )
    return found


def check_constructible(found: object, name: str) -> type:
    """Return a class of which a description may have an instance made.

    Raises:
        TypeError: the value is no class, or no part of a model.
    """
    if not isinstance(found, type):
        raise TypeError(f"{name!r} is a function, where a class is needed: a function is named, and not called")
    if not (issubclass(found, CONSTRUCTIBLE_BASES) or hasattr(found, "get_config")):
        raise TypeError(
            f"{name!r} is {found!r}, which is no part of a model: such a class derives from a layer, model, loss, "
            "metric or the like of tf.keras, or has get_config()"
        )
    return found


NAMESPACES = tuple(_NAMESPACES)
__all__ = [
    "CONSTRUCTIBLE_BASES",
    "NAMESPACES",
    "OPERATORS",
    "Model",
    "check_constructible",
    "look_up",
    "name_in_tf",
    "namespace_of",
]
