"""Optimizers without a running scale: SGD, whose step is the gradient's, and Lion, whose step is a sign."""

from __future__ import annotations

from typing import Any, ClassVar

from tape_core import Variable
from tape_core.typing import Namespace, Raw

from tape_nn.optimizers.base import Optimizer
from tape_nn.optimizers.rates import Schedule
from tape_nn.optimizers.slots import Slots
from tape_nn.optimizers.updates import AddRows


class SGD(Optimizer):
    """Stochastic gradient descent: `w -= learning_rate * g`.

    With momentum, `velocity = momentum * velocity - learning_rate * g` and `w += velocity`, or with
    `nesterov=True` `w += momentum * velocity - learning_rate * g`. While the learning rate stays
    constant this is what PyTorch computes.

    A sparse gradient (:class:`~tape_core.IndexedSlices`) updates only the rows that it names, if there is
    no momentum; rows named twice add up. With momentum the gradient is taken as dense, as in Keras: the
    velocity moves the other rows, too. With `lazy` it does not: rows that the gradient does not name stay as they
    are, and so does their velocity. That is another algorithm, and for large tables a much quicker one.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> with tc.GradientTape() as tape:
    ...     loss = tc.sum(w * w)
    >>> nn.SGD(learning_rate=0.25).apply_gradients([(tape.gradient(loss, w), w)])
    >>> w
    Variable([0.5 1. ], shape=(2,), dtype=float32, backend=numpy)
    """

    _real_only = False
    _in_place = False
    _distinct_rows: ClassVar[bool] = False  # the step is linear in the gradient: rows add up as they are added to `w`

    def __init__(
        self,
        learning_rate: float | Schedule = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        *,
        lazy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.momentum = self._check_range("momentum", momentum, 0, 1)
        self.nesterov = nesterov
        self.lazy = lazy
        if self.momentum:  # with a velocity the step of the second of two equal rows would use that of the first
            self._distinct_rows = True  # type: ignore[misc]

    def _slots(self) -> dict[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        if not self.momentum:
            return slots.subtract_scaled(w, g, rate)
        # The slot "momentum" is the velocity: the name in checkpoints is Keras'.
        momentum = slots.accumulate("momentum", self.momentum, g, -rate)
        if not self.nesterov:
            return slots.add_step(w, momentum)
        # Nesterov: the velocity's next step is taken in advance.
        step = g * rate
        step -= momentum * self.momentum
        return slots.subtract_step(w, step)

    def _is_of_formulas(self) -> bool:
        return type(self)._step is SGD._step and not (self.momentum and self.nesterov)

    def _moves_all_rows(self, variable: Variable) -> bool:
        return bool(self.momentum and not self.lazy) or super()._moves_all_rows(variable)

    def _step_rows(
        self,
        xp: Namespace,
        w: Raw,
        indices: Raw,
        rows: Raw,
        slots: dict[str, Raw],
        rate: float,
        t: int,
        add_rows: AddRows,
    ) -> Raw | None:
        if not self.momentum:
            return add_rows(w, indices, rows * -rate)
        if not self.lazy:
            return None
        old = xp.take(slots["momentum"], indices, axis=0)
        new = old * self.momentum - rows * rate
        slots["momentum"] = add_rows(slots["momentum"], indices, new - old)
        return add_rows(w, indices, new * self.momentum - rows * rate if self.nesterov else new)


class Lion(Optimizer):
    """Lion (Chen et al., 2023): `w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g)`.

    Then `m = beta_2 * m + (1 - beta_2) * g`. All elements move equally far: take a learning rate 3 to 10 times smaller
    than Adam's, and a weight decay larger by the same factor.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> nn.Lion(0.25).apply_gradients([([1e-3, -1e3], w)])
    >>> w.tolist()
    [0.75, 2.25]
    """

    _in_place = False

    def __init__(
        self, learning_rate: float | Schedule = 0.001, beta_1: float = 0.9, beta_2: float = 0.99, **options: Any
    ) -> None:
        super().__init__(learning_rate, **options)
        self.beta_1 = self._check_range("beta_1", beta_1, 0, 1, below=True)
        self.beta_2 = self._check_range("beta_2", beta_2, 0, 1, below=True)

    def _slots(self) -> dict[str, float]:
        return {"momentum": 0.0}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        # The step interpolates with `beta_1`, the memory with `beta_2`: the paper's point, and why the slot is updated
        # after.
        sign = xp.sign(slots["momentum"] * self.beta_1 + g * (1 - self.beta_1))
        slots.accumulate("momentum", self.beta_2, g, 1 - self.beta_2)
        return slots.subtract_scaled(w, sign, rate)
