"""Model and Sequential: layers with `fit`, saving and a summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native
from tape_tf.keras.conversion import cast
from tape_tf.keras.layers.base import Layer
from tape_tf.keras.layers.callables import Operation
from tape_tf.keras.layers.core import InputLayer
from tape_tf.keras.masks import has_mask, mask_of, with_mask
from tape_tf.keras.naming import auto_name
from tape_tf.keras.structures import leaves, map_structure, shapes_of
from tape_tf.keras.summary import summary_table
from tape_tf.keras.symbolic import SHAPE_RULES, Input, KerasTensor, layers_by_depth, run_graph, topological_order
from tape_tf.keras.training import Trainer
from tape_tf.names import absent, published
from tape_tf.shapes import TensorSpec
from tape_tf.string_tensor import StringTensor, wrap_strings
from tape_tf.tensor import Tensor, Value, wrap_tensor
from tape_tf.typing import PathLike, PyTree
from tape_tf.variable import Variable


class Model(Trainer, Layer):
    """A layer that can be trained with `fit`.

    Derive a class, with layers as attributes and a `call`:

    >>> import tape_tf as tf
    >>> class Line(tf.keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.dense = tf.keras.layers.Dense(1)
    ...     def call(self, x):
    ...         return self.dense(x)
    >>> tf.keras.utils.set_random_seed(0)
    >>> model = Line()
    >>> model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    >>> x = tf.linspace(-1.0, 1.0, 64)[:, None]
    >>> history = model.fit(x, 2.0 * x + 1.0, epochs=100, verbose=0)
    >>> history.history["loss"][-1] < 1e-3, model.predict(x, verbose=0).shape
    (True, (64, 1))

    Or connect layers, beginning with a symbolic input:

    >>> inputs = tf.keras.Input(shape=(4,))
    >>> hidden = tf.keras.layers.Dense(8, activation="relu")(inputs)
    >>> model = tf.keras.Model(inputs=inputs, outputs=tf.keras.layers.Dense(2)(hidden))
    >>> model(tf.ones((3, 4))).shape
    TensorShape([3, 2])

    Args:
        inputs, outputs: symbolic tensors, see `tf.keras.Input`; alone, or in lists, tuples or dicts.
        kwargs: the arguments of :class:`tf.keras.layers.Layer`.

    Raises:
        ValueError: an output does not depend on the inputs alone.
    """

    _masks_inside = True
    _inputs: Any = None
    _outputs: Any = None
    _graph: Any = None
    output_names: list[str] | None = None
    _first_call: Any = None  # the arguments of the first call, with TensorSpecs for tensors

    def __init__(self, inputs: PyTree = None, outputs: PyTree = None, **kwargs: Any) -> None:
        # Keras calls a model made of symbolic calls "functional"; a subclass gets its name from its class.
        if inputs is not None and type(self) is Model and kwargs.get("name") is None:
            kwargs["name"] = auto_name("functional")
        super().__init__(**kwargs)
        if inputs is None and outputs is None:
            return
        if inputs is None or outputs is None:
            raise ValueError("Model: give both inputs and outputs, or neither and define `call`")
        sources, targets = list(leaves(inputs)), list(leaves(outputs))
        for what, tensors in (("inputs", sources), ("outputs", targets)):
            for tensor in tensors:
                if not isinstance(tensor, KerasTensor):
                    raise ValueError(f"Model: all {what} must be symbolic, made from tf.keras.Input; got {tensor!r}")
        self._inputs, self._outputs = inputs, outputs
        self._graph = topological_order(sources, targets)
        # Keras lists an InputLayer for each input among the layers of a model.
        first = [InputLayer(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name) for tensor in sources]
        self._layers = layers_by_depth(sources, first, self._graph)
        # The names by which dicts of losses, metrics and labels refer to the outputs.
        self.output_names = [t.node.layer.name if t.node else t.name for t in targets]
        self.built = True
        self._output_shape = shapes_of(outputs)

    def call(self, inputs: PyTree, training: bool | None = None, mask: PyTree = None) -> Any:
        """Compute the outputs."""
        if self._graph is None:
            return super().call(inputs)
        names = [tensor.name for tensor in leaves(self._inputs)]
        wanted = self._inputs
        # A dict by the names of the inputs is accepted even if the model was made with a list of them.
        if isinstance(inputs, dict) and not isinstance(wanted, dict):
            if missing := [name for name in names if name not in inputs]:
                raise ValueError(f"{self.name}: the inputs {', '.join(map(repr, missing))} are missing")
            values = [inputs[name] for name in names]
        elif isinstance(inputs, dict):
            values = [inputs[key] for key in wanted]
        else:
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(names):
            raise ValueError(f"{self.name} takes {len(names)} inputs, {', '.join(names)}; got {len(values)}")
        values = [_fit_to_input(tensor, value) for tensor, value in zip(leaves(wanted), values, strict=True)]
        for tensor, value in zip(leaves(wanted), values, strict=True):
            if not tensor.shape.is_compatible_with(value.shape):
                raise ValueError(
                    f"Input {tensor.name!r} of model {self.name!r} is incompatible with it: expected shape "
                    f"{tensor.shape}, found shape {value.shape}"
                )
        if has_mask(mask):
            values = [
                value if part is None else with_mask(value, part)
                for value, part in zip(values, leaves(mask), strict=True)
            ]
        return run_graph(self._graph, list(leaves(wanted)), values, self._outputs)

    def build(self, input_shape: PyTree) -> None:
        """Make the weights, for inputs of this shape: a tuple, or a structure of tuples."""
        if not self.built:
            self(_symbolic_inputs(input_shape, self.dtype))
        self.built = True

    def _build_from_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        def spec(leaf: PyTree) -> Any:
            return TensorSpec.from_tensor(leaf) if isinstance(leaf, Value) else leaf

        # A subclass has no symbolic graph: a saved model is built again by a call with tensors like those of its first.
        self._first_call = map_structure(spec, (args, kwargs))
        if type(self).build in (Model.build, Sequential.build):
            self.built = True  # the layers inside build themselves when they are called
        else:
            super()._build_from_call(args, kwargs)

    @property
    def layers(self) -> list[Layer]:
        """The layers held as attributes, without the operators between symbolic tensors."""
        return [layer for layer in self._sublayers() if isinstance(layer, Layer) and not isinstance(layer, Operation)]

    @property
    def inputs(self) -> Any:
        """The symbolic inputs, in a list; None for a model that has none."""
        return None if self._inputs is None else list(leaves(self._inputs))

    @property
    def outputs(self) -> Any:
        """The symbolic outputs, in a list; None for a model that has none."""
        return None if self._outputs is None else list(leaves(self._outputs))

    @property
    def input(self) -> Any:
        """The symbolic inputs, in the structure in which they were given."""
        return super().input if self._inputs is None else self._inputs

    @property
    def output(self) -> Any:
        """The symbolic outputs, in the structure in which they were given."""
        return super().output if self._outputs is None else self._outputs

    @property
    def input_shape(self) -> Any:
        """The shape of the symbolic inputs."""
        return _shape_tuples(self.input)

    @property
    def output_shape(self) -> Any:
        """The shape of the symbolic outputs."""
        return _shape_tuples(self.output)

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Return a layer by its name or its index.

        Raises:
            ValueError: no layer has this name or index.
        """
        layers = self.layers
        if (name is None) == (index is None):
            raise ValueError("get_layer takes either a name or an index")
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise ValueError(
                    f"Was asked to retrieve layer at index {index} but model only has {len(layers)} layers."
                )
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        raise ValueError(f"No such layer: {name}. Existing layers are: {[layer.name for layer in layers]}.")

    def summary(
        self,
        line_length: int | None = None,
        positions: Sequence[float] | None = None,
        print_fn: Callable[[str], Any] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Sequence[str] | None = None,
    ) -> None:
        """Print a table of the layers, the shapes of their outputs and the sizes of their weights.

        Args:
            line_length: the width of the table, in characters.
            positions, layer_range: no effect.
            print_fn: a function that receives the text; by default it goes to standard output.
            expand_nested: show the layers of nested models.
            show_trainable: show which layers are trainable.
        """
        summary_table(self, line_length, print_fn, expand_nested, show_trainable)

    def save_weights(self, filepath: PathLike, overwrite: bool = True) -> None:
        """Write the weights to a file: for Keras if its name ends in `.h5`, else in the safetensors format.

        Raises:
            ValueError: a layer has not made its weights yet.
            FileExistsError: the file exists, and `overwrite` is False.
            ModuleNotFoundError: the name ends in `.h5`, and h5py is not installed.
        """
        # By its published name, as below: the modules that read and write models import this one.
        published()["keras.saving.save_weights"](self, filepath, overwrite)

    def load_weights(self, filepath: PathLike, skip_mismatch: bool = False) -> None:
        """Read weights that :meth:`save_weights` or Keras wrote, on any backend.

        Args:
            skip_mismatch: skip weights that only one of the file and the model has.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is damaged, or does not fit the model. Then nothing is changed.
        """
        published()["keras.saving.load_weights"](self, filepath, skip_mismatch)

    def save(self, filepath: PathLike, overwrite: bool = True, **kwargs: Any) -> None:
        """Write the whole model to a file: see :func:`tf.keras.models.save_model`."""
        published()["keras.models.save_model"](self, filepath, overwrite, **kwargs)

    def export(self, filepath: PathLike, format: str = "tf_saved_model", verbose: object = None, **kwargs: Any) -> None:
        """Write the model into a folder for `tf.saved_model.load`.

        Raises:
            ValueError: another format is asked for.
        """
        if format != "tf_saved_model" or kwargs:
            raise ValueError(
                f"export: there is only the format 'tf_saved_model', and no further argument; got {format!r}, {kwargs}"
            )
        published()["saved_model.save"](self, filepath)

    def to_json(self, **kwargs: Any) -> str:
        """Describe the model's structure, without its weights, for :func:`tf.keras.models.model_from_json`."""
        return json.dumps(published()["keras.saving.serialize_keras_object"](self), **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _ABSENT_METHODS:
            raise AttributeError(f"a model has no {name}: save writes the whole model, save_weights its weights")
        return super().__getattr__(name)


_ABSENT_METHODS = ("load", "quantize")


class Sequential(Model):
    """Layers called one after the other.

    >>> import tape_tf as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(2)])
    >>> model(tf.ones((4, 3))).shape
    TensorShape([4, 2])
    >>> [layer.units for layer in model.layers], len(model.trainable_variables)
    ([8, 2], 4)

    Args:
        layers: layers, optionally after a `tf.keras.Input`, which fixes the shape of inputs before the first call.
        name: by default "sequential".
    """

    def __init__(
        self, layers: Iterable[Layer | KerasTensor] | None = None, trainable: bool = True, name: str | None = None
    ) -> None:
        super().__init__(trainable=trainable, name=name)
        self._layers: list[Layer] = []
        for layer in layers or []:
            self.add(layer)

    def add(self, layer: object) -> None:
        """Append a layer.

        Raises:
            ValueError: the argument is no layer, or its name is taken.
        """
        if isinstance(layer, KerasTensor):
            layer = InputLayer(batch_shape=layer.shape, dtype=layer.dtype, name=layer.name)
        if not isinstance(layer, Layer):
            hint = "; use tf.keras.layers.Lambda or Activation" if callable(layer) else ""
            # Packages that are compiled against TensorFlow, such as tensorflow_hub and its KerasLayer.
            package = type(layer).__module__.partition(".")[0]
            if package.startswith(("tensorflow", "keras")):
                hint = (
                    f": {package} computes with TensorFlow; use tf.keras.applications, or have Keras save the model as "
                    "a .keras file and load that"
                )
            raise ValueError(
                f"Only instances of `keras.Layer` can be added to a Sequential model. Received: {layer}{hint}"
            )
        # Names are keys in files of weights and in the config.
        if layer.name in [other.name for other in self._layers]:
            raise ValueError(
                f"All layers added to a Sequential model should have unique names. Name {layer.name!r} is taken"
            )
        if isinstance(layer, InputLayer):
            if self._layers or self._inputs is not None:
                raise ValueError("Sequential: an Input must be the first layer")
            self._inputs = self._outputs = layer._symbol
            return
        # A first layer with `input_shape`, or a model with an input of its own, stands for an Input before it.
        if not self._layers and self._inputs is None and (like := _first_input(layer)) is not None:
            self._inputs = self._outputs = like
        self._layers.append(layer)
        # With a known input each layer is called symbolically when it is added, and so makes its weights.
        if self._inputs is not None:
            self._outputs = layer(self._outputs)
            self.built = True
            self._output_shape = self._outputs.shape

    def pop(self) -> Layer:
        """Remove the last layer, and return it."""
        layer = self._layers.pop()
        if self._inputs is not None:
            # The input of the last symbolic call of the removed layer was the output before.
            self._outputs = layer._nodes[-1].inputs
        return layer

    def build(self, input_shape: PyTree) -> None:
        """Make the weights, for inputs of this shape."""
        if self._inputs is None:
            self._inputs = self._outputs = Input(batch_shape=tuple(input_shape), dtype=self.dtype)
            for layer in self._layers:
                self._outputs = layer(self._outputs)
        self.built = True

    def call(self, inputs: PyTree, training: bool | None = None, mask: PyTree = None) -> Any:
        """Apply the layers in order."""
        if has_mask(mask) and mask is not mask_of(inputs):
            inputs = with_mask(inputs, mask)
        if isinstance(self._inputs, KerasTensor):
            inputs = _fit_to_input(self._inputs, inputs)
        for layer in self._layers:
            inputs = layer(inputs)
        return inputs

    @property
    def layers(self) -> list[Layer]:
        """The layers, in order."""
        return list(self._layers)


def _fit_to_input(expected: KerasTensor, value: PyTree) -> Any:
    """Return a value of the dtype of a symbolic input, with a last axis of length 1 added or removed to have its rank.

    Keras does both: integers for an input of floats become floats, and a vector is an input of shape (n, 1).
    """
    if isinstance(value, StringTensor):
        if len(value.shape) == len(expected.shape) - 1 and expected.shape[-1] == 1:
            return wrap_strings(value.numpy()[..., np.newaxis])
        return value
    if not isinstance(value, Tensor | Variable):
        return value
    found = native(value)
    if found.dtype.name != expected.dtype.name and expected.dtype is not dtypes.string:
        found = cast(found, expected.dtype)
    rank = len(expected.shape)
    if found.ndim == rank - 1 and expected.shape[-1] == 1:
        found = tc.expand_dims(found, axis=-1)
    elif found.ndim == rank + 1 and found.shape[-1] == 1:
        found = tc.squeeze(found, axis=-1)
    return value if found is native(value) else with_mask(wrap_tensor(found), mask_of(value))


def _declared_output(model: Model, shape: tuple[int | None, ...]) -> tuple[int | None, ...] | None:
    """Return the shape of the symbolic output, where a model is called on an input like its symbolic one; else None."""
    first, last = model._inputs, model._outputs
    if not isinstance(first, KerasTensor) or not isinstance(last, KerasTensor) or tuple(first.shape) != shape:
        return None
    return tuple(last.shape) if last.dtype.name == model.compute_dtype else None


SHAPE_RULES[Model] = SHAPE_RULES[Sequential] = (_declared_output, False)


def _first_input(layer: Layer) -> KerasTensor | None:
    """Return a symbolic input for a layer that was given `input_shape`, or a model with a symbolic input; else None."""
    if layer._declared_shape is not None:
        return Input(batch_shape=layer._declared_shape, dtype=layer.dtype)
    known = layer._inputs if isinstance(layer, Model) else None
    return Input(batch_shape=known.shape, dtype=known.dtype) if isinstance(known, KerasTensor) else None


def _symbolic_inputs(shape: PyTree, dtype: str) -> Any:
    """Return symbolic inputs for a structure of shapes."""
    if isinstance(shape, dict):
        return {key: _symbolic_inputs(part, dtype) for key, part in shape.items()}
    if shape and not isinstance(shape[0], int | None):
        return type(shape)([_symbolic_inputs(part, dtype) for part in shape])
    return Input(batch_shape=tuple(shape), dtype=dtype)


def _shape_tuples(structure: PyTree) -> Any:
    """Return the shapes of symbolic tensors in a structure, as tuples."""
    if isinstance(structure, list | tuple):
        return [tuple(tensor.shape) for tensor in structure]
    if isinstance(structure, dict):
        return {key: tuple(tensor.shape) for key, tensor in structure.items()}
    return tuple(structure.shape)


__getattr__ = absent("keras.models")
