"""New tensors that have other values at some places."""

from __future__ import annotations

from typing import Any

import tape_core as tc

from tape_tf.functions import op
from tape_tf.ops.indexing import check_places, nd_key


@op("scatter_nd", "indices; updates", static_args="shape", kernel="ScatterNd")
def scatter_nd(indices: tc.Tensor, updates: tc.Tensor, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with `updates` added at the places that the last axis of `indices` names.

    Raises:
        InvalidArgumentError: a place is outside, or `updates` has another shape than the places.
    """
    from tape_tf.conversion import static

    lengths = tuple(static(shape))
    check_places(indices, lengths)
    blank = tc.zeros(lengths, dtype=updates.dtype, backend=updates.backend.root, device=updates.device)
    return _at(blank, indices, updates, "add")


def _at(tensor: tc.Tensor, indices: tc.Tensor, updates: tc.Tensor, method: str) -> tc.Tensor:
    expected = (*indices.shape[:-1], *tensor.shape[indices.shape[-1] :])
    if updates.shape != expected:
        raise ValueError(
            f"updates must have shape {expected}, for indices of shape {indices.shape} into a tensor of shape "
            f"{tensor.shape}; got {updates.shape}"
        )
    found: tc.Tensor = getattr(tc.at(tensor)[nd_key(indices)], method)(updates)
    return found


def _publish(short: str, method: str) -> None:
    @op(f"tensor_scatter_nd_{short}", "tensor updates; indices", kernel=f"TensorScatter{short.capitalize()}")
    def scatter(tensor: tc.Tensor, indices: tc.Tensor, updates: tc.Tensor) -> Any:
        check_places(indices, tensor.shape)
        return _at(tensor, indices, updates, method)

    scatter.__doc__ = f"""`tensor` with `updates` at the places that the last axis of `indices` names: {short}."""


for _short, _method in {"update": "set", "add": "add", "sub": "subtract", "max": "max", "min": "min"}.items():
    _publish(_short, _method)
