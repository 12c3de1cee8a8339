"""Tape: TensorFlow's GradientTape for the arrays of any library that speaks the Python Array API.

>>> import tape_core as tc
>>> x = tc.Variable(3.0)
>>> with tc.GradientTape() as tape:
...     y = x * x
>>> tape.gradient(y, x)
Tensor(6.0, shape=(), dtype=float32, backend=numpy)
"""

import math as _math
import typing as _typing

from tape_core import extend, fft, linalg, special, stats, testing
from tape_core._version import __version__
from tape_core.backends.selection import get_backend, set_backend, use_backend
from tape_core.base.dtypes import (
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
from tape_core.base.dtypes import bool_ as bool
from tape_core.base.lookup import TOOLS as _TOOLS
from tape_core.base.lookup import publish as _publish
from tape_core.base.tracebacks import install as _install_tracebacks
from tape_core.base.user_code import attribute_warnings as _attribute_warnings
from tape_core.compiled import function
from tape_core.engine import reading as _reading  # noqa: F401 - gives Variables the op that reads them
from tape_core.engine.hints import attach_absent as _attach_absent
from tape_core.engine.hints import missing as _missing
from tape_core.engine.indexed_slices import IndexedSlices
from tape_core.engine.placement import to_backend
from tape_core.engine.pytree import register_pytree
from tape_core.engine.tape import GradientTape
from tape_core.engine.tensor import Tensor
from tape_core.engine.variable import Variable
from tape_core.interop import numpy_hooks as _numpy_hooks  # noqa: F401 - NumPy's functions take Tensors
from tape_core.interop.registrations import register as _register
from tape_core.modes.forward import ForwardAccumulator
from tape_core.modes.vmap import vmap
from tape_core.ops import methods as _methods  # noqa: F401 - attaches the methods to Tensor
from tape_core.ops import operators as _operators  # noqa: F401 - attaches the operators to Tensor
from tape_core.ops.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
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
from tape_core.ops.data_types import astype, can_cast, finfo, iinfo, isdtype, result_type, stop_gradient
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
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    exp,
    expm1,
    floor,
    floor_divide,
    hypot,
    imag,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
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
from tape_core.ops.index.indexing import gather, take, take_along_axis
from tape_core.ops.index.scatter import at
from tape_core.ops.index.segments import segment_max, segment_mean, segment_min, segment_prod, segment_sum
from tape_core.ops.index.windows import add_windows, sliding_windows
from tape_core.ops.inspection import __array_namespace_info__
from tape_core.ops.integration import interp, trapezoid
from tape_core.ops.linalg.distances import cdist
from tape_core.ops.linalg.einsum import einsum
from tape_core.ops.linalg.matrix_functions import kron, transpose
from tape_core.ops.linalg.products import matmul, matrix_transpose, outer, tensordot, vecdot
from tape_core.ops.logic import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    signbit,
)
from tape_core.ops.manipulation import (
    broadcast_arrays,
    broadcast_shapes,
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
from tape_core.ops.nn.activations import (
    elu,
    glu,
    hard_sigmoid,
    hard_silu,
    leaky_relu,
    log_sigmoid,
    mish,
    relu6,
    selu,
)
from tape_core.ops.nn.attention import scaled_dot_product_attention
from tape_core.ops.nn.convolution import conv, conv_transpose
from tape_core.ops.nn.dropout import dropout
from tape_core.ops.nn.functions import (
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
from tape_core.ops.nn.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from tape_core.ops.nn.pooling import avg_pool, max_pool
from tape_core.ops.padding import pad
from tape_core.ops.searching import all, any, argmax, argmin, count_nonzero, diff, nonzero, searchsorted
from tape_core.ops.sets import isin, unique_all, unique_counts, unique_inverse, unique_values
from tape_core.ops.signal import convolve
from tape_core.ops.sorting import argsort, sort, top_k
from tape_core.ops.special.bessel import i0, i0e, i1, i1e
from tape_core.ops.special.error_functions import erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri
from tape_core.ops.special.gamma import betaln, digamma, gamma, gammaln, polygamma
from tape_core.ops.special.logarithms import entr, expit, logcumsumexp, logit, rel_entr, xlog1py, xlogy
from tape_core.ops.statistical import cumulative_prod, cumulative_sum, max, mean, min, prod, std, sum, var
from tape_core.random import Generator, default_rng, set_seed
from tape_core.sparsity.derivatives import (
    Sparsity,
    hessian_sparsity,
    jacobian_sparsity,
    sparse_hessian,
    sparse_jacobian,
)
from tape_core.transforms.checkpoint import checkpoint
from tape_core.transforms.control_flow import cond, map, scan, while_loop
from tape_core.transforms.custom import custom_gradient, custom_jvp
from tape_core.transforms.derivatives import grad, hvp, jvp, linearize, value_and_grad, vjp
from tape_core.transforms.implicit import custom_root, fixed_point
from tape_core.transforms.jacobians import hessian, jacfwd, jacrev
from tape_core.transforms.scipy_objective import scipy_objective
from tape_core.transforms.solvers import ConvergenceError
from tape_core.transforms.trees import tree_flatten, tree_leaves, tree_map, tree_unflatten

# The constants of the Array API standard.
e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi
__array_api_version__ = "2025.12"

__all__ = [
    "ConvergenceError",
    "DType",
    "ForwardAccumulator",
    "Generator",
    "GradientTape",
    "IndexedSlices",
    "Sparsity",
    "Tensor",
    "Variable",
    "__array_namespace_info__",
    "__version__",
    "abs",
    "acos",
    "acosh",
    "add",
    "add_windows",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "at",
    "atan",
    "atan2",
    "atanh",
    "avg_pool",
    "batch_norm",
    "betaln",
    "bfloat16",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "cdist",
    "ceil",
    "checkpoint",
    "clip",
    "complex64",
    "complex128",
    "concat",
    "cond",
    "conj",
    "conv",
    "conv_transpose",
    "convolve",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cross_entropy",
    "cumulative_prod",
    "cumulative_sum",
    "custom_gradient",
    "custom_jvp",
    "custom_root",
    "default_rng",
    "diff",
    "digamma",
    "divide",
    "dropout",
    "e",
    "einsum",
    "elu",
    "empty",
    "empty_like",
    "entr",
    "equal",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp",
    "expand_dims",
    "expit",
    "expm1",
    "extend",
    "eye",
    "fft",
    "finfo",
    "fixed_point",
    "flip",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "from_dlpack",
    "full",
    "full_like",
    "function",
    "gamma",
    "gammaln",
    "gather",
    "gelu",
    "get_backend",
    "get_default_dtype",
    "glu",
    "grad",
    "greater",
    "greater_equal",
    "group_norm",
    "hard_sigmoid",
    "hard_silu",
    "hessian",
    "hessian_sparsity",
    "hvp",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iinfo",
    "imag",
    "inf",
    "instance_norm",
    "int8",
    "int16",
    "int32",
    "int64",
    "interp",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "jacfwd",
    "jacobian_sparsity",
    "jacrev",
    "jvp",
    "kron",
    "layer_norm",
    "leaky_relu",
    "less",
    "less_equal",
    "linalg",
    "linearize",
    "linspace",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_ndtr",
    "log_sigmoid",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsumexp",
    "map",
    "matmul",
    "matrix_transpose",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "moveaxis",
    "multiply",
    "nan",
    "ndtr",
    "ndtri",
    "negative",
    "newaxis",
    "nextafter",
    "nonzero",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "permute_dims",
    "pi",
    "polygamma",
    "positive",
    "pow",
    "prod",
    "real",
    "reciprocal",
    "register_pytree",
    "rel_entr",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "rms_norm",
    "roll",
    "round",
    "scaled_dot_product_attention",
    "scan",
    "scipy_objective",
    "searchsorted",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "selu",
    "set_backend",
    "set_default_dtype",
    "set_seed",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinh",
    "sliding_windows",
    "softmax",
    "softplus",
    "sort",
    "sparse_hessian",
    "sparse_jacobian",
    "special",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "stats",
    "std",
    "stop_gradient",
    "subtract",
    "sum",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "testing",
    "tile",
    "to_backend",
    "top_k",
    "transpose",
    "trapezoid",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
    "tril",
    "triu",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "use_backend",
    "value_and_grad",
    "var",
    "vecdot",
    "vjp",
    "vmap",
    "where",
    "while_loop",
    "xlog1py",
    "xlogy",
    "zeros",
    "zeros_like",
]

_register()
_attribute_warnings()
_install_tracebacks()
_attach_absent(Tensor, [name for name in __all__ if name.islower() and callable(globals()[name])])
# Lower layers find ops and functions of this namespace by name, so that they need not import what stands above them.
_publish(globals())
_TOOLS.update(
    {
        "Journal": "tape_core.debugging.journal:Journal",
        "answers_numpy": "tape_core.interop.numpy_protocol:answers",
        "batch": "tape_core.modes.vmap:batch",
        "batch_jacobian": "tape_core.modes.jacobians:batch_jacobian",
        "draw": "tape_core.debugging.drawing.drawing:draw",
        "explain": "tape_core.debugging.explain:explain",
        "float64_origins": "tape_core.debugging.precision:float64_origins",
        "html": "tape_core.debugging.drawing.page:html",
        "instead_of_scipy": "tape_core.scipy.counterparts:instead",
        "jacobian": "tape_core.modes.jacobians:jacobian",
        "summary": "tape_core.debugging.summary:summary",
        "text": "tape_core.debugging.drawing.page:text",
        "unconnected": "tape_core.debugging.explain:unconnected",
    }
)

# An unknown name raises an AttributeError that says what it is called here: `tc.rsqrt` is `1 / tc.sqrt(x)`.
# Type checkers must not see it: to them a module with `__getattr__` has every name.
if _typing.TYPE_CHECKING:
    from tape_core import scipy as scipy
else:
    __getattr__ = _missing(__name__, lambda: __all__, parts=("scipy",))


def __dir__() -> list[str]:
    """The public names; the modules of the package that are no part of its surface are left out."""
    modules = ["backends", "random", "staging", "support", "tracing", "typing"]
    return sorted([*__all__, *modules, *[name for name in globals() if name.startswith("__")]])
