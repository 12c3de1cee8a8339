"""Normalisation over examples (BatchNorm) and over features (LayerNorm, RMSNorm)."""

from __future__ import annotations

from typing import Any

import tape_core as tc
from tape_core.backends import Layout
from tape_core.support import assign_together, real, wrap
from tape_core.typing import ArrayLike

from tape_nn import initializers
from tape_nn.initializers import Initializer
from tape_nn.layers.base import AddVariable, Layer, check_fraction


class BatchNorm(Layer):
    """Batch normalisation: subtract the mean of each channel, and divide by its standard deviation.

    The result is multiplied by `gamma`, and `beta` is added. In training, mean and variance are those of the batch, and
    moving averages of them are updated: `moving = momentum * moving + (1 - momentum) * batch`. Otherwise the moving
    averages are used. The variance is the sum of squares divided by the number n of elements, as in Keras; PyTorch
    divides by n - 1 for its moving variance.

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
        momentum: the share of the moving averages that is kept at each call in training.
        epsilon: added to the variance.
        center, scale: whether there is a `beta`, a `gamma`.
        layout: "channels_last", or "channels_first" for channels on the axis after that of the examples.
        beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: see
            :mod:`tape_nn.initializers`.

    Raises:
        ValueError: an argument is out of range; in a call in training, the batch is empty.
    """

    _input_form = "(examples, ..., channels)"

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
        momentum = check_fraction(self, "momentum", momentum)
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
            self._input_form, self._sized_axes = "(examples, channels, ...)", (1,)

    def __call__(self, x: ArrayLike, training: bool | None = None) -> tc.Tensor:
        """Normalise with the batch's statistics if `training` is True; by default the module's mode decides."""
        x = self._full_precision_input(x)
        training = self.training if training is None else training
        if not training:
            known = self.moving_mean, self.moving_variance
            found = tc.batch_norm(x, self.gamma, self.beta, *known, epsilon=self.epsilon, layout=self.layout)
            return self._cast(found.output)
        # The mean of no examples is NaN, and in the moving averages it would stay for good.
        if x.size == 0:
            raise ValueError(f"BatchNorm: in training there must be examples to take the mean of; got shape {x.shape}")
        y, mean, variance = tc.batch_norm(x, self.gamma, self.beta, epsilon=self.epsilon, layout=self.layout)
        assert self.moving_mean is not None
        assert self.moving_variance is not None
        # Both in one commit: an interrupt does not leave a mean of another batch than the variance.
        averages = [self.moving_mean, self.moving_variance]
        assign_together(averages, [self._moved(v, batch) for v, batch in zip(averages, (mean, variance), strict=True)])
        return self._cast(y)

    def _moved(self, moving: tc.Variable, batch: tc.Tensor) -> tc.Tensor:
        """Return a moving average after this batch."""
        # On raw arrays, so that no tape records it.
        # Written as a move towards the batch: a moving average that has arrived stays, to the bit.
        new = moving.array + (batch.array - moving.array) * (1 - self.momentum)
        return wrap(new, batch.backend)

    def _sized_lengths(self, shape: tuple[int | None, ...]) -> dict[int, int]:
        if len(shape) < 2:
            raise ValueError(f"BatchNorm takes inputs of shape {self._input_form}; got shape {shape}")
        return super()._sized_lengths(shape)

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        channels = (shape[self._sized_axes[0]],)
        if self.scale:
            add("gamma", channels, self.gamma_initializer)
        if self.center:
            add("beta", channels, self.beta_initializer)
        add("moving_mean", channels, self.moving_mean_initializer, False)
        add("moving_variance", channels, self.moving_variance_initializer, False)


class _FeatureNorm(Layer):
    """Base class of layers that normalise over `axis` and whose parameters have the lengths of these axes."""

    _input_form = "(..., features)"

    def __init__(self, axis: int | tuple[int, ...], epsilon: float) -> None:
        axes = axis if isinstance(axis, tuple) else (axis,)
        if not axes or not all([isinstance(a, int) for a in axes]):
            raise ValueError(f"{type(self).__name__}: axis must be an integer or a tuple of them; got {axis!r}")
        self.axis = axis
        self.epsilon = real(type(self).__name__, "epsilon", epsilon)
        self._sized_axes = axes
        if axes != (-1,):
            self._input_form = f"with axes {axes}"

    def _sized_lengths(self, shape: tuple[int | None, ...]) -> dict[int, int]:
        lengths = super()._sized_lengths(shape)
        # With -1 and 2 for one axis, which only the shape of an input can tell.
        if len({a % len(shape) for a in self._sized_axes}) < len(self._sized_axes):
            raise ValueError(f"{type(self).__name__}: axis {self.axis} names one axis of shape {shape} twice")
        return lengths

    def _parameter_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the lengths of the normalised axes, in the order of the axes of the input."""
        return tuple([shape[a] for a in sorted([a % len(shape) for a in self._sized_axes])])

    def _broadcastable(self, parameter: tc.Variable | None, x: tc.Tensor) -> tc.Tensor | None:
        """Return a parameter in a shape that broadcasts to that of `x`."""
        if parameter is None:
            return None
        axes = {a % x.ndim for a in self._sized_axes}
        if min(axes) == x.ndim - len(axes):  # the last axes: it broadcasts already
            return parameter
        return tc.reshape(parameter, tuple([n if a in axes else 1 for a, n in enumerate(x.shape)]))


class LayerNorm(_FeatureNorm):
    """Layer normalisation: subtract each example's mean over `axis`, and divide by the standard deviation over it.

    The result is multiplied by `gamma`, and `beta` is added.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> layer = nn.LayerNorm(epsilon=0.0)
    >>> layer(tc.asarray([[1.0, 3.0], [2.0, 8.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    >>> [(name, v.shape) for name, v in layer.named_variables()]
    [('gamma', (2,)), ('beta', (2,))]

    Args:
        axis: the axes of mean and variance; `gamma` and `beta` have their lengths.
        epsilon: added to the variance.
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

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        x = self._full_precision_input(x)
        gamma, beta = self._broadcastable(self.gamma, x), self._broadcastable(self.beta, x)
        return self._cast(tc.layer_norm(x, gamma, beta, axis=self.axis, epsilon=self.epsilon))

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        if self.scale:
            add("gamma", self._parameter_shape(shape), self.gamma_initializer)
        if self.center:
            add("beta", self._parameter_shape(shape), self.beta_initializer)


class RMSNorm(_FeatureNorm):
    """Divide each example by the root of its mean square over `axis`; times `scale`. See :func:`tape_core.rms_norm`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.RMSNorm(epsilon=0.0)(tc.asarray([3.0, 4.0, 0.0, 0.0])).tolist()
    [1.2000000476837158, 1.600000023841858, 0.0, 0.0]

    Args:
        axis: the axes of the mean; `scale` has their lengths.
        epsilon: added to the mean square.
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

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        x = self._full_precision_input(x)
        return self._cast(tc.rms_norm(x, self._broadcastable(self.scale, x), axis=self.axis, epsilon=self.epsilon))

    def _create_variables(self, add: AddVariable, shape: tuple[Any, ...]) -> None:
        add("scale", self._parameter_shape(shape), self.scale_initializer)
