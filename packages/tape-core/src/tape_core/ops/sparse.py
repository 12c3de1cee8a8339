"""Products with sparse matrices, given by the plain arrays of their compressed rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.op import NONDIFF, op, vjp
from tape_core.ops.creation import asarray
from tape_core.samples import Draw, Refused, Sample
from tape_core.tensor import ArrayLike, Tensor


def _csr_samples(draw: Draw) -> Iterator[Sample]:
    # [[a, 0, b], [0, 0, 0], [c, 0, 0], [d, e, f]], and one where a row has an element twice
    indices, indptr = asarray([0, 2, 0, 0, 1, 2]), asarray([0, 2, 2, 3, 6])
    for shape in ((3, 2), (3,), (2, 3, 2), (3, 0)):
        yield Sample(draw(6), indices, indptr, draw(*shape))
    yield Sample(draw(3), asarray([1, 1, 0]), asarray([0, 2, 3]), draw(2, 2))
    yield Sample(draw(0), asarray([], dtype="int64"), asarray([0, 0, 0]), draw(2, 2))
    yield Sample(draw(0), asarray([], dtype="int64"), asarray([0]), draw(2, 2))
    yield Sample(draw.complex(6), indices, indptr, draw.complex(3, 2))
    yield Refused(ValueError, "indptr must begin with 0 and end with 6", draw(6), indices, asarray([0, 2, 5]), draw(3))
    yield Refused(ValueError, "indptr must not fall", draw(6), indices, asarray([0, 4, 2, 6]), draw(3))
    yield Refused(IndexError, "indices must be from 0 to 1", draw(6), indices, indptr, draw(2))
    yield Refused(ValueError, "one dimension and one length", draw(5), indices, indptr, draw(3))
    yield Refused(TypeError, "indices must be integers", draw(6), draw(6), indptr, draw(3))
    yield Refused(ValueError, "dense must have a dimension", draw(6), indices, indptr, draw())


def check_csr(xp: Any, data: Any, indices: Any, indptr: Any, columns: int) -> None:
    """Refuse arrays that describe no matrix of so many columns.

    Raises:
        TypeError: indices are not integers.
        ValueError: a shape is wrong, or `indptr` is no partition.
        IndexError: an element is in a column that is not there.
    """
    for name, x in (("indices", indices), ("indptr", indptr)):
        if not xp.isdtype(x.dtype, "integral"):
            raise TypeError(f"{name} must be integers, got {x.dtype}")
    n = data.shape[0] if len(data.shape) == 1 else -1
    if tuple(indices.shape) != (n,):
        raise ValueError(
            f"data and indices must have one dimension and one length, got {tuple(data.shape)} and {tuple(indices.shape)}"
        )
    if len(indptr.shape) != 1 or indptr.shape[0] == 0 or int(indptr[0]) != 0 or int(indptr[-1]) != n:
        raise ValueError(f"indptr must begin with 0 and end with {n}, the number of elements; got {indptr}")
    if xp.any(indptr[1:] < indptr[:-1]):
        raise ValueError(f"indptr must not fall, got {indptr}")
    if n and (int(xp.min(indices)) < 0 or int(xp.max(indices)) >= columns):
        raise IndexError(f"indices must be from 0 to {columns - 1}, the columns of the sparse matrix")


def _rows(xp: Any, indptr: Any) -> Any:
    """The row of each element."""
    return xp.repeat(xp.arange_beside(indptr, indptr.shape[0] - 1), indptr[1:] - indptr[:-1])


def _add_up(xp: Any, products: Any, places: Any, n: int) -> Any:
    """Zeros of n rows, to which each row of `products` is added at its place."""
    batch = tuple(products.shape[:-2])
    return xp.scatter(products, (slice(None),) * len(batch) + (places,), (*batch, n, products.shape[-1]))


def _csr_kernel(xp: Any, data: Any, indices: Any, indptr: Any, dense: Any) -> Any:
    if len(dense.shape) == 0:
        raise ValueError("dense must have a dimension")
    if len(dense.shape) == 1:
        return _csr_kernel(xp, data, indices, indptr, dense[:, None])[:, 0]
    check_csr(xp, data, indices, indptr, dense.shape[-2])
    products = data[:, None] * xp.take(dense, indices, axis=-2)
    return _add_up(xp, products, _rows(xp, indptr), indptr.shape[0] - 1)


def _csr_data(xp: Any, g: Any, data: Any, indices: Any, indptr: Any, dense: Any) -> Any:
    if len(dense.shape) == 1:
        g, dense = g[:, None], dense[:, None]
    products = xp.take(g, _rows(xp, indptr), axis=-2) * xp.take(dense, indices, axis=-2)
    axes = tuple(k for k in range(len(products.shape)) if k != len(products.shape) - 2)
    return xp.sum(products, axis=axes)


@op(
    data=vjp(_csr_data),
    indices=NONDIFF,
    indptr=NONDIFF,
    dense=vjp(
        lambda xp, g, data, indices, indptr, dense_spec: xp.csr_transposed_matmul(
            data, indices, indptr, g, dense_spec.shape[-2 if len(dense_spec.shape) > 1 else -1]
        )
    ),
    kernel=_csr_kernel,
    samples=_csr_samples,
)
def csr_matmul(data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, dense: ArrayLike, /) -> Tensor:
    """A sparse matrix times a dense one. The sparse one is given by its compressed rows, as in `scipy.sparse.csr_array`.

    Row i has the elements `data[indptr[i]:indptr[i + 1]]`, in the columns `indices[indptr[i]:indptr[i + 1]]`; what is in
    one place twice adds up. The gradient of `data` has only these elements: no dense matrix is made.

    >>> import tape_core as tc
    >>> data, indices = tc.Variable([1.0, 2.0, 3.0]), tc.asarray([0, 2, 1])
    >>> indptr = tc.asarray([0, 2, 3])  # the matrix [[1, 0, 2], [0, 3, 0]]
    >>> with tc.GradientTape() as tape:
    ...     y = tc.linalg.csr_matmul(data, indices, indptr, tc.asarray([1.0, 10.0, 100.0]))
    >>> y.tolist(), tape.gradient(y, data).tolist()
    ([201.0, 30.0], [1.0, 100.0, 10.0])

    Args:
        data: the elements, shape (nnz,).
        indices: their columns, integers of shape (nnz,), in any order within a row.
        indptr: where each row begins, and the end: integers of shape (m + 1,).
        dense: a vector, shape (n,), or matrices, shape (..., n, k).

    Returns:
        Shape (m,) or (..., m, k).

    Raises:
        ValueError, TypeError, IndexError: the arrays describe no matrix of n columns.
    """


def _csr_transposed_kernel(xp: Any, data: Any, indices: Any, indptr: Any, dense: Any, columns: int) -> Any:
    if len(dense.shape) == 1:
        return _csr_transposed_kernel(xp, data, indices, indptr, dense[:, None], columns)[:, 0]
    products = data[:, None] * xp.take(dense, _rows(xp, indptr), axis=-2)
    return _add_up(xp, products, indices, columns)


def _csr_transposed_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((2, 2), (2,), (3, 2, 2)):
        yield Sample(draw(3), asarray([0, 2, 1]), asarray([0, 2, 3]), draw(*shape), 4)


@op(
    data=vjp(lambda xp, g, data, indices, indptr, dense: _csr_data(xp, dense, data, indices, indptr, g)),
    indices=NONDIFF,
    indptr=NONDIFF,
    dense=vjp(lambda xp, g, data, indices, indptr: xp.csr_matmul(data, indices, indptr, g)),
    kernel=_csr_transposed_kernel,
    samples=_csr_transposed_samples,
)
def csr_transposed_matmul(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, dense: ArrayLike, /, columns: int
) -> Tensor:
    """As :func:`csr_matmul`, by the transpose of the sparse matrix, which has so many columns."""
