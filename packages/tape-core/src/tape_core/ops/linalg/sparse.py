"""Products with sparse matrices in compressed sparse row form (CSR), given by plain arrays."""

from __future__ import annotations

from collections.abc import Iterator

from tape_core.backends.checks import check_csr
from tape_core.engine.op import NONDIFF, op, refuses, vjp
from tape_core.engine.samples import Draw, Refused, Sample, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.ops.creation import asarray
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace


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


def _row_numbers(xp: Namespace, indptr: Array) -> Array:
    """The number of the row of each element."""
    return xp.repeat(xp.arange_beside(indptr, indptr.shape[0] - 1), indptr[1:] - indptr[:-1])


def _sum_rows(xp: Namespace, products: Array, indptr: Array) -> Array:
    """The sums of the products that belong to each row of the matrix.

    A segmented scan (Hillis and Steele, "Data parallel algorithms", 1986): in log2(n) passes, each product takes in the
    one that is 1, 2, 4, ... places ahead, if it belongs to the same row; in the end the first product of a row has the
    sum. (Differences of cumulative sums would lose digits, and would carry infinities and NaN from row to row.)
    """
    owners, counts = _row_numbers(xp, indptr), indptr[1:] - indptr[:-1]
    n, shape = products.shape[-2], tuple(products.shape)
    longest = int(xp.max(counts)) if n else 0
    step = 1
    while step < longest:
        same = (owners[step:] == owners[: n - step])[:, None]
        taken = products[..., : n - step, :] + xp.where(same, products[..., step:, :], 0)
        products = xp.concat([taken, products[..., n - step :, :]], axis=-2)
        step *= 2
    # An empty row takes a zero that is appended as a last product.
    nothing = xp.zeros_beside(products, (*shape[:-2], 1, shape[-1]), dtype=products.dtype)
    firsts = xp.where(counts > 0, indptr[:-1], n)
    return xp.take(xp.concat([products, nothing], axis=-2), firsts, axis=-2)


def _csr_kernel(xp: Namespace, data: Array, indices: Array, indptr: Array, dense: Array) -> Array:
    if len(dense.shape) == 0:
        raise ValueError("dense must have a dimension")
    if len(dense.shape) == 1:
        return _csr_kernel(xp, data, indices, indptr, dense[:, None])[:, 0]
    check_csr(xp, data, indices, indptr, dense.shape[-2])
    products = data[:, None] * xp.take(dense, indices, axis=-2)
    return _sum_rows(xp, products, indptr)


def _csr_data(xp: Namespace, g: Cotangent, data: Array, indices: Array, indptr: Array, dense: Array) -> Cotangent:
    if len(dense.shape) == 1:
        g, dense = g[:, None], dense[:, None]
    products = xp.take(g, _row_numbers(xp, indptr), axis=-2) * xp.take(dense, indices, axis=-2)
    axes = tuple(k for k in range(len(products.shape)) if k != len(products.shape) - 2)
    return xp.sum(products, axis=axes)


@refuses("data", "indices", "indptr", "dense")
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
    multilinear=True,
)
def csr_matmul(data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, dense: ArrayLike, /) -> Tensor:
    """The product of a sparse matrix, given by its compressed rows, and a dense one.

    The arrays are those of SciPy's `csr_array`: row i has the elements `data[indptr[i]:indptr[i + 1]]`, in the columns
    `indices[indptr[i]:indptr[i + 1]]`; elements at one place add up. The gradient of `data` has only these elements: no
    dense matrix is made.

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
        indptr: the index in `data` at which each row begins, and the end: integers of shape (m + 1,).
        dense: a vector, shape (n,), or matrices, shape (..., n, k).

    Returns:
        An array of shape (m,) or (..., m, k).

    Raises:
        ValueError, TypeError, IndexError: the arrays do not describe a matrix of n columns.
    """


def _csr_transposed_kernel(
    xp: Namespace, data: Array, indices: Array, indptr: Array, dense: Array, columns: int
) -> Array:
    if len(dense.shape) == 1:
        return _csr_transposed_kernel(xp, data, indices, indptr, dense[:, None], columns)[:, 0]
    # Sort the elements by column: that is the CSR form of the transpose.
    order = xp.argsort(indices)
    starts = xp.searchsorted(xp.take(indices, order), xp.arange_beside(indices, columns + 1))
    sources = xp.take(_row_numbers(xp, indptr), order)
    return _sum_rows(xp, xp.take(data, order)[:, None] * xp.take(dense, sources, axis=-2), starts)


def _csr_transposed_samples(draw: Draw) -> Iterator[Sample]:
    for shape in ((2, 2), (2,), (3, 2, 2)):
        yield Sample(draw(3), asarray([0, 2, 1]), asarray([0, 2, 3]), draw(*shape), 4)


@refuses("data", "indices", "indptr", "dense")
@op(
    data=vjp(lambda xp, g, data, indices, indptr, dense: _csr_data(xp, dense, data, indices, indptr, g)),
    indices=NONDIFF,
    indptr=NONDIFF,
    dense=vjp(lambda xp, g, data, indices, indptr: xp.csr_matmul(data, indices, indptr, g)),
    kernel=_csr_transposed_kernel,
    samples=with_complex(_csr_transposed_samples),
    multilinear=True,
)
def csr_transposed_matmul(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, dense: ArrayLike, /, columns: int
) -> Tensor:
    """The product of the transpose of a sparse matrix with `columns` columns, given as in :func:`csr_matmul`."""
