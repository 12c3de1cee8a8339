"""Dense, Embedding, and layers that move, mask or drop elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tape_core as tc
import tape_nn as nn
from tape_core.support import real
from tape_core.typing import Shape

from tape_tf.conversion import native, wrap
from tape_tf.keras import activations, initializers
from tape_tf.keras.layers.base import Layer, try_broadcast
from tape_tf.keras.layers.native import NativeLayer, refuse_options
from tape_tf.keras.naming import auto_name
from tape_tf.keras.regularizers import L1L2
from tape_tf.keras.symbolic import Input
from tape_tf.tensor import Tensor, wrap_tensor
from tape_tf.typing import (
    ActivationLike,
    ConstraintLike,
    DTypeLike,
    InitializerLike,
    PartialShape,
    PyTree,
    RegularizerLike,
    TensorLike,
)


class InputLayer(Layer):
    """The first layer of a Sequential that knows the shape of its inputs.

    Args:
        shape: the shape of an example, without the axis of examples.
        batch_size, dtype, batch_shape, name: as for `tf.keras.Input`.
    """

    supports_masking = True

    def __init__(
        self,
        shape: PartialShape | int | None = None,
        batch_size: int | None = None,
        dtype: DTypeLike = None,
        batch_shape: PartialShape | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or auto_name("input_layer"))
        # Keras 2 called it `input_shape`.
        shape = kwargs.pop("input_shape", shape)
        refuse_options("InputLayer", kwargs)
        self._symbol = Input(shape, batch_size, dtype, batch_shape=batch_shape, name=self.name)
        self._output_shape = self._symbol.shape
        self.built = True

    @property
    def batch_shape(self) -> tuple[int | None, ...]:
        """The shape of a batch; None for an unknown length."""
        return tuple(self._symbol.shape)

    def call(self, inputs: TensorLike) -> Any:
        """Return the input."""
        return inputs


class Dense(NativeLayer):
    """A fully connected layer, `activation(inputs @ kernel + bias)`: see :class:`tape_nn.Dense`.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.Dense(3, activation="relu", name="hidden")
    >>> layer(tf.ones((5, 2))).shape
    TensorShape([5, 3])
    >>> [v.name for v in layer.variables]
    ['hidden/kernel:0', 'hidden/bias:0']

    Args:
        units: the number of outputs for each example.
        activation: a name of `tf.keras.activations`, a function of a tensor, or None.
        use_bias: add a bias.
        kernel_initializer, bias_initializer: see `tf.keras.initializers`; None is "glorot_uniform", for both.
        kernel_regularizer, bias_regularizer, activity_regularizer: see `tf.keras.regularizers`.
        kernel_constraint, bias_constraint: see `tf.keras.constraints`.
        kwargs: the arguments of :class:`Layer`.
    """

    supports_masking = True

    def __init__(
        self,
        units: int,
        activation: ActivationLike = None,
        use_bias: bool = True,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike = None,
        bias_regularizer: RegularizerLike = None,
        activity_regularizer: RegularizerLike = None,
        kernel_constraint: ConstraintLike = None,
        bias_constraint: ConstraintLike = None,
        **kwargs: Any,
    ) -> None:
        self.activation = activations.get(activation)
        native_layer = nn.Dense(
            units,
            activations.for_tape_nn(activation),
            use_bias,
            initializers.for_tape_nn(kernel_initializer),
            initializers.for_tape_nn(bias_initializer),
        )
        extras = {
            "kernel_regularizer": kernel_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "bias_constraint": bias_constraint,
        }
        super().__init__(native_layer, {"activity_regularizer": activity_regularizer, **kwargs}, extras)

    def build(self, *shapes: Any) -> None:
        """Make the weights, for inputs of this shape.

        Raises:
            ValueError: the shape has no axis of examples.
        """
        if len(shapes[0]) < 2:
            raise ValueError(
                f"Input of layer {self.name!r} is incompatible with the layer: expected min_ndim=2, found "
                f"ndim={len(shapes[0])}. Full shape received: {tuple(shapes[0])}"
            )
        super().build(*shapes)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape[:-1], self.native.units) for shape in shapes]


class Embedding(NativeLayer):
    """Rows of a table, picked by integers, with a sparse gradient: see :class:`tape_nn.Embedding`.

    Args:
        input_dim: the number of rows.
        output_dim: the length of a row.
        embeddings_initializer, embeddings_regularizer, embeddings_constraint: as for :class:`Dense`.
        mask_zero: the integer 0 stands for padding: the output gets a mask, which is False there.
        weights: the initial table, alone or in a list.

    >>> import tape_tf as tf
    >>> layer = tf.keras.layers.Embedding(10, 4, mask_zero=True)
    >>> layer(tf.constant([[3, 5, 0]]))._keras_mask.numpy()
    array([[ True,  True, False]])
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: InitializerLike = "uniform",
        embeddings_regularizer: RegularizerLike = None,
        embeddings_constraint: ConstraintLike = None,
        mask_zero: bool = False,
        weights: TensorLike | None = None,
        **kwargs: Any,
    ) -> None:
        # An argument of Keras 2 that has no effect in Keras 3 either.
        kwargs.pop("input_length", None)
        if weights is not None:
            table = weights[0] if isinstance(weights, list | tuple) and len(weights) == 1 else weights
            embeddings_initializer = initializers.Constant(table)
        native_layer = nn.Embedding(input_dim, output_dim, initializers.for_tape_nn(embeddings_initializer))
        extras = {"embeddings_regularizer": embeddings_regularizer, "embeddings_constraint": embeddings_constraint}
        super().__init__(native_layer, kwargs, extras)
        self.mask_zero = self.supports_masking = bool(mask_zero)

    def build(self, *shapes: Any) -> None:
        """Make the table; it does not depend on the shape of inputs."""
        super().build(())

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(*shape, self.native.output_dim) for shape in shapes]

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return a mask that is False where the integer is 0; None without `mask_zero`."""
        return wrap(native(inputs) != 0) if self.mask_zero else None

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the row for each integer."""
        ids = native(inputs)
        if not ids.dtype.kind.endswith("integer"):
            # Keras casts: a model may get its integers as the float array of a dataset.
            ids = tc.astype(ids, tc.int32)
        return wrap_tensor(self.native(ids))


class Masking(Layer):
    """Give the input a mask that is False for steps whose features all equal `mask_value`, and set those to 0.

    >>> import tape_tf as tf
    >>> y = tf.keras.layers.Masking(mask_value=-1.0)(tf.constant([[[2.0, -1.0], [-1.0, -1.0]]]))
    >>> y.numpy(), y._keras_mask.numpy()
    (array([[[ 2., -1.],
            [ 0.,  0.]]], dtype=float32), array([[ True, False]]))
    """

    def __init__(self, mask_value: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mask_value = mask_value

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask for inputs, of shape (examples, steps)."""
        return wrap(tc.any(native(inputs) != self.mask_value, axis=-1))

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the input, with zeros in the steps that the mask hides."""
        value = native(inputs)
        counts = tc.any(value != self.mask_value, axis=-1, keepdims=True)
        return wrap_tensor(tc.where(counts, value, 0))


class Dropout(NativeLayer):
    """In training set each element to 0 with probability `rate`, and divide the others by `1 - rate`.

    See :class:`tape_nn.Dropout`.
    """

    supports_masking = True

    def __init__(
        self, rate: float, noise_shape: Sequence[int | None] | None = None, seed: int | None = None, **kwargs: Any
    ) -> None:
        if not 0 <= real("Dropout", "rate", rate) <= 1:
            raise ValueError(f"Invalid value received for argument `rate`. Expected a number from 0 to 1; got {rate!r}")
        rng = None if seed is None else tc.default_rng(seed)
        super().__init__(nn.Dropout(rate, None if noise_shape is None else tuple(noise_shape), rng), kwargs)

    def call(self, inputs: TensorLike, training: bool = False) -> Tensor:
        """Return the input; in training with elements dropped."""
        return wrap_tensor(self.native(native(inputs), training=bool(training)))


class Flatten(NativeLayer):
    """Flatten each example to a vector."""

    __tf_differs__ = "no channels_first"

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        if data_format == "channels_first":
            raise ValueError("Flatten: data_format='channels_first' is not taken; move the axis with Permute before")
        super().__init__(nn.Flatten(), kwargs)

    def call(self, inputs: TensorLike) -> Tensor:
        """Return shape (examples, features)."""
        value = native(inputs)
        # Keras makes (n, 1) of (n,): each example has one feature then.
        return wrap_tensor(self.native(tc.expand_dims(value, axis=-1) if value.ndim == 1 else value))


class Reshape(Layer):
    """Change the shape of each example; one length may be -1.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Reshape((2, -1))(tf.zeros((5, 6))).shape
    TensorShape([5, 2, 3])
    """

    def __init__(self, target_shape: Iterable[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_shape = tuple(target_shape)

    def call(self, inputs: TensorLike) -> Tensor:
        """Return shape `(examples, *target_shape)`."""
        value = native(inputs)
        size, known = math.prod(value.shape[1:]), math.prod(n for n in self.target_shape if n != -1)
        # max: a length of 0 beside -1 must not divide.
        shape = [size // max(known, 1) if n == -1 else n for n in self.target_shape]
        if math.prod(shape) != size:
            raise ValueError(
                f"The total size of the tensor must be unchanged. Received: input_shape={value.shape[1:]}, "
                f"target_shape={self.target_shape}"
            )
        return wrap_tensor(tc.reshape(value, (value.shape[0], *shape)))


class Permute(Layer):
    """Permute the axes of each example; `dims` counts them from 1."""

    def __init__(self, dims: Iterable[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(f"Invalid permutation argument `dims` for Permute Layer: {dims}. It counts axes from 1")

    def call(self, inputs: TensorLike) -> Tensor:
        """Return the input with its axes permuted."""
        return wrap_tensor(tc.permute_dims(native(inputs), (0, *self.dims)))


class RepeatVector(Layer):
    """Repeat each example: shape (examples, features) becomes (examples, n, features)."""

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n = int(n)

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return [(self.n, *shape) for shape in shapes]

    def call(self, inputs: TensorLike) -> Tensor:
        """Return each example `n` times."""
        return wrap_tensor(tc.repeat(tc.expand_dims(native(inputs), axis=1), self.n, axis=1))


class Identity(Layer):
    """Return the input unchanged."""

    supports_masking = True

    def call(self, inputs: TensorLike) -> Any:
        """Return the input."""
        return inputs


class Rescaling(Layer):
    """Compute `inputs * scale + offset`."""

    supports_masking = True

    def __init__(self, scale: npt.ArrayLike, offset: npt.ArrayLike = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale, self.offset = scale, offset

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return try_broadcast(*shapes, np.shape(self.scale), np.shape(self.offset))

    def call(self, inputs: TensorLike) -> Tensor:
        """Rescale the input; the result has the layer's dtype."""
        value = native(inputs)
        # Images are often uint8; the result is floating all the same.
        dtype = getattr(tc, self.compute_dtype)
        value = value if value.dtype is dtype else tc.astype(value, dtype)
        scale, offset = (tc.asarray(v, dtype=dtype, backend=value.backend.root, device=value.device)
                         for v in (self.scale, self.offset))  # fmt: skip
        return wrap_tensor(value * scale + offset)


class GaussianNoise(Layer):
    """In training add normally distributed noise with mean 0 and standard deviation `stddev`."""

    supports_masking = True

    def __init__(self, stddev: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= stddev <= 1:
            raise ValueError(f"GaussianNoise: stddev must be from 0 to 1; got {stddev}")
        self.stddev = float(stddev)
        self._rng = None if seed is None else tc.default_rng(seed)

    def call(self, inputs: TensorLike, training: bool = False) -> Any:
        """Return the input; in training with noise."""
        # Nothing is drawn outside of training, so that evaluation leaves the random state alone.
        if not training or not self.stddev:
            return inputs
        value = native(inputs)
        rng = tc.random.global_rng() if self._rng is None else self._rng
        where: dict[str, Any] = {"dtype": value.dtype, "backend": value.backend.root, "device": value.device}
        return wrap(value + rng.normal(value.shape, stddev=self.stddev, **where))


class ActivityRegularization(Layer):
    """Return the input unchanged, and add a penalty on it to :attr:`losses`."""

    supports_masking = True

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(activity_regularizer=L1L2(l1, l2), **kwargs)

    def call(self, inputs: TensorLike) -> Any:
        """Return the input."""
        return inputs
