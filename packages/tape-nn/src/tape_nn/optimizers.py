"""Optimizers turn gradients into new values of Variables. The formulas are those of Keras."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from tape_core import IndexedSlices, Tensor, Variable, asarray, astype
from tape_core.tensor import wrap


class Optimizer:
    """What all optimizers share. A new one defines `_update`.

    What it remembers about a Variable (a momentum, say) belongs to that very object, and one that
    appears late starts fresh. Updates are not recorded by tapes, and what a tape has recorded keeps
    its values: updating inside a tape's block is fine.
    """

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.iterations = 0
        """How many updates were applied."""
        # By the Variable's id; the entry holds the Variable, so the id stays its own.
        self._states: dict[int, _State] = {}
        self._warned: set[int] = set()

    @property
    def learning_rate(self) -> float:
        """How far one update goes. It can be set at any time."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        # A Python float is weak; an np.float64 would turn float32 arrays into float64 ones.
        self._learning_rate = float(value)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Update Variables once.

        Args:
            grads_and_vars: (gradient, variable) pairs, as `zip(gradients, variables)` gives them.
                Where a gradient is None the Variable is skipped with a warning, once.

        Raises:
            ValueError: if no Variable has a gradient, or a gradient's shape is not its Variable's.
            TypeError: for what is not a pair, not a Variable or not a floating-point one.
                Everything is checked before anything is changed.
        """
        updates = []
        missing = []
        for pair in grads_and_vars:
            gradient, variable = _pair(pair)
            state = self._states.get(id(variable))
            if state is None:
                state = self._start(variable)
            if gradient is None:
                missing.append(variable)
            else:
                updates.append((_checked(gradient, variable), variable, state))
        if not updates:
            raise ValueError(
                "No gradients provided for any variable."
                + (f" All are None: {_names(missing)}." if missing else "")
                + " Was the loss computed from them, inside the tape's block?"
            )
        if new := [variable for variable in missing if id(variable) not in self._warned]:
            self._warned.update(map(id, new))
            warnings.warn(
                f"Gradients do not exist for variables {_names(new)}: they are not updated",
                stacklevel=2,
            )
        for gradient, variable, state in updates:
            self._update(gradient, variable, state)
        self.iterations += 1

    def _start(self, variable: Variable) -> _State:
        if not variable.dtype.inexact:
            raise TypeError(
                f"only floating-point variables can be optimized; {_names([variable])} has dtype {variable.dtype}"
            )
        state = self._states[id(variable)] = _State(variable, self.iterations)
        return state

    def _update(self, gradient: Any, variable: Variable, state: _State) -> None:
        raise NotImplementedError


class SGD(Optimizer):
    """Stochastic gradient descent: `w -= learning_rate * g`.

    With momentum, `velocity = momentum * velocity - learning_rate * g` and `w += velocity`, or with
    `nesterov=True` `w += momentum * velocity - learning_rate * g`. While the learning rate stays
    constant this is what PyTorch computes.

    Of a sparse gradient (:class:`~tape_core.IndexedSlices`) plain SGD touches only the rows it
    names, duplicates added up. With momentum the gradient counts as dense, as in Keras: rows
    without a gradient move on.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> with tc.GradientTape() as tape:
    ...     loss = tc.sum(w * w)
    >>> nn.SGD(learning_rate=0.25).apply_gradients([(tape.gradient(loss, w), w)])
    >>> w
    Variable([0.5 1. ], shape=(2,), dtype=float32, backend=numpy)
    """

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(learning_rate)
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1; got {momentum}")
        self.momentum = float(momentum)
        self.nesterov = nesterov

    def _update(self, gradient: Any, variable: Variable, state: _State) -> None:
        if self.momentum == 0:
            if isinstance(gradient, IndexedSlices):
                rows = _detached(gradient.values.array * -self.learning_rate, variable)
                variable.assign_add(IndexedSlices(rows, gradient.indices, gradient.dense_shape))
            else:
                variable.assign_sub(_detached(gradient * self.learning_rate, variable))
            return
        step = _dense(gradient, variable) * self.learning_rate
        velocity = state.slot("velocity")
        velocity *= self.momentum
        velocity -= step
        state.slots["velocity"] = velocity
        if self.nesterov:
            step -= velocity * self.momentum
            variable.assign_sub(_detached(step, variable))
        else:
            variable.assign_add(_detached(velocity, variable))


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014): steps of about `learning_rate`, whatever the gradient's scale.

    With `m` and `v` the running means of `g` and `g * g`, update `t` (from 1) is

        w -= learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + epsilon)

    `epsilon` is the paper's "epsilon hat", as in Keras. PyTorch adds its `eps` to the corrected
    root instead; the two agree where `eps == epsilon / sqrt(1 - beta_2**t)`. `t` counts from the
    Variable's first appearance. A sparse gradient (:class:`~tape_core.IndexedSlices`) counts as
    dense, as in Keras: rows without a gradient move on.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> optimizer = nn.Adam(learning_rate=0.5)
    >>> for step in range(100):
    ...     with tc.GradientTape() as tape:
    ...         loss = tc.sum((w - 3.0) ** 2)
    ...     optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    >>> bool(tc.all(tc.abs(w - 3.0) < 0.05))
    True
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
    ) -> None:
        super().__init__(learning_rate)
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= beta < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1; got {beta}")
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)
        self.epsilon = float(epsilon)

    def _start(self, variable: Variable) -> _State:
        if variable.dtype.kind == "complex floating":
            raise TypeError(f"Adam updates real variables; {_names([variable])} has dtype {variable.dtype}")
        return super()._start(variable)

    def _update(self, gradient: Any, variable: Variable, state: _State) -> None:
        g = _dense(gradient, variable)
        t = self.iterations - state.started + 1
        rate = self.learning_rate * math.sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t)
        m = state.slot("momentum")
        v = state.slot("velocity")
        m += (g - m) * (1 - self.beta_1)
        v += (g * g - v) * (1 - self.beta_2)
        state.slots["momentum"] = m
        state.slots["velocity"] = v
        step = m * rate
        step /= variable.backend.xp.sqrt(v) + self.epsilon
        variable.assign_sub(_detached(step, variable))


class _State:
    """What an optimizer remembers about one Variable: raw arrays that nobody else holds."""

    def __init__(self, variable: Variable, started: int) -> None:
        self.variable = variable
        self.started = started
        self.slots: dict[str, Any] = {}

    def slot(self, name: str) -> Any:
        """An array like the Variable's, at first zeros."""
        array = self.slots.get(name)
        if array is None:
            array = self.variable.backend.xp.zeros_like(self.variable.array)
        return array


def _pair(pair: Any) -> tuple[Any, Variable]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs, such as zip(gradients, variables); "
            f"got an element of type {type(pair).__name__!r}"
        )
    gradient, variable = pair
    if not isinstance(variable, Variable):
        raise TypeError(
            "apply_gradients takes (gradient, variable) pairs; the second of this pair is no "
            f"Variable but of type {type(variable).__name__!r}"
            + (". Are the two swapped?" if isinstance(gradient, Variable) else "")
        )
    return gradient, variable


def _checked(gradient: Any, variable: Variable) -> Any:
    """The gradient as a raw array, so that nothing done with it is recorded, or IndexedSlices."""
    if not isinstance(gradient, Tensor | IndexedSlices):
        gradient = asarray(gradient, dtype=variable.dtype, backend=variable.backend)
    values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    if values.backend is not variable.backend:
        raise TypeError(
            f"the gradient of {_names([variable])} is on backend {values.backend.name!r}; "
            f"the variable is on {variable.backend.name!r}"
        )
    if isinstance(gradient, IndexedSlices):
        shape = gradient.dense_shape
        result: Any = gradient
        if gradient.dtype is not variable.dtype:
            values = astype(_detached(values.array, variable), variable.dtype)
            result = IndexedSlices(values, gradient.indices, shape)
    else:
        shape = gradient.shape
        result = gradient.array
        if gradient.dtype is not variable.dtype:
            backend = variable.backend
            result = backend.xp.astype(result, backend.raw_dtype(variable.dtype))
    if shape != variable.shape:
        raise ValueError(f"the gradient of {_names([variable])} has shape {shape}; the variable has {variable.shape}")
    return result


def _dense(gradient: Any, variable: Variable) -> Any:
    if not isinstance(gradient, IndexedSlices):
        return gradient
    rows, indices = gradient.values.array, gradient.indices.array
    return variable.backend.xp.scatter(rows, indices, gradient.dense_shape)


def _detached(array: Any, variable: Variable) -> Tensor:
    """A Tensor of a raw array that no tape knows."""
    return wrap(array, variable.backend)


def _names(variables: list[Variable]) -> str:
    return ", ".join(repr(v.name) if v.name else f"<Variable of shape {v.shape}>" for v in variables)
