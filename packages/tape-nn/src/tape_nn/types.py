"""Type aliases of this package, beside those of `tape_core.typing`."""

from __future__ import annotations

from typing import Any, TypeAlias

from tape_core import IndexedSlices
from tape_core.backends import Backend
from tape_core.typing import ArrayLike

Gradient: TypeAlias = ArrayLike | IndexedSlices | None
"""A gradient as `tape.gradient` returns it: a Tensor, IndexedSlices from a gather, or None."""

BackendLike: TypeAlias = str | Backend | None
"""A backend or its name; None for the selected one."""

OptimizerLike: TypeAlias = Any
"""An optimizer of this package, or another object with `apply_gradients`."""

StateDict: TypeAlias = dict[str, Any]
"""Numbers, text, None and Tensors by name, in dictionaries and lists: what a checkpoint of `fit` can hold."""
