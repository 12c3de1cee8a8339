"""Special functions: XLA's where they are as accurate as the ops' default kernels, and SciPy's and core's on the host.

On the host, a call takes microseconds for a small array, where XLA would compile for each new shape, some of the
derivatives for minutes. Inside `jax.jit` such a function is a callback from the compiled program to the host. JAX has
no derivative of a callback: it is given Tape's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tape_core.backends import DEFAULT_KERNELS
from tape_core.extend import registry

from tape_jax.host import numpy_on_host
from tape_jax.own_rules import with_rules_of

_FLOATS = frozenset({np.dtype("float32"), np.dtype("float64")})

_STIRLING = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)  # DLMF 5.11.2
_BERNOULLI = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)  # DLMF 5.15.8
_SIN, _COS = ([(-1) ** k / math.factorial(2 * k + first) for k in reversed(range(11))] for first in (1, 0))
_ATANH = [2 / k for k in range(19, 0, -2)]  # DLMF 4.38.5, doubled


def _horner(coefficients: Sequence[float], x: jax.Array) -> Any:
    total: Any = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


def _log_in_double(y: jax.Array) -> Any:
    """Return the logarithm of float64 numbers from 1 to the largest one of float32.

    XLA's takes four times as long on a CPU, where it is no vector instruction.
    """
    bits = jax.lax.bitcast_convert_type(y.astype("float32"), np.int32)
    exponent = (bits >> 23) - 127
    scale = jax.lax.bitcast_convert_type((128 - exponent) << 23, np.float32)  # 2**(1 - exponent)
    m = y * scale.astype("float64") * (0.5 * math.sqrt(0.5))  # in sqrt(0.5) to sqrt(2)
    s = (m - 1) / (m + 1)  # log(m) = 2 * atanh(s)
    return (exponent.astype("float64") + 0.5) * math.log(2) + s * _horner(_ATANH, s * s)


def _reciprocals(u: jax.Array, power: int) -> jax.Array:
    """Return the sum of `1 / (1 + k * u)**power` for k from 0 to 8, with one division."""
    above, below = jnp.ones_like(u), jnp.ones_like(u)
    for k in range(1, 9):
        factor = (1 + k * u) ** power
        above, below = above * factor + below, below * factor
    return above / below


# Digamma and trigamma of float32 numbers are computed in float64, where nothing need be done around zeros of digamma.
# XLA's digamma has relative errors above 1 there, and takes 2.5 times as long on a CPU. Both are reduced to arguments
# from 10 on, DLMF 5.5.2 and 5.15.5; and below 0 reflected, DLMF 5.5.4 and 5.15.6.


@jax.jit
def _digamma_in_double(x: jax.Array) -> jax.Array:
    wide = x.astype("float64")
    a = jnp.abs(wide)
    u, z = 1 / (1 + a), 1 / (10 + a)
    from_10 = _log_in_double(10 + a) - 0.5 * z - z * z * _horner(_STIRLING, z * z)
    from_1 = from_10 - u * _reciprocals(u, 1)
    angle = math.pi * (a - jnp.round(a))
    squared = angle * angle
    cot = _horner(_COS, squared) / (angle * _horner(_SIN, squared))
    reflected = jnp.where(angle == 0, jnp.nan, math.pi * cot)
    out = from_1 + jnp.where(wide < 0, reflected, -1 / wide)
    return jnp.where(wide == jnp.inf, jnp.inf, out).astype(x.dtype)


@jax.jit
def _trigamma_in_double(x: jax.Array) -> jax.Array:
    wide = x.astype("float64")
    a = jnp.abs(wide)
    u, z = 1 / (1 + a), 1 / (10 + a)
    from_1 = z + 0.5 * z * z + z * z * z * _horner(_BERNOULLI, z * z) + u * u * _reciprocals(u, 2)
    angle = math.pi * (a - jnp.round(a))
    sin = angle * _horner(_SIN, angle * angle)
    out = jnp.where(wide < 0, (math.pi / sin) ** 2 - from_1, 1 / (wide * wide) + from_1)
    return jnp.where(wide == -jnp.inf, jnp.inf, out).astype(x.dtype)


_BY_XLA: dict[str, Callable[..., Any]] = {
    "erf": jax.lax.erf,
    "erfc": jax.lax.erfc,
    "erfinv": jax.lax.erf_inv,
    "gammaln": lambda x: jnp.where(x == -np.inf, x, jax.lax.lgamma(x)),
    "i0e": jax.lax.bessel_i0e,
    "i1e": jax.lax.bessel_i1e,
    "ndtri": jax.scipy.special.ndtri,
    "entr": jax.scipy.special.entr,
}

_ON_HOST = (
    "airy_ai", "airy_ai_slope", "airy_bi", "airy_bi_slope", "airye_ai", "airye_ai_slope", "airye_bi",
    "airye_bi_slope", "amplitude", "bei", "beip", "ber", "berp", "betainc", "betainc_derivative", "betaincinv",
    "chndtr", "chndtrix", "cosh_integral", "cosine_integral", "cylinder_d",
    "cylinder_d_slope", "cylinder_v", "cylinder_v_slope", "cylinder_w", "cylinder_w_slope", "dawsn", "ellipe",
    "ellipeinc", "ellipk", "ellipkinc", "erfi", "exp1", "expi", "expn", "faddeeva", "fresnel_c", "fresnel_s",
    "gammainc", "gammainc_derivative", "gammaincc", "gammainccinv", "gammaincinv", "hyp1f1",
    "hyp2f1", "hyperu", "integral_ai", "integral_ai_below", "integral_bi", "integral_bi_below", "integral_i0",
    "integral_i0_over", "integral_j0", "integral_j0_over", "integral_k0", "integral_k0_over", "integral_y0",
    "integral_y0_over", "it2struve0", "itmodstruve0", "itstruve0", "iv", "ive", "j0", "j1", "jv", "k0", "k0e", "k1",
    "k1e", "kei", "keip", "ker", "kerp", "kolmogi", "kolmogorov", "kv", "kve", "lambert", "log_wright_bessel", "lpmv",
    "modstruve", "ndtri_exp", "owens_t", "sine_integral", "sinh_integral", "spence", "spherical_i", "spherical_j",
    "spherical_k", "spherical_y", "stdtr",
    "stdtr_derivative", "stdtrit", "struve", "tklmbda", "wright_bessel", "wrightomega", "y0", "y1", "yv",
)  # fmt: skip

_TRACED: dict[str, Callable[..., Any]] = {
    "betainc": jax.scipy.special.betainc,
    "exp1": jax.scipy.special.exp1,
    "expi": jax.scipy.special.expi,
    "gammainc": jax.scipy.special.gammainc,
    "gammaincc": jax.scipy.special.gammaincc,
    "spence": jax.scipy.special.spence,
}
"""What JAX has for functions of the host: inside `jax.jit` these stay on the device."""


def _is_array(value: object) -> bool:
    return isinstance(value, jax.Array)


def _on_host(name: str) -> Callable[..., Any]:
    """Return a kernel that computes on the host, and puts the result where the first array is."""
    in_trace = _TRACED.get(name)

    def computed(*values: Any, **parameters: Any) -> Any:
        arrays = [v for v in values if _is_array(v)]
        if any(isinstance(v, jax.core.Tracer) for v in arrays):
            if in_trace is not None and all(v.dtype in _FLOATS for v in arrays):
                return in_trace(*values, **parameters).astype(arrays[0].dtype)
            return _by_callback(name, values, parameters, arrays)
        found = np.asarray(_computed(name, values, parameters))
        place = arrays[0].sharding if arrays[0].committed else None
        with jax.ensure_compile_time_eval():
            return jax.device_put(found, place)

    def kernel(*values: Any, **parameters: Any) -> Any:
        if any(isinstance(v, jax.core.Tracer) for v in values):
            return with_rules_of(registry[name].function, computed, values, parameters)
        return computed(*values, **parameters)

    return kernel


def _computed(name: str, values: Any, parameters: dict[str, Any]) -> Any:
    given = [np.asarray(v) if hasattr(v, "dtype") else v for v in values]
    dtypes = [v.dtype for v in given if isinstance(v, np.ndarray)]
    # NumPy's functions do not know ml_dtypes' bfloat16 everywhere.
    narrow = [dtype for dtype in dtypes if dtype == jnp.bfloat16]
    if narrow:
        given = [v.astype(np.float32) if isinstance(v, np.ndarray) and v.dtype in narrow else v for v in given]
    with np.errstate(all="ignore"):
        found = np.asarray(DEFAULT_KERNELS[name](numpy_on_host().xp, *given, **parameters))
    return found.astype(narrow[0]) if narrow else found


def _by_callback(name: str, values: Any, parameters: dict[str, Any], arrays: list[Any]) -> Any:
    shape = np.broadcast_shapes(*[v.shape for v in arrays])
    ones = [np.full((1,) * v.ndim, 0.5, v.dtype) if _is_array(v) else v for v in values]
    dtype = np.asarray(_computed(name, ones, parameters)).dtype

    result = jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]

    def call(*given: Any) -> Any:
        left = iter(given)
        return _computed(name, [next(left) if _is_array(v) else v for v in values], parameters)

    return jax.pure_callback(call, result, *arrays, vmap_method="expand_dims")


def _for_dtypes(
    dtypes: Container[Any], function: Callable[..., Any], default: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a kernel that is the function for these dtypes, and the default one for others."""

    def kernel(x: jax.Array) -> Any:
        return function(x) if x.dtype in dtypes else default(x)

    return kernel


def _polygamma(default: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(n: Any, x: Any) -> Any:
        usual = type(n) is int and n == 1 and _is_array(x) and x.dtype == np.float32
        return _trigamma_in_double(x) if usual else default(n, x)

    return kernel


def special_kernels(jitted: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the kernels by op name; `jitted` gives the default kernel of a name under `jax.jit`."""
    return {
        **{name: _on_host(name) for name in _ON_HOST},
        **{name: _for_dtypes(_FLOATS, function, jitted(name)) for name, function in _BY_XLA.items()},
        "digamma": _for_dtypes([np.dtype("float32")], _digamma_in_double, jitted("digamma")),
        "polygamma": _polygamma(jitted("polygamma")),
    }
