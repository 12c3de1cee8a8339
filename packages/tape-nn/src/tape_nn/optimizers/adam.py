"""Adam and its relatives, which divide a running mean of gradients by the root of a running mean of their squares."""

from __future__ import annotations

import math
from typing import Any

from tape_core import Variable
from tape_core.staging import host_function
from tape_core.typing import Namespace, Raw

from tape_nn.optimizers.base import Optimizer
from tape_nn.optimizers.rates import Schedule
from tape_nn.optimizers.slots import Slots
from tape_nn.optimizers.updates import AddRows

_sqrt = host_function(math.sqrt)


class _Moments(Optimizer):
    """Base class of optimizers with Adam's arguments and its two running means, the moments of the gradient."""

    _in_place = False

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.beta_1 = self._check_range("beta_1", beta_1, 0, 1, below=True)
        # Less than 1: the bias correction divides by 1 - beta**t.
        self.beta_2 = self._check_range("beta_2", beta_2, 0, 1, below=True)
        self.epsilon = self._check_range("epsilon", epsilon, 0)

    def _slots(self) -> dict[str, float]:
        return {"momentum": 0.0, "velocity": 0.0}

    def _update_moments(self, g: Raw, slots: Slots) -> None:
        """Update the slots: `m += (g - m) * (1 - beta_1)` and `v += (g * g - v) * (1 - beta_2)`."""
        slots.lerp("momentum", g, 1 - self.beta_1)
        slots.lerp_square("velocity", g, 1 - self.beta_2)


class Adam(_Moments):
    """Adam (Kingma and Ba, 2014): steps of about `learning_rate`, at any scale of the gradient.

    With `m` and `v` the running means of `g` and `g * g`, update `t` (from 1) is

        w -= learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + epsilon)

    `epsilon` is the paper's "epsilon hat", as in Keras. PyTorch adds its `eps` to the corrected
    root instead; the two agree where `eps == epsilon / sqrt(1 - beta_2**t)`. `t` counts the updates of the
    Variable. With `amsgrad` the largest `v` so far takes the place of `v` (Reddi et al., 2018). A sparse
    gradient (:class:`~tape_core.IndexedSlices`) is taken as dense, as in Keras: the moments move rows that it does
    not name, too. With `lazy` they do not: only the rows that it names are updated, with their moments and their weight
    decay, as by PyTorch's `SparseAdam`. That is another algorithm, and for large tables a much quicker one.

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

    _in_place = False

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        *,
        lazy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **options)
        self.amsgrad = amsgrad
        self.lazy = lazy

    def _slots(self) -> dict[str, float]:
        return super()._slots() | ({"velocity_hat": 0.0} if self.amsgrad else {})

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        self._update_moments(g, slots)
        v = slots["velocity"]
        if self.amsgrad:  # the maximum of the uncorrected means, as in Keras
            v = slots["velocity_hat"] = xp.maximum(slots["velocity_hat"], v)
        # The bias correction of both moments, as one factor.
        scale = rate * _sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t)
        return slots.subtract_root_quotient(xp, w, slots["momentum"], v, self.epsilon, scale)

    def _is_of_formulas(self) -> bool:
        own = type(self)._step is Adam._step and type(self)._update_moments is _Moments._update_moments
        return own and not self.amsgrad

    def _moves_all_rows(self, variable: Variable) -> bool:
        return not self.lazy or super()._moves_all_rows(variable)

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
        if not self.lazy:
            return None

        def change(name: str, by: Raw) -> None:
            slots[name] = add_rows(slots[name], indices, by)

        m, v = (xp.take(slots[name], indices, axis=0) for name in ("momentum", "velocity"))
        change("momentum", (rows - m) * (1 - self.beta_1))
        change("velocity", (rows * rows - v) * (1 - self.beta_2))
        m, v = (xp.take(slots[name], indices, axis=0) for name in ("momentum", "velocity"))
        if self.amsgrad:
            largest = xp.take(slots["velocity_hat"], indices, axis=0)
            v = xp.maximum(largest, v)
            change("velocity_hat", v - largest)
        step = m / (xp.sqrt(v) + self.epsilon)
        return add_rows(w, indices, step * -(rate * _sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t)))


class AdamW(Adam):
    """:class:`Adam` with decoupled weight decay, by default 0.004 (Loshchilov and Hutter, 2017).

    Before each update `w -= learning_rate * weight_decay * w`. A penalty in the loss is different: Adam would scale its
    gradient like any other.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([2.0])
    >>> nn.AdamW(0.1, weight_decay=0.5).apply_gradients([([1.0], w)])
    >>> round(w.tolist()[0], 4)
    1.8
    """

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        *,
        lazy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            learning_rate, beta_1, beta_2, epsilon, amsgrad, lazy=lazy, weight_decay=weight_decay, **options
        )


class Adamax(_Moments):
    """Adamax (Kingma and Ba, 2014): Adam with a decaying maximum of `abs(g)` in place of the root.

    With `u = max(beta_2 * u, abs(g))`, `w -= learning_rate / (1 - beta_1**t) * m / (u + epsilon)`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> nn.Adamax(0.25).apply_gradients([([4.0, -0.5], w)])
    >>> [round(x, 4) for x in w.tolist()]
    [0.75, 2.25]
    """

    _in_place = False

    def _slots(self) -> dict[str, float]:
        return {"momentum": 0.0, "norm": 0.0}

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        slots["momentum"] = slots["momentum"] + (g - slots["momentum"]) * (1 - self.beta_1)
        slots["norm"] = xp.maximum(slots["norm"] * self.beta_2, xp.abs(g))
        step = slots["momentum"] / (slots["norm"] + self.epsilon) * (rate / (1 - self.beta_1**t))
        return slots.subtract_step(w, step)


class Nadam(_Moments):
    """Nadam (Dozat, 2015): Adam with Nesterov's momentum.

    With the schedule `u(t) = beta_1 * (1 - 0.5 * 0.96**t)` and `p(t)` the product of its first `t` values, the mean of
    gradients in the step is `u(t+1) * m / (1 - p(t+1)) + (1 - u(t)) * g / (1 - p(t))`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0])
    >>> nn.Nadam(0.1).apply_gradients([([4.0], w)])
    >>> round(w.tolist()[0], 4)
    0.8937
    """

    _in_place = False

    def __init__(
        self,
        learning_rate: float | Schedule = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **options)
        self._products = [1.0]  # p(0), p(1), ...: computed as far as needed

    @host_function
    def _momentum(self, t: int) -> float:
        return self.beta_1 * (1 - 0.5 * 0.96**t)

    @host_function
    def _product(self, t: int) -> float:
        while len(self._products) <= t:
            self._products.append(self._products[-1] * self._momentum(len(self._products)))
        return self._products[t]

    def _step(self, xp: Namespace, w: Raw, g: Raw, slots: Slots, rate: float, t: int) -> Raw:
        self._update_moments(g, slots)
        # Nesterov: the mean is taken with the momentum of the next update, the gradient with that of this one.
        now, ahead = self._momentum(t), self._momentum(t + 1)
        mean = slots["momentum"] * (ahead / (1 - self._product(t + 1)))
        mean += g * ((1 - now) / (1 - self._product(t)))
        root = xp.sqrt(slots["velocity"] / (1 - self.beta_2**t))
        return slots.subtract_step(w, mean * rate / (root + self.epsilon))
