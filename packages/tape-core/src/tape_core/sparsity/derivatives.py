"""Sparse Jacobians and Hessians: find the pattern, colour it, compute one product for each colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tape_core.backends.errors import BatchError
from tape_core.base.ambient import ACTIVE
from tape_core.base.contexts import contextmanager, setting
from tape_core.base.dtypes import finfo
from tape_core.base.mistakes import check_callable
from tape_core.base.reprs import lenient
from tape_core.engine import pytree
from tape_core.engine.tensor import Tensor, read
from tape_core.modes.vmap import name_of, titled, vmap
from tape_core.ops.creation import asarray
from tape_core.ops.data_types import astype
from tape_core.ops.manipulation import reshape
from tape_core.transforms.derivatives import grad, jvp, vjp
from tape_core.typing import ArrayLike, HostArray, PyTree, SparseMatrix, Tangent

Function = Callable[..., Any]


class Sparsity:
    """The entries of a Jacobian that may differ from 0, with colours that are found once and used again.

    :func:`jacobian_sparsity` and :func:`hessian_sparsity` find it; made from a matrix it is what the caller knows.

    >>> import tape_core as tc
    >>> sparsity = tc.jacobian_sparsity(lambda x: x[1:] - x[:-1] ** 2, tc.zeros(4))
    >>> sparsity
    Sparsity(3 by 4, 6 entries)
    >>> sparsity.pattern.toarray().astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]

    Args:
        pattern: a sparse matrix of SciPy, of which every element that is stored is an entry, or a NumPy array.

    Attributes:
        pattern: a scipy.sparse.csr_array of booleans.
        shape, nnz: its shape, and the number of entries.

    Raises:
        TypeError: the pattern is neither.
        ValueError: it does not have two dimensions.
        ImportError: SciPy is not installed.
    """

    __slots__ = ("_colorings", "_symmetric", "pattern")

    def __init__(self, pattern: SparseMatrix | HostArray) -> None:
        np, sparse = _scipy("Sparsity")
        if sparse.issparse(pattern):
            stored = sparse.csr_array(pattern, copy=True)
        elif isinstance(pattern, np.ndarray):
            if pattern.ndim != 2:
                raise ValueError(f"Sparsity: pattern must have 2 dimensions, got shape {pattern.shape}")
            stored = sparse.csr_array(pattern != 0)
        else:
            raise TypeError(
                f"Sparsity: pattern must be a sparse matrix of SciPy or a NumPy array, got {type(pattern).__name__!r}"
            )
        # A stored 0 is an entry as well: only the places count.
        stored.data = np.ones(len(stored.data), bool)
        stored.sum_duplicates()
        self.pattern = stored
        self._colorings: dict[str, tuple[Any, int]] = {}
        self._symmetric: Sparsity | None = None

    @lenient
    def __repr__(self) -> str:
        return f"Sparsity({self.shape[0]} by {self.shape[1]}, {self.nnz} entries)"

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the Jacobian."""
        return self.pattern.shape  # type: ignore[no-any-return]

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return int(self.pattern.nnz)

    def colors(self, of: str) -> tuple[Any, int]:
        """Return a colour for each column (`of="columns"`), row (`"rows"`) or both (`"star"`), and how many there are.

        Columns of one colour share no row, rows no column. For a symmetric pattern `"star"` asks less: of each entry
        and its mirror image one is alone with its colour.

        >>> import tape_core as tc
        >>> import numpy as np
        >>> arrow = tc.Sparsity(np.asarray([[1, 1, 1], [1, 1, 0], [1, 0, 1]]))
        >>> arrow.colors("columns")[1], arrow.colors("star")[1]
        (3, 2)

        Returns:
            An int64 array, and the number of products that give all entries.
        """
        if of not in ("columns", "rows", "star"):
            raise ValueError(f"Sparsity.colors: of must be 'columns', 'rows' or 'star', got {of!r}")
        if of not in self._colorings:
            from tape_core.sparsity import coloring

            if of == "star":
                if (self.pattern != self.pattern.T).nnz:
                    raise ValueError("Sparsity.colors: the pattern is not symmetric, and has no star colouring")
                self._colorings[of] = coloring.star(self.pattern)
            else:
                pattern = self.pattern if of == "columns" else self.pattern.T.tocsr()
                self._colorings[of] = coloring.columns(pattern)
        return self._colorings[of]

    @property
    def symmetric(self) -> Sparsity:
        """The pattern with the mirror image of each entry."""
        if self._symmetric is None:
            self._symmetric = Sparsity(self.pattern + self.pattern.T)
            # It is its own mirror image.
            self._symmetric._symmetric = self._symmetric
        return self._symmetric


def jacobian_sparsity(f: Function, x: ArrayLike) -> Sparsity:
    """Find the pattern of the Jacobian of `f`, the elements of `f(x)` that may depend on each of `x`, by one call.

    It is found by carrying along, for each element of each intermediate result, the elements of `x` that it may depend
    on. Values play no role: what is 0 at this `x` is an entry nevertheless, and the pattern holds wherever `f` takes
    the same path. A Python `if` on a value, and indices that are computed from values, count as they are here. Where
    an op's structure is not known, all is taken to depend on all: there may be too many entries, never too few.

    Args:
        f: a function of one array that returns one array.
        x: a real floating array.

    Returns:
        A :class:`Sparsity` of `f(x).size` rows and `x.size` columns, in row-major order of the elements.

    Raises:
        TypeError, ValueError, ImportError: as :func:`sparse_jacobian`.
    """
    check_callable("jacobian_sparsity", "f", f)
    return _detect("jacobian_sparsity", f, _check_x("jacobian_sparsity", x))


def hessian_sparsity(f: Function, x: ArrayLike) -> Sparsity:
    """Return the pattern of the Hessian of a function whose result is one number; see :func:`jacobian_sparsity`.

    >>> import tape_core as tc
    >>> tc.hessian_sparsity(lambda x: tc.sum(x[1:] * x[:-1]), tc.ones(3)).pattern.toarray().astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    check_callable("hessian_sparsity", "f", f)
    return _detect("hessian_sparsity", grad(f), _check_x("hessian_sparsity", x)).symmetric


def sparse_jacobian(
    f: Function,
    x: ArrayLike,
    sparsity: Sparsity | SparseMatrix | HostArray | None = None,
    *,
    chunk_size: int | None = None,
) -> Any:
    """Compute the Jacobian of `f` at `x` as a sparse matrix, by as few products as its pattern allows.

    Columns that share no row are computed together, by one product forward; or rows that share no column, by one
    product backward, where these are fewer.

    >>> import tape_core as tc
    >>> x = tc.asarray([1.0, 2.0, 3.0, 4.0])
    >>> jacobian = tc.sparse_jacobian(lambda x: x[1:] - x[:-1] ** 2, x)
    >>> jacobian.toarray().tolist()
    [[-2.0, 1.0, 0.0, 0.0], [0.0, -4.0, 1.0, 0.0], [0.0, 0.0, -6.0, 1.0]]

    Pattern and colours may be found once, for many `x`:

    >>> f = lambda x: x[1:] - x[:-1] ** 2
    >>> sparsity = tc.jacobian_sparsity(f, x)
    >>> tc.sparse_jacobian(f, x + 1.0, sparsity).toarray()[0].tolist()
    [-4.0, 1.0, 0.0, 0.0]

    Args:
        f: a function of one array that returns one array. What it does must be differentiable by :func:`vmap` of
            :func:`jvp` or :func:`vjp`.
        x: a real floating array of any shape; its elements count in row-major order.
        sparsity: a :class:`Sparsity`, a sparse matrix of SciPy or a NumPy array: which entries may differ from 0. By
            default :func:`jacobian_sparsity` finds it. A pattern that is given is checked, with a random vector.
        chunk_size: at most so many products at once, to use less memory.

    Returns:
        A scipy.sparse.csr_array of shape `(f(x).size, x.size)`, in the dtype of `f(x)`, or float32 if that has
        16 bits, on the host whatever the backend. Each entry of the pattern is stored, also where it is 0. Nothing
        flows through it.

    Raises:
        TypeError: `x` is no real floating array, or `f` does not return one floating array.
        ValueError: the pattern has another shape than the Jacobian, or lacks an entry that is not 0.
        ImportError: SciPy is not installed.
        BatchError: inside :func:`vmap`.
    """
    name = "sparse_jacobian"
    check_callable(name, "f", f)
    x = _check_x(name, x)
    given = sparsity is not None
    found = _as_sparsity(name, sparsity, x) if given else _detect(name, f, x)
    by_columns, by_rows = found.colors("columns"), found.colors("rows")
    if by_rows[1] < by_columns[1]:
        return _by_rows(name, f, x, found, by_rows, given, chunk_size, _compiled_rows(name, f, x))
    return _by_columns(name, f, x, found, by_columns, given, chunk_size)


def sparse_hessian(
    f: Function,
    x: ArrayLike,
    sparsity: Sparsity | SparseMatrix | HostArray | None = None,
    *,
    chunk_size: int | None = None,
) -> Any:
    """Compute the Hessian of `f` at `x` as a sparse matrix, by products with few vectors.

    >>> import tape_core as tc
    >>> def rosenbrock(x):
    ...     return tc.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    >>> tc.sparse_hessian(rosenbrock, tc.ones(3)).toarray().tolist()
    [[802.0, -400.0, 0.0], [-400.0, 1002.0, -400.0], [0.0, -400.0, 200.0]]

    Args:
        f: a function of one array that returns one number.
        x, chunk_size: as for :func:`sparse_jacobian`.
        sparsity: likewise; :func:`hessian_sparsity` finds it. The mirror image of an entry is one, too.

    Returns:
        A scipy.sparse.csr_array of shape `(x.size, x.size)`, as :func:`sparse_jacobian`.

    Raises:
        TypeError, ValueError, ImportError, BatchError: as :func:`sparse_jacobian`.
    """
    name = "sparse_hessian"
    check_callable(name, "f", f)
    x = _check_x(name, x)
    gradient, given = grad(f), sparsity is not None
    found = _as_sparsity(name, sparsity, x) if given else _detect(name, gradient, x)
    if found.shape[0] != found.shape[1]:
        raise ValueError(f"{name}: sparsity must have shape {(found.shape[1],) * 2}, got {found.shape}")
    # The products may find an entry as its mirror image, so the pattern must have both.
    found = found.symmetric
    colors = found.colors("columns")
    # With two colours only it may be a star or some; not worth the search.
    if colors[1] > 3 and found.colors("star")[1] < colors[1]:
        colors = found.colors("star")
    return _by_rows(
        name, gradient, x, found, colors, given, chunk_size, _compiled_rows(name, f, x, grad), symmetric=True
    )


# -- the pattern


def _detect(name: str, f: Function, x: Tensor) -> Sparsity:
    _scipy(name)
    from tape_core.sparsity.detection import detect

    with _unrecorded():
        _, sets = detect(lambda x: _check_result(name, f(x)), x)
    return Sparsity(sets.matrix())


def _as_sparsity(name: str, sparsity: Sparsity | SparseMatrix | HostArray, x: Tensor) -> Sparsity:
    found = sparsity if isinstance(sparsity, Sparsity) else Sparsity(sparsity)
    size = math.prod(x.shape)
    if found.shape[1] != size:
        raise ValueError(f"{name}: sparsity has shape {found.shape}, x has {size} elements: one for each column")
    return found


# -- the products


def _by_columns(
    name: str, f: Function, x: Tensor, sparsity: Sparsity, colors: tuple[Any, int], check: bool, chunk: int | None
) -> Any:
    np, _ = _scipy(name)
    color, count = colors
    pattern = sparsity.pattern
    seeds = _seeds(np, color, count, check)
    dtypes = []

    def product(v: Tangent) -> Any:
        y, tangent = jvp(lambda x: _check_result(name, f(x)), (x,), (v,))
        dtypes.append(y.dtype)
        return tangent

    with _unrecorded():
        given = _as_tensor_like(seeds.reshape(seeds.shape[0], *x.shape), x)
        if chunk is None and (compiled := _compiled_columns(name, f, x)) is not None:
            products = compiled(x, given)
        else:
            titled(product, f"{name} of {name_of(f)}", "products")
            products = vmap(product, chunk_size=chunk, randomness="same")(given)
    found = _to_host(np, products)
    _check_rows(name, sparsity, found.shape[1])
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    # In the row of an entry, the product of the entry's colour has that entry alone.
    matrix = _fill_pattern(pattern, found[color[pattern.indices], rows])
    if check:
        _check_product(np, name, sparsity, found[-1], matrix, seeds[-1], finfo(products.dtype).eps)
    return matrix


def _by_rows(
    name: str,
    f: Function,
    x: Tensor,
    sparsity: Sparsity,
    colors: tuple[Any, int],
    check: bool,
    chunk: int | None,
    compiled: Function | None,
    *,
    symmetric: bool = False,
) -> Any:
    np, _ = _scipy(name)
    color, count = colors
    pattern = sparsity.pattern
    seeds = _seeds(np, color, count, check)
    with _unrecorded():
        products = None if compiled is None or chunk is not None else compiled(x, _as_tensor_like(seeds, x))
        if products is None:
            y, pull = vjp(lambda x: _check_result(name, f(x)), x)
            _check_rows(name, sparsity, math.prod(y.shape))
            # Reverse mode would lose the imaginary part of the derivative of a complex result by a real x.
            if y.dtype.kind == "complex floating":
                return _by_columns(name, f, x, sparsity, sparsity.colors("columns"), check, chunk)
            given = _as_tensor_like(seeds.reshape(seeds.shape[0], *y.shape), y)
            product = titled(lambda g: pull(g)[0], f"{name} of {name_of(f)}", "products")
            products = vmap(product, chunk_size=chunk, randomness="same")(given)
    found = _to_host(np, products)
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    columns = pattern.indices
    if symmetric:
        # Where the entry is not alone with its colour in its column, its mirror image is.
        places = color[rows] * pattern.shape[1] + columns
        alone = np.bincount(places, minlength=count * pattern.shape[1])[places] == 1
        rows, columns = np.where(alone, rows, columns), np.where(alone, columns, rows)
    matrix = _fill_pattern(pattern, found[color[rows], columns])
    if check:
        # A product backward is one with the transposed matrix.
        _check_product(np, name, sparsity, found[-1], matrix.T, seeds[-1], finfo(products.dtype).eps)
    return matrix


def _compiled_columns(name: str, f: Function, x: Tensor) -> Function | None:
    """Return a function of `x` and tangents that gives the products, compiled as `f` is.

    None where that is not compiled, or compiling the products does not pay.
    """

    def make(python: Function) -> Function:
        def columns(x: Tensor, tangents: Tensor) -> Any:
            def product(v: Tangent) -> Any:
                return jvp(lambda x: _check_result(name, python(x)), (x,), (v,))[1]

            return vmap(product, randomness="same")(tangents)

        columns.__name__ = f"{name} of {name_of(f)}"
        return columns

    alike = getattr(f, "_compiled_alike", None)
    return None if alike is None else alike((name, "columns"), make, x)


def _compiled_rows(name: str, f: Function, x: Tensor, derivative: Function | None = None) -> Function | None:
    """Return the same of `x` and cotangents, which are rows, for `f` or a derivative of it.

    It returns None where :func:`_by_rows` has an error to raise, or goes by columns.
    """

    def make(python: Function) -> Function:
        g = python if derivative is None else derivative(python)

        def rows(x: Tensor, cotangents: Tensor) -> Any:
            y, pull = vjp(lambda x: _check_result(name, g(x)), x)
            if y.dtype.kind == "complex floating" or cotangents.shape[1] != math.prod(y.shape):
                return None
            given = astype(reshape(cotangents, (cotangents.shape[0], *y.shape)), y.dtype)
            return vmap(lambda given: pull(given)[0], randomness="same")(given)

        rows.__name__ = f"{name} of {name_of(f)}"
        return rows

    alike = getattr(f, "_compiled_alike", None)
    return None if alike is None else alike((name, "rows"), make, x)


def _seeds(np: ModuleType, color: HostArray, count: int, check: bool) -> Any:
    """Return a vector for each colour, 1 at its members; with `check` also a random one, to check the pattern."""
    seeds = np.zeros((max(count, 1) + check, len(color)))
    seeds[color, np.arange(len(color))] = 1
    if check:
        # Away from 0, so that each entry counts, and the same in every call.
        seeds[-1] = np.random.default_rng(0).uniform(0.5, 1.5, len(color))
    return seeds


def _check_rows(name: str, sparsity: Sparsity, size: int) -> None:
    if sparsity.shape[0] != size:
        raise ValueError(f"{name}: sparsity has shape {sparsity.shape}, f(x) has {size} elements: one for each row")


def _check_product(
    np: ModuleType,
    name: str,
    sparsity: Sparsity,
    product: HostArray,
    matrix: SparseMatrix,
    vector: HostArray,
    eps: float,
) -> None:
    """Raise if the matrix times the vector differs from the product by more than rounding."""
    with np.errstate(all="ignore"):
        scale = abs(matrix) @ abs(vector)
        error = abs(matrix @ vector - product)
        finite = np.isfinite(scale) & np.isfinite(product)
        floor = min(100 * eps, eps**0.5) * scale[finite].max(initial=0)
        wrong = finite & (error > eps**0.5 * (scale + abs(product)) + floor)
    if wrong.any():
        raise ValueError(
            f"{name}: sparsity lacks entries of the Jacobian that are not 0 at this x: a product with it differs in "
            f"{wrong.sum()} of {len(wrong)} elements, first at {int(np.argmax(wrong))}; leave sparsity out, or find it "
            f"again where f takes another path"
        )


def _fill_pattern(pattern: SparseMatrix, data: HostArray) -> Any:
    from scipy import sparse

    return sparse.csr_array((data, pattern.indices.copy(), pattern.indptr.copy()), shape=pattern.shape)


def _as_tensor_like(array: HostArray, x: Tensor) -> Tensor:
    return asarray(array, dtype=x.dtype, device=x.device, backend=x.backend)


def _to_host(np: ModuleType, products: Tensor) -> Any:
    """Return the products as a NumPy matrix, a row each; 16-bit floats become float32, as SciPy has none."""
    array = np.asarray(products.numpy())
    array = array.astype(np.float32) if array.dtype.itemsize < 4 else array
    return array.reshape(len(array), math.prod(array.shape[1:]))


# -- arguments and results


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Suspend all recorders in the context: the matrix is a constant to them."""
    with setting(ACTIVE, ()):
        yield


def _check_x(name: str, x: ArrayLike) -> Tensor:
    leaves, _ = pytree.flatten(x)
    if len(leaves) != 1 or leaves[0] is not x:
        raise TypeError(
            f"{name}: x must be one array, got a {type(x).__name__} of {len(leaves)}; let f take one vector, and take "
            f"it apart there: x = tc.concat([tc.reshape(a, (-1,)) for a in arrays])"
        )
    x = read(x, f"{name}: x")
    tensor: Tensor = x if type(x) is Tensor else asarray(x)
    if tensor.backend.level:
        raise BatchError(f"{name} inside vmap: it makes a matrix of SciPy, which holds numbers; call it outside")
    if tensor.dtype.kind != "real floating":
        why = "has no derivative" if not tensor.dtype.inexact else "has no one Jacobian; take real and imaginary parts"
        raise TypeError(f"{name}: x must be a real floating array; dtype {tensor.dtype} {why}")
    return tensor.__copy__()


def _check_result(name: str, out: PyTree) -> Tensor:
    leaves, _ = pytree.flatten(out)
    if len(leaves) != 1 or leaves[0] is not out:
        raise TypeError(
            f"{name}: f must return one array, got a {type(out).__name__} of {len(leaves)}; join them: "
            f"tc.concat([tc.reshape(a, (-1,)) for a in results])"
        )
    value = read(out, f"{name}: the result of f")
    tensor: Tensor = value if type(value) is Tensor else asarray(value)
    if not tensor.dtype.inexact:
        raise TypeError(f"{name}: the result of f has dtype {tensor.dtype}, which has no derivative")
    return tensor


def _scipy(name: str) -> tuple[Any, Any]:
    try:
        import numpy
        from scipy import sparse
    except ImportError as error:
        raise ImportError(f"{name} needs SciPy; install it with: pip install 'tape-core[sparse]'") from error
    return numpy, sparse
