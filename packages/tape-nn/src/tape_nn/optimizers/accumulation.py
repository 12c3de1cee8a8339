"""Gradient accumulation: one update for the gradients of several batches, as if they were one large batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeAlias

import tape_core as tc
from tape_core import IndexedSlices, Tensor, Variable
from tape_core.staging import HostNumber, Stage, current, guard, host_number, outside, stateful
from tape_core.support import Commit, check_assignable, integer, lenient, placement, rows_added, wrap
from tape_core.typing import ArrayLike, PyTree, Raw

from tape_nn.clipping import check_positive
from tape_nn.module import Module
from tape_nn.naming import copy_like, named_variables
from tape_nn.optimizers.agreement import Compared, compare_settings
from tape_nn.optimizers.pairs import check_gradient, check_pair, densified, names_of, paired, pairs_of_variables
from tape_nn.optimizers.rates import Schedule
from tape_nn.types import Gradient, OptimizerLike

_Pairs: TypeAlias = list[tuple[Gradient, Variable]]


class GradientAccumulation(Compared):
    """An optimizer around another one, which updates once for several batches, as if they were one large batch.

    `apply_gradients` adds gradients up; every `steps`-th call has the inner optimizer update the Variables with their
    mean. So clipping, schedules and weight decay see one update, and the gradient of the large batch.
    :func:`tape_nn.fit` does this with `accumulate=steps`.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> w = tc.Variable(1.0)
    >>> optimizer = nn.GradientAccumulation(nn.SGD(0.5), steps=2)
    >>> for gradient in (1.0, 3.0):
    ...     optimizer.apply_gradients([(gradient, w)])
    ...     w.item(), optimizer.iterations, optimizer.pending
    (1.0, 0, 1)
    (0.0, 1, 0)

    Where the batches have different numbers of examples, say how many: the mean is weighted by them. `flush` updates
    with what there is, where the data end in the middle:

    >>> optimizer.apply_gradients([(1.0, w)], examples=30)
    >>> optimizer.apply_gradients([(4.0, w)], examples=10)
    >>> optimizer.apply_gradients([(2.0, w)], examples=5)
    >>> optimizer.flush()
    >>> w.item()
    -1.875

    Layers that look at a whole batch, such as :class:`BatchNorm`, still see the small ones. Gradients of half precision
    are added up in float32. With a :class:`LossScaler` inside, a gradient that is not finite spoils the whole update,
    which is skipped; with the LossScaler outside, its batch alone.

    Args:
        optimizer: the optimizer that does the updates.
        steps: the number of batches for one update.
        reduction: `"mean"` if losses are means over the examples of a batch, `"sum"` if they are sums: then gradients
            are added up.

    Raises:
        TypeError: `optimizer` is no optimizer.
        ValueError: `steps` is not at least 1, or `reduction` something else.
    """

    # Compiled functions read and assign a `host_number()` in each call, as they do Variables.
    _count: Any = host_number()
    _total: Any = host_number()  # the number of examples so far
    _examples: Any = host_number()

    def __init__(self, optimizer: OptimizerLike, steps: int, reduction: Literal["mean", "sum"] = "mean") -> None:
        if not hasattr(optimizer, "apply_gradients") or isinstance(optimizer, type):
            raise TypeError(f"GradientAccumulation: optimizer must be one, such as nn.Adam(); got {optimizer!r}")
        if reduction not in ("mean", "sum"):
            raise ValueError(f"GradientAccumulation: reduction must be 'mean' or 'sum'; got {reduction!r}")
        self.optimizer = optimizer
        self.steps = integer("GradientAccumulation", "steps", steps, 1)
        self.reduction = reduction
        self._count, self._total, self._examples = 0, 0.0, 1.0
        self._sums: dict[int, _Sum] = {}  # by the id of the Variable, which the entry keeps alive

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy, or of what was pickled: its Variables have other ids."""
        vars(self).update(state)
        self._sums = {id(own.variable): own for own in self._sums.values()}

    @lenient
    def __repr__(self) -> str:
        reduction = "" if self.reduction == "mean" else f", reduction={self.reduction!r}"
        return f"GradientAccumulation({self.optimizer!r}, steps={self.steps}{reduction})"

    @property
    def pending(self) -> int:
        """The number of batches whose gradients wait for the next update."""
        return self._count  # type: ignore[no-any-return]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the inner optimizer."""
        return self.optimizer.learning_rate  # type: ignore[no-any-return]

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule) -> None:
        self.optimizer.learning_rate = value

    @property
    def iterations(self) -> int:
        """The number of updates applied."""
        return self.optimizer.iterations  # type: ignore[no-any-return]

    def scale_loss(self, loss: ArrayLike) -> ArrayLike:
        """Return the tensor to differentiate in place of the loss; see :class:`LossScaler`."""
        inner = getattr(self.optimizer, "scale_loss", None)
        return loss if inner is None else inner(loss)

    def set_examples(self, number: float) -> None:
        """Set the number of examples in the batches of the next calls that do not give it."""
        self._examples = check_positive("examples", number)

    def _holders(self) -> list[Any]:
        """All state that updates change, Variables of earlier batches among it; see `stateful`."""
        own = [getattr(GradientAccumulation, name).of(self) for name in ("_count", "_total", "_examples")]
        sums = [holder for found in self._sums.values() for holder in (found.variable, *found.holders())]
        return [*own, *sums, *(self.optimizer._holders() if hasattr(self.optimizer, "_holders") else ())]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]] | Module,
        variables: PyTree = None,
        *,
        examples: float | None = None,
    ) -> None:
        """Add the gradients of a batch to the sums; update the Variables if it is the last batch of an update.

        Args:
            grads_and_vars, variables: as for :meth:`Optimizer.apply_gradients`.
            examples: the number of examples that the loss is a mean of, by default 1: all batches count alike.

        Raises:
            TypeError, ValueError: as for :meth:`Optimizer.apply_gradients`. Nothing is changed.
        """
        pairs = list(paired(grads_and_vars, variables))
        number = None if examples is None else check_positive("examples", examples)
        self._prepare(pairs)
        self._apply(pairs, number)

    def _apply(self, pairs: _Pairs, examples: float | None) -> None:
        with self._slot_creation_lock(pairs):
            self._compute_update(pairs, examples).make()

    _apply.__name__ = "apply_gradients"  # in programs and messages
    _apply = stateful(_holders)(_apply)

    def _prepare(self, pairs: _Pairs) -> None:
        """Make the sums that are missing: before a trace, which must know of all state from the beginning."""
        new: list[Variable] = []
        for gradient, variable in pairs_of_variables(pairs):
            if gradient is not None and id(variable) not in self._sums and variable.dtype.inexact:
                new.append(variable)
                with outside():  # sums are made once, when a function is traced, and not in each call of it
                    self._sums[id(variable)] = _Sum(variable, self._is_lazy())
        compare_settings(self, new)
        if hasattr(self.optimizer, "_prepare"):
            self.optimizer._prepare(pairs)

    @stateful(_holders)
    def flush(self) -> None:
        """Update the Variables with the gradients that wait, if there are any."""
        if self._is_due(0):
            waiting: _Pairs = [(None, found.variable) for found in self._sums.values() if found.is_seen]
            with self._slot_creation_lock(waiting):
                self._update(waiting, {}, self._total).make()

    def _slot_creation_lock(self, pairs: _Pairs) -> AbstractContextManager[object]:
        lock = getattr(self.optimizer, "_slot_creation_lock", None)
        return nullcontext() if lock is None else lock(pairs)

    def _phase(self) -> tuple[object, ...]:
        """Return what decides which instructions a compiled function has; see `guard`."""
        count = GradientAccumulation._count.of(self).kept
        return (count == 0, count + 1 >= self.steps, *[found.seen.kept for found in self._sums.values()])

    def _is_due(self, more: int) -> bool:
        """Return whether, after `more` batches, there is something to update with now."""
        if current() is not None:
            guard(self._phase)
        holder = GradientAccumulation._count.of(self)
        if added := _added(holder):
            return not more or guard(lambda: holder.kept + added + more >= self.steps)
        count = _now(holder)
        return bool(count + more >= self.steps if more else count > 0)

    def _compute_update(self, grads_and_vars: Iterable[tuple[Gradient, Variable]], examples: Any = None) -> Commit:
        """Compute the sums or the update, without making it. The inner optimizer of somebody else is called."""
        gradients: dict[int, Raw | IndexedSlices] = {}
        pairs = [check_pair(pair) for pair in grads_and_vars]
        for gradient, variable in pairs:
            if gradient is None:
                continue
            check_assignable(variable)
            if not variable.dtype.inexact:
                raise TypeError(
                    f"only floating-point variables can be optimized; {names_of([variable])} has dtype {variable.dtype}"
                )
            if id(variable) in gradients:
                raise ValueError(f"{names_of([variable])} is there twice; add its gradients up")
            gradients[id(variable)] = check_gradient(gradient, variable)
        self._prepare(pairs)
        if not gradients:
            raise ValueError(
                f"No gradients provided for any variable. All are None: {names_of([v for _, v in pairs])}. Was the "
                "loss computed from them, inside the tape's block?"
            )
        examples = self._examples if examples is None else examples
        due = self._is_due(1)  # adds a guard to a trace; so first of all that reads the state
        total = self._total + examples
        weight = None if self.reduction == "sum" else examples
        if due:
            return self._update(pairs, gradients, total, weight)
        commit = Commit()
        for gradient, variable in pairs:
            if gradient is not None:
                found = self._sums[id(variable)]
                found.add(gradients[id(variable)], weight, found.is_seen, commit)
        _add_one(GradientAccumulation._count.of(self), commit)
        commit.value(GradientAccumulation._total.of(self), total)
        return commit

    def _update(
        self, pairs: _Pairs, gradients: Mapping[int, Raw | IndexedSlices], total: Any, weight: Any = None
    ) -> Commit:
        """Return one update of the inner optimizer, after which nothing waits."""
        holder = GradientAccumulation._count.of(self)
        nothing_waits = not _added(holder) and bool(_now(holder) == 0)
        given = {id(variable) for _, variable in pairs}
        # A Variable that has no gradient in this batch may have had one in those before.
        late = [(None, s.variable) for key, s in self._sums.items() if key not in given and s.is_seen]
        means: _Pairs = []
        for gradient, variable in (*pairs, *late):
            found = self._sums.get(id(variable))
            if found is None or (gradient is None and not found.is_seen):
                means.append((None, variable))
            elif not found.is_seen and nothing_waits:
                means.append((gradient, variable))  # as it is: weighted and divided it would be rounded
            else:
                divisor = None if self.reduction == "sum" else total
                means.append((found.mean(gradients.get(id(variable)), weight, divisor), variable))
        if hasattr(self.optimizer, "_compute_update"):
            commit: Commit = self.optimizer._compute_update(means)
        else:
            # One of somebody else has no commit to join.
            self.optimizer.apply_gradients(means)
            commit = Commit()
        for found in self._sums.values():
            commit.value(found.seen, 0)
        commit.value(GradientAccumulation._count.of(self), 0)
        commit.value(GradientAccumulation._total.of(self), 0.0)
        return commit

    def _is_lazy(self) -> bool:
        inner = self.optimizer
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        return bool(getattr(inner, "lazy", False))

    def state_dict(self, variables: Module | Mapping[str, Variable]) -> dict[str, Tensor]:
        """Return the state of the inner optimizer, with the sums; see :meth:`Optimizer.state_dict`."""
        names = {id(variable): name for name, variable in named_variables(variables)}
        state: dict[str, Tensor] = dict(self.optimizer.state_dict(variables))
        state["accumulation/count"] = tc.asarray(self._count, dtype=tc.int64)
        state["accumulation/examples"] = tc.asarray(self._total, dtype=tc.float64)
        for key, found in self._sums.items():
            if not found.is_seen:
                continue
            if key not in names:
                raise ValueError(
                    f"state_dict: {names_of([found.variable])} has gradients that wait and is not among the variables"
                )
            for part, holder in found.parts().items():
                state[f"accumulation/{names[key]}/{part}"] = tc.asarray(holder, copy=True)
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike], variables: Module | Mapping[str, Variable]) -> None:
        """Continue from a state that :meth:`state_dict` gave, or with no gradients from one of the inner optimizer.

        Raises:
            ValueError: as for :meth:`Optimizer.load_state_dict`.
        """
        own = {key.removeprefix("accumulation/"): value for key, value in state.items() if _is_own(key)}
        inner = {key: value for key, value in state.items() if not _is_own(key)}
        commit = Commit()
        sums = dict(self._sums)
        for found in sums.values():
            commit.value(found.seen, 0)
        for name, variable in named_variables(variables):
            if f"{name}/sum" not in own:
                continue
            found = sums.setdefault(id(variable), _Sum(variable, self._is_lazy()))
            for part, holder in found.parts().items():
                key = f"{name}/{part}"
                if key not in own:
                    raise ValueError(f"load_state_dict: 'accumulation/{key}' is missing")
                value = copy_like(own.pop(key), holder)
                if value.shape != holder.shape:
                    raise ValueError(
                        f"load_state_dict: 'accumulation/{key}' has shape {value.shape}; expected {holder.shape}"
                    )
                commit.value(holder, value._array)
            commit.value(found.seen, 1)
        count, total = int(own.pop("count", 0)), float(own.pop("examples", 0.0))
        if own:
            raise ValueError(f"load_state_dict: 'accumulation/{next(iter(own))}' is of no Variable here")
        self.optimizer.load_state_dict(inner, variables)
        commit.value(GradientAccumulation._count.of(self), count)
        commit.value(GradientAccumulation._total.of(self), total)
        commit.attribute(self, "_sums", sums)
        commit.make()


def _is_own(key: str) -> bool:
    return key.startswith("accumulation/")


def _now(holder: HostNumber) -> Any:
    """Return a number by which Python decides.

    In a trace that is the number before the call, on which there is a guard, until the function assigns it. Then it may
    be one that only a run knows: to decide by it raises an error, so that `stateful` makes the call opaque.
    """
    stage = current()
    return holder.kept if stage is None or _is_as_before(stage, holder) else holder._array


def _is_as_before(stage: Stage, holder: HostNumber) -> bool:
    """Return whether a number is at this point of the program what it was before the call, in branches too."""
    around: Stage | None = stage
    while around is not None:
        if around.repeats or around.is_assigned(holder):  # type: ignore[arg-type]
            return False
        around = around.parent
    return True


def _added(holder: HostNumber) -> int:
    """Return how many ones a trace has added to a number, if nothing else has happened to it there; otherwise 0."""
    number, added = (None, 0) if (stage := current()) is None else stage.notes.get(holder, (None, 0))
    return added if added and holder._array is number else 0


def _add_one(holder: HostNumber, commit: Commit) -> None:
    stage, added, number = current(), _added(holder), holder._array + 1
    if stage is not None and (added or _is_as_before(stage, holder)):
        stage.notes[holder] = number, added + 1
    commit.value(holder, number)


class _Sum:
    """The weighted sum of a Variable's gradients since the last update.

    Attributes:
        sum: it is what was left by the last update while `seen` is 0.
        rows: how often each row was named by sparse gradients; None where the optimizer is not lazy.
        seen: 1 if a gradient was added since the last update.
    """

    def __init__(self, variable: Variable, lazy: bool) -> None:
        self.variable = variable
        home, xp = variable.backend, variable.backend.xp
        zeros = xp.zeros_like(variable._array)
        if xp.finfo(zeros.dtype).bits < 32:  # sums of many half-precision numbers lose digits, or overflow
            zeros = xp.astype(zeros, xp.float32)
        name = variable.name or "variable"
        self.sum = Variable(wrap(zeros, home), trainable=False, name=f"{name}_gradient_sum")
        self.rows: Variable | None = None
        if lazy and variable.ndim:
            column = xp.zeros_like(zeros[(slice(None), *[0] * (variable.ndim - 1))])
            self.rows = Variable(wrap(column, home), trainable=False, name=f"{name}_rows")
        self.seen = HostNumber(0, "seen")
        self._follow()

    def _follow(self) -> None:
        for holder in self.parts().values():
            placement.follow(self.variable, holder)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy, or of what was pickled, whose sums move with its own Variable."""
        vars(self).update(state)
        self._follow()

    @property
    def is_seen(self) -> bool:
        """Whether a gradient was added since the last update."""
        return bool(_now(self.seen))

    def parts(self) -> dict[str, Variable]:
        """Return the Variables by their names in a state."""
        return {"sum": self.sum} | ({} if self.rows is None else {"rows": self.rows})

    def holders(self) -> list[Any]:
        return [*self.parts().values(), self.seen]

    def _added(self, gradient: Raw | IndexedSlices, weight: Any, seen: bool) -> tuple[Raw, Raw | None]:
        """Return the sum and the rows with one more gradient."""
        home = self.variable.backend
        xp, old = home.xp, self.sum._array
        values: Raw = gradient.values._array if isinstance(gradient, IndexedSlices) else gradient
        if values.dtype != old.dtype:
            values = xp.astype(values, old.dtype)
        if weight is not None:
            values = values * weight
        rows = None if self.rows is None else self.rows._array
        if not isinstance(gradient, IndexedSlices):
            return (old + values if seen else values), (None if rows is None else xp.ones_like(rows))
        indices = gradient.indices._array
        if rows is not None:
            named = xp.ones_like(values[(slice(None), *[0] * (len(values.shape) - 1))])
            rows = rows_added(home, rows if seen else xp.zeros_like(rows), indices, named)
        if seen:
            return rows_added(home, old, indices, values), rows
        return densified(xp, IndexedSlices(wrap(values, home), gradient.indices, gradient.dense_shape), old), rows

    def add(self, gradient: Raw | IndexedSlices, weight: Any, seen: bool, commit: Commit) -> None:
        """Put the sum with one more gradient into the commit."""
        total, rows = self._added(gradient, weight, seen)
        if total is gradient:  # the caller's array, into which the caller may write
            total = self.variable.backend.asarray(total, copy=True)
        commit.value(self.sum, total)
        if self.rows is not None:
            commit.value(self.rows, rows)
        commit.value(self.seen, 1)

    def mean(self, gradient: Raw | IndexedSlices | None, weight: Any, divisor: Any) -> Any:
        """Return the sum with a last gradient, divided, as a gradient for the inner optimizer."""
        seen, home = self.is_seen, self.variable.backend
        rows = None if self.rows is None else self.rows._array
        if gradient is None:
            total = self.sum._array
        else:
            total, rows = self._added(gradient, weight, seen)
        if divisor is not None:
            total = total / divisor
        if rows is None:
            return wrap(total, home)
        # A lazy optimizer updates the rows that were named. How many these are depends on values.
        (indices,) = home.xp.nonzero(rows)
        picked = home.xp.take(total, indices, axis=0)
        return IndexedSlices(wrap(picked, home), wrap(indices, home), self.variable.shape)
