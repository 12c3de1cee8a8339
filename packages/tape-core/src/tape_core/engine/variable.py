"""Variable: a Tensor whose value can be replaced. Reading one while a tape records watches it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import ref

from tape_core.base.ambient import ACTIVE, FORMER
from tape_core.base.lookup import ops
from tape_core.base.mistakes import flag
from tape_core.base.row_updates import rows_added
from tape_core.base.undoing import keep_former
from tape_core.engine import binding, cuts, layouts
from tape_core.engine.binding import Bound, bound_to
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.recording import check_assignable, report_assigned, special_dtype
from tape_core.engine.tensor import Tensor, report_copy, wrap
from tape_core.staging import current
from tape_core.typing import ArrayLike, DTypeLike, IndexKey, Raw, Slots

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

_serials = count()


def new_serial() -> int:
    """Return the number of a new Variable; a tape lists those that it watches in the order in which they were made."""
    return next(_serials)


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

    __slots__ = ("_deferred", "_followers", "_inexact", "_serial", "_special", "name", "trainable")

    name: str | None
    trainable: bool
    _deferred: Any  # see `tape_core.engine.deferred`; without a value as long as there is none
    _held_as: ClassVar[str] = "_raw"
    _read_op: ClassVar[Callable[[Variable], Tensor]]  # `tape_core.engine.reading` sets it

    def __init__(
        self,
        initial_value: ArrayLike,
        *,
        dtype: DTypeLike = None,
        trainable: bool = True,
        name: str | None = None,
        backend: str | Backend | None = None,
        device: str | None = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"Variable: name must be a str or None; got {name!r} of type {type(name).__name__}")
        trainable = flag("Variable", "trainable", trainable)
        value = ops.asarray(initial_value, dtype=dtype, backend=backend, device=device, copy=True)
        self._array = value._array
        self.backend = value.backend
        # A dict of its own from the start, not the shared NO_SLOTS: every tape that reads the Variable writes to it.
        self._slots = {}
        # Tapes ask for both at each read; the dtype never changes, so the answers are kept.
        self._inexact = value.dtype.inexact
        self._special = special_dtype(value.backend, value.dtype)
        self.trainable = trainable
        self.name = name
        self._serial = new_serial()
        self._followers: list[ref[Variable]] | None = None  # what moves with it, see `tape_core.engine.placement`

    def _refuse_move(self, what: str) -> None:
        """Raise if the value cannot go to another backend or device, as that of another library's object."""

    @property
    def _holder(self) -> Any:
        """The object whose attribute `_held_as` has the value; see `tape_core.engine.commit`."""
        return self

    @property
    def _place(self) -> Any:
        """The keeper of the value here, with `_raw`, `_home` and `_raw_slots`: the Variable itself or a `Bound`."""
        return self._bound() or self

    # While a function is traced, a Variable has in that context the value that the program has assigned to it so far,
    # in a binding the value that it is bound to, and everywhere else its real one. Hence properties; where there are
    # no traces and no bindings, ops read the slots `_raw`, `_home` and `_raw_slots`.

    @property
    def _array(self) -> Any:
        """The raw array."""
        if binding.in_use and (bound := bound_to(self)) is not None:
            return bound._raw
        trace = current()
        return self._raw if trace is None else trace.read(self)

    @_array.setter
    def _array(self, array: Raw) -> None:
        if binding.in_use and (bound := bound_to(self)) is not None:
            bound.assign(array)
            return
        trace = current()
        if trace is None:
            self._raw = array
        else:
            trace.write(self, array)

    @property
    def backend(self) -> Backend:
        """The backend of the array."""
        if binding.in_use and (bound := bound_to(self)) is not None:
            return bound._home
        stage = current()
        return self._home if stage is None else stage.tracing(self._home)

    @backend.setter
    def backend(self, backend: Backend) -> None:
        self._home = backend if current() is None else backend.library  # type: ignore[misc]  # the slot itself

    @property
    def _slots(self) -> Slots:
        """The slots of the value; see `Tensor`."""
        if binding.in_use and (bound := bound_to(self)) is not None:
            return bound._raw_slots
        return self._raw_slots

    @_slots.setter
    def _slots(self, slots: Slots) -> None:
        self._place._raw_slots = slots

    def _bound(self) -> Bound | None:
        """Return the value that the Variable is bound to here, or None."""
        return bound_to(self) if binding.in_use else None

    def _read(self) -> Tensor:
        """Return the value as a plain Tensor, and tell the recorders that it was read."""
        if binding.in_use and (bound := bound_to(self)) is not None:
            return bound.read()
        active = ACTIVE.get()
        if active:
            for tape in active:
                if tape._key not in self._slots:
                    tape._on_read(self)
        # The same dict of slots: for each recorder the Tensor and the Variable are one leaf.
        return wrap(self._array, self.backend, self._slots)

    @property
    def value(self) -> Tensor:
        """The value as a plain Tensor, which later assignments leave alone; reading it is an access.

        Each reading is a Tensor of its own: a gradient with respect to one is of what was computed from that one, and
        that with respect to the Variable is the sum over all.

        >>> import tape_core as tc
        >>> v = tc.Variable(3.0)
        >>> with tc.GradientTape() as tape:
        ...     a, b = v.value, v.value
        ...     y = a * a * b
        >>> [g.item() for g in tape.gradient(y, [a, b, v])]
        [18.0, 9.0, 27.0]
        """
        # The op leaves a record, so that each reading has a slot of its own; without a recorder nothing tells them
        # apart.
        if not ACTIVE.get():
            return self._read() if binding.in_use else wrap(self._array, self.backend)
        tensor: Tensor = Variable._read_op(self)
        return tensor

    def assign(self, value: ArrayLike) -> Variable:
        """Replace the value. Shape and dtype must be the variable's; nothing flows through an assignment.

        Python numbers, and lists of them, become the variable's dtype where nothing is lost by it: integers become
        floats, floats do not become integers.

        Raises:
            TypeError: a dtype that does not fit, or something that is no array, such as None.
            ValueError: another shape.
        """
        self._replace(self._assignable(value), "assign", value)
        return self

    def _assignable(self, value: ArrayLike) -> Any:
        """Return a value as a raw array that may be assigned now."""
        operand = self._operand(value, "assign")
        check_assignable(self)
        return operand

    def assign_add(self, delta: ArrayLike | IndexedSlices) -> Variable:
        """Add to the value; :class:`IndexedSlices` add to their rows, duplicates added up."""
        return self._update(delta, "assign_add", 1)

    def assign_sub(self, delta: ArrayLike | IndexedSlices) -> Variable:
        """Subtract from the value; :class:`IndexedSlices` subtract from their rows, duplicates added up."""
        return self._update(delta, "assign_sub", -1)

    def _update(self, delta: ArrayLike | IndexedSlices, method: str, sign: int) -> Variable:
        check_assignable(self)
        # Never in place: another thread may be reading the old value, and so may a signal handler.
        array = self._array
        if isinstance(delta, IndexedSlices):
            values, indices = delta.values._array, delta.indices._array
            cuts.on_assigned(delta.values, method)
            if delta.values.backend.library is not self.backend.library:
                raise TypeError(self._complaint(method, f"slices on backend {delta.values.backend.name!r}"))
            if delta.dtype is not self.dtype:
                raise TypeError(self._complaint(method, f"slices of dtype {delta.dtype}"))
            if delta.dense_shape != self.shape:
                raise ValueError(self._complaint(method, f"shape {delta.dense_shape}"))
            rows = values if sign == 1 else -values
            self._replace(rows_added(self.backend, array, indices, rows), method, delta.values)
            return self
        operand = self._operand(delta, method)
        if layouts.in_use:  # an operator knows nothing of a plain array beside one that is divided
            xp = self.backend.xp
            self._replace((xp.add if sign == 1 else xp.subtract)(array, operand), method, delta)
            return self
        self._replace(array + operand if sign == 1 else array - operand, method, delta)
        return self

    def _replace(self, array: Raw, method: str = "assign", given: object = None) -> None:
        if ACTIVE.get():
            report_assigned(self, array, method, given)
        if layouts.in_use or layouts.are_compared:
            array = self._in_layout(array, given)
        # A new value is a new leaf: what was read before keeps its own slots.
        slots: dict[int, int] = {}
        if FORMER.get():
            place = self._place
            keep_former([place._holder, place], [place._held_as, "_raw_slots"])
        self._array = array
        self._slots = slots

    def _in_layout(self, array: Raw, given: object) -> Raw:
        """Return a new value in the layout of the one that it is to replace, and count it."""
        former = self._array
        if layouts.in_use:
            array = layouts.settled([array], [former])[0]
        if layouts.are_compared and current() is None and self._bound() is None:
            layouts.count([self], [former], [array], given)
        return array

    def _operand(self, value: ArrayLike, method: str) -> Any:
        """Return `value` as a raw array of exactly this variable's shape and dtype."""
        backend, current = self.backend, self._array
        if isinstance(value, Tensor):
            # A constant of the same library may be assigned inside vmap or a trace. A value that was made inside may
            # not get into a Variable outside, where it means nothing.
            given = value.backend
            if given is not backend and (
                given.library is not backend.library
                or (given.height > backend.height and self._bound() is None)  # else `Bound.check` decides
            ):
                raise TypeError(self._complaint(method, f"a value on backend {given.name!r}") + _cure(given, backend))
            raw = value._array
            if value._slots:
                cuts.on_assigned(value, method)
        else:
            # Python values take the variable's dtype; arrays must have it.
            python = not hasattr(value, "dtype")
            if python:
                self._check_python(value, method)
            own = self.dtype if python else None
            fresh = ops.asarray(value, dtype=own, backend=backend, device=self.device, copy=True)
            raw = fresh._array
            if fresh._slots:
                cuts.on_assigned(fresh, method)
        if (shape := tuple(raw.shape)) != tuple(current.shape):
            raise ValueError(self._complaint(method, f"shape {shape}"))
        if raw.dtype is not current.dtype and (dtype := backend.dtype(raw.dtype)) is not self.dtype:
            raise TypeError(self._complaint(method, f"dtype {dtype}") + "; convert it with tape_core.astype")
        return raw

    def _check_python(self, value: ArrayLike, method: str) -> None:
        """Raise a TypeError unless Python values become the variable's dtype without loss; `dtype=` would truncate."""
        kind = _KINDS.get(type(value))
        if kind is None:
            try:
                found = ops.asarray(value, backend=self.backend)
            except TypeError as error:
                raise TypeError(self._complaint(method, repr(value)) + f": {error}") from None
            # An empty list loses nothing, and the default dtype that it gets here says nothing about it.
            if not found.size:
                return
            kind = found.dtype.kind
        if not _fits(kind, self.dtype.kind):
            raise TypeError(
                self._complaint(method, f"{value!r}, which {_CALLED[kind]},")
                + "; convert it with tape_core.asarray(..., "
                "dtype=...)"
            )

    def _complaint(self, method: str, what: str) -> str:
        label = f" {self.name!r}" if self.name else ""
        return (
            f"Variable.{method}: cannot take {what} into variable{label} of shape {self.shape}, dtype {self.dtype} "
            f"on backend {self.backend.name!r}"
        )

    def _text(self) -> str:
        label = f"{self.name!r}, " if self.name else ""
        return f"Variable({label}{self._describe()})"

    def __copy__(self) -> Variable:
        if ACTIVE.get():
            report_copy(self, sys._getframe(1))
        return Variable(wrap(self._array, self.backend), trainable=self.trainable, name=self.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        if ACTIVE.get():
            report_copy(self, sys._getframe(1))
        memo[id(self)] = twin = Variable(wrap(self._array, self.backend), trainable=self.trainable, name=self.name)
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (wrap(self._array, self.backend), self.trainable, self.name)

    def _refuse(self, other: object) -> NoReturn:
        raise RuntimeError(
            "`variable += value` and the like would replace the Variable by a Tensor; use variable.assign_add(value), "
            "assign_sub or assign to change its value, and `result = variable + value` for a new Tensor"
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = __imatmul__ = _refuse
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = _refuse

    def __setitem__(self, key: IndexKey, value: object) -> NoReturn:
        raise RuntimeError(
            "`variable[key] = value` is not an assignment that tapes see; make the new value and assign it: "
            "new = variable.value; new[key] = value; variable.assign(new)"
        )


def _cure(given: Backend, own: Backend) -> str:
    if given.library is own.library and given.level:
        return (
            "; inside vmap each example has a value of its own: give the Variable one there, by `with "
            "module.using(values) as bound:`, and return the new one, bound[name], from the function"
        )
    return f"; convert it with tape_core.asarray(value, backend={own.name!r})"


_KINDS = {bool: "bool", int: "signed integer", float: "real floating", complex: "complex floating"}
_CALLED = {
    "bool": "is bool",
    "signed integer": "is of integers",
    "unsigned integer": "is of integers",
    "real floating": "is of floats",
    "complex floating": "is complex",
}


def _fits(kind: str, own: str) -> bool:
    """Return whether Python values of a kind become values of another kind without a loss."""
    if kind == "bool" or own == "bool":
        return kind == own
    return kind.endswith("integer") or own == "complex floating" or kind == own


def _unpickled(value: Tensor, trainable: bool, name: str | None) -> Variable:
    return Variable(value, trainable=trainable, name=name)
