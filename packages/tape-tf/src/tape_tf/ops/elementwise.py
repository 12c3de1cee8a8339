"""Elementwise functions: arithmetic, comparisons, trigonometry, casts, clipping."""

from __future__ import annotations

import math
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.conversion import as_tensor, match_dtypes, native, wrap
from tape_tf.functions import binary, op, unary
from tape_tf.names import export, exported
from tape_tf.string_tensor import as_strings, is_text
from tape_tf.tensor import IndexedSlices, Tensor
from tape_tf.typing import DTypeLike, TensorLike

# -- functions that are one of tape_core's, as tables

_UNARY = {
    "math.acos acos": tc.acos,
    "math.acosh acosh": tc.acosh,
    "math.asin asin": tc.asin,
    "math.asinh asinh": tc.asinh,
    "math.atan atan": tc.atan,
    "math.atanh atanh": tc.atanh,
    "math.ceil": tc.ceil,
    "math.cos cos": tc.cos,
    "math.cosh cosh": tc.cosh,
    "math.exp exp": tc.exp,
    "math.expm1": tc.expm1,
    "math.floor floor": tc.floor,
    "math.is_finite": tc.isfinite,
    "math.is_inf": tc.isinf,
    "math.is_nan": tc.isnan,
    "math.log": tc.log,
    "math.log1p": tc.log1p,
    "math.log_sigmoid": tc.log_sigmoid,
    "math.reciprocal": tc.reciprocal,
    "math.rint": tc.round,
    "math.sigmoid sigmoid nn.sigmoid": tc.sigmoid,
    "math.sin sin": tc.sin,
    "math.sinh sinh": tc.sinh,
    "math.softplus nn.softplus": tc.softplus,
    "math.sqrt sqrt": tc.sqrt,
    "math.tan tan": tc.tan,
    "math.tanh tanh nn.tanh": tc.tanh,
}
"""Functions of one floating or complex tensor: TensorFlow's names -> tape_core's function."""

_UNARY_ANY_DTYPE = {
    "math.abs abs": tc.abs,
    "math.negative negative": tc.negative,
    "math.sign sign": tc.sign,
    "math.square square": tc.square,
    "math.round round": tc.round,
    "math.logical_not logical_not": tc.logical_not,
    "bitwise.invert": tc.bitwise_invert,
}
"""Functions of one tensor of any dtype: TensorFlow's names -> tape_core's function."""

_BINARY = {
    "math.add add": (tc.add, "AddV2"),
    "math.subtract subtract": (tc.subtract, "Sub"),
    "math.multiply multiply": (tc.multiply, "Mul"),
    "math.pow pow": (tc.pow, "Pow"),
    "math.floordiv": (tc.floor_divide, "FloorDiv"),
    "math.floormod math.mod": (tc.remainder, "FloorMod"),
    "math.maximum maximum": (tc.maximum, "Maximum"),
    "math.minimum minimum": (tc.minimum, "Minimum"),
    "math.atan2 atan2": (tc.atan2, "Atan2"),
    "math.nextafter": (tc.nextafter, "NextAfter"),
    "math.equal equal": (tc.equal, "Equal"),
    "math.not_equal not_equal": (tc.not_equal, "NotEqual"),
    "math.less less": (tc.less, "Less"),
    "math.less_equal less_equal": (tc.less_equal, "LessEqual"),
    "math.greater greater": (tc.greater, "Greater"),
    "math.greater_equal greater_equal": (tc.greater_equal, "GreaterEqual"),
    "math.logical_and logical_and": (tc.logical_and, "LogicalAnd"),
    "math.logical_or logical_or": (tc.logical_or, "LogicalOr"),
    "math.logical_xor": (tc.logical_xor, "LogicalXor"),
    "bitwise.bitwise_and": (tc.bitwise_and, "BitwiseAnd"),
    "bitwise.bitwise_or": (tc.bitwise_or, "BitwiseOr"),
    "bitwise.bitwise_xor": (tc.bitwise_xor, "BitwiseXor"),
    "bitwise.left_shift": (tc.bitwise_left_shift, "LeftShift"),
    "bitwise.right_shift": (tc.bitwise_right_shift, "RightShift"),
}
"""Functions of two tensors: TensorFlow's names -> tape_core's function and TensorFlow's name of the kernel."""

FUNCTIONS: dict[str, Any] = {}
"""The published functions by the last part of their first name, such as `"add"`, for the operators."""

for _names, _function in _UNARY.items():
    FUNCTIONS[_names.split()[0].rpartition(".")[2]] = unary(_names, _function)
for _names, _function in _UNARY_ANY_DTYPE.items():
    FUNCTIONS[_names.split()[0].rpartition(".")[2]] = unary(_names, _function, floating=False)
for _names, (_pair, _kernel) in _BINARY.items():
    FUNCTIONS[_names.split()[0].rpartition(".")[2]] = binary(
        _names, _pair, _kernel, strings=_kernel in ("Equal", "NotEqual")
    )


# -- division


def _as_floats(x: tc.Tensor) -> tc.Tensor:
    """Convert integers as TensorFlow's true division does: 8 or 16 bits to float32, more bits and bool to float64."""
    if x.dtype.inexact:
        return x
    return tc.astype(x, tc.float32 if x.dtype.itemsize <= 2 and x.dtype is not tc.bool else tc.float64)


@exported("math.truediv truediv math.divide divide realdiv")
def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Any:
    """Return `x / y`. Integers become floats: float64, or float32 if they have 8 or 16 bits."""
    # Two Python numbers: one becomes a tensor first, since there is nothing else to take the dtype from.
    if as_tensor(x) is None and as_tensor(y) is None:
        x = wrap(native(x))
    a, b = match_dtypes([x, y], "RealDiv", keep_scalars=True)
    a, b = [_as_floats(v) if isinstance(v, tc.Tensor) else v for v in (a, b)]
    return _divide(wrap(a), wrap(b))


_divide = binary("math._divide", tc.divide, "RealDiv")


@op("math.divide_no_nan", "x y", floating=True, kernel="DivNoNan", keep_scalars=False)
def divide_no_nan(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    """Return `x / y`, and 0 where `y` is 0."""
    # The inner where keeps the division finite in the branch not taken: 0 times its infinite derivative would be NaN.
    zero = y == 0
    return tc.where(zero, tc.zeros_like(x), x / tc.where(zero, tc.ones_like(y), y))


# -- products and logarithms that are 0 where a factor is


@op("math.multiply_no_nan", "x y", kernel="MulNoNan")
def multiply_no_nan(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    """Return `x * y`, and 0 where `y` is 0, even if `x` is infinite or NaN."""
    # Only what is not finite is replaced: a finite `x` keeps its place in the gradient with respect to `y`.
    return tc.where((y == 0) & ~tc.isfinite(x), tc.zeros_like(x), x) * y


@op("math.xlogy", "x y", floating=True, kernel="Xlogy")
def xlogy(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    """Return `x * log(y)`, and 0 where `x` is 0; the gradient is 0 there, too."""
    # The core's xlogy has the value 0, and the derivative log(y) by `x`; TensorFlow's gradient is 0 at x = 0.
    return tc.where(x == 0, tc.zeros_like(x), tc.xlogy(x, y))


@op("math.xlog1py", "x y", floating=True, kernel="Xlog1py")
def xlog1py(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    """Return `x * log(1 + y)`, and 0 where `x` is 0; the gradient is 0 there, too."""
    return tc.where(x == 0, tc.zeros_like(x), tc.xlog1py(x, y))


@op("math.reciprocal_no_nan", "x", floating=True)
def reciprocal_no_nan(x: tc.Tensor) -> tc.Tensor:
    """Return `1 / x`, and 0 where `x` is 0."""
    zero = x == 0
    return tc.where(zero, tc.zeros_like(x), tc.reciprocal(tc.where(zero, tc.ones_like(x), x)))


@op("math.xdivy", "x y", floating=True, kernel="Xdivy")
def xdivy(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    """Return `x / y`, and 0 where `x` is 0."""
    zero = x == 0
    return tc.where(zero, tc.zeros_like(x), x / tc.where(zero, tc.ones_like(y), y))


@op("math.squared_difference", "x y")
def squared_difference(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    """Return `(x - y)²`; for complex values `|x - y|²`."""
    difference = x - y
    return difference * tc.conj(difference) if difference.dtype.kind == "complex floating" else tc.square(difference)


@op("math.rsqrt", "x", floating=True)
def rsqrt(x: tc.Tensor) -> tc.Tensor:
    """Return `1 / √x`."""
    return tc.reciprocal(tc.sqrt(x))


# -- complex numbers


@op("math.real", "input")
def real(input: tc.Tensor) -> tc.Tensor:
    """Return the real part."""
    return tc.real(input) if _is_complex(input) else input


@op("math.imag", "input")
def imag(input: tc.Tensor) -> tc.Tensor:
    """Return the imaginary part; zeros for a real tensor."""
    return tc.imag(input) if _is_complex(input) else tc.zeros_like(input)


@op("math.conj", "x")
def conj(x: tc.Tensor) -> tc.Tensor:
    """Return the complex conjugate."""
    return tc.conj(x) if _is_complex(x) else x


@op("math.angle", "input")
def angle(input: tc.Tensor) -> tc.Tensor:
    """Return the argument of complex numbers; 0 or π for real ones."""
    if _is_complex(input):
        return tc.atan2(tc.imag(input), tc.real(input))
    return tc.where(input < 0, tc.full_like(input, math.pi), tc.zeros_like(input))


@op("dtypes.complex complex", "real imag", kernel="Complex")
def complex(real: tc.Tensor, imag: tc.Tensor) -> tc.Tensor:
    """Combine real and imaginary parts: complex64 from float32, complex128 from float64."""
    target = {tc.float32: tc.complex64, tc.float64: tc.complex128}.get(real.dtype)
    if target is None:
        raise TypeError(f"Unsupported data type for complex: {real.dtype}; use float32 or float64")
    return tc.astype(real, target) + tc.astype(imag, target) * 1j


def _is_complex(x: tc.Tensor) -> bool:
    return x.dtype.kind == "complex floating"


# -- other dtypes, copies, limits


@exported("cast dtypes.cast")
def cast(x: TensorLike, dtype: DTypeLike, name: str | None = None) -> Any:
    """Convert `x` to another dtype; floats are rounded towards zero. A tensor that has it is returned itself."""
    if dtypes.as_dtype(dtype) is dtypes.string and is_text(x):
        return as_strings(x)
    wanted = dtypes.native_dtype(dtype)
    assert wanted is not None
    if type(x) is Tensor and x.native.dtype is wanted:
        return x
    found = native(x)
    if found.dtype is wanted and as_tensor(x) is not None:
        return wrap(found)
    # TensorFlow drops the imaginary part here, where the Array API standard has no cast.
    if _is_complex(found) and wanted.kind != "complex floating":
        found = tc.real(found)
    return wrap(tc.astype(found, wanted))


@exported("dtypes.saturate_cast saturate_cast")
def saturate_cast(value: TensorLike, dtype: DTypeLike, name: str | None = None) -> Any:
    """Convert `value` to another dtype, clipped to its limits first."""
    wanted = dtypes.as_dtype(dtype)
    found = native(value)
    own = dtypes.of(found.dtype)
    low, high = (getattr(wanted, which) for which in ("min", "max"))
    if low > own.min or high < own.max:
        limits = [tc.asarray(limit, dtype=found.dtype, backend=found.backend.root) for limit in (low, high)]
        found = tc.maximum(tc.minimum(found, limits[1]), limits[0])
    return cast(wrap(found), wanted)


@op("identity", "input", strings="all")
def identity(input: tc.Tensor) -> tc.Tensor:
    """Return a new tensor with the same values."""
    # `positive` has a gradient, and no kernel for bools.
    if input.dtype.inexact:
        return tc.positive(input)
    return tc.asarray(input, copy=True)


@op("identity_n", "*input", strings="all")
def identity_n(input: list[tc.Tensor]) -> list[tc.Tensor]:
    """Return a list of new tensors with the same values."""
    return [tc.positive(x) if x.dtype.inexact else x for x in input]


@op("clip_by_value", "t clip_value_min clip_value_max", kernel="ClipByValue", keep_scalars=True, publish=False)
def _clip_by_value(t: tc.Tensor, clip_value_min: tc.Tensor, clip_value_max: tc.Tensor) -> tc.Tensor:
    return tc.clip(t, clip_value_min, clip_value_max)


@exported("clip_by_value")
def clip_by_value(
    t: TensorLike, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = None
) -> Any:
    """Limit the elements of `t`, or the values of IndexedSlices, to [`clip_value_min`, `clip_value_max`]."""
    if isinstance(t, IndexedSlices):
        return IndexedSlices(_clip_by_value(t.values, clip_value_min, clip_value_max), t.indices, t.dense_shape)
    return _clip_by_value(t, clip_value_min, clip_value_max)


# -- sums and polynomials


@op("math.add_n add_n", "*inputs", kernel="AddN")
def add_n(inputs: list[tc.Tensor]) -> tc.Tensor:
    """Return the sum of a list of tensors of one shape.

    Raises:
        ValueError: the list is empty, or the shapes differ.
    """
    if not inputs:
        raise ValueError("Inputs must be a list or tuple of at least one tensor with the same dtype and shape.")
    total = inputs[0]
    for other in inputs[1:]:
        if other.shape != total.shape:
            raise ValueError(
                f"Inputs to operation AddN must have the same size and shape: {total.shape}, {other.shape}"
            )
        total = total + other
    return total if len(inputs) > 1 else tc.positive(total)


export("math.accumulate_n", add_n)


@op("math.polyval", "*coeffs; x")
def polyval(coeffs: list[tc.Tensor], x: tc.Tensor) -> tc.Tensor:
    """Evaluate a polynomial by Horner's rule; `coeffs` start with the highest power."""
    total = tc.zeros_like(x)
    for coefficient in coeffs:
        total = total * x + coefficient
    return total
