"""Conversion of anything tensor-like to tape_core's values under TensorFlow's dtype rules, and back.

TensorFlow promotes nothing between tensors: two dtypes in one operation are an error. Python numbers and lists take the
dtype of the first tensor beside them, if they can without losing their kind (2 may become a float, 2.5 no integer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tape_core as tc
from tape_core.backends import select
from tape_core.staging import TracedValue

from tape_tf import dtypes
from tape_tf.errors import InvalidArgumentError, StringsGivenError
from tape_tf.function_lookup import provide
from tape_tf.shapes import as_shape
from tape_tf.string_tensor import StringTensor, as_strings, fill_or_reshape, is_text
from tape_tf.tensor import IndexedSlices, Tensor, Value, wrap_tensor
from tape_tf.typing import DTypeLike, PyTree, ShapeLike, TensorLike
from tape_tf.variable import Variable

# The order of kinds: bool, integer, floating, complex. A value converts to a dtype of its own kind or a later one.
_RANK_OF_NUMPY_KIND = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}  # V: bfloat16 of ml_dtypes
_RANK_OF_KIND = {"bool": 0, "unsigned integer": 1, "signed integer": 1, "real floating": 2, "complex floating": 3}
_RANK_OF_SCALAR = {bool: 0, int: 1, float: 2, complex: 3}
_INT32 = range(-(2**31), 2**31)


# -- to the core


def native(
    value: TensorLike, dtype: DTypeLike = None, name: str | None = None, like: tc.Tensor | None = None
) -> tc.Tensor:
    """Convert a tensor, a Variable (which is read), a number, an array or a nested list of such to a tape_core Tensor.

    Python floats become float32, Python ints int32 (int64 if they need it); NumPy arrays keep their dtype. A tensor is
    never cast: it must have the dtype asked for.

    Args:
        dtype: a DType; by default the value's own.
        name: the argument's name, for messages.
        like: a tensor whose backend and device a new one gets; by default the selected ones.

    Raises:
        ValueError: a tensor has another dtype, or the value does not convert to a tensor.
        TypeError: a number does not fit `dtype`.
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
    """Return a tensor, or a list that holds some, as a tape_core Tensor; return None for anything else."""
    kind = type(value)
    if kind is Tensor:
        return value.native  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        try:
            # A list without tensors goes to NumPy as a whole, which is much faster than a stack of its elements.
            holds_tensor = _holds_tensor(value)
        except RecursionError:
            raise ValueError(
                f"a {kind.__name__} that contains itself, or is nested very deeply, is no tensor"
            ) from None
        return _stack(value) if holds_tensor else None
    # After the exact types, which are the common case: here come Variables and slices of Variables.
    if isinstance(value, Value):
        return value._read_native()
    if isinstance(value, tc.Tensor):
        return value._read() if isinstance(value, tc.Variable) else value
    if kind is IndexedSlices:
        return value.densify()  # type: ignore[no-any-return]
    if isinstance(value, tc.IndexedSlices):
        return value.densify()
    # TensorFlow's protocol for objects that convert themselves (tf.types.experimental.TensorProtocol).
    if hasattr(kind, "__tf_tensor__"):
        return native(value.__tf_tensor__())
    return None


def _holds_tensor(parts: Sequence[Any]) -> bool:
    return any(
        isinstance(part, Value | tc.Tensor | IndexedSlices)
        or ((type(part) is list or type(part) is tuple) and _holds_tensor(part))
        for part in parts
    )


def _stack(parts: Sequence[Any]) -> tc.Tensor:
    """Stack a nested list that holds tensors; the gradient flows to them."""
    return tc.stack(match_dtypes(list(parts), "Pack"))


def _from_python(value: Any, dtype: tc.DType | None, like: tc.Tensor | None) -> tc.Tensor:
    kind = type(value)
    if isinstance(value, TracedValue):  # a number: arrays do not come here
        backend, device = backend_and_device(like)
        default = tc.int32 if type(value.value) is int else tc.float32
        return tc.asarray(value, dtype=dtype or default, backend=backend, device=device)
    if kind not in _RANK_OF_SCALAR:
        if isinstance(value, np.ndarray | np.generic) and is_text(value):
            raise StringsGivenError("this operation")
        value = _as_array(value, is_converted=dtype is not None)
        rank = _RANK_OF_NUMPY_KIND.get(value.dtype.kind)
        if rank is None:
            raise ValueError(
                f"Attempt to convert a value of NumPy dtype {value.dtype} to a Tensor; there are tensors of numbers, "
                f"truth values and strings"
            )
    else:
        rank = _RANK_OF_SCALAR[kind]
    if dtype is None:
        if kind is int:
            # tf.constant(2**40) is int64 in TensorFlow, too; beyond 64 bits the core raises.
            dtype = tc.int32 if value in _INT32 else tc.int64
        elif kind in _RANK_OF_SCALAR:
            dtype = {bool: tc.bool, float: tc.float32, complex: tc.complex128}[kind]
    elif not _fits(value, rank, dtype):
        raise TypeError(f"Cannot convert {value} to EagerTensor of dtype {dtype}")
    backend, device = backend_and_device(like)
    return tc.asarray(value, dtype=dtype, backend=backend, device=device, copy=True)


def backend_and_device(like: tc.Tensor | None = None) -> tuple[Any, str | None]:
    """Return the backend and device for a new tensor: those of `like`, else the selected ones."""
    if like is not None:
        return like.backend.root, like.device  # root: without vmap's and the tracer's wrapping backends
    chosen = select()
    return chosen.backend, chosen.device


def _as_array(value: Any, *, is_converted: bool = False) -> Any:
    """Convert a nested list, or any object NumPy knows, to an array.

    Python numbers get TensorFlow's default dtypes, float32 and int32, unless the array `is_converted` to another later.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if is_text(value):
        raise StringsGivenError("this operation")
    # NumPy would make arrays of objects from these.
    if value is None or isinstance(value, dict | set):
        raise _unsupported(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"Can't convert non-rectangular Python sequence to Tensor. ({error})") from error
    if array.dtype == object:
        raise _unsupported(value)
    # NumPy has made 64-bit numbers of Python's; those are TensorFlow's 32-bit ones, if they fit.
    if not is_converted and array.dtype in (np.float64, np.int64) and not _has_dtype(value):
        if array.dtype == np.float64:
            return array.astype(np.float32)
        if not array.size or (int(array.min()) in _INT32 and int(array.max()) in _INT32):
            return array.astype(np.int32)
    return array


def _unsupported(value: object) -> ValueError:
    return ValueError(f"Attempt to convert a value ({value!r}) with an unsupported type ({type(value)}) to a Tensor.")


def _has_dtype(value: object) -> bool:
    """Return whether the first leaf of a nested list has a dtype of its own: NumPy scalars keep theirs."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "dtype") or hasattr(value, "__array_interface__")


def _fits(value: Any, rank: int, dtype: tc.DType) -> bool:
    """Return whether a number or NumPy array, of this rank in the order of kinds, converts to a dtype."""
    target = _RANK_OF_KIND[dtype.kind]
    # An empty list and truth values convert to every dtype.
    if not np.size(value) or rank == 0:
        return True
    if target == 1 and rank in (1, 2):  # to integers: those in range, and float arrays that are whole numbers
        whole = rank == 1 or (isinstance(value, np.ndarray) and bool((value == np.trunc(value)).all()))
        return whole and _in_range(value, dtype)
    return rank <= target


def _in_range(value: Any, dtype: tc.DType) -> bool:
    """Return whether whole numbers are within the limits of an integer dtype."""
    limits = tc.iinfo(dtype)
    if type(value) is int:
        return bool(limits.min <= value <= limits.max)
    return bool(limits.min <= int(value.min()) and int(value.max()) <= limits.max)


def match_dtypes(values: list[Any], op: str, keep_scalars: bool = False) -> list[Any]:
    """Convert operands to tape_core Tensors of one dtype: that of the first tensor among them.

    Numbers, arrays and lists are converted to it; tensors are never promoted.

    Args:
        op: the name of TensorFlow's operation, for messages.
        keep_scalars: leave Python numbers beside a tensor as they are, for the core's weak promotion.

    Raises:
        InvalidArgumentError: two tensors have different dtypes, or a number does not fit the dtype.
    """
    found = [value.native if type(value) is Tensor else as_tensor(value) for value in values]
    for first in found:
        if first is not None:
            break
    else:
        found[0] = first = _from_python(values[0], None, None)
    dtype = first.dtype
    # The others take that dtype if their kind allows it; TensorFlow's error names the first operand that does not.
    for k, tensor in enumerate(found):
        if tensor is None:
            value = values[k]
            if isinstance(value, np.generic):
                value = value.item()
            rank = _RANK_OF_SCALAR.get(type(value))
            if rank is None:
                array = _as_array(value, is_converted=True)
                # 4: above all kinds, for an array of text or times, which fits no dtype.
                rank = _RANK_OF_NUMPY_KIND.get(array.dtype.kind, 4)
                value = array
            if not _fits(value, rank, dtype):
                raise mismatch(op, k, dtype, native(values[k]).dtype, values[k])
            if keep_scalars and type(value) in _RANK_OF_SCALAR and (rank or dtype is tc.bool):
                found[k] = value
            else:
                found[k] = _from_python(value, dtype, first)
        elif tensor.dtype is not dtype:
            raise mismatch(op, k, dtype, tensor.dtype)
    return found


def mismatch(op: str, k: int, expected: tc.DType, got: tc.DType, value: object = None) -> InvalidArgumentError:
    """Return TensorFlow's error for two dtypes in one operation; `k` is the place of the operand that does not fit."""
    what = "tensor" if value is None else f"tensor ({value!r})"
    return InvalidArgumentError(
        None,
        None,
        f"cannot compute {op} as input #{k}(zero-based) was expected to be a {dtypes.kernel_name(expected)} tensor but "
        f"is a {dtypes.kernel_name(got)} {what} [Op:{op}] name: ; there is no promotion, use tf.cast",
    )


def check_floating(value: object, op: str) -> None:
    """Raise an InvalidArgumentError for a tensor of integers or bools, where TensorFlow's kernel takes floats only."""
    if isinstance(value, tc.Tensor) and not value.dtype.inexact:
        raise InvalidArgumentError(
            None,
            None,
            f"Value for attr 'T' of {dtypes.kernel_name(value.dtype)} is not in the list of allowed values: bfloat16, "
            f"half, float, double, complex64, complex128 [Op:{op}]; use tf.cast",
        )


def check_integers(value: tc.Tensor, what: str, op: str) -> None:
    """Raise an InvalidArgumentError unless a tensor of indices is of an integer dtype."""
    if not value.dtype.kind.endswith("integer"):
        raise InvalidArgumentError(
            None,
            None,
            f"{what} must be integers, int32 or int64, not {dtypes.kernel_name(value.dtype)} [Op:{op}]; use tf.cast",
        )


def static(value: Any) -> Any:
    """Convert a shape, an axis or a count (an int, a tensor, or a list of them) to an int or a tuple of ints."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, Value | tc.Tensor):
        value = getattr(value, "native", value)
        return _as_tuples(value.tolist())
    if isinstance(value, np.ndarray | np.generic):
        return _as_tuples(value.tolist())
    if isinstance(value, list | tuple | range):
        return tuple([static(part) for part in value])
    return value


def _as_tuples(value: object) -> Any:
    return tuple([_as_tuples(part) for part in value]) if isinstance(value, list) else value


# -- back


def wrap(value: PyTree) -> Any:
    """Convert the tape_core values in a nested structure to the façade's; leave anything else as it is."""
    kind = type(value)
    if kind is tc.Tensor:
        return wrap_tensor(value)
    if kind is tc.Variable:
        return Variable.of(value)
    if kind is tc.IndexedSlices:
        return IndexedSlices.of(value)
    # Written out for the plain containers: a façade function wraps its result in each call, and a general pytree is
    # slower.
    if kind is tuple or kind is list:
        return kind([wrap(part) for part in value])
    if kind is dict:
        return {key: wrap(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*[wrap(part) for part in value])
    if isinstance(value, list | dict):  # subclasses, such as defaultdict
        from tape_core.support import pytree

        leaves, structure = pytree.flatten_whole(value)
        return pytree.unflatten(structure, [wrap(leaf) for leaf in leaves])
    if isinstance(value, tc.Variable):
        return Variable.of(value)
    return value


def unwrap(value: PyTree) -> Any:
    """Convert the façade's values in a nested structure to tape_core's (Variables are not read); the rest stays."""
    if isinstance(value, list | tuple | dict) and value:
        from tape_core.support import pytree

        leaves, structure = pytree.flatten_whole(value)
        return pytree.unflatten(structure, [unwrap(leaf) for leaf in leaves])
    # Strings have no form in tape_core: they stay what they are.
    return value.native if isinstance(value, Value | IndexedSlices) and not isinstance(value, StringTensor) else value


def convert_to_tensor(
    value: TensorLike, dtype: DTypeLike = None, dtype_hint: DTypeLike = None, name: str | None = None
) -> Tensor:
    """Convert a tensor, a Variable, IndexedSlices, a number, an array or a nested list to a tensor.

    A tensor is returned itself.

    >>> import tape_tf as tf
    >>> tf.convert_to_tensor([1, 2]).dtype
    tf.int32

    A Tensor of tape_core stays connected to its tapes: this is the way from the core to the façade, and `tensor.native`
    the way back.

    Args:
        dtype: the dtype that a tensor must have, and that anything else gets.
        dtype_hint: like `dtype`, but ignored if the value does not convert to it.

    Raises:
        ValueError: a tensor has another dtype, or the value does not convert to a tensor.
        TypeError: a number does not fit the dtype.
    """
    if type(value) is Tensor and (dtype is None or dtypes.as_dtype(dtype) is value.dtype):
        return value
    if (strings := _strings(value, dtype)) is not None:
        return strings
    if isinstance(value, Value) and isinstance(value.native, tc.Variable):
        value = wrap_tensor(value.native.value)  # a reading, which is a tensor of its own
    if dtype is None and dtype_hint is not None:
        try:
            return wrap_tensor(native(value, dtype_hint, name))
        except (TypeError, ValueError):
            pass
    return wrap_tensor(native(value, dtype, name))


def _strings(value: Any, dtype: DTypeLike) -> StringTensor | None:
    """Return text as a tensor of strings; None for anything else.

    Raises:
        ValueError: `dtype` is not that of the value.
    """
    if dtype is None:
        return as_strings(value) if is_text(value) else None
    wanted = dtypes.as_dtype(dtype)
    if wanted is not dtypes.string and not is_text(value):
        return None
    if wanted is not dtypes.string:
        raise ValueError(
            f"Tensor conversion requested dtype {wanted.name} for text: {value!r}; tf.strings.to_number makes numbers"
        )
    if isinstance(value, Value) and not isinstance(value, StringTensor):
        raise ValueError(
            f"Tensor conversion requested dtype string for Tensor with dtype {value.dtype.name}: use "
            "tf.strings.as_string"
        )
    return as_strings(value)


def constant(value: TensorLike, dtype: DTypeLike = None, shape: ShapeLike = None, name: str = "Const") -> Tensor:
    """Make a tensor of a number, an array or a nested list, which are copied.

    >>> import tape_tf as tf
    >>> print(tf.constant(1.0, shape=(2,)))
    tf.Tensor([1. 1.], shape=(2,), dtype=float32)

    A tensor is returned itself; a Variable, and tensors in lists, become constants: no gradient flows back to them.

    Args:
        shape: the tensor's shape; a single number fills it.

    Raises:
        TypeError: a number does not fit `dtype`, a tensor has another one, or the shape does not fit.
        ValueError: the value does not convert to a tensor.
    """
    if (strings := _strings(value, dtype)) is not None:
        return strings if shape is None else fill_or_reshape(strings, tuple(as_shape(static(shape))))
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
        found = _reshape_or_fill(found, tuple(static(shape)) if not isinstance(shape, int) else (shape,))
    return value if type(value) is Tensor and found is value.native else wrap_tensor(found)


def _reshape_or_fill(found: tc.Tensor, shape: tuple[int, ...]) -> tc.Tensor:
    if found.shape == shape:
        return found
    size = 1
    for length in shape:
        size *= length
    if found.size == size:
        return tc.reshape(found, shape)
    # TensorFlow fills a shape with one number, and with nothing else: tf.constant is no broadcast.
    if found.size == 1:
        return tc.broadcast_to(tc.reshape(found, ()), shape)
    raise TypeError(
        f"Eager execution of tf.constant with unsupported shape. Tensor {wrap(found):} has {found.size} elements, but "
        f"got `shape` {shape} with {size} elements)."
    )


def is_tensor(x: object) -> bool:
    """Return whether `x` is a Tensor, a Variable or IndexedSlices.

    >>> import tape_tf as tf
    >>> tf.is_tensor(tf.Variable(1.0)), tf.is_tensor([1.0])
    (True, False)
    """
    return isinstance(x, Value | IndexedSlices)


for _function in (constant, native, static, unwrap):
    provide(_function)
