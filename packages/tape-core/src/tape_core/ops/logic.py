"""Elementwise functions of the standard that give truth values or bit patterns: nothing flows through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.engine.op import NONDIFF, elementwise
from tape_core.engine.samples import Draw, Sample, binary, unary, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.typing import ArrayLike

NOT_A_NUMBER = "the result is a truth value or a bit pattern, not a real number"


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=with_complex(binary()), reason=NOT_A_NUMBER)
def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 == x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=with_complex(binary()), reason=NOT_A_NUMBER)
def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 != x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=NOT_A_NUMBER)
def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 < x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=NOT_A_NUMBER)
def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 <= x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=NOT_A_NUMBER)
def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 > x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=binary(), reason=NOT_A_NUMBER)
def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 >= x2`."""


@elementwise(x=NONDIFF, samples=with_complex(unary()), reason=NOT_A_NUMBER)
def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether neither infinite nor NaN."""


@elementwise(x=NONDIFF, samples=with_complex(unary()), reason=NOT_A_NUMBER)
def isinf(x: ArrayLike, /) -> Tensor:
    """Whether infinite."""


@elementwise(x=NONDIFF, samples=with_complex(unary()), reason=NOT_A_NUMBER)
def isnan(x: ArrayLike, /) -> Tensor:
    """Whether NaN."""


@elementwise(x=NONDIFF, samples=unary(), reason=NOT_A_NUMBER)
def signbit(x: ArrayLike, /) -> Tensor:
    """Whether the sign bit is set, as it is for -0.0."""


def _booleans(inputs: int) -> Any:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(*(draw(2, 3) > 0 for _ in range(inputs)))
        yield Sample(*(draw() > 0 for _ in range(inputs)))

    return samples


def _integers(inputs: int, high: int = 9) -> Any:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(*(draw.rng.integers(0, high, (2, 3)) for _ in range(inputs)))

    return samples


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_booleans(2), reason=NOT_A_NUMBER)
def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether both hold."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_booleans(2), reason=NOT_A_NUMBER)
def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether one holds."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_booleans(2), reason=NOT_A_NUMBER)
def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether exactly one holds."""


@elementwise(x=NONDIFF, samples=_booleans(1), reason=NOT_A_NUMBER)
def logical_not(x: ArrayLike, /) -> Tensor:
    """Whether it does not hold."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2), reason=NOT_A_NUMBER)
def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 & x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2), reason=NOT_A_NUMBER)
def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 | x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2), reason=NOT_A_NUMBER)
def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 ^ x2`."""


@elementwise(x=NONDIFF, samples=_integers(1), reason=NOT_A_NUMBER)
def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """`~x`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2, 4), reason=NOT_A_NUMBER)
def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 << x2`."""


@elementwise(x1=NONDIFF, x2=NONDIFF, samples=_integers(2, 4), reason=NOT_A_NUMBER)
def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 >> x2`."""
