"""Masks of Keras: a boolean tensor that says which steps of another one count.

A mask is an attribute of its tensor, `_keras_mask`. :class:`Layer` hands it to `call` and sets the mask of the outputs;
losses and metrics weigh steps by it.
"""

from __future__ import annotations

from typing import Any

import tape_core as tc

from tape_tf.conversion import native, wrap
from tape_tf.keras.conversion import cast
from tape_tf.keras.structures import leaves, map_structure
from tape_tf.tensor import Tensor
from tape_tf.typing import DTypeLike, PyTree, TensorLike


def mask_of(value: object) -> Any:
    """Return the mask of a tensor; None if it has none, or is no tensor."""
    return value._keras_mask if type(value) is Tensor else None


def masks_of(structure: PyTree) -> Any:
    """Return the masks of the tensors in a structure, None for a tensor without."""
    return map_structure(mask_of, structure)


def has_mask(masks: PyTree) -> bool:
    """True if a structure of masks holds one."""
    return masks is not None and any([mask is not None for mask in leaves(masks)])


def set_masks(values: PyTree, masks: PyTree) -> None:
    """Give the tensors of a structure their masks; a mask that a tensor has already is kept."""
    for value, mask in zip(leaves(values), leaves(masks), strict=False):
        if type(value) is Tensor and value._keras_mask is None and mask is not None:
            value._keras_mask = wrap(as_mask(mask))


def with_mask(value: Tensor, mask: TensorLike | None) -> Any:
    """Return a tensor with a mask, beside which the former one stays as it was."""
    found = wrap(native(value))
    found._keras_mask = None if mask is None else wrap(as_mask(mask))
    return found


def as_mask(mask: TensorLike) -> tc.Tensor:
    """Convert a mask to a boolean tape_core Tensor; numbers other than 0 count as True."""
    found = native(mask)
    return found if found.dtype is tc.bool else found != 0


def expand_mask(mask: tc.Tensor, ndim: int) -> tc.Tensor:
    """Append axes of length 1 to a mask, so that it broadcasts to a tensor with `ndim` axes."""
    return tc.reshape(mask, mask.shape + (1,) * (ndim - mask.ndim))


def masked_weights(
    sample_weight: TensorLike | None, mask: TensorLike | None, dtype: DTypeLike, average: bool
) -> tc.Tensor | None:
    """Return weights of examples that are 0 where a mask is False.

    Args:
        average: a mean over all steps follows: the weights make it a mean over those that count, as in Keras.
    """
    weights = None if sample_weight is None else cast(sample_weight, dtype)
    if mask is None:
        return weights
    counts = as_mask(mask)
    factor = cast(wrap(counts), dtype)
    if average:
        valid = tc.sum(factor)
        # Where nothing counts, the loss is 0, and not 0 / 0.
        factor = factor * (counts.size / tc.where(valid == 0, 1.0, valid))
    if weights is None:
        return factor
    # A weight for each example counts for all its steps: axes are aligned on the left.
    ndim = max(weights.ndim, factor.ndim)
    return expand_mask(weights, ndim) * expand_mask(factor, ndim)
