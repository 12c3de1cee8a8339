"""Dense, Embedding, Lambda and layers without weights."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tape_core as tc
import tape_nn as nn
from tape_core.support import real
from tape_core.typing import Shape

from tape_tf import dtypes
from tape_tf.conversion import native, wrap
from tape_tf.keras import activations, initializers
from tape_tf.keras.layers.base import Layer, try_broadcast
from tape_tf.keras.layers.native import NativeLayer, refuse_options
from tape_tf.keras.masks import as_mask, mask_of
from tape_tf.keras.naming import auto_name
from tape_tf.keras.regularizers import L1L2
from tape_tf.keras.structures import is_array, leaves
from tape_tf.keras.symbolic import Input, KerasTensor
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


class Lambda(Layer):
    """A layer that calls a function of tensors.

    >>> import tape_tf as tf
    >>> tf.keras.layers.Lambda(lambda x: x ** 2)(tf.constant([3.0])).numpy()
    array([9.], dtype=float32)

    Args:
        function: is called with the input and with `arguments`. Variables that it reads are not weights of the layer.
        output_shape: no effect: the shape of the output is inferred.
        mask: the mask of the output, or a function `mask(inputs, mask_of_inputs)` that returns it.
        arguments: further arguments, by name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: PartialShape | None = None,
        mask: Any = None,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.function = function
        self.mask = mask
        self.supports_masking = mask is not None
        self.arguments = dict(arguments or {})
        # The function gets `mask` and `training` if it has parameters of these names.
        written = inspect.unwrap(function)
        # Of functions written in Python only: to find the signature of others, Python compiles text.
        names = inspect.signature(written).parameters if hasattr(written, "__code__") else ()
        self._takes = tuple([name for name in ("mask", "training") if name in names and name not in self.arguments])

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        return try_broadcast(*shapes, *[np.shape(value) for value in leaves(self.arguments) if is_array(value)])

    def compute_mask(self, inputs: PyTree, mask: PyTree = None) -> Any:
        """Return the mask of the output."""
        return self.mask(inputs, mask) if callable(self.mask) else self.mask

    def call(self, inputs: TensorLike, mask: PyTree = None, training: bool | None = None) -> Any:
        """Call the function."""
        known = {"mask": mask, "training": training}
        return self.function(inputs, **self.arguments, **{name: known[name] for name in self._takes})


class Operation(Layer):
    """The layer that an operator between symbolic tensors becomes; it calls a function of several tensors."""

    _masks_inside = True  # functions of tensors lose masks, as they do eagerly: no warning is due

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        super().__init__(name=name)
        self.function = function

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        if self.function is operator.matmul and len(shapes) == 2 and min(map(len, shapes)) > 0:
            # A product of matrices does not broadcast elementwise: rows of x and columns of y.
            x, y = shapes
            return [(*batch, *x[-2:-1], *y[len(y) - 1 :]) for batch in try_broadcast(x[:-2], y[:-2])]
        return try_broadcast(*shapes)

    def call(self, *inputs: Any) -> Any:
        """Call the function."""
        return self.function(*inputs)


# Keras names the layers of operators after its functions.
_KERAS_NAMES = {
    "getitem": "get_item",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "pow": "power",
    "neg": "negative",
    "abs": "absolute",
}


def _define_operator(name: str, reflected: bool) -> None:
    """Define an operator of KerasTensor, and its reflected form: each use makes an Operation, and calls it."""
    function = getattr(operator, name)
    label = _KERAS_NAMES.get(name, name)

    def forward(self: KerasTensor, *others: Any) -> Any:
        return Operation(function, name=auto_name(label))(self, *others)

    def backward(self: KerasTensor, other: TensorLike) -> Any:
        # A layer makes a tensor of its first argument: of an integer one of int32, which fits no floats.
        if isinstance(other, int) and not isinstance(other, bool) and dtypes.as_dtype(self.dtype).is_floating:
            other = float(other)
        return Operation(function, name=auto_name(label))(other, self)

    setattr(KerasTensor, f"__{name}__", forward)
    if reflected:
        setattr(KerasTensor, f"__r{name}__", backward)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    _define_operator(_name, reflected=True)
for _name in ("lt", "le", "gt", "ge", "neg", "abs", "getitem"):
    _define_operator(_name, reflected=False)


def _symbolic_mask(self: KerasTensor) -> Any:
    """Return the mask of a symbolic tensor, a symbolic tensor as well; None if it has none."""
    return Operation(mask_of, name=auto_name("mask"))(self) if self._mask_ndim is not None else None


KerasTensor._keras_mask = property(_symbolic_mask)


class Activation(Layer):
    """A layer that applies an activation, given by name or as a function."""

    supports_masking = True

    def __init__(self, activation: ActivationLike, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return self.activation(inputs)


class ReLU(Layer):
    """The activation :func:`tf.keras.activations.relu` as a layer."""

    supports_masking = True

    def __init__(
        self, max_value: float | None = None, negative_slope: float = 0.0, threshold: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.max_value, self.negative_slope, self.threshold = max_value, negative_slope, threshold

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(Layer):
    """Multiply negative elements by `negative_slope`."""

    supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any) -> None:
        # Keras 2 called it `alpha`.
        negative_slope = kwargs.pop("alpha", negative_slope)
        super().__init__(**kwargs)
        if negative_slope < 0:
            raise ValueError(f"LeakyReLU: negative_slope must be at least 0; got {negative_slope}")
        self.negative_slope = float(negative_slope)

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return activations.leaky_relu(inputs, self.negative_slope)


class PReLU(Layer):
    """A :class:`LeakyReLU` whose slope is learned, one for each feature; features along `shared_axes` share one."""

    supports_masking = True

    def __init__(
        self,
        alpha_initializer: InitializerLike = "Zeros",
        alpha_regularizer: RegularizerLike = None,
        alpha_constraint: ConstraintLike = None,
        shared_axes: int | Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha_initializer = initializers.get(alpha_initializer)
        self.alpha_regularizer, self.alpha_constraint = alpha_regularizer, alpha_constraint
        self.shared_axes = (
            [] if shared_axes is None else [shared_axes] if isinstance(shared_axes, int) else [*shared_axes]
        )

    def build(self, input_shape: PartialShape) -> None:
        """Make the slopes, for inputs of this shape."""
        shape = [1 if axis in self.shared_axes else n for axis, n in enumerate(input_shape)][1:]
        extras: dict[str, Any] = {"regularizer": self.alpha_regularizer, "constraint": self.alpha_constraint}
        self.alpha = self.add_weight(tuple(shape), self.alpha_initializer, name="alpha", **extras)
        self.built = True

    def call(self, inputs: TensorLike) -> Tensor:
        """Apply the activation."""
        value = native(inputs)
        return wrap_tensor(tc.relu(value) - native(self.alpha) * tc.relu(-value))


class ELU(Layer):
    """The activation :func:`tf.keras.activations.elu` as a layer."""

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = float(alpha)

    def call(self, inputs: TensorLike) -> Any:
        """Apply the activation."""
        return activations.elu(inputs, self.alpha)


class Softmax(Layer):
    """The activation :func:`tf.keras.activations.softmax` as a layer."""

    supports_masking = True

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: TensorLike, mask: TensorLike | None = None) -> Any:
        """Apply the activation; elements that a mask hides get 0."""
        if mask is None:
            return activations.softmax(inputs, self.axis)
        value, counts = native(inputs), as_mask(mask)
        # Not minus infinity: where everything is hidden, the softmax would be NaN, and so its gradient.
        hidden = tc.where(counts, value, tc.finfo(value.dtype).min / 2)
        return wrap_tensor(tc.where(counts, tc.softmax(hidden, axis=self.axis), 0.0))


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
