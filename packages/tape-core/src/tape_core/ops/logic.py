"""Comparisons, logical and bitwise functions of the Array API standard. No gradient flows through them."""

from __future__ import annotations

from collections.abc import Iterator

from tape_core.engine.op import NONDIFF, REFUSED, elementwise
from tape_core.engine.samples import Draw, Sample, Samples, binary, unary, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.typing import ArrayLike

REASON_NOT_REAL = "the result is a truth value or a bit pattern, not a real number"


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=with_complex(binary()), reason=REASON_NOT_REAL, keeps_integers=True)
def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 == x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=with_complex(binary()), reason=REASON_NOT_REAL, keeps_integers=True)
def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 != x2`."""


@elementwise(
    x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=REASON_NOT_REAL, keeps_integers=True, complex_kernel=REFUSED
)
def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 < x2`."""


@elementwise(
    x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=REASON_NOT_REAL, keeps_integers=True, complex_kernel=REFUSED
)
def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 <= x2`."""


@elementwise(
    x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=REASON_NOT_REAL, keeps_integers=True, complex_kernel=REFUSED
)
def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 > x2`."""


@elementwise(
    x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=REASON_NOT_REAL, keeps_integers=True, complex_kernel=REFUSED
)
def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 >= x2`."""


@elementwise(x=NONDIFF, samples=with_complex(unary()), reason=REASON_NOT_REAL, keeps_integers=True)
def isfinite(x: ArrayLike, /) -> Tensor:
    """True where an element is neither infinite nor NaN."""


@elementwise(x=NONDIFF, samples=with_complex(unary()), reason=REASON_NOT_REAL, keeps_integers=True)
def isinf(x: ArrayLike, /) -> Tensor:
    """True where an element is infinite."""


@elementwise(x=NONDIFF, samples=with_complex(unary()), reason=REASON_NOT_REAL, keeps_integers=True)
def isnan(x: ArrayLike, /) -> Tensor:
    """True where an element is NaN."""


@elementwise(x=NONDIFF, samples=unary(), reason=REASON_NOT_REAL, keeps_integers=True, complex_kernel=REFUSED)
def signbit(x: ArrayLike, /) -> Tensor:
    """True where the sign bit is set, as it is for -0.0."""


def _booleans(inputs: int) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(*(draw(2, 3) > 0 for _ in range(inputs)))
        yield Sample(*(draw() > 0 for _ in range(inputs)))

    return samples


def _integers(inputs: int, high: int = 9) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(*(draw.rng.integers(0, high, (2, 3)) for _ in range(inputs)))

    return samples


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_booleans(2), reason=REASON_NOT_REAL, keeps_integers=True)
def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """True where both elements are true."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_booleans(2), reason=REASON_NOT_REAL, keeps_integers=True)
def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """True where at least one of two elements is true."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_booleans(2), reason=REASON_NOT_REAL, keeps_integers=True)
def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """True where exactly one of two elements is true."""


@elementwise(x=NONDIFF, samples=_booleans(1), reason=REASON_NOT_REAL, keeps_integers=True)
def logical_not(x: ArrayLike, /) -> Tensor:
    """True where an element is false."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2), reason=REASON_NOT_REAL, keeps_integers=True)
def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 & x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2), reason=REASON_NOT_REAL, keeps_integers=True)
def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 | x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2), reason=REASON_NOT_REAL, keeps_integers=True)
def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 ^ x2`."""


@elementwise(x=NONDIFF, samples=_integers(1), reason=REASON_NOT_REAL, keeps_integers=True)
def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """`~x`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2, 4), reason=REASON_NOT_REAL, keeps_integers=True)
def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 << x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2, 4), reason=REASON_NOT_REAL, keeps_integers=True)
def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 >> x2`."""
