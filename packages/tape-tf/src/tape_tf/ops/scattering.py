"""Scatters: new tensors with other values at given coordinates."""

from __future__ import annotations

import tape_core as tc

from tape_tf.functions import op
from tape_tf.ops.indexing import check_coordinates, nd_key


@op("scatter_nd", "indices; updates", static_args="shape", kernel="ScatterNd")
def scatter_nd(indices: tc.Tensor, updates: tc.Tensor, shape: tuple[int, ...]) -> tc.Tensor:
    """Return zeros of `shape` with `updates` added at the coordinates in the last axis of `indices`.

    Raises:
        InvalidArgumentError: a coordinate is out of range, or `updates` has another shape than the indexed parts.
    """
    check_coordinates(indices, shape)
    blank = tc.zeros(shape, dtype=updates.dtype, backend=updates.backend.root, device=updates.device)
    return _update(blank, indices, updates, "add")


def _update(tensor: tc.Tensor, indices: tc.Tensor, updates: tc.Tensor, method: str) -> tc.Tensor:
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
    def scatter(tensor: tc.Tensor, indices: tc.Tensor, updates: tc.Tensor) -> tc.Tensor:
        check_coordinates(indices, tensor.shape)
        return _update(tensor, indices, updates, method)

    scatter.__doc__ = f"""Return `tensor` with `updates` at the coordinates in the last axis of `indices`: {short}."""


for _short, _method in {"update": "set", "add": "add", "sub": "subtract", "max": "max", "min": "min"}.items():
    _publish(_short, _method)
