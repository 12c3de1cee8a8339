"""PyTorch's own functions, by the name of the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_torch import standard

KERNELS: dict[str, Callable[..., Any]] = {
    **standard.KERNELS,
}
