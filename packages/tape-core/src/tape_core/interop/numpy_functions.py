"""Functions of NumPy that tape_core spells otherwise, under NumPy's names and with NumPy's parameters.

Positional-only parameters are arrays: `tape_core.interop.numpy_protocol` reads that from the signatures here. It passes
arrays as Tensors, NumPy arrays or Python scalars, and other parameters as Python's numbers and tuples. It leaves out
each argument that has NumPy's default.
"""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tape_core as tc
from tape_core.backends.errors import AxisError
from tape_core.typing import ArrayLike, Axis, DTypeLike, PyTree

# -- ufuncs


def deg2rad(x: ArrayLike, /) -> Any:
    return x * (math.pi / 180)


def rad2deg(x: ArrayLike, /) -> Any:
    return x * (180 / math.pi)


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return tc.floor_divide(x1, x2), tc.remainder(x1, x2)


def _as_floating(x: ArrayLike) -> Any:
    """Return `x` in a floating dtype: integers become the one that NumPy computes functions of real numbers in."""
    x = tc.asarray(x)
    if x.dtype.inexact:
        return x
    # NumPy takes the smallest float that holds all values of the integer dtype: np.sin of int8 is float16.
    return tc.astype(x, {1: "float16", 2: "float32"}.get(x.dtype.itemsize, "float64"))


def rint(x: ArrayLike, /) -> Any:
    return tc.round(_as_floating(x))


def fabs(x: ArrayLike, /) -> Any:
    if tc.asarray(x).dtype.kind == "complex floating":
        raise TypeError("numpy.fabs: complex numbers have an absolute value by numpy.abs")
    return tc.abs(_as_floating(x))


def cbrt(x: ArrayLike, /) -> Any:
    return tc.special.cbrt(_as_floating(x))


def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    x1, x2 = _as_tensors(x1, x2)
    is_complex = "complex floating" in (x1.dtype.kind, x2.dtype.kind)
    dtype = tc.complex128 if is_complex else tc.float64
    return tc.pow(tc.astype(x1, dtype), tc.astype(x2, dtype))


def _as_weak_tensor(x: ArrayLike, other: ArrayLike) -> Any:
    """Return `x` as a Tensor; a Python number gets the dtype of `other` if its kind allows it."""
    if hasattr(x, "shape"):
        return _as_tensor_beside(other, x)
    other = tc.asarray(other)
    # np.result_type knows that Python's numbers are weak (NEP 50); a number that has become an array is not.
    dtype = np.result_type(x, np.dtype(str(other.dtype))).name
    return tc.asarray(x, dtype=dtype, backend=other.backend.root, device=other.device)


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """Return the remainder with the sign of the dividend."""
    x1 = _as_weak_tensor(x1, x2)
    # The op's remainder has the sign of the divisor, as the standard has it. Of absolute values the two agree.
    part = tc.remainder(tc.abs(x1), abs(x2))
    return tc.copysign(part, x1) if part.dtype.inexact else tc.where(x1 < 0, -part, part)


def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return tc.where(tc.isnan(x1), x2, tc.where(tc.isnan(x2), x1, tc.maximum(x1, x2)))


def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return tc.where(tc.isnan(x1), x2, tc.where(tc.isnan(x2), x1, tc.minimum(x1, x2)))


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    x1, x2 = (_as_floating(x) if hasattr(x, "shape") else x for x in (x1, x2))
    x1, x2 = _as_weak_tensor(x1, x2), _as_weak_tensor(x2, x1)
    step = tc.astype(x1 > 0, tc.asarray(x1).dtype)
    return tc.where(x1 == 0, x2, tc.where(tc.isnan(x1), x1, step))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return tc.logaddexp(x1 * math.log(2), x2 * math.log(2)) / math.log(2)


def modf(x: ArrayLike, /) -> Any:
    whole = tc.trunc(x)
    # inf - inf is NaN, but the fractional part of inf is 0.
    return tc.where(tc.isinf(x), 0, x - whole), whole


def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return tc.matmul(x1, tc.asarray(x2)[..., None])[..., 0]


def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    return tc.matmul(_conj(tc.asarray(x1))[..., None, :], x2)[..., 0, :]


def _conj(x: ArrayLike) -> Any:
    return tc.conj(x) if x.dtype.kind == "complex floating" else x


def _as_tensor_beside(other: ArrayLike, x: ArrayLike) -> Any:
    """Return `x` as a Tensor; a number on the backend of `other`, in the dtype that NumPy gives it."""
    if isinstance(x, tc.Tensor) or hasattr(x, "shape"):
        return tc.asarray(x)
    # Functions that are no ufuncs, such as np.dot, make arrays of numbers first: 2.0 is float64 there, and not weak.
    return tc.asarray(np.asarray(x), backend=getattr(other, "backend", None))


def _as_tensors(a: ArrayLike, b: ArrayLike) -> Any:
    return _as_tensor_beside(b, a), _as_tensor_beside(a, b)


# -- shapes


def ravel(a: ArrayLike, /) -> Any:
    return tc.reshape(a, (-1,))


def copy(a: ArrayLike, /) -> Any:
    return tc.asarray(a, copy=True)


def transpose(a: ArrayLike, /, axes: Any = None) -> Any:
    return tc.transpose(a, axes)


def swapaxes(a: ArrayLike, /, axis1: int, axis2: int) -> Any:
    return a.swapaxes(axis1, axis2)


def squeeze(a: ArrayLike, /, axis: Axis = None) -> Any:
    return tc.squeeze(a, axis=tuple(k for k, n in enumerate(a.shape) if n == 1) if axis is None else axis)


def expand_dims(a: ArrayLike, /, axis: int | tuple[int, ...]) -> Any:
    return tc.expand_dims(a, axis=axis)


def atleast_1d(*arrays: Any) -> Any:
    return _map_arrays(lambda a: tc.reshape(a, (1,)) if a.ndim == 0 else a, arrays)


def atleast_2d(*arrays: Any) -> Any:
    return _map_arrays(lambda a: tc.reshape(a, (1, -1)) if a.ndim < 2 else a, arrays)


def atleast_3d(*arrays: Any) -> Any:
    return _map_arrays(lambda a: atleast_2d(a)[..., None] if a.ndim < 3 else a, arrays)


def _map_arrays(function: Callable[[Any], Any], arrays: Sequence[Any]) -> Any:
    results = tuple(function(tc.asarray(a)) for a in arrays)
    return results[0] if len(results) == 1 else results


def vstack(arrays: PyTree, /) -> Any:
    return tc.concat([atleast_2d(a) for a in arrays])


def hstack(arrays: PyTree, /) -> Any:
    arrays = [atleast_1d(a) for a in arrays]
    return tc.concat(arrays, axis=0 if arrays[0].ndim == 1 else 1)


def dstack(arrays: PyTree, /) -> Any:
    return tc.concat([atleast_3d(a) for a in arrays], axis=2)


def column_stack(arrays: PyTree, /) -> Any:
    columns = [atleast_1d(a) for a in arrays]
    return tc.concat([a[:, None] if a.ndim == 1 else a for a in columns], axis=1)


def append(arr: ArrayLike, values: ArrayLike, /, axis: int | None = None) -> Any:
    return tc.concat(_as_tensors(arr, values), axis=axis)


def split(ary: ArrayLike, /, indices_or_sections: ArrayLike, axis: int = 0) -> Any:
    n = indices_or_sections
    if isinstance(n, int) and (n < 1 or ary.shape[axis] % n):
        raise ValueError(f"numpy.split: axis {axis} of length {ary.shape[axis]} has no {n} equal parts")
    return array_split(ary, n, axis)


def array_split(ary: ArrayLike, /, indices_or_sections: ArrayLike, axis: int = 0) -> Any:
    length = ary.shape[axis]
    if isinstance(n := indices_or_sections, int):
        # Where the parts cannot be equal, the first ones are longer by one element.
        sizes = [length // n + (k < length % n) for k in range(n)]
        places = [builtins.sum(sizes[: k + 1]) for k in range(n - 1)]
    else:
        places = list(indices_or_sections)
    edges = [None, *places, None]
    before = (slice(None),) * (axis % ary.ndim)
    return [ary[(*before, slice(start, stop), ...)] for start, stop in itertools.pairwise(edges)]


def hsplit(ary: ArrayLike, /, indices_or_sections: ArrayLike) -> Any:
    return split(ary, indices_or_sections, axis=0 if ary.ndim == 1 else 1)


def vsplit(ary: ArrayLike, /, indices_or_sections: ArrayLike) -> Any:
    return split(ary, indices_or_sections, axis=0)


def dsplit(ary: ArrayLike, /, indices_or_sections: ArrayLike) -> Any:
    return split(ary, indices_or_sections, axis=2)


def fliplr(m: ArrayLike, /) -> Any:
    return tc.flip(m, axis=1)


def flipud(m: ArrayLike, /) -> Any:
    return tc.flip(m, axis=0)


def rot90(m: ArrayLike, /, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    for _ in range(k % 4):
        m = tc.flip(swapaxes(m, *axes), axis=axes[0])
    return m


def tile(A: ArrayLike, /, reps: Any) -> Any:
    return tc.tile(A, reps)


# -- choosing


def where(condition: ArrayLike, x: ArrayLike = None, y: ArrayLike = None, /) -> Any:
    return tc.nonzero(condition) if x is None and y is None else tc.where(condition, x, y)


def select(condlist: ArrayLike, choicelist: ArrayLike, /, default: ArrayLike = 0) -> Any:
    result = default
    # The first condition that holds decides, so it is applied last.
    for condition, choice in reversed([*zip(condlist, choicelist, strict=True)]):
        result = tc.where(condition, choice, result)
    return result


def clip(
    a: ArrayLike, /, a_min: ArrayLike = None, a_max: ArrayLike = None, *, min: ArrayLike = None, max: ArrayLike = None
) -> Any:
    return tc.clip(a, a_min if min is None else min, a_max if max is None else max)


def diff(a: ArrayLike, /, n: int = 1, axis: int = -1, *, prepend: ArrayLike = None, append: ArrayLike = None) -> Any:
    def edge(x: ArrayLike) -> Any:
        # A number is one row along the axis; the op takes arrays that fit in all other axes.
        if x is None or (x := _as_tensor_beside(a, x)).ndim:
            return x
        return tc.broadcast_to(x, tuple(1 if k == axis % a.ndim else m for k, m in enumerate(a.shape)))

    return tc.diff(a, n=n, axis=axis, prepend=edge(prepend), append=edge(append))


def unique(
    ar: ArrayLike, /, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    found = tc.unique_all(ar)
    results = [found.values]
    wanted = (return_index, found.indices), (return_inverse, found.inverse_indices), (return_counts, found.counts)
    results += [result for asked, result in wanted if asked]
    return results[0] if len(results) == 1 else tuple(results)


# -- numbers


def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    *,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Any:
    # NumPy computes with integers in float64.
    start, stop = [
        tc.astype(x, "float64") if isinstance(x, tc.Tensor) and not x.dtype.inexact else x for x in (start, stop)
    ]
    found = tc.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, axis=axis)
    if not retstep:
        return found
    parts = num - 1 if endpoint else num
    return found, (stop * 1.0 - start) / parts if parts > 0 else math.nan


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    *,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Any:
    if getattr(base, "ndim", 0):  # the exponents have a new axis; the bases broadcast against the rest
        start, stop, base = tc.broadcast_arrays(*(tc.asarray(x) for x in (start, stop, base)))
        base = tc.expand_dims(base, axis=axis)
    found = tc.pow(base, tc.linspace(start, stop, num, endpoint=endpoint, axis=axis))
    return found if dtype is None else tc.astype(found, dtype)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    /,
    num: int = 50,
    endpoint: bool = True,
    *,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Any:
    start, stop = _as_tensors(start, stop)
    kind = tc.result_type(start, stop)
    kind = kind if kind.inexact else tc.float64
    start, stop = (
        tc.broadcast_to(tc.astype(x, kind), np.broadcast_shapes(start.shape, stop.shape)) for x in (start, stop)
    )
    # As in NumPy: without the sign of the start, or its direction if it is complex, negative ends have logarithms.
    sign = start / tc.abs(start)
    found = tc.pow(10.0, tc.linspace(tc.log10(start / sign), tc.log10(stop / sign), num, endpoint=endpoint))
    found = found * sign
    # The ends are the arguments themselves: a power of a logarithm is off by rounding.
    if num > 1 and endpoint:
        found = tc.concat([start[None], found[1:-1], stop[None]])
    elif num > 0:
        found = tc.concat([start[None], found[1:]])
    found = tc.moveaxis(found, 0, axis)
    return found if dtype is None else tc.astype(found, dtype)


def round(a: ArrayLike, /, decimals: int = 0) -> Any:
    return a.round(decimals)


around = round


def fix(x: ArrayLike, /) -> Any:
    return tc.trunc(x)


def imag(val: ArrayLike, /) -> Any:
    return tc.imag(val) if val.dtype.kind == "complex floating" else tc.zeros_like(val)


def angle(z: ArrayLike, /, deg: bool = False) -> Any:
    result = tc.atan2(imag(z), tc.real(z))
    return rad2deg(result) if deg else result


def nan_to_num(x: ArrayLike, /, nan: ArrayLike = 0.0, posinf: ArrayLike = None, neginf: ArrayLike = None) -> Any:
    if not x.dtype.inexact:
        return x
    if x.dtype.kind == "complex floating":
        real, imaginary = (nan_to_num(part, nan, posinf, neginf) for part in (tc.real(x), tc.imag(x)))
        return tc.astype(real, x.dtype) + 1j * imaginary
    limits = tc.finfo(x.dtype)
    x = tc.where(tc.isnan(x), nan, x)
    x = tc.where(x == math.inf, limits.max if posinf is None else posinf, x)
    return tc.where(x == -math.inf, limits.min if neginf is None else neginf, x)


def ptp(a: ArrayLike, /, axis: Axis = None, keepdims: bool = False) -> Any:
    return tc.max(a, axis=axis, keepdims=keepdims) - tc.min(a, axis=axis, keepdims=keepdims)


def average(a: ArrayLike, /, axis: Axis = None, weights: ArrayLike = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return mean(a, axis=axis, keepdims=keepdims)
    weights = _as_tensor_beside(a, weights)
    # Weights of one dimension belong to `axis`.
    if weights.shape != a.shape:
        weights = tc.reshape(weights, tuple(n if k == axis % a.ndim else 1 for k, n in enumerate(a.shape)))
    total = tc.sum(tc.broadcast_to(weights, a.shape), axis=axis, keepdims=keepdims)
    return tc.sum(a * weights, axis=axis, keepdims=keepdims) / total


def trapezoid(y: ArrayLike, /, x: ArrayLike = None, dx: ArrayLike = 1.0, axis: int = -1) -> Any:
    return tc.trapezoid(y if y.dtype.inexact else tc.astype(y, "float64"), x, dx=dx, axis=axis)


def i0(x: ArrayLike, /) -> Any:
    return tc.i0(_as_floating(x))


def mean(a: ArrayLike, /, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Any:
    _check_axis("mean", a, axis)
    if dtype is None:
        return tc.mean(a if a.dtype.inexact else tc.astype(a, "float64"), axis=axis, keepdims=keepdims)
    a = tc.astype(_castable("mean", a, dtype), dtype)
    if a.dtype.inexact:
        return tc.mean(a, axis=axis, keepdims=keepdims)
    # With an integer dtype NumPy sums in integers and truncates the quotient.
    total = tc.sum(a, axis=axis, keepdims=keepdims)
    return tc.astype(tc.trunc(total / (a.size // max(total.size, 1))), dtype)


def var(
    a: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: Any = None,
) -> Any:
    return _spread("var", tc.var, a, axis, dtype, ddof if correction is None else correction, keepdims)


def std(
    a: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: Any = None,
) -> Any:
    return _spread("std", tc.std, a, axis, dtype, ddof if correction is None else correction, keepdims)


def _spread(
    name: str,
    function: Callable[..., Any],
    a: ArrayLike,
    axis: Axis,
    dtype: DTypeLike,
    correction: float,
    keepdims: bool,
) -> Any:
    _check_axis(name, a, axis)
    if dtype is not None:
        a = tc.astype(_castable(name, a, dtype), dtype)
        if not a.dtype.inexact:
            raise TypeError(f"numpy.{name}: dtype must be floating for Tensors, got {dtype}")
    a = a if a.dtype.inexact else tc.astype(a, "float64")
    return function(a, axis=axis, correction=correction, keepdims=keepdims)


def _castable(name: str, a: ArrayLike, dtype: DTypeLike) -> Any:
    if a.dtype.kind == "complex floating" and tc.zeros(0, dtype=dtype).dtype.kind != "complex floating":
        raise TypeError(f"numpy.{name}: the elements are complex, dtype={dtype} is not; take numpy.real of them")
    return a


def _check_axis(name: str, a: ArrayLike, axis: Axis) -> None:
    if axis is not None and a.ndim == 0 and axis != ():
        raise AxisError(f"numpy.{name}: axis {axis} is out of bounds for an array of 0 dimensions")


def real_if_close(a: ArrayLike, /, tol: float = 100) -> Any:
    if a.dtype.kind != "complex floating":
        return a
    limit = tol * tc.finfo(a.dtype).eps if tol > 1 else tol
    return tc.real(a) if bool(tc.all(tc.abs(tc.imag(a)) < limit)) else a


def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, /, left: ArrayLike = None, right: ArrayLike = None) -> Any:
    return tc.interp(x, xp, fp, left, right)


def polyval(p: ArrayLike, x: ArrayLike, /) -> Any:
    p, x = _as_tensors(p, x)
    # Horner's scheme: the coefficient of the highest power comes first.
    y = tc.zeros_like(x)
    for coefficient in p:
        y = y * x + coefficient
    return y


# -- products


def dot(a: ArrayLike, b: ArrayLike, /) -> Any:
    a, b = _as_tensors(a, b)
    return a.dot(b)


def inner(a: ArrayLike, b: ArrayLike, /) -> Any:
    a, b = _as_tensors(a, b)
    return a * b if a.ndim == 0 or b.ndim == 0 else tc.tensordot(a, b, axes=([-1], [-1]))


def vdot(a: ArrayLike, b: ArrayLike, /) -> Any:
    a, b = _as_tensors(a, b)
    return tc.vecdot(ravel(a), ravel(b))


def outer(a: ArrayLike, b: ArrayLike, /) -> Any:
    a, b = _as_tensors(a, b)
    return tc.outer(ravel(a), ravel(b))


def tensordot(a: ArrayLike, b: ArrayLike, /, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = tuple((k,) if isinstance(k, int) else k for k in axes)
    return tc.tensordot(a, b, axes=axes)


def kron(a: ArrayLike, b: ArrayLike, /) -> Any:
    return tc.kron(*_as_tensors(a, b))


def correlate(a: ArrayLike, v: ArrayLike, /, mode: Any = "valid") -> Any:
    a, v = _as_tensors(a, v)
    n, m = a.shape[0], v.shape[0]
    full = tc.convolve(a, tc.flip(_conj(v)), "full")
    if mode == "full":
        return full
    # Not convolve's own "same": where v is the longer one, NumPy exchanges the two and reverses the result, so for an
    # even length the middle lies one element further.
    length, start = (max(n, m), m - 1 - m // 2 if n >= m else n // 2) if mode == "same" else (0, min(n, m) - 1)
    if mode == "valid":
        length = max(n, m) - min(n, m) + 1
    elif mode != "same":
        raise ValueError(f"numpy.correlate: mode must be 'valid', 'same' or 'full', got {mode!r}")
    return full[start : start + length]


def cross(
    a: ArrayLike, b: ArrayLike, /, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    a, b = _as_tensors(a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = tc.moveaxis(a, axisa, -1), tc.moveaxis(b, axisb, -1)
    lengths = a.shape[-1], b.shape[-1]
    if not set(lengths) <= {2, 3}:
        raise ValueError(f"numpy.cross: vectors must have 2 or 3 elements, got {lengths[0]} and {lengths[1]}")
    # Of two vectors in the plane NumPy gives the third component alone.
    if lengths == (2, 2):
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    a, b = (x if x.shape[-1] == 3 else tc.concat([x, tc.zeros_like(x[..., :1])], axis=-1) for x in (a, b))
    shape = np.broadcast_shapes(a.shape, b.shape)
    found = tc.linalg.cross(tc.broadcast_to(a, shape), tc.broadcast_to(b, shape))
    return tc.moveaxis(found, -1, axisc)


def einsum(*operands: Any) -> Any:
    """Compute einsum, with subscripts as text or as lists that follow each operand."""
    known = next(x for x in operands if isinstance(x, tc.Tensor))

    def array(x: ArrayLike) -> Any:
        if isinstance(x, tc.Tensor):
            return x
        return tc.asarray(np.asarray(x) if isinstance(x, list | tuple) else x, backend=known.backend.root)

    if isinstance(operands[0], str):
        return tc.einsum(operands[0], *(array(x) for x in operands[1:]))
    # Operands and lists alternate; one more at the end is the list of the result.
    listed = [x if k % 2 or k == len(operands) - 1 else array(x) for k, x in enumerate(operands)]
    if len(operands) % 2 == 0:
        listed[-1] = operands[-1]
    return tc.einsum(*listed)


def convolve(a: ArrayLike, v: ArrayLike, /, mode: Any = "full") -> Any:
    a, v = _as_tensors(a, v)
    return tc.convolve(a, v, mode)


def trace(a: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return tc.linalg.trace(tc.moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


def diagonal(a: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return tc.linalg.diagonal(tc.moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


def diag(v: ArrayLike, /, k: int = 0) -> Any:
    if v.ndim == 2:
        return tc.linalg.diagonal(v, offset=k)
    n = v.shape[0] + abs(k)
    # A selection by a mask, and no assignment: `v` is broadcast as a column above the main diagonal, where row j has
    # v[j], and as a row below it. The zeros only make up the length; the mask does not reach them.
    place: dict[str, Any] = {"device": v.device, "backend": v.backend}
    v = tc.concat([v, tc.zeros(abs(k), dtype=v.dtype, **place)])
    nothing = False if v.dtype.kind == "bool" else 0
    return tc.where(tc.eye(n, k=k, dtype=tc.bool, **place), v[:, None] if k > 0 else v, nothing)


def diagflat(v: ArrayLike, /, k: int = 0) -> Any:
    return diag(ravel(v), k)


def linalg_svd(a: ArrayLike, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return tc.linalg.svd(a, full_matrices=full_matrices) if compute_uv else tc.linalg.svdvals(a)


def linalg_qr(a: ArrayLike, /, mode: Any = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"numpy.linalg.qr: mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    found = tc.linalg.qr(a, mode="complete" if mode == "complete" else "reduced")
    return found[1] if mode == "r" else found


def _mirror_triangle(a: ArrayLike, uplo: str) -> Any:
    """Return a Hermitian matrix that has the upper triangle of `a` if `uplo` asks for that: ops read the lower."""
    if uplo.upper() == "L":
        return a
    if uplo.upper() != "U":
        raise ValueError(f"UPLO must be 'L' or 'U', got {uplo!r}")
    above = tc.triu(a, k=1)
    return tc.triu(a) + _conj(above).mT


def linalg_eigh(a: ArrayLike, /, UPLO: str = "L") -> Any:
    return tc.linalg.eigh(_mirror_triangle(a, UPLO))


def linalg_eigvalsh(a: ArrayLike, /, UPLO: str = "L") -> Any:
    return tc.linalg.eigvalsh(_mirror_triangle(a, UPLO))


def linalg_lstsq(a: ArrayLike, b: ArrayLike, /, rcond: float | None = None) -> Any:
    """Solve least squares by the pseudo-inverse, which has a derivative."""
    a, b = _as_tensors(a, b)
    a, b = (x if x.dtype.inexact else tc.astype(x, "float64") for x in (a, b))
    rows, columns = a.shape
    rtol = tc.finfo(a.dtype).eps * max(rows, columns) if rcond is None else rcond
    x = tc.matmul(tc.linalg.pinv(a, rtol=rtol), b)
    values = tc.linalg.svdvals(a)
    rank = tc.astype(tc.count_nonzero(values > rtol * tc.max(values)), "int32")
    rest = tc.abs(b - tc.matmul(a, x)) ** 2
    # NumPy's rule: residuals are empty unless the system is overdetermined and has full rank.
    known = columns < rows and int(rank) == columns
    residuals = tc.reshape(tc.sum(rest, axis=0), (-1,)) if known else tc.reshape(rest, (-1,))[:0]
    return x, residuals, rank, values


def linalg_cond(x: ArrayLike, /, p: ArrayLike = None) -> Any:
    x = x if x.dtype.inexact else tc.astype(x, "float64")
    if p in (None, 2, -2):
        values = tc.linalg.svdvals(x)
        large, small = values[..., 0], values[..., -1]
        return small / large if p == -2 else large / small
    return tc.linalg.matrix_norm(x, ord=p) * tc.linalg.matrix_norm(tc.linalg.inv(x), ord=p)


def linalg_norm(x: ArrayLike, /, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    x = x if x.dtype.inexact else tc.astype(x, "float64")
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if ord is None or len(axes) == 1:
        return tc.linalg.vector_norm(x, ord=2 if ord is None else ord, axis=axis, keepdims=keepdims)
    if len(axes) != 2:
        raise ValueError(f"numpy.linalg.norm: ord={ord!r} needs one axis or two, got {axes}")
    norm = tc.linalg.matrix_norm(tc.moveaxis(x, axes, (-2, -1)), ord=ord)
    return expand_dims(norm, tuple(k % x.ndim for k in axes)) if keepdims else norm


# -- Fourier transforms of two dimensions


def fft_fft2(a: ArrayLike, /, s: Any = None, axes: Any = (-2, -1), norm: Any = "backward") -> Any:
    return tc.fft.fftn(a, s=s, axes=axes, norm=norm)


def fft_ifft2(a: ArrayLike, /, s: Any = None, axes: Any = (-2, -1), norm: Any = "backward") -> Any:
    return tc.fft.ifftn(a, s=s, axes=axes, norm=norm)


def fft_rfft2(a: ArrayLike, /, s: Any = None, axes: Any = (-2, -1), norm: Any = "backward") -> Any:
    return tc.fft.rfftn(a, s=s, axes=axes, norm=norm)


def fft_irfft2(a: ArrayLike, /, s: Any = None, axes: Any = (-2, -1), norm: Any = "backward") -> Any:
    return tc.fft.irfftn(a, s=s, axes=axes, norm=norm)
