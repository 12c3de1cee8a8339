"""Index sets: for each element of a value, the elements of `x` that it may depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from tape_core.typing import HostArray, SparseMatrix

LIMIT = 1 << 27
"""Members, in all sets of a value: above it each element gets the union of all, so that memory stays bounded."""


class IndexSets:
    """A set of elements of `x` for each element of a value.

    Elements often share a set, as those of a product `w @ x` do. So an element has the number of its set, and an op
    that only moves elements (a reshape, an index) moves these numbers.

    Attributes:
        numbers: an int64 array of the value's shape; 0 is the empty set.
        table: a csr_array of booleans, in whose row k are the members of set k.
        array: the value itself, raw.
    """

    __slots__ = ("array", "numbers", "table")

    def __init__(self, numbers: HostArray, table: SparseMatrix, array: HostArray = None) -> None:
        self.numbers = numbers
        self.table = table
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.numbers.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return self.numbers.ndim  # type: ignore[no-any-return]

    def with_numbers(self, numbers: HostArray) -> IndexSets:
        """Return other elements with sets of the same table."""
        return IndexSets(numbers, self.table)

    def reshape(self, *shape: int) -> IndexSets:
        """Return the same elements in another shape."""
        return self.with_numbers(self.numbers.reshape(shape))

    def broadcast_to(self, shape: tuple[int, ...]) -> IndexSets:
        """Repeat the elements along dimensions of length 1."""
        return self if self.shape == shape else self.with_numbers(np.broadcast_to(self.numbers, shape))

    def __or__(self, other: IndexSets) -> IndexSets:
        """Return the union, element by element, over shapes that broadcast."""
        shape = np.broadcast_shapes(self.shape, other.shape)
        return union([self, other], shape, self.table.shape[1])

    def united(self, axes: int | Sequence[int]) -> IndexSets:
        """Return the union along axes, which keep the length 1."""
        axes = tuple([a % self.ndim for a in ([axes] if isinstance(axes, int) else axes)])
        others = [a for a in range(self.ndim) if a not in axes]
        shape = tuple([1 if a in axes else n for a, n in enumerate(self.shape)])
        length = math.prod([self.shape[a] for a in axes])
        lines = self.numbers.transpose(*others, *axes).reshape(math.prod(shape), length)
        if lines.shape[1] == 1:
            return self.with_numbers(lines.reshape(shape))
        owners = np.repeat(np.arange(lines.shape[0]), lines.shape[1])
        return merged(self, owners, lines.reshape(-1), shape)

    def matrix(self) -> Any:
        """Return a csr_array of booleans with a row for each element of the value, in row-major order."""
        return self.table[self.numbers.reshape(-1)]


def identity(shape: tuple[int, ...]) -> IndexSets:
    """Return the index sets of `x` itself: each element depends on itself."""
    n = math.prod(shape)
    numbers = np.arange(1, n + 1).reshape(shape)
    # Row 0 is the empty set; each of the others has one member.
    indptr = np.maximum(np.arange(-1, n + 1, dtype=np.int32), 0)
    return IndexSets(numbers, _table(np.arange(n, dtype=np.int32), indptr, n))


def empty(shape: tuple[int, ...], members: int) -> IndexSets:
    """Return the index sets of a constant, which are empty."""
    return IndexSets(np.zeros(shape, np.int64), _table(np.zeros(0, np.int32), np.zeros(2, np.int32), members))


def full(parts: Sequence[IndexSets], shape: tuple[int, ...]) -> IndexSets:
    """Return sets in which each element depends on everything that any part depends on."""
    flat = [part.reshape(-1) for part in parts]
    whole = union([part.united(0) for part in flat if part.numbers.size], (1,), parts[0].table.shape[1])
    return whole.with_numbers(np.broadcast_to(whole.numbers.reshape(()), shape))


def union(parts: Sequence[IndexSets], shape: tuple[int, ...], members: int) -> IndexSets:
    """Return the union of sets that broadcast to a shape."""
    live = [part for part in parts if part.numbers.any()]
    if not live:
        return empty(shape, members)
    total = live[0].broadcast_to(shape)
    for part in live[1:]:
        total = _union_of_two(total, part.broadcast_to(shape))
    return total


def _union_of_two(a: IndexSets, b: IndexSets) -> IndexSets:
    one, other = a.numbers, b.numbers
    if a.table is b.table and (one is other or np.array_equal(one, other)):
        return a
    whole_a, whole_b = _whole(a.table), _whole(b.table)
    if whole_a is not None:  # what already depends on everything
        other = np.where(_are_whole(a.table)[one], 0, other)
    if whole_b is not None:
        one = np.where(_are_whole(b.table)[other], 0, one)
    # Two sets that meet are united once, however many elements have that pair.
    width = b.table.shape[0]
    pairs, places = np.unique(one.reshape(-1) * width + other.reshape(-1), return_inverse=True)
    left, right = pairs // width, pairs % width
    # An upper bound: members that both have count twice.
    if _sizes(a.table)[left].sum() + _sizes(b.table)[right].sum() > LIMIT:
        return full([a, b], a.shape)
    if not right.any():
        return a.with_numbers(one)
    if not left.any():
        return b.with_numbers(other)
    table = a.table[left] + b.table[right]
    return _numbered(table, places.reshape(a.shape))


def merged(sets: IndexSets, owners: HostArray, numbers: HostArray, shape: tuple[int, ...]) -> IndexSets:
    """Return for each element of a shape the union of the sets that it owns: sets of one table, by their numbers."""
    count, members = math.prod(shape), sets.table.shape[1]
    # An upper bound, for the same reason as above.
    sizes = np.bincount(owners, _sizes(sets.table)[numbers], minlength=count)
    if np.minimum(sizes, members).sum() > LIMIT:
        return full([sets.with_numbers(numbers)], shape)
    chosen = numbers > 0
    owners, numbers = owners[chosen], numbers[chosen]
    # As a product of boolean matrices: a row for each owner, with its sets, times the sets with their members.
    incidence = sparse.csr_array(
        (np.ones(len(numbers), bool), (owners, numbers)), shape=(count, sets.table.shape[0]), dtype=bool
    )
    return _numbered(incidence @ sets.table, np.arange(count).reshape(shape))


def joined(parts: Sequence[IndexSets]) -> tuple[list[Any], Any]:
    """Return the set numbers of several values in one common table, and the table."""
    tables: list[Any] = []
    starts: dict[int, int] = {}
    rows = 0
    for part in parts:
        if id(part.table) not in starts:
            starts[id(part.table)] = rows
            tables.append(part.table)
            rows += part.table.shape[0]
    if len(tables) == 1:
        return [part.numbers for part in parts], tables[0]
    # Rows of other tables come before, but the empty set stays number 0.
    numbers = [np.where(part.numbers, part.numbers + starts[id(part.table)], 0) for part in parts]
    return numbers, sparse.vstack(tables, format="csr")


def composed(outer: SparseMatrix, inner: IndexSets) -> IndexSets:
    """Return the sets of what depends on a value: `outer` has a row for each element of it, with who depends on it."""
    found = outer.tocoo()
    owners, numbers = found.col, inner.numbers.reshape(-1)[found.row]
    return merged(inner, owners, numbers, (outer.shape[1],))


def _numbered(table: SparseMatrix, places: HostArray) -> IndexSets:
    """Return sets by the rows of a table, after putting the empty set in front, as number 0."""
    indptr = np.concatenate([np.zeros(1, table.indptr.dtype), table.indptr])
    return IndexSets(places + 1, _table(table.indices, indptr, table.shape[1]))


def _table(indices: HostArray, indptr: HostArray, members: int) -> Any:
    return sparse.csr_array((np.ones(len(indices), bool), indices, indptr), shape=(len(indptr) - 1, members))


def _sizes(table: SparseMatrix) -> Any:
    return np.diff(table.indptr)


def _are_whole(table: SparseMatrix) -> Any:
    return _sizes(table) == table.shape[1]


def _whole(table: SparseMatrix) -> int | None:
    """Return the number of a set with all members, or None."""
    if table.nnz < table.shape[1] or not table.shape[1]:
        return None
    places = np.flatnonzero(_are_whole(table))
    return int(places[0]) if len(places) else None
