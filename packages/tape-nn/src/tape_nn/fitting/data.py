"""Sources of batches: arrays or data sets that are cut into batches, or an iterable that yields them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import count, islice
from typing import Any, Protocol, TypeAlias

import tape_core as tc
from tape_core import Tensor
from tape_core.backends import Backend
from tape_core.support import integer, pytree
from tape_core.typing import PyTree

from tape_nn.module import Module
from tape_nn.parallel import Strategy
from tape_nn.thresholds import DEFAULT_BATCH_SIZE, SAMPLED_EXAMPLES

Data: TypeAlias = Any
"""Arrays `(x, y)` or `(x, y, weights)`, a data set of such examples, an iterable of such batches, or a function from
the epoch to one."""

OwnRows: TypeAlias = Callable[[int], slice | None]
"""From the number of examples in a batch to those of them that are to be loaded; None: all."""

Batch: TypeAlias = PyTree
"""One batch: `(x,)`, `(x, y)` or `(x, y, weights)`, where x and y may be nested structures of Tensors."""


class Source(Protocol):
    """The batches of each epoch."""

    length: int | None  # the number of batches in an epoch, if it is known

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from number `skip` on."""

    def description(self) -> dict[str, Any]:
        """Return plain values that must be equal for a run to be resumed."""


def source_of(
    data: Data,
    model: object,
    batch_size: int | None,
    seed: int | None = None,
    name: str = "data",
    parallel: Strategy | None = None,
) -> Source:
    """Return the batches of `data`, on the backend and the device of the model; with `parallel`, what divides them.

    Args:
        seed: seeds the order of the examples of arrays; with None they keep their order. The order of an epoch
            depends on the seed and the number of the epoch alone, so that a resumed run has the same.
        name: the name of the argument, for error messages.
        parallel: the strategy of a run on several devices. Then the data are on one device of this process, so that
            each process may have other rows.

    Raises:
        TypeError: it is none of the forms of :data:`Data`.
        ValueError: arrays differ in the number of examples, or have none.
    """
    where = _placement(model)
    if parallel is not None and "device" in where:
        where["device"] = parallel.engine.own_device(mesh=parallel.mesh)
    # A list is no batch but an iterable of batches.
    if isinstance(data, tuple | Mapping) or hasattr(data, "shape"):
        return Arrays(data, DEFAULT_BATCH_SIZE if batch_size is None else batch_size, seed, where, name)
    is_indexed = isinstance(data, Sized) and hasattr(data, "__getitem__") and not isinstance(data, list)
    # What can be gone through, too, is one of batches, unless its user says how many examples are to be one.
    if is_indexed and not callable(data) and (batch_size is not None or not isinstance(data, Iterable)):
        return Examples(data, DEFAULT_BATCH_SIZE if batch_size is None else batch_size, seed, where, name)
    if batch_size is not None:
        raise ValueError(
            f"batch_size is for arrays, and for data sets with __len__ and __getitem__; {name} of type "
            f"{type(data).__name__!r} has batches already"
        )
    # The second epoch would be empty, and a resumed run could not skip to its place.
    if isinstance(data, Iterator):
        raise TypeError(
            f"{name} is an iterator of type {type(data).__name__!r}, which can be gone through once only; pass a "
            "function that makes one for each epoch, such as lambda epoch: batches()"
        )
    if not callable(data) and not isinstance(data, Iterable):
        raise TypeError(
            f"{name} must be arrays (x, y), a data set, an iterable of batches, or a function from the epoch to one; "
            f"got {type(data).__name__!r}"
        )
    return Batches(data, where, name)


class Arrays:
    """Batches cut from arrays along the first axis; the last one may be smaller."""

    def __init__(self, data: PyTree, batch_size: int, seed: int | None, where: Mapping[str, Any], name: str) -> None:
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
        self.name = name
        # Each process has a part of the examples already.
        self.is_divided = any(
            [
                leaf is not None and leaf.backend.library.divided_like(leaf, leaf.shape) is not None
                for leaf in self.leaves
            ]
        )
        # Division rounded up.
        self.length: int | None = -(-self.examples // batch_size)

    def batches(self, epoch: int, skip: int = 0, own_rows: OwnRows | None = None) -> Iterator[Any]:
        """Yield the batches of an epoch, from number `skip` on; of each the rows that `own_rows` says."""
        orders: dict[tuple[Backend, str], Tensor] = {}  # the permutation, once for each place where arrays are
        if self.seed is not None:
            for backend, device in {(leaf.backend, leaf.device) for leaf in self.leaves if leaf is not None}:
                orders[backend, device] = _order(self.seed, epoch, self.examples, backend=backend, device=device)
        # Arrays are cut by position, so that skipped batches cost nothing.
        for rows in _cuts(self.examples, self.batch_size, skip, own_rows):
            parts: list[Tensor | None] = []
            for leaf in self.leaves:
                if leaf is None:
                    parts.append(None)
                elif orders:
                    parts.append(tc.take(leaf, orders[leaf.backend, leaf.device][rows], axis=0))
                else:
                    parts.append(leaf[rows])
            yield pytree.unflatten(self.structure, parts)

    def sample(self) -> Batch:
        """Return some examples, from the first to the last."""
        rows = _sampled(self.examples)
        found = [leaf if leaf is None else tc.stack([leaf[k] for k in rows]) for leaf in self.leaves]
        return pytree.unflatten(self.structure, found)

    def description(self) -> dict[str, Any]:
        """Return the shapes and dtypes of the arrays, and the batch size."""
        arrays = [None if leaf is None else f"{leaf.dtype} {leaf.shape}" for leaf in self.leaves]
        return {"arrays": arrays, "batch_size": self.batch_size}


class Examples:
    """Batches of the examples of a data set, as PyTorch's have `__len__` and `__getitem__`; the last may be smaller.

    Each example is fetched when its batch is made, and in a run of several processes by those that compute with it.
    """

    is_divided = False

    def __init__(self, data: Any, batch_size: int, seed: int | None, where: Mapping[str, Any], name: str) -> None:
        self.data = data
        self.examples = len(data)
        if self.examples == 0:
            raise ValueError(f"{name} has no examples: it is a {type(data).__name__} of length 0")
        self.batch_size = integer("fit", "batch_size", batch_size, 1)
        self.seed = seed
        self.where = where
        self.name = name
        self.length: int | None = -(-self.examples // batch_size)

    def batches(self, epoch: int, skip: int = 0, own_rows: OwnRows | None = None) -> Iterator[Any]:
        """Yield the batches of an epoch, from number `skip` on; of each the rows that `own_rows` says."""
        order: Any = range(self.examples)
        if self.seed is not None:
            order = _order(self.seed, epoch, self.examples, **self.where).tolist()
        for rows in _cuts(self.examples, self.batch_size, skip, own_rows):
            yield self._stacked(order[rows], epoch)

    def sample(self) -> Batch:
        """Return some examples, from the first to the last."""
        return self._stacked(_sampled(self.examples), 0)

    def description(self) -> dict[str, Any]:
        """Return the number of examples, and the batch size."""
        return {"arrays": f"{self.examples} examples", "batch_size": self.batch_size}

    def _stacked(self, indices: Sequence[int], epoch: int) -> Batch:
        found: list[list[Any]] = []
        structure: Any = None
        for index in indices:
            # What an example draws, as an augmentation does, is the same in whichever process, and on resuming.
            rng = tc.default_rng((((self.seed or 0) << 32) + epoch << 64) + index)
            with tc.random.replayed(rng.get_state()):
                example = self.data[index]
            leaves, own = pytree.flatten(tuple(example) if isinstance(example, list) else example)
            if structure is not None and own != structure:
                raise ValueError(
                    f"{self.name}: example {index} is of another structure than example {indices[0]}: {own} and "
                    f"{structure}"
                )
            structure = own
            found.append(leaves)
        columns = []
        for k, column in enumerate(zip(*found, strict=True)):
            label = f"{self.name}[{indices[0]}]{pytree.path(structure, k)}"
            columns.append(None if column[0] is None else self._column(column, label))
        return pytree.unflatten(structure, columns)

    def _column(self, leaves: Sequence[Any], label: str) -> Tensor:
        if not all([isinstance(leaf, int | float | Tensor) or hasattr(leaf, "shape") for leaf in leaves]):
            raise TypeError(
                f"{label} must be an array or a number, of which batches are made; got {type(leaves[0]).__name__!r}: "
                f"have the data set return arrays"
            )
        if all([isinstance(leaf, int | float) for leaf in leaves]):
            return tc.asarray(list(leaves), **self.where)
        arrays = [tc.asarray(leaf, **self.where) for leaf in leaves]
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1:
            raise ValueError(
                f"{label}: examples of one batch have the shapes {sorted(shapes)}; have the data set pad or crop them, "
                f"or pass an iterable of batches"
            )
        return tc.stack(arrays)


class Batches:
    """Batches from an iterable, or from a function that returns one for each epoch."""

    def __init__(self, data: Data, where: Mapping[str, Any], name: str) -> None:
        self.data = data
        self.where = where
        self.name = name
        self.length: int | None = len(data) if isinstance(data, Sized) else None

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch, from number `skip` on. The call itself makes and drops those before."""
        made = iter(self.data(epoch) if callable(self.data) else self.data)
        for _ in islice(made, skip):
            pass
        # A generator expression, so that each batch is converted only when it is its turn.
        # Data loaders of other libraries yield [x, y]; here a batch is a tuple, and a list is an array written out.
        return (
            _tensors(tuple(batch) if isinstance(batch, list) else batch, self.where, f"a batch of {self.name}")
            for batch in made
        )

    def description(self) -> dict[str, Any]:
        """Return nothing but that there are batches: their arrays are not known in advance."""
        return {"arrays": "batches", "batch_size": None}


class Divided:
    """The batches of another source, of which each process of a run in several keeps its rows.

    Of arrays and data sets each process loads only these.
    """

    def __init__(self, source: Source, parallel: Strategy) -> None:
        self.source = source
        self.length = source.length
        self._parallel = parallel
        self._is_checked = False

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch, from number `skip` on.

        Raises:
            ValueError: the processes have different data.
        """
        source, parallel = self.source, self._parallel
        if not isinstance(source, Arrays | Examples) or source.is_divided:
            found = source.batches(epoch, skip)
            alike = isinstance(source, Arrays | Examples)
            yield from map(parallel.divide, found if alike else self._together(found))
            return
        if not self._is_checked:
            self._check(source)
            self._is_checked = True
        lengths = _lengths(source.examples, source.batch_size, skip)
        for batch, length in zip(source.batches(epoch, skip, parallel.own_rows), lengths, strict=True):
            yield parallel.divide(batch) if parallel.own_rows(length) is None else parallel.joined(batch)

    def _together(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches that each process gets for itself, if all processes get one, or none."""
        for k in count(1):
            batch = next(batches, None)
            told = {f"batch {k}": "not there" if batch is None else "there"}
            self._parallel.compare(told, "data", "number of batches", "Leave out those that some processes have more")
            if batch is None:
                return
            yield batch

    def _check(self, source: Arrays | Examples) -> None:
        """Compare some examples, and how many there are: each process will have other rows of a batch."""
        told = {source.name: f"{source.examples} examples"}
        leaves, structure = pytree.flatten(source.sample())
        for k, leaf in enumerate(leaves):
            if leaf is not None:
                told[f"{source.name}{pytree.path(structure, k)}"] = _shown(leaf)
        cure = (
            f"Give all processes the whole data, of which each takes its rows: the same file, or what is drawn from "
            f"one seed; or an iterable of batches of their own, joined to one by {type(self._parallel).__name__}.join"
        )
        self._parallel.compare(told, source.name, "examples", cure)

    def description(self) -> dict[str, Any]:
        """Return the description of the other source: a run may be resumed by another number of processes."""
        return self.source.description()


def _shown(sample: Tensor) -> str:
    """Return what tells some examples from others, in few words."""
    values = sample.numpy()
    # Values that print alike need not be alike.
    checksum = hashlib.blake2b(values.tobytes(), digest_size=4).hexdigest()
    first = ", ".join([f"{value:g}" if isinstance(value, float) else str(value) for value in values.flat[:3].tolist()])
    return f"{sample.dtype} {sample.shape[1:]} each, of which some are {first}, ... (checksum {checksum})"


def _lengths(examples: int, batch_size: int, skip: int) -> Iterator[int]:
    """Yield the numbers of examples in the batches from number `skip` on."""
    for start in range(skip * batch_size, examples, batch_size):
        yield min(batch_size, examples - start)


def _cuts(examples: int, batch_size: int, skip: int, own_rows: OwnRows | None) -> Iterator[slice]:
    """Yield where the batches are from number `skip` on, or of each the rows that `own_rows` says."""
    start = skip * batch_size
    for length in _lengths(examples, batch_size, skip):
        own = None if own_rows is None else own_rows(length)
        yield slice(start, start + length) if own is None else slice(start + own.start, start + own.stop)
        start += length


def _order(seed: int, epoch: int, examples: int, **where: Any) -> Tensor:
    """Return the order of the examples in an epoch. It depends on the seed and the epoch alone.

    So a resumed run needs no generator's state for it. The epoch has 32 bits of its own, so that neighbouring seeds
    share no order.
    """
    return tc.default_rng((abs(seed) << 32) + epoch).permutation(examples, **where)


def _sampled(examples: int) -> list[int]:
    """Return the places of some examples, from the first to the last."""
    return sorted({k * (examples - 1) // SAMPLED_EXAMPLES for k in range(SAMPLED_EXAMPLES + 1)})


def unpack(batch: Batch) -> tuple[Any, Any, Any]:
    """Return `x`, `y` and the weights of the examples; None for parts that the batch does not have.

    >>> from tape_nn.fitting import unpack
    >>> unpack((1, 2))
    (1, 2, None)
    """
    parts = batch if isinstance(batch, tuple) else (batch,)
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"a batch is (x,), (x, y) or (x, y, weights); got {len(parts)} parts")
    x, y, weights = (*parts, None, None)[:3]
    return x, y, weights


def examples_in(batch: Batch) -> int:
    """Return the number of examples in a batch: the length of its first array, or 1 if it has none."""
    for leaf in pytree.flatten(batch)[0]:
        if isinstance(leaf, Tensor) and leaf.ndim:
            return leaf.shape[0]
    return 1


def with_class_weights(batch: Batch, class_weight: Mapping[int, float]) -> Batch:
    """Multiply each example's weight by that of its class, as Keras does; a class without a weight has 1.

    Raises:
        ValueError: the batch has no y, or y is not one array.
    """
    x, y, weights = unpack(batch)
    if not isinstance(y, Tensor):
        raise ValueError("class_weight needs data (x, y) whose y is one array of classes")
    if y.ndim > 1:  # one-hot, or a column
        y = tc.argmax(y, axis=-1) if y.shape[-1] > 1 else y[..., 0]
    found = tc.ones(y.shape, backend=y.backend, device=y.device)
    for number, weight in class_weight.items():
        found = tc.where(y == number, float(weight), found)
    return x, batch[1], found if weights is None else found * weights


def _tensors(data: PyTree, where: Mapping[str, Any], name: str) -> PyTree:
    """Convert the leaves of a structure to Tensors. In a plain tuple, a list is an array written out."""
    if type(data) is tuple:  # a named tuple is one structure
        data = tuple([tc.asarray(part, **where) if isinstance(part, list) else part for part in data])
    leaves, structure = pytree.flatten(data)
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


def _placement(model: object) -> dict[str, Any]:
    """Return the backend and the device of the model as keywords; the selected backend if it has no Variables."""
    variables = model.variables if isinstance(model, Module) else ()
    if variables:
        return {"backend": variables[0].backend, "device": variables[0].device}
    return {"backend": tc.get_backend()}
