"""From anything tensor-like to values of tape_core under TensorFlow's dtype rules, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.backends.selection import select
from tape_core.staging import TracedValue

from tape_tf import dtypes
from tape_tf.errors import InvalidArgumentError
from tape_tf.tensor import IndexedSlices, Tensor, Value, wrap_tensor
from tape_tf.variable import Variable

_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
_KINDS = {"bool": 0, "unsigned integer": 1, "signed integer": 1, "real floating": 2, "complex floating": 3}
_SCALARS = {bool: 0, int: 1, float: 2, complex: 3}
_INT32 = range(-(2**31), 2**31)


# -- to the core


def native(value: Any, dtype: Any = None, name: str | None = None, like: tc.Tensor | None = None) -> tc.Tensor:
    """A tape_core Tensor of a tensor, a Variable (which is read), a number, an array or a nested list of such.

    Python floats become float32, Python ints int32, NumPy arrays keep their dtype. A tensor must have the dtype asked
    for.

    Args:
        dtype: a DType; by default the value's own.
        name: what messages call it.
        like: where it is to be; by default on the selected backend and device.

    Raises:
        ValueError: it is a tensor of another dtype, or nothing a tensor can be made of.
        TypeError: it is a number that `dtype` cannot hold.
    """
    wanted = dtypes.native_dtype(dtype)
    found = as_tensor(value)
    if found is None:
        return _from_python(value, wanted, like)
    if wanted is not None and found.dtype is not wanted:
        label = f"{name}: " if name else ""
        raise ValueError(
            f"{label}Tensor conversion requested dtype {wanted} for Tensor with dtype {found.dtype}: {wrap(found)!r}; "
            "use tf.cast"
        )
    return found


def as_tensor(value: Any) -> tc.Tensor | None:
    """A value that is a tensor, or a list that holds some, as a tape_core Tensor; None for anything else."""
    kind = type(value)
    if kind is Tensor:
        return value.native  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        try:
            holds_tensor = _holds_tensor(value)
        except RecursionError:
            raise ValueError(
                f"a {kind.__name__} that contains itself, or is nested very deeply, is no tensor"
            ) from None
        return _packed(value) if holds_tensor else None
    if isinstance(value, Value):
        return value._now()
    if isinstance(value, tc.Tensor):
        return value._read() if isinstance(value, tc.Variable) else value
    if kind is IndexedSlices:
        return value.densify()  # type: ignore[no-any-return]
    if isinstance(value, tc.IndexedSlices):
        return value.densify()
    if hasattr(kind, "__tf_tensor__"):
        return native(value.__tf_tensor__())
    return None


def _holds_tensor(parts: Sequence[Any]) -> bool:
    return any(
        isinstance(part, Value | tc.Tensor | IndexedSlices)
        or ((type(part) is list or type(part) is tuple) and _holds_tensor(part))
        for part in parts
    )


def _packed(parts: Sequence[Any]) -> tc.Tensor:
    """A list that holds tensors, stacked."""
    return tc.stack(matched(list(parts), "Pack"))


def _from_python(value: Any, dtype: tc.DType | None, like: tc.Tensor | None) -> tc.Tensor:
    kind = type(value)
    if isinstance(value, TracedValue):  # a number: arrays do not come here
        backend, device = where(like)
        default = tc.int32 if type(value.value) is int else tc.float32
        return tc.asarray(value, dtype=dtype or default, backend=backend, device=device)
    if kind not in _SCALARS:
        value = _as_array(value, is_converted=dtype is not None)
        rank = _RANKS.get(value.dtype.kind)
        if rank is None:
            raise ValueError(
                f"Attempt to convert a value of NumPy dtype {value.dtype} to a Tensor; there are tensors of numbers "
                f"and truth values only"
            )
    else:
        rank = _SCALARS[kind]
    if dtype is None:
        if kind is int:
            dtype = tc.int32 if value in _INT32 else tc.int64
        elif kind in _SCALARS:
            dtype = {bool: tc.bool, float: tc.float32, complex: tc.complex128}[kind]
    elif not _fits(value, rank, dtype):
        raise TypeError(f"Cannot convert {value} to EagerTensor of dtype {dtype}")
    backend, device = where(like)
    return tc.asarray(value, dtype=dtype, backend=backend, device=device, copy=True)


def where(like: tc.Tensor | None = None) -> tuple[Any, str | None]:
    """The backend and device of a new tensor: those of `like`, else those selected."""
    if like is not None:
        return like.backend.root, like.device
    chosen = select()
    return chosen.backend, chosen.device


def _as_array(value: Any, *, is_converted: bool = False) -> Any:
    """A nested list, or any object NumPy knows, as an array with TensorFlow's dtype; or NumPy's, to be converted."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if value is None or isinstance(value, str | bytes | dict | set):
        raise _unsupported(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"Can't convert non-rectangular Python sequence to Tensor. ({error})") from error
    if array.dtype == object:
        raise _unsupported(value)
    if not is_converted and array.dtype in (np.float64, np.int64) and not _has_dtype(value):
        if array.dtype == np.float64:
            return array.astype(np.float32)
        if not array.size or (int(array.min()) in _INT32 and int(array.max()) in _INT32):
            return array.astype(np.int32)
    return array


def _unsupported(value: Any) -> ValueError:
    return ValueError(f"Attempt to convert a value ({value!r}) with an unsupported type ({type(value)}) to a Tensor.")


def _has_dtype(value: Any) -> bool:
    """Whether the first leaf of a nested list brings a dtype."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "dtype") or hasattr(value, "__array_interface__")


def _fits(value: Any, rank: int, dtype: tc.DType) -> bool:
    """Whether a number or NumPy array of this rank of kinds can have a dtype without losing what it is."""
    target = _KINDS[dtype.kind]
    if not np.size(value) or rank == 0:
        return True
    if target == 1 and rank in (1, 2):
        whole = rank == 1 or (isinstance(value, np.ndarray) and bool((value == np.trunc(value)).all()))
        return whole and _in_range(value, dtype)
    return rank <= target


def _in_range(value: Any, dtype: tc.DType) -> bool:
    """Whether whole numbers are among those of an integer dtype."""
    limits = tc.iinfo(dtype)
    if type(value) is int:
        return bool(limits.min <= value <= limits.max)
    return bool(limits.min <= int(value.min()) and int(value.max()) <= limits.max)


def matched(values: list[Any], op: str, keep_scalars: bool = False) -> list[Any]:
    """Operands as tape_core Tensors of one dtype: that of the first tensor among them.

    Numbers, arrays and lists are converted to it; nothing is promoted.

    Args:
        op: the name of TensorFlow's operation, for messages.
        keep_scalars: leave Python numbers beside a tensor what they are; the core takes them as they are.

    Raises:
        InvalidArgumentError: two tensors have different dtypes, or a number cannot have that dtype.
    """
    found = [value.native if type(value) is Tensor else as_tensor(value) for value in values]
    for first in found:
        if first is not None:
            break
    else:
        found[0] = first = _from_python(values[0], None, None)
    dtype = first.dtype
    for k, tensor in enumerate(found):
        if tensor is None:
            value = values[k]
            if isinstance(value, np.generic):
                value = value.item()
            rank = _SCALARS.get(type(value))
            if rank is None:
                array = _as_array(value, is_converted=True)
                rank = _RANKS.get(array.dtype.kind, 4)
                value = array
            if not _fits(value, rank, dtype):
                raise mismatch(op, k, dtype, native(values[k]).dtype, values[k])
            if keep_scalars and type(value) in _SCALARS and (rank or dtype is tc.bool):
                found[k] = value
            else:
                found[k] = _from_python(value, dtype, first)
        elif tensor.dtype is not dtype:
            raise mismatch(op, k, dtype, tensor.dtype)
    return found


def mismatch(op: str, k: int, expected: tc.DType, got: tc.DType, value: Any = None) -> InvalidArgumentError:
    """What TensorFlow says of two dtypes in one operation."""
    what = "tensor" if value is None else f"tensor ({value!r})"
    return InvalidArgumentError(
        None,
        None,
        f"cannot compute {op} as input #{k}(zero-based) was expected to be a {dtypes.spelled(expected)} tensor but "
        f"is a {dtypes.spelled(got)} {what} [Op:{op}] name: ; there is no promotion, use tf.cast",
    )


def check_floating(value: Any, op: str) -> None:
    """Raise an InvalidArgumentError for a tensor of integers or truth values, for which TensorFlow has no kernel."""
    if isinstance(value, tc.Tensor) and not value.dtype.inexact:
        raise InvalidArgumentError(
            None,
            None,
            f"Value for attr 'T' of {dtypes.spelled(value.dtype)} is not in the list of allowed values: bfloat16, "
            f"half, float, double, complex64, complex128 [Op:{op}]; use tf.cast",
        )


def check_integers(value: tc.Tensor, what: str, op: str) -> None:
    """Raise an InvalidArgumentError for indices of another kind."""
    if not value.dtype.kind.endswith("integer"):
        raise InvalidArgumentError(
            None,
            None,
            f"{what} must be integers, int32 or int64, not {dtypes.spelled(value.dtype)} [Op:{op}]; use tf.cast",
        )


def static(value: Any) -> Any:
    """A shape, an axis or a count as Python ints, from ints, tensors or lists of them."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, Value | tc.Tensor):
        value = getattr(value, "native", value)
        return _tuples(value.tolist())
    if isinstance(value, np.ndarray | np.generic):
        return _tuples(value.tolist())
    if isinstance(value, list | tuple | range):
        return tuple([static(part) for part in value])
    return value


def _tuples(value: Any) -> Any:
    return tuple([_tuples(part) for part in value]) if isinstance(value, list) else value


# -- back


def wrap(value: Any) -> Any:
    """Values of tape_core in a nested structure as the façade's; anything else as it is."""
    kind = type(value)
    if kind is tc.Tensor:
        return wrap_tensor(value)
    if kind is tc.Variable:
        return Variable.of(value)
    if kind is tc.IndexedSlices:
        return IndexedSlices.of(value)
    if kind is tuple or kind is list:
        return kind([wrap(part) for part in value])
    if kind is dict:
        return {key: wrap(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[wrap(part) for part in value])
    if isinstance(value, list | dict):  # what derives from them
        from tape_core.base import pytree

        leaves, structure = pytree.flatten(value)
        return pytree.unflatten(structure, [wrap(leaf) for leaf in leaves])
    if isinstance(value, tc.Variable):
        return Variable.of(value)
    return value


def unwrap(value: Any) -> Any:
    """The façade's values in a nested structure as those of tape_core, Variables as Variables; the rest as it is."""
    if isinstance(value, Value | IndexedSlices):
        return value.native
    if isinstance(value, list | tuple | dict) and value:
        from tape_core.base import pytree

        leaves, structure = pytree.flatten(value)
        return pytree.unflatten(
            structure, [leaf.native if isinstance(leaf, Value | IndexedSlices) else leaf for leaf in leaves]
        )
    return value


def convert_to_tensor(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Tensor:
    """A tensor of a tensor, a Variable, IndexedSlices, a number, an array, or a nested list.

    A tensor is returned itself.

    >>> import tape_tf as tf
    >>> tf.convert_to_tensor([1, 2]).dtype
    tf.int32

    A Tensor of tape_core keeps its path: this is the way from the core to the façade; `tensor.native` is the way back.

    Args:
        dtype: the dtype it must have, or is to have where it is no tensor.
        dtype_hint: likewise, where that is possible.

    Raises:
        ValueError: a tensor has another dtype, or the value is nothing a tensor can be made of.
        TypeError: a number cannot have the dtype.
    """
    if type(value) is Tensor and (dtype is None or dtypes.as_dtype(dtype) is value.dtype):
        return value
    if isinstance(value, Value) and isinstance(value.native, tc.Variable):
        value = wrap_tensor(value.native.value)  # a reading, which is a tensor of its own
    if dtype is None and dtype_hint is not None:
        try:
            return wrap_tensor(native(value, dtype_hint, name))
        except (TypeError, ValueError):
            pass
    return wrap_tensor(native(value, dtype, name))


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const") -> Tensor:
    """A tensor of a number, an array or a nested list: a copy.

    >>> import tape_tf as tf
    >>> print(tf.constant(1.0, shape=(2,)))
    tf.Tensor([1. 1.], shape=(2,), dtype=float32)

    A tensor is returned itself; a Variable, and tensors in lists, become constants, with no path back.

    Args:
        shape: its shape; one number fills it.

    Raises:
        TypeError: a number cannot have `dtype`, a tensor has another one, or the shape does not fit.
        ValueError: the value is nothing a tensor can be made of.
    """
    found = as_tensor(value)
    if found is not None and dtype is not None and dtypes.as_dtype(dtype).native is not found.dtype:
        raise TypeError(
            f"Expected tensor {wrap(found):} with dtype {dtypes.as_dtype(dtype)!r}, but got dtype "
            f"{dtypes.of(found.dtype)!r}.; use tf.cast"
        )
    if type(value) is not Tensor:
        found = native(value, dtype) if found is None else tc.stop_gradient(found)
    assert found is not None
    if shape is not None:
        found = _shaped(found, tuple(static(shape)) if not isinstance(shape, int) else (shape,))
    return value if type(value) is Tensor and found is value.native else wrap_tensor(found)


def _shaped(found: tc.Tensor, shape: tuple[int, ...]) -> tc.Tensor:
    if found.shape == shape:
        return found
    size = 1
    for length in shape:
        size *= length
    if found.size == size:
        return tc.reshape(found, shape)
    if found.size == 1:
        return tc.broadcast_to(tc.reshape(found, ()), shape)
    raise TypeError(
        f"Eager execution of tf.constant with unsupported shape. Tensor {wrap(found):} has {found.size} elements, but "
        f"got `shape` {shape} with {size} elements)."
    )


def is_tensor(x: Any) -> bool:
    """Whether `x` is a Tensor, a Variable or IndexedSlices.

    >>> import tape_tf as tf
    >>> tf.is_tensor(tf.Variable(1.0)), tf.is_tensor([1.0])
    (True, False)
    """
    return isinstance(x, Value | IndexedSlices)
