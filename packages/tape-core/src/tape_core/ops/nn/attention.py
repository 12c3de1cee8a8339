"""Attention: one op, with one rule for all its inputs, so that a backend can fuse each of the two.

The matrix of weights is not kept for the rule. It computes the weights again from the logarithms of their sums, which
the kernel leaves as residuals: Dao and others, FlashAttention, 2022, appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tape_core.backends.checks import check_inexact
from tape_core.engine.op import REFUSED, op, vjp
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.modes import batching
from tape_core.ops.manipulation import sum_to
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace, Residuals


def _scores(xp: Namespace, query: Array, key: Array, mask: Array | None, is_causal: bool, scale: float) -> Array:
    """The scores of each query and each key, before the softmax; -inf where a query must not attend to a key."""
    scores = xp.matmul(query * scale, key.mT)
    if mask is not None:
        if xp.isdtype(mask.dtype, "bool"):
            scores = xp.where(mask, scores, -math.inf)
        else:
            scores = scores + xp.astype(mask, scores.dtype)
    if is_causal:
        queries, keys = xp.arange_beside(scores, scores.shape[-2]), xp.arange_beside(scores, scores.shape[-1])
        scores = xp.where(keys <= xp.expand_dims(queries, axis=1), scores, -math.inf)
    return scores


def _scale(scale: float | None, query: Array) -> float:
    return 1 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale


def _check(xp: Namespace, arrays: Sequence[Array]) -> None:
    for name, x in zip(("query", "key", "value", "mask"), arrays, strict=False):
        if type(x) in SCALARS or (name != "mask" and len(x.shape) < 2):
            raise ValueError(f"{name} must be an array of two dimensions or more, got {getattr(x, 'shape', x)}")
        if name != "mask":
            check_inexact(xp, name, x, real=True)
        elif not xp.isdtype(x.dtype, ("bool", "real floating")):
            raise TypeError(f"mask must be boolean, or of a real floating dtype to be added, not {x.dtype}")
    query, key, value = arrays[:3]
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query and key must have the same last dimension, got shapes {tuple(query.shape)} and {tuple(key.shape)}"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"key and value must have the same last but one dimension, got shapes {tuple(key.shape)} and "
            f"{tuple(value.shape)}"
        )


def _attend_with_residuals(
    xp: Namespace, arrays: Sequence[Array], *, is_causal: bool = False, scale: float | None = None
) -> tuple[Array, Residuals]:
    """The result; and, as residuals, for each query the logarithm of the sum of the exponentials of its scores."""
    _check(xp, arrays)
    query, key, value = arrays[:3]
    mask = arrays[3] if len(arrays) > 3 else None
    scores = _scores(xp, query, key, mask, is_causal, _scale(scale, query))
    if scores.shape[-1] == 0:
        nothing = xp.sum(scores, axis=-1, keepdims=True)
        return xp.matmul(scores, value), (xp.full_like(nothing, -math.inf),)
    # A softmax that subtracts the maximum against overflow. A query without a key has only -inf, and inf - inf is NaN.
    top = xp.max(scores, axis=-1, keepdims=True)
    top = xp.where(top == -math.inf, 0, top)
    weights = xp.exp(scores - top)
    total = xp.sum(weights, axis=-1, keepdims=True)
    nothing = total == 0
    safe = xp.where(nothing, 1, total)
    out = xp.matmul(weights, value) / safe
    return out, (xp.where(nothing, -math.inf, top + xp.log(safe)),)


def _attend_vjp(
    xp: Namespace,
    g: Cotangent,
    arrays: Sequence[Array],
    out: Array,
    residuals: Residuals,
    is_causal: bool,
    scale: float | None,
) -> list[Any]:
    query, key, value = arrays[:3]
    mask = arrays[3] if len(arrays) > 3 else None
    factor = _scale(scale, query)
    scores = _scores(xp, query, key, mask, is_causal, factor)
    # The kernel leaves no residuals where another tape records the sweep; then the sums are computed again.
    if residuals or scores.shape[-1] == 0:
        total = residuals[0] if residuals else xp.sum(scores, axis=-1, keepdims=True)
    else:
        total = xp.logsumexp(scores, axis=-1, keepdims=True)
    # Where all scores of a query are -inf, so is their total. With inf in its place, the weights are 0 and not NaN.
    weights = xp.exp(scores - xp.where(total == -math.inf, math.inf, total))
    g_value = xp.matmul(weights.mT, g)
    # The rule of softmax, weights * (d - sum(weights * d)), where the sum is also that of g * out.
    g_scores = weights * (xp.matmul(g, value.mT) - xp.sum(g * out, axis=-1, keepdims=True))
    g_query = xp.matmul(g_scores, key) * factor
    g_key = xp.matmul(g_scores.mT, query) * factor
    found = [sum_to(xp, d, tuple(x.shape)) for d, x in zip((g_query, g_key, g_value), (query, key, value), strict=True)]
    if mask is None:
        return found
    boolean = xp.isdtype(mask.dtype, "bool")  # a boolean mask has no derivative; numbers are added to the scores
    return [*found, None if boolean else sum_to(xp, g_scores, tuple(mask.shape))]


def _attend_samples(draw: Draw) -> Iterator[Sample]:
    def inputs(*lead: int) -> list[Any]:
        return [draw(*lead, 3, 4), draw(*lead, 5, 4), draw(*lead, 5, 2)]

    yield Sample(inputs())
    yield Sample(inputs(2), is_causal=True)
    yield Sample([draw(2, 1, 3, 4), draw(3, 5, 4), draw(1, 5, 2)], scale=0.3)
    yield Sample([*inputs(2), draw(3, 5)])
    yield Sample([*inputs(), draw(3, 5) > -0.5], is_causal=True)
    yield Sample([*inputs(2, 2), draw(2, 1, 1, 5) > 0])
    yield Sample([*inputs(), draw(3, 1) > 0])  # some rows without a key
    yield Sample([draw(0, 3, 4), draw(0, 5, 4), draw(0, 5, 2)])
    yield Refused(ValueError, "same last dimension", [draw(3, 4), draw(5, 3), draw(5, 2)])
    yield Refused(ValueError, "same last but one", [draw(3, 4), draw(5, 4), draw(4, 2)])
    yield Refused(ValueError, "key must be an array", [draw(3, 4), draw(4), draw(4, 2)])
    yield Refused(TypeError, "mask must be", [*inputs(), draw.rng.integers(0, 2, (3, 5))])
    yield Refused(TypeError, "real numbers", [draw.complex(3, 4), *inputs()[1:]])


@op(
    arrays=vjp(_attend_vjp),
    sequence=True,
    kernel=lambda xp, arrays, **parameters: _attend_with_residuals(xp, arrays, **parameters)[0],
    residual_kernel=_attend_with_residuals,
    samples=_attend_samples,
    batch=batching.stacks(2),
    complex_kernel=REFUSED,
)
def attend(arrays: Sequence[ArrayLike], /, *, is_causal: bool = False, scale: float | None = None) -> Tensor:
    """Attention of `[query, key, value]` or `[query, key, value, mask]`: the op behind
    :func:`scaled_dot_product_attention`."""


attend.op.promoted = (0, 1, 2)  # type: ignore[attr-defined]  # the mask is of booleans, or added


def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike | None = None,
    /,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """`softmax(scale * query @ key.mT + mask) @ value`. A query that may attend to no key gets zeros, not NaN.

    Source: Vaswani and others, Attention Is All You Need, 2017, equation 1.

    >>> import tape_core as tc
    >>> q, k, v = tc.zeros((2, 4)), tc.zeros((3, 4)), tc.asarray([[1.0], [3.0], [8.0]])
    >>> tc.scaled_dot_product_attention(q, k, v).tolist()
    [[4.0], [4.0]]
    >>> tc.scaled_dot_product_attention(q, k, v, is_causal=True).tolist()
    [[1.0], [2.0]]
    >>> mask = tc.asarray([[True, True, False], [False, False, False]])
    >>> tc.scaled_dot_product_attention(q, k, v, mask).tolist()
    [[2.0], [0.0]]

    Args:
        query, key, value: arrays of shape (..., queries, features), (..., keys, features) and (..., keys, outputs).
            Leading dimensions, such as examples and heads, broadcast.
        mask: an array that broadcasts to (..., queries, keys): True where a query may attend to a key; or numbers that
            are added to the scores.
        is_causal: whether query i may attend only to keys 0 to i; it may be combined with a mask.
        scale: a factor of the scores, by default `1 / sqrt(features)`.

    Raises:
        TypeError: an array is not of a real floating dtype, or the mask is neither of one nor boolean.
        ValueError: shapes do not fit.
    """
    arrays = [query, key, value] if mask is None else [query, key, value, mask]
    return attend(arrays, is_causal=is_causal, scale=scale)
