from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_torch import parity

KERNELS: dict[str, Callable[..., Any]] = {
    **parity.KERNELS,
}
