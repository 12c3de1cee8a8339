"""Loss scaling, which keeps gradients of half precision from underflowing to 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tape_core as tc
from tape_core import IndexedSlices, Tensor, Variable
from tape_core.backends import Backend
from tape_core.staging import current, guard, host_function, host_number, stateful
from tape_core.support import Commit, integer, layouts, lenient, real, wrap
from tape_core.typing import ArrayLike

from tape_nn.clipping import check_positive
from tape_nn.module import Module
from tape_nn.optimizers.agreement import Compared, compare_settings
from tape_nn.optimizers.rates import Schedule
from tape_nn.thresholds import LARGEST_SCALE, SMALLEST_SCALE
from tape_nn.types import Gradient, OptimizerLike


class LossScaler(Compared):
    """An optimizer around another one, for training in float16: scales the loss, so that gradients do not underflow.

    Differentiate `scale_loss(loss)` in place of the loss; `apply_gradients` divides the gradients by the scale again,
    and has the inner optimizer update the Variables. Where a gradient is not finite, nothing is updated, and the scale
    is multiplied by `backoff_factor`; after `growth_interval` updates in a row it is multiplied by `growth_factor`.
    :func:`tape_nn.fit` does all of this if its optimizer is a LossScaler.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable([1.0, 2.0])
    >>> optimizer = nn.LossScaler(nn.SGD(0.25), initial_scale=1024.0)
    >>> with tc.GradientTape() as tape:
    ...     scaled = optimizer.scale_loss(tc.sum(w * w))
    >>> optimizer.apply_gradients([(tape.gradient(scaled, w), w)])
    >>> w.tolist()
    [0.5, 1.0]
    >>> optimizer.apply_gradients([([tc.inf, 0.0], w)])
    >>> w.tolist(), optimizer.scale, optimizer.iterations, optimizer.skipped
    ([0.5, 1.0], 512.0, 1, 1)

    Args:
        optimizer: the optimizer that does the updates. Its clipping sees gradients that were divided by the scale.
        initial_scale: the first scale; a power of two changes no digit of a gradient.
        growth_interval: the number of updates after which the scale grows. With None the scale is constant, and
            updates with gradients that are not finite are still skipped.
        growth_factor: more than 1.
        backoff_factor: between 0 and 1.

    Raises:
        TypeError: `optimizer` is no optimizer.
        ValueError: a number is out of range.
    """

    # Compiled functions read and assign a `host_number()` in each call, as they do Variables.
    _scale: Any = host_number()
    _in_a_row: Any = host_number()
    _skipped: Any = host_number()

    def __init__(
        self,
        optimizer: OptimizerLike,
        initial_scale: float = 2.0**15,
        growth_interval: int | None = 2000,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
    ) -> None:
        if not hasattr(optimizer, "apply_gradients"):
            raise TypeError(f"LossScaler: optimizer must be one, such as nn.Adam(); got {optimizer!r}")
        if growth_interval is not None:
            growth_interval = integer("LossScaler", "growth_interval", growth_interval, 1)
        growth_factor = real("LossScaler", "growth_factor", growth_factor)
        backoff_factor = real("LossScaler", "backoff_factor", backoff_factor)
        if not 1 < growth_factor < math.inf:
            raise ValueError(f"LossScaler: growth_factor must be more than 1; got {growth_factor}")
        if not 0 < backoff_factor < 1:
            raise ValueError(f"LossScaler: backoff_factor must be between 0 and 1; got {backoff_factor}")
        self.optimizer = optimizer
        self.initial_scale = check_positive("LossScaler: initial_scale", initial_scale)
        self.growth_interval = growth_interval
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self._scale = self.initial_scale
        self._in_a_row = 0
        self._skipped = 0

    @lenient
    def __repr__(self) -> str:
        return f"LossScaler({self.optimizer!r}, scale={LossScaler._scale.of(self).kept!r})"

    @property
    def scale(self) -> float:
        """The factor of the loss."""
        return self._scale  # type: ignore[no-any-return]

    @property
    def skipped(self) -> int:
        """The number of updates that were skipped because a gradient was not finite."""
        return self._skipped  # type: ignore[no-any-return]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the inner optimizer."""
        return float(self.optimizer.learning_rate)

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule) -> None:
        self.optimizer.learning_rate = value

    @property
    def iterations(self) -> int:
        """The number of updates applied."""
        return int(self.optimizer.iterations)

    def scale_loss(self, loss: ArrayLike) -> Tensor:
        """Return the loss times the scale, to be differentiated; in float32 if the loss is of half precision."""
        loss = loss if isinstance(loss, Tensor) else tc.asarray(loss)
        if loss.dtype.inexact and tc.finfo(loss.dtype).bits < 32:
            # A scale of 2**15 times a loss above 2 would overflow float16, whose largest number is 65504.
            loss = tc.astype(loss, tc.float32)
        scaled: Tensor = loss * self._scale_like(tc.stop_gradient(loss))
        return scaled

    def _holders(self) -> list[Any]:
        """All state that updates change besides the Variables that are updated; see `stateful`."""
        own = [getattr(LossScaler, name).of(self) for name in ("_scale", "_in_a_row", "_skipped")]
        return [*own, *(self.optimizer._holders() if hasattr(self.optimizer, "_holders") else ())]

    @stateful(_holders)
    def _scale_like(self, loss: Tensor) -> Tensor:
        """Return the scale as a Tensor like the loss."""
        # A method of its own with `stateful`, so that a compiled function reads the scale in each call.
        return tc.asarray(self._scale, dtype=loss.dtype, backend=loss.backend, device=loss.device)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Gradient, Variable]]) -> None:
        """Update Variables once, or not at all if a gradient is not finite.

        Args:
            grads_and_vars: as for :meth:`Optimizer.apply_gradients`; the gradients are of `scale_loss(loss)`.

        Raises:
            FloatingPointError: gradients are not finite even with the smallest scale: the loss itself is not finite.
                Nothing is changed.
            TypeError, ValueError: as for :meth:`Optimizer.apply_gradients`.
        """
        pairs = list(grads_and_vars)
        self._prepare(pairs)
        self._apply(pairs)

    def _apply(self, pairs: list[Any]) -> None:
        with self._slot_creation_lock(pairs):
            self._compute_update(pairs).make()

    _apply.__name__ = "apply_gradients"  # in programs and messages
    _apply = stateful(_holders)(_apply)

    def _prepare(self, pairs: list[Any]) -> None:
        """Have the inner optimizer make state that is missing, before a trace."""
        if layouts.are_compared and not self._knows(pairs):
            compare_settings(self, [pair[1] for pair in pairs if len(pair) > 1 and isinstance(pair[1], Variable)])
        if hasattr(self.optimizer, "_prepare"):
            self.optimizer._prepare(pairs)

    def _knows(self, pairs: list[Any]) -> bool:
        knows = getattr(self.optimizer, "_knows", None)
        return knows is None or bool(knows(pairs))

    def _slot_creation_lock(self, pairs: list[Any]) -> AbstractContextManager[object]:
        lock = getattr(self.optimizer, "_slot_creation_lock", None)
        return nullcontext() if lock is None else lock(pairs)

    def _compute_update(self, grads_and_vars: Iterable[tuple[Gradient, Variable]]) -> Commit:
        """Compute the update and the new scale, without making them. An inner optimizer of somebody else is called."""
        pairs = [(_as_tensor(pair[0]), *pair[1:]) for pair in grads_and_vars]
        finite = _all_finite([pair[0] for pair in pairs if pair[0] is not None])
        if current() is not None:
            return self._trace_update(pairs, finite)
        commit = self._inner_update(pairs) if finite else Commit()
        return self._with_numbers(commit, finite)

    def _inner_update(self, pairs: list[Any]) -> Commit:
        # The scale is a power of two by default, so that this division is exact.
        unscaled = [(_times(g, 1 / self._scale), *rest) for g, *rest in pairs]
        # With an optimizer of this package the update and the scale are one commit: an interrupt leaves both or
        # neither. One of somebody else has no commit to join.
        if hasattr(self.optimizer, "_compute_update"):
            commit: Commit = self.optimizer._compute_update(unscaled)
            return commit
        self.optimizer.apply_gradients(unscaled)
        return Commit()

    def _trace_update(self, pairs: list[Any], finite: Any) -> Commit:
        """Compute the update in a branch of the program, which makes it: to the trace it is one commit with the rest.

        Where the inner optimizer decides by a value the trace ends with an error, and the call becomes an opaque one.
        """
        guard(self._settings)
        tc.cond(finite, lambda: self._inner_update(pairs).make(), lambda: None)
        return self._with_numbers(Commit(), finite._array)

    def _settings(self) -> tuple[int | None, float, float]:
        return self.growth_interval, self.growth_factor, self.backoff_factor

    def _with_numbers(self, commit: Commit, finite: Any) -> Commit:
        """Add the assignment of the new scale and the new counts to a commit."""
        scale, in_a_row = self._scale, self._in_a_row
        new_scale = _next_scale(finite, scale, in_a_row, *self._settings(), SMALLEST_SCALE, LARGEST_SCALE)
        commit.value(LossScaler._scale.of(self), new_scale)
        commit.value(LossScaler._in_a_row.of(self), _next_in_a_row(finite, in_a_row, self.growth_interval))
        commit.value(LossScaler._skipped.of(self), _next_skipped(finite, self._skipped))
        return commit

    def state_dict(self, variables: Module | Mapping[str, Variable]) -> dict[str, Tensor]:
        """Return the state of the inner optimizer, with the scale; see :meth:`Optimizer.state_dict`."""
        counts = {"loss_scale_in_a_row": self._in_a_row, "loss_scale_skipped": self._skipped}
        return {
            **self.optimizer.state_dict(variables),
            "loss_scale": tc.asarray(self._scale, dtype=tc.float64),
            **{name: tc.asarray(n, dtype=tc.int64) for name, n in counts.items()},
        }

    def load_state_dict(self, state: Mapping[str, ArrayLike], variables: Module | Mapping[str, Variable]) -> None:
        """Continue from a state that :meth:`state_dict` gave.

        Raises:
            ValueError: as for :meth:`Optimizer.load_state_dict`; also where the state has no scale.
        """
        own = ("loss_scale", "loss_scale_in_a_row", "loss_scale_skipped")
        if missing := [name for name in own if name not in state]:
            raise ValueError(f"load_state_dict: {missing[0]!r} is missing: this is no state of a LossScaler")
        inner = {name: value for name, value in state.items() if name not in own}
        scale, in_a_row, skipped = float(state[own[0]]), int(state[own[1]]), int(state[own[2]])
        self.optimizer.load_state_dict(inner, variables)
        commit = Commit()
        for name, value in (("_scale", scale), ("_in_a_row", in_a_row), ("_skipped", skipped)):
            commit.value(getattr(LossScaler, name).of(self), value)
        commit.make()


def _as_tensor(gradient: Gradient) -> Tensor | IndexedSlices | None:
    if gradient is None or isinstance(gradient, Tensor | IndexedSlices):
        return gradient
    return tc.asarray(gradient)


def _all_finite(gradients: list[Tensor | IndexedSlices]) -> Any:
    """Return whether all elements are finite; in a trace a Tensor, where all gradients are on one backend."""
    found: dict[Backend, Any] = {}  # one flag for each backend, so that a GPU is waited for once
    for gradient in gradients:
        values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
        backend = values.backend
        flag = backend.xp.all(backend.xp.isfinite(values.array))
        found[backend] = found[backend] & flag if backend in found else flag
    if current() is not None and len(found) == 1:
        ((backend, flag),) = found.items()
        return wrap(flag, backend)
    return all(map(bool, found.values()))


# Numbers of the host, which compiled functions compute in each run. They are functions of all that they read, so that
# exported files can have them.


@host_function
def _next_scale(
    finite: Any,
    scale: float,
    in_a_row: int,
    growth_interval: int | None,
    growth_factor: float,
    backoff_factor: float,
    smallest: float,
    largest: float,
) -> float:
    if finite:
        return min(scale * growth_factor, largest) if in_a_row + 1 == growth_interval else scale
    if growth_interval is None:
        return scale
    # Without a limit a loss of NaN would shrink the scale for ever, and skip every update in silence.
    if scale * backoff_factor < smallest:
        raise FloatingPointError(
            f"LossScaler: gradients are not finite with the scale {scale}, either, so it is not their "
            "size; tape_core.GradientTape(check_numerics=True) tells which operation is the first"
        )
    return scale * backoff_factor


@host_function
def _next_in_a_row(finite: Any, in_a_row: int, growth_interval: int | None) -> int:
    return in_a_row + 1 if finite and in_a_row + 1 != growth_interval else 0


@host_function
def _next_skipped(finite: Any, skipped: int) -> int:
    return skipped if finite else skipped + 1


def _times(gradient: Tensor | IndexedSlices | None, factor: float) -> Tensor | IndexedSlices | None:
    """Multiply on raw arrays, which no tape records."""
    if gradient is None:
        return None
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(_times(gradient.values, factor), gradient.indices, gradient.dense_shape)
    return wrap(gradient.array * factor, gradient.backend)
