"""PyTorch's own operators and, for what they do not take, what an op is elsewhere: its default kernel and rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from tape_core.backends.kernels import DEFAULT_KERNELS
from tape_core.engine.rules import vjp
from tape_core.typing import Namespace

_namespaces: list[Any] = []


def use(xp: Namespace) -> None:
    """Make `xp`, the kernels of the backend, what default kernels compute with."""
    _namespaces[:] = [xp]


def default(name: str, *args: Any, **kwargs: Any) -> Any:
    """The default kernel of an op."""
    return DEFAULT_KERNELS[name](_namespaces[0], *args, **kwargs)


# What a file that stands alone has in place of a call with these names (see `tape_compile.export.linker`).
default.resolve = lambda name: partial(DEFAULT_KERNELS[name], _namespaces[0])  # type: ignore[attr-defined]


def own(op: str, name: str) -> Callable[..., Any]:
    """The op's own rule for an input, as a function of `xp`, the cotangent and what the rule names."""
    from tape_core.extend import registry  # ops are there when a rule runs

    rule = registry[op].rules[name]
    if isinstance(rule, vjp):
        return rule.fn
    assert callable(rule)
    slope: Callable[..., Any] = rule
    return lambda xp, g, *args, **kwargs: g * slope(xp, *args, **kwargs)


own.resolve = lambda op, name: own(op, name)  # type: ignore[attr-defined]


def aten(name: str) -> Callable[..., Any]:
    """An operator of PyTorch, such as a fused backward pass, without the Python layer in front of it."""
    overload = getattr(torch.ops.aten, name).default
    function: Callable[..., Any] = getattr(overload, "_op", overload)
    return function
