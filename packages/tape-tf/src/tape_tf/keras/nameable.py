"""What a description of a model may name: classes and functions from lists that are closed, and what was registered.

A name is looked up in these tables and nowhere else: no attribute of a module is asked for with a name from a file.
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

KINDS = (Layer, Initializer, Regularizer, Constraint, Optimizer, LearningRateSchedule, Loss, Metric)
"""What a class that is constructed from a description derives from."""

# The spaces of `tf.keras`, and what the classes in them derive from.
_SPACES: dict[str, type | None] = {
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
"""What operators on symbolic inputs are made of."""

# Functions of `tf` that a Lambda or an activation may be. They take tensors and give one that is no larger than these
# together; none calls another function, and none reads or writes anything else.
_OF_TF = """
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


@cache
def _table(space: str) -> dict[str, Any]:
    """The classes and functions of a space of `tf.keras`, by their names."""
    module: Any = import_module(f"tape_tf.keras.{space}")
    base = _SPACES[space]
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    if base is None:
        return dict(module._BY_NAME)
    table = {
        name: value
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__.startswith("tape_tf.")
    }
    if base is Loss:
        table |= module._FUNCTIONS
    if base is Metric:
        functions = {name: public[name] for name in module.__all__ if isfunction(public[name]) and name != "get"}
        table |= functions
    return table


def space_of(value: Any) -> str | None:
    """The space of `tf.keras` that a class or function is in, None if it is not Keras' own."""
    name = getattr(value, "__name__", "")
    return next((space for space in _SPACES if _table(space).get(name) is value), None)


def name_in_tf(function: Any) -> str | None:
    """What a function of `tf` is called, if a description may name it."""
    return next((name for name in _OF_TF if published().get(name) is function), None)


def named(name: str, space: str | None, registered: Callable[[str], Any]) -> Any:
    """The class or function of a name.

    Args:
        registered: gives what was registered under a name, else None.

    Raises:
        TypeError: there is none.
    """
    if space == "operator":
        found = OPERATORS.get(name)
    elif space == "tf":
        found = published().get(name) if name in _OF_TF else None
    elif space in _SPACES:
        found = _table(space).get(name)
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


def constructible(found: Any, name: str) -> type:
    """A class, if an object of it may be made from a description.

    Raises:
        TypeError: it is no class, or no part of a model.
    """
    if not isinstance(found, type):
        raise TypeError(f"{name!r} is a function, where a class is needed: a function is named, and not called")
    if not (issubclass(found, KINDS) or hasattr(found, "get_config")):
        raise TypeError(
            f"{name!r} is {found!r}, which is no part of a model: such a class derives from a layer, model, loss, "
            "metric or the like of tf.keras, or has get_config()"
        )
    return found


SPACES = tuple(_SPACES)
__all__ = ["KINDS", "OPERATORS", "SPACES", "Model", "constructible", "name_in_tf", "named", "space_of"]
