"""Learning-rate schedules: functions from the number of updates so far to a learning rate. These are Keras'.

>>> import tape_nn as nn
>>> optimizer = nn.SGD(nn.schedules.ExponentialDecay(0.1, decay_steps=100, decay_rate=0.5))
>>> optimizer.learning_rate
0.1
>>> optimizer.iterations = 200
>>> optimizer.learning_rate
0.025
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import tape_core as tc
from tape_core import Tensor
from tape_core.support import real

from tape_nn.clipping import check_positive
from tape_nn.thresholds import PERIOD_TOLERANCE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# Frozen dataclasses, also for their repr, by which a checkpoint compares schedules (`fitting.resuming.describe`).
@dataclass(frozen=True)
class ExponentialDecay:
    """`initial_learning_rate * decay_rate ** (step / decay_steps)`; with `staircase` the exponent is rounded down.

    >>> from tape_nn.schedules import ExponentialDecay
    >>> ExponentialDecay(1.0, 10, 0.5, staircase=True)(19)
    0.5
    """

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self)
        check_positive("decay_steps", self.decay_steps)
        check_positive("decay_rate", self.decay_rate)

    def __call__(self, step: int) -> float:
        exponent = _periods(step, self.decay_steps, self.staircase)
        return _number(self.initial_learning_rate * self.decay_rate**exponent)


def _check_numbers(schedule: DataclassInstance) -> None:
    """Raise a TypeError if a setting that is declared as a float is no number."""
    for field in fields(schedule):
        value = getattr(schedule, field.name)
        declared = str(field.type)  # text, since annotations are not evaluated in this module
        if declared.startswith("float") and not (value is None and "None" in declared):
            real(type(schedule).__name__, field.name, value)


# A schedule is called with an int, or by `transforms` with a Tensor, which may be traced, batched or a loop's. The
# following are the functions of `math` for both.


def _number(x: Any) -> float:
    """Return a result as a Python float; a Tensor as it is."""
    return x if isinstance(x, Tensor) else float(x)  # type: ignore[return-value]


def _time(step: Any, unit: float) -> Any:
    """Return `step / unit`, of a Tensor in the default dtype of floats."""
    return (tc.astype(step, tc.float32) if isinstance(step, Tensor) else step) / unit


def _either(name: str) -> Callable[[Any], Any]:
    """Return the function of `math`, or of Tensors where its argument is one."""
    numbers, tensors = getattr(math, name), getattr(tc, name)
    return lambda x: tensors(x) if isinstance(x, Tensor) else numbers(x)


_floor, _ceil, _cos, _log1p = map(_either, ("floor", "ceil", "cos", "log1p"))


def _at_most(x: Any, limit: float) -> Any:
    return tc.minimum(x, limit) if isinstance(x, Tensor) else min(x, limit)


def _at_least(x: Any, limit: float) -> Any:
    return tc.maximum(x, limit) if isinstance(x, Tensor) else max(x, limit)


def _if(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, Tensor):
        return tc.where(condition, yes, no)
    return yes if condition else no


def _periods(step: int, decay_steps: float, staircase: bool) -> Any:
    time = _time(step, decay_steps)
    return _floor(time) if staircase else time


@dataclass(frozen=True)
class CosineDecay:
    """Half a cosine from `initial_learning_rate` down to `alpha` times it in `decay_steps` updates, then constant.

    With `warmup_target` the rate first rises linearly from `initial_learning_rate` to that in `warmup_steps` updates,
    and the cosine starts there.

    >>> from tape_nn.schedules import CosineDecay
    >>> schedule = CosineDecay(0.0, decay_steps=100, warmup_target=1.0, warmup_steps=10)
    >>> [round(schedule(step), 3) for step in (0, 5, 10, 60, 110, 500)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """

    initial_learning_rate: float
    decay_steps: float
    alpha: float = 0.0
    warmup_target: float | None = None
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        _check_numbers(self)
        check_positive("decay_steps", self.decay_steps)
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps must be at least 0; got {self.warmup_steps}")
        if self.warmup_steps and self.warmup_target is None:
            raise ValueError("warmup_steps needs warmup_target, the learning rate at their end")

    def __call__(self, step: int) -> float:
        start = self.initial_learning_rate
        if self.warmup_target is None:
            return _number(self._cosine(step, start))
        # The steps of the warm-up come before the `decay_steps`, as in Keras, and not out of them.
        rising = start + (self.warmup_target - start) * _time(step, max(self.warmup_steps, 1))
        after = self._cosine(_at_least(step - self.warmup_steps, 0), self.warmup_target)
        return _number(_if(step < self.warmup_steps, rising, after))

    def _cosine(self, step: int, start: float) -> Any:
        cosine = 0.5 * (1 + _cos(math.pi * _at_most(_time(step, self.decay_steps), 1.0)))
        return start * ((1 - self.alpha) * cosine + self.alpha)


@dataclass(frozen=True)
class PiecewiseConstantDecay:
    """`values[0]` up to and including step `boundaries[0]`, then `values[1]` up to `boundaries[1]`, and so on.

    >>> from tape_nn.schedules import PiecewiseConstantDecay
    >>> [PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.1])(step) for step in (10, 11, 20, 21)]
    [1.0, 0.5, 0.5, 0.1]
    """

    boundaries: Sequence[int]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"values must be one more than boundaries; got {len(self.values)} and {len(self.boundaries)}"
            )
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"boundaries must increase; got {list(self.boundaries)}")

    def __call__(self, step: int) -> float:
        count: Any = step
        if isinstance(count, Tensor):
            value = tc.asarray(float(self.values[0]), backend=count.backend, device=count.device)
            for boundary, following in zip(self.boundaries, self.values[1:], strict=True):
                value = tc.where(count > boundary, float(following), value)
            return _number(value)
        # `bisect_left` and not `bisect_right`: a boundary itself still has the old value, as in Keras.
        return float(self.values[bisect_left(self.boundaries, step)])


@dataclass(frozen=True)
class InverseTimeDecay:
    """`initial_learning_rate / (1 + decay_rate * step / decay_steps)`; with `staircase` the quotient is rounded down.

    >>> from tape_nn.schedules import InverseTimeDecay
    >>> InverseTimeDecay(1.0, decay_steps=10, decay_rate=0.5)(20)
    0.5
    """

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self)
        check_positive("decay_steps", self.decay_steps)
        check_positive("decay_rate", self.decay_rate)

    def __call__(self, step: int) -> float:
        time = _periods(step, self.decay_steps, self.staircase)
        return _number(self.initial_learning_rate / (1 + self.decay_rate * time))


@dataclass(frozen=True)
class PolynomialDecay:
    """A decay from `initial_learning_rate` to `end_learning_rate` in `decay_steps` updates, along `(1 - time)**power`.

    Then the rate is constant; with `cycle` the decay is stretched to the next multiple of `decay_steps` each time it
    would end, so that the rate jumps up, to half of the first height, then to a third, and so on.

    >>> from tape_nn.schedules import PolynomialDecay
    >>> [PolynomialDecay(1.0, 100, end_learning_rate=0.5)(step) for step in (0, 50, 100, 900)]
    [1.0, 0.75, 0.5, 0.5]
    """

    initial_learning_rate: float
    decay_steps: float
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self)
        check_positive("decay_steps", self.decay_steps)
        check_positive("power", self.power)

    def __call__(self, step: int) -> float:
        # At least one period, also at step 0, where the quotient rounds up to 0.
        periods = _at_least(_ceil(_time(step, self.decay_steps)), 1) if self.cycle else 1
        height = (1 - _at_most(_time(step, self.decay_steps * periods), 1)) ** self.power
        return _number((self.initial_learning_rate - self.end_learning_rate) * height + self.end_learning_rate)


@dataclass(frozen=True)
class CosineDecayRestarts:
    """Half a cosine from `initial_learning_rate` to `alpha` times it in `first_decay_steps` updates, and once more.

    Each period is `t_mul` times as long as the one before and starts `m_mul` times as high (Loshchilov and Hutter,
    SGDR, 2016).

    >>> from tape_nn.schedules import CosineDecayRestarts
    >>> [round(CosineDecayRestarts(1.0, 10, m_mul=0.5)(step), 3) for step in (0, 5, 10, 20, 30)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    initial_learning_rate: float
    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        _check_numbers(self)
        check_positive("first_decay_steps", self.first_decay_steps)
        if self.t_mul < 1:
            raise ValueError(f"t_mul must be at least 1; got {self.t_mul}")

    def __call__(self, step: int) -> float:
        time = _time(step, self.first_decay_steps)
        length: Any = 1.0
        if self.t_mul == 1:
            period = start = _floor(time)
        else:
            # Period k begins at 1 + t_mul + ... + t_mul**(k - 1) = (t_mul**k - 1) / (t_mul - 1); solved for k.
            period = _floor(_log1p(time * (self.t_mul - 1)) / math.log(self.t_mul) + PERIOD_TOLERANCE)
            length = self.t_mul**period
            start = (length - 1) / (self.t_mul - 1)
        cosine = 0.5 * (1 + _cos(math.pi * _at_least(time - start, 0.0) / length))
        return _number(self.initial_learning_rate * ((1 - self.alpha) * self.m_mul**period * cosine + self.alpha))


@dataclass(frozen=True)
class WarmUp:
    """A linear rise from `start` to the first value of `schedule` in `steps` updates; then `schedule`, counted from 0.

    >>> from tape_nn.schedules import ExponentialDecay, WarmUp
    >>> schedule = WarmUp(ExponentialDecay(0.1, 100, 0.5), steps=10)
    >>> [schedule(step) for step in (0, 5, 10, 110)]
    [0.0, 0.05, 0.1, 0.05]

    Args:
        schedule: a schedule, or a number.
        steps: how many updates the rise takes.
        start: the first learning rate.
    """

    schedule: Callable[[int], float] | float
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        _check_numbers(self)
        check_positive("steps", self.steps)

    def __call__(self, step: int) -> float:
        after = self.schedule(_at_least(step - self.steps, 0)) if callable(self.schedule) else self.schedule
        rising = self.start + (after - self.start) * _time(step, 1) / self.steps
        return _if(step >= self.steps, after, rising)  # type: ignore[no-any-return]
