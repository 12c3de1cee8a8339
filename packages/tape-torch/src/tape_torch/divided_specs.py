"""PyTorch's descriptions of how arrays are divided, and arrays that are made of a part and a description.

A description says what mesh an array is on, how it is divided, and the shape, the strides and the dtype of the whole.
What follows of one is found once: to make a description anew takes longer than an op on small arrays.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta


def with_spec(part: torch.Tensor, spec: Any) -> Any:
    """Return the DTensor of a part of this process."""
    make: Any = DTensor.__new__  # `__init__` does nothing, and takes six times as long
    return make(DTensor, part, spec, requires_grad=False)


def divided_as(part: torch.Tensor, like: Any) -> Any:
    """Return the DTensor of a part that lies in memory in order, divided as another one of its shape."""
    spec = like._spec
    return with_spec(part, _in_order(spec, id(spec.mesh), part.dtype))


def whole_as(whole: torch.Tensor, like: Any) -> Any:
    """Return the DTensor of all values of another one, which lie in memory in order, as a copy in each process."""
    spec = like._spec
    return with_spec(whole, _copies(spec, id(spec.mesh), whole.dtype))


# By the identity of the mesh, too, which the description keeps: one of a former process group may be like that of now.


@lru_cache(maxsize=1024)
def _in_order(spec: Any, mesh: int, dtype: torch.dtype) -> Any:
    meta = _meta(spec, dtype)
    return spec if meta == spec.tensor_meta else spec.shallow_copy_with_tensor_meta(meta)


@lru_cache(maxsize=1024)
def _copies(spec: Any, mesh: int, dtype: torch.dtype) -> Any:
    return DTensorSpec(spec.mesh, (Replicate(),) * spec.mesh.ndim, tensor_meta=_meta(spec, dtype))


def _meta(spec: Any, dtype: torch.dtype) -> TensorMeta:
    return TensorMeta(spec.shape, torch.empty(spec.shape, device="meta").stride(), dtype)
