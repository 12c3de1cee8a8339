"""`const_graph`: here the function itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

Function = Callable[..., Any]


def const_graph(fun: Function, *args: Any, **kwargs: Any) -> Function:
    """Return a function of the remaining arguments, which runs as it is written each time.

    autograd keeps the graph of the first call and runs that; to have a function traced once and compiled, use
    `tape_core.function` on Tensors.
    """
    return wraps(fun)(partial(fun, *args, **kwargs))
