"""The arguments, the results and the Variables of a call that is recorded as one op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tape_core.backends.discovery import backend_of_type, is_host_data
from tape_core.base.ambient import ACTIVE
from tape_core.base.contexts import contextmanager, setting
from tape_core.engine import pytree, recording
from tape_core.engine.binding import bind
from tape_core.engine.recording import new_key, retire
from tape_core.engine.tensor import SCALARS, Tensor, alias, is_number, read, to_number, wrap
from tape_core.engine.variable import Variable
from tape_core.modes.function_op import Pull, Push, record_as_one
from tape_core.ops.creation import asarray, zeros_like
from tape_core.ops.data_types import astype
from tape_core.typing import ArrayLike, PyTree, Record

Function = Callable[..., Any]


class Arguments:
    """The arguments of a call, and which of their leaves have derivatives.

    Attributes:
        leaves, structure: the flattened pytree of all arguments.
        tensors: each leaf as a Tensor, or None where it is not an array.
        places: the indices of the leaves that have derivatives.
    """

    __slots__ = ("leaves", "places", "structure", "tensors")

    def __init__(self, args: PyTree) -> None:
        self.leaves, self.structure = pytree.flatten(args)
        self.tensors = [_as_tensor(leaf) for leaf in self.leaves]
        self.places = [k for k, t in enumerate(self.tensors) if t is not None and t.dtype.inexact]

    @property
    def given(self) -> Any:
        """The arguments with every array as a Tensor, which the function may change in place."""
        return pytree.unflatten(self.structure, self._own())

    def _own(self) -> list[Any]:
        return [leaf if t is None else alias(t) for leaf, t in zip(self.leaves, self.tensors, strict=True)]

    @property
    def differentiable(self) -> list[Tensor]:
        """The Tensors that have derivatives."""
        return [self.tensors[k] for k in self.places]  # type: ignore[misc]

    def replaced(self, values: Sequence[Any]) -> Any:
        """Return the arguments with these values in place of the leaves that have derivatives."""
        leaves = self._own()
        for k, value in zip(self.places, values, strict=True):
            leaves[k] = alias(value)
        return pytree.unflatten(self.structure, leaves)

    def with_tangents(self, values: Sequence[Any]) -> Any:
        """Return these tangents as a pytree like the arguments: 0 for a Python float or complex, else None."""
        leaves: list[Any] = [type(leaf)(0) if type(leaf) in (float, complex) else None for leaf in self.leaves]
        for k, value in zip(self.places, values, strict=True):
            leaves[k] = value
        return pytree.unflatten(self.structure, leaves)

    def names(self) -> list[str]:
        """Return the names that messages use for the leaves that have derivatives."""
        # A path in the tuple of arguments: `[0]['w']`.
        paths = [pytree.path(self.structure, k)[1:].partition("]") for k in self.places]
        return [f"argument {number}{inside}" for number, _, inside in paths]


class Results:
    """The result of a call, and which of its leaves have derivatives.

    Attributes:
        leaves: the flattened pytree: Tensors, and None where the function returned None.
        flowing: the indices of the leaves that have derivatives.
    """

    __slots__ = ("flowing", "leaves", "structure")

    def __init__(self, result: PyTree, name: str) -> None:
        leaves, self.structure = pytree.flatten(result)
        self.leaves: list[Any] = [leaf if leaf is None else _result(leaf, name) for leaf in leaves]
        self.flowing = [k for k, leaf in enumerate(self.leaves) if leaf is not None and leaf.dtype.inexact]

    @property
    def differentiable(self) -> list[Tensor]:
        """The Tensors that have derivatives."""
        return [self.leaves[k] for k in self.flowing]

    def record(self, name: str, inputs: Sequence[Tensor], pull: Pull, push: Push | None = None) -> Any:
        """Record the result as one op of `inputs` with the rules `pull` and `push`, and return it; see
        :func:`record_as_one`."""
        leaves = list(self.leaves)
        # Without either there is no derivative to record.
        if inputs and self.flowing:
            like = inputs[0].backend
            for out in self.differentiable:
                if out.backend.library is not like.library:
                    raise TypeError(
                        f"{name}: the result is on backend {out.backend.name!r}, the arguments on {like.name!r}; "
                        f"convert it with tape_core.asarray(..., backend={like.root.name!r})"
                    )
            found = record_as_one(inputs, self.differentiable, pull, push, name, is_own=True)
            for k, tensor in zip(self.flowing, found, strict=True):
                leaves[k] = tensor
        return pytree.unflatten(self.structure, leaves)

    def matching(self, tree: PyTree, what: str) -> list[Any]:
        """Return the leaves of a pytree that belong to differentiable leaves of the result.

        Raises:
            ValueError: its structure, or the shape of a leaf, differs from the result's.
        """
        leaves, structure = pytree.flatten(tree)
        if len(leaves) != len(self.leaves) or not pytree.same(structure, self.structure, len(leaves)):
            shown = pytree.difference("it", structure, len(leaves), "the result", self.structure, len(self.leaves))
            raise ValueError(f"{what} must have the structure of the result; {shown}")
        return [
            like_value(leaves[k], self.leaves[k], f"{what}{pytree.path(structure, k)}", "the result")
            for k in self.flowing
        ]


def like_value(given: ArrayLike | None, value: Tensor, where: str, whose: str) -> Tensor:
    """Return a derivative that a user's rule gave, in the dtype of its value; zeros for None.

    Raises:
        ValueError: its shape differs from the value's.
        TypeError: it is complex and the value is real, or it is not an array.
    """
    if given is None:
        # Of a Tensor without slots: the zeros depend on nothing.
        return zeros_like(wrap(value._array, value.backend))
    tensor = read(given, where, value)
    if type(tensor) in SCALARS:
        tensor = asarray(tensor, dtype=value.dtype, backend=value.backend.root)
    if tensor.backend.library is not value.backend.library:
        raise TypeError(
            f"{where} is on backend {tensor.backend.name!r}, {whose} on {value.backend.name!r}; convert it with "
            f"tape_core.asarray(..., backend={value.backend.root.name!r})"
        )
    if tensor.shape != value.shape:
        raise ValueError(f"{where} has shape {tensor.shape}, {whose} has shape {value.shape}; they must be the same")
    if tensor.dtype is not value.dtype:
        if tensor.dtype.kind == "complex floating" and value.dtype.kind != "complex floating":
            raise TypeError(f"{where} has dtype {tensor.dtype}, {whose} is real: {value.dtype}; use tape_core.real")
        tensor = astype(tensor, value.dtype)
    return tensor  # type: ignore[no-any-return]


def _as_tensor(leaf: object) -> Tensor | None:
    """Return a leaf as a Tensor, or None where it is not an array."""
    if isinstance(leaf, Tensor):
        tensor: Tensor = read(leaf, "an argument")
        return tensor
    # Arrays of a library; Python numbers are constants and stay what they are.
    if hasattr(leaf, "dtype"):
        return asarray(leaf)
    return None


def with_tensors(argument: PyTree) -> Any:
    """Return an argument with Tensors in place of raw arrays, and numbers in place of NumPy's scalars."""
    leaves, structure = pytree.flatten(argument)
    if not any([_is_raw(leaf) for leaf in leaves]):
        return argument
    found = [(to_number(x) if is_number(x) else asarray(x)) if _is_raw(x) else x for x in leaves]
    return pytree.unflatten(structure, found)


def _is_raw(leaf: object) -> bool:
    kind = type(leaf)
    return kind is not Tensor and kind not in SCALARS and (backend_of_type(kind) is not None or is_host_data(leaf))


def _result(leaf: ArrayLike, name: str) -> Tensor:
    tensor = read(leaf, f"the result of {name}")
    return asarray(tensor) if type(tensor) in SCALARS else tensor


def name_of(f: Function) -> str:
    """Return the name that messages use for a function."""
    return getattr(f, "__name__", "the function")


# -- the Variables that a function reads


class Readers(recording.Recorder):
    """A recorder that collects the Variables that are read; it records no op, so no value gets a slot in it."""

    __slots__ = ("_key", "found")

    def __init__(self) -> None:
        self._key = new_key()
        self.found: list[Variable] = []

    def _on_read(self, variable: Variable) -> None:
        # Compared by identity: `in` would call `==`, which is an op of Variables.
        if not any([variable is other for other in self.found]):
            self.found.append(variable)


@contextmanager
def reading(*, alone: bool = False) -> Iterator[Readers]:
    """Collect the Variables that are read in the context; with `alone` the recorders around it record nothing."""
    readers = Readers()
    with setting(ACTIVE, (readers,) if alone else ACTIVE.get()):
        try:
            if not alone:
                recording.activate(readers)
            yield readers
        finally:
            retire(readers._key)


class _Guard(recording.Recorder):
    """A recorder that stands in for a tape, with the tape's key, and raises at the first op the tape would record.

    Arguments come in by `stop_gradient`, so an op with a known input computes with a captured Tensor.
    """

    __slots__ = ("_key", "_what")

    def __init__(self, key: int, what: str) -> None:
        self._key = key
        self._what = what

    def _on_op(self, rec: Record) -> None:
        raise CapturedError(
            f"{self._what} computes with a Tensor that a tape or accumulator watches and that is not among its "
            f"arguments, so no derivative would come back to it; make it an argument, or use "
            f"tape_core.stop_gradient(x)"
        )


class CapturedError(TypeError):
    """A function computes with a captured Tensor whose derivative would be lost."""


@contextmanager
def forbid_captures(what: str) -> Iterator[Readers]:
    """Collect the Variables that are read, and raise where the context computes with a watched Tensor.

    Arguments must enter it through :func:`~tape_core.stop_gradient`.

    Raises:
        CapturedError: an op has an input that a tape or accumulator around the context watches.
    """
    # With the keys of those recorders: a value that one of them knows is known to its guard.
    around = [_Guard(recorder._key, what) for recorder in ACTIVE.get()]
    with reading(alone=True) as readers:
        with setting(ACTIVE, (readers, *around)):
            yield readers


@contextmanager
def unrecorded() -> Iterator[None]:
    """Suspend all recorders in the context."""
    with setting(ACTIVE, ()):
        yield


@contextmanager
def substitute(variables: Sequence[Variable], values: Sequence[Tensor]) -> Iterator[None]:
    """Give Variables these values in the context, and their own again afterwards."""
    if not variables:
        yield
        return
    with bind(variables, values):
        yield
