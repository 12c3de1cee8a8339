"""Moving arrays and Variables from one backend or device to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from tape_core.backends.discovery import backend_of_type
from tape_core.backends.selection import select
from tape_core.base.lookup import ops
from tape_core.base.undoing import keep_former
from tape_core.engine import pytree
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.recording import check_assignable, report_assigned, special_dtype
from tape_core.engine.tensor import Tensor, wrap
from tape_core.engine.variable import Variable
from tape_core.staging import current, outside
from tape_core.typing import PyTree

if TYPE_CHECKING:
    from tape_core.backends.protocol import Backend

T = TypeVar("T", bound=PyTree)

_numbers = count(1)

moves = 0
"""The number of the last move of Variables, a part of every cache key: a trace relies on where its Variables are."""


def to_backend(tree: T, backend: str | Backend, device: str | None = None) -> T:
    """Return a pytree with all arrays on another backend or device, and everything else as it is.

    Tensors, IndexedSlices and raw arrays become Tensors, Variables new Variables. Arrays that are there already are
    not copied. A derivative flows from one device to another, not from one backend to another: to PyTorch's functions
    and back it does by `tape_torch.call`.

    >>> import numpy as np, tape_core as tc
    >>> tc.to_backend({"x": np.arange(3), "name": "a"}, "numpy")
    {'x': Tensor([0 1 2], shape=(3,), dtype=int64, backend=numpy), 'name': 'a'}

    Args:
        tree: Tensors, Variables, arrays and anything else, nested in lists, tuples, dicts and the like.
        backend: a backend's name, with a device if wanted, or object: `"torch"`, `"torch:cuda:0"`.
        device: a device of the backend; by default its own default device.

    Raises:
        BackendError: there is no such backend or device.
    """
    chosen = select(backend, device)
    leaves, structure = pytree.flatten(tree)
    return pytree.unflatten(structure, [_moved(leaf, chosen.backend, chosen.device) for leaf in leaves])  # type: ignore[no-any-return]


def _moved(leaf: Any, backend: Backend, device: str | None) -> Any:
    if isinstance(leaf, Variable):
        value = ops.asarray(wrap(leaf._array, leaf.backend), backend=backend, device=_device(leaf, backend, device))
        return Variable(value, trainable=leaf.trainable, name=leaf.name)
    if isinstance(leaf, IndexedSlices):
        values, indices = (_moved(part, backend, device) for part in (leaf.values, leaf.indices))
        return IndexedSlices(values, indices, leaf.dense_shape)
    if isinstance(leaf, Tensor):
        return ops.asarray(leaf, backend=backend, device=_device(leaf, backend, device))
    if backend_of_type(type(leaf)) is not None:
        return ops.asarray(leaf, backend=backend, device=device or backend.default_device)
    return leaf


def _device(tensor: Tensor, backend: Backend, device: str | None) -> str:
    """Return the full name of the device to move to; the Tensor's own where it is one that `device` means."""
    device = device or backend.default_device
    own = tensor.device
    # `cuda` is whichever of them the array is on.
    return own if tensor.backend.library is backend and own.startswith(f"{device}:") else device


def named_variables(tree: object) -> Iterator[tuple[str, Variable]]:
    """Yield the Variables of a tree, those of Modules included, with their names: paths, or their own."""
    if isinstance(tree, Variable):
        yield tree.name or "", tree
        return
    if hasattr(tree, "named_variables"):  # a Module
        yield from tree.named_variables()
        return
    leaves, structure = pytree.flatten(tree)
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Variable):
            yield pytree.path(structure, k), leaf
        elif hasattr(leaf, "named_variables"):
            yield from leaf.named_variables()


def follow(variable: Variable, follower: Variable) -> None:
    """Have a Variable moved whenever another one is, as an optimizer's state is with the weights."""
    known = variable._followers
    if known is None:
        known = variable._followers = []
    known[:] = [one for one in known if one() is not None]
    known.append(ref(follower))


def move_variables(what: str, variables: Iterable[Variable], backend: str | Backend, device: str | None = None) -> None:
    """Move Variables to a backend and device in place, and those that follow them: all of them, or none.

    Args:
        what: the caller, for messages.
        backend, device: as for :func:`to_backend`.

    Raises:
        BackendError: there is no such backend or device.
        RuntimeError: a function is being compiled, or a Variable has a value of a binding.
        TypeError: the backend lacks the dtype of a Variable.
    """
    chosen = select(backend, device)
    target = chosen.backend

    def moved(variable: Variable, leader: Variable | None) -> Tensor:
        now = wrap(variable._raw, variable._home)
        return ops.asarray(now, backend=target, device=_device(now, target, chosen.device))

    relocate(what, variables, target, moved)


def relocate(
    what: str, variables: Iterable[Variable], target: Backend, moved: Callable[[Variable, Variable | None], Tensor]
) -> None:
    """Give Variables, and those that follow them, their values elsewhere: all of them, or none.

    Args:
        what: the caller, for messages.
        target: the backend of the new values.
        moved: a function of a Variable, and of the one that it follows or None, that returns its value there.

    Raises:
        RuntimeError: a function is being compiled, or a Variable has a value of a binding.
    """
    global moves
    if current() is not None:
        raise RuntimeError(f"{what}: Variables cannot be moved inside a compiled function; move them before the call")
    moving: dict[int, tuple[Variable, Variable | None]] = {}
    waiting: list[tuple[Variable, Variable | None]] = [(variable, None) for variable in variables]
    for variable, leader in waiting:  # it grows meanwhile
        if id(variable) not in moving:
            moving[id(variable)] = variable, leader
            first = variable if leader is None else leader
            waiting += [(alive, first) for one in variable._followers or () if (alive := one()) is not None]
    found: list[tuple[Variable, Any]] = []
    with outside():
        for variable, leader in moving.values():
            if variable._bound() is not None:
                label = repr(variable.name) if variable.name else "a Variable"
                raise RuntimeError(f"{what}: {label} is bound to another value here; move it outside of the binding")
            check_assignable(variable)
            variable._refuse_move(what)
            value = moved(variable, leader)
            # A Variable's memory is its own: NumPy and PyTorch would share it.
            raw = value._array if value._array is variable._raw else target.asarray(value._array, copy=True)
            found.append((variable, raw))
    for variable, raw in found:
        report_assigned(variable, raw, what, None)
    # One call of a C function, which no signal handler interrupts; see `tape_core.engine.commit`.
    objects = [variable for variable, _ in found for _ in range(4)]
    names = ["_raw", "_home", "_raw_slots", "_special"] * len(found)
    values = [
        part
        for v, raw in found
        for part in (raw, target, {} if raw is not v._raw else v._raw_slots, special_dtype(target, v.dtype))
    ]
    keep_former(objects, names)
    any(map(setattr, objects, names, values))
    moves = next(_numbers)
