"""Metric, the base class of metrics, and the classes that make one out of a metric of tape_nn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import tape_core as tc
import tape_nn as nn
from tape_core.staging import host_function, stateful

from tape_tf.conversion import native, wrap
from tape_tf.keras import initializers
from tape_tf.keras.backend import floatx
from tape_tf.keras.conversion import cast, match_ranks
from tape_tf.keras.masks import mask_of, masked_weights
from tape_tf.keras.naming import auto_name
from tape_tf.typing import DTypeLike, InitializerLike, PartialShape, TensorLike
from tape_tf.variable import Variable


class Metric:
    """Base class of metrics. A new one defines `update_state`, `result` and, for variables of its own, `__init__`.

    >>> import tape_tf as tf
    >>> class Positives(tf.keras.metrics.Metric):
    ...     def __init__(self, name="positives", **kwargs):
    ...         super().__init__(name=name, **kwargs)
    ...         self.count = self.add_weight(name="count", initializer="zeros")
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         self.count.assign_add(tf.reduce_sum(tf.cast(y_pred > 0.5, tf.float32)))
    ...     def result(self):
    ...         return self.count
    >>> positives = Positives()
    >>> positives([0.0, 1.0], tf.constant([0.6, 0.9])).numpy()
    np.float32(2.0)
    >>> positives.reset_state()
    >>> positives.result().numpy()
    np.float32(0.0)

    Args:
        name: its name in logs.
        dtype: the dtype of the result; by default Keras' float type.
    """

    def __init__(self, dtype: DTypeLike = None, name: str | None = None) -> None:
        self.name = name or auto_name(type(self).__name__)
        self._dtype = getattr(dtype, "name", dtype) or floatx()
        self._variables: list[Variable] = []

    @property
    def dtype(self) -> str:
        """The name of the result's dtype."""
        return str(self._dtype)

    @property
    def variables(self) -> list[Variable]:
        """The variables made with :meth:`add_weight`; the metrics of this module have none: they count in Python."""
        return list(self._variables)

    def add_variable(
        self,
        shape: PartialShape,
        initializer: InitializerLike,
        dtype: DTypeLike = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Make a variable that is not trained and that :meth:`reset_state` sets to 0."""
        value = initializers.get(initializer)(tuple(shape), dtype=dtype or self.dtype)
        variable = Variable(value, trainable=False, name=name)
        self._variables.append(variable)
        return variable

    def add_weight(
        self,
        shape: PartialShape = (),
        initializer: InitializerLike = "zeros",
        dtype: DTypeLike = None,
        name: str | None = None,
    ) -> Any:
        """Make a variable, by default a scalar: see :meth:`add_variable`."""
        return self.add_variable(shape, initializer, dtype, name)

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        """Update the metric with a batch."""
        raise NotImplementedError(f"{type(self).__name__} must define update_state")

    def result(self) -> Any:
        """Return the metric of all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} must define result(self)")

    def reset_state(self) -> None:
        """Reset the metric: forget all batches."""
        for variable in self._variables:
            # Assigned, not made anew: compiled steps hold the Variable.
            variable.assign(wrap(tc.zeros_like(variable.native)))

    def reset_states(self) -> None:
        """Reset the metric; the name of Keras 2."""
        self.reset_state()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Update the metric with a batch, and return the result."""
        self.update_state(*args, **kwargs)
        return self.result()

    def get_config(self) -> dict[str, Any]:
        """The arguments that the metric was made with."""
        return {"name": self.name, "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


class NativeMetric(Metric):
    """A metric that delegates to one of tape_nn, `native`, which keeps its state in Python numbers."""

    _empty_result: ClassVar[float] = 0.0  # the result before the first batch, where tape_nn's is NaN
    _uses_mask: ClassVar[bool] = False  # whether the mask of `y_pred` counts, as it does in Keras for means

    def __init__(self, native_metric: nn.metrics.Metric, name: str | None, dtype: DTypeLike) -> None:
        super().__init__(dtype, name)
        self.native = native_metric

    def update_state(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None) -> None:
        """Update the metric with a batch.

        Args:
            sample_weight: a weight for each example.
        """
        weights = as_weights(sample_weight)
        if self._uses_mask and (mask := mask_of(y_pred)) is not None:
            weights = masked_weights(sample_weight, mask, self.dtype, average=False)
        self.native.update(*self._inputs(native(y_true), native(y_pred)), weights)

    def _inputs(self, y_true: tc.Tensor, y_pred: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        y_true, y_pred = match_ranks(y_true, y_pred)
        return cast(y_true, self.dtype), cast(y_pred, self.dtype)

    def result(self) -> Any:
        """Return the metric of all batches since the last reset."""
        return wrap(self._tensor_result())

    @stateful(lambda self: self.native._holders())
    def _tensor_result(self) -> tc.Tensor:
        # In compiled code the numbers are read anew in each call; `stateful` names the objects that hold them.
        return native(self._python_result(), self.dtype)

    def _python_result(self) -> float:
        return _unless_empty(self.native.result(), self.native.state_dict().get("count", 1), self._empty_result)

    def reset_state(self) -> None:
        """Reset the metric: forget all batches."""
        self.native.reset()


# `host_function` makes a call one instruction of compiled code, computed anew from the numbers of each call.
@host_function
def _unless_empty(value: float, count: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) and count == 0 else value


class Mean(NativeMetric):
    """The mean of numbers: `update_state(values, sample_weight)`.

    >>> import tape_tf as tf
    >>> mean = tf.keras.metrics.Mean()
    >>> mean.update_state([1.0, 3.0])
    >>> mean(8.0).numpy()
    np.float32(4.0)
    """

    def __init__(self, name: str | None = "mean", dtype: DTypeLike = None) -> None:
        super().__init__(nn.metrics.Mean(), name, dtype)

    def update_state(self, values: TensorLike, sample_weight: TensorLike | None = None) -> None:  # type: ignore[override]
        """Update the mean with numbers."""
        self.native.update(cast(values, self.dtype), as_weights(sample_weight))


class Sum(Mean):
    """The sum of numbers: `update_state(values, sample_weight)`."""

    def __init__(self, name: str | None = "sum", dtype: DTypeLike = None) -> None:
        super().__init__(name, dtype)

    def _python_result(self) -> float:
        total: float = self.native.state_dict()["total"]
        return total


class FunctionMean(nn.metrics.Metric):
    """A metric of tape_nn: the mean of a function's values, one for each example."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def values(self, y_true: tc.Tensor, y_pred: tc.Tensor) -> Any:
        return native(self.function(wrap(y_true), wrap(y_pred)))


class MeanMetricWrapper(NativeMetric):
    """The mean of a function `fn(y_true, y_pred, **kwargs)` that returns a number for each example.

    >>> import tape_tf as tf
    >>> metric = tf.keras.metrics.MeanMetricWrapper(tf.keras.losses.mean_squared_error, name="mse")
    >>> metric([[0.0], [0.0]], [[1.0], [3.0]]).numpy()
    np.float32(5.0)
    """

    _uses_mask = True

    def __init__(self, fn: Callable[..., Any], name: str | None = None, dtype: DTypeLike = None, **kwargs: Any) -> None:
        super().__init__(
            FunctionMean(lambda y_true, y_pred: fn(y_true, y_pred, **kwargs)),
            name or getattr(fn, "__name__", None),
            dtype,
        )
        self._fn = fn


def as_weights(sample_weight: TensorLike | None) -> Any:
    return None if sample_weight is None else native(sample_weight)
