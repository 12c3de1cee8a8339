"""LossScaleOptimizer: an optimizer for gradients in float16, which would underflow without a factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tape_nn as nn

from tape_tf.conversion import native, unwrap, wrap
from tape_tf.keras.naming import auto_name
from tape_tf.keras.optimizers import Optimizer, get, scaled_gradient
from tape_tf.names import exported
from tape_tf.typing import OptimizerLike, TensorLike
from tape_tf.variable import Variable


@exported("keras.mixed_precision.LossScaleOptimizer keras.optimizers.LossScaleOptimizer")
class LossScaleOptimizer(Optimizer):
    """An optimizer whose losses are multiplied by a large scale, and whose gradients are divided by it.

    Where a gradient is not finite, nothing is updated, and the scale is halved; after `dynamic_growth_steps` updates
    in a row it is doubled. `compile` makes one under the policy "mixed_float16": see :class:`tape_nn.LossScaler`.

    >>> import tape_tf as tf
    >>> w = tf.Variable([1.0, 2.0])
    >>> optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.25))
    >>> with tf.GradientTape() as tape:
    ...     loss = optimizer.scale_loss(tf.reduce_sum(w * w))
    >>> optimizer.apply_gradients([(tape.gradient(loss, w), w)]).numpy()
    np.int64(1)
    >>> w.numpy()
    array([0.5, 1. ], dtype=float32)

    Args:
        inner_optimizer: the optimizer that does the updates.
        dynamic: False for a scale that stays the same.
        initial_scale: the first scale.
        dynamic_growth_steps: the number of updates after which the scale is doubled.
        name: the optimizer's name.
    """

    __tf_differs__ = "gradients of get_unscaled_gradients are taken as such by the next update, as in Keras 2"

    inner_optimizer: Optimizer

    def __init__(
        self,
        inner_optimizer: OptimizerLike,
        dynamic: bool = True,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
    ) -> None:
        self.inner_optimizer = get(inner_optimizer)
        if isinstance(self.inner_optimizer, LossScaleOptimizer):
            raise ValueError("LossScaleOptimizer: the inner optimizer is a LossScaleOptimizer already")
        self.dynamic, self.dynamic_growth_steps = dynamic, dynamic_growth_steps
        self.initial_scale = float(initial_scale)
        growth = dynamic_growth_steps if dynamic else None
        self.native: Any = nn.LossScaler(self.inner_optimizer._updater(), initial_scale, growth)
        self.name = name or auto_name("LossScaleOptimizer")
        self.loss_scale_factor = None
        self._unscaled = False  # True from `get_unscaled_gradients` to the update with its gradients

    def __getattr__(self, name: str) -> Any:
        # What is not about the scale belongs to the inner optimizer.
        if name in ("native", "inner_optimizer"):
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the inner optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    lr = learning_rate

    @property
    def built(self) -> bool:  # type: ignore[override]
        """True if the state has been made."""
        return bool(self.inner_optimizer.built)

    @property
    def iterations(self) -> Any:
        """The number of updates applied; those that were skipped do not count."""
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, value: Any) -> None:
        self.inner_optimizer.iterations = value

    @property
    def variables(self) -> list[Any]:
        """The state of the inner optimizer."""
        return self.inner_optimizer.variables

    @property
    def dynamic_scale(self) -> Any:
        """The scale for the next loss."""
        return wrap(native(self.native.scale, "float32"))

    loss_scale = dynamic_scale

    def build(self, variables: Iterable[Variable]) -> None:
        """Make the state for these variables."""
        self.inner_optimizer.build(variables)

    def scale_loss(self, loss: TensorLike) -> Any:
        """Return the loss times the scale, to be differentiated."""
        return wrap(self.native.scale_loss(native(loss)))

    def get_scaled_loss(self, loss: TensorLike) -> Any:
        """Return the loss times the scale; the name of Keras 2."""
        return self.scale_loss(loss)

    def get_unscaled_gradients(self, grads: Sequence[Any]) -> list[Any]:
        """Return gradients divided by the scale, for :meth:`apply_gradients`, which takes them as they are then."""
        self._unscaled = True
        return [wrap(scaled_gradient(unwrap(gradient), 1 / self.native.scale)) for gradient in grads]

    def _apply(self, gradients: list[Any], variables: list[Any]) -> Any:
        if self._unscaled:
            self._unscaled = False
            scale = self.native.scale
            gradients = [wrap(scaled_gradient(unwrap(gradient), scale)) for gradient in gradients]
        return super()._apply(gradients, variables)

    def _updater(self) -> Any:
        return self.native

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """Set the variables to their averages, if the inner optimizer has `use_ema`."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Exclude variables from the inner optimizer's weight decay."""
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def get_config(self) -> dict[str, Any]:
        """The arguments that the optimizer was made with."""
        return {
            "inner_optimizer": self.inner_optimizer,
            "dynamic": self.dynamic,
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
            "name": self.name,
        }
