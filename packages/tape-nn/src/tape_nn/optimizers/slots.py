"""The slots of a Variable: what an optimizer keeps for it, as Variables between updates and as raw arrays in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import ref

from tape_core import Variable
from tape_core.backends import Backend
from tape_core.support import Commit, Old, Spare, layouts, placement, spare_of, wrap
from tape_core.typing import Namespace, Raw


class Slots(dict[str, Raw]):
    """The slots of one Variable, or of a block of it, as raw arrays by name.

    The methods compute a new value right in the memory where it will be kept, if that is known: for large arrays, new
    temporary memory costs as much as the arithmetic.

    Attributes:
        memory: arrays for the new values by the names of the slots, with that of the Variable as `""`; may be empty.
        library: the array library, whose functions take `out=`.
        formulas: what the library computes in fewer passes than by its operators, see `Backend.formulas`.
    """

    memory: Mapping[str, Raw] = MappingProxyType({})
    library: Any = None
    formulas: Mapping[str, Callable[..., Raw]] = MappingProxyType({})

    def add(self, name: str, change: Raw, decay: float | None = None) -> Raw:
        """Replace a slot by `slot + change`, or with `decay` by `slot * decay + change`, and return the new value.

        `change` is overwritten.
        """
        memory, x = self.memory.get(name), self[name]
        if memory is None or change is memory:
            change += x if decay is None else x * decay
        elif decay is None:
            change = self.library.add(change, x, out=memory)
        else:
            self.library.multiply(x, decay, out=memory)
            memory += change
            change = memory
        self[name] = change
        return change

    def lerp(self, name: str, x: Raw, weight: float) -> None:
        """Replace a slot by `slot + (x - slot) * weight`."""
        if (formula := self.formulas.get("lerp")) is not None:
            self[name] = self._by(formula, name, self[name], x, weight)
            return
        # By in-place operations: for large arrays new memory costs as much as the arithmetic.
        change = self.difference(name, x)
        change *= weight
        self.add(name, change)

    def lerp_square(self, name: str, x: Raw, weight: float) -> None:
        """Replace a slot by `slot + (x * x - slot) * weight`."""
        if (formula := self.formulas.get("lerp_square")) is not None:
            self[name] = self._by(formula, name, self[name], x, weight)
            return
        change = self.square(name, x)
        change -= self[name]
        change *= weight
        self.add(name, change)

    def accumulate(self, name: str, decay: float, x: Raw, scale: float) -> Raw:
        """Replace a slot by `slot * decay + x * scale`, and return the new value."""
        if (formula := self.formulas.get("accumulate")) is None:
            return self.add(name, x * scale, decay)
        found = self[name] = self._by(formula, name, self[name], decay, x, scale)
        return found

    def subtract_scaled(self, w: Raw, x: Raw, scale: float) -> Raw:
        """Return `w - x * scale`, the new value of the Variable."""
        formula = self.formulas.get("subtract_scaled")
        return self.subtract_step(w, x * scale) if formula is None else self._by(formula, "", w, x, scale)

    def subtract_root_quotient(self, xp: Namespace, w: Raw, a: Raw, b: Raw, epsilon: float, scale: float) -> Raw:
        """Return `w - a / (sqrt(b) + epsilon) * scale`, the new value of the Variable."""
        if (formula := self.formulas.get("subtract_root_quotient")) is not None:
            return self._by(formula, "", w, a, b, epsilon, scale)
        step = self.quotient(xp, a, b, epsilon)
        step *= scale
        return self.subtract_step(w, step)

    def _by(self, formula: Callable[..., Raw], name: str, *args: Any) -> Raw:
        memory = self.memory.get(name)
        return formula(*args) if memory is None else formula(*args, out=memory)

    def add_step(self, w: Raw, step: Raw) -> Raw:
        """Return `w + step`, the new value of the Variable."""
        if (formula := self.formulas.get("subtract_scaled")) is not None:
            return self._by(formula, "", w, step, -1.0)
        memory = self.memory.get("")
        return w + step if memory is None else self.library.add(w, step, out=memory)

    def subtract_step(self, w: Raw, step: Raw) -> Raw:
        """Return `w - step`, the new value of the Variable."""
        memory = self.memory.get("")
        return w - step if memory is None else self.library.subtract(w, step, out=memory)

    def difference(self, name: str, x: Raw) -> Raw:
        """Return `x - slot`, computed in the memory for the slot's new value."""
        memory = self.memory.get(name)
        return x - self[name] if memory is None else self.library.subtract(x, self[name], out=memory)

    def square(self, name: str, x: Raw) -> Raw:
        """Return `x * x`, computed in the memory for the slot's new value."""
        memory = self.memory.get(name)
        return x * x if memory is None else self.library.multiply(x, x, out=memory)

    def quotient(self, xp: Namespace, a: Raw, b: Raw, epsilon: float) -> Raw:
        """Return `a / (sqrt(b) + epsilon)`, computed in the memory for the Variable's new value."""
        memory = self.memory.get("")
        root = xp.sqrt(b) if memory is None else self.library.sqrt(b, out=memory)
        root += epsilon
        return a / root if memory is None else self.library.divide(a, root, out=memory)


class SlotState:
    """The slots of one Variable, which are Variables of the same shape.

    Attributes:
        started: the number of updates that the optimizer had applied before the first one of this Variable.
        spares: the spare memory of the Variable and of each slot, with its bytes; none where the library has none, and
            None before the first update of large arrays.
    """

    def __init__(self, variable: Variable, started: int, slots: dict[str, Raw]) -> None:
        self.variable = variable
        self.started = started
        if layouts.in_use:  # what was loaded may be whole
            lay_out, like = variable.backend.xp.laid_out_like, variable._array
            slots = {name: lay_out(array, like) for name, array in slots.items()}
        self.slots = {
            name: Variable(wrap(array, variable.backend), trainable=False, name=f"{variable.name or 'variable'}_{name}")
            for name, array in slots.items()
        }
        self.spares: list[tuple[Spare, int]] | None = None
        self._follow()

    def memory(
        self, commit: Commit, arrays: list[Raw], backend: Backend, old: Sequence[Old | None] = ()
    ) -> list[Raw | None]:
        """Return spare memory for new values of the Variable and its slots, where there is some, in their order.

        What they have now will be such memory after the commit.

        Args:
            arrays: what they have, or this process's parts of that.
            old: of those that are overwritten, and so need none, what `overwritable` has returned.
        """
        if not self._found_spares(arrays, backend):
            return [None] * len(arrays)
        assert self.spares is not None
        found: list[Raw | None] = []
        for k, (variable, x) in enumerate(zip([self.variable, *self.slots.values()], arrays, strict=True)):
            spare, nbytes = self.spares[k]
            if old and old[k] is not None:
                found.append(None)
                continue
            commit.keep(variable, spare, nbytes)
            found.append(backend.spare_memory(spare.kept, tuple(x.shape), x.dtype) if spare.kept else None)
        return found

    def overwritable(self, gradient: Raw, arrays: list[Raw], backend: Backend) -> list[Old | None]:
        """Return of the Variable and its slots, in their order, the values that may be overwritten.

        They are those that an update has made: memory of others may be a file's, say.

        Args:
            gradient, arrays: as they are, or this process's parts.
        """
        if not self._found_spares(arrays, backend):
            return [None] * len(arrays)
        assert self.spares is not None
        return [
            backend.old_value(v._raw, gradient) if spare.made is not None and spare.made() is v._raw else None
            for v, (spare, _) in zip([self.variable, *self.slots.values()], self.spares, strict=True)
        ]

    def _found_spares(self, arrays: list[Raw], backend: Backend) -> bool:
        """Return whether the library has spare memory, and find what there is for the Variable and its slots."""
        variables = [self.variable, *self.slots.values()]
        if self.spares is None:
            self.spares = []
            if backend.has_spares(self.variable._raw):
                self.spares = [(spare_of(v, "_raw"), backend.nbytes(x)) for v, x in zip(variables, arrays, strict=True)]
                for (spare, _), slot in zip(self.spares[1:], self.slots.values(), strict=True):
                    spare.made = ref(slot._raw)  # which the optimizer has made itself
        return bool(self.spares)

    def _follow(self) -> None:
        for slot in self.slots.values():
            placement.follow(self.variable, slot)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "spares": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of a copy, or of what was pickled, whose slots move with its own Variable."""
        vars(self).update(state)
        self.spares = None
        self._follow()
