"""Layer, the base class of layers and models."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import tape_core as tc
from tape_core.support import setting, warn_user
from tape_core.typing import Shape
from tape_nn.extend import BUILDING

from tape_tf import dtypes
from tape_tf.conversion import native, unwrap, wrap
from tape_tf.keras import constraints, initializers, limits, policies, regularizers
from tape_tf.keras.conversion import autocast
from tape_tf.keras.layers.holding import Holder
from tape_tf.keras.layers.signature import CallSignature, signature_of
from tape_tf.keras.masks import has_mask, mask_of, masks_of, set_masks, with_mask
from tape_tf.keras.naming import auto_name
from tape_tf.keras.structures import is_array, shapes_of, tensor_leaves
from tape_tf.keras.symbolic import Input, Node, contains_symbolic, symbolic_call
from tape_tf.shapes import TensorShape
from tape_tf.string_tensor import StringTensor, as_strings, is_text
from tape_tf.tensor import Tensor
from tape_tf.typing import ConstraintLike, DTypeLike, InitializerLike, PartialShape, PyTree, RegularizerLike
from tape_tf.variable import AUTOCAST, NAME_SCOPE, Variable


def try_broadcast(*shapes: Shape) -> Iterable[Shape]:
    """Return a list of the shape that these shapes broadcast to; empty if they do not, which the call will report."""
    try:
        return [tc.broadcast_shapes(*shapes)]
    except ValueError:
        return []


class _CallContext(NamedTuple):
    """The settings that the call of a layer passes on to the layers called inside."""

    training: bool | None


_CALL: ContextVar[_CallContext | None] = ContextVar("tape_tf.keras.call", default=None)


class Layer(Holder):
    """Base class of layers: weights, and a computation with them.

    A new layer makes its weights in `build`, which is called before the first call, or in `__init__`, and computes in
    `call`. Variables, layers and modules held as attributes are found, also inside lists and dicts.

    >>> import tape_tf as tf
    >>> class Linear(tf.keras.layers.Layer):
    ...     def __init__(self, units, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.units = units
    ...     def build(self, input_shape):
    ...         self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="ones", name="w")
    ...     def call(self, inputs):
    ...         return tf.matmul(inputs, self.w)
    >>> layer = Linear(2, name="line")
    >>> layer(tf.constant([[1.0, 2.0]])).numpy()
    array([[3., 3.]], dtype=float32)
    >>> [(v.name, v.shape) for v in layer.trainable_variables]
    [('line/w:0', TensorShape([2, 2]))]

    Args:
        activity_regularizer: a penalty on outputs, which becomes one of :attr:`losses`.
        trainable: include the weights in the trainable ones.
        dtype: the dtype of weights and of the computation, or a policy such as "mixed_float16": see
            `tf.keras.mixed_precision`. By default the global policy.
        autocast: cast floating inputs to `dtype`.
        name: by default the class's name in snake case, numbered.
        kwargs: `input_shape`, for the first layer of a Sequential.

    Raises:
        ValueError: an argument is unknown.
    """

    __tf_differs__ = "weights are tf.Variables, named as layer/weight:0"

    built: bool
    _building = False
    activity_regularizer: Any
    _output_shape: Any
    supports_masking = False
    """True if the layer passes on the mask of its input, or makes one: see :meth:`compute_mask`."""
    _computes_mask = False  # True for classes with a `compute_mask` of their own
    _masks_inside = False  # True for models: it is the layers inside that take and pass on masks

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Who defines `compute_mask` says that the layer has masks.
        if "compute_mask" in vars(cls):
            cls._computes_mask = True
            if "supports_masking" not in vars(cls):
                cls.supports_masking = True

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # In __new__, since a subclass may set attributes before it calls __init__, or may not call it at all.
        self: Any = super().__new__(cls)
        self._name = None
        self._set_policy(policies.global_policy())
        self._autocast = True
        self._trainable = True
        self._frozen_variables = []
        self._added_weights = []
        self._regularized = []
        self._losses = []
        self._nodes = []
        self._init_arguments = (args, kwargs)  # for get_config
        self._declared_shape = None
        self._output_shape = None
        self.built = False
        self.activity_regularizer = None
        return self

    def __init__(
        self,
        *,
        activity_regularizer: RegularizerLike = None,
        trainable: bool = True,
        dtype: DTypeLike = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        kind = type(self).__name__
        shape = kwargs.pop("input_shape", None)
        if (length := kwargs.pop("input_dim", None)) is not None:
            shape = (length,)
        if kwargs:
            raise ValueError(f"Unrecognized keyword arguments passed to {kind}: {kwargs}")
        if name is not None and "/" in name:
            raise ValueError(f"{kind}: name must not have a '/'; got {name!r}")
        self._name = name or auto_name(kind)
        self._declared_shape = None if shape is None else (None, *shape)
        self._set_policy(policies.get(dtype))
        self._autocast = autocast
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.trainable = trainable

    # -- methods that a layer defines

    def build(self, input_shape: PartialShape) -> None:
        """Make the weights, for inputs of this shape. The first call does it."""
        self.built = True

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the layer's outputs. Every layer overrides this."""
        raise NotImplementedError(f"Layer {type(self).__name__} does not have a `call()` method implemented.")

    def compute_mask(self, inputs: PyTree, previous_mask: PyTree) -> Any:
        """Return the mask of the outputs, for inputs with this mask; by default the same one.

        A mask says which steps count: a boolean tensor of shape (examples, steps), or None. A layer whose outputs have
        another mask than its inputs defines this. One that passes the mask on sets `supports_masking` to True.

        >>> import tape_tf as tf
        >>> class Later(tf.keras.layers.Layer):
        ...     def call(self, x, mask=None):
        ...         return x[:, 1:]
        ...     def compute_mask(self, inputs, mask=None):
        ...         return None if mask is None else mask[:, 1:]
        >>> x = tf.keras.layers.Masking()(tf.constant([[[1.0], [2.0], [0.0]]]))
        >>> Later()(x)._keras_mask.numpy()
        array([[ True, False]])
        """
        return previous_mask

    def _intermediate_shapes(self, *shapes: Shape) -> Iterable[Shape]:
        """Return the shapes of values in a call that may be larger than its inputs, such as a padded input.

        They are checked before the call when the layer comes from a file: see :mod:`tape_tf.keras.limits`.
        """
        return ()

    def add_weight(
        self,
        shape: Sequence[int] | int = (),
        initializer: InitializerLike | None = None,
        dtype: DTypeLike = None,
        trainable: bool = True,
        regularizer: RegularizerLike = None,
        constraint: ConstraintLike = None,
        name: str | None = None,
        **ignored: Any,
    ) -> Variable:
        """Make a weight of this layer.

        Args:
            shape: a tuple; an int stands for one axis.
            initializer: see `tf.keras.initializers`; by default "glorot_uniform", "zeros" for integers.
            dtype: by default the layer's.
            trainable: whether training changes the weight.
            regularizer: a penalty, which becomes one of :attr:`losses`.
            constraint: a function of the weight that returns its value after each update.
            name: the last part of the weight's name.

        Raises:
            ValueError: a length of the shape is None.
        """
        # Keras' further arguments are accepted where they choose what there is only one of here.
        if unknown := ignored.keys() - {"autocast", "aggregation", "synchronization", "overwrite_with_gradient"}:
            raise TypeError(f"add_weight has no argument {', '.join(sorted(unknown))}")
        lengths = (shape,) if isinstance(shape, int) else tuple(shape)
        if None in lengths:
            raise ValueError(f"add_weight: all lengths of the shape must be known; got {lengths}")
        dtype = dtypes.as_dtype(self._dtype if dtype is None else dtype)
        if initializer is None:
            initializer = "glorot_uniform" if dtype.is_floating else "zeros"
        value = initializers.get(initializer)(tuple(map(int, lengths)), dtype=dtype)
        with setting(NAME_SCOPE, self._scope()):
            variable = Variable(value, trainable=trainable, name=name or "variable")
        variable.autocast = dtype.is_floating and ignored.get("autocast", True)
        self._register_weight(variable, regularizer, constraint)
        return variable

    def _register_weight(
        self, variable: Variable, regularizer: RegularizerLike = None, constraint: ConstraintLike = None
    ) -> None:
        """Register a Variable as a weight of this layer."""
        self._added_weights.append(variable)
        # The optimizer applies it after each update: it finds it at the variable, and knows no layers.
        variable.constraint = constraints.get(constraint)
        if (penalty := regularizers.get(regularizer)) is not None:
            self._regularized.append((variable, penalty))
        if not self._trainable:
            self._freeze([variable])

    def _scope(self) -> str:
        """Return the prefix of the weights' names."""
        scope = NAME_SCOPE.get()
        # While the layer is called, the scope ends with its name already.
        return scope if scope.endswith(f"{self.name}/") else f"{scope}{self.name}/"

    def add_loss(self, loss: PyTree) -> None:
        """Add to :attr:`losses`, until the next call. For penalties computed in `call`."""
        self._losses.extend(loss if isinstance(loss, list | tuple) else [loss])

    # -- the call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Build the layer if necessary, and call it.

        Args:
            training: whether this is a training step, for layers such as Dropout. By default the value of the layer
                that calls this one, else False.
        """
        if contains_symbolic((args, kwargs)):
            return symbolic_call(self, args, kwargs)
        kind: Any = type(self)
        info = signature_of(kind)
        outer = _CALL.get()
        args = tuple([self._convert_argument(value, k == 0) for k, value in enumerate(args)])
        kwargs = {key: self._convert_argument(value, False) for key, value in kwargs.items()}
        # The sources of `training`, in Keras' order: an argument, the calling layer, the default of `call`.
        position = info.training_position
        training = None
        if position is not None and len(args) > position:
            training = args[position]
        if training is None:
            training = kwargs.get("training")
        if training is None and outer is not None:
            training = outer.training
        if training is None:
            training = info.training_default
        if position is None:  # `call` has no such parameter
            if not info.takes_kwargs:
                kwargs.pop("training", None)
        elif len(args) <= position and training is not None:
            kwargs["training"] = training
        # The masks of the inputs, unless the caller gives others.
        first = args[0] if args else next(iter(kwargs.values()), None)
        masks = first._keras_mask if type(first) is Tensor else masks_of(first)
        # Without masks only an argument that has to be there, or one of several inputs, is left to look for.
        if info.mask_names and (masks is not None or info.needs_masks or "mask" in kwargs or len(args) > 1):
            masks = self._add_mask_arguments(info, args, kwargs, masks)
        # Not in inner calls: the penalties that layers inside add belong to the same step.
        if outer is None:  # the outermost call of a step forgets the penalties of the step before
            for layer in self._flatten_layers():
                layer._losses.clear()
        # Set and reset by hand: a context manager costs more than many a layer's kernel.
        call, scope, weights = _CALL.get(), NAME_SCOPE.get(), AUTOCAST.get()
        try:
            _CALL.set(_CallContext(None if training is None else bool(training)))
            NAME_SCOPE.set(f"{scope}{self.name}/")
            if limits.active():
                inputs = [tuple(value.shape) for value in tensor_leaves((args, kwargs))]
                for shape in self._intermediate_shapes(*inputs):
                    limits.check_size(shape)
            # While a thread builds, `built` may already be True: the others wait in _build_once.
            if self._building or not self.built:
                self._build_once(args, kwargs)
            if weights is not self._autocast_weights:
                AUTOCAST.set(self._autocast_weights)
            outputs = self.call(*args, **kwargs)
        except Exception as error:
            # A note, not another exception: the type of an error is part of the interface.
            error.add_note(f"in the call of layer {self.name!r} ({type(self).__name__})")
            raise
        finally:
            _CALL.set(call)
            NAME_SCOPE.set(scope)
            if weights is not self._autocast_weights:
                AUTOCAST.set(weights)
        if self._computes_mask or (masks is not None and has_mask(masks)):
            self._pass_masks_on(first, masks, outputs)
        # The first call's shape, which `summary` shows.
        if self._output_shape is None:
            self._output_shape = shapes_of(outputs)
        if self.activity_regularizer is not None:
            for output in tensor_leaves(outputs):
                penalty = self.activity_regularizer(output)
                # The penalty of an example, as in Keras: the sum over a batch is divided by its size.
                self.add_loss(penalty / max(output.shape[0], 1) if output.shape else penalty)
        return outputs

    def _add_mask_arguments(
        self, info: CallSignature, args: tuple[Any, ...], kwargs: dict[str, Any], masks: PyTree
    ) -> Any:
        """Add the masks of the inputs to the keyword arguments of `call` where the caller gave none.

        Returns:
            The mask of the first input: that of the caller, or else `masks`.
        """
        given = dict(zip(info.names, args, strict=False))
        for name in info.mask_names:
            if name not in given and kwargs.get(name) is None:
                of = name.removesuffix("_mask")
                kwargs[name] = masks if name == "mask" else masks_of(given.get(of, kwargs.get(of)))
        explicit = given.get("mask", kwargs.get("mask"))
        return masks if explicit is None else explicit

    def _pass_masks_on(self, inputs: PyTree, masks: PyTree, outputs: PyTree) -> None:
        """Give the outputs of a call their masks, or warn that the layer loses those of the inputs."""
        if all([mask_of(output) is not None for output in tensor_leaves(outputs)]):
            return  # set in `call`, or by a layer inside
        if self.supports_masking:
            found = self.compute_mask(inputs, masks)
            if found is not None:
                set_masks(outputs, found)
        elif has_mask(masks) and not self._masks_inside:
            warn_user(
                f"Layer {self.name!r} (of type {type(self).__name__}) was passed an input with a mask, which the "
                "layers after it do not see, since it does not support masks: set its supports_masking to True if the "
                "mask of its output is that of its input, or define compute_mask"
            )

    def _convert_argument(self, value: PyTree, first: bool) -> Any:
        """Convert an argument of a call: arrays to tensors, floating ones to the layer's dtype."""
        if isinstance(value, StringTensor):
            return value
        if isinstance(value, Variable | Tensor):
            wanted = value.native.dtype
            if self._autocast and wanted.kind == "real floating" and wanted.name != self._compute_dtype:
                return with_mask(wrap(autocast(value, self._compute_dtype)), mask_of(value))
            return value
        if isinstance(value, dict):
            return {key: self._convert_argument(part, first) for key, part in value.items()}
        if isinstance(value, list | tuple) and (not first or any(map(is_array, value))):
            parts = [self._convert_argument(part, first) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if (first or isinstance(value, np.ndarray)) and not isinstance(value, str | bytes) and is_text(value):
            return as_strings(value)
        if is_array(value) or (
            first and value is not None and not isinstance(value, str | bool) and not callable(value)
            # The first argument is data, so a number becomes a tensor too; other numbers may be options.
        ):
            return wrap(autocast(value, self._compute_dtype) if self._autocast else native(value))
        return value

    def _build_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make the weights once; threads that call the layer meanwhile wait, and use the same weights."""
        with BUILDING.held():
            if self.built:
                return
            self._building = True  # `build` may set `built` before all weights are made
            try:
                self._build_from_call(args, kwargs)
            finally:
                self._building = False

    def _build_symbolically(self, args: tuple[Any, ...]) -> None:
        """Make the weights for symbolic inputs, whose lengths need not all be known."""
        if self.built:
            return
        try:
            with setting(NAME_SCOPE, f"{NAME_SCOPE.get()}{self.name}/"):
                self._build_once(args, {})
        except Exception as error:
            error.add_note(f"in the call of layer {self.name!r} ({type(self).__name__})")
            raise

    def _build_from_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call `build` with the shapes of a call's arguments: one shape, or by names such as `value_shape`."""
        kind: Any = type(self)
        shapes = {
            f"{name}_shape": shapes_of(value)
            for name, value in [*zip(signature_of(kind).names, args, strict=False), *kwargs.items()]
            if tensor_leaves(value) or contains_symbolic(value)
        }
        wanted = inspect.signature(self.build).parameters
        # A `build` with several parameters gets a shape for each argument of that name, as in Keras; one with a
        # single parameter gets the shape of the first argument.
        if len(wanted) > 1:
            self.build(**{name: shape for name, shape in shapes.items() if name in wanted})
        else:
            self.build(next(iter(shapes.values()), TensorShape(())))
        self.built = True
        if not self._trainable:
            self._freeze(self.variables)

    # -- properties

    @property
    def dtype(self) -> str:
        """The name of the weights' dtype."""
        return self._dtype

    variable_dtype = dtype

    @property
    def compute_dtype(self) -> str:
        """The name of the dtype that the layer computes in, to which floating inputs are cast."""
        return self._compute_dtype

    @property
    def dtype_policy(self) -> policies.DTypePolicy:
        """The dtypes of weights and of the computation."""
        return self._policy

    def _set_policy(self, policy: policies.DTypePolicy) -> None:
        self._policy = policy
        self._dtype, self._compute_dtype = policy.variable_dtype, policy.compute_dtype
        # The dtype in which `call` reads weights, None for their own.
        mixed = policy.compute_dtype != policy.variable_dtype
        self._autocast_weights = dtypes.native_dtype(policy.compute_dtype) if mixed else None

    @property
    def name(self) -> str:
        """The name of the layer: the one given, or one made from the class's name."""
        if self._name is None:
            self._name = auto_name(type(self).__name__)
        return self._name

    @property
    def input(self) -> Any:
        """The symbolic input of the layer's last symbolic call."""
        return self._last_symbolic_call("input").inputs

    @property
    def output(self) -> Any:
        """The symbolic output of the layer's last symbolic call."""
        return self._last_symbolic_call("output").outputs

    def _last_symbolic_call(self, what: str) -> Node:
        """Return the last symbolic call; raise an AttributeError if there was none."""
        if not self._nodes:
            raise AttributeError(f"no {what}")  # __getattr__ is called then, and has the message
        node: Node = self._nodes[-1]
        return node

    def __getattr__(self, name: str) -> Any:
        # Keras' message: these exist for layers of a functional model only.
        if name in ("input", "output", "input_shape", "output_shape"):
            raise AttributeError(
                f"The layer {self.name} has never been called on a tf.keras.Input and thus has no defined {name}."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shape of the output for an input of this shape, or inputs of these shapes."""
        # By a symbolic call: no layer has to write its shapes down a second time, as in Keras.
        inputs = [Input(batch_shape=tuple(shape), dtype=self._dtype) for shape in args]
        return tuple(self(*inputs, **kwargs).shape)

    def count_params(self) -> int:
        """Return the number of elements of all weights.

        Raises:
            ValueError: the weights have not been made yet.
        """
        if not self.built:
            raise ValueError(
                f"You tried to call `count_params` on layer '{self.name}', but the layer isn't built. You can build it "
                f"manually via: `layer.build(input_shape)`."
            )
        return sum(variable.native.size for variable in self.variables)

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Return the values of all weights, as NumPy arrays."""
        return [np.asarray(variable.numpy()) for variable in self.variables]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Set all weights, in the order of :meth:`get_weights`.

        Raises:
            ValueError: the number of arrays, or a shape, does not fit the weights. Then nothing is changed.
        """
        variables = self.variables
        if len(weights) != len(variables):
            raise ValueError(
                f"You called `set_weights(weights)` on layer '{self.name}' with a weight list of length "
                f"{len(weights)}, but the layer was expecting {len(variables)} weights."
            )
        values = [np.asarray(unwrap(value)) for value in weights]
        for variable, value in zip(variables, values, strict=True):
            if variable.shape != value.shape:
                raise ValueError(
                    f"Layer {self.name} weight shape {variable.shape} is not compatible with provided weight shape "
                    f"{value.shape}."
                )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def get_config(self) -> dict[str, Any]:
        """The arguments that the layer was made with, by name."""
        args, kwargs = self._init_arguments
        # Bind the arguments that __new__ saw to the signature of __init__: no layer has to list its arguments again.
        try:
            bound = inspect.signature(type(self).__init__).bind(self, *args, **kwargs)
        except TypeError:
            found: dict[str, Any] = dict(kwargs)
        else:
            found = dict(list(bound.arguments.items())[1:])
            for name, parameter in bound.signature.parameters.items():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    found.update(found.pop(name, {}))
                elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    found.pop(name, None)
        return found | {"name": self.name, "trainable": self.trainable, "dtype": self._policy.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a layer with these arguments."""
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"
