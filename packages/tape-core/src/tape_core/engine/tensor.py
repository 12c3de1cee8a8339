"""Tensor: a handle on one backend array, and where the tapes that know it keep it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from html import escape
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tape_core.backends.discovery import backend_of_type, is_host_data
from tape_core.backends.selection import select
from tape_core.base.ambient import ACTIVE, OPEN_AXES
from tape_core.base.forking import Lock
from tape_core.base.lookup import instead_of_scipy, ops
from tape_core.base.reprs import lenient
from tape_core.base.thresholds import LARGE_DISPLAY_ELEMENTS
from tape_core.base.unasked import unasked
from tape_core.base.user_code import is_ours, library_of, warn_user
from tape_core.engine import cuts
from tape_core.engine.hints import without_absent
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.recording import report_leave
from tape_core.staging import current
from tape_core.typing import ArrayLike, Raw, Slots

if TYPE_CHECKING:
    from types import ModuleType

    from tape_core.backends.protocol import Backend
    from tape_core.base.dtypes import DType
    from tape_core.engine.recording import Recorder

if TYPE_CHECKING:
    from tape_core.engine.attached import Attached
else:
    Attached = object

SCALARS: Final = frozenset({bool, int, float, complex})
"""Python scalars stay what they are until the kernel: weak promotion, no conversion cost."""

Number = TypeVar("Number", bool, int, float, complex)

NO_SLOTS: Final[Slots] = {}
"""The slots of a Tensor no tape has met; shared, so never written to (see `own_slots`)."""


def _value_of(convert: type[Number], array: Raw, backend: Backend) -> Number:
    """Return `convert` of an array with one value."""
    try:
        return convert(array)
    except RuntimeError as error:
        # PyTorch has no `int` of a uint64 that int64 cannot hold; NumPy has.
        if type(error) is not RuntimeError or array.shape != () or "overflow" not in str(error):
            raise
        return convert(backend.numpy(array))


def _number(convert: type[Number], array: Raw, backend: Backend) -> Number:
    """Return the one value of an array as a Python number."""
    if type(array) is backend.divided_class and array.shape == ():
        array = backend.whole(array)
    try:
        return _value_of(convert, array, backend)
    except Exception as error:
        if type(error) not in (TypeError, ValueError, RuntimeError) or array.shape == ():
            raise
        raise TypeError(
            f"{convert.__name__}() needs a tensor without dimensions; this one has shape {tuple(array.shape)}"
        ) from error


_real_scalars: set[type] = set()  # types of libraries' scalars that were met, such as numpy.float32


def _check_real(tensor: Tensor, convert: type[int | float]) -> None:
    """Raise a TypeError for a complex value, of which NumPy would drop the imaginary part."""
    if tensor.dtype.kind == "complex floating":
        raise TypeError(
            f"{convert.__name__}() of a complex tensor would drop its imaginary part; take its real or imag, or abs(x)"
        )
    if type(tensor._array) in tensor.backend.scalar_types:
        _real_scalars.add(type(tensor._array))


class TensorType(type):
    """The class of the class Tensor: it hides from `dir` the names that are there for the hints in their errors."""

    def __dir__(cls) -> list[str]:
        return without_absent(cls, super().__dir__())


class Tensor(Attached, metaclass=TensorType):
    """A handle on one array of a backend.

    Made by :func:`tape_core.asarray` and by every op; not by calling the class. It has the operators, the
    attributes and the methods of an array of the Array API standard.

    >>> import tape_core as tc
    >>> tc.asarray([1.0, 2.0]) * 3
    Tensor([3. 6.], shape=(2,), dtype=float32, backend=numpy)
    """

    # _slots: for each recorder that knows this value, by the recorder's key, where it keeps the value: on a tape an
    # integer, the place in its list, so that a Tensor never references a tape. Forward mode has the tangent there, a
    # Tensor, and the detector of sparsity an index set: those live as long as the value.
    # A record that saves this value holds the same dict, so it sees later watches.
    __slots__ = ("__weakref__", "_array", "_slots", "backend")

    _array: Any
    _slots: Slots
    backend: Backend
    _raw: Any
    _home: Backend
    _raw_slots: Slots

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("Tensor is not made by calling it; use tape_core.asarray(values, dtype=...)")

    # -- the value

    @property
    def array(self) -> Any:
        """The backend's own array. Records share it: treat it as read-only."""
        # The caller's frame tells use by the user, which cuts the path, from Tape's own use.
        if ACTIVE.get():
            report_leave(self, "array", sys._getframe(1))
        return self.backend.public(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return tuple(self._array.shape)

    @property
    def dtype(self) -> DType:
        """The data type."""
        return self.backend.dtype(self._array.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._array.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for length in self._array.shape:
            size *= int(length)
        return size

    @property
    def device(self) -> str:
        """The device the array lives on."""
        return self.backend.device(self._array)

    def to_device(self, device: str, /, *, stream: object = None) -> Tensor:
        """Return this tensor on another device; the gradient travels back."""
        select(self.backend, device)  # raises where there is no such device
        return ops.to_device(self, device, self.device)

    def numpy(self) -> Any:
        """Return the values as a `numpy.ndarray`: a copy, so that writing to it changes nothing here. Cuts the path."""
        if ACTIVE.get():
            _report_leave_to_library(self, "numpy()", sys._getframe(1))
        return self.backend.numpy(self.array).copy()

    def to_numpy(self) -> Any:
        """Return the values as `numpy()` does. Libraries of plots and tables ask arrays for this name."""
        if ACTIVE.get():
            _report_leave_to_library(self, "to_numpy()", sys._getframe(1))
        return self.backend.numpy(self.array).copy()

    def item(self) -> float:
        """Return the value of a tensor of one element as a Python scalar. Cuts the path."""
        # The type is what a float, an int and a bool have in common; the dtype, which decides, is in no type.
        if ACTIVE.get():
            _report_leave_to_library(self, "item()", sys._getframe(1))
        if self.size != 1:
            raise ValueError(f"item() needs a tensor of one element; this one has shape {self.shape}")
        kind = self.dtype.kind
        convert: Any = {"bool": bool, "real floating": float, "complex floating": complex}.get(kind, int)
        value = self._array if self._array.shape == () else self.backend.xp.reshape(self._array, ())
        result: float = _value_of(convert, value, self.backend)
        return result

    def tolist(self) -> list[Any]:
        """Return the values as nested Python lists of scalars. Cuts the path."""
        if ACTIVE.get():
            _report_leave_to_library(self, "tolist()", sys._getframe(1))
        values: list[Any] = self.backend.numpy(self.array).tolist()
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if ACTIVE.get():
            report_leave(self, "__array__", sys._getframe(1))
            _warn_of_cut(self, "a NumPy array is made")
        values = self.backend.numpy(self.array)
        return values.astype(dtype) if dtype is not None and dtype != values.dtype else values.copy()

    if TYPE_CHECKING:  # NumPy's own functions; `tape_core.interop.numpy_hooks` sets these

        def __array_ufunc__(self, ufunc: Any, method: str, /, *inputs: Any, **kwargs: Any) -> Any: ...
        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any: ...

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        # When it is called: the package imports this module.
        import tape_core

        return tape_core

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """Return the values for another library: DLPack does not carry the path, so it is cut."""
        if ACTIVE.get():
            report_leave(self, "__dlpack__", sys._getframe(1))
            library = library_of(sys._getframe(1)) or "another library"
            _warn_of_cut(self, f"{library} takes the values, by __dlpack__,")
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        array = self.backend.whole(self.array)
        return array.__dlpack__(**{name: value for name, value in given.items() if value is not None})

    def __dlpack_device__(self) -> tuple[Any, int]:
        """Return the device in DLPack's terms."""
        device: tuple[Any, int] = self.array.__dlpack_device__()
        return device

    def __bool__(self) -> bool:
        if ACTIVE.get():
            cuts.on_truth_asked()
        try:
            return _value_of(bool, self._array, self.backend)
        except (TypeError, ValueError, RuntimeError) as error:
            if self.size == 1:
                raise
            raise ValueError(
                f"the truth value of a tensor of shape {self.shape} is ambiguous; use tape_core.any or tape_core.all"
            ) from error

    def __int__(self) -> int:
        if ACTIVE.get():
            report_leave(self, "int()", sys._getframe(1))
        array = self._array
        if type(array) not in _real_scalars:
            _check_real(self, int)
        return _number(int, array, self.backend)

    def __float__(self) -> float:
        if ACTIVE.get():
            _report_leave_to_library(self, "float()", sys._getframe(1))
        array = self._array
        if type(array) not in _real_scalars:
            _check_real(self, float)
        return _number(float, array, self.backend)

    def __complex__(self) -> complex:
        if ACTIVE.get():
            _report_leave_to_library(self, "complex()", sys._getframe(1))
        return _number(complex, self._array, self.backend)

    def __index__(self) -> int:
        if ACTIVE.get():
            report_leave(self, "__index__", sys._getframe(1))
        return self.backend.public(self._array).__index__()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        if self._array.shape == ():
            raise TypeError("len() of a 0-d tensor")
        return int(self._array.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if self._array.shape == ():
            raise TypeError("a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(len(self)))

    __hash__ = object.__hash__

    def _rebind(self, result: Tensor) -> Tensor:
        """Stand for another value from now on, as by assignment and in-place operators.

        Arrays are never written to, so what was recorded or computed before keeps the old value.
        """
        self._array = result._array
        self._slots = result._slots
        self.backend = result.backend  # another one where a constant becomes an example, or is traced
        return self

    def __copy__(self) -> Tensor:
        return wrap(self._array, self.backend, twin_slots(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        memo[id(self)] = twin = self.__copy__()
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.backend.numpy(self.array), self.backend.name, self.device, self.dtype)

    def __dir__(self) -> list[str]:
        return without_absent(type(self), super().__dir__())

    # -- printing

    def _describe(self) -> str:
        text = self.backend.format(self.array)
        place = self.backend.place(self.array)
        where = f", {place}" if place else ""
        return f"{text}, shape={self.shape}, dtype={self.dtype}, backend={self.backend.name}{where}"

    def _text(self) -> str:
        return f"Tensor({self._describe()})"

    @lenient
    def __repr__(self) -> str:
        return self._text()

    def _repr_html_(self) -> str:
        """Return the display in a notebook: the values, and of many real ones their range and mean as well."""
        lines = [repr(self)]
        # In a trace or inside vmap an array has no values of its own, and a text that says so; others are of no use any
        # more, or belong to other processes.
        with suppress(AttributeError, RuntimeError, TypeError, ValueError):
            plain = current() is None and not OPEN_AXES.get()
            if plain and self.size > LARGE_DISPLAY_ELEMENTS and self.dtype.kind == "real floating":
                from tape_core.backends.texts import extent

                least, mean, most = extent(self.backend, self.array)
                lines.append(f"minimum {least:.6g}, mean {mean:.6g}, maximum {most:.6g}")
        return f"<pre>{escape(chr(10).join(lines))}</pre>"

    def __str__(self) -> str:
        self.backend.tell(self._array)
        return self._text()

    def __format__(self, spec: str) -> str:
        if spec and self.size != 1:
            raise TypeError(
                f"the format {spec!r} is for one number; this tensor has shape {self.shape}: format its elements, "
                f"[f'{{n:{spec}}}' for n in x.ravel().tolist()], or print x.numpy() under numpy.printoptions"
            )
        return format(self.item(), spec) if spec else str(self)


def _unpickled(values: Raw, backend: str, device: str, dtype: DType | None = None) -> Tensor:
    """Return the Tensor of pickled values, on the device where they were. No tape knows it: tapes are not pickled."""
    return ops.asarray(values, dtype=dtype, backend=backend, device=device)


def _warn_of_cut(tensor: Tensor, what: str, cure: str = "") -> None:
    """Warn that a protocol of arrays takes the values of a recorded Tensor. Who calls numpy() means it."""
    if any([_knows(tape, tensor) for tape in ACTIVE.get()]):
        kind = "Tensor" if type(tensor) is Tensor else type(tensor).__name__
        cure = cure or instead_of_scipy(sys._getframe(2))
        warn_user(
            f"{what} of a {kind} of shape {tensor.shape} that a tape is recording: no gradient comes back from what is "
            f"computed with it; {cure}{'; ' if cure else ''}where that is meant, use its numpy(), or "
            f"tape_core.stop_gradient",
            past_numpy=True,
        )


# The slots themselves, by names that a Variable does not replace: its `_array` and `backend` ask a running trace, and
# all three a binding.
Tensor._raw = Tensor.__dict__["_array"]
Tensor._home = Tensor.__dict__["backend"]
Tensor._raw_slots = Tensor.__dict__["_slots"]


def _report_leave_to_library(tensor: Tensor, method: str, caller: FrameType) -> None:
    """Report that a method takes values out, and warn if another library has called it; users who call it mean it."""
    report_leave(tensor, method, caller)
    library = library_of(caller)
    if library is not None:
        _warn_of_cut(tensor, f"{library} takes the values, by {method},")
    elif not is_ours(caller) and (found := unasked(caller)) is not None:
        _warn_of_cut(tensor, *found)


def report_copy(variable: Tensor, caller: FrameType) -> None:
    """Warn if another library copies a Variable that a tape knows: the copy is a Variable of its own."""
    frame: FrameType | None = caller
    while frame is not None and frame.f_globals.get("__name__") == "copy":
        frame = frame.f_back
    library = None if frame is None else library_of(frame)
    if library is not None:
        _warn_of_cut(variable, f"{library} makes a copy, a Variable of its own,")


def _knows(tape: Recorder, tensor: Tensor) -> bool:
    """Return whether a tape has recorded a value, or would if it were read: a Variable may not have been, so far."""
    if tape._key in tensor._slots:
        return True
    return type(tensor) is not Tensor and tape._watches(tensor)  # type: ignore[arg-type]  # any other is a Variable


_new = object.__new__


def wrap(array: Raw, backend: Backend, slots: Slots = NO_SLOTS) -> Tensor:
    """Return a Tensor of a raw array."""
    # Past `__init__`, which refuses, so that users make Tensors by `asarray` only.
    tensor: Tensor = _new(Tensor)
    tensor._array = array
    tensor._slots = slots
    tensor.backend = backend
    return tensor


def alias(tensor: Tensor) -> Tensor:
    """Return another Tensor of the same value, known to whoever knows the value now.

    A function that is given it may change it in place, by `x += y` or `x[key] = y`: the first stays what it was.
    """
    return wrap(tensor._array, tensor.backend, tensor._slots)


_first_slots = Lock()  # two threads that watch one new tensor must not make two


def own_slots(tensor: Tensor) -> Slots:
    """Return slots that only this Tensor has, to write to or to keep in a record."""
    slots = tensor._slots
    if slots is NO_SLOTS:
        with _first_slots.now:
            # Looked at again under the lock: another thread may have put its own there meanwhile.
            slots = tensor._slots
            if slots is NO_SLOTS:
                slots = tensor._slots = {}
    return slots


def twin_slots(tensor: Tensor) -> Slots:
    """Return slots for a twin, another Tensor of the same value: recorders that know the Tensor now know the twin.

    Later watches of one do not concern the other. Recorders are told of each twin: a function that will run again for
    its derivative may read a Tensor only in that it hands it to a transformation, which computes with a twin.
    """
    if not tensor._slots:
        return NO_SLOTS
    slots = dict(tensor._slots)
    for recorder in ACTIVE.get():
        if recorder._key in slots and not recorder._on_twin(tensor):
            del slots[recorder._key]
    return slots


def is_number(value: object) -> bool:
    """Return whether a value is a number, Python's or one of NumPy's scalars: beside an array its dtype is weak.

    An array without dimensions is none, and keeps its dtype.

    >>> import numpy as np
    >>> is_number(2.0), is_number(np.float64(2.0)), is_number(np.asarray(2.0))
    (True, True, False)
    """
    kind = type(value)
    return kind in SCALARS or (_is_generic(kind) and type(to_number(value)) in SCALARS)  # type: ignore[arg-type]


@lru_cache(maxsize=256)  # each call of a function asks for each array of NumPy among its arguments
def _is_generic(kind: type) -> bool:
    return any([cls.__name__ == "generic" and cls.__module__ == "numpy" for cls in kind.__mro__])


def to_number(value: Any) -> Any:
    """Return a number as Python's."""
    return value if type(value) in SCALARS else value.item()


def read_array(value: ArrayLike, where: str | Callable[[], str], beside: object = None) -> Tensor:
    """Return `value` as `read` does, but a number as a Tensor without dimensions."""
    found = read(value, where, beside)
    if isinstance(found, Tensor):
        return found
    if isinstance(beside, Tensor):
        return ops.asarray(found, backend=beside.backend.library, device=beside.device)
    return ops.asarray(found)


def read(value: ArrayLike, where: str | Callable[[], str], beside: object = None) -> Any:
    """Return `value` as an operand: a plain Tensor or a Python scalar.

    A Variable is read (and so watched), a raw array of an installed backend becomes a constant, IndexedSlices dense.
    Any other object may say what it stands for: its type has `__tape_tensor__(self)`, which returns a Tensor.

    Args:
        where: the name of the operand in messages, or a function that returns it.
        beside: another operand. If it is a Tensor, host data go to its backend and device, else to the selected ones.

    Raises:
        TypeError: for anything else, naming it and `where` it was given.
    """
    kind = type(value)
    if kind is Tensor or kind in SCALARS:
        return value
    if isinstance(value, Tensor):
        return value._read()  # type: ignore[attr-defined]
    if kind is IndexedSlices:
        return value.densify()
    # By the type alone: a list would have to be converted in every call, and which library it is meant for is not
    # known.
    backend = backend_of_type(kind)
    if backend is None:
        if hasattr(kind, "__tape_tensor__"):
            return read(value.__tape_tensor__(), where, beside)
        if is_host_data(value):
            return _upload(value, beside)
        label = where if isinstance(where, str) else where()
        raise TypeError(
            f"{label} must be a Tensor, a Variable, an array of an installed backend or a Python scalar; got "
            f"{value!r} of type {kind.__name__!r}; tape_core.asarray makes a Tensor of lists and other arrays"
        )
    if not backend.host_data:
        return wrap(backend.asarray(value), backend)
    return _upload(value, beside, backend)


def _upload(value: ArrayLike, beside: object, owner: Backend | None = None) -> Tensor:
    """Return host data as a Tensor beside another operand, if that is a Tensor, else on the selected backend."""
    if isinstance(beside, Tensor):
        # The library itself: inside vmap and traces host data are constants, which ops lift.
        target = beside.backend.library
        device = None if target is owner else beside.device
    else:
        target, device, _ = select()
    if target is owner:
        return wrap(owner.asarray(value), owner)
    return ops.asarray(value, backend=target, device=device)


def read_all(values: Iterable[ArrayLike | None], where: Callable[[int], str], *, optional: bool = False) -> list[Any]:
    """Return values as operands of one function, as `read` does; host data go to where the first Tensor among them is.

    Args:
        where: returns the name of an operand in messages, of its place among the values.
        optional: whether None may stand for an operand that was left out; it stays None.
    """
    found: list[Any] = []
    host: dict[int, ArrayLike] = {}
    for k, value in enumerate(values):
        if type(value) is not Tensor and not (value is None and optional):
            if is_host_data(value):
                host[k] = value
            else:
                value = read(value, lambda k=k: where(k))  # type: ignore[misc]
        found.append(value)
    if host:
        beside = next((v for k, v in enumerate(found) if k not in host and isinstance(v, Tensor)), None)
        is_beside_array = beside is not None or not all(map(is_number, host.values()))
        for k, value in host.items():
            if is_beside_array and is_number(value):
                found[k] = to_number(value)
                continue
            found[k] = read(value, lambda k=k: where(k), beside)  # type: ignore[misc]
    return found
