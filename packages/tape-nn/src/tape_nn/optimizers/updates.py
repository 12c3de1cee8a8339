"""The update of one Variable: an optimizer's step in small arrays, in blocks, over old values, or in named rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, TypeAlias

from tape_core import IndexedSlices, Variable
from tape_core.backends import Backend
from tape_core.staging import current, value_of
from tape_core.support import ACTIVE, Call, Commit, Old, binding, layouts, may_overwrite, rows_added, wrap
from tape_core.typing import Namespace, Raw

from tape_nn.optimizers.pairs import beside
from tape_nn.optimizers.slots import Slots, SlotState

if TYPE_CHECKING:
    from tape_core.staging import Stage

    from tape_nn.optimizers.base import Optimizer

AddRows: TypeAlias = Callable[[Raw, Raw, Raw], Raw]
"""`add_rows(x, indices, rows)`: a copy of `x` with rows added."""


class Update:
    """One update of one Variable and its slots, which puts their new values into a commit.

    Attributes:
        factor: what the gradient is multiplied with, where its norm is clipped.
        rate: the learning rate of this Variable.
        t: the number of the update, counted from the Variable's first, which is 1.
    """

    __slots__ = ("factor", "optimizer", "rate", "state", "t", "xp")

    def __init__(
        self, optimizer: Optimizer, xp: Namespace, state: SlotState, factor: Raw | None, rate: float, t: int
    ) -> None:
        self.optimizer = optimizer
        self.xp = xp
        self.state = state
        self.factor = factor
        self.rate = rate
        self.t = t

    def dense(self, gradient: Raw, commit: Commit, *, spare: Raw | None = None, overwrite: bool = True) -> None:
        """Compute new values of the Variable and its slots. A large one may overwrite `spare`, a gradient of ours.

        With `overwrite` its old value and slots may be, too, by the commit.
        """
        xp, optimizer, state = self.xp, self.optimizer, self.state
        variable, slots = state.variable, state.slots
        is_plain = current() is None and not binding.in_use and type(variable) is Variable
        if is_plain:
            # `_home` and `_raw` are `backend` and `_array` without the properties' question whether a trace runs.
            backend = variable._home
            whole = [gradient, variable._raw, *[slot._raw for slot in slots.values()]]
        else:
            backend = variable.backend
            whole = [gradient, variable._array, *[slot._array for slot in slots.values()]]
        joined, laid_out = None, gradient
        if layouts.in_use:
            alike = backend.parts_alike(whole) if self.factor is None else None
            if alike is None:
                whole[0] = xp.laid_out_like(gradient, whole[1])
                if self.factor is not None:  # an array beside divided ones, and no part of one
                    whole[0], self.factor = whole[0] * self.factor, None
                alike = backend.parts_alike(whole)
            laid_out = whole[0]
            if alike is not None:
                whole, joined = alike
                spare = None
        stage = current()
        blocks = backend.blocks(whole)
        if stage is not None and (formulas := self._late_formulas(stage, backend, whole)):
            g, *old = whole
            new = self._block(backend, g, old, formulas=formulas)
            stage.put_off([variable, *slots.values()], new, self._of_this_run(g))
        elif type(blocks) is list:  # small arrays come back whole
            g, *old = whole
            if optimizer._in_place:
                old = [backend.asarray(array, copy=True) for array in old]
            new = self._block(backend, g, old)
        elif (
            overwrite
            and is_plain
            and spare is None
            and optimizer._is_of_formulas()
            and may_overwrite()
            and any(old := state.overwritable(whole[0], whole[1:], backend))
        ):
            # Where somebody has got an old value meanwhile the same is computed beside it.
            otherwise = partial(self.dense, laid_out, overwrite=False)
            new = self._written_over(backend, whole, old, commit, otherwise)
        else:  # large ones in blocks that stay in the cache through all operations of a step
            new = state.memory(commit, whole[1:], backend) if is_plain else [None] * len(whole[1:])
            # `spare` may be the gradient itself: a block of it is overwritten only after the step has read it.
            if new[0] is None and not optimizer._in_place:
                new[0] = spare
            new = [xp.empty_like(x) if memory is None else memory for x, memory in zip(whole[1:], new, strict=True)]
            for (g, *old), targets in zip(blocks, backend.blocks(new), strict=True):
                if optimizer._in_place:
                    for target, part in zip(targets, old, strict=True):
                        target[...] = part
                    old = targets
                found = self._block(backend, g, old, targets)
                for target, part in zip(targets, found, strict=True):
                    if part is not target:
                        target[...] = part
        if joined is not None:
            new = joined(new)
        commit.value(variable, new[0], wrap(new[0], backend) if ACTIVE.get() else None)
        for slot, array in zip(slots.values(), new[1:], strict=True):
            commit.value(slot, array)

    def _late_formulas(self, stage: Stage, backend: Backend, whole: list[Raw]) -> Mapping[str, Callable[..., Raw]]:
        """Return formulas with which a trace records the update, and does not compute it; none where it computes it."""
        g, w, *slots = whole
        real, raw = self.state.variable._home, self.state.variable._raw
        if not self.optimizer._is_of_formulas() or not real.has_spares(raw):
            return {}
        alike = real.parts_alike([raw]) if layouts.in_use else None
        if type(real.blocks([raw] if alike is None else alike[0])) is list:
            return {}  # small, or of a library that computes it beside the old values in any case
        if any([x.shape != w.shape or x.dtype != w.dtype for x in (g, *slots)]):
            return {}
        return stage.late_formulas(backend, [self.state.variable, *self.state.slots.values()], w)

    def _of_this_run(self, gradient: Raw) -> Callable[..., None]:
        """Return what computes the update with the values of the run that a trace records."""
        xp = self.state.variable._home.xp
        numbers = map(value_of, (self.factor, self.rate, self.t))
        return partial(Update(self.optimizer, xp, self.state, *numbers).dense, value_of(gradient))

    def rows(self, slices: IndexedSlices, commit: Commit, first: Raw | None) -> bool:
        """Update the rows that a sparse gradient names; return False if the update is not confined to them.

        With `first` a row is changed by its first name alone.
        """
        xp, optimizer, state = self.xp, self.optimizer, self.state
        decay = optimizer._decay_of(state.variable)
        if decay and not optimizer.lazy:
            return False  # weight decay moves all rows
        variable, backend = state.variable, state.variable.backend
        rows = self._clipped(slices.values.array)
        # A plain dict, no `Slots`: rows are not computed in prepared memory.
        slots = {name: slot._array for name, slot in state.slots.items()}
        add_rows: AddRows = partial(rows_added, backend)
        if first is not None:
            mask = beside(xp, first, rows)

            def add_rows(x: Raw, indices: Raw, by: Raw) -> Raw:
                return rows_added(backend, x, indices, xp.where(mask, by, 0))

        w, indices = variable._array, slices.indices.array
        if decay:
            w = add_rows(w, indices, xp.take(w, indices, axis=0) * -(self.rate * decay))
        array = optimizer._step_rows(xp, w, indices, rows, slots, self.rate, self.t, add_rows)
        if array is None:
            return False
        commit.value(variable, array, wrap(array, backend) if ACTIVE.get() else None)
        for name, slot in state.slots.items():
            commit.value(slot, slots[name])
        return True

    def _written_over(
        self,
        backend: Backend,
        whole: list[Raw],
        old: list[Old | None],
        commit: Commit,
        otherwise: Callable[[Commit], None],
    ) -> list[Raw]:
        """Return arrays that have the new values of the Variable and its slots once the commit has been made.

        Args:
            whole: the gradient, the Variable's value and those of its slots, or this process's parts.
            old: of those that are written over, their memory; see `SlotState.overwritable`.
            otherwise: see `Commit.overwrite`.
        """
        state = self.state
        memory = state.memory(commit, whole[1:], backend, old)
        new = [
            over.memory if over is not None else self.xp.empty_like(x) if spare is None else spare
            for over, spare, x in zip(old, memory, whole[1:], strict=True)
        ]
        read = [x if over is None else over.memory for x, over in zip(whole[1:], old, strict=True)]
        fresh = [k for k, over in enumerate(old) if over is None]
        calls: list[Call] = []
        formulas, pieces = None, 0
        for g, *parts in backend.blocks([whole[0], *read, *[new[k] for k in fresh]]):
            before = parts[: len(read)]
            targets = [*before]
            for k, part in zip(fresh, parts[len(read) :], strict=True):
                targets[k] = part
            formulas = formulas or backend.overwriting(g, calls)
            found = self._block(backend, g, before, targets, formulas)
            assert all(map(is_, found, targets))
            pieces += 1
        watched = [over.watched(pieces) for over in old if over is not None]
        assert state.spares is not None
        written = [
            (v, spare)
            for v, (spare, _), over in zip([state.variable, *state.slots.values()], state.spares, old, strict=True)
            if over is not None
        ]
        counts = [count for own, _ in watched for count in own]
        commit.overwrite(written, counts, [n for _, own in watched for n in own], calls, otherwise)
        return new

    def _block(
        self,
        backend: Backend,
        g: Raw,
        old: list[Raw],
        targets: list[Raw] | None = None,
        formulas: Mapping[str, Callable[..., Raw]] | None = None,
    ) -> list[Raw]:
        """Return new arrays for a block of the Variable and of its slots, in the order of `old`.

        Args:
            g: the gradient's block, which is not yet clipped.
            targets: the blocks of memory that the new arrays will be copied to; if `_in_place` is False, a step
                computes some of them right there.
            formulas: by default those of the backend.
        """
        optimizer, state = self.optimizer, self.state
        g = self._clipped(g)
        w, *rest = old
        slots = Slots(zip(state.slots, rest, strict=True))
        slots.formulas = backend.formulas(w) if formulas is None else formulas
        if targets is not None and not optimizer._in_place:
            slots.library = backend.namespace
            slots.memory = dict(zip(("", *state.slots), targets, strict=True))
        if (optimizer.weight_decay or optimizer.groups) and (decay := optimizer._decay_of(state.variable)):
            # Not in place: `w` may be the Variable's own array, which records of a tape still hold.
            w = w * (1 - self.rate * decay)
        w = optimizer._step(self.xp, w, g, slots, self.rate, self.t)
        return [w, *slots.values()]

    def _clipped(self, g: Raw) -> Raw:
        if self.factor is not None:
            return g * self.factor
        limit = self.optimizer.clipvalue
        return g if limit is None else self.xp.clip(g, -limit, limit)
