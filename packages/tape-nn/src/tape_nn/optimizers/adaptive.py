"""Optimizers that scale the step of each element by a mean or sum of its squared gradients."""

from __future__ import annotations

from typing import Any

from tape_core.support import real
from tape_core.typing import Namespace, Raw

from tape_nn.clipping import check_positive
from tape_nn.optimizers.base import Optimizer
from tape_nn.optimizers.rates import Schedule
from tape_nn.optimizers.slots import Slots
from tape_nn.optimizers.updates import AddRows


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012): `w -= learning_rate * g / sqrt(v + epsilon)`.

    `v` is the running mean of `g * g`: `v = rho * v + (1 - rho) * g * g`. With `centered` the square of the running
    mean of `g` is subtracted from it. With momentum the step is
    `m = momentum * m + learning_rate * g / sqrt(v + epsilon)`. PyTorch adds its `eps` to the root.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> nn.RMSprop(0.1, rho=0.75).apply_gradients([([5.0, -0.5], w)])
    >>> [round(x, 4) for x in w.tolist()]
    [0.8, 2.2]
    """

    _in_place = False

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.rho = self._check_range("rho", rho, 0, 1, below=True)
        self.momentum = self._check_range("momentum", momentum, 0, 1)
        self.epsilon = self._check_range("epsilon", epsilon, 0)
        self.centered = centered

    def _slots(self) -> dict[str, float]:
        names = ["velocity", *["momentum"] * bool(self.momentum), *["average_gradient"] * self.centered]
        return dict.fromkeys(names, 0.0)

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        # `rho * v + (1 - rho) * g * g`, in the slot's memory.
        slots.accumulate("velocity", self.rho, g * g, 1 - self.rho)
        if self.centered:
            slots.accumulate("average_gradient", self.rho, g, 1 - self.rho)
            # E[g * g] - E[g]**2, which rounding may make slightly negative: epsilon is added below the root.
            variance = slots["velocity"] - slots["average_gradient"] * slots["average_gradient"]
            step = g * rate / xp.sqrt(variance + self.epsilon)
        else:
            step = g * rate / xp.sqrt(slots["velocity"] + self.epsilon)
        if self.momentum:
            step = slots.add("momentum", step, self.momentum)
        return slots.subtract_step(w, step)


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011): `w -= learning_rate * g / sqrt(a + epsilon)`, with `a` the sum of all `g * g`.

    A sparse gradient updates only the rows that it names; the others, whose gradient is 0, would not move anyway.
    PyTorch adds its `eps` to the root.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> nn.Adagrad(0.5, initial_accumulator_value=0.0).apply_gradients([([4.0, -0.5], w)])
    >>> [round(x, 4) for x in w.tolist()]
    [0.5, 2.5]
    """

    _in_place = False

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.initial_accumulator_value = self._check_range("initial_accumulator_value", initial_accumulator_value, 0)
        self.epsilon = self._check_range("epsilon", epsilon, 0)

    def _slots(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        total = slots.add("accumulator", g * g)
        return slots.subtract_step(w, g * rate / xp.sqrt(total + self.epsilon))

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
        # Each row is named once here (`_distinct_rows`): the square of a sum is not the sum of squares.
        total = slots["accumulator"] = add_rows(slots["accumulator"], indices, rows * rows)
        root = xp.sqrt(xp.take(total, indices, axis=0) + self.epsilon)
        return add_rows(w, indices, rows * -rate / root)


class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012): steps at the scale of earlier steps.

    `w -= learning_rate * d` with `d = g * sqrt(s + epsilon) / sqrt(v + epsilon)`, where `v` and `s` are the running
    means of `g * g` and of `d * d`, with the decay `rho`. The paper has a learning rate of 1.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0])
    >>> nn.Adadelta(1.0, rho=0.75, epsilon=0.25).apply_gradients([([1.0], w)])
    >>> round(w.tolist()[0], 4)
    0.2929
    """

    _in_place = False

    def __init__(
        self, learning_rate: float | Schedule = 0.001, rho: float = 0.95, epsilon: float = 1e-7, **options: Any
    ) -> None:
        super().__init__(learning_rate, **options)
        self.rho = self._check_range("rho", rho, 0, 1, below=True)
        self.epsilon = check_positive("epsilon", epsilon)  # with 0 the first step is 0, and then every other

    def _slots(self) -> dict[str, float]:
        return {"accumulated_gradient": 0.0, "accumulated_step": 0.0}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        # The step is scaled by the root mean square of earlier steps, which does not contain this one yet.
        squares = slots["accumulated_gradient"] * self.rho
        squares += g * g * (1 - self.rho)
        step = xp.sqrt(slots["accumulated_step"] + self.epsilon) * g
        step /= xp.sqrt(squares + self.epsilon)
        steps = slots["accumulated_step"] * self.rho
        steps += step * step * (1 - self.rho)
        slots["accumulated_gradient"], slots["accumulated_step"] = squares, steps
        step *= rate
        return slots.subtract_step(w, step)


class Ftrl(Optimizer):
    """FTRL-Proximal (McMahan et al., 2013), for shallow models with large sparse features.

    With `n` the sum of all `g * g`, `p = -learning_rate_power` and `lr` the learning rate,

        linear += g + 2 * l2_shrinkage * w - (n_new**p - n**p) / lr * w
        w = (clip(linear, -l1, l1) - linear) / (n_new**p / lr + 2 * l2 + beta / lr)

    so that `l1` makes elements exactly 0. The Variable's first value is forgotten: `linear` starts at 0, and the first
    update computes `w` from that.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([0.0, 0.0])
    >>> nn.Ftrl(0.5, l1_regularization_strength=1.0).apply_gradients([([3.0, 0.5], w)])
    >>> [round(x, 4) for x in w.tolist()]
    [-0.3315, 0.0]
    """

    _in_place = False

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.learning_rate_power = real("", "learning_rate_power", learning_rate_power)
        if not self.learning_rate_power <= 0:
            raise ValueError(f"learning_rate_power must be at most 0; got {learning_rate_power}")
        self.initial_accumulator_value = self._check_range("initial_accumulator_value", initial_accumulator_value, 0)
        self.l1_regularization_strength = self._check_range("l1_regularization_strength", l1_regularization_strength, 0)
        self.l2_regularization_strength = self._check_range("l2_regularization_strength", l2_regularization_strength, 0)
        self.l2_shrinkage_regularization_strength = self._check_range(
            "l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength, 0
        )
        self.beta = self._check_range("beta", beta, 0)

    def _slots(self) -> dict[str, float]:
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        if rate == 0:
            return w  # the limit of a small rate, for a warm-up that starts from 0; the formula divides by it
        # The names are those of the formula above: n**p before and after this gradient is added.
        before = slots["accumulator"] ** -self.learning_rate_power
        slots["accumulator"] = slots["accumulator"] + g * g
        after = slots["accumulator"] ** -self.learning_rate_power
        change = g + (2 * self.l2_shrinkage_regularization_strength) * w - (after - before) / rate * w
        slots["linear"] = slots["linear"] + change
        linear, l1 = slots["linear"], self.l1_regularization_strength
        # Soft thresholding: 0 wherever |linear| <= l1.
        return (xp.clip(linear, -l1, l1) - linear) / (
            after / rate + (2 * self.l2_regularization_strength + self.beta / rate)
        )
