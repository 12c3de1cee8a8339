"""Functions of NumPy on boxes that NumPy itself hands to nobody, or that differ from Tape's in what they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tape_core as tc
from tape_core.typing import ArrayLike, Axis, DTypeLike, PyTree, ShapeLike

from tape_autograd.boxes import Box, applied, axes_of, boxed, getval, holds_box, is_plain, unboxed

Function = Callable[..., Any]


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors, as `numpy.linalg.eig` names them."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors, as `numpy.linalg.eigh` names them."""

    eigenvalues: Any
    eigenvectors: Any


FUNCTIONS: dict[str, Function] = {}
"""By NumPy's names, as `tape_autograd.numpy.namespace` looks them up: with a box among the arguments."""


def _for(*names: str) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        for name in names:
            FUNCTIONS[name] = function
        return function

    return register


def tensor(value: ArrayLike) -> tc.Tensor:
    """Return an array, a number, a box, or a nested list of them as a Tensor of NumPy's dtype."""
    value = unboxed(value)
    if isinstance(value, tc.Tensor):
        return value
    if isinstance(value, list | tuple) and holds_tensor(value):
        return _stacked(value)
    return tc.asarray(np.asarray(value))


def is_known(value: PyTree) -> bool:
    """Return whether Python may look at a value: not while it is traced, or stands for many."""
    if isinstance(value, list | tuple):
        return all(map(is_known, value))
    return type(value) is not Box or is_plain(value._tensor)


def holds_tensor(value: PyTree) -> bool:
    """Return whether a list or tuple has a Tensor inside."""
    return isinstance(value, tc.Tensor) or (isinstance(value, list | tuple) and any(map(holds_tensor, value)))


def _stacked(rows: Sequence[Any]) -> tc.Tensor:
    parts = [tensor(row) for row in rows]
    kind = np.result_type(*[np.dtype(t.dtype.name) for t in parts]).name
    shapes = {t.shape for t in parts}
    if len(shapes) > 1:
        raise ValueError(f"np.array: the parts of a list have different shapes: {sorted(shapes)}")
    return tc.stack([tc.astype(t, kind) for t in parts])


@_for("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
def array(A: ArrayLike, dtype: DTypeLike = None, *, ndmin: int = 0, **_: Any) -> Any:
    """Return a box, or a nested list that has boxes inside, as one array."""
    found = tensor(A)
    if dtype is not None:
        if np.dtype(dtype).kind in "biu":
            return getval(boxed(found)).astype(dtype)
        found = tc.astype(found, np.dtype(dtype).name)
    if found.ndim < ndmin:
        found = tc.reshape(found, (1,) * (ndmin - found.ndim) + found.shape)
    return boxed(found)


# What the type tells, without a look at the values.
FUNCTIONS.update(
    {
        "iscomplexobj": lambda x: x.dtype.kind == "c" if type(x) is Box else np.iscomplexobj(getval(x)),
        "isrealobj": lambda x: x.dtype.kind != "c" if type(x) is Box else np.isrealobj(getval(x)),
        "ndim": lambda a: a.ndim if type(a) is Box else np.ndim(getval(a)),
        "result_type": lambda *args: np.result_type(*[x.dtype if type(x) is Box else getval(x) for x in args]),
        "shape": lambda a: a.shape if type(a) is Box else np.shape(getval(a)),
    }
)


@_for("copy")
def copy(a: ArrayLike, *_: Any, **__: Any) -> Any:
    return array(a)


@_for("full")
def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike = None, **_: Any) -> Any:
    found = tc.broadcast_to(tensor(fill_value), (shape,) if isinstance(shape, int) else tuple(shape))
    return array(boxed(found), dtype)


@_for("reshape")
def reshape(
    a: ArrayLike, /, shape: ShapeLike | None = None, order: str = "C", *, newshape: ShapeLike | None = None, **_: Any
) -> Any:
    a, given = tensor(a), newshape if shape is None else shape
    shape = tuple([int(n) for n in np.atleast_1d(np.asarray(given, dtype=int))])
    if order not in ("F", "f"):
        return boxed(tc.reshape(a, shape))
    # The first index runs fastest: reversed axes on both sides.
    found = tc.reshape(tc.permute_dims(a, tuple(reversed(range(a.ndim)))), tuple(reversed(shape)))
    return boxed(tc.permute_dims(found, tuple(reversed(range(found.ndim)))))


@_for("ravel")
def ravel(a: ArrayLike, order: str = "C") -> Any:
    return reshape(a, (-1,), order)


def where(condition: ArrayLike, *args: ArrayLike, **kwargs: ArrayLike) -> Any:
    """Choose elements, as `numpy.where`; as in autograd x and y may be named, and Python's numbers stay such."""
    if not args and not kwargs:
        return np.where(getval(condition))
    if len(args) + len(kwargs) != 2:
        raise ValueError("either both or neither of x and y should be given")
    x = args[0] if args else kwargs["x"]
    y = args[1] if len(args) > 1 else kwargs["y"]
    if holds_box(x) or holds_box(y):
        kind = np.result_type(*[_weak(v) for v in (x, y)]).name
        return boxed(tc.where(tensor(condition), *[tc.astype(tensor(v), kind) for v in (x, y)]))
    found: Any = np.where(getval(condition), x, y)
    return found if any(map(_holds_array, (condition, x, y))) else found.tolist()


def _holds_array(value: PyTree) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_array, value))
    return isinstance(value, np.ndarray | np.generic | Box)


def _weak(value: ArrayLike) -> Any:
    """Return what NumPy's promotion wants to know of a value: a Python number is weak."""
    if type(value) in (bool, int, float, complex):
        return value
    return np.dtype(value.dtype) if type(value) is Box else np.asarray(getval(value)).dtype


@_for("append")
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Any:
    parts = [tensor(arr), tensor(values)]
    if axis is None:
        parts, axis = [tc.reshape(t, (-1,)) for t in parts], 0
    return boxed(tc.concat(parts, axis=axis))


@_for("clip")
def clip(a: ArrayLike, a_min: ArrayLike = None, a_max: ArrayLike = None, **kwargs: Any) -> Any:
    low, high = kwargs.pop("min", a_min), kwargs.pop("max", a_max)
    _refuse("clip", kwargs)
    found = tc.clip(tensor(a), None if low is None else unboxed(low), None if high is None else unboxed(high))
    if holds_box([low, high]) or not is_known(a):
        return boxed(found)
    # As in autograd, no derivative where the value is one of the limits.
    value = getval(boxed(found))
    inside = np.ones(np.shape(value), dtype=bool)
    for limit in (low, high):
        if limit is not None:
            inside &= value != limit
    return boxed(tc.where(tensor(inside), found, tc.stop_gradient(found)))


def _extremum_of_two(raw: np.ufunc) -> Function:
    def extremum(x1: ArrayLike, x2: ArrayLike, **kwargs: Any) -> Any:
        one, two = tensor(x1), tensor(x2)
        real = "complex floating" not in (one.dtype.kind, two.dtype.kind)
        if kwargs or not (is_known(x1) and is_known(x2)):
            return applied(raw, (x1, x2), kwargs, arithmetic=True)
        values = [np.asarray(getval(v)) for v in (x1, x2)]
        tied = values[0] == values[1]
        if real and not np.any(tied):
            return applied(raw, (x1, x2), kwargs, arithmetic=True)
        # Equal ones share the derivative, as in autograd; complex ones are in NumPy's order, by their real parts.
        kind = np.result_type(*[_weak(v) for v in (x1, x2)]).name
        one, two = (tc.astype(t, kind) for t in (one, two))
        found = raw(*values)
        chosen = tc.where(tensor(values[0] == found), one, tc.where(tensor(values[1] == found), two, tensor(found)))
        return boxed(tc.where(tensor(tied), 0.5 * one + 0.5 * two, chosen))

    return extremum


for _raw in (np.maximum, np.fmax, np.minimum, np.fmin):
    FUNCTIONS[_raw.__name__] = _extremum_of_two(_raw)


@_for("sort")
def sort(a: ArrayLike, axis: int | None = -1, **kwargs: Any) -> Any:
    a = tensor(a)
    if a.dtype.kind != "complex floating":
        return boxed(np.sort(a, axis=axis, **kwargs))
    if axis is None:
        a, axis = tc.reshape(a, (-1,)), 0
    order = np.argsort(getval(boxed(a)), axis=axis, **kwargs)
    return boxed(tc.take_along_axis(a, tensor(order), axis=axis))


@_for("linalg.eig")
def eig(a: ArrayLike) -> Any:
    w, v = tc.linalg.eig(tensor(a))
    # NumPy gives real arrays where all eigenvalues are real.
    if not np.iscomplexobj(getval(a)) and not np.any(np.imag(getval(boxed(w)))):
        w, v = tc.real(w), tc.real(v)
    return EigResult(boxed(w), boxed(v))


@_for("linalg.eigvals")
def eigvals(a: ArrayLike) -> Any:
    return eig(a).eigenvalues


@_for("make_diagonal")
def make_diagonal(D: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("Currently make_diagonal only supports offset=0, axis1=-1, axis2=-2")
    if not holds_box(D):
        return np.asarray(D)[..., None] * np.eye(np.shape(D)[-1])
    D = tensor(D)
    eye = tc.eye(D.shape[-1], dtype=D.dtype)
    return boxed(D[..., None] * eye)


@_for("real_if_close")
def real_if_close(a: ArrayLike, tol: float = 100) -> Any:
    value = np.real_if_close(getval(a), tol)
    return boxed(tc.real(tensor(a))) if np.iscomplexobj(getval(a)) and not np.iscomplexobj(value) else array(a)


@_for("sign")
def sign(x: ArrayLike) -> Any:
    # That of complex numbers, z / |z|, changes with its argument.
    return boxed(tc.sign(tensor(x))) if FUNCTIONS["iscomplexobj"](x) or not is_known(x) else np.sign(getval(x))


@_for("take")
def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None, mode: str = "raise") -> Any:
    _refuse("take", {"out": out})
    a, indices = tensor(a), np.asarray(getval(indices))
    if axis is None:
        a, axis = tc.reshape(a, (-1,)), 0
    if mode == "wrap":
        indices = indices % a.shape[axis]
    elif mode == "clip":
        indices = np.clip(indices, 0, a.shape[axis] - 1)
    return boxed(a[(slice(None),) * (axis % a.ndim) + (indices,)])


@_for("trapezoid")
def trapezoid(y: ArrayLike, x: ArrayLike = None, dx: ArrayLike = 1.0, axis: int = -1) -> Any:
    points = None if x is None else tensor(x)
    return boxed(tc.trapezoid(tensor(y), points, dx=unboxed(dx), axis=axis))


@_for("linalg.norm")
def norm(x: ArrayLike, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    x = boxed(tensor(x))
    axes = axes_of(axis, x.ndim)
    if ord is None and axis is None:
        total = boxed(tc.linalg.vector_norm(tc.reshape(tensor(x), (-1,))))
        return reshape(total, (1,) * x.ndim) if keepdims else total
    found = boxed(np.linalg.norm(tensor(x), ord=ord, axis=axes if len(axes) == 2 else axes[0]))
    if keepdims:
        for k in sorted(axes):
            found = boxed(tc.expand_dims(tensor(found), axis=k))
    return found


@_for("max", "amax")
def largest(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, **given: Any) -> Any:
    return _extremum("max", a, axis, keepdims, given)


@_for("min", "amin")
def smallest(a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False, **given: Any) -> Any:
    return _extremum("min", a, axis, keepdims, given)


def _extremum(name: str, a: ArrayLike, axis: Axis, keepdims: bool, given: dict[str, Any]) -> Any:
    a = tensor(a)
    axis = None if not a.ndim and axis in (0, -1) else axis
    if a.dtype.kind != "complex floating" or given:
        return boxed(getattr(np, name)(a, axis=axis, keepdims=keepdims, **given))
    # NumPy orders complex numbers by their real parts first. Equal ones share the derivative.
    values = getval(boxed(a))
    chosen = values == getattr(np, name)(values, axis=axis, keepdims=True)
    total = tc.sum(a * tc.asarray(chosen / chosen.sum(axis=axis, keepdims=True)), axis=axis)
    return boxed(tc.reshape(total, getattr(np, name)(values, axis=axis, keepdims=keepdims).shape))


@_for("linalg.eigh")
def eigh(a: ArrayLike, UPLO: str = "L") -> Any:
    w, v = tc.linalg.eigh(_from_triangle(tensor(a), UPLO))
    if UPLO.upper() == "U":
        # LAPACK gives other signs for the upper triangle: those of plain arrays hold for boxes, too.
        known = np.linalg.eigh(getval(boxed(tensor(a))), "U")[1]
        phase = np.sum(np.conj(getval(boxed(v))) * known, axis=-2, keepdims=True)
        if np.allclose(np.abs(phase), 1.0, atol=1e-6):  # not where eigenvalues are equal
            v = v * tc.asarray(phase / np.abs(phase))
    return EighResult(boxed(w), boxed(v))


@_for("linalg.eigvalsh")
def eigvalsh(a: ArrayLike, UPLO: str = "L") -> Any:
    return boxed(tc.linalg.eigvalsh(_from_triangle(tensor(a), UPLO)))


def _from_triangle(a: tc.Tensor, uplo: str) -> tc.Tensor:
    """Return the Hermitian matrix of one triangle: the gradient is with respect to that, as NumPy reads no more."""
    if uplo.upper() not in ("L", "U"):
        raise ValueError(f"UPLO must be 'L' or 'U', got {uplo!r}")
    one = tc.tril(a, k=-1) if uplo.upper() == "L" else tc.triu(a, k=1)
    eye = tc.eye(a.shape[-1], dtype=a.dtype)
    diagonal = tc.astype(tc.real(a), a.dtype) * eye
    return one + tc.conj(one).mT + diagonal


def _refuse(name: str, given: dict[str, Any]) -> None:
    """Raise for arguments that a function does not take while it is differentiated."""
    wrong = [key for key, value in given.items() if value is not None]
    if wrong:
        raise NotImplementedError(f"numpy.{name} with {wrong[0]}= has no derivative here; leave it out")


class Rows:
    """`np.r_`: arrays and slices in brackets, one after the other."""

    def __getitem__(self, args: Any) -> Any:
        if not holds_box(args):
            return np.r_[args]
        return boxed(tc.concat([_row(x) for x in (args if isinstance(args, tuple) else (args,))], axis=0))


class Columns:
    """`np.c_`: arrays in brackets, one beside the other."""

    def __getitem__(self, args: Any) -> Any:
        if not holds_box(args):
            return np.c_[args]
        parts = [_row(x) for x in (args if isinstance(args, tuple) else (args,))]
        return boxed(tc.concat([t[:, None] if t.ndim == 1 else t for t in parts], axis=-1))


def _row(part: Any) -> tc.Tensor:
    if isinstance(part, str):
        raise NotImplementedError("np.r_ and np.c_ with a text in front take no values that are being differentiated")
    found = tensor(np.r_[part] if isinstance(part, slice) else part)
    if found.dtype.kind not in ("real floating", "complex floating"):
        found = tc.astype(found, "float64")
    return found if found.ndim else tc.reshape(found, (1,))
