"""Ops against their counterparts in PyTorch: values, gradients and tangents on PyTorch's own samples, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tape_core as tc
import torch
from tape_core.extend import registry


def skip_if(condition: Any) -> None:
    """Skip a sample that Tape's op cannot express."""
    if condition:
        pytest.skip("not expressible")


def flipped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Swap the two arguments of a function."""
    return lambda x, y: function(y, x)


def scaled(function: Callable[..., Any], reverse: bool = False) -> Callable[..., Any]:
    """Adapt `add` and `subtract`, whose second operand PyTorch multiplies by `alpha`."""

    def adapter(x: Any, y: Any, alpha: Any = 1) -> Any:
        x, y = (y, x) if reverse else (x, y)
        return function(x, y if alpha == 1 else y * alpha)

    return adapter


def rounding(function: Callable[..., Any], mode: str | None) -> Callable[..., Any]:
    def adapter(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
        skip_if(rounding_mode != mode)
        return function(x, y)

    return adapter


def variadic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a function whose shape PyTorch takes as one argument or as several."""

    def adapter(x: Any, *shape: Any) -> Any:
        shape = tuple(shape[0]) if shape and not isinstance(shape[0], int) else shape
        return function(x, shape)

    return adapter


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `var` and `std`, whose correction is 1 by default in PyTorch."""

    def adapter(x: Any, dim: Any = None, unbiased: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = (1 if unbiased in (None, True) else 0) if correction is None else correction
        axis = tuple(dim) if isinstance(dim, list | tuple) and dim else dim if isinstance(dim, int) else None
        return function(x, axis=axis, correction=correction, keepdims=keepdim)

    return adapter


def getitem(x: Any, key: Any) -> Any:
    if isinstance(key, list):
        key = tc.asarray(key) if all(isinstance(k, int) for k in key) else tuple(key)
    return x[key]


def real_astype(x: Any, dtype: str) -> Any:
    skip_if(x.dtype.kind == "complex floating")
    return tc.astype(x, dtype)


def float_power(x: Any, y: Any) -> Any:
    if isinstance(y, complex) and x.dtype.kind != "complex floating":
        x = tc.astype(x, "complex128")
    return tc.pow(x, y)


def along(axis: int, ndim: int, index: Any) -> tuple[Any, ...]:
    return (*((slice(None),) * (axis % ndim if ndim else 0)), index)


def narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    start = int(start)
    stop = start + length
    return x[along(dim, x.ndim, slice(start, stop if start >= 0 or stop else None))]


def flat_take(x: Any, indices: Any) -> Any:
    return tc.reshape(tc.take(tc.reshape(x, (-1,)), tc.reshape(indices, (-1,))), indices.shape)


def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    skip_if(not x.ndim or x.ndim != index.ndim)
    fits = tuple(slice(None) if a == dim % x.ndim else slice(n) for a, n in enumerate(index.shape))
    return tc.take_along_axis(x[fits], index, axis=dim)


def take_along_dim(x: Any, indices: Any, dim: Any = None) -> Any:
    if dim is None:
        return tc.take_along_axis(tc.reshape(x, (-1,)), tc.reshape(indices, (-1,)), axis=0)
    return tc.take_along_axis(x, indices, axis=dim)


def index_select(x: Any, dim: int, index: Any) -> Any:
    skip_if(not x.ndim or not index.ndim)
    return tc.take(x, index, axis=dim)


def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return tc.at(x)[tuple(indices)].add(values) if accumulate else tc.at(x)[tuple(indices)].set(values)


def grid(shape: tuple[int, ...], dim: int, index: Any) -> tuple[Any, ...]:
    """Return the key of the elements that PyTorch's scatters write to."""
    axes = [tc.reshape(tc.arange(n), (n,) + (1,) * (len(shape) - a - 1)) for a, n in enumerate(index.shape)]
    return tuple(index if a == dim % len(shape) else axis for a, axis in enumerate(axes))


def scatter(name: str) -> Callable[..., Any]:
    """Adapt PyTorch's scatters: they take an index for each element of the source, along one dimension."""

    def adapter(x: Any, dim: int, index: Any, src: Any, *reduce: Any, include_self: bool = True, **kwargs: Any) -> Any:
        skip_if(not x.ndim or x.ndim != index.ndim or not include_self or kwargs)
        if isinstance(src, tc.Tensor):
            src = src[tuple(slice(n) for n in index.shape)]
        return getattr(tc.at(x)[grid(x.shape, dim, index)], name)(src)

    return adapter


def scatter_rows(name: str) -> Callable[..., Any]:
    """Adapt PyTorch's updates of rows by index."""

    def adapter(x: Any, dim: int, index: Any, source: Any, *reduce: Any, alpha: Any = 1, **kwargs: Any) -> Any:
        skip_if(not x.ndim or not index.ndim or kwargs.get("include_self") is False)
        source = source if alpha == 1 else source * alpha
        return getattr(tc.at(x)[along(dim, x.ndim, index)], name)(source)

    return adapter


def add_rows(x: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Any:
    skip_if(dim % max(x.ndim, 1) or not x.ndim or not index.ndim)
    return registry["add_rows"].function(x, index, source if alpha == 1 else source * alpha)


def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    skip_if(not accumulate)
    flat = tc.at(tc.reshape(x, (-1,)))[tc.reshape(index, (-1,))].add(tc.reshape(source, (-1,)))
    return tc.reshape(flat, x.shape)


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return tc.where(mask, value, x)


def repeat_interleave(x: Any, repeats: Any, dim: Any = None, **_: Any) -> Any:
    skip_if(not x.ndim)
    return tc.repeat(x, repeats, axis=dim)


def tiled(x: Any, *repeats: Any) -> Any:
    repeats = tuple(repeats[0]) if repeats and not isinstance(repeats[0], int) else repeats
    return tc.tile(x, repeats)


def split(x: Any, sizes: Any, dim: int = 0) -> Any:
    skip_if(isinstance(sizes, int) and x.shape[dim] % sizes)
    return tc.split(x, x.shape[dim] // sizes if isinstance(sizes, int) else list(sizes), axis=dim)


def meshgrid(*arrays: Any, indexing: str = "ij") -> Any:
    arrays = arrays[0] if isinstance(arrays[0], list | tuple) else arrays
    return tc.meshgrid(*arrays, indexing=indexing)


SORT = "x axis descending stable"


def squeeze(x: Any, *dim: Any) -> Any:
    axes = dim[0] if dim else tuple(a for a, n in enumerate(x.shape) if n == 1)
    axes = axes if isinstance(axes, tuple) else (axes,)
    skip_if(not x.ndim)
    return tc.squeeze(x, tuple(a for a in axes if x.shape[a] == 1))


def movedim(x: Any, source: Any, destination: Any) -> Any:
    return tc.moveaxis(x, *(tuple(a) if isinstance(a, list) else a for a in (source, destination)))


def expand(x: Any, *shape: Any) -> Any:
    shape = tuple(shape[0]) if shape and not isinstance(shape[0], int) else shape
    new = len(shape) - x.ndim
    return tc.broadcast_to(x, tuple(x.shape[a - new] if n == -1 else n for a, n in enumerate(shape)))


def cat(arrays: Any, dim: int = 0) -> Any:
    skip_if(len({a.ndim for a in arrays}) > 1)  # PyTorch ignores arrays of shape (0,)
    return tc.concat(arrays, axis=dim)


def roll(x: Any, shifts: Any, dims: Any = None) -> Any:
    return tc.roll(x, shifts, axis=None if dims == () else dims)


def trapezoid(y: Any, x: Any = None, *, dx: Any = 1.0, dim: int = -1) -> Any:
    return tc.trapezoid(y, x, dx=dx, axis=dim)


def masked_select(x: Any, mask: Any) -> Any:
    x, mask = tc.broadcast_arrays(x, mask)
    return x[mask]


def kl_div(x: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    skip_if(reduction not in ("none", "sum", "mean"))
    loss = tc.rel_entr(tc.exp(target) if log_target else target, tc.exp(x))
    return loss if reduction == "none" else getattr(tc, reduction)(loss)


def embedding(weight: Any, indices: Any, padding_idx: Any = None, max_norm: Any = None, **kwargs: Any) -> Any:
    skip_if(padding_idx is not None or max_norm is not None or kwargs.get("scale_grad_by_freq"))
    return tc.gather(weight, indices)


def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    skip_if(not x.ndim)
    return tuple(tc.top_k(x, k, axis=dim, largest=largest))


def nonzero(x: Any, as_tuple: bool = False) -> Any:
    skip_if(not x.ndim)
    found = tc.nonzero(x)
    return found if as_tuple else tc.stack(found, axis=1)


def searchsorted(
    x: Any, values: Any, *, right: bool = False, side: Any = None, sorter: Any = None, **kwargs: Any
) -> Any:
    skip_if(x.ndim != 1 or kwargs.get("out_int32"))
    return tc.searchsorted(x, values, side=side or ("right" if right else "left"), sorter=sorter)


def unique(
    x: Any, *, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    skip_if(dim is not None)
    inverse, counts = tc.unique_inverse(x), tc.unique_counts(x)
    return [tc.unique_values(x)] + [inverse.inverse_indices] * return_inverse + [counts.counts] * return_counts


def isin(x: Any, elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    return tc.isin(x, elements, invert=invert)


def segments(function: Any, name: str, combine: Any) -> Callable[..., Any]:
    """Adapt a reduction of segments, to which PyTorch can give an initial value."""

    def adapter(x: Any, reduce: str, *, lengths: Any, axis: int = 0, unsafe: bool = False, initial: Any = None) -> Any:
        skip_if(reduce != name or lengths.ndim != 1 or axis)
        skip_if(int(tc.sum(lengths)) != x.shape[0])
        ids = tc.repeat(tc.arange(lengths.shape[0]), lengths)
        found = function(x, ids, lengths.shape[0])
        return found if initial is None else combine(found, float(initial))

    return adapter


def segment_mean(x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    """Compute PyTorch's scatter of means: each element of the result is a segment."""
    skip_if(not x.ndim or x.ndim != index.ndim or not index.size)
    ids: Any = 0
    for places, length in zip(grid(x.shape, dim, index), x.shape, strict=True):
        ids = ids * length + places
    ids = tc.reshape(tc.broadcast_to(ids, index.shape), (-1,))
    values = tc.reshape(source[tuple(slice(n) for n in index.shape)], (-1,))
    if include_self:
        ids, values = tc.concat([tc.arange(x.size), ids]), tc.concat([tc.reshape(x, (-1,)), values])
    found = tc.reshape(tc.segment_mean(values, ids, x.size), x.shape)
    hit = tc.reshape(tc.segment_sum(tc.ones_like(ids), ids, x.size), x.shape) > 0
    return tc.where(hit, found, x)


SPECIAL = "i0e i1 i1e ndtr log_ndtr ndtri erfcx entr xlog1py"

ELEMENTWISE = """
    abs acos acosh asin asinh atan atan2 atanh ceil conj copysign cos cosh exp expm1 floor hypot imag log log1p log2
    log10 maximum minimum positive pow real reciprocal remainder round sign sin sinh sqrt square tan
    tanh trunc logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_left_shift
    bitwise_right_shift isfinite isinf isnan signbit i0 digamma logit xlogy erf erfc erfinv where
"""


def table(call: Any) -> dict[str, dict[str, Any]]:
    """Return, for each function of Tape, its counterparts in PyTorch's table and the calls that adapt it to them."""
    same = {name: {name: call(getattr(tc, name))} for name in ELEMENTWISE.split()}
    special = {name: {f"special.{name}": call(getattr(tc, name))} for name in SPECIAL.split()}
    more = {
        "add": {"add": scaled(tc.add), "__radd__": call(tc.add)},
        "subtract": {"sub": scaled(tc.subtract), "rsub": scaled(tc.subtract, True), "__rsub__": flipped(tc.subtract)},
        "multiply": {"mul": call(tc.multiply), "__rmul__": call(tc.multiply)},
        "divide": {
            "div/no_rounding_mode": call(tc.divide),
            "true_divide": call(tc.divide),
            "__rdiv__": flipped(tc.divide),
        },
        "floor_divide": {
            "div/floor_rounding": rounding(tc.floor_divide, "floor"),
            "floor_divide": call(tc.floor_divide),
        },
        # For a negative base, PyTorch's gradient of the exponent is NaN; Tape's is 0, as in TensorFlow.
        "pow": {
            "pow": (call(tc.pow), {"nan": True}),
            "__rpow__": (flipped(tc.pow), {"nan": True}),
            "float_power": (float_power, {"nan": True}),
        },
        "logaddexp": {"logaddexp": (call(tc.logaddexp), {"dtypes": (torch.float64,)})},  # of real numbers alone
        # PyTorch's derivative by x1 is 1; Tape's nextafter has none.
        "nextafter": {"nextafter": (call(tc.nextafter), {"differentiate": False})},
        "remainder": {"remainder": call(tc.remainder), "__rmod__": flipped(tc.remainder)},
        "negative": {"neg": call(tc.negative)},
        "abs": {"abs": call(tc.abs)},
        "sign": {"sign": call(tc.sign), "sgn": call(tc.sign)},
        "conj": {"conj": call(tc.conj), "conj_physical": call(tc.conj)},
        "maximum": {"maximum": call(tc.maximum), "max/binary": call(tc.maximum)},
        "minimum": {"minimum": call(tc.minimum), "min/binary": call(tc.minimum)},
        "clip": {
            "clamp": call(tc.clip),
            "clamp_max": lambda x, high: tc.clip(x, None, high),
            "clamp_min": lambda x, low: tc.clip(x, low),
        },
        "where": {"where": lambda x, condition, y: tc.where(condition, x, y), "masked_fill": masked_fill},
        "round": {"round": call(tc.round, "x")},
        "bitwise_invert": {"bitwise_not": call(tc.bitwise_invert)},
        "equal": {"eq": call(tc.equal)},
        "not_equal": {"ne": call(tc.not_equal)},
        "less": {"lt": call(tc.less)},
        "less_equal": {"le": call(tc.less_equal)},
        "greater": {"gt": call(tc.greater)},
        "greater_equal": {"ge": call(tc.greater_equal)},
        "gammaln": {"lgamma": call(tc.gammaln)},
        "polygamma": {
            f"{prefix}n_{n}": lambda x, k: tc.polygamma(k, x)
            for prefix, orders in (("polygamma/polygamma_", range(5)), ("special.polygamma/special_polygamma_", (0,)))
            for n in orders
        },
        "rel_entr": {"nn.functional.kl_div": kl_div},
        # PyTorch's tangent is that inaccurate.
        "logcumsumexp": {"logcumsumexp": (call(tc.logcumsumexp), {"tolerance": 1e-5, "dtypes": (torch.float64,)})},
        "astype": {
            "double": lambda x, **_: real_astype(x, "float64"),
            "float": lambda x, **_: real_astype(x, "float32"),
            "cdouble": lambda x, **_: tc.astype(x, "complex128"),
            "long": lambda x, **_: real_astype(x, "int64"),
            "bool": lambda x, **_: tc.astype(x, "bool"),
        },
        "reshape": {
            "reshape": variadic(tc.reshape),
            "view": variadic(tc.reshape),
            "reshape_as": lambda x, y: tc.reshape(x, y.shape),
            "ravel": lambda x: tc.reshape(x, (-1,)),
        },
        "squeeze": {"squeeze/multiple": squeeze, "squeeze": squeeze},
        "expand_dims": {"unsqueeze": call(tc.expand_dims)},
        "permute_dims": {"permute": variadic(tc.permute_dims)},
        "moveaxis": {"movedim": movedim},
        "broadcast_to": {"broadcast_to": variadic(tc.broadcast_to), "expand": expand},
        "broadcast_arrays": {"broadcast_tensors": tc.broadcast_arrays},
        "concat": {"cat": cat},
        "stack": {"stack": call(tc.stack)},
        "unstack": {"unbind": call(tc.unstack)},
        "split": {"split": split, "split/list_args": split, "split_with_sizes": split},
        "flip": {"flip": lambda x, dims: tc.flip(x, axis=tuple(dims))},
        "roll": {"roll": roll},
        "tile": {"tile": tiled, "repeat": tiled},
        "repeat": {"repeat_interleave": repeat_interleave},
        "meshgrid": {"meshgrid/variadic_tensors": meshgrid, "meshgrid/list_of_tensors": meshgrid},
        "band": {
            "tril": lambda x, k=0: registry["band"].function(x, last=k),
            "triu": lambda x, k=0: registry["band"].function(x, first=k),
        },
        "tril": {"tril": call(tc.tril, "x k")},
        "triu": {"triu": call(tc.triu, "x k")},
        "sum": {"sum": call(tc.sum, "x axis keepdims")},
        "mean": {"mean": call(tc.mean)},
        "prod": {"prod": call(tc.prod, "x axis keepdims")},
        "max": {"amax": call(tc.max), "max/reduction_no_dim": call(tc.max)},
        "min": {"amin": call(tc.min), "min/reduction_no_dim": call(tc.min)},
        "var": {"var": spread(tc.var), "var/unbiased": spread(tc.var)},
        "std": {"std": spread(tc.std), "std/unbiased": spread(tc.std)},
        "cumulative_sum": {"cumsum": call(tc.cumulative_sum)},
        "cumulative_prod": {"cumprod": call(tc.cumulative_prod)},
        "diff": {"diff": call(tc.diff, "x n axis prepend append")},
        "trapezoid": {"trapezoid": trapezoid, "trapz": trapezoid},
        "getitem": {
            "__getitem__": getitem,
            "narrow": narrow,
            "select": lambda x, dim, k: x[along(dim, x.ndim, k)],
            "slice": lambda x, dim=0, start=None, end=None, step=1: x[along(dim, x.ndim, slice(start, end, step))],
            "masked_select": masked_select,
        },
        "setitem": {
            "index_put": index_put,
            "select_scatter": lambda x, y, dim, k: tc.at(x)[along(dim, x.ndim, k)].set(y),
            "slice_scatter": lambda x, y, dim=0, start=None, end=None, step=1: tc.at(x)[
                along(dim, x.ndim, slice(start, end, step))
            ].set(y),
            "index_copy": scatter_rows("set"),
            "index_fill": scatter_rows("set"),
            "scatter": scatter("set"),
        },
        "take": {"index_select": index_select, "take": flat_take},
        "take_along_axis": {"take_along_dim": take_along_dim, "gather": gather},
        "gather": {"nn.functional.embedding": embedding},
        "add_rows": {"index_add": add_rows},
        "scatter_add": {
            "scatter_add": scatter("add"),
            "scatter_reduce/sum": scatter("add"),
            "index_add": scatter_rows("add"),
            "put": put,
        },
        "scatter_multiply": {"scatter_reduce/prod": scatter("multiply"), "index_reduce/prod": scatter_rows("multiply")},
        "scatter_min": {"scatter_reduce/amin": scatter("min"), "index_reduce/amin": scatter_rows("min")},
        "scatter_max": {"scatter_reduce/amax": scatter("max"), "index_reduce/amax": scatter_rows("max")},
        "sort": {"sort": lambda x, *a, **k: (call(tc.sort, SORT)(x, *a, **k), call(tc.argsort, SORT)(x, *a, **k))},
        "argsort": {"argsort": call(tc.argsort, SORT)},
        "top_k": {"topk": topk},
        "argmax": {"argmax": call(tc.argmax)},
        "argmin": {"argmin": call(tc.argmin)},
        "count_nonzero": {"count_nonzero": call(tc.count_nonzero)},
        "nonzero": {"nonzero": nonzero, "argwhere": nonzero},
        "search_in_order": {"searchsorted": searchsorted},
        "searchsorted": {"searchsorted": searchsorted},
        "all": {"all": call(tc.all)},
        "any": {"any": call(tc.any)},
        "unique_inverse": {"unique": unique},
        "unique_counts": {"unique": unique},
        "unique_values": {"unique": unique},
        "isin": {"isin": isin},
        **{
            f"segment_{name}": {"_segment_reduce/lengths": segments(function, name, combine)}
            for name, function, combine in (
                ("sum", tc.segment_sum, tc.add),
                ("prod", tc.segment_prod, tc.multiply),
                ("max", tc.segment_max, tc.maximum),
                ("min", tc.segment_min, tc.minimum),
            )
        },
        "segment_mean": {"scatter_reduce/mean": segment_mean},
    }
    return same | special | more


CREATION = """
    arange arange_beside asarray broadcast_shapes can_cast empty empty_like eye finfo from_dlpack full full_like iinfo
    isdtype linspace ones ones_like result_type zeros zeros_beside zeros_like __array_namespace_info__
"""

COMPOSED = """
    agm bdtr bdtrc bdtri betaincc betainccinv binom boxcox1p chdtr chdtrc chdtri cosdg cosm1 cotdg
    ellipkm1 eval_chebyc eval_chebys eval_chebyt eval_chebyu eval_gegenbauer eval_genlaguerre
    eval_hermite eval_hermitenorm eval_jacobi eval_laguerre eval_legendre eval_sh_chebyt eval_sh_chebyu
    eval_sh_legendre fdtr fdtrc fdtri gdtr gdtrc gdtria gdtrix hankel1 hankel1e hankel2 hankel2e
    inv_boxcox inv_boxcox1p jve kn nbdtr nbdtrc nbdtri nrdtrimn nrdtrisd pdtr pdtrc pdtri poch powm1
    radian sindg tandg yve
    airy airye comb ellipj eval_sh_jacobi factorial fresnel it2i0k0 it2j0y0 itairy iti0k0
    itj0y0 kelvin lambertw modfresnelm modfresnelp pbdv pbvv pbwa perm shichi sici sph_harm_y
    spherical_in spherical_jn spherical_kn spherical_yn voigt_profile wofz zeta zetac
"""

TABLED = """
    airy_ai airy_ai_slope airy_bi airy_bi_slope airye_ai airye_ai_slope airye_bi airye_bi_slope amplitude bei beip ber
    berp chndtr chndtrix cosh_integral cosine_integral cylinder_d cylinder_d_slope cylinder_v
    cylinder_v_slope cylinder_w cylinder_w_slope ellipeinc ellipkinc expn faddeeva fresnel_c fresnel_s
    hyp1f1 hyp2f1 hyperu integral_ai integral_ai_below integral_bi integral_bi_below integral_i0 integral_i0_over
    integral_j0 integral_j0_over integral_k0 integral_k0_over integral_y0 integral_y0_over it2struve0 itmodstruve0
    itstruve0 kei keip ker kerp kolmogi kolmogorov lambert log_wright_bessel lpmv modstruve ndtri_exp owens_t
    sine_integral sinh_integral spherical_i spherical_j spherical_k spherical_y struve tklmbda wright_bessel wrightomega
"""

WITHOUT = (
    dict.fromkeys(
        CREATION.split(),
        "computes nothing from the values of arrays",
    )
    | dict.fromkeys(
        [
            "beta",
            "betainc",
            "betainc_derivative",
            "gammaincinv",
            "gammainccinv",
            "betaincinv",
            "stdtrit",
            "ellipe",
            "ellipk",
            "exp1",
            "expi",
            "dawsn",
            "erfi",
            "spence",
            "kve",
            "k0",
            "k1",
            "k0e",
            "k1e",
            "cbrt",
            "boxcox",
            "exp10",
            "exp2",
            "exprel",
            "gammainc",
            "gammainc_derivative",
            "gammaincc",
            "huber",
            "iv",
            "ive",
            "j0",
            "j1",
            "jv",
            "kl_div",
            "kv",
            "log_expit",
            "loggamma",
            "multigammaln",
            "pseudo_huber",
            "rgamma",
            "sinc",
            "stdtr",
            "stdtr_derivative",
            "y0",
            "y1",
            "yv",
        ],
        "SciPy's functions, which the conformance suite compares with SciPy",
    )
    | dict.fromkeys(
        TABLED.split(),
        "SciPy's functions, which the conformance suite compares with SciPy",
    )
    | dict.fromkeys(
        COMPOSED.split(),
        "SciPy's functions, made of others here, which tests of tape-core compare with SciPy",
    )
    | {
        "betaln": "PyTorch has no such function",
        "convolve": "PyTorch has no such function",
        "erfcinv": "PyTorch has no such function",
        "gamma": "PyTorch has no such function",
        "interp": "PyTorch has no such function",
        "laid_out_like": "moves an array among processes",
        "linear_recurrence": "a part of the rules of logcumsumexp",
        "places": "a part of the rules of scatter_multiply",
        "scatter": "a part of the rules of getitem",
        "stop_gradient": "detach, which is not in PyTorch's table",
        "to_device": "the samples of `to` are on one device",
        "unique_all": "PyTorch has no places of first occurrences",
    }
)


@pytest.mark.usefixtures("_on_torch")
def test_agrees_with_pytorch(reference: Any, theirs: str, adapter: Any, options: dict[str, Any]) -> None:
    assert reference.compare(theirs, adapter, **options), "no sample was compared"


def test_all_of_ours_are_compared_or_have_no_counterpart(functions: set[str]) -> None:
    unknown = functions - set(table(lambda *args, **kwargs: None)) - set(WITHOUT)
    assert not unknown, f"say what they are in PyTorch: {sorted(unknown)}"
    assert not set(WITHOUT) - functions, "there are no such ops"
