"""Normalisation: over examples, and over features."""

from __future__ import annotations

from typing import Any

import tape_core as tc
from tape_core.backends.windows import Layout
from tape_core.base.commit import assign_together
from tape_core.base.mistakes import real
from tape_core.engine.tensor import wrap

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import Add, Layer, fraction


class BatchNorm(Layer):
    """Each channel less its mean, divided by its standard deviation; times `gamma`, plus `beta`.

    In training mean and variance are those of the batch, and the moving ones follow them:
    `moving = momentum * moving + (1 - momentum) * batch`. Otherwise the moving ones are used. The variance of a batch
    is divided by the number of its elements, as in Keras; PyTorch's moving one is divided by one less.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.BatchNorm(momentum=0.5, epsilon=0.0)
    >>> x = tc.asarray([[1.0], [3.0]])
    >>> layer(x).tolist()
    [[-1.0], [1.0]]
    >>> layer.moving_mean.tolist(), layer.moving_variance.tolist()
    ([1.0], [1.0])
    >>> layer(x, training=False).tolist() == layer.eval()(x).tolist() == [[0.0], [2.0]]
    True

    Args:
        momentum: how much of the moving statistics stays at each call in training.
        epsilon: is added to the variance.
        center, scale: whether there is a `beta`, a `gamma`.
        layout: which axis has the channels: the last, or with "channels_first" that after the examples.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: see
            :mod:`tape_nn.initializers`.

    Raises:
        ValueError: an argument is not what it must be; or in training there is nothing to take the mean of.
    """

    _form = "(examples, ..., channels)"

    def __init__(
        self,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        layout: Layout = "channels_last",
        beta_initializer: Initializer | str = "zeros",
        gamma_initializer: Initializer | str = "ones",
        moving_mean_initializer: Initializer | str = "zeros",
        moving_variance_initializer: Initializer | str = "ones",
    ) -> None:
        momentum = fraction(self, "momentum", momentum)
        if layout not in ("channels_last", "channels_first"):
            raise ValueError(f"BatchNorm: layout must be 'channels_last' or 'channels_first'; got {layout!r}")
        self.momentum = momentum
        self.epsilon = real(type(self).__name__, "epsilon", epsilon)
        self.center = center
        self.scale = scale
        self.layout = layout
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.gamma: tc.Variable | None = None
        self.beta: tc.Variable | None = None
        self.moving_mean: tc.Variable | None = None
        self.moving_variance: tc.Variable | None = None
        if layout == "channels_first":
            self._form, self._axes = "(examples, channels, ...)", (1,)

    def __call__(self, x: Any, training: bool | None = None) -> tc.Tensor:
        """`training` says what this call is, and by default the module's mode does."""
        x = self._wide_input(x)
        training = self.training if training is None else training
        if not training:
            known = self.moving_mean, self.moving_variance
            found = tc.batch_norm(x, self.gamma, self.beta, *known, epsilon=self.epsilon, layout=self.layout)
            return self._cast(found.output)
        if x.size == 0:
            raise ValueError(f"BatchNorm: in training there must be examples to take the mean of; got shape {x.shape}")
        y, mean, variance = tc.batch_norm(x, self.gamma, self.beta, epsilon=self.epsilon, layout=self.layout)
        assert self.moving_mean is not None
        assert self.moving_variance is not None
        follow = [self.moving_mean, self.moving_variance]
        assign_together(follow, [self._followed(v, new) for v, new in zip(follow, (mean, variance), strict=True)])
        return self._cast(y)

    def _followed(self, moving: tc.Variable, batch: tc.Tensor) -> tc.Tensor:
        # On raw arrays: no tape is to record it.
        new = moving.array + (batch.array - moving.array) * (1 - self.momentum)
        return wrap(new, batch.backend)

    def _demand(self, shape: tuple[int | None, ...]) -> dict[int, int]:
        if len(shape) < 2:
            raise ValueError(f"BatchNorm takes inputs of shape {self._form}; got shape {shape}")
        return super()._demand(shape)

    def _create(self, add: Add, shape: Any) -> None:
        own = (shape[self._axes[0]],)
        if self.scale:
            add("gamma", own, self.gamma_initializer)
        if self.center:
            add("beta", own, self.beta_initializer)
        add("moving_mean", own, self.moving_mean_initializer, False)
        add("moving_variance", own, self.moving_variance_initializer, False)


class _FeatureNorm(Layer):
    """Parameters with the lengths of `axis`, in the order of the axes of the input."""

    _form = "(..., features)"

    def __init__(self, axis: int | tuple[int, ...], epsilon: float) -> None:
        axes = axis if isinstance(axis, tuple) else (axis,)
        if not axes or not all([isinstance(a, int) for a in axes]):
            raise ValueError(f"{type(self).__name__}: axis must be an integer or a tuple of them; got {axis!r}")
        self.axis = axis
        self.epsilon = real(type(self).__name__, "epsilon", epsilon)
        self._axes = axes
        if axes != (-1,):
            self._form = f"with axes {axes}"

    def _demand(self, shape: tuple[int | None, ...]) -> dict[int, int]:
        lengths = super()._demand(shape)
        if len({a % len(shape) for a in self._axes}) < len(self._axes):
            raise ValueError(f"{type(self).__name__}: axis {self.axis} names one axis of shape {shape} twice")
        return lengths

    def _own(self, shape: Any) -> tuple[int, ...]:
        return tuple([shape[a] for a in sorted([a % len(shape) for a in self._axes])])

    def _beside(self, parameter: tc.Variable | None, x: tc.Tensor) -> Any:
        """The parameter, in a shape that broadcasts to that of `x`."""
        if parameter is None:
            return None
        axes = {a % x.ndim for a in self._axes}
        if min(axes) == x.ndim - len(axes):
            return parameter
        return tc.reshape(parameter, tuple([n if a in axes else 1 for a, n in enumerate(x.shape)]))


class LayerNorm(_FeatureNorm):
    """Each example less its mean, divided by its standard deviation, over `axis`; times `gamma`, plus `beta`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.LayerNorm(epsilon=0.0)
    >>> layer(tc.asarray([[1.0, 3.0], [2.0, 8.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    >>> [(name, v.shape) for name, v in layer.named_variables()]
    [('gamma', (2,)), ('beta', (2,))]

    Args:
        axis: over which axes; `gamma` and `beta` have their lengths.
        epsilon: is added to the variance.
        center, scale: whether there is a `beta`, a `gamma`.
        beta_initializer, gamma_initializer: see :mod:`tape_nn.initializers`.
    """

    def __init__(
        self,
        axis: int | tuple[int, ...] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Initializer | str = "zeros",
        gamma_initializer: Initializer | str = "ones",
    ) -> None:
        super().__init__(axis, epsilon)
        self.center = center
        self.scale = scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.gamma: tc.Variable | None = None
        self.beta: tc.Variable | None = None

    def __call__(self, x: Any) -> tc.Tensor:
        x = self._wide_input(x)
        gamma, beta = self._beside(self.gamma, x), self._beside(self.beta, x)
        return self._cast(tc.layer_norm(x, gamma, beta, axis=self.axis, epsilon=self.epsilon))

    def _create(self, add: Add, shape: Any) -> None:
        if self.scale:
            add("gamma", self._own(shape), self.gamma_initializer)
        if self.center:
            add("beta", self._own(shape), self.beta_initializer)


class RMSNorm(_FeatureNorm):
    """Each example divided by the root of its mean square over `axis`; times `scale`. See :func:`tape_core.rms_norm`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.RMSNorm(epsilon=0.0)(tc.asarray([3.0, 4.0, 0.0, 0.0])).tolist()
    [1.2000000476837158, 1.600000023841858, 0.0, 0.0]

    Args:
        axis: over which axes; `scale` has their lengths.
        epsilon: is added to the mean square.
        scale_initializer: see :mod:`tape_nn.initializers`.
    """

    def __init__(
        self,
        axis: int | tuple[int, ...] = -1,
        epsilon: float = 1e-6,
        scale_initializer: Initializer | str = "ones",
    ) -> None:
        super().__init__(axis, epsilon)
        self.scale_initializer = initializers.get(scale_initializer)
        self.scale: tc.Variable | None = None

    def __call__(self, x: Any) -> tc.Tensor:
        x = self._wide_input(x)
        return self._cast(tc.rms_norm(x, self._beside(self.scale, x), axis=self.axis, epsilon=self.epsilon))

    def _create(self, add: Add, shape: Any) -> None:
        add("scale", self._own(shape), self.scale_initializer)
