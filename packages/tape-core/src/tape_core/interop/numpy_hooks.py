"""The methods by which NumPy's own functions take Tensors, also where an array is on the left of an operator.

At the first call they import `numpy_protocol`, and so NumPy, which puts its own methods in place of these two. So
`import tape_core` imports no array library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.engine.tensor import Tensor


def _ufunc(self: Tensor, ufunc: Any, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
    from tape_core.interop import numpy_protocol

    return numpy_protocol.ufunc(self, ufunc, method, *inputs, **kwargs)


def _function(self: Tensor, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from tape_core.interop import numpy_protocol

    return numpy_protocol.function(self, func, types, args, kwargs)


Tensor.__array_ufunc__ = _ufunc  # type: ignore[method-assign]
Tensor.__array_function__ = _function  # type: ignore[method-assign]
