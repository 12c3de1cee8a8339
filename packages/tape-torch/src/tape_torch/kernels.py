from __future__ import annotations
from typing import Any
from collections.abc import Callable

KERNELS: dict[str, Callable[..., Any]] = {}
