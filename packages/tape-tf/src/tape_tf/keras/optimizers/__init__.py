"""`tf.keras.optimizers`: the optimizers of tape_nn, applied to the façade's Variables.

>>> import tape_tf as tf
>>> w = tf.Variable([1.0, 2.0])
>>> optimizer = tf.keras.optimizers.SGD(learning_rate=0.25)
>>> with tf.GradientTape() as tape:
...     loss = tf.reduce_sum(w * w)
>>> optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w])).numpy()
np.int64(1)
>>> w.numpy()
array([0.5, 1. ], dtype=float32)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import tape_core as tc
import tape_nn as nn
from tape_core.staging import outside
from tape_core.support import integer, real

from tape_tf.conversion import native, unwrap, wrap
from tape_tf.keras.backend import floatx
from tape_tf.keras.naming import auto_name, by_name
from tape_tf.keras.optimizers import schedules
from tape_tf.names import absent, export
from tape_tf.tensor import Value
from tape_tf.tracing import is_assigned, require_value, run_uncompiled
from tape_tf.typing import IntLike, OptimizerLike
from tape_tf.variable import Variable

if TYPE_CHECKING:
    from tape_nn.extend import Gradient

__all__ = [
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lion",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "get",
    "schedules",
]

LearningRate: TypeAlias = "float | Value | schedules.LearningRateSchedule | Callable[[], float]"
"""A learning rate as users give it: a number, a schedule, or a function without arguments."""


class Optimizer:
    """Base class of optimizers; see :class:`tape_nn.Optimizer`, from which new optimizers derive.

    Args:
        learning_rate: a number, a schedule of `tf.keras.optimizers.schedules`, or a function without arguments.
        weight_decay, clipnorm, clipvalue, global_clipnorm: as for :class:`tape_nn.Optimizer`.
        use_ema: average the variables; `finalize_variable_values` then sets them to the averages.
        ema_momentum: the share of an average that remains at each update.
        ema_overwrite_frequency: set the variables to their averages after every so many updates.
        loss_scale_factor: `scale_loss` multiplies by it, and gradients are divided by it.
        gradient_accumulation_steps: update with the mean of the gradients of so many calls, two or more, as if their
            batches were one; `iterations` counts the updates. Gradients that wait are not saved in files.
        name: the optimizer's name; by default the class's name in snake case, numbered.

    Raises:
        TypeError: an argument is unknown.
        ValueError: a number is out of range.
    """

    __tf_differs__ = "new optimizers derive from tape_nn.Optimizer; iterations is a tensor"

    _native_class: ClassVar[type[nn.Optimizer]]
    _rate_variable: Variable
    _schedule: Any

    def __init__(
        self,
        *args: Any,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        jit_compile: bool = True,
        name: str | None = None,
        **options: Any,
    ) -> None:
        kind = type(self)
        if not hasattr(kind, "_native_class"):
            raise TypeError(
                "tf.keras.optimizers.Optimizer is no optimizer by itself; for a new one derive from tape_nn.Optimizer, "
                "and use it with tensor.native and variable.native"
            )
        if gradient_accumulation_steps is not None:
            integer(kind.__name__, "gradient_accumulation_steps", gradient_accumulation_steps, 2)
            if use_ema:
                raise ValueError(
                    f"{kind.__name__}: use_ema averages after each batch, and gradient_accumulation_steps updates "
                    "after several: give one of them, or call tape_nn.ExponentialMovingAverage in a loop of your own"
                )
        if "lr" in options or "decay" in options:
            raise ValueError(
                f"{kind.__name__}: use learning_rate, and a schedule for its decay, instead of lr and decay"
            )
        # The native class has the arguments' names and defaults. Its learning rate is replaced by the setter.
        try:
            given = inspect.signature(kind._native_class.__init__).bind(None, *args, **options)
        except TypeError as error:
            raise TypeError(f"{kind.__name__}: {error}") from None
        given.apply_defaults()
        rate = given.arguments["learning_rate"]
        given.arguments["learning_rate"] = 0.0
        self.native = kind._native_class(*given.args[1:], **given.kwargs)
        steps = self.gradient_accumulation_steps = gradient_accumulation_steps
        self._accumulation = None if steps is None else nn.GradientAccumulation(self.native, steps)
        self.name = name or auto_name(kind.__name__)
        self.learning_rate = rate
        self.loss_scale_factor = None if loss_scale_factor is None else float(loss_scale_factor)
        self.use_ema, self.ema_momentum = use_ema, ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        self._average: nn.ExponentialMovingAverage | None = None
        self._trained_variables: list[Variable] = []
        self.built = False

    def __getattr__(self, name: str) -> Any:
        """Return an option that the optimizer was made with, such as `beta_1`."""
        # Without this, unpickling and copying, which ask before `native` is there, would call this for ever.
        if name.startswith("_") or name == "native":
            raise AttributeError(name)
        if name == "minimize":
            raise AttributeError(
                "an optimizer has no minimize: take the gradients with tf.GradientTape, and apply_gradients"
            )
        if name not in vars(self.native):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.native, name)

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a Variable, or with a schedule its value for the next update.

        It can be set to a number or to a schedule.
        """
        if self._schedule is None:
            return self._rate_variable
        return wrap(_read_number(self.native, "learning_rate", floatx()))

    @learning_rate.setter
    def learning_rate(self, value: LearningRate) -> None:
        require_value("a learning rate that is set")
        # `native` excludes façade values: of those and numbers, a Variable of the rate is made.
        schedule = value if callable(value) and not hasattr(value, "native") else None
        if isinstance(value, schedules.LearningRateSchedule):
            schedule = value
        if schedule is None:
            number = real(type(self).__name__, "learning_rate", value)
            self.native.learning_rate = number  # tape_nn checks the range
            # Keep the Variable while there is one: compiled steps and users refer to it.
            if getattr(self, "_schedule", self) is None:
                self._rate_variable.assign(number)
            else:
                self._rate_variable = Variable(number, trainable=False, name="learning_rate", dtype=floatx())
            # tape_nn asks a function for the rate at each update, so that assigning the Variable takes effect.
            rate = self._rate_variable.native
            self.native.learning_rate = lambda step: float(rate.backend.numpy(rate.array))
        elif isinstance(schedule, schedules.LearningRateSchedule):
            self.native.learning_rate = lambda step: float(schedule(step))
        else:
            self.native.learning_rate = lambda step: float(schedule())
        self._schedule = schedule

    lr = learning_rate

    @property
    def iterations(self) -> Any:
        """The number of updates applied, an int64 tensor."""
        return wrap(_read_number(self.native, "iterations", "int64"))

    @iterations.setter
    def iterations(self, value: IntLike) -> None:
        require_value("a number of updates that is set")
        self.native.iterations = int(value)

    @property
    def variables(self) -> list[Any]:
        """The optimizer's state: the number of updates, the learning rate, and the slots of each variable."""
        rate = [] if self._schedule is not None else [self._rate_variable]
        # By their numbers: names of Variables need not be unique.
        names = {str(k): variable.native for k, variable in enumerate(self._trained_variables)}
        state = self.native.state_dict(names)
        # Keys of slots are "variable/slot". "started", the update at which a variable joined, is no slot in Keras.
        slots = [wrap(value) for key, value in state.items() if "/" in key and not key.endswith("/started")]
        return [self.iterations, *rate, *slots]

    def build(self, variables: Iterable[Variable]) -> None:
        """Make the state for these variables; the first :meth:`apply_gradients` does it, too.

        Raises:
            TypeError: an element is no Variable.
        """
        self._trained_variables = list(variables)
        for variable in self._trained_variables:
            if not isinstance(variable, Variable):
                raise TypeError(f"{type(self).__name__}.build takes tf.Variables; got {type(variable).__name__!r}")
        with outside():  # while a function is traced, the state is made outside the trace, before any compiled call
            self.native.build([variable.native for variable in self._trained_variables])
            if self.use_ema:
                named = {str(k): variable.native for k, variable in enumerate(self._trained_variables)}
                self._average = nn.ExponentialMovingAverage(named, self.ema_momentum)
        self.built = True

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Any:
        """Apply one update; returns the number of updates.

        Args:
            grads_and_vars: (gradient, variable) pairs. If a gradient is None the variable is skipped with a warning.

        Raises:
            ValueError: no variable has a gradient, there are no pairs, a variable was not there when the optimizer was
                built, or a gradient's shape is not its variable's. Then nothing is changed.
            TypeError: an element is no pair, or its second part is no Variable. Then nothing is changed.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("No gradients provided for any variable: apply_gradients was given no pairs.")
        pair: Any
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(
                    "apply_gradients takes (gradient, variable) pairs, such as zip(gradients, variables); got an "
                    f"element of type {type(pair).__name__!r}"
                )
        return self._apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None) -> Any:
        """Apply one update, with gradients in the order of the variables.

        Args:
            trainable_variables: by default the variables that the optimizer was built with.

        Raises:
            ValueError: the numbers of gradients and variables differ; or the cases of :meth:`apply_gradients`.
        """
        variables = self._trained_variables if trainable_variables is None else list(trainable_variables)
        if len(grads) != len(variables):
            raise ValueError(f"apply: {len(grads)} gradients for {len(variables)} variables")
        return self._apply(list(grads), variables) if grads else self.iterations

    def _apply(self, gradients: list[Any], variables: list[Any]) -> Any:
        """Apply one update: scale gradients back, update, project by constraints, average."""
        for gradient, variable in zip(gradients, variables, strict=True):
            if not isinstance(variable, Variable):
                raise TypeError(
                    "apply_gradients takes (gradient, variable) pairs; the second of this pair is no tf.Variable "
                    f"but of type {type(variable).__name__!r}"
                    + (". Are the two swapped?" if isinstance(gradient, Variable) else "")
                )
        # The slots are made for all variables of the first update, which are then all that there are: so Keras 3 does.
        if not self.built:
            self.build(variables)
        known = {id(variable) for variable in self._trained_variables}
        for variable in variables:
            if id(variable) not in known:
                raise ValueError(
                    f"Unknown variable: {variable!r}. This optimizer can only be called for the variables it was "
                    "originally built with. When working with a new set of variables, you should recreate a new "
                    "optimizer instance."
                )
        # A learning rate assigned by the function being traced is known to the trace only, not to tape_nn's schedule.
        if self._schedule is None and is_assigned(self._rate_variable.native):
            run_uncompiled("a learning rate that is assigned")
        # All arguments are checked above: an error leaves every variable unchanged.
        natives = [unwrap(gradient) for gradient in gradients]
        if self.loss_scale_factor is not None:
            # Before the native optimizer, so that clipping sees gradients of the usual size.
            natives = [scaled_gradient(gradient, 1 / self.loss_scale_factor) for gradient in natives]
        self._updater().apply_gradients(zip(natives, (variable.native for variable in variables), strict=True))
        for gradient, variable in zip(gradients, variables, strict=True):
            # A variable without a gradient was not updated, so its constraint still holds.
            if gradient is not None and variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        if self._average is not None:
            self._average.update()
            if every := self.ema_overwrite_frequency:
                require_value("whether averages are due")
            if every and self.native.iterations % every == 0:
                self.finalize_variable_values(self._trained_variables)
        return self.iterations

    def _updater(self) -> Any:
        """Return what is given the gradients of each batch."""
        return self._accumulation or self.native

    def scale_loss(self, loss: Value) -> Any:
        """Return the loss times `loss_scale_factor`."""
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        """Set the variables to their averages, if `use_ema` is set."""
        if self._average is not None:
            averages = self._average.state_dict()
            named = {id(variable): str(k) for k, variable in enumerate(self._trained_variables)}
            for variable in var_list:
                if (name := named.get(id(variable))) in averages:
                    variable.assign(wrap(averages[name]))

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Iterable[str] | None = None
    ) -> None:
        """Exclude variables from weight decay: those in `var_list`, and those with one of `var_names` in the name."""
        chosen = [variable.native for variable in var_list or []]
        chosen += [v.native for v in self._trained_variables if any(part in v.name for part in var_names or [])]
        self.native.exclude_from_weight_decay(chosen)

    def get_config(self) -> dict[str, Any]:
        """The arguments that the optimizer was made with."""
        names = [
            n for n in inspect.signature(type(self)._native_class.__init__).parameters if n not in ("self", "options")
        ]
        common = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm")
        rate = float(self._rate_variable) if self._schedule is None else self._schedule
        config = {name: getattr(self.native, name) for name in (*names, *common) if name != "learning_rate"}
        if self.gradient_accumulation_steps is not None:
            config["gradient_accumulation_steps"] = self.gradient_accumulation_steps
        return {"name": self.name, "learning_rate": rate, **config}


def _read_number(optimizer: nn.Optimizer, name: str, dtype: str) -> tc.Tensor:
    """Return a number that an optimizer counts in Python as a Tensor; in compiled code it is read anew in each call."""
    return native(getattr(optimizer, name), dtype)


def scaled_gradient(gradient: Gradient, factor: Any) -> Any:
    """Multiply a gradient, dense or sparse or None, by a number."""
    if gradient is None:
        return None
    if isinstance(gradient, tc.IndexedSlices):
        return tc.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


class SGD(Optimizer):
    """Stochastic gradient descent: see :class:`tape_nn.SGD`."""

    _native_class = nn.SGD


class RMSprop(Optimizer):
    """RMSprop: see :class:`tape_nn.RMSprop`."""

    _native_class = nn.RMSprop


class Adagrad(Optimizer):
    """Adagrad: see :class:`tape_nn.Adagrad`."""

    _native_class = nn.Adagrad


class Adadelta(Optimizer):
    """Adadelta: see :class:`tape_nn.Adadelta`."""

    _native_class = nn.Adadelta


class Adam(Optimizer):
    """Adam: see :class:`tape_nn.Adam`."""

    _native_class = nn.Adam


class AdamW(Optimizer):
    """Adam with decoupled weight decay: see :class:`tape_nn.AdamW`."""

    _native_class = nn.AdamW


class Adamax(Optimizer):
    """Adamax: see :class:`tape_nn.Adamax`."""

    _native_class = nn.Adamax


class Nadam(Optimizer):
    """Nadam: see :class:`tape_nn.Nadam`."""

    _native_class = nn.Nadam


class Ftrl(Optimizer):
    """FTRL-Proximal: see :class:`tape_nn.Ftrl`."""

    _native_class = nn.Ftrl


class Lion(Optimizer):
    """Lion: see :class:`tape_nn.Lion`."""

    _native_class = nn.Lion


_BY_NAME: dict[str, type[Optimizer]] = {
    name: kind
    for kind in (SGD, RMSprop, Adagrad, Adadelta, Adam, AdamW, Adamax, Nadam, Ftrl, Lion)
    for name in (kind.__name__, kind.__name__.lower())
}


for _kind in (SGD, RMSprop, Adagrad, Adadelta, Adam, Adamax, Nadam, Ftrl):
    export(f"keras.optimizers.legacy.{_kind.__name__}", _kind, "the same as in tf.keras.optimizers")


def get(identifier: OptimizerLike) -> Optimizer:
    """Return the optimizer of a name, with its defaults; an Optimizer is returned unchanged, a class is called.

    Raises:
        ValueError: no optimizer has this name.
    """
    if isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, type) and issubclass(identifier, Optimizer):
        return identifier()
    made: Optimizer = by_name("optimizer", identifier, _BY_NAME)()
    return made


__getattr__ = absent("keras.optimizers")
