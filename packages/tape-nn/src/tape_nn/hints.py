"""Errors for names of PyTorch, Keras, optax and flax that tape_nn does not have: they say what it is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from types import GeneratorType
from typing import Any, Final

from tape_core.support import meant

_LOSSES: Final = {
    "CrossEntropyLoss": "nn.losses.SparseCategoricalCrossentropy(from_logits=True), called with (truth, predictions)",
    "NLLLoss": "nn.losses.SparseCategoricalCrossentropy(from_logits=True), of what stands before the log_softmax",
    "MSELoss": "nn.losses.MeanSquaredError(), called with (truth, predictions)",
    "L1Loss": "nn.losses.MeanAbsoluteError(), called with (truth, predictions)",
    "BCELoss": "nn.losses.BinaryCrossentropy(), called with (truth, predictions)",
    "BCEWithLogitsLoss": "nn.losses.BinaryCrossentropy(from_logits=True), called with (truth, predictions)",
    "HuberLoss": "nn.losses.Huber()",
    "SmoothL1Loss": "nn.losses.Huber()",
    "KLDivLoss": "nn.losses.Loss(nn.losses.kl_divergence)",
    "CosineEmbeddingLoss": "nn.losses.cosine_similarity",
    "PoissonNLLLoss": "nn.losses.Loss(nn.losses.poisson)",
    "HingeEmbeddingLoss": "nn.losses.Loss(nn.losses.hinge)",
}

_LAYERS: Final = {
    "Linear": "nn.Dense(units); it takes the number of inputs from its first call",
    "LazyLinear": "nn.Dense(units)",
    "DenseGeneral": "nn.Dense, or tc.einsum with Variables",
    **{f"Conv{n}d": f"nn.Conv{n}D(filters, kernel_size); layout='channels_first' is PyTorch's" for n in (1, 2, 3)},
    **{f"MaxPool{n}d": f"nn.MaxPool{n}D" for n in (1, 2, 3)},
    **{f"AvgPool{n}d": f"nn.AvgPool{n}D" for n in (1, 2, 3)},
    **{f"MaxPooling{n}D": f"nn.MaxPool{n}D" for n in (1, 2, 3)},
    **{f"AveragePooling{n}D": f"nn.AvgPool{n}D" for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": "nn.BatchNorm" for n in (1, 2, 3)},
    **{f"Dropout{n}d": "nn.Dropout; noise_shape of tf.keras's drops whole channels" for n in (1, 2, 3)},
    "Conv": "nn.Conv2D",
    "BatchNormalization": "nn.BatchNorm",
    "LayerNormalization": "nn.LayerNorm",
    "AdaptiveAvgPool2d": "tc.mean(x, axis=(1, 2)) for one output",
    "GlobalAveragePooling2D": "tc.mean(x, axis=(1, 2))",
    "MultiheadAttention": "nn.MultiHeadAttention",
    "MultiHeadDotProductAttention": "nn.MultiHeadAttention",
    "SelfAttention": "nn.MultiHeadAttention, called with one input",
    "Embed": "nn.Embedding",
    "LSTMCell": "nn.LSTM over sequences; tc.scan with a function of your own for one step",
    "GRUCell": "nn.GRU over sequences; tc.scan with a function of your own for one step",
    "Identity": "lambda x: x",
    "ReLU": "tc.relu; any function of one tensor is a layer",
    "GELU": "tc.gelu; any function of one tensor is a layer",
    "SiLU": "tc.silu; any function of one tensor is a layer",
    "Sigmoid": "tc.sigmoid; any function of one tensor is a layer",
    "Tanh": "tc.tanh; any function of one tensor is a layer",
    "Softmax": "nn.Activation('softmax')",
    "LogSoftmax": "tc.log_softmax",
    "LeakyReLU": "tc.leaky_relu",
    "Softplus": "tc.softplus",
    "ELU": "tc.elu",
    "Lambda": "the function itself; any function of one tensor is a layer",
    "ModuleList": "a list; a Module finds the Modules in lists",
    "ModuleDict": "a dict; a Module finds the Modules in dicts",
    "ParameterList": "a list; a Module finds the Variables in lists",
    "ParameterDict": "a dict; a Module finds the Variables in dicts",
    "Parameter": "tc.Variable(value)",
    "Param": "tc.Variable(value)",
    "Variable": "tc.Variable(value)",
    "Buffer": "tc.Variable(value, trainable=False)",
    "compact": "not needed: make layers in __init__; they find the sizes of their inputs at the first call",
    "Model": "nn.Module with __call__, or nn.Sequential; tape_tf.keras has Model",
    "Rngs": "an rng= of layers, or tc.set_seed",
}

_OPTIMIZERS: Final = {
    "NAdam": "nn.Nadam",
    "SparseAdam": "nn.Adam(lazy=True)",
    "optim": "nn.SGD, nn.Adam and the others, in nn itself",
    "optimizer": "nn.optimizers",
    "adam": "nn.Adam(rate), or nn.transforms.adam for a function of gradients",
    "sgd": "nn.SGD(rate), or nn.transforms.sgd for a function of gradients",
    "adamw": "nn.AdamW(rate), or nn.transforms.adamw for a function of gradients",
    "MultiSteps": "nn.GradientAccumulation",
    "apply_updates": "nn.transforms.apply_updates",
    "multi_transform": "nn.ParameterGroup",
    "masked": "nn.ParameterGroup",
    "lbfgs": "nn.LBFGS",
    "AveragedModel": "nn.ExponentialMovingAverage",
    "EMA": "nn.ExponentialMovingAverage",
    "ema": "nn.ExponentialMovingAverage",
    "GradScaler": "nn.LossScaler",
    "LossScaleOptimizer": "nn.LossScaler",
    "lr_scheduler": "nn.schedules; a schedule is given as learning_rate",
    "CosineAnnealingLR": "nn.schedules.CosineDecay",
    "CosineAnnealingWarmRestarts": "nn.schedules.CosineDecayRestarts",
    "StepLR": "nn.schedules.ExponentialDecay(staircase=True)",
    "ExponentialLR": "nn.schedules.ExponentialDecay",
    "MultiStepLR": "nn.schedules.PiecewiseConstantDecay",
    "LinearLR": "nn.schedules.PolynomialDecay",
    "LambdaLR": "a function of the number of updates, given as learning_rate",
    "ReduceLROnPlateau": "nn.LearningRate with a function, or a callback that sets run.optimizer.learning_rate",
    "warmup_cosine_decay_schedule": "nn.schedules.WarmUp(nn.schedules.CosineDecay(...), steps)",
    "cosine_decay_schedule": "nn.schedules.CosineDecay",
    "exponential_decay": "nn.schedules.ExponentialDecay",
    "piecewise_constant_schedule": "nn.schedules.PiecewiseConstantDecay",
    "linear_schedule": "nn.schedules.PolynomialDecay",
    "clip_grad_norm_": "nn.clip_by_global_norm(gradients, norm), or global_clipnorm of an optimizer",
    "clip_grad_value_": "nn.clip_by_value, or clipvalue of an optimizer",
}

_TOOLS: Final = {
    "init": "nn.initializers, given to layers as kernel_initializer",
    "utils": "nn.clip_by_global_norm, nn.stack_modules and others, in nn itself",
    "callbacks": "nn.EarlyStopping, nn.SaveBest, nn.LearningRate, in nn itself",
    "ModelCheckpoint": "nn.SaveBest, or checkpoint= of nn.fit",
    "LearningRateScheduler": "nn.LearningRate, or a schedule as learning_rate",
    "DataLoader": "arrays, or any iterable of batches, given to nn.fit",
    "save": "nn.save_tensors, Module.save_weights, or nn.save_run",
    "load": "nn.load_tensors, Module.load_weights, or nn.load_run",
    "value_and_grad": "tc.value_and_grad",
    "grad": "tc.grad",
    "jit": "tc.function",
    "one_hot": "tc.one_hot",
}

_FUNCTIONS: Final = {
    "cross_entropy": "tc.mean(tc.cross_entropy(logits, labels))",
    "nll_loss": "tc.mean(tc.cross_entropy(logits, labels))",
    "mse_loss": "tc.mean((a - b) ** 2), or nn.losses.MeanSquaredError()",
    "l1_loss": "tc.mean(tc.abs(a - b)), or nn.losses.MeanAbsoluteError()",
    "binary_cross_entropy": "nn.losses.BinaryCrossentropy()",
    "binary_cross_entropy_with_logits": "nn.losses.BinaryCrossentropy(from_logits=True)",
    "linear": "x @ w + b",
    "dropout": "nn.Dropout(rate)",
    "layer_norm": "nn.LayerNorm",
    "batch_norm": "nn.BatchNorm",
    "embedding": "tc.gather(table, indices)",
    "max_pool2d": "tc.max_pool",
    "avg_pool2d": "tc.avg_pool",
    **{f"conv{n}d": "tc.conv" for n in (1, 2, 3)},
    "normalize": "x / tc.linalg.vector_norm(x, axis=-1, keepdims=True)",
}

_INITIALIZERS: Final = {
    "xavier_uniform_": "'glorot_uniform'", "xavier_normal_": "'glorot_normal'", "xavier_uniform": "'glorot_uniform'",
    "xavier_normal": "'glorot_normal'", "kaiming_uniform_": "'he_uniform'", "kaiming_normal_": "'he_normal'",
    "kaiming_uniform": "'he_uniform'", "kaiming_normal": "'he_normal'", "zeros_": "'zeros'", "ones_": "'ones'",
    "normal_": "nn.initializers.normal(stddev=...)", "uniform_": "nn.initializers.uniform(...)",
    "trunc_normal_": "nn.initializers.truncated_normal(stddev=...)", "orthogonal_": "'orthogonal'",
    "constant_": "nn.initializers.constant(value)",
}  # fmt: skip

_MODULE: Final = {
    "parameters": "trainable_variables",
    "named_parameters": "named_variables()",
    "buffers": "variables; those whose `trainable` is False",
    "named_buffers": "named_variables(); those whose `trainable` is False",
    "children": "named_modules()",
    "named_children": "named_modules()",
    "modules": "named_modules()",
    "forward": "__call__, which you define",
    "zero_grad": "not needed: tape.gradient returns the gradients and keeps none",
    "requires_grad_": "`variable.trainable = False` for each of trainable_variables",
    "register_buffer": "an attribute: `self.name = tc.Variable(value, trainable=False)`",
    "register_parameter": "an attribute: `self.name = tc.Variable(value)`",
    "add_weight": "an attribute: `self.name = tc.Variable(value)`",
    "param": "an attribute: `self.name = tc.Variable(value)`",
    "register_module": "an attribute",
    "add_module": "an attribute",
    "cuda": "to('torch', 'cuda')",
    "cpu": "to('torch', 'cpu')",
    "half": "nn.mixed_precision(model, 'float16')",
    "apply": "`nn.functional_call(model, params, x)`; for a function of all parts, a loop over named_modules()",
    "init": "build(input_shape)",
    "compile": "arguments of nn.fit: loss, optimizer, metrics; tc.function compiles",
    "fit": "nn.fit(model, data, loss=..., optimizer=...)",
    "evaluate": "nn.evaluate(model, data, loss=...)",
    "predict": "nn.predict(model, data)",
    "weights": "variables",
    "trainable_weights": "trainable_variables",
    "trainable_parameters": "trainable_variables",
    "get_weights": "state_dict()",
    "set_weights": "load_state_dict(state)",
    "count_params": "summary(), which counts them",
    "save": "save_weights(path)",
}

_OPTIMIZER: Final = {
    "step": "apply_gradients(zip(gradients, variables)); nn.LBFGS has step(closure, variables)",
    "zero_grad": "not needed: tape.gradient returns the gradients and keeps none",
    "param_groups": "groups, of nn.ParameterGroup",
    "add_param_group": "groups=, given when the optimizer is made",
    "minimize": "tape.gradient and apply_gradients",
    "update": "apply_gradients(zip(gradients, variables)); nn.transforms has functions of gradients and state",
    "init": "build(variables)",
    "apply": "apply_gradients(zip(gradients, variables))",
    "lr": "learning_rate",
    "get_config": "repr(optimizer)",
}

_OPTIMIZER_ARGUMENTS: Final = {
    "lr": "learning_rate",
    "betas": "beta_1 and beta_2, two numbers",
    "b1": "beta_1",
    "b2": "beta_2",
    "eps": "epsilon",
    "maximize": "not there: differentiate `-loss`",
    "params": "not given here: apply_gradients gets the Variables",
    "parameters": "not given here: apply_gradients gets the Variables",
    "model": "not given here: apply_gradients gets the Module",
    "max_norm": "global_clipnorm",
    "decay": "a schedule, as nn.schedules.InverseTimeDecay",
}


def check_optimizer_arguments(kind: str, names: Iterable[str], first: object) -> None:
    """Raise a TypeError that says what arguments are called here which optimizers of other libraries have.

    `first` is the first argument, which is the list of parameters in PyTorch.
    """
    for name in names:
        if name in _OPTIMIZER_ARGUMENTS:
            raise TypeError(f"{kind} has no argument {name!r}; here it is {_OPTIMIZER_ARGUMENTS[name]}")
    numbers = isinstance(first, list | tuple) and any(isinstance(one, float) for one in first)
    if not numbers and (
        isinstance(first, list | tuple | dict | GeneratorType)
        or hasattr(first, "trainable")
        or hasattr(first, "trainable_variables")
    ):
        raise TypeError(
            f"{kind} takes the learning rate first, got {type(first).__name__!r}: an optimizer is not told its "
            f"Variables when it is made; apply_gradients gets them with the gradients"
        )


SPACES: Final[dict[str, Mapping[str, str]]] = {
    "tape_nn": {**_LOSSES, **_LAYERS, **_OPTIMIZERS, **_TOOLS},
    "tape_nn.losses": _LOSSES,
    "tape_nn.layers": _LAYERS,
    "tape_nn.optimizers": _OPTIMIZERS,
    "tape_nn.functional": _FUNCTIONS,
    "tape_nn.initializers": _INITIALIZERS,
    "Module": _MODULE,
    "Optimizer": _OPTIMIZER,
}
"""By namespace, what is here for an absent name."""


class MissingError(AttributeError):
    """An AttributeError whose text is made when it is shown: `hasattr` asks for many absent names."""

    def __init__(self, owner: str, space: str, name: str, obj: object, names: Callable[[], Iterable[str]]) -> None:
        super().__init__(owner, name, name=name, obj=obj)
        self._owner, self._space, self._absent, self._names = owner, space, name, names

    def __str__(self) -> str:
        text = f"{self._owner} has no attribute {self._absent!r}"
        if (here := SPACES[self._space].get(self._absent)) is not None:
            return f"{text}; here it is {here}"
        if self._space == "tape_nn.functional" and self._absent in _functions_of_core():
            return f"{text}; here it is tc.{self._absent}"
        return text + meant(self._absent, [name for name in self._names() if not name.startswith("_")], cutoff=0.75)

    def __reduce__(self) -> Any:
        return AttributeError, (str(self),)


# Tracebacks show the error that users know.
MissingError.__module__, MissingError.__qualname__ = "builtins", "AttributeError"


def _functions_of_core() -> Iterable[str]:
    import tape_core

    return tape_core.__all__


class Absent:
    """The place of a name that a class does not have, but other libraries' classes do: an access raises the hint.

    A `__getattr__` would say as much of every name, but make each access to an attribute slower, in all instances:
    CPython does not specialize them then. Subclasses and instances may have the name.
    """

    def __init__(self, space: str, name: str) -> None:
        self.space, self.name = space, name

    def __get__(self, thing: object, owner: type) -> Any:
        shown = f"type object {owner.__name__!r}" if thing is None else f"{owner.__name__!r} object"
        raise MissingError(shown, self.space, self.name, thing, lambda: ())


def hint_at_names(owner: type, space: str) -> None:
    """Have a class say for the names of a space what they are here."""
    for name in SPACES[space]:
        setattr(owner, name, Absent(space, name))


def present(thing: object, names: Iterable[str]) -> list[str]:
    """Return the names, as `dir` wants them, without those that are only hints."""
    return [name for name in names if not isinstance(getattr_static(thing, name, None), Absent)]


def missing(module: str, names: Callable[[], Iterable[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module, which raises an AttributeError that says what the name is here.

    >>> missing("tape_nn.losses", lambda: ["Huber"])("MSELoss")
    Traceback (most recent call last):
        ...
    AttributeError: module 'tape_nn.losses' has no attribute 'MSELoss'; here it is nn.losses.MeanSquaredError(), ...
    """

    def __getattr__(name: str) -> Any:
        raise MissingError(f"module {module!r}", module, name, None, names)

    return __getattr__
