"""`tf.keras.ops`: NumPy's and Keras' functions, on tensors and on symbolic tensors.

They are functions of tape_core under Keras' names, with NumPy's promotion of dtypes, as Keras has them. Called on a
symbolic tensor, a function becomes a layer of the functional model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import native, unwrap, wrap
from tape_tf.keras import activations, losses
from tape_tf.keras.backend import floatx
from tape_tf.keras.layers.callables import Operation
from tape_tf.keras.naming import auto_name
from tape_tf.keras.structures import map_structure
from tape_tf.keras.symbolic import KerasTensor, contains_symbolic
from tape_tf.names import export, published
from tape_tf.typing import DTypeLike, PyTree, TensorLike

_SAME = """abs add all any argmax argmin argsort ceil clip conj cos cosh equal exp expand_dims expm1 flip floor
floor_divide greater greater_equal imag isfinite isinf isnan less less_equal log log10 log1p log2 logical_and
logical_not logical_or logical_xor logsumexp max maximum mean min minimum multiply negative not_equal outer prod real
reciprocal round sign sin sinh sort sqrt square std subtract sum tan tensordot var erf erfinv divide logaddexp
count_nonzero moveaxis ones_like zeros_like stop_gradient tril triu broadcast_to"""
"""Functions that tape_core has under the same name."""

_RENAMED = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "amax": "max",
    "amin": "min",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "mod": "remainder",
    "power": "pow",
    "true_divide": "divide",
}
"""Functions that tape_core has under another name."""

_AXIS = frozenset(
    """all any amax amin argmax argmin argsort flip logsumexp max mean min prod sort std sum var cumprod cumsum
    count_nonzero""".split()  # noqa: SIM905 - a list would fill the page
)
"""Functions whose second argument is an axis, by position, too."""

_ACTIVATIONS = (
    "elu gelu hard_sigmoid leaky_relu log_softmax relu relu6 selu sigmoid silu softmax softplus softsign tanh"
)


def _natives(value: PyTree) -> Any:
    """Convert tensors, arrays and lists in arguments to tape_core Tensors; other things stay."""
    return map_structure(unwrap, value)


def _published(name: str, function: Callable[..., Any]) -> None:
    """Publish a function of façade tensors under `keras.ops`: on symbolic tensors it makes a layer."""

    def operation(*args: Any, **kwargs: Any) -> Any:
        if not contains_symbolic((args, kwargs)):
            return function(*args, **kwargs)
        inputs = [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, KerasTensor)]
        return Operation(partial(_call_with, function, args, kwargs), auto_name(name))(*inputs)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = function.__doc__ or f"The function `{name}` of `keras.ops`."
    export(f"keras.ops.{name}", operation)


def _leaves(value: PyTree) -> Iterable[Any]:
    found: list[Any] = []
    map_structure(found.append, list(value))
    return found


def _call_with(function: Callable[..., Any], args: Any, kwargs: Any, *values: Any) -> Any:
    """Call a function with values in the places of the symbolic tensors among its arguments."""
    given = iter(values)
    args, kwargs = map_structure(
        lambda leaf: next(given) if isinstance(leaf, KerasTensor) else leaf, [list(args), kwargs]
    )
    return function(*args, **kwargs)


def _of_core(name: str, core: Callable[..., Any]) -> Callable[..., Any]:
    takes_axis = name in _AXIS

    def function(x: TensorLike, *others: Any, **options: Any) -> Any:
        if takes_axis and others:
            options["axis"], *others = others  # type: ignore[assignment]
        if "dtype" in options:
            options["dtype"] = dtypes.native_dtype(options["dtype"])
        # A Python number beside a tensor stays one, and takes the tensor's dtype.
        first = x if others and isinstance(x, bool | int | float | complex) else native(x)
        return wrap(core(first, *_natives(list(others)), **_natives(options)))

    function.__doc__ = f"See :func:`tape_core.{core.__name__}`."
    return function


for _name in _SAME.split():
    _published(_name, _of_core(_name, getattr(tc, _name)))
for _name, _core in _RENAMED.items():
    _published(_name, _of_core(_name, getattr(tc, _core)))
for _name in _ACTIVATIONS.split():
    _published(_name, getattr(activations, _name))
for _name in ("binary_crossentropy", "categorical_crossentropy", "sparse_categorical_crossentropy"):
    # Losses take targets and outputs in the order of Keras' operations.
    _published(_name, getattr(losses, _name))


def _where(condition: TensorLike, x1: TensorLike | None = None, x2: TensorLike | None = None) -> Any:
    """Elements of `x1` where the condition holds, and of `x2` elsewhere; without them the indices where it holds."""
    if x1 is None or x2 is None:
        return wrap(tc.nonzero(native(condition)))
    return wrap(tc.where(native(condition), unwrap(x1), unwrap(x2)))


def _make(function: Callable[..., Any]) -> Callable[..., Any]:
    def make(shape: Any, *args: Any, dtype: DTypeLike = None) -> Any:
        values = args if function is tc.full else ()
        dtype = args[-1] if args and not values else dtype
        return wrap(function(shape, *_natives(list(values)), dtype=dtypes.native_dtype(dtype or floatx())))

    make.__doc__ = f"See :func:`tape_core.{function.__name__}`; of Keras' float type by default."
    return make


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike = None) -> Any:
    """The numbers from `start` to below `stop`; int32 by default for integers."""
    if dtype is None:
        dtype = "int32" if all(isinstance(v, int | None) for v in (start, stop, step)) else floatx()
    return wrap(tc.arange(start, stop, step, dtype=dtypes.native_dtype(dtype)))


def _split(x: TensorLike, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split into parts of equal length, or at places along an axis; returns a list."""
    value = native(x)
    if isinstance(indices_or_sections, int):
        return [wrap(part) for part in tc.split(value, indices_or_sections, axis=axis)]
    ends = [0, *map(int, indices_or_sections), value.shape[axis]]
    moved = tc.moveaxis(value, axis, 0)
    return [wrap(tc.moveaxis(moved[a:b], 0, axis)) for a, b in pairwise(ends)]


def _pad(x: TensorLike, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """Pad along each axis; `pad_width` is one number, or two for each axis."""
    given: Any = {} if constant_values is None else {"constant_values": constant_values}
    return wrap(tc.pad(native(x), pad_width, mode, **given))  # type: ignore[arg-type]


def _shape(x: TensorLike) -> tuple[Any, ...]:
    """The lengths of the axes, as a tuple."""
    symbolic: Any = x
    return tuple(symbolic.shape) if isinstance(symbolic, KerasTensor) else native(x).shape


def _transpose(x: TensorLike, axes: Sequence[int] | None = None) -> Any:
    """Permute the axes; by default reverse them."""
    value = native(x)
    return wrap(tc.permute_dims(value, tuple(reversed(range(value.ndim))) if axes is None else tuple(axes)))


def _swapaxes(x: TensorLike, axis1: int, axis2: int) -> Any:
    """Exchange two axes."""
    value = native(x)
    order = list(range(value.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return wrap(tc.permute_dims(value, tuple(order)))


def _squeeze(x: TensorLike, axis: Any = None) -> Any:
    """Remove axes of length 1."""
    value = native(x)
    axes = tuple([k for k, n in enumerate(value.shape) if n == 1]) if axis is None else axis
    return wrap(tc.squeeze(value, axis=axes))


def _one_hot(x: TensorLike, num_classes: int, axis: int = -1, dtype: DTypeLike = None) -> Any:
    """1 at each class number and 0 elsewhere, along a new axis."""
    return wrap(tc.one_hot(native(x), num_classes, axis=axis, dtype=dtypes.native_dtype(dtype or floatx())))


def _norm(x: TensorLike, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The Euclidean norm, or the one of order `ord`, along an axis or of all elements."""
    return wrap(tc.linalg.vector_norm(native(x), axis=axis, ord=2 if ord is None else ord, keepdims=keepdims))


def _convert(x: Any, dtype: DTypeLike = None) -> Any:
    """Convert to a tensor, of a dtype if one is given."""
    value = native(x)
    return wrap(value if dtype is None else tc.astype(value, dtypes.native_dtype(dtype)))


def _join(function: Callable[..., Any], x: Sequence[TensorLike], axis: int) -> Any:
    return wrap(function([native(part) for part in x], axis=axis))


def _concatenate(xs: Sequence[TensorLike], axis: int = 0) -> Any:
    """Join tensors along an axis."""
    return _join(tc.concat, xs, axis)


def _stack(x: Sequence[TensorLike], axis: int = 0) -> Any:
    """Join tensors along a new axis."""
    return _join(tc.stack, x, axis)


def _cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Call one of two functions."""
    return published()["cond"](pred, true_fn, false_fn)


def _dot(x1: TensorLike, x2: TensorLike) -> Any:
    """The product, summed over the last axis of `x1` and the last but one of `x2`."""
    first, second = native(x1), native(x2)
    if not first.ndim or not second.ndim:
        return wrap(first * second)
    return wrap(tc.tensordot(first, second, axes=((first.ndim - 1,), (max(second.ndim - 2, 0),))))


def _vectorized_map(function: Callable[[Any], Any], elements: PyTree) -> Any:
    """Call a function on each element along the first axis, all at once."""
    found = tc.vmap(lambda part: map_structure(unwrap, function(map_structure(wrap, part))))(_natives(elements))
    return map_structure(wrap, found)


_OTHERS: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "cast": lambda x, dtype: _convert(x, dtype),
    "concatenate": _concatenate,
    "cond": _cond,
    "convert_to_numpy": lambda x: np.asarray(wrap(native(x)).numpy()),
    "convert_to_tensor": _convert,
    "diag": lambda x, k=0: wrap(tc.linalg.diagonal(native(x), offset=k)) if native(x).ndim > 1 else _of_diagonal(x, k),
    "dot": _dot,
    "einsum": lambda subscripts, *operands: wrap(tc.einsum(subscripts, *[native(x) for x in operands])),
    "eye": lambda n, m=None, k=0, dtype=None: wrap(tc.eye(n, m, k=k, dtype=dtypes.native_dtype(dtype or floatx()))),
    "full": _make(tc.full),
    "full_like": lambda x, fill_value: wrap(tc.full_like(native(x), unwrap(fill_value))),
    "linspace": lambda start, stop, num=50: wrap(tc.linspace(unwrap(start), unwrap(stop), num)),
    "matmul": lambda x1, x2: wrap(tc.matmul(native(x1), native(x2))),
    "ndim": lambda x: len(_shape(x)),
    "norm": _norm,
    "one_hot": _one_hot,
    "ones": _make(tc.ones),
    "pad": _pad,
    "ravel": lambda x: wrap(tc.reshape(native(x), (-1,))),
    "repeat": lambda x, repeats, axis=None: wrap(tc.repeat(native(x), unwrap(repeats), axis=axis)),
    "reshape": lambda x, newshape: wrap(tc.reshape(native(x), newshape)),
    "roll": lambda x, shift, axis=None: wrap(tc.roll(native(x), shift, axis=axis)),
    "rsqrt": lambda x: wrap(1 / tc.sqrt(native(x))),
    "shape": _shape,
    "size": lambda x: math.prod(_shape(x)),
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "swapaxes": _swapaxes,
    "take": lambda x, indices, axis=None: wrap(tc.take(native(x), native(indices), axis=axis)),
    "take_along_axis": lambda x, indices, axis=-1: wrap(tc.take_along_axis(native(x), native(indices), axis=axis)),
    "tile": lambda x, repeats: wrap(tc.tile(native(x), (repeats,) if isinstance(repeats, int) else tuple(repeats))),
    "top_k": lambda x, k: tuple(map(wrap, tc.top_k(native(x), k))),
    "transpose": _transpose,
    "unstack": lambda x, axis=0: [wrap(part) for part in tc.unstack(native(x), axis=axis)],
    "vectorized_map": _vectorized_map,
    "where": _where,
    "zeros": _make(tc.zeros),
}


def _of_diagonal(x: TensorLike, k: int) -> Any:
    value = native(x)
    n = value.shape[0] + abs(k)
    rows = tc.arange(value.shape[0], backend=value.backend.root, device=value.device)
    zeros = tc.zeros((n, n), dtype=value.dtype, backend=value.backend.root, device=value.device)
    return wrap(tc.at(zeros)[rows + max(-k, 0), rows + max(k, 0)].set(value))


for _name, _function in _OTHERS.items():
    _published(_name, _function)
