"""Variable: a Tensor whose value can be replaced. Reading one while a tape records watches it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

from tape_core.indexed_slices import IndexedSlices
from tape_core.recording import ACTIVE, ASSIGNING, LISTENERS
from tape_core.tensor import ArrayLike, Tensor, wrap

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

_serial = count()


class Variable(Tensor):
    """A mutable Tensor: a parameter.

    A tape records the value that was read, so a later assignment never changes a gradient.

    >>> import tape_core as tc
    >>> v = tc.Variable(2.0)
    >>> with tc.GradientTape() as tape:
    ...     y = v * v
    >>> v.assign_add(1.0)
    Variable(3.0, shape=(), dtype=float32, backend=numpy)
    >>> tape.gradient(y, v)
    Tensor(4.0, shape=(), dtype=float32, backend=numpy)

    Args:
        initial_value: a Tensor, a raw array, or a (nested list of) Python scalars; copied.
        dtype: as in :func:`~tape_core.asarray`; by default the value's own.
        trainable: whether tapes watch it of themselves when it is read.
        name: shown when it is printed and in messages.
        backend, device: where it lives; as in :func:`~tape_core.asarray`.
    """

    __slots__ = ("_complex", "_inexact", "_serial", "name", "trainable")

    name: str | None
    trainable: bool

    def __init__(
        self,
        initial_value: ArrayLike,
        *,
        dtype: Any = None,
        trainable: bool = True,
        name: str | None = None,
        backend: str | Backend | None = None,
        device: str | None = None,
    ) -> None:
        from tape_core.ops.creation import asarray

        value = asarray(initial_value, dtype=dtype, backend=backend, device=device, copy=True)
        self._array = value._array
        self.backend = value.backend
        self._slots = {}
        self._inexact = value.dtype.inexact
        self._complex = value.dtype.kind == "complex floating"
        self.trainable = bool(trainable)
        self.name = name
        self._serial = next(_serial)

    def _read(self) -> Tensor:
        """The value as a plain Tensor; tapes that watch what is accessed learn of it here."""
        active = ACTIVE.get()
        if active:
            for tape in active:
                if tape._key not in self._slots:
                    tape._on_read(self)
        return wrap(self._array, self.backend, self._slots)

    @property
    def value(self) -> Tensor:
        """The value as a plain Tensor, which later assignments leave alone; reading it is an access."""
        tensor = self._read()
        # Slots of its own, those of the tapes that record now: one that watches the variable later, or paused, has
        # not seen this read.
        slots = self._slots
        tensor._slots = {tape._key: slots[tape._key] for tape in ACTIVE.get() if tape._key in slots}
        return tensor

    def assign(self, value: ArrayLike) -> Variable:
        """Replace the value. Shape and dtype must be the variable's; nothing flows through an assignment."""
        operand = self._operand(value, "assign")
        check_assignable(self)
        self._replace(operand, "assign", value)
        return self

    def assign_add(self, delta: ArrayLike | IndexedSlices) -> Variable:
        """Add to the value; :class:`IndexedSlices` add to their rows, duplicates added up."""
        return self._update(delta, "assign_add", 1)

    def assign_sub(self, delta: ArrayLike | IndexedSlices) -> Variable:
        """Subtract from the value; :class:`IndexedSlices` subtract from their rows, duplicates added up."""
        return self._update(delta, "assign_sub", -1)

    def _update(self, delta: Any, method: str, sign: int) -> Variable:
        check_assignable(self)
        xp = self.backend.xp
        # 2: this frame's local and the variable itself. In place only if no record or caller sees the old value.
        array = self._array
        exclusive = self.backend.is_exclusive(array, 2)
        if isinstance(delta, IndexedSlices):
            values, indices = delta.values._array, delta.indices._array
            if delta.values.backend.library is not self.backend.library:
                raise TypeError(self._complaint(method, f"slices on backend {delta.values.backend.name!r}"))
            if delta.dtype is not self.dtype:
                raise TypeError(self._complaint(method, f"slices of dtype {delta.dtype}"))
            if delta.dense_shape != self.shape:
                raise ValueError(self._complaint(method, f"shape {delta.dense_shape}"))
            rows = values if sign == 1 else -values
            self._replace(xp.add_rows(array, indices, rows, in_place=exclusive), method, delta.values)
            return self
        operand = self._operand(delta, method)
        if exclusive and array.shape:
            if sign == 1:
                array += operand
            else:
                array -= operand
            self._replace(array, method, delta)
        else:
            self._replace(array + operand if sign == 1 else array - operand, method, delta)
        return self

    def _replace(self, array: Any, method: str = "assign", given: Any = None) -> None:
        if LISTENERS:
            LISTENERS[0].assigned(self, array, method, given)
        self._array = array
        # A new value is a new leaf: what was read before keeps its own slots.
        self._slots = {}

    def _operand(self, value: Any, method: str) -> Any:
        """`value` as a raw array of exactly this variable's shape and dtype."""
        from tape_core.ops.creation import asarray

        own = self.dtype
        if isinstance(value, Tensor):
            if value.backend.library is not self.backend.library or value.backend.height > self.backend.height:
                raise TypeError(
                    self._complaint(method, f"a value on backend {value.backend.name!r}")
                    + f"; convert it with tape_core.asarray(value, backend={self.backend.name!r})"
                )
            raw = value._array
        else:
            # Python values take the variable's dtype; arrays must have it.
            python = not hasattr(value, "dtype")
            fresh = asarray(value, dtype=own if python else None, backend=self.backend, device=self.device, copy=True)
            raw = fresh._array
        if tuple(raw.shape) != self.shape:
            raise ValueError(self._complaint(method, f"shape {tuple(raw.shape)}"))
        if (dtype := self.backend.dtype(raw.dtype)) is not own:
            raise TypeError(self._complaint(method, f"dtype {dtype}") + "; convert it with tape_core.astype")
        return raw

    def _complaint(self, method: str, what: str) -> str:
        label = f" {self.name!r}" if self.name else ""
        return (
            f"Variable.{method}: cannot take {what} into variable{label} of shape {self.shape}, dtype {self.dtype} "
            f"on backend {self.backend.name!r}"
        )

    def __repr__(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        return f"Variable({label}{self._describe()})"

    def __copy__(self) -> Variable:
        return Variable(wrap(self._array, self.backend), trainable=self.trainable, name=self.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        memo[id(self)] = twin = self.__copy__()
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (wrap(self._array, self.backend), self.trainable, self.name)

    def _refuse(self, other: Any) -> NoReturn:
        raise RuntimeError(
            "`variable += value` and the like would replace the Variable by a Tensor; use variable.assign_add(value), "
            "assign_sub or assign to change its value, and `result = variable + value` for a new Tensor"
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = _refuse
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _refuse

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise RuntimeError(
            "`variable[key] = value` is not an assignment that tapes see; make the new value and assign it: "
            "new = variable.value; new[key] = value; variable.assign(new)"
        )


def check_assignable(variable: Variable) -> None:
    """Before an assignment: raises where it must not be."""
    if (check := ASSIGNING.get()) is not None:
        check(variable)


def _unpickled(value: Tensor, trainable: bool, name: str | None) -> Variable:
    return Variable(value, trainable=trainable, name=name)
