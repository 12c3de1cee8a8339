"""IndexedSlices: the gradient of a gather, as the rows that were gathered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tape_core.base.lookup import ops
from tape_core.base.reprs import counted, lenient, lenient_html
from tape_core.engine import layouts
from tape_core.typing import Array, Cotangent, Namespace

if TYPE_CHECKING:
    from tape_core.engine.tensor import Tensor


class IndexedSlices:
    """Rows of an array that is zero elsewhere: row `indices[k]` has `values[k]`; rows named twice add up.

    The gradient of :func:`~tape_core.gather` is one, so that an optimizer touches only the rows in use.
    Every function takes it as the array it stands for, and so does arithmetic; adding two keeps the slices of both.

    >>> import tape_core as tc
    >>> table = tc.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> with tc.GradientTape() as tape:
    ...     y = tc.sum(tc.gather(table, tc.asarray([2, 0, 2])))
    >>> slices = tape.gradient(y, table)
    >>> slices.indices.tolist(), slices.dense_shape
    ([2, 0, 2], (3, 2))
    >>> slices.densify().tolist()
    [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]
    >>> merged = slices.merged()
    >>> merged.indices.tolist(), merged.values.tolist()
    ([0, 2], [[1.0, 1.0], [2.0, 2.0]])

    Attributes:
        values: shape (n, ...): the rows.
        indices: shape (n,), integers; duplicates are not merged.
        dense_shape: the shape of the array the rows belong to.
    """

    __slots__ = ("_xp", "dense_shape", "indices", "values")

    # NumPy arrays on the left of an operator leave the operation to us.
    __array_ufunc__ = None

    def __init__(
        self, values: Array, indices: Array, dense_shape: tuple[int, ...], *, _xp: Namespace | None = None
    ) -> None:
        self._xp = _xp  # what raw arrays of a sweep are computed with; None for Tensors
        self.values = values
        self.indices = indices
        self.dense_shape = tuple(dense_shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """`dense_shape`."""
        return self.dense_shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    def _namespace(self) -> Any:
        if self._xp is not None:
            return self._xp
        return ops

    def densify(self) -> Tensor:
        """Return the whole array, duplicates added up."""
        result: Tensor = self._namespace().scatter(self.values, self.indices, self.dense_shape)
        return result

    def merged(self) -> IndexedSlices:
        """Return the same array with each row named once, in rising order: values for one row are added up.

        It is differentiable in the values. Indices that count from the end become those from the start.

        Raises:
            BatchError: inside :func:`~tape_core.vmap`, where examples may have different numbers of rows.
        """
        xp = self._namespace()
        from_start = xp.where(self.indices < 0, self.indices + self.dense_shape[0], self.indices)
        names, inverse = xp.unique_inverse(from_start)
        n = names.shape[0]
        order = xp.argsort(names)  # libraries may find them in any order
        # The inverse permutation: the place of each name in rising order.
        places = xp.setitem(xp.zeros_like(order), xp.arange_beside(order, n), order)
        rows = xp.take(places, inverse, axis=0)
        values = xp.scatter(self.values, rows, (n, *self.values.shape[1:]))
        return IndexedSlices(values, xp.take(names, order, axis=0), self.dense_shape, _xp=self._xp)

    @lenient
    def __repr__(self) -> str:
        return f"IndexedSlices(values={self.values!r}, indices={self.indices!r}, dense_shape={self.dense_shape})"

    @lenient_html
    def _repr_html_(self) -> str:
        """Return the display in a notebook: how many rows of which array, and these."""
        from html import escape

        rows = f"{counted(len(self.indices), 'row')} of an array of shape {self.dense_shape}"
        texts = [f"indices = {self.indices!r}", f"values = {self.values!r}"]
        return f"<p>IndexedSlices: {rows}</p><pre>{escape(chr(10).join(texts))}</pre>"

    def __add__(self, other: Array | IndexedSlices) -> Any:
        if isinstance(other, IndexedSlices):
            # Rows that both have stay apart: merging would sort in every addition, and `densify` adds them up anyhow.
            xp = self._namespace()
            join = _concatenated
            if layouts.in_use and layouts.is_divided(self.values):
                join = _joined
            return IndexedSlices(
                join(xp, self.values, other.values),
                join(xp, self.indices, other.indices),
                self.dense_shape,
                _xp=self._xp,
            )
        return self.densify() + other

    __radd__ = __add__

    def __neg__(self) -> Any:
        return -self.densify()

    def __sub__(self, other: Array | IndexedSlices) -> Any:
        return self.densify() - dense(other)

    def __rsub__(self, other: Array | IndexedSlices) -> Any:
        return other - self.densify()

    def __mul__(self, other: Array | IndexedSlices) -> Any:
        return self.densify() * dense(other)

    def __rmul__(self, other: Array | IndexedSlices) -> Any:
        return other * self.densify()

    def __truediv__(self, other: Array | IndexedSlices) -> Any:
        return self.densify() / dense(other)

    def __rtruediv__(self, other: Array | IndexedSlices) -> Any:
        return other / self.densify()

    def __pow__(self, other: Array | IndexedSlices) -> Any:
        return self.densify() ** dense(other)

    def __rpow__(self, other: Array | IndexedSlices) -> Any:
        return other ** self.densify()


def _concatenated(xp: Namespace, a: Array, b: Array) -> Any:
    return xp.concat([a, b], axis=0)


def _joined(xp: Namespace, a: Array, b: Array) -> Any:
    """Return the rows of two arrays in another order: of each part of the one and of the other, one after the other.

    So each process joins the rows that it has, where the lengths have a common factor that the processes divide, as
    those of two lookups for one batch have: the order of slices does not matter, and those of all need not be sent.
    """
    n = math.gcd(a.shape[0], b.shape[0])
    if not (a.shape[0] and b.shape[0]):
        return _concatenated(xp, a, b)
    parts = [xp.reshape(x, (n, x.shape[0] // n, *x.shape[1:])) for x in (a, b)]
    return xp.reshape(xp.concat(parts, axis=1), (a.shape[0] + b.shape[0], *a.shape[1:]))


def dense(value: Cotangent) -> Any:
    """Return IndexedSlices as a whole array; anything else is returned as it is."""
    return value.densify() if isinstance(value, IndexedSlices) else value
