"""Data as batches: arrays that are cut into them, or batches that come one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, Protocol, TypeAlias

import tape_core as tc
from tape_core import Tensor
from tape_core.base import pytree

from tape_nn.module import Module

Data: TypeAlias = Any
"""Arrays `(x, y)` or `(x, y, weights)`, an iterable of such batches, or a function from the epoch to one."""


class Source(Protocol):
    """Where batches come from."""

    length: int | None  # how many batches an epoch has, where that is known

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from number `skip` on."""

    def description(self) -> dict[str, Any]:
        """What must be the same when a run goes on, in plain values."""


def source_of(data: Data, model: Any, batch_size: int | None, seed: int | None = None, name: str = "data") -> Source:
    """Batches of `data`, placed where the model is.

    Args:
        seed: of the order of examples; None keeps it. Each epoch has its own order, whatever came before.

    Raises:
        TypeError: it is none of what :data:`Data` may be.
        ValueError: arrays do not have the same number of examples, or there are none.
    """
    where = _place(model)
    if isinstance(data, tuple | Mapping) or hasattr(data, "shape"):
        return Arrays(data, 32 if batch_size is None else batch_size, seed, where, name)
    if batch_size is not None:
        raise ValueError(f"batch_size is for arrays; {name} of type {type(data).__name__!r} has batches already")
    if isinstance(data, Iterator):
        raise TypeError(
            f"{name} is an iterator of type {type(data).__name__!r}, which can be gone through once only; pass a "
            "function that makes one for each epoch, such as lambda epoch: batches()"
        )
    if not callable(data) and not isinstance(data, Iterable):
        raise TypeError(
            f"{name} must be arrays (x, y), an iterable of batches, or a function from the epoch to one; got "
            f"{type(data).__name__!r}"
        )
    return Batches(data, where, name)


class Arrays:
    """Batches cut from arrays; the last one has what is left."""

    def __init__(self, data: Any, batch_size: int, seed: int | None, where: Mapping[str, Any], name: str) -> None:
        if type(batch_size) is not int or batch_size < 1:
            raise ValueError(f"batch_size must be an integer of at least 1; got {batch_size!r}")
        self.leaves, self.structure = pytree.flatten(_tensors(data, where, name))
        found = {
            f"{name}{pytree.path(self.structure, k)}": leaf.shape
            for k, leaf in enumerate(self.leaves)
            if leaf is not None
        }
        if not found or any([len(shape) == 0 for shape in found.values()]):
            raise ValueError(f"{name} must have an axis of examples in all arrays; got shapes {found}")
        if len({shape[0] for shape in found.values()}) > 1:
            raise ValueError(f"{name} must have the same number of examples in all arrays; got shapes {found}")
        self.examples: int = next(iter(found.values()))[0]
        if self.examples == 0:
            raise ValueError(f"{name} has no examples: shapes {found}")
        self.batch_size = batch_size
        self.seed = seed
        self.length: int | None = -(-self.examples // batch_size)

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from number `skip` on."""
        orders: dict[Any, Tensor] = {}  # one for each backend and device
        if self.seed is not None:
            for backend, device in {(leaf.backend, leaf.device) for leaf in self.leaves if leaf is not None}:
                rng = tc.default_rng((abs(self.seed) << 32) + epoch)
                orders[backend, device] = rng.permutation(self.examples, backend=backend, device=device)
        for start in range(skip * self.batch_size, self.examples, self.batch_size):
            rows = slice(start, start + self.batch_size)
            parts: list[Tensor | None] = []
            for leaf in self.leaves:
                if leaf is None:
                    parts.append(None)
                elif orders:
                    parts.append(tc.take(leaf, orders[leaf.backend, leaf.device][rows], axis=0))
                else:
                    parts.append(leaf[rows])
            yield pytree.unflatten(self.structure, parts)

    def description(self) -> dict[str, Any]:
        """The arrays' shapes and dtypes, and how they are cut."""
        arrays = [None if leaf is None else f"{leaf.dtype} {leaf.shape}" for leaf in self.leaves]
        return {"arrays": arrays, "batch_size": self.batch_size}


class Batches:
    """Batches that somebody else makes."""

    def __init__(self, data: Any, where: Mapping[str, Any], name: str) -> None:
        self.data = data
        self.where = where
        self.name = name
        self.length: int | None = len(data) if isinstance(data, Sized) else None

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from number `skip` on; those before are made here and now."""
        made = iter(self.data(epoch) if callable(self.data) else self.data)
        for _ in islice(made, skip):
            pass
        # Loaders of other libraries make lists of what is one tuple here.
        return (
            _tensors(tuple(batch) if isinstance(batch, list) else batch, self.where, f"a batch of {self.name}")
            for batch in made
        )

    def description(self) -> dict[str, Any]:
        """Nothing is known of them."""
        return {"arrays": "batches", "batch_size": None}


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """`x`, `y` and the examples' weights; None for what a batch does not have.

    >>> from tape_nn.fitting import unpack
    >>> unpack((1, 2))
    (1, 2, None)
    """
    parts = batch if isinstance(batch, tuple) else (batch,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"a batch is (x,), (x, y) or (x, y, weights); got {len(parts)} parts")
    x, y, weights = (*parts, None, None)[:3]
    return x, y, weights


def examples_in(batch: Any) -> int:
    """How many examples a batch has; 1 where its arrays do not tell."""
    for leaf in pytree.flatten(batch)[0]:
        if isinstance(leaf, Tensor) and leaf.ndim:
            return leaf.shape[0]
    return 1


def with_class_weights(batch: Any, class_weight: Mapping[int, float]) -> Any:
    """The batch with each example's weight times that of its class, as Keras has it; other classes have weight 1."""
    x, y, weights = unpack(batch)
    if not isinstance(y, Tensor):
        raise ValueError("class_weight needs data (x, y) whose y is one array of classes")
    if y.ndim > 1:  # one-hot, or a column
        y = tc.argmax(y, axis=-1) if y.shape[-1] > 1 else y[..., 0]
    found = tc.ones(y.shape, backend=y.backend, device=y.device)
    for number, weight in class_weight.items():
        found = tc.where(y == number, float(weight), found)
    return x, batch[1], found if weights is None else found * weights


def _tensors(data: Any, where: Mapping[str, Any], name: str) -> Any:
    """The same structure, of Tensors. A list among its parts is an array written out."""
    if isinstance(data, tuple):
        if type(data) is not tuple:  # a named tuple is one structure
            parts: Any = data
        else:
            parts = tuple([tc.asarray(part, **where) if isinstance(part, list) else part for part in data])
    else:
        parts = data
    leaves, structure = pytree.flatten(parts)
    made = []
    for k, leaf in enumerate(leaves):
        if leaf is None or isinstance(leaf, Tensor):
            made.append(leaf)
        elif hasattr(leaf, "shape"):
            made.append(tc.asarray(leaf, **where))
        else:
            path = pytree.path(structure, k)
            raise TypeError(f"{name} must be made of arrays; {path or 'it'} is of type {type(leaf).__name__!r}")
    return pytree.unflatten(structure, made)


def _place(model: Any) -> dict[str, Any]:
    """The backend and the device of the model, or the selected ones while it has no Variables."""
    variables = model.variables if isinstance(model, Module) else ()
    if variables:
        return {"backend": variables[0].backend, "device": variables[0].device}
    return {"backend": tc.get_backend()}
