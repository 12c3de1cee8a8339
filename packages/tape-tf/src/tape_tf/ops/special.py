"""Special functions, division with truncation, and tests for monotony."""

from __future__ import annotations

from typing import Any

import tape_core as tc

from tape_tf.functions import binary, op, unary

_UNARY = {
    "math.erf": tc.erf,
    "math.erfc": tc.erfc,
    "math.erfinv": tc.erfinv,
    "math.erfcinv": tc.erfcinv,
    "math.lgamma": tc.gammaln,
    "math.digamma": tc.digamma,
    "math.ndtri": tc.ndtri,
    "math.bessel_i0 math.special.bessel_i0": tc.i0,
    "math.bessel_i0e math.special.bessel_i0e": tc.i0e,
    "math.bessel_i1 math.special.bessel_i1": tc.i1,
    "math.bessel_i1e math.special.bessel_i1e": tc.i1e,
}
for _names, _function in _UNARY.items():
    unary(_names, _function)

# Python and TensorFlow's // round down; these round towards zero, as C does.
binary("truncatediv", lambda x, y: tc.astype(tc.trunc(_true_divide(x, y)), x.dtype), "TruncateDiv")
binary("truncatemod", lambda x, y: x - tc.astype(tc.trunc(_true_divide(x, y)), x.dtype) * y, "TruncateMod")


def _true_divide(x: tc.Tensor, y: tc.Tensor | complex) -> Any:
    if x.dtype.inexact:
        return x / y
    return tc.astype(x, tc.float64) / (tc.astype(y, tc.float64) if isinstance(y, tc.Tensor) else y)


@op("math.polygamma", "a x")
def polygamma(a: tc.Tensor, x: tc.Tensor) -> tc.Tensor:
    """Return the `a`-th derivative of the digamma function."""
    return tc.polygamma(tc.astype(a, tc.int64), x)


@op("math.lbeta", "x", floating=True)
def lbeta(x: tc.Tensor) -> tc.Tensor:
    """Return the logarithm of the multivariate beta function, along the last dimension."""
    return tc.sum(tc.gammaln(x), axis=-1) - tc.gammaln(tc.sum(x, axis=-1))


@op("math.is_non_decreasing", "x")
def is_non_decreasing(x: tc.Tensor) -> tc.Tensor:
    """Return whether no element is less than the one before."""
    flat = tc.reshape(x, (-1,))
    return tc.all(flat[1:] >= flat[:-1])


@op("math.is_strictly_increasing", "x")
def is_strictly_increasing(x: tc.Tensor) -> tc.Tensor:
    """Return whether each element is greater than the one before."""
    flat = tc.reshape(x, (-1,))
    return tc.all(flat[1:] > flat[:-1])
