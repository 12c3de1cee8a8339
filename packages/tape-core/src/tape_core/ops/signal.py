"""Convolution of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tape_core.backends.checks import check_convolve
from tape_core.engine.op import op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace


def _convolve_pads(n: int, k: int, mode: str) -> tuple[int, int]:
    """The numbers of elements of the full convolution that the mode leaves out before and after."""
    if mode == "full":
        return 0, 0
    short, length = min(n, k), max(n, k) if mode == "same" else max(n, k) - min(n, k) + 1
    before = (short - 1) // 2 if mode == "same" else short - 1
    return before, n + k - 1 - length - before


def _convolve_kernel(xp: Namespace, a: Array, v: Array, mode: str = "full") -> Array:
    check_convolve(a, v, mode)
    if a.shape[0] < v.shape[0]:  # convolution commutes; windows are of the shorter sequence
        a, v = v, a
    n, k = a.shape[0], v.shape[0]
    before, after = _convolve_pads(n, k, mode)
    padded = xp.pad(a, (k - 1 - before, k - 1 - after))
    return xp.matmul(xp.sliding_windows(padded, k), xp.flip(v))


def _convolve_vjp(xp: Namespace, g: Cotangent, other: Array, spec: Spec, mode: str) -> Cotangent:
    # With the elements put back that the mode left out, this is the transpose of the full convolution: a correlation.
    widths = _convolve_pads(spec.shape[0], other.shape[0], mode)
    return xp.convolve(xp.pad(g, widths), xp.flip(other), mode="valid")


def _convolve_samples(draw: Draw) -> Iterator[Sample]:
    for n, k in ((5, 3), (4, 2), (2, 5), (3, 3), (1, 1)):
        for mode in ("full", "same", "valid"):
            yield Sample(draw(n), draw(k), mode)
    yield Sample(draw.complex(4), draw.complex(3), mode="same")
    yield Refused(ValueError, "a must be 1-d and not empty", draw(2, 2), draw(2))
    yield Refused(ValueError, "v must be 1-d and not empty", draw(2), draw(0))
    yield Refused(ValueError, "mode", draw(2), draw(2), mode="circular")


@op(
    a=vjp(lambda xp, g, v, a_spec, mode: _convolve_vjp(xp, g, v, a_spec, mode)),
    v=vjp(lambda xp, g, a, v_spec, mode: _convolve_vjp(xp, g, a, v_spec, mode)),
    kernel=_convolve_kernel,
    samples=_convolve_samples,
)
def convolve(a: ArrayLike, v: ArrayLike, /, mode: Literal["full", "same", "valid"] = "full") -> Tensor:
    """The convolution of two sequences, as in `numpy.convolve`: one of them is mirrored.

    >>> import tape_core as tc
    >>> tc.convolve(tc.asarray([1, 2, 3]), tc.asarray([0, 1, 10])).tolist()
    [0, 1, 12, 23, 30]

    Args:
        mode: "full" for all `len(a) + len(v) - 1` elements; "same" for as many as the longer sequence has, from the
            middle; "valid" for the elements in which the whole of the shorter sequence takes part.

    Raises:
        ValueError: a sequence is not 1-d or is empty, or the mode is unknown.
    """
