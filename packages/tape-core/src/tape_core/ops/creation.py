"""Creation functions of the Array API standard.

These functions select a backend: the one that an argument names, otherwise the one that `tape_core.use_backend` has
set. An array that is made from Tensors stays on their backend.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from tape_core.backends import selection
from tape_core.backends.discovery import backend_of_type
from tape_core.backends.errors import AxisError
from tape_core.backends.protocol import Backend
from tape_core.base import dtypes
from tape_core.base.lookup import ops
from tape_core.base.mistakes import explaining, real
from tape_core.engine import cuts
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.op import with_numbers_as_tensors
from tape_core.engine.tensor import SCALARS, Tensor, is_number, to_number, twin_slots, wrap
from tape_core.ops.data_types import astype, to_device, to_dtype
from tape_core.ops.elementwise import floor, where
from tape_core.ops.manipulation import broadcast_to, concat, moveaxis, reshape, stack
from tape_core.typing import Array, ArrayLike, BackendLike, DTypeLike, Raw, RawDType, ShapeLike

Nested: TypeAlias = Any
"""An object of which an array can be made: `ArrayLike`, or nested lists or tuples of it."""

_NONE_HINT = "; None is what the gradient of something unconnected is: see tape.explain"


def asarray(
    obj: Nested,
    /,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    copy: bool | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """Make a Tensor of a Python scalar, a nested list, an array of an installed backend, a buffer or a Tensor.

    Numbers, lists and arrays of NumPy are host data: they go to the selected backend and device. The arrays of other
    libraries stay where they are. An array shares its memory with the Tensor where it can, a NumPy one on NumPy and on
    PyTorch's CPU: what is written to it later shows in the Tensor, and in gradients computed from it; `copy=True`
    copies.

    Python floats become the default dtype (float32), Python integers int64; arrays keep theirs. `dtype` converts, as
    :func:`astype` does: floats are truncated to integers. A Tensor that already is what the arguments ask for is
    returned itself, so the path is kept; a list of Tensors is stacked. An object that stands for a Tensor has a method
    `__tape_tensor__`, which returns it.

    >>> import tape_core as tc
    >>> tc.asarray([1, 2], dtype=tc.float64)
    Tensor([1. 2.], shape=(2,), dtype=float64, backend=numpy)

    Args:
        dtype: a DType, its name, the library's own dtype or a Python type.
        device: a device of the backend.
        copy: True always copies, False never does (a ValueError where it would have to), None as needed.
        backend: a backend's name or object; a Tensor or array of another backend is converted, without its path.

    Raises:
        TypeError: no array can be made of `obj`, or it has something in it that is not a number, such as None.
        OverflowError: an integer does not fit the dtype.
    """
    # First what belongs to Tape already: Tensors, Variables, slices of rows, and objects that stand for a Tensor.
    if isinstance(obj, Tensor):
        value = obj if type(obj) is Tensor else obj.value  # type: ignore[attr-defined]
        return _from_tensor(value, dtype, device, copy, backend)
    kind = type(obj)
    if kind is IndexedSlices:
        return _from_tensor(obj.densify(), dtype, device, None, backend)
    owner = None if kind in SCALARS or kind is list or kind is tuple else backend_of_type(kind)
    if owner is None and hasattr(kind, "__tape_tensor__"):
        return _from_tensor(obj.__tape_tensor__(), dtype, device, copy, backend)
    if owner is not None and dtype is not None:
        _check_numbers(owner, obj)
    # A device library's array stays with that library, unless `backend` names another one; host data go to the
    # selected one, like numbers.
    if owner is not None and not owner.host_data and backend is None:
        if device is None:
            return wrap(_convert(owner, obj, owner.raw_dtype(dtype), None, copy), owner)
        backend = owner
    if kind not in SCALARS and owner is None:
        _check_leaf(obj, obj, ())
        if isinstance(obj, bytes | bytearray):
            obj = memoryview(obj)  # elements of uint8; NumPy would parse bytes as the text of a number
    if (kind is list or kind is tuple) and _holds_tensor(obj, obj, ()):
        return _from_tensor(_stack_nested(obj, backend), dtype, device, None, backend)
    chosen = selection.select(backend, device)
    target = chosen.backend
    if owner is not None and owner is not target:
        if owner.host_data:
            _check_numbers(owner, obj)
        obj = owner.numpy(owner.asarray(obj))
    if dtype is None and kind in SCALARS:
        dtype = dtypes.default_for(kind)
    # Libraries infer the dtype of lists of Python numbers, often as float64: convert it to the default one below. An
    # object with a dtype, or a list of such, keeps it.
    raw = _convert(target, obj, target.raw_dtype(dtype), chosen.device, copy)
    if dtype is None and owner is None and not hasattr(obj, "dtype") and not _first_leaf_has_dtype(obj):
        found = target.dtype(raw.dtype)
        if found.kind == "signed integer" and isinstance(obj, list | tuple) and found is not dtypes.int64:
            # Anew: libraries whose own integers are int32 may have cut off what does not fit.
            raw = _convert(target, obj, target.raw_dtype(dtypes.int64), chosen.device, copy)
        default = {"real floating": float, "complex floating": complex}.get(found.kind)
        if default is not None and (wanted := dtypes.default_for(default)) is not found:
            dtype = target.raw_dtype(wanted)  # before the kernel is looked up: `raw_dtype` may replace kernels
            raw = target.xp.astype(raw, dtype)
    return wrap(raw, target)


def asarray_beside(value: Nested, beside: object) -> Tensor:
    """Return `value` as a Tensor. Lists and other host data go to where `beside` is, if that is a Tensor."""
    owner = backend_of_type(type(value))
    if isinstance(value, Tensor) or not isinstance(beside, Tensor) or (owner is not None and not owner.host_data):
        return asarray(value)
    return asarray(value, backend=beside.backend.library, device=beside.device)


def _stack_nested(obj: Nested, backend: BackendLike) -> Tensor:
    """Stack nested lists with Tensors in them to one Tensor.

    Python scalars take the dtype that all Tensors promote to, whichever list they are in.
    """
    leaves: list[ArrayLike] = []
    _collect_leaves(obj, leaves, backend)
    found = iter(with_numbers_as_tensors(tuple(leaves)))

    def build(part: Nested) -> Any:
        return stack([build(p) for p in part]) if isinstance(part, list | tuple) else next(found)

    return build(obj)  # type: ignore[no-any-return]


def _collect_leaves(obj: Nested, leaves: list[ArrayLike], backend: BackendLike) -> None:
    for part in obj:
        if isinstance(part, list | tuple):
            _collect_leaves(part, leaves, backend)
        else:
            leaves.append(to_number(part) if is_number(part) else asarray(part, backend=backend))


def _convert(backend: Backend, obj: Nested, dtype: RawDType, device: str | None, copy: bool | None) -> Raw:
    """Make a raw array; a failure of the library becomes an error that says what could not be converted."""
    try:
        if type(obj) is int and dtype is not None and (wrong := dtypes.out_of_bounds(obj, backend.dtype(dtype))):
            raise OverflowError(wrong)
        raw = backend.asarray(obj, dtype=dtype, device=device, copy=copy)
    except Exception as error:
        kind = _user_error_type(backend, error)
        if kind is None:
            raise
        shown, reason = repr(obj), str(error)
        if kind is OverflowError:
            reason = f"an integer does not fit into {dtypes.int64 if dtype is None else backend.dtype(dtype)}"
            shown = reprlib.repr(obj)
        raise kind(f"asarray: cannot make an array of {shown} ({type(obj).__name__}): {reason}") from error
    try:
        backend.dtype(raw.dtype)
    except (TypeError, AttributeError):  # a 0-d array of objects may come back as the object itself
        found = getattr(raw, "dtype", "object")
        raise TypeError(
            f"asarray: cannot make an array of {obj!r} ({type(obj).__name__}): its dtype would be {found}"
        ) from None
    return raw


def _from_tensor(x: Tensor, dtype: DTypeLike, device: str | None, copy: bool | None, backend: BackendLike) -> Tensor:
    # To another library, values go through NumPy, and the path ends.
    if backend is not None and (target := selection.select(backend, device).backend).library is not x.backend.library:
        raw = x.backend.numpy(x.array)
        return wrap(target.asarray(raw, dtype=target.raw_dtype(dtype or x.dtype), device=device), target)
    if dtype is not None and x.backend.dtype(x.backend.raw_dtype(dtype)) is not x.dtype:
        x = astype(x, dtype)
    if device is not None and device != x.device:
        x = to_device(x, device)
    if copy:
        raw = x.backend.asarray(x.array, copy=True)
        return wrap(raw, x.backend, twin_slots(x))
    return x


def _holds_tensor(obj: Nested, whole: Nested, around: tuple[int, ...]) -> bool:
    """Return True if a nested list has a Tensor in it.

    Args:
        whole: the outermost list, for messages.
        around: the ids of the lists that `obj` stands in.

    Raises:
        TypeError: it has something in it that is not a number.
        ValueError: a list contains itself.
    """
    kind = type(obj)
    if kind in SCALARS:
        return False
    if isinstance(obj, list | tuple):
        if id(obj) in around:
            raise ValueError("asarray: the list contains itself, so it has no shape")
        around = (*around, id(obj))
        return any([_holds_tensor(part, whole, around) for part in obj])
    _check_leaf(obj, whole, around)
    return isinstance(obj, Tensor) or hasattr(kind, "__tape_tensor__")


def _check_leaf(obj: object, whole: Nested, around: tuple[int, ...]) -> None:
    """Raise TypeError for None and text, of which libraries make numbers where a dtype is given: NaN of None."""
    if obj is None or isinstance(obj, str | bytes | bytearray):
        if not around and isinstance(obj, bytes | bytearray):
            return  # a buffer
        inside = "" if obj is whole else f" has {obj!r} in it, which"
        because = _NONE_HINT if obj is None else ""
        raise TypeError(f"asarray: cannot make an array of {whole!r}:{inside or ' it'} is no number{because}")


def _check_numbers(backend: Backend, array: Array) -> None:
    """Raise TypeError for an array of objects or text, which the library might convert to numbers."""
    try:
        backend.dtype(array.dtype)
    except (TypeError, AttributeError):
        raise TypeError(
            f"asarray: cannot make an array of {array!r}: its dtype is {array.dtype}, which is not of numbers"
        ) from None


def _first_leaf_has_dtype(obj: Nested) -> bool:
    while isinstance(obj, list | tuple) and obj:
        obj = obj[0]
    return hasattr(obj, "dtype")


def _create(
    name: str, *args: object, dtype: DTypeLike, device: str | None, backend: BackendLike, **kwargs: object
) -> Tensor:
    """Call a creation function of the selected backend's library."""
    chosen = selection.select(backend, device)
    target = chosen.backend
    try:
        dtype = target.raw_dtype(dtype)  # before the kernel is looked up: `raw_dtype` may replace kernels
        raw = getattr(target.xp, name)(*args, dtype=dtype, device=target.raw_device(chosen.device), **kwargs)
    except Exception as error:
        _ask_for_values((*args, *kwargs.values()))
        kind = _user_error_type(target, error)
        if kind is None:
            raise
        raise kind(f"{name}: {error}") from error
    return wrap(raw, target)


def _ask_for_values(values: Sequence[object]) -> None:
    """Read Tensors among sizes and bounds: where they have no values, as in a compiled function, the error says so."""
    for value in values:
        if isinstance(value, Tensor) and not value.shape:
            value.item()
        elif isinstance(value, list | tuple):
            _ask_for_values(value)


def _user_error_type(backend: Backend, error: Exception) -> type[Exception] | None:
    """The exception class that users get for an error of the library; None to let the error pass."""
    if isinstance(error, OverflowError):
        return OverflowError
    known = backend.user_error(error)
    return None if known is None else known[0]


def from_dlpack(
    x: object, /, *, device: str | None = None, copy: bool | None = None, backend: BackendLike = None
) -> Tensor:
    """Make a Tensor of any array that exports itself through DLPack, without a copy where none is needed.

    DLPack carries values only: the gradient of another library does not flow through.

    >>> import numpy as np, tape_core as tc
    >>> tc.from_dlpack(np.arange(3.0))
    Tensor([0. 1. 2.], shape=(3,), dtype=float64, backend=numpy)

    Args:
        device, backend: the place of the Tensor; the selected backend by default.
        copy: True always copies, False never does (an error where it would have to), None as needed.

    Raises:
        TypeError: `x` has no `__dlpack__`.
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: an array of type {type(x).__name__!r} has no __dlpack__; use tape_core.asarray")
    target = selection.select(backend, device).backend
    options = {k: v for k, v in (("device", target.raw_device(device)), ("copy", copy)) if v is not None}
    return wrap(target.asarray(target.namespace.from_dlpack(x, **options)), target)


@explaining
def zeros(
    shape: ShapeLike, *, dtype: DTypeLike = None, device: str | None = None, backend: BackendLike = None
) -> Tensor:
    """An array of zeros, float32 by default."""
    return _create("zeros", shape, dtype=dtype or dtypes.get_default_dtype(), device=device, backend=backend)


@explaining
def ones(
    shape: ShapeLike, *, dtype: DTypeLike = None, device: str | None = None, backend: BackendLike = None
) -> Tensor:
    """An array of ones, float32 by default."""
    return _create("ones", shape, dtype=dtype or dtypes.get_default_dtype(), device=device, backend=backend)


@explaining
def empty(
    shape: ShapeLike, *, dtype: DTypeLike = None, device: str | None = None, backend: BackendLike = None
) -> Tensor:
    """An array without values assigned, float32 by default."""
    return _create("empty", shape, dtype=dtype or dtypes.get_default_dtype(), device=device, backend=backend)


@explaining
def full(
    shape: ShapeLike,
    fill_value: complex | Tensor,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """An array with `fill_value` everywhere, in its dtype, or in the default dtype for a Python scalar of its type.

    `fill_value` may be a Tensor without dimensions, to which the sum of the cotangent flows back.
    """
    if isinstance(fill_value, Tensor):
        return _full_of_tensor(fill_value, shape, dtype, device, backend)
    dtype = dtype or dtypes.default_for(type(fill_value))
    _check_fill("full", fill_value, dtype)
    return _create("full", shape, fill_value, dtype=dtype, device=device, backend=backend)


def _check_fill(name: str, value: object, dtype: DTypeLike) -> None:
    """Raise TypeError for None and text, of which libraries make NaN and numbers, and OverflowError for others."""
    if value is None or isinstance(value, str | bytes | bytearray):
        because = _NONE_HINT if value is None else ""
        raise TypeError(f"{name}: fill_value must be a number, got {value!r}{because}")
    _check_bounds(name, (value,), dtype)


def _check_bounds(name: str, values: Iterable[object], dtype: DTypeLike) -> None:
    """Raise OverflowError for integers that the dtype does not have, of which libraries make others."""
    if (known := dtypes.as_dtype(dtype)) is not None:
        for value in values:
            if (wrong := dtypes.out_of_bounds(value, known)) is not None:
                raise OverflowError(f"{name}: {wrong}")


def _full_of_tensor(
    value: Tensor, shape: ShapeLike, dtype: DTypeLike, device: str | None, backend: BackendLike
) -> Tensor:
    if value.ndim:
        raise ValueError(f"full: fill_value must have no dimensions, got shape {value.shape}")
    value = asarray(value, dtype=dtype, device=device, backend=backend)
    return broadcast_to(value, shape if isinstance(shape, tuple) else (shape,))


@explaining
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike = None,
    device: str | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """A matrix with ones on the `k`-th diagonal and zeros elsewhere, float32 by default."""
    dtype = dtype or dtypes.get_default_dtype()
    return _create("eye", n_rows, n_cols, k=k, dtype=dtype, device=device, backend=backend)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """Evenly spaced values in [start, stop), or [0, start): int64 from integers, float32 otherwise.

    Raises:
        TypeError: one of them is not a real number.
        ValueError: `step` is 0, or one of them is infinite or NaN.
    """
    # Arrays are left to the library, as their values may be traced or on a device; Python numbers are checked here.
    given: tuple[tuple[str, Any], ...] = (("start", start), ("stop", stop), ("step", step))
    for name, value in given:
        is_plain = type(value) in SCALARS or isinstance(value, str | bytes)
        if is_plain and not math.isfinite(real("arange", name, value)):
            raise ValueError(f"arange: {name} must be finite; got {value!r}")
    if type(step) in SCALARS and step == 0:
        raise ValueError(f"arange: step must not be 0; got start={start!r}, stop={stop!r}, step={step!r}")
    if dtype is None:
        integers = all(isinstance(v, int) for v in (start, stop, step) if v is not None)
        dtype = dtypes.int64 if integers else dtypes.get_default_dtype()
    elif type(start) is int and type(step) is int and (stop is None or type(stop) is int):
        made = range(0, start, step) if stop is None else range(start, stop, step)
        _check_bounds("arange", (made[0], made[-1]) if made else (), dtype)
    return _create("arange", start, stop, step, dtype=dtype, device=device, backend=backend)


@explaining
def linspace(
    start: complex | ArrayLike,
    stop: complex | ArrayLike,
    /,
    num: int,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    endpoint: bool = True,
    backend: BackendLike = None,
    axis: int = 0,
) -> Tensor:
    """`num` evenly spaced values from `start` to `stop`, float32 by default, or in the dtype of the Tensors given.

    >>> import tape_core as tc
    >>> tc.linspace(tc.asarray([0.0, 10.0]), 12.0, 3).tolist()
    [[0.0, 10.0], [6.0, 11.0], [12.0, 12.0]]

    Args:
        start, stop: numbers, or arrays that broadcast; the result then has one axis more.
        endpoint: whether `stop` is the last value; if not, the values end one step before it.
        axis: the axis along which the values of one sequence lie, if the ends are arrays.

    Raises:
        ValueError: `num` is negative.
        IndexError: the result has no such axis.
    """
    if type(start) not in SCALARS or type(stop) not in SCALARS:
        known = start if isinstance(start, Tensor) else stop
        if backend is None and device is None:
            ends = [x if type(x) in SCALARS else asarray_beside(x, known) for x in (start, stop)]
        else:
            place = known.backend if backend is None and isinstance(known, Tensor) else backend
            ends = [x if type(x) in SCALARS else asarray(x, device=device, backend=place) for x in (start, stop)]
        return _linspace_of_tensors(ends[0], ends[1], num, dtype, endpoint, axis)
    if axis not in (0, -1):
        raise AxisError(f"linspace: axis {axis} is out of bounds for a result of 1 dimension")
    dtype = dtype or dtypes.default_for(complex if complex in (type(start), type(stop)) else float)
    _check_bounds("linspace", (start, stop), dtype)
    return _create("linspace", start, stop, num=num, endpoint=endpoint, dtype=dtype, device=device, backend=backend)


def _linspace_of_tensors(start: Array, stop: Array, num: int, dtype: DTypeLike, endpoint: bool, axis: int) -> Tensor:
    """`linspace` made of ops, so that gradients flow to the ends; one of them may be a Python scalar."""
    if num < 0:
        raise ValueError(f"linspace: num must not be negative, got {num}")
    wanted = None if dtype is None else to_dtype(dtype)
    start, stop = start * 1.0, stop * 1.0  # unsigned integers have no negative difference
    step: Tensor = stop - start
    if wanted is not None and wanted.inexact:
        step = astype(step, wanted if step.dtype.kind != "complex floating" else step.dtype)
    ndim = step.ndim
    if not -ndim - 1 <= axis <= ndim:
        raise AxisError(f"linspace: axis {axis} is out of bounds for a result of {ndim + 1} dimensions")
    parts = num - 1 if endpoint else num
    steps = reshape(astype(arange(num, backend=step.backend, device=step.device), step.dtype), (num,) + (1,) * ndim)
    found: Tensor = start + step * (steps / max(parts, 1))
    if endpoint and num > 1:  # the last value is `stop` itself, without rounding errors
        last = stop if isinstance(stop, Tensor) else full_like(step, stop)
        found = concat([found[:-1], astype(broadcast_to(last, step.shape), found.dtype)[None]])
    if wanted is not None:
        found = floor(found) if not wanted.inexact and found.dtype.kind == "real floating" else found
        found = astype(found, wanted)
    return found if axis == 0 else moveaxis(found, 0, axis)


def _create_like(name: str, x: ArrayLike, *args: object, dtype: DTypeLike, device: str | None) -> Tensor:
    x = asarray(x)
    if x._slots:
        cuts.on_shape_used(x)
    backend = x.backend
    dtype = backend.raw_dtype(dtype)  # before the kernel is looked up: `raw_dtype` may replace kernels
    raw = getattr(backend.xp, name)(
        x.array, *args, dtype=dtype, device=None if device is None else backend.raw_device(device)
    )
    return wrap(raw, backend)


def zeros_like(x: ArrayLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """Zeros of the shape, dtype and device of `x`."""
    return _create_like("zeros_like", x, dtype=dtype, device=device)


def ones_like(x: ArrayLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """Ones of the shape, dtype and device of `x`."""
    return _create_like("ones_like", x, dtype=dtype, device=device)


def empty_like(x: ArrayLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """An array without values assigned, of the shape, dtype and device of `x`."""
    return _create_like("empty_like", x, dtype=dtype, device=device)


def full_like(
    x: ArrayLike, /, fill_value: complex | Tensor, *, dtype: DTypeLike = None, device: str | None = None
) -> Tensor:
    """An array with `fill_value` everywhere, of the shape, dtype and device of `x`."""
    if isinstance(fill_value, Tensor):
        x = asarray(x)
        return _full_of_tensor(fill_value, x.shape, dtype or x.dtype, device or x.device, x.backend)
    x = asarray(x)
    _check_fill("full_like", fill_value, dtype or x.dtype)
    return _create_like("full_like", x, fill_value, dtype=dtype, device=device)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of the points of a grid, from 1-d coordinates along each axis.

    `indexing` is "xy" where the first axis of the results belongs to the second array, as in plots, or "ij" for the
    order of the arrays.
    """
    n = len(arrays)
    beside = next((a for a in arrays if isinstance(a, Tensor)), None)
    tensors = [asarray_beside(a, beside) for a in arrays]
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    # Array k lies along axis axes[k] of the results.
    axes = list(range(n))
    if indexing == "xy" and n > 1:
        axes[0], axes[1] = 1, 0
    broadcast: Callable[..., tuple[Tensor, ...]] = cast("Any", ops.broadcast_arrays)
    return broadcast(
        *(reshape(t, (1,) * axis + (-1,) + (1,) * (n - axis - 1)) for t, axis in zip(tensors, axes, strict=True))
    )


def _triangle(x: ArrayLike, keep: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    x = asarray(x)
    if x.ndim < 2:
        raise ValueError(f"tril, triu: x must have two dimensions or more, got shape {x.shape}")
    rows = arange(x.shape[-2], backend=x.backend, device=x.device)
    columns = arange(x.shape[-1], backend=x.backend, device=x.device)
    return where(keep(reshape(rows, (-1, 1)), columns), x, False if x.dtype is dtypes.bool_ else 0)


def tril(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The lower triangle of each matrix, zeros above the `k`-th diagonal."""
    return _triangle(x, lambda rows, columns: columns <= rows + k)


def triu(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The upper triangle of each matrix, zeros below the `k`-th diagonal."""
    return _triangle(x, lambda rows, columns: columns >= rows + k)
