"""Levels of vmap: arrays that stand for all examples, and which level they belong to.

A Tensor inside vmap holds a :class:`BatchedArray`. Every op meets them, since operands on several levels must be
brought to one; what computes with them is the batching backend, `tape_core.modes.batched`, one floor up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tape_core.backends.errors import BatchError
from tape_core.backends.kernels import COMPARISONS, OPERATORS, SIGNS
from tape_core.base.ambient import ACTIVE, OPEN_AXES
from tape_core.engine.tensor import NO_SLOTS, Tensor, own_slots, wrap

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend


def height(backend: Backend) -> int:
    """Return how many backends a backend stands on, for `max`."""
    return backend.height


class Axis:
    """The hidden axis of one vmap: every array that is batched in it names it.

    Attributes:
        size: the number of examples.
        open: whether the vmap is still running; what it made is of no use afterwards.
        randomness: of random numbers that are drawn while it runs: "different" for each example, the "same" for all,
            or "error".
    """

    __slots__ = ("open", "randomness", "size")

    def __init__(self, size: int, randomness: str = "same") -> None:
        self.size = size
        self.open = True
        self.randomness = randomness


class BatchedArray:
    """The array of a Tensor inside vmap: all examples, or one value that they share.

    Attributes:
        value: a Tensor of the backend below; with an axis, its dimension 0 is that.
        axis: the hidden axis; None for a value that is the same for all examples.
    """

    __slots__ = ("axis", "backend", "value")
    __array_ufunc__ = None

    def __init__(self, value: Tensor, backend: Backend, axis: Axis | None) -> None:
        self.value = value
        self.backend = backend
        self.axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        shape = self.value.shape
        return shape if self.axis is None else shape[1:]

    @property
    def ndim(self) -> int:
        """The number of dimensions of one example."""
        return len(self.value._array.shape) - (self.axis is not None)

    @property
    def dtype(self) -> Any:
        """The array library's own object for it."""
        return self.value._array.dtype

    @property
    def device(self) -> Any:
        """The array library's own object for it."""
        return self.value._array.device

    @property
    def mT(self) -> BatchedArray:
        """Each matrix transposed."""
        return self.backend.xp.matrix_transpose(self)  # type: ignore[no-any-return]

    @property
    def T(self) -> BatchedArray:
        """The transpose of a matrix."""
        return self.mT

    def __repr__(self) -> str:
        return f"BatchedArray({self.value!r}, axis={None if self.axis is None else self.axis.size})"

    def _only(self, what: str) -> Any:
        """Return the value, if it is the same for all examples."""
        if self.axis is not None:
            raise BatchError(
                f"inside vmap {what} is not known: each of the {self.axis.size} examples has its own. "
                f"A decision that depends on values is tape_core.where; a loop needs a fixed number of steps"
            )
        return self.value

    def __bool__(self) -> bool:
        return bool(self._only("whether a value is true"))

    def __int__(self) -> int:
        return int(self._only("a value as an int"))

    def __index__(self) -> int:
        return self._only("a value as an int").__index__()  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return float(self._only("a value as a float"))

    def __complex__(self) -> complex:
        return complex(self._only("a value as a complex"))

    def __dlpack__(self, **options: Any) -> Any:
        return self._only("what a Tensor holds").__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._only("what a Tensor holds").__dlpack_device__()

    def __getitem__(self, key: Any) -> BatchedArray:
        return self.backend.xp.getitem(self, key)  # type: ignore[no-any-return]

    __hash__ = object.__hash__


def _attach() -> None:
    for name, op in {**OPERATORS, **COMPARISONS}.items():
        setattr(BatchedArray, f"__{name}__", lambda x, y, op=op: getattr(x.backend.xp, op)(x, y))
    for name, op in OPERATORS.items():
        setattr(BatchedArray, f"__r{name}__", lambda x, y, op=op: getattr(x.backend.xp, op)(y, x))
    for name, op in SIGNS.items():
        setattr(BatchedArray, f"__{name}__", lambda x, op=op: getattr(x.backend.xp, op)(x))


_attach()


def innermost(array: Any) -> tuple[Any, int]:
    """Return the array that a Tensor's array has below all vmaps, and how many hidden axes it has."""
    hidden = 0
    while type(array) is BatchedArray:
        hidden += array.axis is not None
        array = array.value._array
    return array, hidden


def has_axis(axis: Axis, tensor: Tensor) -> bool:
    """Return whether a Tensor stands for many along this hidden axis."""
    array = tensor._array
    while type(array) is BatchedArray:
        if array.axis is axis:
            return True
        array = array.value._array
    return False


def is_watched(tensors: Sequence[Tensor], *, outside: bool = False) -> bool:
    """Return whether a recorder knows one of these Tensors; with `outside`, or outside a vmap the values of all."""
    active = ACTIVE.get()
    for tensor in tensors if active else ():
        while True:
            if any([recorder._key in tensor._slots for recorder in active]):
                return True
            if not outside or type(tensor._array) is not BatchedArray:
                break
            tensor = tensor._array.value
    return False


def detached(array: Any) -> Any:
    """Return an array that no tape knows, neither here nor outside a vmap, where tapes may know all examples."""
    if type(array) is not BatchedArray:
        return array
    value = array.value
    return BatchedArray(wrap(detached(value._array), value.backend), array.backend, array.axis)


# -- places
#
# The level of a hidden axis is its place among those that are open. That is not always the same: a function whose
# derivative is asked for inside another vmap, as the backward pass of a Jacobian, runs again with its own axes above
# that one's. What it finds around it is then as it was in the first run. So an array's axes say which level it belongs
# to, its backend says where it was made, and what meets other Tensors is put in its place first.


class MisplacedError(BatchError):
    """An array is not on the level on which its hidden axis is now."""


def is_on_level(array: BatchedArray) -> bool:
    """Return whether the hidden axes are on the levels where they are open now.

    The uppermost tells: moves of those below it move it as well.
    """
    while array.axis is None:
        below = array.value._array
        if type(below) is not BatchedArray:
            return True
        array = below
    axes, level = OPEN_AXES.get(), array.backend.level
    if len(axes) >= level and axes[level - 1] is array.axis:
        return True
    return array.axis.open and array.axis not in axes  # in a thread of the vmap's


def misplaced(name: str, array: BatchedArray) -> BatchError:
    """Return the error of an op for an array that is not on the level of its hidden axis."""
    while array.axis is None:
        array = array.value._array
    if array.axis in OPEN_AXES.get():
        return MisplacedError(f"{name}: a Tensor is on another level than its vmap")
    return BatchError(
        f"{name}: a Tensor from inside vmap is used where that vmap has ended; return it from the function"
    )


def move_to_level(tensor: Tensor) -> Tensor:
    """Return a Tensor on the level of its hidden axes; the Tensor itself, if one of them is not open any more.

    Tapes know it as before.
    """
    array = tensor._array
    if type(array) is not BatchedArray or is_on_level(array):
        return tensor
    axes, kind = OPEN_AXES.get(), type(array.backend)
    value = move_to_level(array.value)
    if array.axis is not None:
        if array.axis not in axes:
            return tensor
        backend = value.backend
        for _ in range(backend.level, axes.index(array.axis)):
            backend = backend.wrapped(kind)
        value = lift(value, backend)
    above: Any = value.backend.wrapped(kind)
    return wrap(BatchedArray(value, above, array.axis), above, own_slots(tensor))


def lift(tensor: Tensor, backend: Backend) -> Tensor:
    """Return a Tensor of a backend below as one of `backend`: the same for all examples, or a constant of a trace.

    From a backend above comes a value that all examples there share. Tapes know it as before.

    Raises:
        TypeError: its backend is none of those.
    """
    if type(tensor._array) is BatchedArray:
        tensor = move_to_level(tensor)
    # Without a hidden axis all examples share the value, so the value below says as much.
    while tensor.backend.level > backend.level and tensor._array.axis is None:
        tensor = tensor._array.value
    above: list[Any] = []
    while backend is not tensor.backend:
        if backend.base is None:
            raise TypeError(f"one operand is on backend {tensor.backend.name!r}, another on {backend.name!r}")
        above.append(backend)
        backend = backend.base
    slots = own_slots(tensor) if above else NO_SLOTS
    if above and type(tensor) is Tensor:  # `x += y` gives the Tensor another array: what was shared keeps this one
        tensor = wrap(tensor._array, tensor.backend, tensor._slots)
    for one in reversed(above):
        tensor = wrap(one.shared(tensor), one, slots)
    return tensor
