from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_torch import nn

KERNELS: dict[str, Callable[..., Any]] = {
    **nn.KERNELS,
}

RULES: dict[str, dict[str, Any]] = {
    **nn.RULES,
}
