"""Tape: TensorFlow's GradientTape for the arrays of any library that speaks the Python Array API.

>>> import tape_core as tc
>>> x = tc.Variable(3.0)
>>> with tc.GradientTape() as tape:
...     y = x * x
>>> tape.gradient(y, x)
Tensor(6.0, shape=(), dtype=float32, backend=numpy)
"""

import math as _math

from tape_core import extend
from tape_core._version import __version__
from tape_core.backends.selection import get_backend, set_backend, use_backend
from tape_core.dtypes import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tape_core.dtypes import bool_ as bool
from tape_core.indexed_slices import IndexedSlices
from tape_core.ops import operators as _operators
from tape_core.ops.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from tape_core.ops.data_types import astype, isdtype, stop_gradient
from tape_core.ops.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from tape_core.ops.indexing import gather, take, take_along_axis
from tape_core.ops.linalg import matmul, matrix_transpose, outer, tensordot, vecdot
from tape_core.ops.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    tile,
    unstack,
)
from tape_core.ops.nn import (
    cross_entropy,
    gelu,
    log_softmax,
    logsumexp,
    one_hot,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from tape_core.ops.searching import all, any, argmax, argmin, count_nonzero
from tape_core.ops.special import erf
from tape_core.ops.statistical import cumulative_prod, cumulative_sum, max, mean, min, prod, std, sum, var
from tape_core.random import Generator, default_rng, set_seed
from tape_core.tape import GradientTape
from tape_core.tensor import Tensor
from tape_core.variable import Variable

e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi

# Every name above without an underscore is public: the Array API namespace plus the tape API.
__all__ = [name for name in globals() if not name.startswith("_")]
__all__ += ["__version__"]
