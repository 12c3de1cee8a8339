"""Creation functions of the Array API standard.

These are where a backend is selected: by an argument, else as `tape_core.use_backend` says. What is made
from Tensors stays on their backend.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any

from tape_core.backends import selection
from tape_core.backends.discovery import backend_of_type
from tape_core.backends.errors import AxisError
from tape_core.backends.protocol import Backend
from tape_core.base import dtypes
from tape_core.base.mistakes import real
from tape_core.engine import cuts
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.op import with_numbers_as_tensors
from tape_core.engine.tensor import SCALARS, Tensor, twin_slots, wrap
from tape_core.ops.data_types import astype, neutral, to_device
from tape_core.ops.elementwise import floor, where
from tape_core.ops.manipulation import broadcast_to, concat, moveaxis, reshape, stack
from tape_core.typing import Array, ArrayLike, DTypeLike

BackendLike = str | Backend | None


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    copy: bool | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """A Tensor of a Python scalar, a nested list, an array of an installed backend, a buffer or a Tensor.

    Python floats become the default dtype (float32), Python integers int64; arrays keep theirs. `dtype` converts, as
    :func:`astype` does: floats are truncated to integers. A Tensor that
    already is what is asked for is returned itself, so the path is kept; a list of Tensors is stacked. An object that
    stands for a Tensor says so by a method `__tape_tensor__`, which returns it.

    >>> import tape_core as tc
    >>> tc.asarray([1, 2], dtype=tc.float64)
    Tensor([1. 2.], shape=(2,), dtype=float64, backend=numpy)

    Args:
        dtype: a DType, its name, the library's own dtype or a Python type.
        device: a device of the backend.
        copy: True always copies, False never does (a ValueError where it would have to), None as needed.
        backend: a backend's name or object; a Tensor or array of another backend is converted, without its path.

    Raises:
        TypeError: `obj` is nothing an array can be made of, or has something in it that is no number, such as None.
        OverflowError: an integer does not fit the dtype.
    """
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
    if owner is not None and backend is None and device is None:
        return wrap(_convert(owner, obj, owner.raw_dtype(dtype), None, copy), owner)
    if kind not in SCALARS and owner is None:
        _check_leaf(obj, obj, ())
        if isinstance(obj, bytes | bytearray):
            obj = memoryview(obj)  # elements of uint8: NumPy would read text as a number
    if (kind is list or kind is tuple) and _holds_tensor(obj, obj, ()):
        return _from_tensor(_packed(obj, backend), dtype, device, None, backend)
    chosen = selection.select(backend, device)
    target = chosen.backend
    if owner is not None and owner is not target:
        obj = owner.numpy(owner.asarray(obj))
    if dtype is None and kind in SCALARS:
        dtype = dtypes.default_for(kind)
    raw = _convert(target, obj, target.raw_dtype(dtype), chosen.device, copy)
    if dtype is None and owner is None and not hasattr(obj, "dtype") and not _first_leaf_has_dtype(obj):
        found = target.dtype(raw.dtype)
        default = {"real floating": float, "complex floating": complex}.get(found.kind)
        if default is not None and (wanted := dtypes.default_for(default)) is not found:
            dtype = target.raw_dtype(wanted)  # before the kernel is looked up, which it may change
            raw = target.xp.astype(raw, dtype)
    return wrap(raw, target)


def _packed(obj: Any, backend: BackendLike) -> Tensor:
    """Nested lists with Tensors in them as one. Numbers are weak beside all of them, whichever list they are in."""
    leaves: list[Any] = []
    _collect(obj, leaves, backend)
    found = iter(with_numbers_as_tensors(tuple(leaves)))

    def build(part: Any) -> Any:
        return stack([build(p) for p in part]) if isinstance(part, list | tuple) else next(found)

    return build(obj)  # type: ignore[no-any-return]


def _collect(obj: Any, leaves: list[Any], backend: BackendLike) -> None:
    for part in obj:
        if isinstance(part, list | tuple):
            _collect(part, leaves, backend)
        else:
            leaves.append(part if type(part) in SCALARS else asarray(part, backend=backend))


def _convert(backend: Backend, obj: Any, dtype: DTypeLike, device: str | None, copy: bool | None) -> Any:
    try:
        raw = backend.asarray(obj, dtype=dtype, device=device, copy=copy)
    except Exception as error:
        kind = _kind(backend, error)
        if kind is None:
            raise
        shown, reason = repr(obj), str(error)
        if kind is OverflowError:
            reason = f"an integer does not fit into {dtypes.int64 if dtype is None else backend.dtype(dtype)}"
            shown = reprlib.repr(obj)
        raise kind(f"asarray: cannot make an array of {shown} ({type(obj).__name__}): {reason}") from error
    try:
        backend.dtype(raw.dtype)
    except (TypeError, AttributeError):  # a 0-d array of objects may come as the object itself
        found = getattr(raw, "dtype", "object")
        raise TypeError(
            f"asarray: cannot make an array of {obj!r} ({type(obj).__name__}): its dtype would be {found}"
        ) from None
    return raw


def _from_tensor(x: Tensor, dtype: DTypeLike, device: str | None, copy: bool | None, backend: BackendLike) -> Tensor:
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


def _holds_tensor(obj: Any, whole: Any, around: tuple[int, ...]) -> bool:
    """Whether a nested list has a Tensor in it.

    Raises:
        TypeError: it has something in it that is no number.
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


def _check_leaf(obj: Any, whole: Any, around: tuple[int, ...]) -> None:
    """Libraries make numbers of some of these, where a dtype is given: NaN of None.

    Raises:
        TypeError: it is None or text.
    """
    if obj is None or isinstance(obj, str | bytes | bytearray):
        if not around and isinstance(obj, bytes | bytearray):
            return  # a buffer
        inside = "" if obj is whole else f" has {obj!r} in it, which"
        because = "; None is what the gradient of something unconnected is: see tape.explain" if obj is None else ""
        raise TypeError(f"asarray: cannot make an array of {whole!r}:{inside or ' it'} is no number{because}")


def _check_numbers(backend: Backend, array: Array) -> None:
    """Whether an array that is to be converted has numbers in it.

    Raises:
        TypeError: it has objects or text.
    """
    try:
        backend.dtype(array.dtype)
    except (TypeError, AttributeError):
        raise TypeError(
            f"asarray: cannot make an array of {array!r}: its dtype is {array.dtype}, which is not of numbers"
        ) from None


def _first_leaf_has_dtype(obj: Any) -> bool:
    while isinstance(obj, list | tuple) and obj:
        obj = obj[0]
    return hasattr(obj, "dtype")


def _made(name: str, *args: Any, dtype: DTypeLike, device: str | None, backend: BackendLike, **kwargs: Any) -> Tensor:
    """The result of a creation function of the library, in the default float dtype unless told otherwise."""
    chosen = selection.select(backend, device)
    target = chosen.backend
    try:
        dtype = target.raw_dtype(dtype)  # before the kernel is looked up, which it may change
        raw = getattr(target.xp, name)(*args, dtype=dtype, device=target.raw_device(chosen.device), **kwargs)
    except Exception as error:
        kind = _kind(target, error)
        if kind is None:
            raise
        raise kind(f"{name}: {error}") from error
    return wrap(raw, target)


def _kind(backend: Backend, error: Exception) -> type[Exception] | None:
    """As what users get an error of the library; None: as it is."""
    if isinstance(error, OverflowError):
        return OverflowError
    known = backend.user_error(error)
    return None if known is None else known[0]


def from_dlpack(
    x: Any, /, *, device: str | None = None, copy: bool | None = None, backend: BackendLike = None
) -> Tensor:
    """A Tensor of any array that exports itself through DLPack, without a copy where there need be none.

    DLPack carries values only: a path through another library's gradients ends here.

    >>> import numpy as np, tape_core as tc
    >>> tc.from_dlpack(np.arange(3.0))
    Tensor([0. 1. 2.], shape=(3,), dtype=float64, backend=numpy)

    Args:
        device, backend: where the Tensor is to be; by default the selected backend.
        copy: True always copies, False never does (an error where it would have to), None as needed.

    Raises:
        TypeError: `x` has no `__dlpack__`.
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: an array of type {type(x).__name__!r} has no __dlpack__; use tape_core.asarray")
    target = selection.select(backend, device).backend
    options = {k: v for k, v in (("device", target.raw_device(device)), ("copy", copy)) if v is not None}
    return wrap(target.asarray(target.namespace.from_dlpack(x, **options)), target)


def zeros(
    shape: int | tuple[int, ...], *, dtype: DTypeLike = None, device: str | None = None, backend: BackendLike = None
) -> Tensor:
    """Zeros, float32 by default."""
    return _made("zeros", shape, dtype=dtype or dtypes.get_default_dtype(), device=device, backend=backend)


def ones(
    shape: int | tuple[int, ...], *, dtype: DTypeLike = None, device: str | None = None, backend: BackendLike = None
) -> Tensor:
    """Ones, float32 by default."""
    return _made("ones", shape, dtype=dtype or dtypes.get_default_dtype(), device=device, backend=backend)


def empty(
    shape: int | tuple[int, ...], *, dtype: DTypeLike = None, device: str | None = None, backend: BackendLike = None
) -> Tensor:
    """An array whose values are whatever was there, float32 by default."""
    return _made("empty", shape, dtype=dtype or dtypes.get_default_dtype(), device=device, backend=backend)


def full(
    shape: int | tuple[int, ...],
    fill_value: complex | Tensor,
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
    backend: BackendLike = None,
) -> Tensor:
    """`fill_value` everywhere, in its dtype, or that which a Python scalar like it has by default.

    The gradient of a Tensor of no dimension is the sum over all places.
    """
    if isinstance(fill_value, Tensor):
        return _filled(fill_value, shape, dtype, device, backend)
    _check_fill("full", fill_value)
    dtype = dtype or dtypes.default_for(type(fill_value))
    return _made("full", shape, fill_value, dtype=dtype, device=device, backend=backend)


def _check_fill(name: str, value: Any) -> None:
    """Libraries make NaN of None, and numbers of text.

    Raises:
        TypeError: it is no number.
    """
    if value is None or isinstance(value, str | bytes | bytearray):
        because = "; None is what the gradient of something unconnected is: see tape.explain" if value is None else ""
        raise TypeError(f"{name}: fill_value must be a number, got {value!r}{because}")


def _filled(value: Tensor, shape: Any, dtype: DTypeLike, device: str | None, backend: BackendLike) -> Tensor:
    if value.ndim:
        raise ValueError(f"full: fill_value must have no dimensions, got shape {value.shape}")
    value = asarray(value, dtype=dtype, device=device, backend=backend)
    return broadcast_to(value, shape if isinstance(shape, tuple) else (shape,))


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
    """Ones on the `k`-th diagonal, zeros elsewhere, float32 by default."""
    dtype = dtype or dtypes.get_default_dtype()
    return _made("eye", n_rows, n_cols, k=k, dtype=dtype, device=device, backend=backend)


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
        TypeError: one of them is no real number.
        ValueError: `step` is 0, or one of them is infinite or NaN.
    """
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
    return _made("arange", start, stop, step, dtype=dtype, device=device, backend=backend)


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
    """`num` evenly spaced values from `start` to `stop`, float32 by default, or in the dtype of Tensors given.

    >>> import tape_core as tc
    >>> tc.linspace(tc.asarray([0.0, 10.0]), 12.0, 3).tolist()
    [[0.0, 10.0], [6.0, 11.0], [12.0, 12.0]]

    Args:
        start, stop: numbers, or arrays that broadcast: then the result has one axis more.
        endpoint: whether `stop` is the last value; without it the values stop one step before it.
        axis: where the values of one sequence lie along, if the ends are arrays.

    Raises:
        ValueError: `num` is negative.
        IndexError: the result has no such axis.
    """
    if type(start) not in SCALARS or type(stop) not in SCALARS:
        known = start if isinstance(start, Tensor) else stop
        place = known.backend if backend is None and isinstance(known, Tensor) else backend
        ends = [x if type(x) in SCALARS else asarray(x, device=device, backend=place) for x in (start, stop)]
        return _spaced(ends[0], ends[1], num, dtype, endpoint, axis)
    if axis not in (0, -1):
        raise AxisError(f"linspace: axis {axis} is out of bounds for a result of 1 dimension")
    dtype = dtype or dtypes.default_for(complex if complex in (type(start), type(stop)) else float)
    return _made("linspace", start, stop, num=num, endpoint=endpoint, dtype=dtype, device=device, backend=backend)


def _spaced(start: Array, stop: Array, num: int, dtype: DTypeLike, endpoint: bool, axis: int) -> Tensor:
    if num < 0:
        raise ValueError(f"linspace: num must not be negative, got {num}")
    wanted = None if dtype is None else neutral(dtype)
    start, stop = start * 1.0, stop * 1.0  # of unsigned integers there would be no difference
    step: Tensor = stop - start
    if wanted is not None and wanted.inexact:
        step = astype(step, wanted if step.dtype.kind != "complex floating" else step.dtype)
    ndim = step.ndim
    if not -ndim - 1 <= axis <= ndim:
        raise AxisError(f"linspace: axis {axis} is out of bounds for a result of {ndim + 1} dimensions")
    parts = num - 1 if endpoint else num
    steps = reshape(astype(arange(num, backend=step.backend, device=step.device), step.dtype), (num,) + (1,) * ndim)
    found: Tensor = start + step * (steps / max(parts, 1))
    if endpoint and num > 1:  # the last one exactly
        last = stop if isinstance(stop, Tensor) else full_like(step, stop)
        found = concat([found[:-1], astype(broadcast_to(last, step.shape), found.dtype)[None]])
    if wanted is not None:
        found = floor(found) if not wanted.inexact and found.dtype.kind == "real floating" else found
        found = astype(found, wanted)
    return found if axis == 0 else moveaxis(found, 0, axis)


def _like(name: str, x: ArrayLike, *args: Any, dtype: DTypeLike, device: str | None) -> Tensor:
    x = asarray(x)
    if x._slots:
        cuts.shaped(x)
    backend = x.backend
    dtype = backend.raw_dtype(dtype)  # before the kernel is looked up, which it may change
    raw = getattr(backend.xp, name)(
        x.array, *args, dtype=dtype, device=None if device is None else backend.raw_device(device)
    )
    return wrap(raw, backend)


def zeros_like(x: ArrayLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """Zeros of the shape, dtype and device of `x`."""
    return _like("zeros_like", x, dtype=dtype, device=device)


def ones_like(x: ArrayLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """Ones of the shape, dtype and device of `x`."""
    return _like("ones_like", x, dtype=dtype, device=device)


def empty_like(x: ArrayLike, /, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """Whatever was there, in the shape, dtype and device of `x`."""
    return _like("empty_like", x, dtype=dtype, device=device)


def full_like(
    x: ArrayLike, /, fill_value: complex | Tensor, *, dtype: DTypeLike = None, device: str | None = None
) -> Tensor:
    """`fill_value` everywhere, in the shape, dtype and device of `x`."""
    if isinstance(fill_value, Tensor):
        x = asarray(x)
        return _filled(fill_value, x.shape, dtype or x.dtype, device or x.device, x.backend)
    _check_fill("full_like", fill_value)
    return _like("full_like", x, fill_value, dtype=dtype, device=device)


def meshgrid(*arrays: ArrayLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid, from the 1-d coordinates along each axis."""
    from tape_core.ops.manipulation import broadcast_arrays

    n = len(arrays)
    tensors = [asarray(a) for a in arrays]
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    axes = list(range(n))
    if indexing == "xy" and n > 1:
        axes[0], axes[1] = 1, 0
    return broadcast_arrays(
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
